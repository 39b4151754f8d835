"""Fault plans: drawn from the seed, played at their times, undone in the end."""

import asyncio
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.testing import Crash, Cut, Host, Pause, Refusal, Reset, SlowLink, Stop, World, draw_plan

HOSTS = ["alpha", "beta", "gamma"]


def drawn(seed: int) -> tuple[Any, ...]:
    return draw_plan(Chance.seeded(seed), HOSTS, chaos_s=20.0)


def test_a_seed_gives_one_plan() -> None:
    assert [drawn(seed) for seed in range(50)] == [drawn(seed) for seed in range(50)]
    assert len({drawn(seed) for seed in range(50)}) > 40


def test_plans_are_in_order_and_within_the_chaotic_phase() -> None:
    for seed in range(100):
        times = [fault.at_s for fault in drawn(seed)]
        assert times == sorted(times)
        assert all(0.0 <= at_s <= 20.0 for at_s in times)


def test_every_kind_is_drawn_and_some_plans_do_without_some_kinds() -> None:
    plans = [drawn(seed) for seed in range(100)]
    kinds = {Cut, Pause, Crash, Reset, SlowLink, Refusal, Stop}
    assert {type(fault) for plan in plans for fault in plan} == kinds
    assert any(len(plan) > 6 and Crash not in map(type, plan) for plan in plans)


def test_a_single_host_has_nobody_to_fall_out_with() -> None:
    assert draw_plan(Chance.seeded(1), ["alone"], chaos_s=20.0) == ()


async def idle(host: Host) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "fault",
    [
        Cut(at_s=0, lasting_s=1, source="alpha", target="beta", both_ways=True),
        Cut(at_s=0, lasting_s=1, source="alpha", target="beta", both_ways=False),
        Pause(at_s=0, lasting_s=1, host="alpha"),
        Crash(at_s=0, lasting_s=1, host="alpha", silent=False),
        Crash(at_s=0, lasting_s=1, host="alpha", silent=True),
        SlowLink(at_s=0, lasting_s=1, source="alpha", target="beta", bytes_per_s=10.0),
        Refusal(at_s=0, lasting_s=1, host="alpha"),
    ],
)
def test_the_end_of_a_fault_undoes_it(fault: Any) -> None:
    with World(1) as world:
        for name in HOSTS:
            world.host(name, idle).start()

        def troubles() -> list[object]:
            network, alpha = world.network, world.hosts["alpha"]
            return [
                network.is_cut("alpha", "beta"),
                network.is_cut("beta", "alpha"),
                network.rate("alpha", "beta") is not None,
                network.is_refusing("alpha"),
                network.is_dark("alpha"),
                alpha.is_paused,
                not alpha.is_up,
            ]

        async def course() -> None:
            await asyncio.sleep(1)
            assert not any(troubles())
            assert fault.begin(world)
            assert any(troubles())
            fault.end(world)
            assert not any(troubles())

        world.run(course())


def test_a_fault_that_finds_nothing_to_harm_says_so() -> None:
    with World(1) as world:
        for name in HOSTS:
            world.host(name, idle).start()

        async def course() -> None:
            await asyncio.sleep(1)
            crash = Crash(at_s=0, lasting_s=1, host="alpha", silent=False)
            assert crash.begin(world)
            assert not crash.begin(world)
            assert not Pause(at_s=0, lasting_s=1, host="alpha").begin(world)
            assert not Reset(at_s=0, lasting_s=0, a="alpha", b="beta").begin(world)

        world.run(course())
