"""The subscriptions of a publisher, and one message put into the outbox of each subscriber. Pure.

Subscriptions are prefixes, kept in one table with their distinct lengths beside it: a message is matched with
one look-up per length that occurs, however many prefixes and subscribers there are. A `Fan` encodes a message
once for all of them.

Compiled by mypyc with the outbox (`make bench`, case pub).
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from hansa.limits import WRITE_JOIN_BYTES, WRITE_TURN_BYTES
from hansa.transport.outbox import FULL, QUIET, Outbox
from hansa.wire.frames import encode

T = TypeVar("T")
# A publisher that never waits still lets the loop run this often, if only to hear of subscribers.
TURN_COUNT_MAX: Final = 1_000


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
        """Remove one subscription; False when there is none."""
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
        """Forget a subscriber and all its subscriptions."""
        for prefix in self._prefixes.pop(subscriber, {}):
            self._forget(subscriber, prefix)

    def has(self, subscriber: T, prefix: bytes) -> bool:
        return subscriber in self._holders.get(prefix, ())

    def count(self, subscriber: T) -> int:
        """How many distinct prefixes this subscriber has."""
        return len(self._prefixes.get(subscriber, ()))

    def matching(self, topic: bytes) -> dict[T, int]:
        """The subscribers of this topic, each once, in a stable order. Read it before the next change."""
        found: dict[T, int] = {}
        for length in self._lengths_sorted:
            if length > len(topic):
                break
            holders = self._holders.get(topic[:length])
            if holders is not None:
                # The usual case, one matching prefix, needs no new table.
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


class Fan:
    """The subscribers of a publisher. A subscriber whose outbox is full misses the message, counted there."""

    def __init__(self) -> None:
        self.subscriptions: Subscriptions[Outbox] = Subscriptions()
        self.roused: list[Outbox] = []
        """Outboxes whose driver must act."""
        self.turn_count = 0
        """Messages published since the driver last let the loop run."""

    def rest(self) -> None:
        """The driver lets the loop run."""
        self.turn_count = 0

    def take_roused(self) -> list[Outbox]:
        """The outboxes whose driver must act. After a burst the loop should run soon."""
        roused, self.roused = self.roused, []
        for outbox in roused:
            if outbox.held_bytes >= WRITE_TURN_BYTES:
                self.turn_count = TURN_COUNT_MAX
        return roused

    def publish(self, parts: list[bytes]) -> int:
        """Publish a message; returns how many took it. Raises BadArgument, with nothing published."""
        pieces: list[bytes] = []
        size_bytes = encode(parts, pieces)
        if size_bytes < WRITE_JOIN_BYTES:
            pieces = [b"".join(pieces)]
        return self.publish_encoded(parts[0], pieces, size_bytes)

    def publish_encoded(self, topic: bytes, pieces: list[bytes], size_bytes: int) -> int:
        """The same for a message in wire form; `topic` is its first part."""
        self.turn_count += 1
        count = 0
        dropped_count = 0
        for outbox in self.subscriptions.matching(topic):
            due = outbox.put_encoded(pieces, size_bytes)
            if due == FULL:
                outbox.drop()
                dropped_count += 1
                continue
            count += 1
            if due != QUIET:
                self.roused.append(outbox)
        if dropped_count and not count:
            # No subscriber keeps up, so none is slowed when the publisher lets the loop write first.
            self.turn_count = TURN_COUNT_MAX
        return count
