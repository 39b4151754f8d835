"""A topic that somebody on this node wants, and how far it has come."""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import Protocol

from hansa.limits import FORMER_OWNERS_MAX
from hansa.messaging.spot.fanout import Feed
from hansa.messaging.spot.inbox import Inbox, TopicMessage
from hansa.messaging.spot.interests import Interest


class WantState(Enum):
    """PENDING has no owner; ASKED was sent to one; ACTIVE is confirmed, or the owner never confirms."""

    PENDING = auto()
    ASKED = auto()
    ACTIVE = auto()


class Former:
    """How far an owner's topic had come here when that owner was lost, and which spots had received it."""

    def __init__(self, last: int, kept: TopicMessage | None, spots_before: dict[int, None]) -> None:
        self.last = last
        self.kept = kept
        self.spots_before = spots_before


class Want:
    """One wanted topic, however many local subscriptions want it.

    A spot stays with it from its first matching subscription to the end of its last one. What was missed is
    a matter of spots, not of subscriptions: a spot may exchange one for another while the owner is away.
    """

    def __init__(self, topic: bytes, feed: Feed) -> None:
        self.topic = topic
        self.feed = feed
        self.state = WantState.PENDING
        self.owner: bytes | None = None
        self.spots_before: dict[int, None] = {}
        """Spots that received when the owner was lost, and stayed: only these miss what comes meanwhile."""
        # By owner and epoch, of owners before the last one. Most topics never have another.
        self._formers: dict[tuple[bytes, int], Former] | None = None
        self._spots: Counter[int] = Counter()

    def keep_former(self) -> None:
        """Another owner takes over; the one before may return, and then nothing is new again."""
        feed = self.feed
        if self._formers is None:
            self._formers = {}
        self._formers[feed.owner, feed.epoch] = Former(feed.last, feed.kept, self.spots_before)
        if len(self._formers) > FORMER_OWNERS_MAX:
            del self._formers[next(iter(self._formers))]

    def take_former(self, owner: bytes, epoch: int) -> Former | None:
        """What is known of an owner that returns."""
        return self._formers.pop((owner, epoch), None) if self._formers else None

    def holds(self, spot: object) -> bool:
        """Whether a subscription of this spot is among those that want it."""
        return id(spot) in self._spots

    @property
    def is_held(self) -> bool:
        """Whether there is still a subscription that wants it."""
        return bool(self._spots)

    @property
    def is_remembered(self) -> bool:
        """Whether some spot could be told what it missed, should an owner that was lost return."""
        return bool(
            self.spots_before or (self._formers and any(one.spots_before for one in self._formers.values()))
        )

    def was_there(self, spot: object) -> bool:
        """Whether this spot received when the owner was lost, and has stayed since."""
        return id(spot) in self.spots_before

    def add(self, spot: object) -> None:
        self._spots[id(spot)] += 1

    def remove(self, spot: object) -> None:
        """One subscription of this spot less; with the last one its stay ends."""
        self._spots[id(spot)] -= 1
        if self._spots[id(spot)]:
            return
        del self._spots[id(spot)]
        self.spots_before.pop(id(spot), None)
        for former in (self._formers or {}).values():
            former.spots_before.pop(id(spot), None)

    def suspend(self) -> None:
        """The owner was lost: remember who received until now."""
        self.spots_before = dict.fromkeys(self._spots)


class Subscriber(Interest, Protocol):
    """A local subscription, as the machine sees it."""

    @property
    def text(self) -> str: ...

    @property
    def inbox(self) -> Inbox: ...

    @property
    def matched(self) -> dict[bytes, Want]:
        """The wanted topics that match, kept by the machine."""
