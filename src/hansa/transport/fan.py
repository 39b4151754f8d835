"""One message to many: encoded once, put into the outbox of everyone who subscribed to it.

Compiled by mypyc with the outbox (`make bench`, case pub).
"""

from typing import Final

from hansa.limits import WRITE_JOIN_BYTES
from hansa.transport.outbox import FULL, QUIET, Outbox
from hansa.transport.subscriptions import Subscriptions
from hansa.wire.frames import encode

# A publisher that never waits still lets the loop run this often, were it only to hear of subscribers.
TURN_COUNT_MAX: Final = 1_000


class Fan:
    """The subscribers of a publisher. A subscriber whose outbox is full misses the message, counted there."""

    def __init__(self) -> None:
        self.subscriptions: Subscriptions[Outbox] = Subscriptions()
        self.roused: list[Outbox] = []
        """Outboxes whose driver must act."""
        self.turn_count = 0
        """Messages published since the driver last let the loop run."""

    def publish(self, parts: list[bytes]) -> int:
        """How many took it. Raises BadArgument, with nothing published."""
        pieces: list[bytes] = []
        size_bytes = encode(parts, pieces)
        if size_bytes < WRITE_JOIN_BYTES:
            pieces = [b"".join(pieces)]
        return self.publish_encoded(parts[0], pieces, size_bytes)

    def publish_encoded(self, topic: bytes, pieces: list[bytes], size_bytes: int) -> int:
        """The same for a message that is in wire form already; `topic` is its first part."""
        self.turn_count += 1
        count = 0
        dropped_count = 0
        for outbox in self.subscriptions.matching(topic):
            due = outbox.put_encoded(pieces, size_bytes)
            if due == FULL:
                outbox.dropped_count += 1
                dropped_count += 1
                continue
            count += 1
            if due != QUIET:
                self.roused.append(outbox)
        if dropped_count and not count:
            # Nobody keeps up, so nobody is slowed when the publisher lets the loop write first.
            self.turn_count = TURN_COUNT_MAX
        return count
