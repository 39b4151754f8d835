"""Delays between tries."""

import pytest

from hansa.chance import Chance
from hansa.runtime.backoff import Backoff


def test_delays_double_up_to_the_bound_and_start_over_after_success() -> None:
    backoff = Backoff(s_min=0.1, s_max=0.5, jitter=0, chance=Chance.seeded(1))
    assert [backoff.next_s() for _ in range(5)] == pytest.approx([0.1, 0.2, 0.4, 0.5, 0.5])
    backoff.reset()
    assert backoff.next_s() == pytest.approx(0.1)


def test_jitter_stays_within_its_share_and_comes_from_the_given_randomness() -> None:
    def delays(seed: int) -> list[float]:
        backoff = Backoff(s_min=1, s_max=1, jitter=0.2, chance=Chance.seeded(seed))
        return [backoff.next_s() for _ in range(200)]

    assert all(0.8 <= delay <= 1.2 for delay in delays(1))
    assert max(delays(1)) - min(delays(1)) > 0.3
    assert delays(1) == delays(1)
    assert delays(1) != delays(2)
