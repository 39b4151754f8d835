"""When a session is lost, and why: without a store."""

import pytest

from hansa.coordination.session import Kept, SessionTimes, session_times
from hansa.errors import BadArgument


def kept(until_s: float = 110.0, **facts: object) -> Kept:
    known: dict[str, object] = {"is_lost": False, "failures_count": 0, "heard_s": 106.0, **facts}
    return Kept(until_s=until_s, **known)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ttl_s", "margin_s"),
    [(60.0, 6.0), (10.0, 1.0), (2.0, 0.2), (1.0, 0.2), (0.6, 0.2), (0.3, 0.1), (0.03, 0.01)],
)
def test_the_margin_is_a_tenth_and_never_more_than_a_third(ttl_s: float, margin_s: float) -> None:
    times = session_times(ttl_s)
    assert times.margin_s == pytest.approx(margin_s)
    assert times.renew_interval_s * 2 <= ttl_s - times.margin_s + 1e-9
    assert times.loop_silence_s_max == ttl_s


def test_a_session_is_lost_at_its_deadline_and_not_before() -> None:
    times = session_times(10.0)
    assert times.deadline_s(kept().until_s) == 109.0
    assert times.why_lost(kept(), now=108.999) is None
    assert times.why_lost(kept(heard_s=107.0), now=109.0) == "could not renew for 9.0 s"


def test_the_reasons_are_told_apart() -> None:
    times = session_times(10.0)
    assert times.why_lost(kept(failures_count=2), now=109.5) == "could not renew for 9.5 s"
    ended = times.why_lost(kept(is_lost=True), now=103.0)
    assert ended == "the store ended the lease; it was renewed last 3.0 s ago"
    stuck = times.why_lost(kept(heard_s=100.0), now=112.0)
    assert stuck == "the event loop, or the whole process, was stuck for 12.0 s"
    # A store that does not answer makes renewals fail, whatever the loop does.
    unanswered = times.why_lost(kept(heard_s=100.0, failures_count=1), now=112.0)
    assert unanswered == "could not renew for 12.0 s"


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl": 0.0},
        {"ttl": -1.0},
        {"ttl": float("nan")},
        {"ttl": float("inf")},
        {"margin": -0.1},
        {"margin": 10.0},
        {"renew_interval": 0.0},
        {"renew_interval": 9.0},
        {"loop_silence_s_max": 0.0},
    ],
)
def test_times_that_do_not_fit_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(BadArgument):
        session_times(**{"ttl": 10.0, **wrong})


def test_given_times_are_kept() -> None:
    assert session_times(10.0, margin=0.0, renew_interval=9.9, loop_silence_s_max=60.0) == SessionTimes(
        ttl_s=10.0, margin_s=0.0, renew_interval_s=9.9, loop_silence_s_max=60.0
    )
