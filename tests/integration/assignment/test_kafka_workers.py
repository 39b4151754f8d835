"""Workers of a Kafka group on a real broker, by both of its protocols."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Self, cast

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from hansa.assignment import kafka_group
from hansa.assignment.assignments import Assignments
from hansa.assignment.handoff import FailedHandoff, Handoff, Handoffs
from hansa.assignment.kafka_group import Protocols
from hansa.assignment.kafka_mode import KafkaMode
from hansa.assignment.partition import Partition
from hansa.assignment.topology import HandoffFailed, PartitionAssigned, PartitionRevoked
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo, SessionKeeper
from hansa.errors import Fenced, KafkaUnavailable, MemberFenced, UsageError, WouldBlock
from hansa.store.memory import MemoryStore
from hansa.store.store import Store
from tests.support.kafka_proxy import KafkaProxy
from tests.support.kafka_servers import Kafka, RunningKafka, needs_real, unused
from tests.support.kafka_stage import FailingStore

pytestmark = pytest.mark.timeout(120)

WAIT_S_MAX = 60.0
PARTITIONS_COUNT = 12
BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with MemoryStore() as store:
        yield store


class Process:
    """A worker as a process would have it. The state of a partition is the sum of its messages.

    `read` has each offset of each partition in the order in which this worker was given it, with its epoch.
    """

    def __init__(
        self,
        store: Store,
        address: str,
        topic: str,
        group: str,
        name: str,
        protocol: Protocols,
        *,
        padding: int = 0,
        **options: Any,
    ) -> None:
        self.name = name
        self._store = store
        self._group = group
        self._padding = padding
        self._stack = AsyncExitStack()
        settings = options.pop("settings", {})
        if protocol == "classic":
            settings = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300, **settings}
        self._worker_options = options.pop("worker", {})
        options.setdefault("handoff_lifetime", None)
        self.mode = KafkaMode(address, topic, protocol=protocol, settings=settings, **options)
        self.read: dict[str, list[tuple[int, int]]] = {}
        self.begun: list[tuple[str, int, int]] = []
        self.losses: list[str] = []
        self._running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.keeper = await self._stack.enter_async_context(
            SessionKeeper(self._store, ttl=10.0, node=self.name)
        )
        self.members = await self._stack.enter_async_context(
            Members(self._store, NodeInfo(id=self.name), session=self.keeper)
        )
        self.worker = Worker(self.members, self._group, mode=self.mode, **self._worker_options)
        await self._stack.enter_async_context(self.worker)
        self.events = self.worker.events()
        self._running = asyncio.create_task(self.worker.run(self._work))
        return self

    async def __aexit__(self, *what: object) -> None:
        await self._stack.aclose()
        assert self._running is not None
        await asyncio.wait((self._running,))

    async def failure(self) -> BaseException | None:
        assert self._running is not None
        await asyncio.wait((self._running,))
        return self._running.exception()

    async def _work(self, work: Work) -> None:
        name = work.partition
        total = int(work.handoff.state.split(b" ")[0] or b"0")
        self.begun.append((name, work.epoch, work.handoff.next_offset))
        try:
            async with work:
                async for message in work:
                    total += int(message.value())
                    self.read.setdefault(name, []).append((work.epoch, message.offset()))
                    state = b"%d %s" % (total, _padding(self._padding))
                    work.note(state=state, last_offset=message.offset())
        except Fenced:
            self.losses.append(name)
            raise

    @property
    def read_count(self) -> int:
        return sum(len(found) for found in self.read.values())

    async def has(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S_MAX):
            await self.worker.until(lambda names: len(names) == count)


def _padding(size: int) -> bytes:
    # Not to be compressed.
    return random.Random(size).randbytes(size)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S_MAX):
        while not condition():
            await asyncio.sleep(0.01)


class Stream:
    """Numbers written to all partitions of a topic: message n of a partition is n."""

    def __init__(self, address: str, topic: str, partitions: int = PARTITIONS_COUNT) -> None:
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 1})
        self._topic = topic
        self.counts = [0] * partitions

    async def write(self, count: int) -> None:
        for number in range(len(self.counts)):
            for _ in range(count):
                self._producer.produce(self._topic, b"%d" % self.counts[number], partition=number)
                self.counts[number] += 1
        assert await asyncio.to_thread(self._producer.flush, 30.0) == 0

    @property
    def count(self) -> int:
        return sum(self.counts)


@BOTH
@pytest.mark.spec("ASG-03", "ASG-04", "ASG-10")
async def test_a_join_and_a_leave_hand_partitions_over_and_nothing_is_lost_or_read_twice(
    kafka: Kafka, store: Store, protocol: Protocols
) -> None:
    topic = await kafka.create_topic(unused("orders"), PARTITIONS_COUNT)
    group, stream = unused("group"), Stream(kafka.address, topic)
    await stream.write(50)
    async with Process(store, kafka.address, topic, group, "a", protocol) as first:
        await first.has(12)
        await until(lambda: first.read_count == stream.count)
        kept_going = asyncio.create_task(_keep_writing(stream, 40))
        async with Process(store, kafka.address, topic, group, "b", protocol) as second:
            await second.has(6)
            await first.has(6)
            await kept_going
            await until(lambda: first.read_count + second.read_count == stream.count)
            view = await Assignments(store, group).all()
            assert {each.owner for each in view.values()} == {"a", "b"}
            assert all(len(each.standby) == 1 for each in view.values())
            generations = {each.owner: each.generation for each in view.values()}
            assert 0 < generations["a"] < generations["b"]
            moved = dict.fromkeys(name for name, _, _ in second.begun)
            assert len(moved) == 6
            # What did not move was not stopped: its work is the first one.
            assert sorted(name for name, _, _ in first.begun) == sorted({name for name, _, _ in first.begun})
        await first.has(12)
        await stream.write(10)
        await until(lambda: first.read_count + second.read_count == stream.count)
        for name in first.read.keys() | second.read.keys():
            offsets = sorted(first.read.get(name, []) + second.read.get(name, []))
            # By epoch, and in each epoch in order: nothing twice, nothing missing.
            assert [offset for _, offset in offsets] == list(range(stream.counts[0])), name
        assert first.mode.stats.dropped_count + second.mode.stats.dropped_count < stream.count
        assert not first.losses
        assert not second.losses
        print(protocol, "a", first.mode.stats, first.worker.stats)
        print(protocol, "b", second.mode.stats, second.worker.stats)
    for number in range(PARTITIONS_COUNT):
        saved = await Handoffs(store, group).load(f"{topic}-{number}")
        assert saved is not None
        count = stream.counts[number]
        assert await _committed(kafka.address, group, topic, number) == count
        assert int(saved.handoff.state) == count * (count - 1) // 2
        assert saved.handoff.next_offset == count


async def _committed(address: str, group: str, topic: str, number: int) -> int:
    """What Kafka shows as read by a group."""
    admin = AdminClient({"bootstrap.servers": address})
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, number)])
    futures = admin.list_consumer_group_offsets([asked])
    (found,) = (await asyncio.wrap_future(futures[group])).topic_partitions
    return int(found.offset)


async def _keep_writing(stream: Stream, times: int) -> None:
    for _ in range(times):
        await stream.write(2)
        await asyncio.sleep(0.05)


@BOTH
@pytest.mark.spec("ASG-06", "ASG-04")
async def test_a_large_handoff_goes_aside_and_comes_to_the_next_owner_whole(
    kafka: Kafka, store: Store, protocol: Protocols
) -> None:
    topic = await kafka.create_topic(unused("orders"), 2)
    group, stream = unused("group"), Stream(kafka.address, topic, 2)
    await stream.write(20)
    where = (store, kafka.address, topic, group)
    async with Process(*where, "a", protocol, padding=100_000) as first:
        await first.has(2)
        await until(lambda: first.read_count == stream.count)
    saved = await Handoffs(store, group).load(f"{topic}-0")
    assert saved is not None
    assert saved.blob
    assert saved.size > 100_000
    async with Process(*where, "b", protocol) as second:
        await second.has(2)
        await until(lambda: len(second.begun) == 2)
        assert sorted(start for _, _, start in second.begun) == [20, 20]
        await stream.write(5)
        await until(lambda: second.read_count == 10)
    saved = await Handoffs(store, group).load(f"{topic}-0")
    assert saved is not None
    assert int(saved.handoff.state.split(b" ")[0]) == 25 * 24 // 2
    assert not saved.blob


@BOTH
@pytest.mark.spec("ASG-06", "ASG-14")
async def test_a_handoff_that_the_store_does_not_take_is_told_and_the_group_goes_on(
    kafka: Kafka, store: Store, protocol: Protocols
) -> None:
    topic = await kafka.create_topic(unused("orders"), 2)
    group, stream = unused("group"), Stream(kafka.address, topic, 2)
    await stream.write(20)
    failed: list[FailedHandoff] = []

    async def recover(failure: FailedHandoff) -> Handoff | None:
        failed.append(failure)
        return None

    failing = FailingStore(store)
    first = Process(
        cast(Store, failing),
        kafka.address,
        topic,
        group,
        "a",
        protocol,
        revoke_timeout=2.0,
        worker={"recover": recover, "save_interval": 3_600.0},
    )
    async with first, Process(store, kafka.address, topic, unused("other"), "c", protocol) as other:
        await first.has(2)
        await until(lambda: first.read_count == stream.count)
        await first.worker.works[f"{topic}-0"].save()
        await first.worker.works[f"{topic}-1"].save()
        await stream.write(5)
        await until(lambda: first.read_count == stream.count)
        failing.is_away = True
        async with Process(store, kafka.address, topic, group, "b", protocol) as second:
            await second.has(1)
            (failure,) = failed
            assert (failure.handoff.last_offset, failure.is_reading) == (24, False)
            # From the last one that was saved: what came after it is done again.
            await until(lambda: second.begun)
            ((_, _, start),) = second.begun
            assert start == 20
            await until(lambda: second.read_count == 5)
            events = []
            with suppress(WouldBlock):
                while True:
                    events.append(first.events.get_nowait())
            assert [event.partition for event in events if isinstance(event, HandoffFailed)] == [
                failure.partition
            ]
            failing.is_away = False
        await other.has(2)


@pytest.mark.spec("ASG-06")
async def test_handoffs_that_go_before_the_messages_do_are_refused(kafka: Kafka, store: Store) -> None:
    needs_real(kafka, "knows no configurations of topics")
    week_ms = 7 * 86_400_000
    topic = await kafka.create_topic(unused("orders"), 1, retention_ms=str(week_ms))
    where = (store, kafka.address, topic, unused("group"))
    async with Process(*where, "a", "consumer", handoff_lifetime=86_400.0) as process:
        failure = await process.failure()
    assert isinstance(failure, UsageError)
    assert "86400 s" in str(failure)
    assert "604800 s" in str(failure)
    async with Process(*where, "b", "consumer", handoff_lifetime=2 * 604_800.0) as process:
        await process.has(1)
        await until(lambda: process.mode.is_leading)


@pytest.mark.spec("ASG-06")
async def test_where_messages_stay_for_ever_handoffs_do_too(kafka: Kafka, store: Store) -> None:
    needs_real(kafka, "knows no configurations of topics")
    for config in ({"retention_ms": "-1"}, {"cleanup_policy": "compact"}):
        topic = await kafka.create_topic(unused("orders"), 1, **config)
        async with Process(
            store, kafka.address, topic, unused("group"), "a", "consumer", handoff_lifetime=60.0
        ) as process:
            await process.has(1)
            assert not process.mode.is_leading


@BOTH
@pytest.mark.spec("ASG-03")
async def test_a_static_member_that_comes_back_has_its_partitions_and_a_second_one_is_told(
    kafka: Kafka, store: Store, protocol: Protocols
) -> None:
    needs_real(kafka, "knows no static members")
    topic = await kafka.create_topic(unused("orders"), 4)
    group, stream = unused("group"), Stream(kafka.address, topic, 4)
    await stream.write(10)
    where = (store, kafka.address, topic, group)
    async with Process(*where, "stays", protocol) as other:
        async with Process(*where, "a", protocol, member_id="one") as first:
            await first.has(2)
            await other.has(2)
            await until(lambda: first.read_count + other.read_count == stream.count)
            had = set(first.worker.works)
        # Its place is kept: nobody is given what it had.
        await asyncio.sleep(0.5)
        assert len(other.worker.works) == 2
        async with Process(*where, "a2", protocol, member_id="one") as again:
            await again.has(2)
            await until(lambda: len(again.begun) == 2)
            assert set(again.worker.works) == had
            assert {start for _, _, start in again.begun} == {10}
            async with Process(*where, "a3", protocol, member_id="one") as second:
                # Of two that run the classic protocol ends the older one, and the new one the newer.
                gone = again if protocol == "classic" else second
                async with asyncio.timeout(WAIT_S_MAX):
                    failure = await gone.failure()
                assert isinstance(failure, MemberFenced)
        assert not other.losses


@BOTH
@pytest.mark.spec("ASG-03")
async def test_a_broker_that_is_restarted_is_survived_and_no_work_begins_anew_for_nothing(
    own_kafka: RunningKafka, store: Store, protocol: Protocols
) -> None:
    needs_real(own_kafka, "keeps no messages when it is restarted")
    topic = await own_kafka.create_topic(unused("orders"), 4)
    group, stream = unused("group"), Stream(own_kafka.address, topic, 4)
    await stream.write(10)
    where = (store, own_kafka.address, topic, group)
    async with Process(*where, "a", protocol) as first, Process(*where, "b", protocol) as second:
        await first.has(2)
        await second.has(2)
        await until(lambda: first.read_count + second.read_count == stream.count)
        own_kafka.kill()
        await until(lambda: first.mode.stats.errors_count and second.mode.stats.errors_count)
        assert isinstance(first.mode.last_error, KafkaUnavailable)
        await own_kafka.start()
        await stream.write(10)
        # What an owner had read and not saved when it lost a partition is read again, by the next epoch.
        await until(lambda: _kept(first, second) == stream.count)
        print(protocol, first.mode.stats, second.mode.stats)


@pytest.mark.spec("ASG-03")
async def test_a_revocation_that_was_lost_on_its_way_holds_no_rebalance_up(
    kafka: Kafka, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_real(kafka, "knows little of the new protocol")
    monkeypatch.setattr(kafka_group, "KAFKA_LOOK_S_MIN", 0.5)
    topic = await kafka.create_topic(unused("orders"), 4)
    group, stream = unused("group"), Stream(kafka.address, topic, 4)
    await stream.write(10)
    async with (
        KafkaProxy(kafka.address) as proxy,
        Process(store, proxy.address, topic, group, "a", "consumer") as first,
    ):
        await first.has(4)
        proxy.lose_assignment()
        async with Process(store, kafka.address, topic, group, "b", "consumer") as second:
            await second.has(2)
            await first.has(2)
            assert proxy.lost_count == 1
            assert first.mode.stats.rejoined_count == 1
            await stream.write(10)
            await until(lambda: first.read_count + second.read_count >= stream.count)
            # It left in order: nothing is read twice.
            assert first.read_count + second.read_count == _kept(first, second) == stream.count
            assert not first.losses
            assert not second.losses


def _kept(*processes: Process) -> int:
    """How many different messages were read."""
    return len(
        {(name, offset) for process in processes for name, read in process.read.items() for _, offset in read}
    )


@BOTH
@pytest.mark.spec("ASG-01")
async def test_a_worker_is_told_of_resources_with_its_partitions(
    kafka: Kafka, store: Store, protocol: Protocols
) -> None:
    topic = await kafka.create_topic(unused("orders"), 1)
    group = unused("group")
    name = f"{topic}-0"
    await Assignments(store, group).define(Partition(name=name, resources=("press", "lathe")))
    async with Process(store, kafka.address, topic, group, "a", protocol) as process:
        await process.has(1)
        assert process.worker.works[name].resources == ("lathe", "press")
        event = await anext(process.events)
        assert isinstance(event, PartitionAssigned)
        assert event.resources == ("lathe", "press")
        await process.worker.leave()
        event = await anext(process.events)
        assert isinstance(event, PartitionRevoked)


@BOTH
@pytest.mark.spec("ASG-04")
async def test_what_the_broker_has_deleted_is_counted_and_the_work_goes_on_behind_it(
    kafka: Kafka, store: Store, protocol: Protocols
) -> None:
    needs_real(kafka, "deletes no messages")
    topic = await kafka.create_topic(unused("orders"), 2)
    group, stream = unused("group"), Stream(kafka.address, topic, 2)
    await stream.write(20)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    # The group has read one partition up to a place that is not there any more, and nothing of the other.
    read = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 4)])
    await asyncio.wrap_future(admin.alter_consumer_group_offsets([read])[group])
    for future in admin.delete_records([TopicPartition(topic, n, 10) for n in (0, 1)]).values():
        await asyncio.wrap_future(future)
    async with Process(store, kafka.address, topic, group, "a", protocol) as process:
        await process.has(2)
        await until(lambda: process.read_count == 20)
        for number in (0, 1):
            offsets = [offset for _, offset in process.read[f"{topic}-{number}"]]
            assert offsets == list(range(10, 20))
        await until(lambda: process.mode.stats.missing_count == 6)
        await stream.write(5)
        await until(lambda: process.read_count == 30)
