"""Which member of an etcd group is asked next, and when. Pure."""

from collections.abc import Sequence

from hansa.chance import Chance
from hansa.limits import (
    STORE_RETRY_JITTER,
    STORE_RETRY_S_MAX,
    STORE_RETRY_S_MIN,
    STORE_TRY_DOUBLINGS_MAX,
)
from hansa.runtime.backoff import Backoff
from hansa.store.etcd.failures import Doubt, Failure


class Rotation:
    """The member that answered last, until it fails: then the next one, for everybody who shares this.

    Members are numbers, which stay theirs when others come and go.
    """

    def __init__(self, count: int, chance: Chance, *, begins_first: bool = False) -> None:
        self._members: Sequence[int] = range(count)
        self._chance = chance
        # Not all clients at the same member, unless each has one of its own.
        self.current = 0 if begins_first else chance.below(count)

    def failed(self, index: int) -> None:
        """Turn to the next one; not if somebody else has turned already."""
        if index == self.current:
            at = self._members.index(index)
            self.current = self._members[(at + 1) % len(self._members)]

    def use(self, members: Sequence[int]) -> None:
        """There are these members from now on; the one that answered last is kept if it is among them."""
        self._members = members
        if self.current not in members:
            self.current = self._chance.choose(members)


class Trail:
    """The tries of one call: how long each may take, how long to wait before the next, what is known."""

    def __init__(self, members_count: int, chance: Chance) -> None:
        self._members_count = members_count
        self._backoff = Backoff(
            s_min=STORE_RETRY_S_MIN, s_max=STORE_RETRY_S_MAX, jitter=STORE_RETRY_JITTER, chance=chance
        )
        self._failures_count = 0
        self.strangers_count = 0
        self.is_doubtful = False
        # A try was sent and has no answer yet.
        self.is_under_way = False
        self.last_text = "no answer came"

    @property
    def may_be_done(self) -> bool:
        """Whether some try may have been carried out."""
        return self.is_doubtful or self.is_under_way

    def try_s(self, base_s: float) -> float:
        """How long the next try may take."""
        if not self._failures_count:
            return base_s
        rounds = self._failures_count // self._members_count
        return float(base_s * 2 ** min(rounds, STORE_TRY_DOUBLINGS_MAX))

    def note(self, failure: Failure) -> float:
        """A try failed; gives how long to wait before the next one. Each member is tried once without."""
        self._failures_count += 1
        self.last_text = failure.text
        if failure.doubt is Doubt.DOUBTFUL:
            self.is_doubtful = True
        if failure.doubt is Doubt.STRANGER:
            self.strangers_count += 1
        return 0.0 if self._failures_count % self._members_count else self._backoff.next_s()
