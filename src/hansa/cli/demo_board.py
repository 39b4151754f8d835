"""What the demo shows: each process with its numbers, who knows what, and the story so far. Draws nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

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
        total = Latencies()
        for latencies in self._latencies:
            total.add(latencies)
        return total


@dataclass(slots=True)
class Board:
    """Everything on the screen."""

    loop_name: str = ""
    registries: list[RegistryLine] = field(default_factory=list)
    providers: list[ProviderLine] = field(default_factory=list)
    client: ClientLine = field(default_factory=ClientLine)
    past_clients: list[ClientLine] = field(default_factory=list)
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
        """What killed clients were waiting for, by their last word: nobody is left who could miss it."""
        return sum(client.open_count for client in self.past_clients)

    # -- pictures

    def registry_name(self, provider: ProviderLine) -> str:
        """The number of the registry that a provider is registered with."""
        names = {registry.router: str(registry.number) for registry in self.registries}
        return names.get(provider.registry or "", "-") if provider.is_up else "-"

    def as_line(self, elapsed_s: float) -> str:
        """The state in one line, for a log."""
        client, latencies = self.client, self.client.latencies()
        up_counts = [sum(line.is_up for line in lines) for lines in (self.registries, self.providers)]
        where = " ".join(self.registry_name(provider) for provider in self.providers)
        return (
            f"{elapsed_s:5.1f} s  {client.recent.rate:8,.0f} calls/s  p50 {micros(latencies, 0.5)}"
            f"  p99 {micros(latencies, 0.99)}  failed {sum(self.failed.values())}  open {client.open_count}"
            f"  registries {up_counts[0]}/{len(self.registries)}"
            f"  providers {up_counts[1]}/{len(self.providers)} (registered with {where})"
        )

    def as_screen(self, elapsed_s: float) -> Group:
        """The state as a table, for a terminal."""
        table = Table(expand=False)
        for name in ("process", "pid", "state", "knows"):
            table.add_column(name)
        for name in ("calls/s", "p50", "p99", "answered", "failed", "open"):
            table.add_column(name, justify="right")
        for registry in self.registries:
            knows = f"{count(len(registry.listed), 'provider')}, {count(len(registry.peers_heard), 'peer')}"
            table.add_row(f"registry {registry.number}", *state(registry, "running"), knows)
        table.add_section()
        for provider in self.providers:
            name = self.registry_name(provider)
            registered = "at no registry" if name == "-" else f"is at registry {name}"
            numbers = [f"{provider.recent.rate:,.0f}", "", "", f"{provider.answered_count:,}"]
            table.add_row(
                f"provider {provider.number}",
                *state(provider, provider.state),
                registered,
                *(numbers if provider.is_up else []),
            )
        table.add_section()
        table.add_row(*self._client_row(), style="bold")
        head = Text(f"hansa demo  {self.loop_name}  {elapsed_s:4.1f} s", "bold")
        return Group(head, table, *(Text(line) for line in self.story))

    def _client_row(self) -> list[str | Text]:
        client, latencies = self.client, self.client.latencies()
        knows = (
            f"{count(client.connections_count, 'provider')}, {len(client.registries_heard)} registries"
            if client.is_up
            else "-"
        )
        return [
            f"client {len(self.past_clients) + 1}",
            *state(client, "calling"),
            knows,
            f"{client.recent.rate:,.0f}",
            micros(latencies, 0.5),
            micros(latencies, 0.99),
            f"{client.answered_count:,}",
            f"{client.failed_count:,}",
            f"{client.open_count:,}",
        ]


def state(line: RegistryLine | ProviderLine | ClientLine, word: str) -> tuple[str, Text]:
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
    return "-" if latency_s is None else f"{latency_s * 1e6:,.0f} us"
