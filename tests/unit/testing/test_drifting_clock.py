"""A clock that drifts keeps its pace, and its date is set to and fro."""

from hansa.clock import ManualClock
from hansa.testing.store_host import WALL_STEP_EVERY_S, WALL_STEP_S, DriftingClock


def test_time_passes_at_its_rate_from_the_same_beginning() -> None:
    true = ManualClock(monotonic_s=100.0)
    fast, slow = DriftingClock(true, rate=1.01), DriftingClock(true, rate=0.99)
    assert fast.monotonic() == slow.monotonic() == 100.0
    true.advance(50.0)
    assert (fast.monotonic(), slow.monotonic()) == (150.5, 149.5)


def test_the_date_is_put_on_and_back_again_and_the_time_does_not_mind() -> None:
    true = ManualClock(monotonic_s=100.0)
    clock = DriftingClock(true, rate=1.0)
    errors_s, times_s = [], []
    for _ in range(4):
        errors_s.append(clock.wall() - true.wall())
        times_s.append(clock.monotonic())
        true.advance(WALL_STEP_EVERY_S)
    assert errors_s == [0.0, WALL_STEP_S, 0.0, WALL_STEP_S]
    assert times_s == [100.0 + number * WALL_STEP_EVERY_S for number in range(4)]
