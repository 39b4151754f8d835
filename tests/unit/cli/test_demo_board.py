"""What the demo shows follows from what its processes report."""

from io import StringIO
from typing import Any

from rich.console import Console

from hansa.cli.demo_board import Board, DealerLine
from hansa.cli.latencies import Latencies


def report(**changes: Any) -> dict[str, Any]:
    latencies = Latencies()
    latencies.note(0.001)
    usual = {
        "pid": 7,
        "connected": True,
        "reconnects_count": 0,
        "asked_count": 0,
        "answered_count": 0,
        "asked_again_count": 0,
        "answered_twice_count": 0,
        "latencies": latencies.as_json(),
        "done": False,
    }
    return usual | changes


def test_the_rate_is_that_of_the_latest_reports() -> None:
    line = DealerLine()
    line.hear(report(answered_count=0), now=10.0)
    assert line.rate == 0.0
    line.hear(report(answered_count=500), now=10.5)
    assert line.rate == 1000.0
    for step in range(8):
        line.hear(report(answered_count=500), now=11.0 + step)
    assert line.rate == 0.0


def test_two_reports_at_one_instant_give_no_rate() -> None:
    line = DealerLine()
    line.hear(report(answered_count=1), now=1.0)
    line.hear(report(answered_count=9), now=1.0)
    assert line.rate == 0.0


def test_open_questions_are_those_without_an_answer() -> None:
    line = DealerLine()
    line.hear(report(asked_count=40, answered_count=8), now=1.0)
    assert line.open_count == 32


def test_the_sums_are_in_the_line_and_on_the_screen() -> None:
    board = Board(endpoint="tcp://127.0.0.1:5", dealers=[DealerLine(), DealerLine()], story=["it began"])
    for line in board.dealers:
        line.hear(report(asked_count=1200, answered_count=1100, reconnects_count=1), now=1.0)
    text = board.as_line(2.0)
    assert "connected 2/2" in text
    assert "reconnects 2" in text
    assert "open 200" in text
    console = Console(width=140, record=True, file=StringIO())
    console.print(board.as_screen(2.0))
    screen = console.export_text()
    assert "2,200" in screen
    assert "killed" in screen
    assert "it began" in screen
