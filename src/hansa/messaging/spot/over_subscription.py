"""Subscriptions: a topic or a pattern that a spot receives, its state, and what waits to be read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from hansa.errors import AlreadyClosed, BadArgument, TimedOut, WouldBlock
from hansa.messaging.spot.events import SubscriptionState
from hansa.messaging.spot.inbox import Inbox, TopicMessage, WhenSlow
from hansa.messaging.spot.want import Want, WantState
from hansa.transport.over_waiters import Waiters

if TYPE_CHECKING:
    from hansa.messaging.spot.over_spot import Spot


class Subscription:
    """A topic or a pattern that a spot receives. Made by `spot.subscribe`."""

    __slots__ = ("_is_closed", "_waiters", "inbox", "is_pattern", "matched", "prefix", "spot", "text")

    def __init__(self, spot: Spot, text: str, prefix: bytes, is_pattern: bool, inbox: Inbox) -> None:
        self.spot = spot
        self.text = text
        self.prefix = prefix
        self.is_pattern = is_pattern
        self.inbox = inbox
        self.matched: dict[bytes, Want] = {}
        self._waiters: Waiters | None = None
        self._is_closed = False

    # -- state

    @property
    def state(self) -> SubscriptionState:
        """ACTIVE when an owner has confirmed it; a pattern when it has topics and all are confirmed."""
        if self._is_closed:
            return SubscriptionState.PENDING
        states = {want.state for want in self.matched.values()}
        is_active = WantState.ACTIVE in states and WantState.ASKED not in states
        if is_active or not self.spot.node.has_owners:
            return SubscriptionState.ACTIVE
        return SubscriptionState.PENDING

    @property
    def topics(self) -> dict[str, SubscriptionState]:
        """The topics that it receives, or waits for, and the state of each."""
        return {
            want.feed.topic: (
                SubscriptionState.ACTIVE if want.state is WantState.ACTIVE else SubscriptionState.PENDING
            )
            for want in self.matched.values()
        }

    async def active(self, timeout: float | None = None) -> None:
        """Return when it is active: what is published then arrives. Raises TimedOut, AlreadyClosed."""
        await self._until(SubscriptionState.ACTIVE, timeout)

    async def pending(self, timeout: float | None = None) -> None:
        """Return when it is pending. Raises TimedOut, AlreadyClosed."""
        await self._until(SubscriptionState.PENDING, timeout)

    async def _until(self, state: SubscriptionState, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                while self.state is not state or self._is_closed:
                    self._check()
                    if self._waiters is None:
                        self._waiters = Waiters()
                    await self._waiters.wait()
        except TimeoutError:
            owners = "nobody owns it" if not self.matched else f"its topics: {self.topics}"
            raise TimedOut(f"{self} is not {state} after {timeout} s: {owners}") from None

    # -- counts

    @property
    def waiting_count(self) -> int:
        """Messages that wait to be read."""
        return self.inbox.held_count

    @property
    def received_count(self) -> int:
        """Messages that came, without those that found the inbox full and were dropped themselves."""
        return self.inbox.accepted_count

    @property
    def dropped_count(self) -> int:
        """Messages dropped because the inbox was full."""
        return self.inbox.dropped_count

    @property
    def missed_count(self) -> int:
        """Messages lost on their way from the owner's node to this one."""
        return self.inbox.missed_count

    # -- receiving

    async def recv(self) -> TopicMessage:
        """The next message of this subscription. Raises AlreadyClosed; cancelling it loses nothing."""
        while True:
            message = self._next()
            if message is not None:
                return message
            await self.spot.wait()

    def recv_nowait(self) -> TopicMessage:
        """The next message if one is there. Raises WouldBlock (EAGAIN), AlreadyClosed."""
        message = self._next()
        if message is None:
            raise WouldBlock(f"{self} has no message yet")
        return message

    async def recv_all(self) -> list[TopicMessage]:
        """All messages that wait, at least one. Raises AlreadyClosed; cancelling it loses nothing."""
        while True:
            self._check()
            messages = self.inbox.take_all()
            if messages:
                self.spot.read_aside(len(messages))
                return messages
            await self.spot.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TopicMessage:
        try:
            return await self.recv()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        """The same as `spot.unsubscribe`. Closing twice does no harm."""
        self.spot.check()
        self.end()

    def __repr__(self) -> str:
        return f"<Subscription {self.text!r} of {self.spot}>"

    # -- for the spot and the node

    def end(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.spot.node.mesh.unsubscribe(self)
        self.spot.forget(self)
        self.wake()
        self.spot.wake()

    def wake(self) -> None:
        """Its state may have changed."""
        if self._waiters is not None:
            self._waiters.wake_all()

    def check_same(self, count_max: int, bytes_max: int, when_slow: WhenSlow) -> None:
        """Raises BadArgument when it was made with other bounds."""
        inbox = self.inbox
        if (inbox.count_max, inbox.bytes_max, inbox.when_slow) != (count_max, bytes_max, when_slow):
            raise BadArgument(
                f"{self} exists with count_max={inbox.count_max}, bytes_max={inbox.bytes_max}, "
                f"when_slow={inbox.when_slow}: unsubscribe it first to change that"
            )

    def _next(self) -> TopicMessage | None:
        self._check()
        message = self.inbox.next()
        if message is not None:
            self.spot.read_aside(1)
        return message

    def _check(self) -> None:
        self.spot.check()
        if self._is_closed:
            raise AlreadyClosed(f"{self} was unsubscribed")
