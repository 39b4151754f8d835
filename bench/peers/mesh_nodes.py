"""hansa's topics among nodes, where the load has steps: one node of several stops, and topics are weighed.

Settings: the defaults. Nodes find each other through a registry process, as in `topics`. In "stop" the
owner stays at most WINDOW_COUNT messages ahead of the slowest of those that it waits for; they tell it on
topics of their own how far they are. So none of these has to lose anything, and the rate is theirs.
"""

import asyncio

from bench.job import Job
from bench.link import Link
from bench.load import BURST_COUNT
from bench.memory import resident_bytes
from bench.peers.topics import POLL_S, START_S_MAX, TOPIC, broker, facts, mesh_node, subscribed
from hansa import Spot, SpotNode, Subscription
from hansa.topics import SubscriptionState

__all__ = ["broker", "flood", "follow", "topics_neighbour", "topics_owner"]

WINDOW_COUNT = 8_000
"""Below what a subscription holds."""
PROGRESS_COUNT = 500
PROGRESS = "progress:"
MANY = "many:"


# -- kind "stop": one process of several is stopped for a while


class Pace:
    """How far those have come whom the owner waits for."""

    def __init__(self, count: int) -> None:
        self.news = asyncio.Event()
        self._progress = [0] * count
        self._left: set[int] = set()

    def told(self, index: int, sequence: int) -> None:
        """One has come so far."""
        self._progress[index] = sequence
        self.news.set()

    def leave(self, index: int) -> None:
        """Wait for that one no longer."""
        self._left.add(index)
        self.news.set()

    def admit(self, sequence: int) -> None:
        """Wait for all again; all have come so far, or have lost what is missing."""
        self._left.clear()
        self._progress = [sequence] * len(self._progress)

    @property
    def slowest(self) -> int:
        """The number of the message that all who are waited for have."""
        return min(one for index, one in enumerate(self._progress) if index not in self._left)


class Flood:
    """The owner: publishes while it is told to run, and waits for the pace."""

    def __init__(self, job: Job, link: Link, node: SpotNode, spot: Spot) -> None:
        self._job = job
        self._link = link
        self._node = node
        self._spot = spot
        self._pace = Pace(job.case.width)
        self._running = asyncio.Event()
        self._resting = asyncio.Event()

    async def listen(self, subscription: Subscription) -> None:
        """Hear how far the others are."""
        async for message in subscription:
            index = int(message.topic.removeprefix(PROGRESS))
            self._pace.told(index, int.from_bytes(message.payload, "little"))

    async def keep_publishing(self) -> None:
        """Never ends; it runs and rests as told."""
        link, spot, payload, pace = self._link, self._spot, self._job.payload, self._pace
        while True:
            self._resting.set()
            await self._running.wait()
            self._resting.clear()
            while self._running.is_set():
                pace.news.clear()
                if link.count - pace.slowest > WINDOW_COUNT:
                    await pace.news.wait()
                    continue
                for _ in range(BURST_COUNT):
                    await spot.publish(TOPIC, payload)
                link.count += BURST_COUNT

    async def obey(self, progress: Subscription) -> None:
        """Do what the conductor says, and say what was sent."""
        width = self._job.case.width
        while True:
            match await self._link.order():
                case ["gather"]:
                    await subscribed(self._node, TOPIC, width)
                    await _active(progress, width)
                case ["run"]:
                    self._running.set()
                case ["leave", index]:
                    self._pace.leave(int(index))
                case ["admit"]:
                    self._pace.admit(self._link.count)
                case ["rest"]:
                    self._running.clear()
                    self._pace.news.set()
                    await self._resting.wait()
            self._link.done(sent=self._link.count)


async def flood(job: Job, link: Link) -> None:
    """Own the topic, and publish as fast as those can read who are waited for."""
    async with mesh_node(job) as node, node.spot() as spot, asyncio.TaskGroup() as tasks:
        await spot.create_topic(TOPIC)
        progress = await spot.subscribe_pattern(PROGRESS + "*")
        one = Flood(job, link, node, spot)
        tasks.create_task(one.listen(progress), name="listen")
        tasks.create_task(one.keep_publishing(), name="publish")
        link.gauges = lambda: {"dropped": node.stats.dropped_count}
        link.ready(**facts())
        await one.obey(progress)


async def follow(job: Job, link: Link) -> None:
    """Read what is published, and tell now and then how far it got."""
    async with mesh_node(job) as node, node.spot() as spot:
        progress, told = f"{PROGRESS}{job.index}", 0
        await spot.create_topic(progress)
        subscription = await spot.subscribe(TOPIC)
        await subscription.active(START_S_MAX)
        link.gauges = lambda: {"missed": subscription.missed_count, "dropped": subscription.dropped_count}
        link.ready(**facts())
        while True:
            messages = await spot.recv_all()
            link.last = messages[-1].payload
            link.count += len(messages)
            sequence = messages[-1].sequence
            if sequence - told >= PROGRESS_COUNT:
                told = sequence
                await spot.publish(progress, sequence.to_bytes(8, "little"))


async def _active(subscription: Subscription, count: int) -> None:
    """Until so many of the topics that a pattern fits are confirmed by their owners."""
    while list(subscription.topics.values()).count(SubscriptionState.ACTIVE) < count:  # noqa: ASYNC110
        await asyncio.sleep(POLL_S)


# -- kind "known": what a topic weighs


async def topics_owner(job: Job, link: Link) -> None:
    """Own as many topics as the case is wide."""
    async with mesh_node(job) as node, node.spot() as spot:
        before = resident_bytes()
        for number in range(job.case.width):
            await spot.create_topic(f"{MANY}{number}")
        link.ready(**facts())
        await link.order()
        link.done(bytes=(resident_bytes() - before) / job.case.width)
        await asyncio.Event().wait()


async def topics_neighbour(job: Job, link: Link) -> None:
    """Know them all, and at the second order subscribe to each of them through a pattern."""
    async with mesh_node(job) as node, node.spot() as spot:
        before = resident_bytes()
        link.ready(**facts())
        await link.order()
        while len(node.topics) < job.case.width:  # noqa: ASYNC110 - asked only at the beginning
            await asyncio.sleep(POLL_S)
        link.done(bytes=(resident_bytes() - before) / job.case.width)
        await link.order()
        before = resident_bytes()
        subscription = await spot.subscribe_pattern(MANY + "*")
        await _active(subscription, job.case.width)
        link.done(bytes=(resident_bytes() - before) / job.case.width)
        await asyncio.Event().wait()
