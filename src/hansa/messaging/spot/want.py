"""A topic that somebody on this node wants, and how far it has come."""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import Protocol

from hansa.messaging.spot.fanout import Feed
from hansa.messaging.spot.inbox import Inbox
from hansa.messaging.spot.interests import Interest


class WantState(Enum):
    """PENDING has no owner; ASKED was sent to one; ACTIVE is confirmed, or the owner never confirms."""

    PENDING = auto()
    ASKED = auto()
    ACTIVE = auto()


class Want:
    """One wanted topic, however many local subscriptions want it."""

    def __init__(self, topic: bytes, feed: Feed) -> None:
        self.topic = topic
        self.feed = feed
        self.state = WantState.PENDING
        self.owner: bytes | None = None
        self.inboxes_before: list[Inbox] = []
        """Who received when the owner was lost: what was missed since, only these have missed."""
        self._spots: Counter[int] = Counter()

    def holds(self, spot: object) -> bool:
        """Whether a subscription of this spot is among those that want it."""
        return id(spot) in self._spots

    @property
    def is_held(self) -> bool:
        """Whether there is still a subscription that wants it."""
        return bool(self._spots)

    def add(self, spot: object) -> None:
        self._spots[id(spot)] += 1

    def remove(self, spot: object) -> None:
        self._spots[id(spot)] -= 1
        if not self._spots[id(spot)]:
            del self._spots[id(spot)]


class Subscriber(Interest, Protocol):
    """A local subscription, as the machine sees it."""

    @property
    def text(self) -> str: ...

    @property
    def inbox(self) -> Inbox: ...

    @property
    def matched(self) -> dict[bytes, Want]:
        """The wanted topics that match, kept by the machine."""
