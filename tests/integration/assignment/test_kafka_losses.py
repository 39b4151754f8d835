"""Worker processes of a Kafka group that are killed, or stand still for longer than their session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hansa.assignment.handoff import Handoffs
from hansa.store import open_store
from tests.support.kafka_processes import Numbers, Peer
from tests.support.kafka_servers import RunningKafka, needs_real
from tests.support.store_process import StoreProcess
from tests.support.sums import Books, Row, Sums

pytestmark = pytest.mark.timeout(180)

TOPIC, GROUP = "numbers", "adders"
PARTITIONS_COUNT = 4
BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture
async def broker() -> AsyncIterator[RunningKafka]:
    settings = {
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.session.timeout.ms": "1000",
    }
    async with RunningKafka(settings) as running:
        needs_real(running, "knows little of the new protocol")
        await running.create_topic(TOPIC, PARTITIONS_COUNT)
        yield running


@pytest.fixture
def store_address(tmp_path: Path) -> Iterator[str]:
    with StoreProcess(tmp_path) as store:
        yield f"etcd://{store.address}"


@BOTH
@pytest.mark.spec("ASG-03", "ASG-05")
async def test_what_a_stopped_process_saves_late_is_refused_and_nobody_suffers_from_it(
    broker: RunningKafka, store_address: str, protocol: str
) -> None:
    numbers = Numbers(broker.address, TOPIC, partitions=PARTITIONS_COUNT, rate=100.0)
    where = (broker.address, store_address, TOPIC, GROUP, f"--protocol={protocol}")
    # The second one has much that is not saved when it is stopped.
    async with Peer("a", *where) as first, Peer("b", *where, "--save-s=60") as second:
        await first.until(lambda: len(first.owned) == 2)
        await second.until(lambda: len(second.owned) == 2)
        numbers.start()
        had = second.owned
        await asyncio.sleep(1.0)
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
    await _each_counts_once(store_address)


@BOTH
@pytest.mark.spec("ASG-05")
async def test_after_a_kill_the_next_owner_goes_on_from_the_last_handoff(
    broker: RunningKafka, store_address: str, protocol: str
) -> None:
    numbers = Numbers(broker.address, TOPIC, partitions=PARTITIONS_COUNT, rate=100.0)
    where = (broker.address, store_address, TOPIC, GROUP, f"--protocol={protocol}")
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
        await _until_all(store_address, numbers.counts)
        await second.leave()
    await _each_counts_once(store_address)


async def _until_all(store_address: str, counts: list[int]) -> None:
    async with open_store(store_address) as store, asyncio.timeout(60.0):
        handoffs = Handoffs(store, GROUP)
        for number, count in enumerate(counts):
            saved = None
            while saved is None or saved.handoff.next_offset < count:
                await asyncio.sleep(0.05)
                saved = await handoffs.load(f"{TOPIC}-{number}")


async def _each_counts_once(store_address: str) -> None:
    async with open_store(store_address) as store:
        items = (await store.scan(Row.prefix("default"))).items
        saved = [await Handoffs(store, GROUP).load(f"{TOPIC}-{number}") for number in range(PARTITIONS_COUNT)]
    sums = [Sums.decode(f"{TOPIC}-{number}", each.handoff.state) for number, each in enumerate(saved) if each]
    assert len(sums) == PARTITIONS_COUNT
    books = Books()
    books.check([Row.decode(item.value, item.mod_revision) for item in items], sums)
    assert books.are_right, books
