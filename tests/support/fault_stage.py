"""A cluster of three registries with providers, callers and a watcher, each a process, to be broken.

The stage knows which providers live. `agree` waits until every registry lists these and nobody else; `close`
looks at the callers' books and at everything that the watcher has seen.
"""

import asyncio
import signal
import time
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from tests.support.discovery_processes import RegistryProcess, Told
from tests.support.wiring import COUNT, Wiring

SERVICE = "echo"
# Short enough for a test, long enough for a machine that runs four of them on two cores.
BEAT_S, BEAT_TIMEOUT_S, BROADCAST_S = 0.3, 1.0, 0.5
SILENCE_S = 3 * BROADCAST_S
# Registries speak of what was removed for this long: only afterwards could anything come back.
TOMBSTONES_S = max(3 * BEAT_TIMEOUT_S, SILENCE_S)
AGREE_S_MAX = 40.0
DRAIN_S = 5.0
RATE = 50.0
PROGRAMS = "faults"


class Program(Told):
    """A program of tests/integration/faults, behind whatever brings it to its place."""

    def __init__(self, prefix: list[str], script: str, *arguments: str) -> None:
        super().__init__(f"{PROGRAMS}/{script}.py", *arguments)
        self._command = [*prefix, *self._command]

    async def ask(self, order: str, event: str) -> dict[str, Any]:
        """Give an order; what it tells then."""
        await self.say(order)
        return await self.event(event)


class PlacedRegistry(RegistryProcess):
    """`hansa registry`, in its place."""

    def __init__(self, wiring: Wiring, number: int) -> None:
        super().__init__(
            wiring.pubs[number],
            wiring.routers[number],
            peers=wiring.peers_of(number),
            registry_id=number + 1,
            heartbeat_interval=BEAT_S,
            heartbeat_timeout=BEAT_TIMEOUT_S,
            broadcast_interval=BROADCAST_S,
        )
        self._command = [*wiring.registry_prefix(number), *self._command]


class Echo(Program):
    """One provider."""

    def __init__(self, wiring: Wiring, name: str, home: int, bind: str = "") -> None:
        # Each knows all registries, its own first.
        routers = wiring.routers[home:] + wiring.routers[:home]
        super().__init__(
            wiring.prefix,
            "provider_program",
            f"--name={name}",
            f"--service={SERVICE}",
            f"--bind={bind or f'tcp://{wiring.host}:0'}",
            f"--heartbeat-interval={BEAT_S}",
            f"--drain-timeout={DRAIN_S}",
            *(f"--router={router}" for router in routers),
        )
        self.name = name
        self.endpoint = ""

    async def registered(self) -> None:
        """Wait until a registry has accepted it."""
        self.endpoint = (await self.event("registered"))["endpoint"]

    async def drain(self) -> dict[str, Any]:
        """SIGTERM: what it told when it had left."""
        self.process.send_signal(signal.SIGTERM)
        told = await self.event("drained")
        assert await self.process.wait() == 0, f"{self.name} did not end well"
        return told


class FaultStage:
    """Use `async with`: it begins with providers and two callers under load; leaving kills what is left."""

    def __init__(self, wiring: Wiring, *, providers_count: int = 5) -> None:
        self.wiring = wiring
        self._providers_count = providers_count
        self._stack = AsyncExitStack()
        self._clients: list[Program] = []
        self.registries: list[RegistryProcess] = []
        self.living: dict[str, Echo] = {}
        self.gone: dict[str, float] = {}
        """By name, since when."""
        self._deaf_until = [0.0] * COUNT

    async def __aenter__(self) -> Self:
        try:
            await self._stack.enter_async_context(self.wiring)
            await self._begin()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _begin(self) -> None:
        wiring = self.wiring
        enter = self._stack.enter_async_context
        self.registries = [await enter(PlacedRegistry(wiring, number)) for number in range(COUNT)]
        for registry in self.registries:
            await registry.ready()  # Or a provider would begin at whichever is up first.
        echoes = [Echo(wiring, f"p{n + 1}", n % COUNT) for n in range(self._providers_count)]
        for echo in echoes:
            await enter(echo)
        pubs = [f"--pub={pub}" for pub in wiring.pubs]
        self.watcher = await enter(Program(wiring.prefix, "watcher_program", *pubs))
        calling = [f"--service={SERVICE}", f"--rate={RATE}", f"--connections={self._providers_count}"]
        # One caller knows all registries; the other only the first, which is the one that has most to suffer.
        for known in (pubs, pubs[:1]):
            self._clients.append(await enter(Program(wiring.prefix, "client_program", *known, *calling)))
        for echo in echoes:
            await echo.registered()
            self.living[echo.name] = echo
        await self.watcher.event("watching")
        for client in self._clients:
            await client.event("calling")
        await self.agree()

    # -- what happens to them

    async def restart(self, number: int) -> None:
        """kill -9, and when its providers have moved, once more at the same place and under the same id."""
        router = self.wiring.routers[number]
        await self.registries[number].kill()
        await self._all_at_others_than(router)
        again = PlacedRegistry(self.wiring, number)
        self.registries[number] = await self._stack.enter_async_context(again)
        await again.ready()

    async def join(self, name: str, home: int, bind: str = "") -> Echo:
        """One more provider."""
        echo = await self._stack.enter_async_context(Echo(self.wiring, name, home, bind))
        await echo.registered()
        self.living[name] = echo
        return echo

    async def leave(self, name: str, *, all_hear: bool = True) -> None:
        """A provider drains and ends. It waits for its callers, in vain for those who cannot hear of it."""
        told = await self.living.pop(name).drain()
        assert told["is_done"] is all_hear, told
        self.gone[name] = time.monotonic()

    async def kill(self, name: str) -> Echo:
        """kill -9 of a provider."""
        echo = self.living.pop(name)
        await echo.kill()
        self.gone[name] = time.monotonic()
        return echo

    async def cut_apart(self, one: int, other: int) -> None:
        await self.wiring.cut(one, other)

    async def heal(self, one: int, other: int) -> None:
        """Undo `cut_apart`, and wait until all agree.

        Until then the two may still repeat what the other said while they could not hear it: it comes first,
        and the news of who has gone after it.
        """
        await self.wiring.heal(one, other)
        await self.agree()
        self._deaf_until[one] = self._deaf_until[other] = time.monotonic()

    async def replied_more(self, count: int = 50) -> None:
        """Wait until each caller had so many more replies: the load is real."""
        for client in self._clients:
            goal = (await client.ask("books", "books"))["replied"] + count
            while (await client.ask("books", "books"))["replied"] < goal:
                await asyncio.sleep(0.02)

    # -- what is true afterwards

    async def lists(self) -> list[Any]:
        """What each registry lists, by discoveries that know nothing from before."""
        lists: list[Any] = (await self.watcher.ask("read", "lists"))["lists"]
        return lists

    @property
    def expected(self) -> dict[str, list[list[Any]]]:
        return {SERVICE: sorted([echo.endpoint, echo.name, 1] for echo in self.living.values())}

    async def agree(self) -> None:
        """Wait until every registry lists the living and nobody else."""
        lists: list[Any] = []
        try:
            async with asyncio.timeout(AGREE_S_MAX):
                while lists != [self.expected] * COUNT:
                    lists = await self.lists()
        except TimeoutError:
            raise AssertionError(f"{lists} are not all {self.expected}") from None

    async def close(self) -> dict[str, Any]:
        """All lists agree and stay so, nobody who left was ever back, and no call failed. The books."""
        await self.agree()
        # Not a wait for something: for this long nothing may happen.
        await asyncio.sleep(TOMBSTONES_S + BROADCAST_S)
        await self.agree()
        events = (await self.watcher.ask("events", "events"))["events"]
        back = [event for event in events if self._is_back(*event)]
        assert not back, f"{back} came back after they had gone: {self.gone}"
        for name in self.gone:
            last = {number: what for number, what, who, _ in events if who == name}
            assert set(last.values()) <= {"removed"}, f"{name} was seen last as {last}"
        for registry in self.registries:
            assert registry.process.returncode is None, f"registry {registry.registry_id} has ended"
        return await self._closed_books()

    async def _closed_books(self) -> dict[str, Any]:
        """No call of any caller failed; the books of the one that knows all registries."""
        closed = [await client.ask("stop", "books") for client in self._clients]
        for books in closed:
            assert books["failed"] == {}, books
            assert (books["replied"], books["wrong"]) == (books["sent"], 0), books
            assert books["sent"] > 0.8 * RATE * books["seconds"], books
        return closed[0]

    def _is_back(self, number: int, what: str, name: str, at: float) -> bool:
        return what == "added" and at > max(self.gone.get(name, at), self._deaf_until[number])

    async def _all_at_others_than(self, router: str) -> None:
        for echo in self.living.values():
            while (where := await echo.ask("where", "where"))["registry"] == router or not where[
                "is_registered"
            ]:
                await asyncio.sleep(0.05)
