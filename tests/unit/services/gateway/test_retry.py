"""Which failures may be tried again, and how long to wait before that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.chance import Chance
from hansa.errors import (
    BadArgument,
    HandlerFailed,
    HansaError,
    NoProvider,
    ProviderBusy,
    ProviderDraining,
    ProviderLost,
    TimedOut,
    UnknownMsgId,
)
from hansa.services.gateway import RetryPolicy

NOT_STARTED = [ProviderBusy("x"), ProviderDraining("x")]
IN_DOUBT = [ProviderLost("x"), TimedOut("x"), NoProvider("x")]
FINAL = [HandlerFailed("x"), UnknownMsgId("x"), BadArgument("x")]


@pytest.mark.spec("DIS-24")
@pytest.mark.parametrize("error", NOT_STARTED)
@pytest.mark.parametrize("idempotent", [True, False])
def test_what_was_not_started_is_always_tried_again(error: HansaError, idempotent: bool) -> None:
    assert RetryPolicy().allows(error, tries_count=1, idempotent=idempotent, not_started=False)


@pytest.mark.spec("DIS-24")
@pytest.mark.parametrize("error", IN_DOUBT)
def test_what_is_in_doubt_is_tried_again_only_if_it_is_idempotent(error: HansaError) -> None:
    assert RetryPolicy().allows(error, tries_count=1, idempotent=True, not_started=False)
    assert not RetryPolicy().allows(error, tries_count=1, idempotent=False, not_started=False)
    assert RetryPolicy().allows(error, tries_count=1, idempotent=False, not_started=True)


@pytest.mark.spec("DIS-24")
@pytest.mark.parametrize("error", FINAL)
def test_what_the_provider_decided_is_never_tried_again(error: HansaError) -> None:
    assert not RetryPolicy().allows(error, tries_count=1, idempotent=True, not_started=False)


@given(tries_max=st.integers(min_value=1, max_value=10), tries_count=st.integers(min_value=1, max_value=20))
def test_tries_are_bounded_whatever_the_error(tries_max: int, tries_count: int) -> None:
    policy = RetryPolicy(tries_max=tries_max)
    for error in (*NOT_STARTED, *IN_DOUBT):
        assert policy.allows(error, tries_count=tries_count, idempotent=True, not_started=True) == (
            tries_count < tries_max
        )


@given(tries_count=st.integers(min_value=1, max_value=60), seed=st.integers(min_value=0, max_value=99))
def test_pauses_double_up_to_their_bound_and_spread(tries_count: int, seed: int) -> None:
    policy = RetryPolicy(pause_s_min=0.02, pause_s_max=1.0)
    longest_s = min(1.0, 0.02 * 2 ** (tries_count - 1))
    assert longest_s / 2 <= policy.pause_s(tries_count, Chance.seeded(seed)) <= longest_s


@pytest.mark.parametrize(
    "settings",
    [
        {"tries_max": 0},
        {"tries_max": -1},
        {"pause_s_min": 0.0},
        {"pause_s_min": -1.0},
        {"pause_s_min": 2.0, "pause_s_max": 1.0},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(BadArgument, match="RetryPolicy"):
        RetryPolicy(**settings)  # type: ignore[arg-type]


def test_a_try_beside_another_is_bounded_and_can_be_turned_off() -> None:
    assert [RetryPolicy(tries_max=3).allows_beside(tries_count=count) for count in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert not RetryPolicy(tries_max=1).allows_beside(tries_count=1)
    assert not RetryPolicy(hedge_share=0.0).allows_beside(tries_count=1)


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(BadArgument, match="hedge_share"):
        RetryPolicy(hedge_share=share)
