"""Workers of a Kafka group on a real broker, by both of its protocols."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Self

import pytest
from confluent_kafka import Producer

from hansa.assignment.assignments import Assignments
from hansa.assignment.handoff import Handoffs
from hansa.assignment.kafka_group import Protocols
from hansa.assignment.kafka_mode import KafkaMode
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo, SessionKeeper
from hansa.errors import Fenced
from hansa.store.memory import MemoryStore
from hansa.store.store import Store
from tests.support.kafka_servers import Kafka, unused

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
            SessionKeeper(self._store, ttl=20.0, node=self.name)
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
    import random

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
            saved = await Handoffs(store, group).load(name)
            assert saved is not None
        assert first.mode.stats.dropped_count + second.mode.stats.dropped_count < stream.count
        assert not first.losses
        assert not second.losses
        print(protocol, "a", first.mode.stats, first.worker.stats)
        print(protocol, "b", second.mode.stats, second.worker.stats)
    for number in range(PARTITIONS_COUNT):
        saved = await Handoffs(store, group).load(f"{topic}-{number}")
        assert saved is not None
        count = stream.counts[number]
        assert int(saved.handoff.state) == count * (count - 1) // 2
        assert saved.handoff.next_offset == count


async def _keep_writing(stream: Stream, times: int) -> None:
    for _ in range(times):
        await stream.write(2)
        await asyncio.sleep(0.05)
