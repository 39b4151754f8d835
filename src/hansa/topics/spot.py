"""Spots and their subscriptions: what a program publishes and reads with. They own no socket and no task."""

from __future__ import annotations

import asyncio
from _thread import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from hansa.errors import AlreadyClosed, BadArgument, NotOwner, TimedOut, TopicExists, UsageError, WouldBlock
from hansa.limits import HANDOVER_S, SUBSCRIPTION_BYTES_MAX, SUBSCRIPTION_COUNT_MAX, SURVEY_S
from hansa.runtime.mailboxes import EventFeed, EventStream, Waiters
from hansa.topics.claims import TopicClaims
from hansa.topics.effects import Tell
from hansa.topics.events import (
    MessagesDropped,
    SpotEvent,
    SubscriptionState,
    TopicDemoted,
    TopicLost,
    TopicMoved,
)
from hansa.topics.fanout import DUE, ELSEWHERE, REST, publish
from hansa.topics.inbox import Inbox, Reader, TopicMessage, WhenSlow
from hansa.topics.names import check_pattern, check_topic, is_pattern
from hansa.topics.wants import Want, WantState

if TYPE_CHECKING:
    from hansa.coordination.handover import Handover
    from hansa.topics.node import MeshDriver, SpotNode

NOBODY: Final = 0
"""No thread has this ident."""


class Spot:
    """A light handle that owns topics, publishes and subscribes. Hundreds share one node.

    Made by `node.spot()`, for the node's own thread; other threads use `node.threadsafe_spot()`. Messages are
    read from the spot, in the order in which they came, or from each subscription by itself. Closing it
    destroys its topics, ends its subscriptions and drops unread messages.
    """

    __slots__ = (
        "_exchange",
        "_feeds",
        "_mesh",
        "_owned",
        "_reader",
        "_subscriptions",
        "_user",
        "_waiters",
        "name",
        "node",
    )

    def __init__(self, node: SpotNode, mesh: MeshDriver, name: str) -> None:
        self.node = node
        self.name = name
        self._mesh = mesh
        self._exchange = mesh.exchange
        self._reader = Reader(self)
        self._user = get_ident()
        """The thread that may use it; NOBODY once it is closed."""
        self._owned: dict[str, None] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._feeds: dict[EventFeed[SpotEvent], None] | None = None
        self._waiters: Waiters | None = None

    # -- life

    async def __aenter__(self) -> Self:
        self._check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Destroy its topics and end its subscriptions; waits end with AlreadyClosed. Twice does no harm."""
        if not self.is_closed:
            self._check()
            self.end()

    @property
    def is_closed(self) -> bool:
        return self._user == NOBODY

    # -- topics

    async def create_topic(self, topic: str, *, retain: bool = False) -> None:
        """Own a topic from now on, and tell every node. With `retain` new subscribers get the latest message.

        It waits until the listed nodes have told their topics, two seconds at most for a node that does not
        answer. Raises TopicExists (EEXIST) when the topic has an owner; BadArgument; AlreadyClosed; on a node
        with a store also StoreUnavailable and TimedOut, and Fenced when its claim is lost meanwhile.
        """
        self._check()
        frame = check_topic(topic)
        await self._mesh.in_step()
        self._check()
        if self.node.claims is None:
            self._mesh.create(frame, self, retain=retain, claim=0)
        else:
            await self._create_claimed(self.node.claims, topic, frame, retain=retain)
        self._owned[topic] = None

    async def _create_claimed(self, claims: TopicClaims, topic: str, frame: bytes, *, retain: bool) -> None:
        claim = await claims.claim(topic)
        try:
            is_owned_unclaimed = await self._is_owned_unclaimed(frame)
            self._check()
            # The answers may have taken long: another node may rightfully own the topic by now.
            claim.check()
            if is_owned_unclaimed:
                raise TopicExists(f"topic {topic!r} is owned already, by a node that did not ask the store")
            if self.node.mover is None or claim.handover is None:
                self._mesh.create(frame, self, retain=retain, claim=claim.epoch)
            else:
                # The old and the new owner of a hand-over are both gone: the topic goes on where they were.
                await claim.finish_handover()
                self._check()
                self.node.mover.own(topic, self, claim, retain=retain)
            claims.keep(topic, claim)
        except BaseException:
            claims.give_up_later(topic, claim)
            raise

    async def destroy_topic(self, topic: str) -> None:
        """Stop owning it; its subscriptions wait for the next owner. Raises NotOwner, AlreadyClosed."""
        self._check()
        self._mesh.destroy(check_topic(topic), self)
        self._owned.pop(topic, None)
        if self.node.claims is not None:
            await self.node.claims.release(topic)

    async def hand_over(
        self, topic: str, to: str | bytes, *, timeout: float = HANDOVER_S, reason: str = ""
    ) -> Handover:
        """Give a topic to another node, while it is published to and read; returns the record.

        No program sees an error, misses a message, gets one twice or in another order; `publish` may wait a
        moment. At the other node the spot `node.heir` owns the topic. `to` is a routing id, or the node's
        name in the store. The node must be connected, have the same store, and take topics. Afterwards this
        spot publishes through it.

        Raises NoSuccessor and HandoverWithdrawn: then the topic stays. Raises NotOwner, UsageError without a
        store, BadArgument, Fenced when the claim is lost, Conflict while the topic is handed over already;
        TimedOut and StoreUnavailable. Cancelling it withdraws the hand-over; if the topic is closed already,
        the hand-over goes on to its end.
        """
        self._check()
        check_topic(topic)
        if self.node.mover is None:
            raise UsageError(f"{self} cannot hand over {topic!r}: its node needs a store and a ROUTER mesh")
        if topic not in self._owned:
            raise NotOwner(f"topic {topic!r} is not this spot's to hand over")
        return await self.node.mover.hand_over(topic, to, timeout=timeout, reason=reason)

    @property
    def owned(self) -> tuple[str, ...]:
        """Topics that this spot owns."""
        return tuple(self._owned)

    # -- publishing

    async def publish(self, topic: str, payload: bytes) -> None:
        """Give a message to all who are subscribed now, through the topic's owner if that is another node.

        It never waits for a subscriber, only for room on the way to a remote owner. Cancelling it publishes
        nothing. Raises NoOwner (ENOENT), BadArgument, AlreadyClosed.
        """
        # In place of `_check`: this is the hot path of topics (`make bench`, cases topic and local).
        if get_ident() != self._user:
            raise self._refusal()
        due = publish(self._exchange, topic, payload)
        if due:
            await self._act(due, topic, payload)

    async def _act(self, due: int, topic: str, payload: bytes) -> None:
        """Do what the fan-out asked for. If the loop must run first, nothing has been published yet."""
        while due == REST:
            for _ in range(self._exchange.take_rest()):
                await asyncio.sleep(0)
            self._check()
            due = publish(self._exchange, topic, payload)
        if due == DUE:
            self._mesh.flush()
        elif due == ELSEWHERE:
            await self._mesh.send(topic, payload)

    def post(self, topic: str, payload: bytes) -> None:
        """As `publish`, without waiting. Also raises Backlogged, with nothing published."""
        self._check()
        exchange = self._exchange
        outlet = exchange.outlets_by_name.get(topic)
        if outlet is None:
            self._mesh.post(topic, payload)
            return
        outlet.publish(payload, exchange)
        if exchange.is_due:
            self._mesh.flush()

    # -- subscribing

    async def subscribe(
        self,
        topic: str,
        *,
        count_max: int = SUBSCRIPTION_COUNT_MAX,
        bytes_max: int = SUBSCRIPTION_BYTES_MAX,
        when_slow: WhenSlow = WhenSlow.DROP_OLDEST,
    ) -> Subscription:
        """Receive a topic, or with a pattern such as `zone:12:*` all that begin so, now and later.

        It succeeds without an owner; `await subscription.active()` waits for one. At most `count_max`
        messages and `bytes_max` bytes wait to be read, and `when_slow` says what happens to the rest.
        Subscribing the same text again returns the same subscription. Raises BadArgument (EINVAL),
        AlreadyClosed.
        """
        self._check()
        if is_pattern(topic):
            return self._subscribe(topic, check_pattern(topic), True, count_max, bytes_max, when_slow)
        return self._subscribe(topic, check_topic(topic), False, count_max, bytes_max, when_slow)

    async def subscribe_pattern(
        self,
        pattern: str,
        *,
        count_max: int = SUBSCRIPTION_COUNT_MAX,
        bytes_max: int = SUBSCRIPTION_BYTES_MAX,
        when_slow: WhenSlow = WhenSlow.DROP_OLDEST,
    ) -> Subscription:
        """As `subscribe`, for patterns only: one `*`, at the end. Raises BadArgument (EINVAL)."""
        self._check()
        return self._subscribe(pattern, check_pattern(pattern), True, count_max, bytes_max, when_slow)

    async def unsubscribe(self, topic_or_pattern: str) -> None:
        """End a subscription; its unread messages are dropped. Raises BadArgument when there is none."""
        self._check()
        subscription = self._subscriptions.get(topic_or_pattern)
        if subscription is None:
            raise BadArgument(f"{self} has no subscription to {topic_or_pattern!r}")
        await subscription.close()

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        return tuple(self._subscriptions.values())

    def _subscribe(
        self, text: str, prefix: bytes, is_pattern: bool, count_max: int, bytes_max: int, when_slow: WhenSlow
    ) -> Subscription:
        if count_max < 1 or bytes_max < 1:
            raise BadArgument(f"count_max is {count_max} and bytes_max {bytes_max}; both must be positive")
        subscription = self._subscriptions.get(text)
        if subscription is not None:
            subscription.check_same(count_max, bytes_max, when_slow)
            return subscription
        inbox = Inbox(self._reader, count_max, bytes_max, when_slow)
        subscription = Subscription(self, text, prefix, is_pattern, inbox)
        self._mesh.subscribe(subscription)
        self._subscriptions[text] = subscription
        self._reader.add(inbox)
        return subscription

    # -- receiving

    async def recv(self) -> TopicMessage:
        """The next message of any subscription. Raises AlreadyClosed; cancelling it loses nothing."""
        message = self._reader.quick()
        while message is None:
            message = self._next()
            if message is None:
                await self.wait()
        return message

    def recv_nowait(self) -> TopicMessage:
        """The next message if one is there. Raises WouldBlock (EAGAIN), AlreadyClosed."""
        message = self._next()
        if message is None:
            raise WouldBlock(f"{self} has no message yet")
        return message

    async def recv_all(self) -> list[TopicMessage]:
        """All waiting messages, at least one. Raises AlreadyClosed; cancelling it loses nothing."""
        reader = self._reader
        while True:
            self._check()
            messages = reader.take_all()
            if messages:
                if reader.has_untold:
                    self._tell_dropped()
                return messages
            await self.wait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> TopicMessage:
        # In place of `recv`: the hot path of reading saves a call.
        message = self._reader.quick()
        if message is not None:
            return message
        try:
            return await self.recv()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    def events(self) -> EventStream[SpotEvent]:
        """What happens to this spot's topics and subscriptions from this call on, as an async iterator.

        It keeps a bounded number of events for a slow reader; then the oldest are dropped and counted.
        """
        self._check()
        feed = self.node.new_feed(f"the events of {self}")
        feeds = self._feeds
        if feeds is None:
            feeds = self._feeds = {}
        feeds[feed] = None
        return EventStream(feed, lambda: _forget(feeds, feed))

    def __repr__(self) -> str:
        return f"<Spot {self.name!r} of {self.node.name}>"

    # -- for the node and for subscriptions

    def end(self) -> None:
        """What `close` does; any thread may call it."""
        if self.is_closed:
            return
        self._user = NOBODY
        for topic in self._owned:
            self._mesh.destroy(check_topic(topic), self)
            if self.node.claims is not None:
                self.node.claims.release_later(topic)
        self._owned.clear()
        for subscription in list(self._subscriptions.values()):
            subscription.end()
        for feed in self._feeds or ():
            feed.close()
        self.node.forget(self)
        self.wake()

    def hear(self, event: SpotEvent) -> None:
        """Handle an event that concerns this spot."""
        if isinstance(event, TopicDemoted | TopicLost):
            self._owned.pop(event.topic, None)
        elif isinstance(event, TopicMoved):
            if event.target == self.node.routing_id:
                self._owned[event.topic] = None
            else:
                self._owned.pop(event.topic, None)
        for feed in list(self._feeds or ()):
            feed.put(event)

    def inherit(self, topic: str) -> None:
        """Own a topic that was handed over to the node, or that its former owner has left."""
        self._owned[topic] = None

    def wake(self) -> None:
        if self._waiters is not None:
            self._waiters.wake_all()

    async def wait(self) -> None:
        """Wait until something may have come. Raises AlreadyClosed."""
        self._check()
        if self._waiters is None:
            self._waiters = Waiters()
        self._reader.expect()
        await self._waiters.wait()

    def forget(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.text, None)
        self._reader.remove(subscription.inbox)

    def read_aside(self, count: int) -> None:
        """`count` messages were read from a subscription itself."""
        self._reader.passed_by(count)
        if self._reader.has_untold:
            self._tell_dropped()

    def check(self) -> None:
        """Raises AlreadyClosed, UsageError."""
        self._check()

    # -- small things

    async def _is_owned_unclaimed(self, topic: bytes) -> bool:
        """Whether another node, asked now, says that it owns a topic that is claimed for this node."""
        if self._mesh.owner(topic) is None:
            return False
        # A node that has lost its claim says no, or nothing at all.
        name = topic.decode()
        return any(report.topic == name for report in await self._mesh.survey(SURVEY_S))

    def _next(self) -> TopicMessage | None:
        self._check()
        message = self._reader.next()
        if self._reader.has_untold:
            self._tell_dropped()
        return message

    def _tell_dropped(self) -> None:
        self._reader.told()
        for subscription in self._subscriptions.values():
            count = subscription.inbox.take_untold()
            if count:
                self.node.tell(
                    Tell(event=MessagesDropped(subscription=subscription.text, count=count), to=self)
                )

    def _check(self) -> None:
        if get_ident() != self._user:
            raise self._refusal()

    def _refusal(self) -> UsageError:
        if self.is_closed:
            return AlreadyClosed(f"{self} is closed")
        return UsageError(
            f"{self} belongs to the thread of its node: other threads use node.threadsafe_spot()"
        )


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
        """ACTIVE when an owner has confirmed it; for a pattern: when it has topics and all are confirmed."""
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
        """Wait until it is active: messages published from then on arrive. Raises TimedOut, AlreadyClosed."""
        await self._until(SubscriptionState.ACTIVE, timeout)

    async def pending(self, timeout: float | None = None) -> None:
        """Wait until it is pending. Raises TimedOut, AlreadyClosed."""
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
        """Messages that came, except those that were dropped at once because the inbox was full."""
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
        """All waiting messages, at least one. Raises AlreadyClosed; cancelling it loses nothing."""
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

    def hear(self, event: SpotEvent) -> None:
        """Handle an event that concerns this subscription; its state may have changed."""
        self.spot.hear(event)
        self.wake()

    def wake(self) -> None:
        if self._waiters is not None:
            self._waiters.wake_all()

    def check_same(self, count_max: int, bytes_max: int, when_slow: WhenSlow) -> None:
        """Raises BadArgument when it was made with other bounds, or another policy."""
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


def _forget(feeds: dict[EventFeed[SpotEvent], None], feed: EventFeed[SpotEvent]) -> None:
    feeds.pop(feed, None)
