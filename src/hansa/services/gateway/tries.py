"""Further tries of a request: after a failed try, and beside a slow one. Pure.

`RetryPolicy` decides about failed tries. `Hedging` decides about slow ones, for idempotent requests only.

Theory of operation. A provider that stands still (a stopped process, a swapping machine) keeps its connection
and answers nothing, until heartbeats notice. So each *try* has a time of its own. When that is over, another
provider is asked as well, while the first may still answer; the first answer counts.

- A try's time is twice what nearly all requests of this service take: their 99th percentile, as observed. It
  is never below `TRY_S_MIN`, and not above the try's share of the deadline, or half of the deadline where the
  service is known to take so long. Until enough was observed it is that share.
- The percentile is tracked step by step, starting from the second slowest of the first answers: an answer
  above the estimate raises it by a few percent, one below lowers it by a hundredth of that. A request that
  took more than one try counts as above. So a few very slow answers do not matter, and while one request in a
  hundred is sent twice, the estimate stays.
- Second tries have a budget, so that a service that is slow because it is overloaded does not get twice the
  load: each answer earns a share of one more, and each second a little. When the budget is used up, requests
  wait for their first try, and are looked at again later.
"""

from __future__ import annotations

from dataclasses import dataclass

from hansa.chance import Chance
from hansa.errors import BadArgument, HansaError, ProviderBusy, ProviderDraining
from hansa.limits import (
    HEDGE_SHARE,
    HEDGES_COUNT_MAX,
    HEDGES_PER_S,
    REQUEST_TIMEOUT_S,
    TRY_S_MIN,
)

# The provider says so itself: nothing of the request was carried out.
NOT_STARTED = (ProviderBusy, ProviderDraining)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """At most `tries_max` tries within the request's deadline, each with another provider if there is one.

    A request that certainly was not started (refused as busy or draining, or never left this process) goes to
    another provider without the caller noticing. One that may have been carried out is tried again only if it
    is marked idempotent. Once every provider had its try, each further try waits twice as long.

    An idempotent request whose try takes far longer than usual is sent to another provider as well, and the
    first answer counts; in the long run at most `hedge_share` of the requests of a service, 0 for none.
    """

    tries_max: int = 3
    pause_s_min: float = 0.02
    pause_s_max: float = 1.0
    hedge_share: float = HEDGE_SHARE

    def __post_init__(self) -> None:
        if self.tries_max < 1 or not 0.0 < self.pause_s_min <= self.pause_s_max:
            raise BadArgument(
                f"RetryPolicy: tries_max {self.tries_max} must be at least 1, and the pauses "
                f"{self.pause_s_min} and {self.pause_s_max} s positive and in order"
            )
        if not 0.0 <= self.hedge_share <= 1.0:
            raise BadArgument(f"RetryPolicy: hedge_share {self.hedge_share} must be from 0 to 1")

    def allows(self, error: HansaError, *, tries_count: int, idempotent: bool, not_started: bool) -> bool:
        """Whether a request that failed with this error may be tried again."""
        if tries_count >= self.tries_max:
            return False
        return not_started or isinstance(error, NOT_STARTED) or (idempotent and error.retryable)

    def allows_beside(self, *, tries_count: int) -> bool:
        """Whether an idempotent request with this many tries may have one more beside them."""
        return tries_count < self.tries_max and self.hedge_share > 0.0

    def pause_s(self, tries_count: int, chance: Chance) -> float:
        """How long to wait after this many tries; drawn from half to all of it, so that crowds spread out."""
        longest_s = min(self.pause_s_max, self.pause_s_min * 2 ** (tries_count - 1))
        return chance.uniform(longest_s / 2, longest_s)


# This many answers say enough about a service.
_OBSERVED_MIN = 20
# Then every eighth is enough (`make bench`, case gateway): ids grow, so every eighth has none of these bits.
_SAMPLING = 0b111
# By how much one answer moves the estimate, and which share of the answers is above it.
_STEP = 0.05
_ABOVE = 0.01
# An estimate of nothing could not grow by percents.
_ESTIMATE_S_MIN = 0.000_1


class Hedging:
    """What one service's answers say about the next: how long a try may take, and how many may be doubled."""

    __slots__ = (
        "_budget",
        "_earned_at",
        "_estimate_s",
        "_observed_count",
        "_per_answer",
        "_share",
        "_slowest_s",
        "sampling",
    )

    def __init__(self, *, tries_max: int, hedge_share: float) -> None:
        # All tries, and as much time again for the answer of the last one.
        self._share = 1.0 / (tries_max + 1)
        self._per_answer = hedge_share
        self._budget = float(HEDGES_COUNT_MAX)
        self._earned_at = 0.0
        self._estimate_s = _ESTIMATE_S_MIN
        self._slowest_s = 0.0
        self._observed_count = 0
        self.sampling = 0
        """Answers to requests whose ids have one of these bits need not be reported."""

    def patience_s(self, timeout_s: float) -> float:
        """How long a try of a request with this timeout may take before another provider is asked, too."""
        share_s = min(timeout_s, REQUEST_TIMEOUT_S) * self._share
        if self._observed_count < _OBSERVED_MIN:
            return max(TRY_S_MIN, share_s)
        estimate_s = self._estimate_s
        return max(TRY_S_MIN, min(2.0 * estimate_s, share_s), min(estimate_s, timeout_s / 2.0))

    def answered(self, latency_s: float) -> None:
        """The only try of a request was answered after this time."""
        if self._budget < HEDGES_COUNT_MAX:
            self._budget += self._per_answer * (self.sampling + 1)
        estimate_s = self._estimate_s
        if self._observed_count < _OBSERVED_MIN:
            self._observed_count += 1
            self._estimate_s = max(estimate_s, min(latency_s, self._slowest_s))
            self._slowest_s = max(latency_s, self._slowest_s)
            if self._observed_count == _OBSERVED_MIN:
                self.sampling = _SAMPLING
        elif latency_s > estimate_s:
            self._estimate_s = estimate_s * (1.0 + _STEP * (1.0 - _ABOVE))
        elif estimate_s > _ESTIMATE_S_MIN:
            self._estimate_s = estimate_s * (1.0 - _STEP * _ABOVE)

    def answered_late(self) -> None:
        """A request was answered, and had more than one try by then."""
        if self._observed_count >= _OBSERVED_MIN:
            self._estimate_s *= 1.0 + _STEP * (1.0 - _ABOVE)

    def take(self, *, now: float) -> bool:
        """Returns whether one more request may be sent twice; if so, counts it."""
        if self._per_answer <= 0.0:
            return False
        earned = (now - self._earned_at) * HEDGES_PER_S
        self._budget = min(float(HEDGES_COUNT_MAX), self._budget + earned)
        self._earned_at = now
        if self._budget < 1.0:
            return False
        self._budget -= 1.0
        return True
