"""Worker processes of a Kafka group that are killed, or stand still for longer than their session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from hansa.assignment.handoff import Handoffs
from hansa.store import open_store
from tests.support.kafka_processes import Numbers, Peer
from tests.support.kafka_servers import Kafka, needs_real, unused
from tests.support.store_process import StoreProcess
from tests.support.sums import Books, Row, Sums

pytestmark = pytest.mark.timeout(180)

PARTITIONS_COUNT = 4
BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
def broker(kafka: Kafka) -> Kafka:
    needs_real(kafka, "knows little of the new protocol")
    return kafka


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What a test has to itself."""

    topic: str
    group: str

    @property
    def partitions(self) -> list[str]:
        return [f"{self.topic}-{number}" for number in range(PARTITIONS_COUNT)]


@pytest.fixture
async def names(broker: Kafka) -> Names:
    return Names(topic=await broker.create_topic(unused("numbers"), PARTITIONS_COUNT), group=unused("adders"))


@pytest.fixture
def store_address(tmp_path: Path) -> Iterator[str]:
    with StoreProcess(tmp_path) as store:
        yield f"etcd://{store.address}"


@BOTH
@pytest.mark.spec("ASG-03", "ASG-05")
async def test_what_a_stopped_process_saves_late_is_refused_and_nobody_suffers_from_it(
    broker: Kafka, names: Names, store_address: str, protocol: str
) -> None:
    numbers = Numbers(broker.address, names.topic, partitions=PARTITIONS_COUNT, rate=100.0)
    where = (broker.address, store_address, names.topic, names.group, f"--protocol={protocol}")
    # The second one has much that is not saved when it is stopped.
    async with Peer("a", *where) as first, Peer("b", *where, "--save-s=3600") as second:
        await first.until(lambda: len(first.owned) == 2)
        await second.until(lambda: len(second.owned) == 2)
        numbers.start()
        had = second.owned
        await second.until(lambda: {each["partition"] for each in second.events("unsaved")} == set(had))
        second.freeze()
        await first.until(lambda: len(first.owned) == PARTITIONS_COUNT)
        await asyncio.sleep(0.5)
        second.thaw()
        await second.until(lambda: {each["partition"] for each in second.events("late")} == set(had))
        late = second.events("late")
        assert all(each["is_refused"] and each["count"] for each in late), late
        assert all("belongs to 'a'" in each["why"] for each in late)
        # Its loss is no end: it is a member again.
        await second.until(lambda: len(second.owned) == 2)
        await numbers.stop()
        counted_first, counted_second = await asyncio.gather(first.leave(), second.leave())
        assert counted_second["worker"]["lost_count"] == 2
        assert counted_first["worker"]["lost_count"] == 0
        # What was asked for was revoked, in the same runs.
        assert counted_first["mode"]["revoked_count"] >= 2
    await _each_counts_once(store_address, names)


@BOTH
@pytest.mark.spec("ASG-05")
async def test_after_a_kill_the_next_owner_goes_on_from_the_last_handoff(
    broker: Kafka, names: Names, store_address: str, protocol: str
) -> None:
    numbers = Numbers(broker.address, names.topic, partitions=PARTITIONS_COUNT, rate=100.0)
    where = (broker.address, store_address, names.topic, names.group, f"--protocol={protocol}")
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(Peer("a", *where))
        numbers.start()
        await first.until(lambda: len(first.owned) == PARTITIONS_COUNT)
        await asyncio.sleep(1.0)
        await first.kill()
        second = await stack.enter_async_context(Peer("b", *where))
        await second.until(lambda: len(second.owned) == PARTITIONS_COUNT)
        await asyncio.sleep(0.5)
        await numbers.stop()
        await _until_all(store_address, names, numbers.counts)
        await second.leave()
    await _each_counts_once(store_address, names)


async def _until_all(store_address: str, names: Names, counts: list[int]) -> None:
    async with open_store(store_address) as store, asyncio.timeout(60.0):
        handoffs = Handoffs(store, names.group)
        for partition, count in zip(names.partitions, counts, strict=True):
            saved = None
            while saved is None or saved.handoff.next_offset < count:
                await asyncio.sleep(0.05)
                saved = await handoffs.load(partition)


async def _each_counts_once(store_address: str, names: Names) -> None:
    async with open_store(store_address) as store:
        items = (await store.scan(Row.prefix("default"))).items
        handoffs = Handoffs(store, names.group)
        saved = {partition: await handoffs.load(partition) for partition in names.partitions}
    sums = [Sums.decode(partition, each.handoff.state) for partition, each in saved.items() if each]
    assert len(sums) == PARTITIONS_COUNT
    books = Books()
    books.check([Row.decode(item.value, item.mod_revision) for item in items], sums)
    assert books.are_right, books
