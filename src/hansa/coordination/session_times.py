"""How long a session may believe in its lease, and why it stops to. Pure.

The store counts a lease's time from when it answers a renewal, the session from when it asked: so the session
is always the earlier of the two, and by a margin more. Between its deadline and the lease's end nobody owns
what hangs on it: the old owner has stopped by itself, and no new one can have begun.
"""

from dataclasses import dataclass
from math import isfinite

from hansa.errors import BadArgument, Fenced
from hansa.limits import (
    FAREWELL_STORE_S_MAX,
    LOSS_FAREWELL_S_MAX,
    SESSION_MARGIN_S_MIN,
    SESSION_MARGIN_SHARE,
    SESSION_MARGIN_SHARE_MAX,
    SESSION_RENEWALS_COUNT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is known of a lease: until when it surely lives, and what its keeper went through."""

    until_s: float
    is_lost: bool
    failures_count: int
    # When the event loop was last seen to run.
    heard_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTimes:
    """The durations of a session. `session_times` makes it, with the defaults."""

    ttl_s: float
    margin_s: float
    renew_interval_s: float
    loop_silence_s_max: float

    def deadline_s(self, kept: Kept) -> float:
        """From when on the session is lost, unless it is renewed before."""
        return kept.until_s - self.margin_s

    def why_lost(self, kept: Kept, *, now: float) -> str | None:
        """Why the session is lost; None while it lives. Once lost it stays so: the caller sees to that."""
        unrenewed_s = now - (kept.until_s - self.ttl_s)
        if kept.is_lost:
            return f"the store ended the lease; it was renewed last {unrenewed_s:.1f} s ago"
        if now < self.deadline_s(kept):
            return None
        # A renewal is tried every interval and has failed after another, and either is heard on the loop.
        silence_s = now - kept.heard_s
        if not kept.failures_count and silence_s > 2 * self.renew_interval_s:
            return f"the event loop, or the whole process, was stuck for {silence_s:.1f} s"
        return f"could not renew for {unrenewed_s:.1f} s"


def farewell_s(error: BaseException | None, *, failures_count: int) -> float:
    """How long a block that is left with this error may wait for the store to hear of it; 0 is not at all.

    A loss is told first. One that passes through the blocks of others, whose leases still live, waits for
    their farewells only as long as a store that is there needs, and never for one that did not answer lately.
    """
    if not _is_loss(error):
        return FAREWELL_STORE_S_MAX
    return 0.0 if failures_count else LOSS_FAREWELL_S_MAX


def _is_loss(error: BaseException | None) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(Fenced) is not None
    return isinstance(error, Fenced)


def session_times(
    ttl_s: float,
    *,
    margin_s: float | None = None,
    renew_interval_s: float | None = None,
    loop_silence_s_max: float | None = None,
) -> SessionTimes:
    """The times of a session, checked, with defaults for what is not given. Raises `BadArgument`."""
    if not (isfinite(ttl_s) and ttl_s > 0.0):
        raise BadArgument(f"ttl {ttl_s} s: give how long the lease lives without being renewed")
    if margin_s is None:
        margin_s = min(
            max(SESSION_MARGIN_SHARE * ttl_s, SESSION_MARGIN_S_MIN), SESSION_MARGIN_SHARE_MAX * ttl_s
        )
    if not 0.0 <= margin_s < ttl_s:
        raise BadArgument(f"margin {margin_s} s: give 0 or more, and less than the {ttl_s} s of the lease")
    if renew_interval_s is None:
        renew_interval_s = min(ttl_s / SESSION_RENEWALS_COUNT, (ttl_s - margin_s) / 2)
    if not 0.0 < renew_interval_s < ttl_s - margin_s:
        raise BadArgument(
            f"renewing every {renew_interval_s} s: it must be less than the {ttl_s - margin_s:g} s that a"
            " renewal lasts"
        )
    if loop_silence_s_max is None:
        loop_silence_s_max = ttl_s
    if not loop_silence_s_max > 0.0:
        raise BadArgument(f"loop silence {loop_silence_s_max} s: give how long the event loop may be stuck")
    return SessionTimes(
        ttl_s=ttl_s,
        margin_s=margin_s,
        renew_interval_s=renew_interval_s,
        loop_silence_s_max=loop_silence_s_max,
    )
