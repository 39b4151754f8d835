"""hansa's topics through their public interface: a registry process, and nodes that find each other by it.

Settings: the defaults, heartbeats included, except that a receiver's subscription holds `Job.backlog_count`
messages, as the other peers' buffers do. Each role is a node in a process of its own with one spot. The owner
publishes with `await spot.publish(...)`; receivers iterate over their spot or, as the variant "all", take all
that wait with `recv_all`. An owner does not wait for subscribers: what one of them does not keep up with is
lost to it, and counted.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import hansa.topics.fanout
from bench.job import Job
from bench.link import Link
from bench.load import keep_in_flight, keep_publishing
from hansa import Discovery, Registry, Spot, SpotNode, Store

TOPIC, BACK_TOPIC = "topic", "back"
START_S_MAX = 20.0
POLL_S = 0.01


def facts() -> dict[str, bool]:
    """Whether the modules on the way of a message are compiled."""
    return {"compiled": not (hansa.topics.fanout.__file__ or "").endswith(".py")}


@asynccontextmanager
async def mesh_node(job: Job, store: Store | None = None) -> AsyncIterator[SpotNode]:
    """A node that registers, follows the registry, and knows everyone listed."""
    registries = [f"tcp://{job.second_address}"]
    async with (
        Discovery([f"tcp://{job.address}"]) as discovery,
        SpotNode("tcp://127.0.0.1:0", registries, discovery=discovery, store=store) as node,
    ):
        await node.registered(START_S_MAX)
        await node.in_step(START_S_MAX)
        yield node


async def known(node: SpotNode, topic: str) -> None:
    """Until the node knows an owner of the topic."""
    while topic not in node.topics:  # noqa: ASYNC110 - asked only at the beginning
        await asyncio.sleep(POLL_S)


async def subscribed(node: SpotNode, topic: str, count: int) -> None:
    """Until so many other nodes have subscribed to a topic of this one."""
    while len(node.subscribers(topic)) < count:  # noqa: ASYNC110 - asked only at the beginning
        await asyncio.sleep(POLL_S)


async def broker(job: Job, link: Link) -> None:
    """The registry; no message of a topic goes through it."""
    async with Registry(f"tcp://{job.address}", f"tcp://{job.second_address}"):
        link.ready()
        await asyncio.Event().wait()


async def own(job: Job, link: Link) -> None:
    """Own the topic for a publisher elsewhere."""
    async with mesh_node(job) as node, node.spot() as spot:
        await spot.create_topic(TOPIC)
        link.ready(**facts())
        await asyncio.Event().wait()


async def publish(job: Job, link: Link) -> None:
    """One awaited publish a message, as the owner or, where the case is routed, through the owner."""
    payload = job.payload
    async with mesh_node(job) as node, node.spot() as spot:
        if job.case.kind == "routed":
            await known(node, TOPIC)
        else:
            await spot.create_topic(TOPIC)

        async def send_many(count: int) -> None:
            for _ in range(count):
                await spot.publish(TOPIC, payload)

        link.ready(**facts())
        await keep_publishing(send_many, link)


async def receive(job: Job, link: Link) -> None:
    """Look at every message and count it."""
    async with mesh_node(job) as node, node.spot() as spot:
        subscription = await spot.subscribe(TOPIC, count_max=job.backlog_count)
        await subscription.active(START_S_MAX)
        link.gauges = lambda: {"missed": subscription.missed_count, "dropped": subscription.dropped_count}
        link.ready(**facts())
        if job.peer.variant == "all":
            await _count_all(spot, link)
        async for message in spot:
            link.last = message.payload
            link.count += 1


async def _count_all(spot: Spot, link: Link) -> None:
    while True:
        for message in await spot.recv_all():
            link.last = message.payload
            link.count += 1


async def bounce(job: Job, link: Link) -> None:
    """Publish on one topic what came on another."""
    async with mesh_node(job) as node, node.spot() as spot:
        await spot.create_topic(BACK_TOPIC)
        await spot.subscribe(TOPIC)
        link.ready(**facts())
        async for message in spot:
            await spot.publish(BACK_TOPIC, message.payload)


async def throw(job: Job, link: Link) -> None:
    """Publish on one topic and wait for the other."""
    async with mesh_node(job) as node, node.spot() as spot:
        await spot.create_topic(TOPIC)
        await (await spot.subscribe(BACK_TOPIC)).active(START_S_MAX)
        await subscribed(node, TOPIC, 1)

        async def request(payload: bytes) -> bytes:
            await spot.publish(TOPIC, payload)
            return (await spot.recv()).payload

        link.ready(**facts())
        await keep_in_flight(request, job, link)
