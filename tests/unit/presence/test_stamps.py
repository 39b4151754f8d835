"""A provider's stamps grow, follow the clock, and step over what a registry knows."""

from hypothesis import example, given
from hypothesis import strategies as st

from hansa.limits import EPOCH_AHEAD_S_MAX
from hansa.presence.statements import Stamps

WALL_MS = 1_700_000_000_000
NOW = WALL_MS << 16


def test_a_stamp_is_the_time_at_which_it_was_said() -> None:
    stamps = Stamps()
    assert stamps.next(WALL_MS) == NOW
    assert stamps.next(WALL_MS + 5) == WALL_MS + 5 << 16


def test_stamps_grow_within_a_millisecond_and_when_the_clock_steps_back() -> None:
    stamps = Stamps()
    assert [stamps.next(WALL_MS - n * 1000) for n in (0, 0, 1, 2)] == [NOW, NOW + 1, NOW + 2, NOW + 3]


def test_what_a_registry_knows_is_stepped_over() -> None:
    stamps = Stamps()
    ahead = WALL_MS + 3_000 << 16
    stamps.step_over(ahead)
    assert [stamps.next(WALL_MS) for _ in range(2)] == [ahead + 1, ahead + 2]
    stamps.step_over(NOW)
    assert stamps.next(WALL_MS) == ahead + 3
    assert stamps.next(WALL_MS + 4_000) == WALL_MS + 4_000 << 16


def test_nobody_is_led_into_a_far_future() -> None:
    stamps = Stamps()
    limit = WALL_MS + EPOCH_AHEAD_S_MAX * 1000 << 16
    for epoch in (2**64 - 1, limit + 1):
        stamps.step_over(epoch)
        assert stamps.next(WALL_MS) < NOW + 10
    stamps.step_over(limit)
    assert stamps.next(WALL_MS) == limit + 1


@example([(2**48 - 1, 2**64 - 1)])
@given(st.lists(st.tuples(st.integers(0, 2**48 - 1), st.none() | st.integers(0, 2**64 - 1)), max_size=20))
def test_whatever_happens_stamps_grow_and_fit_their_frame(steps: list[tuple[int, int | None]]) -> None:
    stamps = Stamps()
    last = -1
    for wall_ms, known in steps:
        if known is not None:
            stamps.step_over(known)
        stamp = stamps.next(wall_ms)
        assert last < stamp < 2**64
        last = stamp
