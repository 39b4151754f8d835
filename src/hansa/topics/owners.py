"""Which peers claim which topics, by their own word, and which of them owns each. Pure.

The claims of a peer are what it said last, over one connection, in order. Two peers may claim the same topic,
for a while or for as long as they do not hear each other: the lower id owns it for every node that hears
both. The other claim is kept, because its peer may turn out to be the only one left. A claim that was made in
a store comes with an epoch: the highest epoch owns the topic, whatever the ids; without a store it is 0.

`TopicIndex` finds known topics by their beginning. All topics stand in one sorted list, so those with a
common beginning stand side by side and two bisections find them. The list is sorted only for a look-up:
between two look-ups additions are only noted, and removed topics stay in the list, to be skipped. So when a
whole mesh tells its topics at once they are sorted once.

With n topics, adding and discarding cost O(1) (a list of which half is gone is purged, and the removals that
made it so share the cost). A look-up costs O(log n + found), after k additions once O(k log k + n) more; if k
is small, k bisections and moves of memory instead, so that look-ups between single additions stay cheap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Final

from hansa.errors import LimitExceeded
from hansa.ids import format_id, precedence
from hansa.limits import CLAIMS_MAX, TOPICS_MAX
from hansa.wire.topics import topic_digest

# Up to this many additions are put in place one by one; for more, one sort of everything is cheaper.
_INSERTED_COUNT_MAX: Final = 16


class Owners:
    """The claims of all connected peers. Topics are frames."""

    def __init__(self) -> None:
        self.claims_count = 0
        """The claims of all peers together."""
        self._owner: dict[bytes, bytes] = {}
        # The epochs of claims in a store; other claims have none.
        self._epochs: dict[tuple[bytes, bytes], int] = {}
        # Only for topics with more than one claim: the peers whose claims lost, in order.
        self._rivals: dict[bytes, list[bytes]] = {}
        self._claims: dict[bytes, dict[bytes, None]] = {}
        self._digests: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._owner)

    def __contains__(self, topic: object) -> bool:
        return topic in self._owner

    @property
    def all(self) -> dict[bytes, bytes]:
        """Owners by topic. Read it before the next change."""
        return self._owner

    def owner(self, topic: bytes) -> bytes | None:
        return self._owner.get(topic)

    def claims(self, peer: bytes) -> Iterable[bytes]:
        """The topics that this peer claims. Read it before the next change."""
        return self._claims.get(peer, {}).keys()

    def is_claimed_by(self, topic: bytes, peer: bytes) -> bool:
        return topic in self._claims.get(peer, ())

    def count(self, peer: bytes) -> int:
        return len(self._claims.get(peer, ()))

    def digest(self, peer: bytes) -> int:
        """The digest of all claims of this peer; the peer computes the same from what it owns."""
        return self._digests.get(peer, 0)

    def epoch(self, topic: bytes, peer: bytes) -> int:
        """The epoch of this peer's claim in a store; 0 without one."""
        return self._epochs.get((topic, peer), 0)

    def check_room(self, peer: bytes) -> None:
        """Raises LimitExceeded when this peer, or all together, claim as many topics as they may."""
        if self.count(peer) >= TOPICS_MAX:
            raise LimitExceeded(f"{format_id(peer)} claims more than {TOPICS_MAX} topics")
        if self.claims_count >= CLAIMS_MAX:
            raise LimitExceeded(f"all peers together claim {CLAIMS_MAX} topics, which is the most")

    def check_room_for(self, peer: bytes, count: int) -> None:
        """Raises LimitExceeded when all together would claim too many, if this peer claimed `count`."""
        if self.claims_count - self.count(peer) + count > CLAIMS_MAX:
            raise LimitExceeded(f"all peers together claim more than {CLAIMS_MAX} topics")

    def claim(self, topic: bytes, peer: bytes, epoch: int = 0) -> None:
        """Note that this peer claims the topic, in this epoch. Noting it again can only change the epoch."""
        claims = self._claims.setdefault(peer, {})
        if topic in claims:
            if epoch != self.epoch(topic, peer):
                self._set_epoch(topic, peer, epoch)
                if topic in self._rivals:
                    self._choose(topic, [self._owner[topic], *self._rivals[topic]])
            return
        claims[topic] = None
        self.claims_count += 1
        self._digests[peer] = self._digests.get(peer, 0) ^ topic_digest(topic)
        self._set_epoch(topic, peer, epoch)
        owner = self._owner.get(topic)
        if owner is None:
            self._owner[topic] = peer
        else:
            self._choose(topic, [owner, *self._rivals.get(topic, ()), peer])

    def _set_epoch(self, topic: bytes, peer: bytes, epoch: int) -> None:
        self._epochs.pop((topic, peer), None)
        if epoch:
            self._epochs[topic, peer] = epoch

    def _choose(self, topic: bytes, rivals: list[bytes]) -> None:
        rivals.sort(key=lambda peer: (-self.epoch(topic, peer), precedence(peer)))
        self._owner[topic] = rivals.pop(0)
        self._rivals[topic] = rivals

    def disclaim(self, topic: bytes, peer: bytes) -> None:
        """Note that this peer no longer claims the topic."""
        claims = self._claims.get(peer)
        if claims is None or topic not in claims:
            return
        del claims[topic]
        self.claims_count -= 1
        self._epochs.pop((topic, peer), None)
        self._digests[peer] ^= topic_digest(topic)
        if not claims:
            del self._claims[peer]
            del self._digests[peer]
        rivals = self._rivals.get(topic)
        if self._owner[topic] != peer:
            assert rivals is not None
            rivals.remove(peer)
        elif rivals:
            self._owner[topic] = rivals.pop(0)
        else:
            del self._owner[topic]
        if rivals is not None and not rivals:
            del self._rivals[topic]


class TopicIndex:
    """A set of topics, as frames, that finds all topics with a common beginning."""

    def __init__(self) -> None:
        self._topics: dict[bytes, None] = {}
        self._sorted: list[bytes] = []
        # Topics that are not in the sorted list yet, and entries of that list that are no longer topics.
        self._added: dict[bytes, None] = {}
        self._gone: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._topics)

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    def add(self, topic: bytes) -> None:
        """Add this topic; adding it again changes nothing."""
        if topic in self._topics:
            return
        self._topics[topic] = None
        if topic in self._gone:
            del self._gone[topic]
        else:
            self._added[topic] = None

    def discard(self, topic: bytes) -> None:
        """Remove this topic, if it is known."""
        if topic not in self._topics:
            return
        del self._topics[topic]
        if topic in self._added:
            del self._added[topic]
            return
        self._gone[topic] = None
        if 2 * len(self._gone) > len(self._sorted):
            self._sorted = [known for known in self._sorted if known not in self._gone]
            self._gone.clear()

    def starting_with(self, prefix: bytes) -> list[bytes]:
        """All topics that begin with `prefix`, sorted; with an empty one all topics."""
        self._put_in_order()
        size = len(prefix)
        first = bisect_left(self._sorted, prefix)
        end = bisect_right(self._sorted, prefix, first, key=lambda topic: topic[:size])
        found = self._sorted[first:end]
        return [topic for topic in found if topic not in self._gone] if self._gone else found

    def _put_in_order(self) -> None:
        if len(self._added) <= _INSERTED_COUNT_MAX:
            for topic in self._added:
                insort(self._sorted, topic)
        else:
            # Two sorted runs one after the other: the sort finds and merges them.
            self._sorted += sorted(self._added)
            self._sorted.sort()
        self._added.clear()
