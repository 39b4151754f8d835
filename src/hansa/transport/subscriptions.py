"""Who wants which messages: subscriptions by prefix, matched without scanning them.

Prefixes are kept in one table, and the distinct lengths beside it: a message is matched with one look-up per
length that occurs, however many prefixes and subscribers there are.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Subscriptions(Generic[T]):
    """Prefixes of many subscribers, counted: two equal subscriptions need two cancellations."""

    def __init__(self) -> None:
        self._holders: dict[bytes, dict[T, int]] = {}
        self._lengths: dict[int, int] = {}
        self._lengths_sorted: list[int] = []
        self._prefixes: dict[T, dict[bytes, None]] = {}

    def add(self, subscriber: T, prefix: bytes) -> None:
        holders = self._holders.get(prefix)
        if holders is None:
            holders = self._holders[prefix] = {}
            self._count_length(len(prefix), 1)
        holders[subscriber] = holders.get(subscriber, 0) + 1
        self._prefixes.setdefault(subscriber, {})[prefix] = None

    def remove(self, subscriber: T, prefix: bytes) -> bool:
        """Take one subscription back; False when there is none."""
        holders = self._holders.get(prefix)
        if holders is None or subscriber not in holders:
            return False
        holders[subscriber] -= 1
        if not holders[subscriber]:
            del self._prefixes[subscriber][prefix]
            if not self._prefixes[subscriber]:
                del self._prefixes[subscriber]
            self._forget(subscriber, prefix)
        return True

    def drop(self, subscriber: T) -> None:
        """Forget a subscriber and all it wanted."""
        for prefix in self._prefixes.pop(subscriber, {}):
            self._forget(subscriber, prefix)

    def has(self, subscriber: T, prefix: bytes) -> bool:
        return subscriber in self._holders.get(prefix, ())

    def count(self, subscriber: T) -> int:
        """Distinct prefixes of this subscriber."""
        return len(self._prefixes.get(subscriber, ()))

    def matching(self, topic: bytes) -> dict[T, int]:
        """The subscribers of this topic, each once, in a stable order. Read it before the next change."""
        found: dict[T, int] = {}
        for length in self._lengths_sorted:
            if length > len(topic):
                break
            holders = self._holders.get(topic[:length])
            if holders is not None:
                # The usual case, one prefix that matches, costs no new table.
                found = {**found, **holders} if found else holders
        return found

    def _forget(self, subscriber: T, prefix: bytes) -> None:
        holders = self._holders[prefix]
        del holders[subscriber]
        if not holders:
            del self._holders[prefix]
            self._count_length(len(prefix), -1)

    def _count_length(self, length: int, change: int) -> None:
        self._lengths[length] = self._lengths.get(length, 0) + change
        if not self._lengths[length]:
            del self._lengths[length]
        if len(self._lengths) != len(self._lengths_sorted):
            self._lengths_sorted = sorted(self._lengths)
