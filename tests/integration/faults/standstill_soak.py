"""`make soak`: providers are killed and stopped for two minutes, and no idempotent call may fail.

    python tests/integration/faults/standstill_soak.py --seconds 120 --kills 60 --stops 50 [--seed 7]

Each of a registry, the providers and a caller is a process. A killed provider is followed by a new one; a
stopped one (SIGSTOP) goes on after a while. There is always one that answered a moment ago and is left alone.
It prints what it found; an error ends it.
"""

import argparse
import asyncio
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.chance import Chance  # noqa: E402
from tests.support.fault_stage import SERVICE, Program  # noqa: E402

# Most stops outlast it.
TIMEOUT_S = 2.0
STOP_S_MIN, STOP_S_MAX = 0.5, 5.0


class Harassment:
    """Providers that suffer, and the caller that must not notice."""

    def __init__(self, stack: AsyncExitStack, *, rate: float, seed: int) -> None:
        self._stack = stack
        self._rate = rate
        self._chance = Chance.seeded(seed)
        self._providers: dict[str, Program] = {}
        self._well: list[str] = []
        """Those that answered since they last suffered."""
        self._started_count = 0
        self._books_turn = asyncio.Lock()
        self.killed_count = 0
        self.stopped_count = 0
        self.log: list[str] = []
        """What was done to whom, and when; for a failure's text."""
        self.client: Program

    async def begin(self, providers_count: int) -> None:
        self._registry = await self._enter(
            "registry_program", "--heartbeat-interval=0.3", "--heartbeat-timeout=8"
        )
        self._ready = await self._registry.event("ready")
        for _ in range(providers_count):
            await self._start()
        self.client = await self._enter(
            "client_program",
            f"--pub={self._ready['pub']}",
            f"--service={SERVICE}",
            f"--rate={self._rate}",
            f"--connections={providers_count}",
            f"--timeout={TIMEOUT_S}",
        )
        await self.client.event("calling")
        for name in self._providers:
            await self._answers(name)

    async def kill(self) -> None:
        """kill -9, and a new process in its place."""
        name = await self._victim()
        self._note(f"{name} is killed")
        await self._providers.pop(name).kill()
        self.killed_count += 1
        await self._answers(await self._start())

    async def stop(self) -> None:
        """SIGSTOP for a while."""
        name = await self._victim()
        process = self._providers[name].process
        self._note(f"{name} is stopped")
        process.send_signal(signal.SIGSTOP)
        self.stopped_count += 1
        await asyncio.sleep(self._chance.uniform(STOP_S_MIN, STOP_S_MAX))
        self._note(f"{name} goes on")
        process.send_signal(signal.SIGCONT)
        await self._answers(name)

    async def books(self) -> dict[str, Any]:
        async with self._books_turn:
            return await self.client.ask("books", "books")

    async def _start(self) -> str:
        self._started_count += 1
        name = f"p{self._started_count}"
        provider = await self._enter(
            "provider_program",
            f"--name={name}",
            f"--service={SERVICE}",
            f"--router={self._ready['router']}",
        )
        self._providers[name] = provider
        await provider.event("registered")
        return name

    async def _enter(self, script: str, *arguments: str) -> Program:
        return await self._stack.enter_async_context(Program([], script, *arguments))

    async def _victim(self) -> str:
        """One that is well, while there is another one."""
        while len(self._well) < 2:
            await asyncio.sleep(0.02)
        return self._well.pop(self._chance.below(len(self._well)))

    async def _answers(self, name: str) -> None:
        """Wait until the caller has a reply from this one, which is well from then on."""
        before = (await self.books())["by"].get(name, 0)
        while (await self.books())["by"].get(name, 0) == before:
            await asyncio.sleep(0.05)
        self._note(f"{name} answers")
        self._well.append(name)

    def _note(self, what: str) -> None:
        self.log.append(f"{time.monotonic():.3f} {what}; well are {', '.join(self._well)}")


async def harass(
    *, seconds: float, kills: int, stops: int, providers_count: int, rate: float, seed: int
) -> dict[str, Any]:
    """All of it. What the caller counted and how many were harmed, or AssertionError."""
    async with AsyncExitStack() as stack:
        stage = Harassment(stack, rate=rate, seed=seed)
        await stage.begin(providers_count)
        loop = asyncio.get_running_loop()
        began_at = loop.time()

        async def evenly(count: int, harm: Any) -> None:
            # As many as there is time for: a busy machine takes long to start a process.
            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    await asyncio.sleep(max(0.0, began_at + number * seconds / count - loop.time()))
                    if loop.time() - began_at > seconds:
                        return
                    group.create_task(harm())

        async with asyncio.TaskGroup() as group:
            group.create_task(evenly(kills, stage.kill))
            group.create_task(evenly(stops, stage.stop))
        books: dict[str, Any] = await stage.client.ask("stop", "books")
        assert books["failed"] == {}, "\n".join([*stage.log, str(books)])
        assert (books["replied"], books["wrong"]) == (books["sent"], 0), books
        return {"kills": stage.killed_count, "stops": stage.stopped_count, **books}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--stops", type=int, default=50)
    parser.add_argument("--providers", type=int, default=5)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = asyncio.run(
        harass(
            seconds=given.seconds,
            kills=given.kills,
            stops=given.stops,
            providers_count=given.providers,
            rate=given.rate,
            seed=given.seed,
        )
    )
    stats = found.pop("stats")
    found.pop("by")
    counted = ("replied_count", "retried_count", "moved_count", "hedged_count", "withheld_count")
    for name, value in {**found, **{name: stats[name] for name in (*counted, "late_replies_count")}}.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
