"""What the demo shows: each process with its numbers, who knows what, and the story so far. Draws nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from rich.console import Group
from rich.table import Table
from rich.text import Text

from hansa.cli.demo_lines import ClientLine, Line, NodeLine, ProviderLine, RegistryLine
from hansa.cli.demo_mesh_books import MeshBooks, mesh_books
from hansa.cli.latencies import Latencies

# As much of the story as fits under the table on a small terminal.
STORY_LINES_MAX = 6


@dataclass(slots=True)
class Board:
    """Everything on the screen."""

    loop_name: str = ""
    registries: list[RegistryLine] = field(default_factory=list)
    providers: list[ProviderLine] = field(default_factory=list)
    client: ClientLine = field(default_factory=ClientLine)
    past_clients: list[ClientLine] = field(default_factory=list)
    nodes: list[NodeLine] = field(default_factory=list)
    past_nodes: list[NodeLine] = field(default_factory=list)
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
        """What killed clients were waiting for, by their last word: nobody is left who could miss it."""
        return sum(client.open_count for client in self.past_clients)

    def mesh_books(self) -> MeshBooks:
        return mesh_books([node for node in self.nodes if node.is_up], self.past_nodes)

    def mesh_is_settled(self) -> bool:
        """Nobody publishes any more, and every reader has what it was due or was told that it has not."""
        return all(node.is_quiet for node in self.nodes if node.is_up) and not self.mesh_books().missing_count

    @property
    def handover_s(self) -> float | None:
        """How long a topic waited for its owner to come back: the longest, as the subscribers measured it."""
        return max((node.handover_s for node in self.nodes if node.handover_s is not None), default=None)

    # -- pictures

    def registry_name(self, provider: ProviderLine) -> str:
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

    def _node_row(self, node: NodeLine) -> list[str | Text]:
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


def state(line: Line, word: str) -> tuple[str, Text]:
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
