"""The demo's director: starts the cast, kills the router, brings it back, and settles the books.

Every member of the cast is a real process (see `demo_cast`). In a terminal the numbers are drawn in
place; elsewhere a line a second is printed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live

from hansa.cli.demo_board import Board, DealerLine
from hansa.cli.fast_loop import loop_name

DRAW_INTERVAL_S = 0.25
START_S_MAX = 20.0
SETTLE_S_MAX = 15.0
AWAY_S = 1.5
LAST_WORDS_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How large and how long the demo is."""

    dealers_count: int = 4
    run_s: float = 14.0
    in_flight_count: int = 32
    payload_bytes: int = 64


class DemoFailed(Exception):
    """Something happened that the play does not foresee."""


class Player:
    """One process of the cast. What it tells is read as it comes; what is no JSON are its last words."""

    def __init__(self, role: str, process: asyncio.subprocess.Process) -> None:
        self.role = role
        self.process = process
        self.dismissed = False
        self._last_words: deque[str] = deque(maxlen=LAST_WORDS_MAX)

    async def reports(self) -> AsyncIterator[dict[str, Any]]:
        """Everything it tells, until it ends. Raises DemoFailed when it ends without being dismissed."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            try:
                yield json.loads(line)
            except ValueError:
                self._last_words.append(line.decode(errors="replace").rstrip())
        status = await self.process.wait()
        if not self.dismissed:
            words = "\n".join(self._last_words)
            raise DemoFailed(f"the {self.role} ended by itself with status {status}\n{words}".rstrip())

    async def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError):
            self.process.stdin.write(f"{word}\n".encode())
            await self.process.stdin.drain()

    def kill(self) -> None:
        """SIGKILL: no clean-up, no goodbye."""
        self.dismissed = True
        with suppress(ProcessLookupError):
            self.process.kill()


@asynccontextmanager
async def cast(role: str, *arguments: str) -> AsyncIterator[Player]:
    """A player, running for as long as the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "hansa.cli.demo_cast", role, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    player = Player(role, process)
    try:
        yield player
    finally:
        player.kill()
        await process.wait()


class Director:
    """Runs one demo. `board` is always up to date."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.board = Board(
            loop_name=loop_name(), dealers=[DealerLine() for _ in range(settings.dealers_count)]
        )
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self._heard = asyncio.Event()
        self.on_story: Callable[[str], None] = lambda line: None

    @property
    def elapsed_s(self) -> float:
        return self._loop.time() - self._started_at

    def say(self, line: str) -> None:
        self.board.story.append(f"{self.elapsed_s:5.1f} s  {line}")
        self.on_story(self.board.story[-1])

    async def play(self) -> None:
        """From the first curtain to settled books. Raises DemoFailed, TimeoutError."""
        run_s = self.settings.run_s
        async with AsyncExitStack() as stage, asyncio.TaskGroup() as group:
            router = await stage.enter_async_context(self._router("tcp://127.0.0.1:0"))
            self.say(f"a ROUTER listens on {self.board.endpoint} (pid {router.process.pid})")
            dealers = [
                await stage.enter_async_context(self._dealer(i)) for i in range(len(self.board.dealers))
            ]
            work = [
                group.create_task(self._follow(dealer, i), name=f"dealer {i}")
                for i, dealer in enumerate(dealers)
            ]
            await self._all_connected(reconnects_count=0)
            self.say(
                f"{len(dealers)} DEALER processes ask, {self.settings.in_flight_count} questions open each"
            )
            begun_at = self._loop.time()
            await asyncio.sleep(run_s / 3)
            router.kill()
            await router.process.wait()
            self.board.router_pid = None
            self.say(f"the ROUTER is killed (SIGKILL) with {self.board.sum('open_count')} questions open")
            await asyncio.sleep(min(AWAY_S, run_s / 6))
            router = await stage.enter_async_context(self._router(self.board.endpoint))
            self.say(f"a new ROUTER listens on the same port (pid {router.process.pid})")
            await self._all_connected(reconnects_count=1)
            again_count = self.board.sum("asked_again_count")
            self.say(
                f"all dealers are connected again, and asked again {again_count} questions that were in doubt"
            )
            await asyncio.sleep(begun_at + run_s - self._loop.time())
            self.say("the dealers stop asking and wait for their last answers")
            await self._settle(dealers, work)

    @asynccontextmanager
    async def _router(self, endpoint: str) -> AsyncIterator[Player]:
        async with cast("router", endpoint) as router:
            async with asyncio.timeout(START_S_MAX):
                report = await anext(router.reports())
            self.board.endpoint, self.board.router_pid = report["bound"], report["pid"]
            yield router

    def _dealer(self, number: int) -> AbstractAsyncContextManager[Player]:
        in_flight_count, payload_bytes = self.settings.in_flight_count, self.settings.payload_bytes
        return cast(
            "dealer", self.board.endpoint, f"dealer-{number + 1}", str(in_flight_count), str(payload_bytes)
        )

    async def _follow(self, dealer: Player, number: int) -> None:
        async for report in dealer.reports():
            self.board.dealers[number].hear(report, now=self._loop.time())
            self._heard.set()

    async def _all_connected(self, *, reconnects_count: int) -> None:
        """Wait until every dealer is connected and has been so often enough before."""
        async with asyncio.timeout(START_S_MAX):
            while not all(
                line.connected and line.reconnects_count >= reconnects_count for line in self.board.dealers
            ):
                self._heard.clear()
                await self._heard.wait()

    async def _settle(self, dealers: list[Player], work: list[asyncio.Task[None]]) -> None:
        for dealer in dealers:
            dealer.dismissed = True
            await dealer.tell("stop")
        await asyncio.wait(work, timeout=SETTLE_S_MAX)
        late = [number for number, line in enumerate(self.board.dealers, 1) if not line.done]
        for task in work:
            task.cancel()
        if late:
            raise DemoFailed(f"dealers {late} still wait for answers after {SETTLE_S_MAX:.0f} s")


async def play(settings: Settings) -> int:
    """The whole demo with its pictures; the exit status: 0 when every question is accounted for."""
    console = Console(highlight=False)
    director = Director(settings)
    board = director.board
    failed: list[str] = []
    try:
        async with asyncio.TaskGroup() as group:
            draw = draw_in_place if console.is_terminal else print_lines
            picture = group.create_task(draw(console, director), name="picture")
            try:
                await director.play()
            finally:
                picture.cancel()
    except* (DemoFailed, TimeoutError) as failures:
        failed = [str(failure) or "it took too long" for failure in leaves(failures)]
    for reason in failed:
        console.print(f"the demo failed: {reason}", style="bold red", markup=False, soft_wrap=True)
    asked_count, missing_count = board.sum("asked_count"), board.sum("open_count")
    console.print(
        f"asked {asked_count:,}, answered {asked_count - missing_count:,}, missing {missing_count:,}"
        f"  (asked again after the crash: {board.sum('asked_again_count'):,};"
        f" answered twice: {board.sum('answered_twice_count'):,})",
        style="bold",
        soft_wrap=True,
    )
    return 1 if failed or missing_count else 0


def leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """The exceptions of a group and of the groups in it."""
    nested = [
        leaves(error) if isinstance(error, BaseExceptionGroup) else [error] for error in group.exceptions
    ]
    return [error for errors in nested for error in errors]


async def draw_in_place(console: Console, director: Director) -> None:
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                live.update(director.board.as_screen(director.elapsed_s), refresh=True)
                await asyncio.sleep(DRAW_INTERVAL_S)
        finally:
            live.update(director.board.as_screen(director.elapsed_s), refresh=True)


async def print_lines(console: Console, director: Director) -> None:
    director.on_story = lambda line: console.print(line, markup=False, soft_wrap=True)
    while True:
        await asyncio.sleep(1.0)
        console.print(director.board.as_line(director.elapsed_s), markup=False, soft_wrap=True)
