"""Clocks: one that runs and one that is moved."""

import time

import pytest

from hansa.clock import Clock, ManualClock, SystemClock
from hansa.errors import BadArgument


def test_a_manual_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock(monotonic_s=5.0, wall_s=1000.0)
    assert (clock.monotonic(), clock.wall()) == (5.0, 1000.0)
    assert (clock.monotonic(), clock.wall()) == (5.0, 1000.0)
    clock.advance(2.5)
    assert (clock.monotonic(), clock.wall()) == (7.5, 1002.5)
    clock.advance(0.0)
    assert clock.monotonic() == 7.5


@pytest.mark.parametrize("seconds", [-0.001, float("-inf"), float("nan")])
def test_a_manual_clock_never_goes_back(seconds: float) -> None:
    clock = ManualClock()
    with pytest.raises(BadArgument):
        clock.advance(seconds)
    assert clock.monotonic() == 0.0


def test_the_system_clock_tells_the_machines_times() -> None:
    clock: Clock = SystemClock()
    # Not that of `time.monotonic`, which stands still while a Linux machine is suspended.
    unresting = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    before = time.clock_gettime(unresting)
    seen = clock.monotonic()
    assert before <= seen <= time.clock_gettime(unresting)
    assert abs(clock.wall() - time.time()) < 5.0


def test_both_are_clocks() -> None:
    clocks: list[Clock] = [SystemClock(), ManualClock()]
    assert all(isinstance(clock.monotonic(), float) for clock in clocks)
