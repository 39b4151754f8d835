"""A whole provider in virtual time."""

import asyncio
from typing import Any

import pytest

from hansa.errors import TimedOut
from hansa.messaging.provider import Provider, ProviderState
from hansa.messaging.registry import Registry
from hansa.testing import Host, World


@pytest.mark.spec("DIS-25")
@pytest.mark.parametrize("seed", range(10))
def test_an_answer_that_comes_with_the_deadline_is_not_lost(seed: int) -> None:
    """The process is stopped while it waits, and finds both when it goes on."""
    world = World(seed)
    outcomes: list[tuple[bool, ProviderState]] = []

    def settings(host: Host) -> dict[str, Any]:
        return {"network": host.network, "clock": host.clock, "chance": host.chance}

    async def registry(host: Host) -> None:
        async with Registry("tcp://*:5550", "tcp://*:5551", **settings(host)):
            await asyncio.Event().wait()

    async def provider(host: Host) -> None:
        async with Provider("tcp://*:1", ["tcp://r:5551"], advertise="tcp://p:1", **settings(host)) as one:
            while one.registry is None:
                await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.0001, world.pause, "p")
            try:
                await one.register("pay", timeout=1.0)
                is_told = True
            except TimedOut:
                is_told = False
            await asyncio.sleep(5.0)
            outcomes.append((is_told, one.state("pay")))

    async def course() -> None:
        world.host("r", registry).start()
        world.host("p", provider).start()
        while not world.hosts["p"].is_paused:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1.5)
        world.resume("p")
        async with asyncio.timeout(20.0):
            while not outcomes:
                await asyncio.sleep(0.1)

    with world:
        world.run(course())
    assert outcomes == [(True, ProviderState.REGISTERED)]
