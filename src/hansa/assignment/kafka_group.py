"""A member of a Kafka consumer group: what `KafkaMode` needs of it, and confluent-kafka's client as one.

`ConfluentMember` must: take part by the group's protocol, cooperatively in both protocols; tell `Rebalanced`
what is assigned, revoked and lost, before anything else goes on, and have the client give up what is revoked
or lost only when that returns; receive nothing of a partition between its assignment and its first `seek`;
and translate the errors.

The client carries out one call at a time: while it waits for messages, it answers no other call. So one task
makes all calls; the client only lets the calls within `Rebalanced` in between. Questions to the broker go
through a client of their own.

The generation. Python's client tells it only within the bytes that it makes for transactional producers
(generation, group, member, in that order), so those are read here. In a group of the new protocol (KIP-848)
it is the member's epoch. Both grow whenever the broker has given a partition to another member.

The lookout. In the protocol of KIP-848 the broker tells an assignment once, in its answer to a heartbeat. The
client (librdkafka 2.16.0) drops an answer that is later than the heartbeat's interval, and does not ask
again: the group would stand still for `max.poll.interval.ms`, and newly assigned partitions for ever. In the
classic protocol a member is told until it has answered, and can miss nothing. `KafkaLookout` must: after an
answer that came too late, ask the broker what it has assigned, until that is what the member has heard, with
growing pauses; see that all members of a large group together do not ask too often; ask nothing while no
answer was late; and report a missed assignment when `KafkaShare` is sure. The member then leaves the group,
and another one joins in its place.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from hansa.assignment.kafka_share import KafkaPart, KafkaShare, Membership, names_of
from hansa.chance import Chance
from hansa.errors import BadArgument, GroupRefused, HansaError, KafkaUnavailable, MemberFenced, UsageError
from hansa.limits import (
    KAFKA_BATCH_COUNT_MAX,
    KAFKA_LOOK_S_MAX,
    KAFKA_LOOK_S_MIN,
    KAFKA_LOOKS_PER_S,
    KAFKA_QUESTION_S,
    KAFKA_STATISTICS_S,
    RECONNECT_JITTER,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import TaskScope

if TYPE_CHECKING:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient

logger = logging.getLogger(__name__)

T = TypeVar("T")

Protocols: TypeAlias = Literal["consumer", "classic"]

_MAGIC: Final = b"CGMDv2:"
# Settings that the mode makes itself.
_RESERVED: Final = frozenset(
    {"group.id", "group.instance.id", "group.protocol", "partition.assignment.strategy"}
    | {"enable.auto.commit", "enable.auto.offset.store", "bootstrap.servers", "on_commit", "error_cb"}
)
_RESET: Final = "auto.offset.reset"
_RESETS: Final = {"earliest": "earliest", "smallest": "earliest", "beginning": "earliest"} | {
    "latest": "latest",
    "largest": "latest",
    "end": "latest",
}
# Critical only: the client writes a line at each try to reach a broker that is away; errors come anyway.
_LOG_LEVEL: Final = 2
_POLL_INTERVAL: Final = "max.poll.interval.ms"

logger = logging.getLogger(__name__)


class KafkaMessage(Protocol):
    """What `KafkaMode` asks of a message: the client's own messages have it."""

    def topic(self) -> str | None: ...

    def partition(self) -> int | None: ...

    def offset(self) -> int | None: ...


class GroupView(NamedTuple):
    """What the broker says of a group: how many members it has, and what one of them is assigned.

    `parts` is None if the broker does not know that member.
    """

    members_count: int
    parts: frozenset[KafkaPart] | None


class Rebalanced(Protocol):
    """The listener that is told what the broker does. The group waits until each of these returns."""

    async def assigned(self, parts: Sequence[KafkaPart], membership: Membership) -> None:
        """This member gets these; nothing of them is received before `seek` and `resume`."""

    async def revoked(self, parts: Sequence[KafkaPart]) -> None:
        """Another member gets these when this returns."""

    async def lost(self, parts: Sequence[KafkaPart]) -> None:
        """Another member may have these already."""

    def failed(self, error: HansaError, part: KafkaPart | None = None) -> None:
        """An error of this partition, or of all. The client goes on, except after `MemberFenced` and
        `GroupRefused`."""


class GroupMember(Protocol):
    """A member of a group. One task makes all calls except the questions."""

    @property
    def late_count(self) -> int:
        """How many answers of the group's coordinator came too late, as far as is known. They are lost."""

    async def join(self, topics: Sequence[str], heard: Rebalanced) -> None: ...

    async def receive(self, timeout: float) -> Sequence[KafkaMessage]:
        """Messages of flowing partitions, each in order; none when the time is over. Serves `Rebalanced`."""

    async def seek(self, part: KafkaPart, offset: int) -> None: ...

    async def pause(self, parts: Collection[KafkaPart]) -> None: ...

    async def resume(self, part: KafkaPart, offset: int) -> None:
        """Let the partition flow again, from this offset on, at which it stands."""

    async def commit(self, offsets: Mapping[KafkaPart, int]) -> None:
        """Show in Kafka that these are read up to there. Does not wait for the answer."""

    async def membership(self) -> Membership:
        """The member as which it takes part now; until the broker has answered, in generation 0 or below."""

    async def close(self) -> None:
        """Leave; what it has is revoked first. If cancelled, leaving goes on: call it again to wait."""

    # -- questions

    async def start_of(self, part: KafkaPart) -> int:
        """Where to begin without a handoff: at the committed offset, else as `auto.offset.reset` says."""

    async def range_of(self, part: KafkaPart) -> tuple[int, int]:
        """The first offset that is there, and the one after the last."""

    async def view(self, member: str) -> GroupView:
        """What the broker says of the group, as far as it concerns this member."""

    async def retention_s(self, topics: Sequence[str]) -> float | None:
        """The longest time for which the broker keeps messages of these topics; None: for ever."""


class PartitionFlow:
    """The messages of one partition on their way to its work: from an offset on, in order, until `stop`.

    An async iterator with a bound: when it is full, the partition is paused; at half of that it goes on. No
    message is dropped because the flow is full. Cancelling a step loses nothing.
    """

    def __init__(self, next_offset: int, *, count_max: int) -> None:
        self.next_offset = next_offset
        """Messages with a lower offset are not taken."""
        self._count_max = count_max
        self._waiting: deque[KafkaMessage] = deque()
        self._getters = Waiters()
        self._is_full = False
        self.is_stopped = False
        self.filled_count = 0
        """How often it was full."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_flowing(self) -> bool:
        """Whether more may come: not from when it is full until half of it was read."""
        if self._is_full and len(self._waiting) <= self._count_max // 2:
            self._is_full = False
        return not self.is_stopped and not self._is_full

    def put(self, message: KafkaMessage) -> bool:
        """Take a message, unless its place in the order is past, or the flow has stopped; returns whether.

        It takes messages also when it is full: they were on their way.
        """
        offset = message.offset()
        if self.is_stopped or offset is None or offset < self.next_offset:
            return False
        self.next_offset = offset + 1
        self._waiting.append(message)
        if len(self._waiting) >= self._count_max and not self._is_full:
            self._is_full = True
            self.filled_count += 1
        self._getters.wake(1)
        return True

    def stop(self) -> None:
        """End the flow: messages that wait in it are given to no work here."""
        self.is_stopped = True
        self._waiting.clear()
        self._getters.wake_all()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> KafkaMessage:
        while not self._waiting:
            if self.is_stopped:
                raise StopAsyncIteration
            await self._getters.wait()
        return self._waiting.popleft()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """How to take part in a group. `settings` are librdkafka's. Raises `BadArgument`."""

    servers: str
    group: str
    protocol: Protocols = "consumer"
    member_id: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.protocol not in ("consumer", "classic"):
            raise BadArgument(f'protocol {self.protocol!r}: give "consumer" or "classic"')
        if taken := sorted(_RESERVED & self.settings.keys()):
            raise BadArgument(f"settings {', '.join(taken)}: Kafka mode has its own values for them")
        if self.settings.get(_RESET, "earliest") not in _RESETS:
            raise BadArgument(f"{_RESET} {self.settings[_RESET]!r}: give earliest or latest")

    @property
    def begins_at_end(self) -> bool:
        """Whether a partition begins after all its messages if nothing says where."""
        return _RESETS[self.settings.get(_RESET, "earliest")] == "latest"

    @property
    def poll_interval_s(self) -> float:
        """How long the broker waits for a member in a rebalance."""
        return float(self.settings.get(_POLL_INTERVAL, 300_000)) / 1000.0

    def of_client(self) -> dict[str, Any]:
        """The settings for questions: how to find the brokers, and the proof of who asks."""
        prefixes = ("sasl.", "ssl.", "security.", "client.", "socket.", "broker.", "enable.ssl")
        given = {name: value for name, value in self.settings.items() if name.startswith(prefixes)}
        return {"log_level": _LOG_LEVEL, **given, "bootstrap.servers": self.servers, "logger": logger}

    def of_consumer(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "log_level": _LOG_LEVEL,
            **self.settings,
            "bootstrap.servers": self.servers,
            "group.id": self.group,
            "group.protocol": self.protocol,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            # `start_of` looks up where a partition begins. This is for offsets that are no longer there: with
            # `error` the client reads nothing more of the partition, and takes no seek.
            _RESET: "earliest",
            "logger": logger,
        }
        if self.protocol == "classic":
            made["partition.assignment.strategy"] = "cooperative-sticky"
        if self.member_id is not None:
            made["group.instance.id"] = self.member_id
        return made


def read_membership(written: bytes) -> Membership:
    """Read the client's bytes about a membership. Raises `UsageError` for those of another version."""
    generation, rest = written[len(_MAGIC) : len(_MAGIC) + 4], written[len(_MAGIC) + 4 :]
    names = rest.split(b"\0")
    if not written.startswith(_MAGIC) or len(names) < 3:
        raise UsageError(
            f"this confluent-kafka tells a member's generation in another way, {written[:40]!r}:"
            " install the version that hansa[kafka] names"
        )
    return Membership(names[1].decode(), int.from_bytes(generation, sys.byteorder, signed=True))


def as_error(error: confluent_kafka.KafkaError, what: str) -> HansaError:
    """The client's error as one of hansa's."""
    from confluent_kafka import KafkaError

    def is_one_of(*codes: int) -> bool:
        # A fatal error comes under a code of its own, with the text of the error that it stands for.
        is_fatal = error.code() == KafkaError._FATAL
        return error.code() in codes or (
            is_fatal and any(KafkaError(code).str() in error.str() for code in codes)
        )

    text = f"{what}: {error.str()} ({error.name()})"
    if is_one_of(KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID, KafkaError._FENCED):
        return MemberFenced(text)
    refusals = (
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INCONSISTENT_GROUP_PROTOCOL,
        KafkaError.UNSUPPORTED_ASSIGNOR,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._FATAL,
    )
    if error.fatal() or is_one_of(*refusals):
        return GroupRefused(text)
    return KafkaUnavailable(text)


class ConfluentMember:
    """confluent-kafka's asyncio consumer as a `GroupMember`. Make it on the event loop.

    Raises `UsageError` if the package is missing, `BadArgument` for settings that librdkafka refuses.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        import_client()
        self._settings = settings
        self._consumer: Any = None
        self._admin: AdminClient | None = None
        self._heard: Rebalanced | None = None
        self._topics: Sequence[str] = ()
        self._late_count = 0
        self._has_more = False
        # The caller of `close` is told how closing ended.
        self._tasks = TaskScope(self._title, lambda error: None)
        self._closing: asyncio.Task[None] | None = None

    # -- the group

    @property
    def late_count(self) -> int:
        return self._late_count

    async def join(self, topics: Sequence[str], heard: Rebalanced) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.aio import AIOConsumer

        self._heard, self._topics = heard, tuple(topics)
        made = {**self._settings.of_consumer(), "error_cb": self._on_error}
        made.setdefault("statistics.interval.ms", int(1000 * KAFKA_STATISTICS_S))
        made["stats_cb"] = partial(self._on_statistics, made.get("stats_cb"))
        try:
            # One thread for each call that may be under way: a `receive` whose caller was cancelled and whose
            # callback goes on; the call within that callback; and `close`, which waits for both.
            self._consumer = AIOConsumer(made, max_workers=3)
        except KafkaException as error:
            raise BadArgument(f"librdkafka refuses these settings: {error.args[0].str()}") from error
        await self._call(
            self._consumer.subscribe,
            list(topics),
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    async def receive(self, timeout: float) -> Sequence[KafkaMessage]:
        # A request for many messages waits until there are that many, or for all of the time.
        found: list[confluent_kafka.Message] = []
        if not self._has_more:
            first = await self._call(self._consumer.poll, timeout)
            if first is None:
                return []
            found.append(first)
        found += await self._call(self._consumer.consume, KAFKA_BATCH_COUNT_MAX - 1, 0)
        self._has_more = len(found) > 1
        return [message for message in found if message.error() is None or self._hear(message)]

    async def seek(self, part: KafkaPart, offset: int) -> None:
        await self._call(self._consumer.seek, self._spot(part, offset))

    async def pause(self, parts: Collection[KafkaPart]) -> None:
        await self._call(self._consumer.pause, [self._spot(part) for part in parts])

    async def resume(self, part: KafkaPart, offset: int) -> None:
        await self._call(self._consumer.resume, [self._spot(part)])
        # While all is paused, the client's fetching thread sleeps for up to a second. `resume` does not wake
        # it, a seek does (`make bench`, kind "takeover").
        await self.seek(part, offset)

    async def commit(self, offsets: Mapping[KafkaPart, int]) -> None:
        spots = [self._spot(part, offset) for part, offset in offsets.items()]
        await self._call(self._consumer.commit, offsets=spots, asynchronous=True)

    async def membership(self) -> Membership:
        return read_membership(await self._call(self._consumer.consumer_group_metadata))

    async def close(self) -> None:
        # Closing cannot be taken back, and must end: the client's thread waits for what this loop answers.
        if self._closing is None:
            self._closing = self._tasks.spawn(self._close(), "closes")
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        # Ending a client waits for its threads.
        asking, self._admin = [self._admin], None
        await asyncio.to_thread(asking.clear)
        if self._consumer is not None:
            await self._call(self._consumer.close)

    async def _on_assign(self, _consumer: object, spots: Sequence[confluent_kafka.TopicPartition]) -> None:
        parts = [KafkaPart(spot.topic, spot.partition) for spot in spots]
        membership = await self.membership()
        # Not at an offset that the client looks up: its answer may come after the seek, and win (librdkafka
        # issue 2256). If 0 is gone, the answer is the first offset that is there: nothing is left out.
        await self._call(self._consumer.incremental_assign, [self._spot(part, 0) for part in parts])
        if parts:
            await self.pause(parts)
        await self._listener.assigned(parts, membership)

    async def _on_revoke(self, _consumer: object, spots: Sequence[confluent_kafka.TopicPartition]) -> None:
        await self._listener.revoked([KafkaPart(spot.topic, spot.partition) for spot in spots])
        await self._unassign(spots)

    async def _on_lost(self, _consumer: object, spots: Sequence[confluent_kafka.TopicPartition]) -> None:
        await self._listener.lost([KafkaPart(spot.topic, spot.partition) for spot in spots])
        await self._unassign(spots)

    async def _unassign(self, spots: Sequence[confluent_kafka.TopicPartition]) -> None:
        try:
            await self._call(self._consumer.incremental_unassign, list(spots))
        except HansaError as error:
            # The partitions were lost meanwhile, which has unassigned all.
            self._listener.failed(error)

    async def _on_error(self, error: confluent_kafka.KafkaError) -> None:
        self._listener.failed(as_error(error, self._title))

    async def _on_statistics(self, given: Callable[[str], Awaitable[None]] | None, text: str) -> None:
        coordinator = json.loads(text).get("brokers", {}).get("GroupCoordinator", {})
        self._late_count = int(coordinator.get("req_timeouts", 0))
        if given is not None:
            await given(text)

    def _hear(self, message: confluent_kafka.Message) -> bool:
        """Whether it is a message. An error that came in a message's place is reported to the listener."""
        error, topic, number = message.error(), message.topic(), message.partition()
        if error is None:
            return True
        part = None if topic is None or number is None or number < 0 else KafkaPart(topic, number)
        self._listener.failed(as_error(error, self._title), part)
        return False

    # -- questions

    async def start_of(self, part: KafkaPart) -> int:
        from confluent_kafka import ConsumerGroupTopicPartitions

        group, spot = self._settings.group, self._spot(part)
        asked = ConsumerGroupTopicPartitions(group, [spot])
        admin = await self._asking_coordinator(part.topic)
        futures = await self._ask(lambda: admin.list_consumer_group_offsets([asked], **_PATIENCE))
        (found,) = (await self._answer(futures[group])).topic_partitions
        if found.error is None and found.offset >= 0:
            return int(found.offset)
        first, behind_last = await self.range_of(part)
        return behind_last if self._settings.begins_at_end else first

    async def range_of(self, part: KafkaPart) -> tuple[int, int]:
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # No re-export.

        admin = self._asking()

        async def offset(spec: Any) -> int:
            futures = await self._ask(lambda: admin.list_offsets({self._spot(part): spec}, **_PATIENCE))
            (future,) = futures.values()
            return int((await self._answer(future)).offset)

        specs: Any = OffsetSpec
        first, behind_last = await asyncio.gather(offset(specs.earliest()), offset(specs.latest()))
        return first, behind_last

    async def view(self, member: str) -> GroupView:
        group, admin = self._settings.group, await self._asking_coordinator(self._topics[0])
        futures = await self._ask(lambda: admin.describe_consumer_groups([group], **_PATIENCE))
        members = (await self._answer(futures[group])).members
        for each in members:
            if each.member_id == member:
                spots = [] if each.assignment is None else each.assignment.topic_partitions
                return GroupView(len(members), frozenset(KafkaPart(it.topic, it.partition) for it in spots))
        return GroupView(len(members), None)

    async def retention_s(self, topics: Sequence[str]) -> float | None:
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # As above.

        admin = self._asking()
        asked = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        futures = await self._ask(lambda: admin.describe_configs(asked, **_PATIENCE))
        longest_s = 0.0
        for future in futures.values():
            entries = await self._answer(future)
            kept_ms = int(entries["retention.ms"].value)
            if kept_ms < 0 or "delete" not in entries["cleanup.policy"].value:
                return None
            longest_s = max(longest_s, kept_ms / 1000.0)
        return longest_s

    # -- small things

    @property
    def _title(self) -> str:
        return f"the member of group {self._settings.group!r} at {self._settings.servers}"

    @property
    def _listener(self) -> Rebalanced:
        if self._heard is None:
            raise UsageError(f"{self._title} has not joined")
        return self._heard

    async def _asking_coordinator(self, topic: str) -> AdminClient:
        """The client for questions to the group's coordinator, once the brokers have shown a sign of life.

        The client aborts the process when a connection drops at the moment in which it sends such a question
        (librdkafka issues 3663 and 4605). A question that waits for an absent broker meets that moment often.
        """
        from confluent_kafka import KafkaException

        admin = self._asking()
        try:
            await asyncio.to_thread(admin.list_topics, topic, timeout=KAFKA_QUESTION_S)
        except KafkaException as error:
            raise as_error(error.args[0], self._title) from error
        return admin

    def _asking(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        if self._closing is not None:
            raise KafkaUnavailable(f"{self._title} is closed")
        if self._admin is None:
            self._admin = AdminClient(self._settings.of_client())
        return self._admin

    @staticmethod
    def _spot(part: KafkaPart, offset: int | None = None) -> confluent_kafka.TopicPartition:
        from confluent_kafka import TopicPartition

        if offset is None:
            return TopicPartition(part.topic, part.number)
        return TopicPartition(part.topic, part.number, offset)

    async def _call(self, call: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return await call(*args, **kwargs)
        except KafkaException as error:
            raise as_error(error.args[0], self._title) from error

    async def _ask(self, ask: Callable[[], dict[Any, Future[Any]]]) -> dict[Any, Future[Any]]:
        from confluent_kafka import KafkaException

        try:
            # Making the request may wait for the client's own locks.
            return await asyncio.to_thread(ask)
        except KafkaException as error:
            raise as_error(error.args[0], self._title) from error

    async def _answer(self, future: Future[T]) -> T:
        from confluent_kafka import KafkaException

        try:
            async with asyncio.timeout(2 * KAFKA_QUESTION_S):
                return await asyncio.wrap_future(future)
        except KafkaException as error:
            raise as_error(error.args[0], self._title) from error
        except TimeoutError:
            raise KafkaUnavailable(f"{self._title}: no answer within {2 * KAFKA_QUESTION_S:g} s") from None


_PATIENCE: Final[dict[str, Any]] = {"request_timeout": KAFKA_QUESTION_S}

OpenMember: TypeAlias = Callable[[KafkaSettings], GroupMember]


def import_client() -> None:
    """Raises `UsageError` if confluent-kafka is missing."""
    try:
        import confluent_kafka.aio  # noqa: F401
    except ImportError as error:
        raise UsageError(f"Kafka mode needs confluent-kafka: pip install hansa[kafka] ({error})") from error


class KafkaLookout:
    """Watches one member after the other. `due_s` is when to call `look` next, one call at a time."""

    def __init__(self, share: KafkaShare, *, name: str, chance: Chance) -> None:
        self._share = share
        self._name = name
        self._pauses = Backoff(
            s_min=KAFKA_LOOK_S_MIN, s_max=KAFKA_LOOK_S_MAX, jitter=RECONNECT_JITTER, chance=chance
        )
        # The number of late answers that have done no harm.
        self._settled_count = 0
        self.due_s = inf
        self.has_missed = False
        """Whether the member has missed something, for good."""

    def begin(self, *, now: float) -> None:
        """A new member joins."""
        self.has_missed = False
        self._settled_count = 0
        self.due_s = now + self._pauses.next_s()

    async def look(self, member: GroupMember, mine: Membership) -> float:
        """Compare what the broker has assigned with what the member has heard; returns the next pause."""
        late_count = member.late_count
        if late_count == self._settled_count:
            self._pauses.reset()
            return self._pauses.next_s()
        members_count = 0
        try:
            view = await member.view(mine.member)
        except (KafkaUnavailable, GroupRefused) as error:
            logger.debug("%s cannot see what the broker has assigned to it: %s", self._name, error)
        else:
            members_count = view.members_count
            # A member that the broker does not know is about to hear of that.
            if view.parts is not None and mine.generation > 0 and self._agrees(view.parts):
                self._settled_count = late_count
        return max(self._pauses.next_s(), members_count / KAFKA_LOOKS_PER_S)

    def _agrees(self, named: frozenset[KafkaPart]) -> bool:
        here = {tenure.part for tenure in self._share.tenures}
        self.has_missed = self._share.has_missed(named)
        if self.has_missed:
            logger.warning(
                "%s has missed what it was assigned: the broker names %s, and has told of %s",
                self._name,
                names_of(named),
                names_of(here),
            )
        return here == named
