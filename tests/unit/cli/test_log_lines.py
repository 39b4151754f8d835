"""Lines that never hold up the program, whatever their reader does."""

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest

from hansa.cli import log_lines
from hansa.cli.log_lines import LogLines, size, visible

WITHIN_S = 20.0


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            continue  # Closed by the test.


def test_lines_are_for_people_or_for_programs(tmp_path: Path) -> None:
    for as_json, expected in ((False, "it began"), (True, '{"event": "began", "pid": 7}')):
        path = tmp_path / "lines"
        with path.open("wb") as file, LogLines(as_json=as_json, descriptor=file.fileno()) as log:
            log.tell("began", "it began", pid=7)
        assert path.read_text() == expected + "\n"


def test_a_reader_that_stalls_costs_lines_and_no_time(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_lines, "LINES_WAITING_MAX", 100)
    reading, writing = pipe
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    lines: list[bytes] = []

    def read_all() -> None:
        with os.fdopen(reading, "rb", closefd=False) as file:
            for line in file:
                lines.append(line)

    reader = threading.Thread(target=read_all)
    with LogLines(as_json=True, descriptor=writing) as log:
        for number in range(2_000):
            log.tell("step", "", number=number, filler="x" * 100)
        assert log.dropped_count > 0
        reader.start()
        while not any(b"lines-dropped" in line for line in lines):
            log.tell("again", "")
            sleep(0.001)
    os.close(writing)
    reader.join(WITHIN_S)
    told = [json.loads(line) for line in lines]
    numbers = [one["number"] for one in told if "number" in one]
    assert numbers == sorted(numbers)
    assert sum(one.get("count", 0) for one in told) <= log.dropped_count


def test_a_reader_that_left_is_told_once_and_nothing_more_is_kept(pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    os.close(reading)
    left = threading.Event()
    with LogLines(as_json=False, descriptor=writing, on_broken=left.set) as log:
        log.tell("one", "one")
        assert left.wait(WITHIN_S)
        log.tell("two", "two")
    assert log.dropped_count >= 1


def test_nothing_that_a_terminal_obeys_passes() -> None:
    assert visible("plain text, ünïcode") == "plain text, ünïcode"
    assert visible("a\x1b[2Jb\nc") == r"a\x1b[2Jb\nc"


def test_sizes_are_for_people() -> None:
    assert [size(n) for n in (12, 24_576, 5 * 1024**2, 3 * 1024**3)] == [
        "12 B",
        "24.0 KiB",
        "5.0 MiB",
        "3.0 GiB",
    ]
