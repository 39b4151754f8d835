"""A member of a Kafka consumer group: what `KafkaMode` needs of it, and confluent-kafka's client as one.

`ConfluentMember` must: take part by the group's protocol, cooperative in either; tell `Rebalanced` of what is
assigned, revoked and lost, before anything else goes on, and have the client take it over when that returns;
have nothing received of a partition between its assignment and its first `seek`; and translate the errors.

The client's calls go one after the other: while it waits for messages no other call of it is answered. So one
task makes all of them, and the calls within `Rebalanced` are those that the client lets in between. Questions
to the broker go through a client of their own.

The generation. Python's client gives it only within the bytes that it has for transactional producers (group,
member, generation, in that order); those are read here. In a group of the new protocol (KIP-848) it is the
member's epoch. Both grow whenever the broker has given a partition to somebody else.
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
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from hansa.assignment.kafka_share import KafkaPart, Membership
from hansa.errors import BadArgument, GroupRefused, HansaError, KafkaUnavailable, MemberFenced, UsageError
from hansa.limits import KAFKA_BATCH_COUNT_MAX, KAFKA_QUESTION_S, KAFKA_STATISTICS_S
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import TaskScope

if TYPE_CHECKING:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient

logger = logging.getLogger(__name__)

T = TypeVar("T")

Protocols: TypeAlias = Literal["consumer", "classic"]

_MAGIC: Final = b"CGMDv2:"
# What makes the mode what it is.
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
# Critical. It writes a line at each try to reach a broker that is away; errors come by another way, too.
_LOG_LEVEL: Final = 2
_POLL_INTERVAL: Final = "max.poll.interval.ms"


class KafkaMessage(Protocol):
    """What `KafkaMode` asks of a message, which is the client's own."""

    def topic(self) -> str | None: ...

    def partition(self) -> int | None: ...

    def offset(self) -> int | None: ...


class GroupView(NamedTuple):
    """What the broker says of a group: how many members, and what it has assigned to the one asked for.

    `parts` is None for a member that it does not know.
    """

    members_count: int
    parts: frozenset[KafkaPart] | None


class Rebalanced(Protocol):
    """Who is told what the broker does. The group waits until each of these returns."""

    async def assigned(self, parts: Sequence[KafkaPart], membership: Membership) -> None:
        """These are this member's; nothing of them is received before `seek` and `resume`."""

    async def revoked(self, parts: Sequence[KafkaPart]) -> None:
        """These go to somebody else, when this returns."""

    async def lost(self, parts: Sequence[KafkaPart]) -> None:
        """These may be somebody else's already."""

    def failed(self, error: HansaError, part: KafkaPart | None = None) -> None:
        """Something went wrong, with this partition or with all. The client goes on, but after `MemberFenced`
        and `GroupRefused`."""


class GroupMember(Protocol):
    """A member of a group. One task makes all calls but the questions."""

    @property
    def late_count(self) -> int:
        """Answers of the group's coordinator that came too late, as far as is known. They are lost."""

    async def join(self, topics: Sequence[str], heard: Rebalanced) -> None: ...

    async def receive(self, timeout: float) -> Sequence[KafkaMessage]:
        """Messages of the partitions that flow, each in order; none after this time. Serves `Rebalanced`."""

    async def seek(self, part: KafkaPart, offset: int) -> None: ...

    async def pause(self, parts: Collection[KafkaPart]) -> None: ...

    async def resume(self, part: KafkaPart, offset: int) -> None:
        """Let it flow again, from this offset on, which is where it stands."""

    async def commit(self, offsets: Mapping[KafkaPart, int]) -> None:
        """Have Kafka show these as read up to there. Nobody waits for the answer."""

    async def membership(self) -> Membership:
        """As which member it takes part now; before the broker has answered in no generation, 0 or below."""

    async def close(self) -> None:
        """Leave: what it has is revoked first. Cancelled, that goes on: call it again to wait for its end."""

    # -- questions

    async def start_of(self, part: KafkaPart) -> int:
        """Where to begin without a handoff: as committed, else as `auto.offset.reset` says."""

    async def range_of(self, part: KafkaPart) -> tuple[int, int]:
        """The first offset that is there, and the one behind the last."""

    async def view(self, member: str) -> GroupView:
        """The broker's description of the group, as far as it is about this member."""

    async def retention_s(self, topics: Sequence[str]) -> float | None:
        """How long the broker keeps messages of these topics, the longest; None: for ever."""


class PartitionFlow:
    """The messages of one partition on their way to its work: from an offset on, in order, until `stop`.

    An async iterator. It has a bound: when it is full the partition is paused, below half of that it goes on.
    Nothing is thrown away for being too much. Cancelling a step takes nothing out.
    """

    def __init__(self, next_offset: int, *, count_max: int) -> None:
        self.next_offset = next_offset
        """What is below it is not taken."""
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
        """Take a message, unless its place in the order is past, or the flow has stopped: says whether.

        It takes what comes after it is full: that was on its way.
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
        """End: what waits is given to nobody here."""
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
        """Whether who knows nothing begins behind all messages."""
        return _RESETS[self.settings.get(_RESET, "earliest")] == "latest"

    @property
    def poll_interval_s(self) -> float:
        """The broker waits so long for a member's rebalance."""
        return float(self.settings.get(_POLL_INTERVAL, 300_000)) / 1000.0

    def of_client(self) -> dict[str, Any]:
        """For questions: what finds the brokers and proves who asks."""
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
            # Where a partition begins is looked up here. This is for places that are not there any more: with
            # `error` the client reads nothing more of a partition, and takes no seek.
            _RESET: "earliest",
            "logger": logger,
        }
        if self.protocol == "classic":
            made["partition.assignment.strategy"] = "cooperative-sticky"
        if self.member_id is not None:
            made["group.instance.id"] = self.member_id
        return made


def read_membership(written: bytes) -> Membership:
    """The client's bytes about a membership. Raises `UsageError` for those of another version."""
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
        # One that is fatal comes under a code of its own, with the text of the one that it stands for.
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
    """confluent-kafka's asyncio consumer as a `GroupMember`. To be made on the event loop.

    Raises `UsageError` where the package is missing, `BadArgument` for settings that librdkafka refuses.
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
        # Whoever waits for its end is told how it ended.
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
            # A thread for each call that may be under way: `receive` whose caller was cancelled and whose
            # callback goes on, the call within that callback, and `close`, which waits for both.
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
        # Asking for many at once waits until there are so many, or for all of the time.
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
        # While all is paused the client's thread that fetches sleeps for up to a second. Being resumed does
        # not wake it, a seek does (`make bench`, kind "takeover").
        await self.seek(part, offset)

    async def commit(self, offsets: Mapping[KafkaPart, int]) -> None:
        spots = [self._spot(part, offset) for part, offset in offsets.items()]
        await self._call(self._consumer.commit, offsets=spots, asynchronous=True)

    async def membership(self) -> Membership:
        return read_membership(await self._call(self._consumer.consumer_group_metadata))

    async def close(self) -> None:
        # It cannot be taken back, and nothing may be left of it: its thread waits for what this loop answers.
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
        # Not at a place that the client looks up: the answer may come after the seek, and win (librdkafka
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
            # Lost meanwhile, which has unassigned all.
            self._listener.failed(error)

    async def _on_error(self, error: confluent_kafka.KafkaError) -> None:
        self._listener.failed(as_error(error, self._title))

    async def _on_statistics(self, given: Callable[[str], Awaitable[None]] | None, text: str) -> None:
        coordinator = json.loads(text).get("brokers", {}).get("GroupCoordinator", {})
        self._late_count = int(coordinator.get("req_timeouts", 0))
        if given is not None:
            await given(text)

    def _hear(self, message: confluent_kafka.Message) -> bool:
        """Tell of an error that came in a message's place: False, it is none."""
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
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # It says so elsewhere.

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
        """For questions that go to the group's coordinator, after a sign of life of the brokers.

        The client aborts the process when a connection drops at the moment in which such a question is sent
        (librdkafka issues 3663 and 4605). One that waits for a broker that is away meets that moment often.
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
    """Raises `UsageError` where confluent-kafka is missing."""
    try:
        import confluent_kafka.aio  # noqa: F401
    except ImportError as error:
        raise UsageError(f"Kafka mode needs confluent-kafka: pip install hansa[kafka] ({error})") from error
