"""Which requests are tried again, how often and after which pause."""

from __future__ import annotations

from dataclasses import dataclass

from hansa.chance import Chance
from hansa.errors import BadArgument, HansaError, ProviderBusy, ProviderDraining
from hansa.limits import HEDGE_SHARE

# The provider says so itself: nothing of the request was carried out.
NOT_STARTED = (ProviderBusy, ProviderDraining)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """At most `tries_max` tries within the request's deadline, each with another provider if there is one.

    A request that certainly was not started (refused as busy or draining, or never left this process) goes on
    to another provider without anybody noticing. One that may have been carried out is tried again only if it
    is marked idempotent. Once every provider had its try, the next one waits, twice as long each time.

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
        """Whether a request that failed so may be tried once more."""
        if tries_count >= self.tries_max:
            return False
        return not_started or isinstance(error, NOT_STARTED) or (idempotent and error.retryable)

    def allows_beside(self, *, tries_count: int) -> bool:
        """Whether an idempotent request with so many tries may have one more while those may be answered."""
        return tries_count < self.tries_max and self.hedge_share > 0.0

    def pause_s(self, tries_count: int, chance: Chance) -> float:
        """How long to wait after so many tries; drawn from half to all of it, so that a crowd spreads out."""
        longest_s = min(self.pause_s_max, self.pause_s_min * 2 ** (tries_count - 1))
        return chance.uniform(longest_s / 2, longest_s)
