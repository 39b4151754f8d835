"""Which local subscription matches which topics. Pure.

Theory of operation. A topic's own subscriptions are found by its name. Patterns are kept by their prefixes
and matched with one look-up for each length that occurs among them (`hansa.transport.subscriptions`): what a
message costs depends on how many subscriptions it reaches, not on how many there are. Subscriptions are given
out in the order in which they were added, so that one seed of a simulation makes one history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from hansa.errors import invariant
from hansa.transport.subscriptions import Subscriptions


class TopicInterest(Protocol):
    """What a subscription tells about itself. It is found again by its hash."""

    @property
    def spot(self) -> object:
        """Whose it is: however many interests of one spot match, it receives a message once."""

    @property
    def prefix(self) -> bytes:
        """What a pattern's topics begin with; of an exact interest the topic itself."""

    @property
    def is_pattern(self) -> bool: ...


I = TypeVar("I", bound=TopicInterest)  # noqa: E741


class Interests(Generic[I]):
    """All subscriptions of a node, by topic."""

    def __init__(self) -> None:
        self._exact: dict[bytes, dict[I, None]] = {}
        self._patterns: Subscriptions[I] = Subscriptions()
        # Every interest, and its number in the order of addition.
        self._numbers: dict[I, int] = {}
        self._added_count = 0

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def exact_topics(self) -> Iterable[bytes]:
        """Topics that are subscribed by name, each once. Read it before the next change."""
        return self._exact.keys()

    def add(self, interest: I) -> None:
        invariant(interest not in self._numbers, "a subscription was added twice")
        self._added_count += 1
        self._numbers[interest] = self._added_count
        if interest.is_pattern:
            self._patterns.add(interest, interest.prefix)
        else:
            self._exact.setdefault(interest.prefix, {})[interest] = None

    def remove(self, interest: I) -> None:
        invariant(interest in self._numbers, "a subscription was removed that was never added")
        del self._numbers[interest]
        if interest.is_pattern:
            self._patterns.drop(interest)
            return
        holders = self._exact[interest.prefix]
        del holders[interest]
        if not holders:
            del self._exact[interest.prefix]

    def count(self, topic: bytes) -> int:
        """How many want this topic, by name or by pattern: above 0, its owner is told."""
        return len(self._exact.get(topic, ())) + len(self._patterns.matching(topic))

    def has_exact(self, topic: bytes) -> bool:
        """Whether anybody subscribed this topic by its name."""
        return topic in self._exact

    def matching(self, topic: bytes) -> list[I]:
        """All that want this topic, in the order of their addition."""
        found = [*self._exact.get(topic, ()), *self._patterns.matching(topic)]
        found.sort(key=self._numbers.__getitem__)
        return found

    def targets(self, topic: bytes) -> list[I]:
        """Who receives a message of this topic, in the order of addition: of each spot one subscription.

        That is the one by name, else the pattern that says most.
        """
        chosen: dict[int, I] = {}
        for interest in self.matching(topic):
            # A spot compares as it likes; here it is only itself.
            rival = chosen.setdefault(id(interest.spot), interest)
            if _goes_before(interest, rival):
                chosen[id(interest.spot)] = interest
        return sorted(chosen.values(), key=self._numbers.__getitem__)


def _goes_before(interest: TopicInterest, rival: TopicInterest) -> bool:
    if interest.is_pattern != rival.is_pattern:
        return rival.is_pattern
    return len(interest.prefix) > len(rival.prefix)
