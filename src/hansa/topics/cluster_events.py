"""Bridges that publish events on a topic, mainly those of a cluster's members, for nodes without a store.

`EventBridge` publishes events of any kind. `TopicBridge` publishes those of members, and `bridged_events`
reads them. A bridge may publish an event more than once: for nodes that subscribe late, and when it takes
over from another bridge. So every message carries the store's revision, and a reader drops what it has heard
(`Heard`). Each member has two tracks, what it says of itself and whether it is suspected, and in each track
the revisions grow. The end of a member's stay is reported once, even if a second end has another revision.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from hansa.coordination.member import (
    Expelled,
    LoopLagged,
    Member,
    MemberDown,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MembersEvent,
    MemberStatus,
    MemberSuspected,
    MemberUpdated,
    NodeInfo,
    Rejoined,
    from_json,
)
from hansa.coordination.members import Members
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    BadRecord,
    Fenced,
    NoOwner,
    StoreUnavailable,
    TimedOut,
    TopicExists,
)
from hansa.limits import (
    ARRIVALS_MAX,
    BRIDGE_COUNT_MAX,
    BRIDGE_LOOK_S,
    BRIDGE_RETRY_S,
    RECONNECT_JITTER,
)
from hansa.runtime.mailboxes import EventStream, Waiters
from hansa.runtime.tasks import Closing, TaskScope
from hansa.topics.events import TopicRemoved
from hansa.topics.node import SpotNode
from hansa.topics.spot import Spot, Subscription
from hansa.transport import Environment

_KINDS: Final[dict[str, type[MemberEvent]]] = {
    "member-joined": MemberJoined,
    "member-updated": MemberUpdated,
    "member-suspected": MemberSuspected,
    "member-refuted": MemberRefuted,
    "member-down": MemberDown,
    "member-left": MemberLeft,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}

logger = logging.getLogger(__name__)

E = TypeVar("E")

TOPIC: Final = "cluster:events"


class EventBridge(Generic[E]):
    """Publishes the events of the stream from `open_events` on a topic, for as long as the block.

    Any number of nodes may run a bridge: the owner of the topic publishes, the others stand by, and one of
    them takes over when the owner is gone. Each bridge holds the last events, and publishes them again when
    it becomes the owner and when a node is new among the subscribers; readers drop what they know. An event
    for which `encode` returns None is not published.
    """

    def __init__(
        self,
        node: SpotNode,
        topic: str,
        *,
        open_events: Callable[[], EventStream[E]],
        encode: Callable[[E], bytes | None],
        environment: Environment | None = None,
    ) -> None:
        self._node = node
        self._open_events = open_events
        self._encode = encode
        self._chance = (environment or Environment()).chance
        self.topic = topic
        self._spot: Spot | None = None
        self._held: deque[bytes] = deque(maxlen=BRIDGE_COUNT_MAX)
        self._removed = Waiters()
        self._taken = Waiters()
        self._tasks = TaskScope(f"bridge to {topic}", self._failed)
        self._closing = Closing()
        self.published_count = 0
        """Published messages, including repeated ones."""
        self.unpublished_count = 0
        """Messages that could not be published, because the topic was lost."""
        self.takeovers_count = 0
        """How often this bridge became the owner."""

    @property
    def is_owner(self) -> bool:
        """Whether this bridge publishes; otherwise it stands by."""
        return self._spot is not None and self.topic in self._spot.owned

    async def owning(self, timeout: float | None = None) -> None:
        """Wait until this bridge is the one that publishes. Raises `TimedOut`."""
        try:
            async with asyncio.timeout(timeout):
                while not self.is_owner:
                    await self._taken.wait()
        except TimeoutError:
            raise TimedOut(f"after {timeout} s another bridge still owns {self.topic}") from None

    async def __aenter__(self) -> Self:
        self._spot = self._node.spot(f"bridge to {self.topic}")
        # Before the first await, so that no event from now on is missed.
        events = self._open_events()
        self._tasks.spawn(self._bridge(events, self._spot), "events")
        self._tasks.spawn(self._own(self._spot), "owning")
        self._tasks.spawn(self._listen(), "listening")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop bridging, and give the topic up. Closing twice does no harm."""
        await self._closing.once(self._close)

    async def _close(self) -> None:
        try:
            await self._tasks.close()
        finally:
            if self._spot is not None:
                await self._spot.close()

    async def _bridge(self, events: EventStream[E], spot: Spot) -> None:
        async for event in events:
            message = self._encode(event)
            if message is None:
                continue
            self._held.append(message)
            if self.is_owner:
                await self._publish(spot, message)

    async def _own(self, spot: Spot) -> None:
        """Become the owner as soon as no other bridge is, and publish the held events for new subscribers."""
        while True:
            try:
                await spot.create_topic(self.topic)
            except (TopicExists, StoreUnavailable, TimedOut, Fenced):
                await self._wait_for_removal()
                continue
            self.takeovers_count += 1
            self._taken.wake_all()
            logger.info("events are published here, on %s", self.topic)
            # Subscribers on this node are there at once; others come when they have heard of the new owner.
            await self._tell_again(spot)
            known: frozenset[bytes] = frozenset()
            while self.is_owner:
                subscribers = frozenset(self._node.subscribers(self.topic))
                if subscribers - known:
                    await self._tell_again(spot)
                known = subscribers
                await asyncio.sleep(BRIDGE_LOOK_S)

    async def _wait_for_removal(self) -> None:
        delay_s = BRIDGE_RETRY_S * (1 + self._chance.uniform(-RECONNECT_JITTER, RECONNECT_JITTER))
        try:
            async with asyncio.timeout(delay_s):
                await self._removed.wait()
        except TimeoutError:
            return

    async def _listen(self) -> None:
        async for event in self._node.events():
            if isinstance(event, TopicRemoved) and event.topic == self.topic:
                self._removed.wake_all()

    async def _tell_again(self, spot: Spot) -> None:
        for message in tuple(self._held):
            await self._publish(spot, message)

    async def _publish(self, spot: Spot, message: bytes) -> None:
        try:
            # If this bridge has lost the topic meanwhile, the winner publishes it, which does no harm.
            await spot.publish(self.topic, message)
        except NoOwner:
            # Nobody owns the topic now. The next owner holds the message too.
            self.unpublished_count += 1
        else:
            self.published_count += 1

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, AlreadyClosed):
            logger.info("the bridge to %s ended: %s", self.topic, error)
        else:
            logger.error("the bridge to %s ended: %s", self.topic, error, exc_info=error)


class TopicBridge(EventBridge[MembersEvent]):
    """Publishes the events of members on a topic, for as long as the block: see `EventBridge`.

    `bridged_events` reads them.
    """

    def __init__(
        self,
        members: Members,
        node: SpotNode,
        topic: str = TOPIC,
        *,
        environment: Environment | None = None,
    ) -> None:
        super().__init__(
            node, topic, open_events=members.events, encode=_encode_shared, environment=environment
        )


def _encode_shared(event: MembersEvent) -> bytes | None:
    # Such an event concerns one process alone, which knows it.
    return None if isinstance(event, Rejoined | Expelled | LoopLagged) else encode_event(event)


async def bridged_events(spot: Spot, topic: str = TOPIC) -> BridgedEvents:
    """The events of a cluster from a topic, as values, on a node that needs no store.

    Earlier events come too, as far as the bridge holds them.
    """
    return BridgedEvents(await spot.subscribe(topic))


class BridgedEvents:
    """An async iterator of the events that a bridge publishes, each once. Made by `bridged_events`.

    It ends when its spot or subscription is closed. Cancelling a step loses no event.
    """

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._heard = Heard(members_count_max=ARRIVALS_MAX)
        self.repeated_count = 0
        """Messages with an event that was heard before."""
        self.bad_count = 0
        """Messages without a valid event."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MemberEvent:
        async for message in self.subscription:
            try:
                event = decode_event(message.payload)
            except BadRecord as error:
                self.bad_count += 1
                logger.warning("%s: %s", message.topic, error)
                continue
            if self._heard.is_news(event):
                return event
            self.repeated_count += 1
        raise StopAsyncIteration

    async def close(self) -> None:
        """Stop listening."""
        await self.subscription.close()


class Heard:
    """Which events of each member a reader has heard."""

    def __init__(self, *, members_count_max: int) -> None:
        self._members_count_max = members_count_max
        # By member: the last stay and revision of each track. The member that was heard of last comes last.
        self._places: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {}
        # By member: the last stay that ended.
        self._ended: dict[str, int] = {}

    def is_news(self, event: MemberEvent) -> bool:
        """Whether the event was not heard before; from now on it was."""
        name, incarnation = event.member.id, event.member.incarnation
        if self._ended.get(name, -1) >= incarnation:
            return False
        of_record, of_suspicion = self._places.pop(name, ((0, 0), (0, 0)))
        # The end of a stay and the next stay may have the same revision: one record overwrote the other.
        place = (incarnation, event.revision)
        is_suspicion = isinstance(event, MemberSuspected | MemberRefuted)
        is_news = place > (of_suspicion if is_suspicion else of_record)
        if is_news and is_suspicion:
            of_suspicion = place
        elif is_news:
            of_record = place
        self._places[name] = (of_record, of_suspicion)
        if is_news and isinstance(event, MemberDown | MemberLeft):
            self._ended[name] = incarnation
        if len(self._places) > self._members_count_max:
            oldest = next(iter(self._places))
            del self._places[oldest]
            self._ended.pop(oldest, None)
        return is_news


def encode_event(event: MemberEvent) -> bytes:
    """The event as JSON: kind, member, reason, revision."""
    found = {
        "kind": _NAMES[type(event)],
        "member": event.member.to_object() | {"said": event.member.info.status.value},
        "reason": event.reason,
        "revision": event.revision,
    }
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def decode_event(payload: bytes) -> MemberEvent:
    """Raises `BadRecord`. The member's lease is left out: the reader has no store."""
    found = from_json(payload, "a cluster event")
    kind, member = _KINDS.get(str(found.get("kind"))), found.get("member")
    reason, revision = found.get("reason"), found.get("revision")
    if kind is None or not isinstance(member, dict):
        raise BadRecord(f"no cluster event: {found!r:.200}")
    if not isinstance(reason, str) or not isinstance(revision, int):
        raise BadRecord(f"no cluster event: {found!r:.200}")
    return kind(member=_member(member), reason=reason, revision=revision)


def _member(found: dict[str, Any]) -> Member:
    incarnation, reason, since = (found.get(name) for name in ("incarnation", "reason", "since"))
    try:
        status = MemberStatus(str(found.get("status")))
        info = NodeInfo.from_object(found | {"status": found.get("said", MemberStatus.UP)})
    except (BadArgument, ValueError) as error:
        raise BadRecord(f"no member: {error!r:.200}") from error
    if not isinstance(incarnation, int) or not isinstance(reason, str) or not isinstance(since, int | float):
        raise BadRecord(f"no member: {found!r:.200}")
    return Member(info=info, status=status, incarnation=incarnation, reason=reason, since=float(since))
