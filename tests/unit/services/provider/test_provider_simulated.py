"""A whole provider in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from hansa.errors import RegistrationRefused, TimedOut
from hansa.services.provider import Provider, ProviderState
from hansa.services.registry import Registry
from hansa.testing import Host, World
from hansa.topics import SpotNode


@pytest.mark.spec("DIS-25")
@pytest.mark.parametrize("seed", range(10))
def test_an_answer_that_comes_with_the_deadline_is_not_lost(seed: int) -> None:
    """The process is stopped while it waits, and finds both when it goes on."""
    world = World(seed)
    outcomes: list[tuple[bool, ProviderState]] = []

    async def registry(host: Host) -> None:
        async with Registry("tcp://*:5550", "tcp://*:5551", environment=host.environment):
            await asyncio.Event().wait()

    async def provider(host: Host) -> None:
        async with Provider(
            "tcp://*:1", ["tcp://r:5551"], advertise="tcp://p:1", environment=host.environment
        ) as one:
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


class Watched:
    """A registry and a member that registers with it, neither of them told anything about time."""

    def __init__(self, member: Callable[[Host], Coroutine[Any, Any, None]], **settings: Any) -> None:
        self.world = World(1)
        self.registry: Registry | None = None
        self._settings = settings
        self.world.host("r", self._registry).start()
        self.world.host("p", member).start()

    async def _registry(self, host: Host) -> None:
        async with Registry(
            "tcp://*:5550", "tcp://*:5551", environment=host.environment, **self._settings
        ) as registry:
            self.registry = registry
            await asyncio.Event().wait()

    def run(self, course: Coroutine[Any, Any, None]) -> None:
        with self.world:
            self.world.run(course)

    async def times_s(self, look: Callable[[Registry], object], *, count: int) -> list[float]:
        """When the registry changed in this respect, so many times."""
        times: list[float] = []
        seen: object = None
        while len(times) < count:
            now_seen = None if self.registry is None else look(self.registry)
            if now_seen != seen:
                seen = now_seen
                times.append(self.world.elapsed_s())
            await asyncio.sleep(0.01)
        return times


async def a_provider(host: Host) -> None:
    async with Provider(
        "tcp://*:1", ["tcp://r:5551"], advertise="tcp://p:1", environment=host.environment
    ) as one:
        await one.register("pay")
        await asyncio.Event().wait()


async def a_node(host: Host) -> None:
    async with SpotNode("tcp://*:1", ["tcp://r:5551"], advertise="tcp://p:1", environment=host.environment):
        await asyncio.Event().wait()


@pytest.mark.spec("DIS-06")
@pytest.mark.spec("DIS-09")
def test_unless_told_otherwise_beats_come_every_5_s_entries_last_15_s_and_lists_are_told_every_30_s() -> None:
    watched = Watched(a_provider)

    async def course() -> None:
        # Before the first beat: nothing, then a registry without any.
        beats = (await watched.times_s(lambda one: one.stats.heartbeats_count, count=5))[2:]
        assert [later - at for at, later in pairwise(beats)] == pytest.approx([5.0, 5.0], abs=0.1)
        watched.world.pause("p")
        gone_at = (await watched.times_s(lambda one: len(one.services), count=2))[-1]
        assert gone_at - beats[-1] == pytest.approx(15.0, abs=0.1)
        lists = (await watched.times_s(lambda one: one.stats.broadcasts_count, count=5))[2:]
        assert [later - at for at, later in pairwise(lists)] == pytest.approx([30.0, 30.0], abs=0.1)

    watched.run(course())


@pytest.mark.spec("DIS-31")
@pytest.mark.parametrize("member", [a_provider, a_node])
def test_whoever_registers_beats_fast_enough_for_a_registry_with_a_short_timeout(
    member: Callable[[Host], Coroutine[Any, Any, None]],
) -> None:
    watched = Watched(member, heartbeat_timeout=2.0)

    async def course() -> None:
        beats = (await watched.times_s(lambda one: one.stats.heartbeats_count, count=10))[2:]
        steps = [later - at for at, later in pairwise(beats)]
        assert steps == pytest.approx([2 / 3] * 7, abs=0.05)
        assert watched.registry is not None
        stats = watched.registry.stats
        assert (stats.expired_count, stats.registered_count) == (0, 1)

    watched.run(course())


@pytest.mark.spec("DIS-31")
def test_an_interval_that_the_registrys_timeout_does_not_bear_is_refused_with_both_numbers() -> None:
    refusals: list[RegistrationRefused] = []

    async def stubborn(host: Host) -> None:
        async with Provider(
            "tcp://*:1",
            ["tcp://r:5551"],
            advertise="tcp://p:1",
            heartbeat_interval=5.0,
            environment=host.environment,
        ) as one:
            try:
                await one.register("pay")
            except RegistrationRefused as error:
                refusals.append(error)
            await asyncio.Event().wait()

    watched = Watched(stubborn, heartbeat_timeout=2.0)

    async def course() -> None:
        async with asyncio.timeout(10.0):
            while not refusals:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
        assert watched.registry is not None
        assert watched.registry.services == {}  # The registry was told to forget it.

    watched.run(course())
    assert "interval of 5 s" in str(refusals[0])
    assert "silent for 2 s" in str(refusals[0])
