"""hansa's topics inside one process: many spots of a local node, each with a task of its own.

Settings: the defaults, no network. One spot publishes with `await spot.publish(...)`; the tasks of the others
take all that wait with `recv_all`. In "slow" one of these tasks does not read for a while; in "spots" nothing
is published, and the spots are weighed.
"""

import asyncio
import time
from collections.abc import Callable

from bench.job import Job
from bench.link import Link
from bench.load import BURST_COUNT
from bench.memory import resident_bytes
from bench.peers.topics import TOPIC, facts
from hansa import Spot, SpotNode

DRAIN_S_MAX = 5.0


async def publish_here(job: Job, link: Link) -> None:
    """Publish to as many spots as the case is wide, each with a task of its own."""
    payload, published = job.payload, 0
    async with SpotNode() as node, node.spot() as owner, asyncio.TaskGroup() as readers:

        async def read(spot: Spot) -> None:
            while True:
                messages = await spot.recv_all()
                for message in messages:
                    link.last = message.payload
                link.count += len(messages)

        await owner.create_topic(TOPIC)
        for number in range(job.case.width):
            spot = node.spot()
            await spot.subscribe(TOPIC)
            readers.create_task(read(spot), name=f"reader-{number}")
        link.gauges = lambda: {"published": published}
        link.ready(**facts())
        await asyncio.to_thread(link.go.wait)
        while not link.halted:
            for _ in range(BURST_COUNT):
                await owner.publish(TOPIC, payload)
            published += BURST_COUNT
        await asyncio.Event().wait()


# -- kind "slow": one spot of many does not read for a while


class _Readers:
    """Spots with a task each; the last one's task can be stopped."""

    def __init__(self, spots: list[Spot]) -> None:
        self.running = asyncio.Event()
        self.running.set()
        self.counts = [0] * len(spots)
        self._spots = spots

    async def read(self, index: int) -> None:
        spot, counts = self._spots[index], self.counts
        while True:
            counts[index] += len(await spot.recv_all())

    async def read_unless_stopped(self) -> None:
        while True:
            await self.running.wait()
            self.counts[-1] += len(await self._spots[-1].recv_all())

    @property
    def others_count(self) -> int:
        return sum(self.counts[:-1])


async def slow_spots(job: Job, link: Link) -> None:
    """For each order two windows of publishing: all run, then the last one does not read. Then all drain."""
    payload, width, published = job.payload, job.case.width, 0
    async with SpotNode() as node, node.spot() as owner, asyncio.TaskGroup() as tasks:
        await owner.create_topic(TOPIC)
        spots = [node.spot() for _ in range(width)]
        subscriptions = [await spot.subscribe(TOPIC) for spot in spots]
        readers = _Readers(spots)
        for index in range(width - 1):
            tasks.create_task(readers.read(index), name=f"reader-{index}")
        tasks.create_task(readers.read_unless_stopped(), name="reader-stopped")

        async def window(seconds: float) -> float:
            """Deliveries a second to the others, all of them made."""
            nonlocal published
            count, begun_s = readers.others_count, time.monotonic()
            while time.monotonic() - begun_s < seconds:
                for _ in range(BURST_COUNT):
                    await owner.publish(TOPIC, payload)
                published += BURST_COUNT
            await _drained(lambda: readers.others_count == published * (width - 1))
            return (readers.others_count - count) / (time.monotonic() - begun_s)

        link.ready(**facts())
        while True:
            _, seconds = await link.order()
            all_rate = await window(float(seconds))
            readers.running.clear()
            stopped_rate = await window(float(seconds))
            readers.running.set()
            await _drained(lambda: not subscriptions[-1].waiting_count)
            link.done(
                all_rate=all_rate,
                stopped_rate=stopped_rate,
                others_lost=published * (width - 1) - readers.others_count,
                missed=published - readers.counts[-1],
                told=subscriptions[-1].dropped_count,
            )


async def _drained(is_empty: Callable[[], bool]) -> None:
    """Until it is so; what is not there after DRAIN_S_MAX will never be."""
    begun_s = time.monotonic()
    while not is_empty() and time.monotonic() - begun_s < DRAIN_S_MAX:  # noqa: ASYNC110 - the tasks run
        await asyncio.sleep(0)


# -- kind "spots": what an idle spot weighs


async def many_spots(job: Job, link: Link) -> None:
    """As many spots as the case is wide, with a subscription each; at the second order each has a task."""
    async with SpotNode() as node, node.spot() as owner, asyncio.TaskGroup() as readers:
        await owner.create_topic(TOPIC)
        before = resident_bytes()
        spots = [node.spot() for _ in range(job.case.width)]
        for spot in spots:
            await spot.subscribe(TOPIC)
        link.ready(**facts())
        await link.order()
        link.done(bytes=(resident_bytes() - before) / job.case.width)
        await link.order()
        for number, spot in enumerate(spots):
            readers.create_task(_wait(spot), name=f"reader-{number}")
        # Each task runs until it waits.
        await asyncio.sleep(0)
        link.done(bytes=(resident_bytes() - before) / job.case.width)


async def _wait(spot: Spot) -> None:
    await spot.recv()
