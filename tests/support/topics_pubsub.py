"""Publishers and subscriptions of a PUB/SUB mesh: when they hear each other, and what is missing."""

import asyncio
from typing import Any

from hansa import Spot, Subscription
from tests.support.discovery_cast import WITHIN_S, until

PUBSUB: dict[str, Any] = {"mesh": "pubsub"}
ZONE = "zone:1"


def read_origin(origin: bytes) -> tuple[bytes, int]:
    """Node id and epoch of a publication's origin."""
    end = 5 + origin[4]
    return origin[5:end], int.from_bytes(origin[end:], "little")


async def linked(publisher: Spot, topic: str, *subscriptions: Subscription) -> int:
    """Publish until each subscription has heard it: nobody confirms a subscription at a PUB.

    All have then read all that was published; the number of the last one.
    """
    before = [one.received_count for one in subscriptions]

    def heard() -> bool:
        publisher.post(topic, b"probe")
        return all(one.received_count > was for one, was in zip(subscriptions, before, strict=True))

    await until(heard, f"all subscriptions hear {topic!r} from {publisher}")
    await publisher.publish(topic, b"go")
    sequence = 0
    for one in subscriptions:
        async with asyncio.timeout(WITHIN_S):
            while (message := await one.recv()).payload != b"go":
                pass
        sequence = message.sequence
    return sequence


class Flow:
    """One topic, from one publisher to one subscription: all that is published is received or missed."""

    def __init__(self, publisher: Spot, subscription: Subscription) -> None:
        self._publisher = publisher
        self._subscription = subscription
        self._first = self._last = self.published = 0
        self._received_before = 0

    async def begin(self) -> None:
        sequence = await linked(self._publisher, self._subscription.text, self._subscription)
        self._first = self._last = self.published = sequence
        self._received_before = self._subscription.received_count

    async def publish(self, count: int, size_bytes: int = 0) -> None:
        for _ in range(count):
            self.published += 1
            await self._publisher.publish(self._subscription.text, bytes(size_bytes))

    def post(self) -> bool:
        """One more, without waiting; True, for who asks for more at once."""
        self._publisher.post(self._subscription.text, b"")
        self.published += 1
        return True

    async def caught_up(self) -> None:
        """Until the last of all has come; whatever is lost is known then. Publishes when nothing comes."""

        def is_last() -> bool:
            before = self._last
            for sequence in drained(self._subscription):
                assert sequence > self._last
                self._last = sequence
            if self._last == self.published:
                return True
            if self._last == before:
                self.post()
            return False

        await until(is_last, "the last message of all has come")
        received_count = self._subscription.received_count - self._received_before
        assert received_count + self._subscription.missed_count == self.published - self._first


def drained(subscription: Subscription) -> list[int]:
    """The sequences of all that waits."""
    found = []
    while subscription.waiting_count:
        found.append(subscription.recv_nowait().sequence)
    return found
