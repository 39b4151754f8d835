"""The demo's director: starts the processes, kills one of each kind, brings it back, and checks the books.

Every process is a real one (`cast`). In a terminal the numbers are drawn in place; elsewhere a line a second
is printed.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from random import randrange
from typing import Any

from rich.console import Console
from rich.live import Live

from hansa.demo.board import STORY_LINES_MAX, Board, ClientRow, NodeRow, ProviderRow, RegistryRow, Row
from hansa.demo.cast import owned_topics
from hansa.runtime.loops import loop_name

LAST_WORDS_MAX = 20
# Below the ports of outgoing connections: while a process is away, nobody takes its port.
PORTS = (20_000, 30_000)

DRAW_INTERVAL_S = 0.25
# How long all processes may take to learn of a change: many times what they need, also where ten processes
# that start at once wait long for a core.
KNOW_S_MAX = 60.0
SETTLE_S_MAX = 60.0
AWAY_S = 1.5
REGISTRIES_COUNT = 3
PROVIDERS_COUNT = 3
NODES_COUNT = 3
SLOW_READER_NODE = 3
# When each act begins, as a share of the whole.
REGISTRY_ACT, PROVIDER_ACT, NODE_ACT, CLIENT_ACT = 0.1, 0.35, 0.6, 0.82


class DemoFailed(Exception):
    """Something happened that the demo does not expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long the demo takes, and how much the client asks."""

    run_s: float = 12.0
    in_flight_count: int = 16
    payload_bytes: int = 64


async def play(settings: Settings) -> int:
    """Play the whole demo; returns the exit status: 0 when every call and message is accounted for."""
    console = Console(highlight=False)
    director = Director(settings)
    problems: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            draw = draw_in_place if console.is_terminal else print_lines
            picture = group.create_task(draw(console, director), name="picture")
            try:
                await director.play()
            finally:
                picture.cancel()
    except* DemoFailed as failures:
        problems = [str(failure) for failure in leaves(failures)]
    for problem in problems:
        console.print(f"the demo failed: {problem}", style="bold red", markup=False, soft_wrap=True)
    return settle(console, director.board) or (1 if problems else 0)


class Director:
    """Runs one demo. `board` is always up to date."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._pubs = free_endpoints(2 * REGISTRIES_COUNT + PROVIDERS_COUNT + NODES_COUNT)
        self._routers = [self._pubs.pop() for _ in range(REGISTRIES_COUNT)]
        self._binds = [self._pubs.pop() for _ in range(PROVIDERS_COUNT)]
        self._node_binds = [self._pubs.pop() for _ in range(NODES_COUNT)]
        self.board = Board(
            loop_name=loop_name(),
            registries=[RegistryRow(number=i + 1, router=self._routers[i]) for i in range(REGISTRIES_COUNT)],
            providers=[ProviderRow(number=i + 1) for i in range(PROVIDERS_COUNT)],
            nodes=[NodeRow(number=i + 1) for i in range(NODES_COUNT)],
        )
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self._heard = asyncio.Event()
        self.on_story: Callable[[str], None] = lambda line: None
        self._stage: AsyncExitStack
        self._followers: asyncio.TaskGroup
        self._begun_at = 0.0

    @property
    def elapsed_s(self) -> float:
        return self._loop.time() - self._started_at

    def say(self, line: str) -> None:
        self.board.story.append(f"{self.elapsed_s:5.1f} s  {line}")
        self.on_story(self.board.story[-1])

    async def play(self) -> None:
        """Play from the start to settled books. Raises DemoFailed."""
        async with AsyncExitStack() as self._stage, asyncio.TaskGroup() as self._followers:
            registries = [await self._registry(i) for i in range(REGISTRIES_COUNT)]
            await self._until(lambda: all(line.pid for line in self.board.registries), "the registries run")
            providers = [await self._provider(i) for i in range(PROVIDERS_COUNT)]
            client = await self._client()
            nodes = [await self._node(i) for i in range(NODES_COUNT)]
            await self._until(self.board.everybody_knows, "everybody knows")
            self.say(
                f"{REGISTRIES_COUNT} registries, {PROVIDERS_COUNT} providers, each registered with one of "
                f"them, and a client: {self.settings.in_flight_count} calls open at any time"
            )
            await self._until(self.board.mesh_knows, "every node knows all topics")
            self.say(
                f"{NODES_COUNT} nodes own {sum(len(node.owned) for node in self.board.nodes)} topics; each "
                f"publishes, and reads all of them; node {SLOW_READER_NODE} has a slow reader, too"
            )
            for node in nodes:
                await node.order("go")
            self._begun_at = self._loop.time()
            await self._act_at(REGISTRY_ACT)
            await self._lose_registry(registries, 0)
            await self._act_at(PROVIDER_ACT)
            await self._lose_provider(providers, 1)
            await self._act_at(NODE_ACT)
            await self._lose_node(nodes, 0)
            await self._act_at(CLIENT_ACT)
            client = await self._lose_client(client)
            await self._act_at(1.0)
            self.say("the client asks nothing more, the nodes publish nothing more")
            await client.stop()
            for node in nodes:
                await node.order("stop")
            await self._until(lambda: self.board.client.done, "the client has all its answers", SETTLE_S_MAX)
            what = "every reader has every message, or was told that it has not"
            await self._until(self.board.mesh_is_settled, what, SETTLE_S_MAX)
            for player in (*registries, *providers, *nodes):
                player.kill()

    # -- the acts

    async def _lose_registry(self, registries: list[DemoProcess], i: int) -> None:
        line = self.board.registries[i]
        lost = [provider for provider in self.board.providers if provider.registry == line.router]
        killed_at = await self._kill(registries[i], line)
        who = " and ".join(str(provider.number) for provider in lost) or "nobody"
        self.say(f"registry {line.number} is killed (SIGKILL); registered there: provider {who}")
        known_s = await self._until_everybody_knows(killed_at)
        where = ", ".join(
            f"provider {provider.number} at registry {self.board.registry_name(provider)}"
            for provider in lost
        )
        self.say(f"registered again after {known_s:.2f} s, and everybody knew: {where}")
        await asyncio.sleep(AWAY_S)
        started_at = self._loop.time()
        registries[i] = await self._registry(i)
        known_s = await self._until_everybody_knows(started_at)
        self.say(
            f"registry {line.number} is started again, and knew what the others know after {known_s:.2f} s"
        )

    async def _lose_provider(self, providers: list[DemoProcess], i: int) -> None:
        line = self.board.providers[i]
        killed_at = await self._kill(providers[i], line)
        self.say(f"provider {line.number} is killed (SIGKILL)")
        client_s = await self._until(self.board.client_knows, "the client knows") - killed_at
        self.say(f"the client knew after {client_s:.2f} s, and asked the others again what was open there")
        known_s = await self._until_everybody_knows(killed_at)
        self.say(f"no registry lists it after {known_s:.2f} s, when its heartbeats were overdue")
        started_at = self._loop.time()
        providers[i] = await self._provider(i)
        known_s = await self._until_everybody_knows(started_at)
        self.say(f"provider {line.number} is started again, and everybody knew after {known_s:.2f} s")

    async def _lose_node(self, nodes: list[DemoProcess], i: int) -> None:
        line = self.board.nodes[i]
        killed_at = await self._kill(nodes[i], line)
        topics = " and ".join(line.owned)
        self.say(f"node {line.number} is killed (SIGKILL); it owned {topics}")
        known_s = await self._until_mesh_knows(killed_at)
        self.say(f"its topics were pending after {known_s:.2f} s; all others went on")
        self.board.past_nodes.append(line)
        await asyncio.sleep(AWAY_S)
        started_at = self._loop.time()
        nodes[i] = await self._node(i, life=line.life + 1)
        known_s = await self._until_mesh_knows(started_at)
        await nodes[i].order("go")
        others = [node for node in self.board.nodes if node.number != line.number]
        await self._until(lambda: all(node.handover_s for node in others), "the hand-over was measured")
        self.say(
            f"node {line.number} is started again; all topics were active after {known_s:.2f} s, hand-over "
            f"{self.board.handover_s:.2f} s"
        )

    async def _lose_client(self, client: DemoProcess) -> DemoProcess:
        line = self.board.client
        await self._kill(client, line)
        self.say(f"the client is killed (SIGKILL) with {line.open_count} calls open")
        self.board.past_clients.append(line)
        self.board.client = ClientRow()
        started_at = self._loop.time()
        client = await self._client()
        known_s = await self._until_everybody_knows(started_at)
        self.say(f"a new client is started, and knew everybody after {known_s:.2f} s")
        return client

    # -- processes

    async def _registry(self, i: int) -> DemoProcess:
        line = self.board.registries[i] = RegistryRow(number=i + 1, router=self._routers[i])
        settings = {
            "number": line.number,
            "pub": self._pubs[i],
            "router": self._routers[i],
            "peers": [pub for pub in self._pubs if pub != self._pubs[i]],
        }
        return await self._start(f"registry {line.number}", "registry", settings, line)

    async def _provider(self, i: int) -> DemoProcess:
        line = self.board.providers[i] = ProviderRow(number=i + 1)
        # Each begins with another registry, so that the loss of one registry affects one provider.
        first = i % REGISTRIES_COUNT
        settings = {"bind": self._binds[i], "registries": [*self._routers[first:], *self._routers[:first]]}
        return await self._start(f"provider {line.number}", "provider", settings, line)

    async def _client(self) -> DemoProcess:
        settings = {
            "registries": self._pubs,
            "in_flight_count": self.settings.in_flight_count,
            "payload_bytes": self.settings.payload_bytes,
        }
        return await self._start("the client", "client", settings, self.board.client)

    async def _node(self, i: int, *, life: int = 1) -> DemoProcess:
        line = NodeRow(number=i + 1, life=life, owned=owned_topics(i + 1))
        self.board.nodes[i] = line
        first = i % REGISTRIES_COUNT
        settings = {
            "number": line.number,
            "life": life,
            "bind": self._node_binds[i],
            "pubs": self._pubs,
            "registries": [*self._routers[first:], *self._routers[:first]],
            "has_slow_reader": line.number == SLOW_READER_NODE,
        }
        return await self._start(f"node {line.number}", "node", settings, line)

    async def _start(self, name: str, role: str, settings: dict[str, Any], line: Row) -> DemoProcess:
        player = await self._stage.enter_async_context(cast(name, role, settings))
        self._followers.create_task(self._follow(player, line), name=f"following {name}")
        return player

    async def _follow(self, player: DemoProcess, line: Row) -> None:
        async for report in player.reports():
            line.hear(report, now=self._loop.time())
            self._heard.set()

    async def _kill(self, player: DemoProcess, line: Row) -> float:
        """Send SIGKILL; returns when."""
        killed_at = self._loop.time()
        player.kill()
        line.is_up = False
        await player.process.wait()
        return killed_at

    # -- waiting

    async def _act_at(self, share: float) -> None:
        await asyncio.sleep(self._begun_at + self.settings.run_s * share - self._loop.time())

    async def _until_everybody_knows(self, since: float) -> float:
        """Wait until all processes know of each other; returns how long it took since then."""
        return await self._until(self.board.everybody_knows, "everybody knows") - since

    async def _until_mesh_knows(self, since: float) -> float:
        """Wait until all nodes know of each other; returns how long it took since then."""
        return await self._until(self.board.mesh_knows, "every node knows which topics there are") - since

    async def _until(self, happened: Callable[[], bool], what: str, within_s: float = KNOW_S_MAX) -> float:
        """Wait until reports of the cast make this true; returns when that was. Raises DemoFailed."""
        try:
            async with asyncio.timeout(within_s):
                while not happened():
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            raise DemoFailed(f"it took more than {within_s:.0f} s until {what}") from None
        return self._loop.time()


class DemoProcess:
    """One process of the cast. Its reports are read as they come; lines without JSON are its last words."""

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self.process = process
        self.dismissed = False
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS_MAX)

    async def reports(self) -> AsyncIterator[dict[str, Any]]:
        """All its reports, until it ends. Raises DemoFailed when it ends without being told to."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                yield json.loads(line)
            except ValueError:
                self._last_words.append(line.decode(errors="replace").rstrip())
        status = await self.process.wait()
        if not self.dismissed:
            words = "\n".join(self._last_words)
            raise DemoFailed(f"{self.name} ended by itself with status {status}\n{words}".rstrip())

    async def stop(self) -> None:
        """Ask it to end when every request has its outcome."""
        self.dismissed = True
        await self.order("stop")

    async def order(self, word: str) -> None:
        """Tell it what to do next."""
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(word.encode() + b"\n")
            await self.process.stdin.drain()

    def kill(self) -> None:
        """SIGKILL: no clean-up, no goodbye."""
        self.dismissed = True
        with suppress(ProcessLookupError):
            self.process.kill()


@asynccontextmanager
async def cast(name: str, role: str, settings: dict[str, Any]) -> AsyncIterator[DemoProcess]:
    """A process of the cast, running for as long as the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "hansa.demo.cast", role, json.dumps(settings)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    player = DemoProcess(name, process)
    try:
        yield player
    finally:
        player.kill()
        await process.wait()


def free_endpoints(count: int) -> list[str]:
    """Endpoints on this machine that nobody listens on."""
    ports: set[int] = set()
    while len(ports) < count:
        port = randrange(*PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return [f"tcp://127.0.0.1:{port}" for port in ports]


def settle(console: Console, board: Board) -> int:
    """Print the books; returns 1 when a call failed or has no outcome, or a message is not accounted for."""
    failed_count, missing_count = sum(board.failed.values()), board.client.open_count
    console.print(
        f"asked {board.asked_count:,}, answered {board.answered_count:,}, failed {failed_count:,}, "
        f"missing {missing_count:,}  (open when the client was killed: {board.open_when_killed_count:,}; "
        f"asked again because a provider was lost: {board.retried_count:,})",
        style="bold",
        soft_wrap=True,
    )
    for code, count in sorted(board.failed.items()):
        console.print(f"failed with {code}: {count:,}", style="bold red", soft_wrap=True)
    is_balanced = settle_mesh(console, board)
    return 1 if failed_count or missing_count or not is_balanced else 0


def settle_mesh(console: Console, board: Board) -> bool:
    """Print the books of the topics; returns whether every message is accounted for."""
    books = board.mesh_books()
    console.print(
        f"published {books.published_count:,}, due to readers {books.due_count:,} = delivered "
        f"{books.delivered_count:,} + dropped {books.dropped_count:,} + missed {books.missed_count:,} + cut "
        f"off by the kill {books.cut_off_count:,}; missing {books.missing_count:,}",
        style="bold",
        soft_wrap=True,
    )
    if books.unordered_count:
        console.print(f"twice or out of order: {books.unordered_count:,}", style="bold red", soft_wrap=True)
    return books.is_balanced


async def draw_in_place(console: Console, director: Director) -> None:
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                screen = director.board.as_screen(director.elapsed_s, story_lines_max=STORY_LINES_MAX)
                live.update(screen, refresh=True)
                await asyncio.sleep(DRAW_INTERVAL_S)
        finally:
            # At the end the whole story, however long: it may scroll now.
            live.vertical_overflow = "visible"
            live.update(director.board.as_screen(director.elapsed_s), refresh=True)


async def print_lines(console: Console, director: Director) -> None:
    director.on_story = lambda line: console.print(line, markup=False, soft_wrap=True)
    while True:
        await asyncio.sleep(1.0)
        console.print(director.board.as_line(director.elapsed_s), markup=False, soft_wrap=True)


def leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """The exceptions of a group and of the groups in it."""
    nested = [
        leaves(error) if isinstance(error, BaseExceptionGroup) else [error] for error in group.exceptions
    ]
    return [error for errors in nested for error in errors]
