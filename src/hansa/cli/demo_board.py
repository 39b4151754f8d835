"""What the demo shows: numbers per process, their sums, and the story so far. Draws nothing by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hansa.cli.latencies import Latencies

# Rates and percentiles speak of this many of a dealer's latest reports, about one second.
RECENT_COUNT = 4


@dataclass(slots=True)
class DealerLine:
    """The latest numbers of one dealer."""

    pid: int = 0
    connected: bool = False
    reconnects_count: int = 0
    asked_count: int = 0
    answered_count: int = 0
    asked_again_count: int = 0
    answered_twice_count: int = 0
    done: bool = False
    recent: deque[tuple[float, int, Latencies]] = field(default_factory=lambda: deque(maxlen=RECENT_COUNT))

    def hear(self, report: Mapping[str, Any], *, now: float) -> None:
        for name in ("pid", "connected", "reconnects_count", "asked_count", "answered_count"):
            setattr(self, name, report[name])
        for name in ("asked_again_count", "answered_twice_count", "done"):
            setattr(self, name, report[name])
        self.recent.append((now, self.answered_count, Latencies.from_json(report["latencies"])))

    @property
    def open_count(self) -> int:
        return self.asked_count - self.answered_count

    @property
    def rate(self) -> float:
        """Answers per second, lately."""
        if len(self.recent) < 2 or self.recent[-1][0] == self.recent[0][0]:
            return 0.0
        return (self.recent[-1][1] - self.recent[0][1]) / (self.recent[-1][0] - self.recent[0][0])

    def latencies(self) -> Latencies:
        total = Latencies()
        for _, _, latencies in self.recent:
            total.add(latencies)
        return total


@dataclass(slots=True)
class Board:
    """Everything on the screen."""

    endpoint: str = ""
    loop_name: str = ""
    router_pid: int | None = None
    dealers: list[DealerLine] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    def sum(self, name: str) -> int:
        return sum(getattr(dealer, name) for dealer in self.dealers)

    @property
    def rate(self) -> float:
        return sum(dealer.rate for dealer in self.dealers)

    def latencies(self) -> Latencies:
        total = Latencies()
        for dealer in self.dealers:
            total.add(dealer.latencies())
        return total

    def as_line(self, elapsed_s: float) -> str:
        """The state in one line, for a log."""
        latencies = self.latencies()
        return (
            f"{elapsed_s:5.1f} s  {self.rate:9,.0f} round trips/s  p50 {micros(latencies, 0.5)}"
            f"  p99 {micros(latencies, 0.99)}  connected {self.sum('connected')}/{len(self.dealers)}"
            f"  reconnects {self.sum('reconnects_count')}  open {self.sum('open_count')}"
        )

    def as_screen(self, elapsed_s: float) -> Group:
        """The state as a table, for a terminal."""
        table = Table(expand=False, title_justify="left")
        for name in ("process", "pid", "state"):
            table.add_column(name)
        for name in ("round trips/s", "p50", "p99", "answered", "open", "asked again", "reconnects"):
            table.add_column(name, justify="right")
        up = self.router_pid is not None
        state = Text("answering", "green") if up else Text("killed", "bold red")
        table.add_row("ROUTER", str(self.router_pid or "-"), state, end_section=True)
        for number, dealer in enumerate(self.dealers, 1):
            state = Text("connected", "green") if dealer.connected else Text("dialling", "yellow")
            table.add_row(f"DEALER {number}", str(dealer.pid or "-"), state, *numbers(dealer))
        table.add_section()
        table.add_row("all", "", "", *numbers(self), style="bold")
        head = Text(f"hansa demo  {self.endpoint}  {self.loop_name}  {elapsed_s:4.1f} s", "bold")
        return Group(head, table, *(Text(line) for line in self.story))


def numbers(line: DealerLine | Board) -> list[str]:
    latencies = line.latencies()
    names = ("answered_count", "open_count", "asked_again_count", "reconnects_count")
    counts = [line.sum(name) if isinstance(line, Board) else getattr(line, name) for name in names]
    return [
        f"{line.rate:,.0f}",
        micros(latencies, 0.5),
        micros(latencies, 0.99),
        *(f"{count:,}" for count in counts),
    ]


def micros(latencies: Latencies, share: float) -> str:
    latency_s = latencies.quantile_s(share)
    return "-" if latency_s is None else f"{latency_s * 1e6:,.0f} us"
