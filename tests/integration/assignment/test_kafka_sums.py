"""Worker processes of a Kafka group add up messages while they join, leave, are killed, and stand still.

Afterwards each message counts once, in order, in the state that is handed on and in a ledger that is written
with it: `kafka_peer.py` says how. The same without fences, to see that the ledger would show it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from hansa.assignment.handoff import Handoffs
from hansa.store import open_store
from tests.support.kafka_processes import Numbers, Peer
from tests.support.kafka_servers import Kafka, RunningKafka, needs_real, unused
from tests.support.store_process import StoreProcess
from tests.support.sums import Books, Row, Sums

pytestmark = pytest.mark.timeout(240)

PARTITIONS_COUNT = 12
RATE = 200.0
# The group is called as its topic is.
TOPIC = "numbers"
SESSION_S = 3.0
# Past the session timeout, and the rebalance that follows.
STOPPED_S = SESSION_S + 4.0
CATCH_UP_S_MAX = 90.0


@pytest.fixture
async def broker() -> AsyncIterator[RunningKafka]:
    # Members of the new protocol are told by the broker how long they may be silent.
    settings = {
        "group.consumer.session.timeout.ms": f"{SESSION_S * 1000:.0f}",
        "group.consumer.min.session.timeout.ms": "1000",
    }
    async with RunningKafka(settings) as running:
        needs_real(running, "keeps no messages when it is restarted")
        yield running


@pytest.fixture
def store_address(tmp_path: Path) -> Any:
    with StoreProcess(tmp_path) as store:
        yield f"etcd://{store.address}"


class Play:
    """The processes of one run, by name."""

    def __init__(self, stack: AsyncExitStack, broker: str, store: str, topic: str, *options: str) -> None:
        self._stack = stack
        self._where = (broker, store, topic, topic)
        self._options = options
        self.peers: dict[str, Peer] = {}
        self.gone: list[Peer] = []
        self.left: list[dict[str, Any]] = []

    async def join(self, name: str, *options: str) -> Peer:
        peer = self.peers[name] = Peer(name, *self._where, *self._options, *options)
        await self._stack.enter_async_context(peer)
        await peer.until(lambda: peer.owned)
        return peer

    async def leave(self, name: str) -> None:
        peer = self.peers.pop(name)
        self.left.append(await peer.leave())
        await peer.kill()
        self.gone.append(peer)

    async def kill(self, name: str) -> None:
        peer = self.peers.pop(name)
        await peer.kill()
        self.gone.append(peer)

    async def share_all(self, *, within: float = 60.0) -> None:
        """Wait until those that are left have all partitions, each once."""
        async with asyncio.timeout(within):
            while len(self._owned()) != PARTITIONS_COUNT or len(set(self._owned())) != PARTITIONS_COUNT:
                await asyncio.sleep(0.05)

    def _owned(self) -> list[str]:
        return [name for peer in self.peers.values() for name in peer.owned]

    def told(self, event: str) -> list[dict[str, Any]]:
        return [each for peer in (*self.peers.values(), *self.gone) for each in peer.events(event)]


async def caught_up(store: str, topic: str, counts: Mapping[str, int]) -> None:
    """Wait until the handoffs have so many messages of each partition."""
    async with open_store(store) as looking, asyncio.timeout(CATCH_UP_S_MAX):
        handoffs = Handoffs(looking, topic)
        for partition, count in counts.items():
            while True:
                saved = await handoffs.load(partition)
                if saved is not None and saved.handoff.next_offset >= count:
                    break
                await asyncio.sleep(0.1)


def written(numbers: Numbers) -> dict[str, int]:
    return {f"{numbers.topic}-{number}": count for number, count in enumerate(numbers.counts)}


async def audit(store: str, topic: str) -> tuple[Books, list[Row], list[Sums]]:
    """The books of all that was saved, the rows of the ledger, and the sums that were handed on last."""
    async with open_store(store) as looking:
        handoffs = Handoffs(looking, topic)
        sums = []
        for number in range(PARTITIONS_COUNT):
            saved = await handoffs.load(f"{topic}-{number}")
            assert saved is not None
            sums.append(Sums.decode(f"{topic}-{number}", saved.handoff.state))
        items = (await looking.scan(Row.prefix("default"))).items
    rows = [Row.decode(item.value, item.mod_revision) for item in items]
    books = Books()
    books.check(rows, sums)
    return books, rows, sums


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else 0.0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.spec("ASG-03", "ASG-04", "ASG-05", "ASG-10")
async def test_whatever_happens_to_the_workers_each_message_counts_once_and_in_order(
    broker: RunningKafka,
    store_address: str,
    protocol: str,
    record_property: Callable[[str, object], None],
) -> None:
    await broker.create_topic(TOPIC, PARTITIONS_COUNT)
    numbers = Numbers(broker.address, TOPIC, partitions=PARTITIONS_COUNT, rate=RATE)
    async with AsyncExitStack() as stack:
        play = Play(stack, broker.address, store_address, TOPIC, f"--protocol={protocol}")
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as joining:
            for name in "ab":
                joining.create_task(play.join(name))
            # The one that is to stand still has some that is not saved then.
            joining.create_task(play.join("c", "--save-s=2"))
        numbers.start()
        await play.share_all()
        await play.join("d")
        await play.share_all()
        await asyncio.sleep(1.0)
        await play.leave("a")
        await play.share_all()
        await asyncio.sleep(1.0)
        await play.kill("b")
        await play.share_all()
        await play.join("e")
        await play.share_all()
        # One that stands still past its session: others have its partitions, and then it wakes up.
        zombie = play.peers.pop("c")
        zombie.freeze()
        stopped_s = time.monotonic()
        await play.share_all()
        taken_over_s = time.monotonic() - stopped_s
        await asyncio.sleep(max(STOPPED_S - taken_over_s, 0.5))
        zombie.thaw()
        play.peers["c"] = zombie
        await zombie.until(lambda: zombie.events("late"))
        await play.share_all()
        broker.kill()
        await asyncio.sleep(1.0)
        await broker.start()
        await asyncio.sleep(1.0)
        await play.join("f")
        await play.share_all()
        await asyncio.sleep(2.0)
        await numbers.stop()
        ran_s = time.monotonic() - began_s
        await caught_up(store_address, TOPIC, written(numbers))
        for name in sorted(play.peers):
            await play.leave(name)
    books, rows, sums = await audit(store_address, TOPIC)
    late = play.told("late")
    handoffs = [each for left in play.left for each in left["handoffs"]]
    readies = [each for left in play.left for each in left["readies"]]
    figures = {
        "seconds": round(ran_s, 1),
        "messages": sum(numbers.counts),
        "rows of the ledger": len(rows),
        "late saves": len(late),
        "late saves refused": sum(each["is_refused"] for each in late),
        "owners": len({(row.partition, row.epoch) for row in rows}),
        "taken over from a stopped process after s": round(taken_over_s, 2),
        "handoff ms p50": round(percentile([each[0] for each in handoffs], 0.5) * 1000, 1),
        "handoff ms max": round(max((each[0] for each in handoffs), default=0.0) * 1000, 1),
        "handoff bytes max": max((each[1] for each in handoffs), default=0),
        "assigned to ready ms p50": round(percentile(readies, 0.5) * 1000, 1),
        "assigned to ready ms max": round(max(readies, default=0.0) * 1000, 1),
        "revoke ms max": round(max(left["mode"]["revoke_s_max"] for left in play.left) * 1000, 1),
        "received and dropped": sum(left["mode"]["dropped_count"] for left in play.left),
    }
    print(f"{protocol}: {figures}")
    for name, value in figures.items():
        record_property(name, value)
    assert not play.told("disorder")
    assert books.are_right, books
    assert [each.next_number for each in sums] == numbers.counts
    # The process that stood still did try to write, and the store did not let it.
    assert any(each["is_refused"] and each["count"] and "belongs to" in each["why"] for each in late), late


@pytest.mark.spec("ASG-05")
async def test_without_fences_the_ledger_shows_messages_that_count_twice(
    kafka: Kafka, store_address: str
) -> None:
    topic = await kafka.create_topic(unused(TOPIC), PARTITIONS_COUNT)
    numbers = Numbers(kafka.address, topic, partitions=PARTITIONS_COUNT, rate=RATE)
    async with AsyncExitStack() as stack:
        play = Play(stack, kafka.address, store_address, topic, "--unfenced")
        await play.join("a")
        zombie = await play.join("b", "--save-s=3600")
        await play.share_all()
        numbers.start()
        await zombie.until(lambda: zombie.events("unsaved"))
        play.peers.pop("b")
        zombie.freeze()
        held = {each["partition"]: each["number"] + 1 for each in zombie.events("unsaved")}
        await play.share_all()
        # What it holds and has not saved counts for its heir, before it wakes up and saves it too.
        await caught_up(store_address, topic, held)
        zombie.thaw()
        await zombie.until(lambda: held.keys() <= {each["partition"] for each in zombie.events("late")})
        late = [each for each in zombie.events("late") if each["partition"] in held]
        assert all(each["count"] and not each["why"] for each in late), late
        await numbers.stop()
        await caught_up(store_address, topic, written(numbers))
    books, _, _ = await audit(store_address, topic)
    print(f"without fences: {books.doubled_count} doubled, {books.lost_count} lost")
    assert not books.are_right
    assert books.doubled_count >= sum(held.values())
