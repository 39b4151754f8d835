"""The board of the demo: each process with its last report, the books of the topics, and the story so far.

A process has one line, made from its last report. `Board` puts the lines together; the director draws them.

The books say which messages every reader was due and which it got. A reader that was there before a stream
began is due all of it; one that came later is due everything from its first message on. Each of these
messages was delivered, or hansa told the reader that it was dropped (its own queue was full) or missed (lost
between nodes). Only a killed publisher leaves an open end: messages that it counted, or that another reader
got, and that were still on their way when it was killed. They are not due. Any other message that is not
accounted for is missing, and there should be none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hansa.demo.books import Latencies, Stream, streams_from_json

# Rates and percentiles are about this many of the latest reports, about one second.
RECENT_COUNT = 5

# As many lines of the story as fit under the table on a small terminal.
STORY_LINES_MAX = 6


class Recent:
    """The recent values of a count, for its rate."""

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
class RegistryRow:
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
class ProviderRow:
    """One provider: where it is registered, and how many requests it has answered."""

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
class ClientRow:
    """One life of the client: its books and the providers that it knows."""

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
class ReaderRow:
    """One reader of topics: its subscriptions, what it received, and what hansa told it that it did not."""

    wants: list[str]
    streams: dict[str, Stream]
    received_count: int
    unordered_count: int
    missed_count: int
    dropped_count: int

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> ReaderRow:
        return cls(**{**plain, "streams": streams_from_json(plain["streams"])})


@dataclass(slots=True, kw_only=True)
class NodeRow:
    """One life of a node: which nodes it knows, what it published, and its readers."""

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
    readers: dict[str, ReaderRow] = field(default_factory=dict)
    recent: Recent = field(default_factory=Recent)
    _latencies: deque[Latencies] = field(default_factory=lambda: deque(maxlen=RECENT_COUNT))

    def hear(self, report: Mapping[str, Any], *, now: float) -> None:
        for name in ("pid", "id", "handover_s", "is_quiet", "published"):
            setattr(self, name, report[name])
        self.peers, self.active = set(report["peers"]), set(report["active"])
        self.readers = {name: ReaderRow.from_json(plain) for name, plain in report["readers"].items()}
        self.recent.hear(self.received_count, now)
        self._latencies.append(Latencies.from_json(report["latencies"]))

    @property
    def source(self) -> str:
        """The name of this life in its messages."""
        return f"{self.number}.{self.life}"

    @property
    def received_count(self) -> int:
        return sum(reader.received_count for reader in self.readers.values())

    @property
    def lost_count(self) -> int:
        return sum(reader.missed_count + reader.dropped_count for reader in self.readers.values())

    def latencies(self) -> Latencies:
        return total(self._latencies)


Row: TypeAlias = RegistryRow | ProviderRow | ClientRow | NodeRow


def total(all_latencies: Iterable[Latencies]) -> Latencies:
    """The sum of all latencies."""
    sum_of_all = Latencies()
    for latencies in all_latencies:
        sum_of_all.add(latencies)
    return sum_of_all


@dataclass(slots=True, kw_only=True)
class MeshBooks:
    """Sums over all readers that are alive."""

    published_count: int = 0
    """As far as known: a killed node may have published more."""
    due_count: int = 0
    delivered_count: int = 0
    dropped_count: int = 0
    missed_count: int = 0
    cut_off_count: int = 0
    unordered_count: int = 0

    @property
    def missing_count(self) -> int:
        """Due, and neither delivered nor accounted for; less than 0 if more came than was due."""
        accounted_count = self.delivered_count + self.dropped_count + self.missed_count + self.cut_off_count
        return self.due_count - accounted_count

    @property
    def is_balanced(self) -> bool:
        return not self.missing_count and not self.unordered_count


def mesh_books(living: Sequence[NodeRow], past: Sequence[NodeRow]) -> MeshBooks:
    """The books by the last reports of all processes."""
    books = MeshBooks()
    open_ends = _open_ends(living, past)
    closed = {stream: count for node in living for stream, count in node.published.items()}
    books.published_count = sum(closed.values()) + sum(open_ends.values())
    for node in living:
        for reader in node.readers.values():
            _enter(books, node, reader, closed, open_ends)
    return books


def _open_ends(living: Iterable[NodeRow], past: Iterable[NodeRow]) -> dict[str, int]:
    """How many messages the streams of killed nodes had, as far as known."""
    ends = {name: count for node in past for name, count in node.published.items()}
    for node in living:
        for name in ends:
            ends[name] = max(ends[name], _last(node, name))
    return ends


def _last(node: NodeRow, name: str) -> int:
    """The last message of a stream that reached any reader of a node: one of them may have dropped it."""
    return max(
        (reader.streams[name].last for reader in node.readers.values() if name in reader.streams), default=0
    )


def _enter(
    books: MeshBooks, node: NodeRow, reader: ReaderRow, closed: dict[str, int], open_ends: dict[str, int]
) -> None:
    for name, count in (*closed.items(), *open_ends.items()):
        topic, source = name.rsplit(" ", 1)
        if not any(is_wanted(topic, text) for text in reader.wants):
            continue
        stream = reader.streams.get(name)
        was_there = node.life == 1 or source == node.source
        if stream is None and not was_there:
            continue
        first = 1 if stream is None or was_there else stream.first
        books.due_count += count - first + 1
        books.delivered_count += 0 if stream is None else stream.count
        if name in open_ends:
            books.cut_off_count += count - _last(node, name)
    books.dropped_count += reader.dropped_count
    books.missed_count += reader.missed_count
    books.unordered_count += reader.unordered_count


def is_wanted(topic: str, text: str) -> bool:
    """Whether a name or pattern stands for this topic."""
    return topic.startswith(text[:-1]) if text.endswith("*") else topic == text


@dataclass(slots=True)
class Board:
    """Everything on the screen."""

    loop_name: str = ""
    registries: list[RegistryRow] = field(default_factory=list)
    providers: list[ProviderRow] = field(default_factory=list)
    client: ClientRow = field(default_factory=ClientRow)
    past_clients: list[ClientRow] = field(default_factory=list)
    nodes: list[NodeRow] = field(default_factory=list)
    past_nodes: list[NodeRow] = field(default_factory=list)
    story: list[str] = field(default_factory=list)

    # -- who knows what

    @property
    def living(self) -> dict[str, str]:
        """The providers that run: endpoints and routing ids."""
        return {provider.endpoint: provider.id for provider in self.providers if provider.is_up}

    def client_knows(self) -> bool:
        """The client calls the providers that run, and no others."""
        return self.client.connections_count == len(self.living)

    def everybody_knows(self) -> bool:
        """Every process that runs knows of every other one that runs, and believes in none that does not."""
        living = self.living
        registries = [registry for registry in self.registries if registry.is_up]
        numbers = {registry.number for registry in registries}
        routers = {registry.router for registry in registries}
        return (
            all(
                provider.state == "registered" and provider.registry in routers
                for provider in self.providers
                if provider.is_up
            )
            and all(
                registry.listed == living and numbers - {registry.number} <= registry.peers_heard
                for registry in registries
            )
            and self.client_knows()
            and self.client.listed == living
            and self.client.registries_heard == numbers
        )

    def mesh_knows(self) -> bool:
        """Every node that runs is connected to the others that run, and reads their topics and no others."""
        living = [node for node in self.nodes if node.is_up]
        topics = {topic for node in living for topic in node.owned}
        ids = {node.id for node in living}
        return all(
            node.id != "" and node.peers == ids - {node.id} and node.active == topics for node in living
        )

    # -- the books

    @property
    def asked_count(self) -> int:
        return sum(client.asked_count for client in (*self.past_clients, self.client))

    @property
    def answered_count(self) -> int:
        return sum(client.answered_count for client in (*self.past_clients, self.client))

    @property
    def failed(self) -> dict[str, int]:
        """By code, over all lives of the client."""
        total: dict[str, int] = {}
        for client in (*self.past_clients, self.client):
            for code, count in client.failed.items():
                total[code] = total.get(code, 0) + count
        return total

    @property
    def retried_count(self) -> int:
        return sum(client.retried_count for client in (*self.past_clients, self.client))

    @property
    def open_when_killed_count(self) -> int:
        """Requests for which killed clients waited, by their last report: nobody is left to miss them."""
        return sum(client.open_count for client in self.past_clients)

    def mesh_books(self) -> MeshBooks:
        return mesh_books([node for node in self.nodes if node.is_up], self.past_nodes)

    def mesh_is_settled(self) -> bool:
        """Whether nobody publishes any longer, and every message that was due came or is accounted for."""
        return all(node.is_quiet for node in self.nodes if node.is_up) and not self.mesh_books().missing_count

    @property
    def handover_s(self) -> float | None:
        """The longest time that a topic waited for its owner to come back, as the subscribers measured it."""
        return max((node.handover_s for node in self.nodes if node.handover_s is not None), default=None)

    # -- pictures

    def registry_name(self, provider: ProviderRow) -> str:
        """The number of the registry that a provider is registered with."""
        names = {registry.router: str(registry.number) for registry in self.registries}
        return names.get(provider.registry or "", "-") if provider.is_up else "-"

    def as_line(self, elapsed_s: float) -> str:
        """The state in one line, for a log."""
        client, latencies = self.client, self.client.latencies()
        up_counts = [
            sum(line.is_up for line in lines) for lines in (self.registries, self.providers, self.nodes)
        ]
        where = " ".join(self.registry_name(provider) for provider in self.providers)
        rate = sum(node.recent.rate for node in self.nodes if node.is_up)
        return (
            f"{elapsed_s:5.1f} s  {client.recent.rate:8,.0f} calls/s  p50 {micros(latencies, 0.5)} us"
            f"  p99 {micros(latencies, 0.99)} us  failed {sum(self.failed.values())}"
            f"  open {client.open_count}  registries {up_counts[0]}/{len(self.registries)}"
            f"  providers {up_counts[1]}/{len(self.providers)} (registered with {where})"
            f"  nodes {up_counts[2]}/{len(self.nodes)}  {rate:,.0f} messages/s"
        )

    def as_screen(self, elapsed_s: float, *, story_lines_max: int | None = None) -> Group:
        """The state as a table, for a terminal, with as many of the latest lines of the story."""
        # Without lines and with few words it fits 80 columns, or nearly.
        table = Table(
            expand=False, box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline"
        )
        for name in ("process", "pid", "state", "knows"):
            table.add_column(name, no_wrap=True)
        for name in ("per s", "p50 us", "p99 us", "done", "lost"):
            table.add_column(name, justify="right", no_wrap=True)
        for registry in self.registries:
            knows = f"{len(registry.listed)} listed, {count(len(registry.peers_heard), 'peer')}"
            table.add_row(f"registry {registry.number}", *state(registry, "running"), knows)
        for provider in self.providers:
            name = self.registry_name(provider)
            registered = "at no registry" if name == "-" else f"at registry {name}"
            numbers = [f"{provider.recent.rate:,.0f}", "", "", f"{provider.answered_count:,}"]
            table.add_row(
                f"provider {provider.number}",
                *state(provider, provider.state),
                registered,
                *(numbers if provider.is_up else []),
            )
        table.add_row(*self._client_row(), style="bold")
        for node in self.nodes:
            table.add_row(*self._node_row(node), style="bold")
        hand_over = "" if self.handover_s is None else f"  hand-over of topics {self.handover_s:.2f} s"
        head = Text(f"hansa demo  {self.loop_name}  {elapsed_s:4.1f} s{hand_over}", "bold")
        legend = "done: answered, or delivered; lost: failed, or dropped and missed"
        story = self.story if story_lines_max is None else self.story[-story_lines_max:]
        return Group(head, table, Text(legend, "dim"), *(Text(line) for line in story))

    def _client_row(self) -> list[str | Text]:
        client, latencies = self.client, self.client.latencies()
        knows = f"{client.connections_count} called, {client.open_count:,} open"
        return [
            f"client {len(self.past_clients) + 1}",
            *state(client, "calling"),
            knows if client.is_up else "-",
            f"{client.recent.rate:,.0f}",
            *(micros(latencies, share) for share in (0.5, 0.99)),
            f"{client.answered_count:,}",
            f"{client.failed_count:,}",
        ]

    def _node_row(self, node: NodeRow) -> list[str | Text]:
        cells: list[str | Text] = [f"node {node.number}", *state(node, "publishing")]
        if not node.is_up:
            return cells
        latencies = node.latencies()
        return [
            *cells,
            f"{count(len(node.peers), 'node')}, {count(len(node.active), 'topic')}",
            f"{node.recent.rate:,.0f}",
            *(micros(latencies, share) for share in (0.5, 0.99)),
            f"{node.received_count:,}",
            f"{node.lost_count:,}",
        ]


def state(line: Row, word: str) -> tuple[str, Text]:
    """The cells for pid and state."""
    if not line.is_up:
        return "-", Text("killed", "bold red")
    if not line.pid:
        return "-", Text("starting", "yellow")
    return str(line.pid), Text(word, "yellow" if word in ("bound", "connected") else "green")


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def micros(latencies: Latencies, share: float) -> str:
    latency_s = latencies.quantile_s(share)
    return "-" if latency_s is None else f"{latency_s * 1e6:,.0f}"
