"""The processes of the demo by what they reported last: a line of the board each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hansa.cli.demo_ledger import Stream, streams_from_json
from hansa.cli.latencies import Latencies

# Rates and percentiles speak of this many of the latest reports, about one second.
RECENT_COUNT = 5


class Recent:
    """A count as it was lately, for its rate."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque(maxlen=RECENT_COUNT)

    def hear(self, count: int, now: float) -> None:
        self._counts.append((now, count))

    @property
    def rate(self) -> float:
        """Per second; 0 when there is nothing to compare."""
        if len(self._counts) < 2 or self._counts[-1][0] == self._counts[0][0]:
            return 0.0
        return (self._counts[-1][1] - self._counts[0][1]) / (self._counts[-1][0] - self._counts[0][0])


@dataclass(slots=True, kw_only=True)
class RegistryLine:
    """One registry: what it lists (endpoint and routing id) and which others it hears."""

    number: int
    router: str
    pid: int = 0
    is_up: bool = True
    listed: dict[str, str] = field(default_factory=dict)
    peers_heard: set[int] = field(default_factory=set)

    def hear(self, report: Mapping[str, Any], *, now: float) -> None:
        self.pid, self.listed, self.peers_heard = report["pid"], report["listed"], set(report["peers_heard"])


@dataclass(slots=True, kw_only=True)
class ProviderLine:
    """One provider: where it is registered, and what it has answered."""

    number: int
    pid: int = 0
    is_up: bool = True
    endpoint: str = ""
    id: str = ""
    registry: str | None = None
    state: str = "starting"
    answered_count: int = 0
    recent: Recent = field(default_factory=Recent)

    def hear(self, report: Mapping[str, Any], *, now: float) -> None:
        for name in ("pid", "endpoint", "id", "registry", "state", "answered_count"):
            setattr(self, name, report[name])
        self.recent.hear(self.answered_count, now)


@dataclass(slots=True, kw_only=True)
class ClientLine:
    """One life of the client: its books and what it knows."""

    pid: int = 0
    is_up: bool = True
    asked_count: int = 0
    answered_count: int = 0
    retried_count: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    listed: dict[str, str] = field(default_factory=dict)
    connections_count: int = 0
    registries_heard: set[int] = field(default_factory=set)
    done: bool = False
    recent: Recent = field(default_factory=Recent)
    _latencies: deque[Latencies] = field(default_factory=lambda: deque(maxlen=RECENT_COUNT))

    def hear(self, report: Mapping[str, Any], *, now: float) -> None:
        for name in ("pid", "asked_count", "answered_count", "retried_count", "failed", "listed"):
            setattr(self, name, report[name])
        self.connections_count = report["connections_count"]
        self.registries_heard = set(report["registries_heard"])
        self.done = report.get("done", False)
        self.recent.hear(self.answered_count, now)
        self._latencies.append(Latencies.from_json(report["latencies"]))

    @property
    def failed_count(self) -> int:
        return sum(self.failed.values())

    @property
    def open_count(self) -> int:
        return self.asked_count - self.answered_count - self.failed_count

    def latencies(self) -> Latencies:
        return total(self._latencies)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLine:
    """One reader of topics: what it subscribed, what it received, and what hansa told it that it did not."""

    wants: list[str]
    streams: dict[str, Stream]
    received_count: int
    unordered_count: int
    missed_count: int
    dropped_count: int

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ReaderLine:
        return cls(**{**plain, "streams": streams_from_json(plain["streams"])})


@dataclass(slots=True, kw_only=True)
class NodeLine:
    """One life of a node: whom it knows, what it published, and its readers."""

    number: int
    life: int = 1
    pid: int = 0
    is_up: bool = True
    id: str = ""
    owned: list[str] = field(default_factory=list)
    peers: set[str] = field(default_factory=set)
    active: set[str] = field(default_factory=set)
    handover_s: float | None = None
    is_quiet: bool = False
    published: dict[str, int] = field(default_factory=dict)
    readers: dict[str, ReaderLine] = field(default_factory=dict)
    recent: Recent = field(default_factory=Recent)
    _latencies: deque[Latencies] = field(default_factory=lambda: deque(maxlen=RECENT_COUNT))

    def hear(self, report: Mapping[str, Any], *, now: float) -> None:
        for name in ("pid", "id", "handover_s", "is_quiet", "published"):
            setattr(self, name, report[name])
        self.peers, self.active = set(report["peers"]), set(report["active"])
        self.readers = {name: ReaderLine.from_json(plain) for name, plain in report["readers"].items()}
        self.recent.hear(self.received_count, now)
        self._latencies.append(Latencies.from_json(report["latencies"]))

    @property
    def source(self) -> str:
        """This life, as it stands in its messages."""
        return f"{self.number}.{self.life}"

    @property
    def received_count(self) -> int:
        return sum(reader.received_count for reader in self.readers.values())

    @property
    def lost_count(self) -> int:
        return sum(reader.missed_count + reader.dropped_count for reader in self.readers.values())

    def latencies(self) -> Latencies:
        return total(self._latencies)


Line: TypeAlias = RegistryLine | ProviderLine | ClientLine | NodeLine


def total(all_latencies: Iterable[Latencies]) -> Latencies:
    """All of them in one."""
    sum_of_all = Latencies()
    for latencies in all_latencies:
        sum_of_all.add(latencies)
    return sum_of_all
