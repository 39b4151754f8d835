"""Hosts live, pause, crash and come back; what they leave behind harms nobody. All is in the history."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from hansa.endpoint import Endpoint
from hansa.errors import UsageError
from hansa.testing import Broken, History, Host, World
from hansa.testing.world import FACTS_KEPT_MAX


async def idle(host: Host) -> None:
    await asyncio.Event().wait()


async def ticking(host: Host) -> None:
    """Records its own time every second."""
    while True:
        await asyncio.sleep(1)
        host.record(f"tick of life {host.life.number}")


def ticks(world: World) -> list[tuple[float, str]]:
    return [(round(fact.at_s, 3), fact.what) for fact in world.history.facts if "tick" in fact.what]


def played(world: World, course: Coroutine[Any, Any, Any]) -> Any:
    with world:
        return world.run(course)


def test_a_paused_host_does_nothing_and_time_goes_on() -> None:
    world = World(1)
    world.host("alpha", ticking).start()

    async def course() -> None:
        await asyncio.sleep(2.5)
        assert world.pause("alpha")
        assert not world.pause("alpha")
        await asyncio.sleep(10)
        world.resume("alpha")
        await asyncio.sleep(1.2)

    played(world, course())
    # The tick of second 3 comes late, and the next one a second after that.
    assert [at_s for at_s, _ in ticks(world)] == [1, 2, 12.5, 13.5]


def test_a_crash_runs_no_finally_and_a_restart_begins_anew() -> None:
    world = World(1)
    ended: list[str] = []

    async def program(host: Host) -> None:
        life = str(host.life)
        try:
            await ticking(host)
        finally:
            ended.append(life)

    world.host("alpha", program).start()

    async def course() -> None:
        await asyncio.sleep(1.5)
        assert world.crash("alpha")
        assert not world.crash("alpha")
        assert not world.hosts["alpha"].is_up
        await asyncio.sleep(5)
        assert ended == []
        world.restart("alpha")
        world.restart("alpha")
        await asyncio.sleep(1.5)
        assert ended == []

    played(world, course())
    assert ticks(world) == [(1, "tick of life 1"), (7.5, "tick of life 2")]
    assert sorted(ended) == ["alpha/1", "alpha/2"], "cleaned up when the world was closed"


def test_tasks_and_timers_of_a_program_share_its_fate() -> None:
    world = World(1)
    heard: list[str] = []

    async def program(host: Host) -> None:
        asyncio.get_running_loop().call_later(5, heard.append, "timer")
        async with asyncio.TaskGroup() as group:
            group.create_task(ticking(host))

    world.host("alpha", program).start()

    async def course() -> None:
        await asyncio.sleep(2.5)
        world.crash("alpha")
        await asyncio.sleep(10)
        assert heard == []

    played(world, course())
    assert len(ticks(world)) == 2


def test_a_stopped_host_ends_in_good_order() -> None:
    world = World(1)

    async def program(host: Host) -> None:
        try:
            await ticking(host)
        finally:
            host.record("cleaned up")

    host = world.host("alpha", program)
    host.start()

    async def course() -> None:
        await asyncio.sleep(1.5)
        await host.stop()
        assert not host.is_up

    played(world, course())
    assert [fact.what for fact in world.history.facts][-2:] == ["cleaned up", "ends life 1"]


def test_a_program_that_fails_breaks_the_run() -> None:
    async def program(host: Host) -> None:
        await asyncio.sleep(3)
        raise ValueError("out of rope")

    world = World(1)
    world.host("alpha", program).start()
    with pytest.raises(Broken, match=r"(?s)alpha/1 failed.*out of rope") as caught:
        played(world, asyncio.sleep(10))
    assert caught.value.invariant == "no error goes unhandled"
    assert world.elapsed_s() == 3


def test_a_callback_that_fails_breaks_the_run() -> None:
    async def program(host: Host) -> None:
        asyncio.get_running_loop().call_later(1, list[int]().remove, 7)
        await idle(host)

    world = World(1)
    world.host("alpha", program).start()
    with pytest.raises(Broken, match="not in list"):
        played(world, asyncio.sleep(10))


async def leave_a_task(host: Host) -> None:
    host.world.loop.spawn(asyncio.sleep(100), name="the forgotten one", life=host.life)


async def leave_a_timer(host: Host) -> None:
    asyncio.get_running_loop().call_later(100, print)


async def leave_a_listener(host: Host) -> None:
    await host.network.listen(Endpoint.parse("tcp://*:5000"), asyncio.Protocol)


@pytest.mark.parametrize(
    ("program", "left"),
    [
        (leave_a_task, "task the forgotten one"),
        (leave_a_timer, "timer print"),
        (leave_a_listener, r"listener tcp://\*:5000"),
    ],
)
def test_a_program_that_leaves_something_behind_breaks_the_run(program: Any, left: str) -> None:
    world = World(1)
    world.host("alpha", program).start()
    with pytest.raises(Broken, match=left):
        played(world, asyncio.sleep(10))


def test_an_invariant_that_a_program_hides_still_breaks_the_run() -> None:
    async def program(host: Host) -> None:
        with contextlib.suppress(Broken):
            host.world.fail("two and two are four", "five")
        await idle(host)

    world = World(1)
    world.host("alpha", program).start()
    with pytest.raises(Broken, match="two and two are four: five"):
        played(world, asyncio.sleep(10))


def test_only_the_first_broken_invariant_counts() -> None:
    world = World(1)

    async def course() -> None:
        for invariant in ("first", "second"):
            with contextlib.suppress(Broken):
                world.fail(invariant, "broken")

    with pytest.raises(Broken, match="first"):
        played(world, course())


def test_hosts_have_clocks_chance_and_one_name_each() -> None:
    world = World(1)
    drawn: list[int] = []

    async def program(host: Host) -> None:
        drawn.append(host.chance.uint64())
        await idle(host)

    alpha = world.host("alpha", program, wall_skew_s=60.0)
    beta = world.host("beta", program)
    with pytest.raises(UsageError, match="already"):
        world.host("alpha", idle)
    with pytest.raises(UsageError, match="never started"):
        _ = alpha.life
    alpha.start()
    beta.start()
    with pytest.raises(UsageError, match="is up"):
        alpha.start()

    async def course() -> None:
        await asyncio.sleep(1)
        world.crash("alpha")
        world.restart("alpha")
        await asyncio.sleep(1)
        assert alpha.clock.wall() - beta.clock.wall() == 60.0
        assert alpha.clock.monotonic() == beta.clock.monotonic()

    played(world, course())
    assert len(set(drawn)) == 3


def test_calm_undoes_every_fault() -> None:
    world = World(1)
    for name in ("alpha", "beta", "gamma"):
        world.host(name, ticking).start()

    async def course() -> None:
        await asyncio.sleep(0.5)
        world.pause("alpha")
        world.crash("beta")
        world.crash("gamma", silent=True)
        world.network.cut("alpha", "beta")
        await asyncio.sleep(3)
        world.calm()
        assert all(host.is_up and not host.is_paused for host in world.hosts.values())
        assert not world.network.is_cut("alpha", "beta")
        assert not world.network.is_dark("gamma")

    played(world, course())


def test_a_host_that_was_asked_to_stop_comes_back_when_it_has_ended() -> None:
    world = World(1)

    async def slow_to_end(host: Host) -> None:
        try:
            await idle(host)
        finally:
            await asyncio.sleep(3)

    world.host("alpha", slow_to_end).start()

    async def course() -> None:
        await asyncio.sleep(1)
        assert world.stop("alpha")
        await asyncio.sleep(1)
        world.restart("alpha")
        assert world.hosts["alpha"].life.number == 1
        await asyncio.sleep(3)
        assert world.hosts["alpha"].life.number == 2
        assert world.hosts["alpha"].is_up
        assert world.crashed_lives == set()
        world.crash("alpha")
        assert not world.stop("alpha")
        assert world.crashed_lives == {"alpha/2"}

    played(world, course())
    assert [(fact.at_s, fact.what) for fact in world.history.facts] == [
        (0, "starts life 1"),
        (1, "is asked to stop"),
        (4, "ends life 1"),
        (4, "starts life 2"),
        (5, "crashes"),
    ]


def test_a_world_that_is_over_starts_nothing_any_more() -> None:
    world = World(1)
    starts: list[int] = []

    async def program(host: Host) -> None:
        starts.append(host.life.number)
        await idle(host)

    world.host("alpha", program).start()

    async def course() -> None:
        await asyncio.sleep(1)
        world.stop("alpha")
        world.restart("alpha")

    played(world, course())
    assert starts == [1]


# ---- the history ---------------------------------------------------------------------------------


def history_of(*facts: tuple[str, str]) -> History:
    history = History(lambda: 1.5)
    for node, what in facts:
        history.record(node, what)
    return history


def test_equal_histories_have_equal_digests() -> None:
    facts = [("alpha", "started"), ("", "cut")]
    assert history_of(*facts).digest() == history_of(*facts).digest()
    assert history_of(*facts).digest() != history_of(*reversed(facts)).digest()
    assert history_of(("a", "b c")).digest() != history_of(("a b", "c")).digest()


def test_the_digest_sees_every_bit_of_the_time() -> None:
    early, late = History(lambda: 0.1 + 0.2), History(lambda: 0.3)
    early.record("a", "b")
    late.record("a", "b")
    assert early.tail(1) == late.tail(1)
    assert early.digest() != late.digest()


def test_the_tail_shows_the_newest_and_counts_the_rest() -> None:
    history = history_of(*[("alpha", f"fact {number}") for number in range(10)])
    lines = history.tail(2).splitlines()
    assert lines[0].strip() == "(8 facts before)"
    assert [line.split("alpha")[1].strip() for line in lines[1:]] == ["fact 8", "fact 9"]
    assert history.tail(100).count("fact") == 10


def test_memory_is_bounded_and_the_digest_is_not_shortened_by_it() -> None:
    long, other = history_of(), history_of()
    for number in range(FACTS_KEPT_MAX + 10):
        long.record("alpha", f"{number}")
        other.record("alpha", f"{number if number else 'another'}")
    assert len(long) == FACTS_KEPT_MAX + 10
    assert len(long.facts) == FACTS_KEPT_MAX
    assert long.facts == other.facts
    assert long.digest() != other.digest()
