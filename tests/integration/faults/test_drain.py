"""A rolling restart under load: every provider is told to stop, drains, and another takes its place."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from tests.support.discovery_processes import RegistryProcess
from tests.support.fault_stage import SERVICE, Echo, Program
from tests.support.wiring import Wiring

PROVIDERS_COUNT = 5
RATE = 1_000
# What a machine that is busy with other tests reaches at least.
RATE_MIN = 700


@pytest.mark.spec("DIS-29")
async def test_a_rolling_restart_under_a_thousand_requests_a_second_fails_none() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(100):
        enter = stack.enter_async_context
        wiring = await enter(Wiring())
        registry = await enter(RegistryProcess(wiring.pubs[0], wiring.routers[0]))
        await registry.ready()
        wiring.pubs, wiring.routers = [registry.pub], [registry.router]
        first = [await enter(Echo(wiring, f"old{n}", 0)) for n in range(PROVIDERS_COUNT)]
        # Nothing is tried twice: what is not answered by the first who gets it has failed.
        client = await enter(
            Program(
                [],
                "client_program",
                f"--pub={registry.pub}",
                f"--service={SERVICE}",
                f"--rate={RATE}",
                f"--connections={PROVIDERS_COUNT}",
                "--once",
            )
        )
        for echo in first:
            await echo.registered()
        await client.event("calling")
        # All have work to do before the first of them leaves.
        while len((await client.ask("books", "books"))["by"]) < PROVIDERS_COUNT:
            await asyncio.sleep(0.02)

        answered = 0
        for number, old in enumerate(first):
            drained = await old.drain()
            stats = drained["stats"]
            assert drained["is_done"], drained
            assert stats["replied_count"] == stats["requests_count"] > 0, stats
            answered += stats["replied_count"]
            new = await enter(Echo(wiring, f"new{number}", 0))
            await new.registered()
            while f"new{number}" not in (await client.ask("books", "books"))["by"]:
                await asyncio.sleep(0.02)

        books = await client.ask("stop", "books")
        assert books["failed"] == {}, books
        assert (books["replied"], books["wrong"]) == (books["sent"], 0), books
        assert books["sent"] >= RATE_MIN * books["seconds"], books
        assert books["by"].keys() == {f"{age}{n}" for age in ("old", "new") for n in range(PROVIDERS_COUNT)}
        assert answered == sum(count for name, count in books["by"].items() if name.startswith("old"))
        # Not even behind the caller's back: nothing was moved to another provider or tried again.
        assert (books["stats"]["moved_count"], books["stats"]["retried_count"]) == (0, 0), books
