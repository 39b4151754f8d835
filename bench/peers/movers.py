"""hansa's topics among nodes with a store, where a topic goes from node to node under load: kind "move".

Settings: the defaults, except that a subscription holds `Job.backlog_count` messages. The store is a
`hansa store` with its data on disk; only the two nodes that own the topic in turns know it. The publishers
do not own it: every message goes through the owner. They keep to a pace, and say who they are and count in
each payload, so that each subscriber knows what it misses, has twice, or has in another order.
"""

import asyncio
import time
from dataclasses import replace

from bench.job import Job
from bench.kinds.move import PUBLISHERS_COUNT, RATE_PER_S
from bench.link import Link
from bench.peers import store_server
from bench.peers.control import control
from bench.peers.topics import POLL_S, START_S_MAX, TOPIC, facts, known, mesh_node
from hansa import Registry, Spot, SpotNode, TopicMessage, open_store
from hansa.errors import Conflict
from hansa.ids import format_id

__all__ = ["broker", "control", "hear", "keep", "speak"]

NUMBER_BYTES = 8
TICK_S = 0.001


async def broker(job: Job, link: Link) -> None:
    """The registry, and the store in a process of its own."""
    async with Registry(f"tcp://{job.address}", f"tcp://{job.second_address}"):
        await asyncio.to_thread(store_server.serve_hansa, replace(job, address=job.third_address), link)


# -- those who own the topic in turns


async def keep(job: Job, link: Link) -> None:
    """Create the topic, or own it when it comes; give it away when told to."""
    async with open_store(f"etcd://{job.third_address}") as store, mesh_node(job, store) as node:
        spot = node.spot()
        link.ready(**facts())
        while True:
            match await link.order():
                case ["who"]:
                    link.done(node=format_id(node.routing_id))
                case ["create"]:
                    await spot.create_topic(TOPIC)
                    link.done()
                case ["give", to]:
                    link.done(**await _give(node, spot, to))


async def _give(node: SpotNode, spot: Spot, to: str) -> dict[str, float]:
    owner = spot if TOPIC in spot.owned else node.heir
    while True:
        begun_s = time.monotonic()
        try:
            record = await owner.hand_over(TOPIC, to)
            break
        except Conflict:
            # Not everybody has switched after the move before: a machine that cannot carry the rate.
            await asyncio.sleep(POLL_S)
    at_s = {step.value: at for step, at in record.times.items()}
    return {"whole_s": time.monotonic() - begun_s, "sealed_s": at_s["taken"] - at_s["sealed"]}


# -- those who publish


async def speak(job: Job, link: Link) -> None:
    """Publish at a share of the pace while told to; say how much that was, and what reached nobody."""
    async with mesh_node(job) as node, node.spot() as spot, asyncio.TaskGroup() as tasks:
        await known(node, TOPIC)
        link.gauges = lambda: {"refused": _refused(node)}
        link.ready(**facts())
        assert await link.order() == ["run"]
        running = tasks.create_task(_keep_pace(job, link, spot), name="publish")
        link.done()
        assert await link.order() == ["rest"]
        link.halted = True
        await running
        link.done(sent=link.count)
        await asyncio.Event().wait()


def _refused(node: SpotNode) -> float:
    """How many publishes the node knows, or must fear, to have reached nobody."""
    stats = node.stats
    return float(stats.publishes_refused_count + stats.publishes_in_doubt_count)


async def _keep_pace(job: Job, link: Link, spot: Spot) -> None:
    lane, rest = bytes((job.index,)), bytes(job.case.size_bytes - NUMBER_BYTES - 1)
    rate_per_s, begun_s = RATE_PER_S / PUBLISHERS_COUNT, time.monotonic()
    while not link.halted:
        # What could not be published in time is made up for.
        for _ in range(int((time.monotonic() - begun_s) * rate_per_s) - link.count):
            await spot.publish(TOPIC, lane + link.count.to_bytes(NUMBER_BYTES, "little") + rest)
            link.count += 1
        await asyncio.sleep(TICK_S)


# -- those who read


class Lane:
    """What came of one publisher."""

    def __init__(self) -> None:
        self.next = 0
        self.came_at_s = 0.0
        self.gap_s_max = 0.0
        self.missing: set[int] = set()
        self.twice_count = 0
        self.late_count = 0

    def stray(self, number: int) -> None:
        """Another number than the next one has come."""
        if number >= self.next:
            self.missing.update(range(self.next, number))
            self.next = number + 1
        elif number in self.missing:
            self.missing.discard(number)
            self.late_count += 1
        else:
            self.twice_count += 1


class Books:
    """What one subscriber got, and when for the longest time it got nothing."""

    def __init__(self) -> None:
        self.lanes = [Lane() for _ in range(PUBLISHERS_COUNT)]
        self._came_at_s = 0.0
        self._gap_s_max = 0.0

    def enter(self, messages: list[TopicMessage], now_s: float) -> None:
        """These have come together."""
        lanes, met = self.lanes, set()
        for message in messages:
            payload = message.payload
            index, number = payload[0], int.from_bytes(payload[1 : 1 + NUMBER_BYTES], "little")
            lane = lanes[index]
            met.add(index)
            if number == lane.next:
                lane.next += 1
            else:
                lane.stray(number)
        for lane in map(lanes.__getitem__, met):
            lane.gap_s_max = max(lane.gap_s_max, now_s - (lane.came_at_s or now_s))
            lane.came_at_s = now_s
        self._gap_s_max = max(self._gap_s_max, now_s - (self._came_at_s or now_s))
        self._came_at_s = now_s

    def look(self) -> dict[str, float]:
        """The longest gaps since the last look: of all, and of one publisher's messages."""
        found = {"gap_s": self._gap_s_max, "lane_gap_s": max(lane.gap_s_max for lane in self.lanes)}
        self._gap_s_max = 0.0
        for lane in self.lanes:
            lane.gap_s_max = 0.0
        return found

    def count(self, sent: list[int]) -> dict[str, int]:
        """What is wrong, when each publisher has sent so many."""
        pairs = list(zip(sent, self.lanes, strict=True))
        return {
            "missed": sum(count - lane.next + len(lane.missing) for count, lane in pairs),
            "twice": sum(lane.twice_count for lane in self.lanes),
            "late": sum(lane.late_count for lane in self.lanes),
        }


async def hear(job: Job, link: Link) -> None:
    """Look at every message."""
    books = Books()
    async with mesh_node(job) as node, node.spot() as spot, asyncio.TaskGroup() as tasks:
        subscription = await spot.subscribe(TOPIC, count_max=job.backlog_count)
        await subscription.active(START_S_MAX)
        tasks.create_task(_read(spot, books, link), name="read")
        link.gauges = lambda: {"told": float(subscription.dropped_count + subscription.missed_count)}
        link.ready(**facts())
        while True:
            match await link.order():
                case ["look"]:
                    link.done(**books.look())
                case ["count", *sent]:
                    link.done(**books.count(list(map(int, sent))))


async def _read(spot: Spot, books: Books, link: Link) -> None:
    while True:
        messages = await spot.recv_all()
        books.enter(messages, time.monotonic())
        link.last = messages[-1].payload
        link.count += len(messages)
