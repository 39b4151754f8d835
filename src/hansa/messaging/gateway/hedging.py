"""When a request that may be carried out twice is sent to a second provider, too. A machine: no clock.

Theory of operation. A provider that stands still (a stopped process, a machine that swaps) keeps its
connection and answers nothing, for as long as heartbeats take to notice. So a *try* has a time of its own.
When that is over, another provider is asked as well, while the first may still answer; whoever answers first
is heard.

- A try's time is twice what nearly all requests of this service take: their 99th percentile, as observed. It
  is never below `TRY_S_MIN`, and not above the try's share of the deadline, or half of the deadline where the
  service is known to take so long. Until enough was observed it is that share.
- The percentile is followed step by step, from the second slowest of the first answers on: an answer above it
  raises it by a few percent, one below lowers it by a hundredth of that. A request that took more than one
  try counts as above. So a few very slow answers do not matter, and where one in a hundred is sent twice, the
  estimate stays.
- What is sent twice has a budget, so that a service that is slow because it has too much to do does not get
  twice as much: each answer earns a share of one more, and each second a little. When the budget is used up,
  requests wait for their first try, and are looked at again.
"""

from __future__ import annotations

from hansa.limits import (
    HEDGES_COUNT_MAX,
    HEDGES_PER_S,
    REQUEST_TIMEOUT_S,
    TRY_S_MIN,
)

# So many answers say enough about a service.
_OBSERVED_MIN = 20
# Then every eighth is enough (`make bench`, case gateway): ids grow, so these bits are zero so often.
_SAMPLING = 0b111
# How far one answer moves the estimate, and which share of the answers is above it.
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
        # All tries, and the time that the last of them needs for its answer.
        self._share = 1.0 / (tries_max + 1)
        self._per_answer = hedge_share
        self._budget = float(HEDGES_COUNT_MAX)
        self._earned_at = 0.0
        self._estimate_s = _ESTIMATE_S_MIN
        self._slowest_s = 0.0
        self._observed_count = 0
        self.sampling = 0
        """Answers to requests whose ids have one of these bits need not be told."""

    def patience_s(self, timeout_s: float) -> float:
        """How long a try of a request with this timeout may take before another provider is asked, too."""
        share_s = min(timeout_s, REQUEST_TIMEOUT_S) * self._share
        if self._observed_count < _OBSERVED_MIN:
            return max(TRY_S_MIN, share_s)
        estimate_s = self._estimate_s
        return max(TRY_S_MIN, min(2.0 * estimate_s, share_s), min(estimate_s, timeout_s / 2.0))

    def answered(self, latency_s: float) -> None:
        """The only try of a request was answered after so long."""
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
        """Whether one more request may be sent twice; if so, it is counted."""
        if self._per_answer <= 0.0:
            return False
        earned = (now - self._earned_at) * HEDGES_PER_S
        self._budget = min(float(HEDGES_COUNT_MAX), self._budget + earned)
        self._earned_at = now
        if self._budget < 1.0:
            return False
        self._budget -= 1.0
        return True
