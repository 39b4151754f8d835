"""The same mesh on both event loops: nothing depends on which one it is, and nothing is left behind."""

import asyncio
import gc

import pytest

from hansa import NoOwner
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.leftovers import alive
from tests.support.topics_cast import TopicCast, meshed, numbered, payloads

COUNT = 5_000

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-05")
@pytest.mark.spec("SPT-13")
async def test_topics_work_on_this_loop() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        home, away = await cast.mesh(registry, 1, 2)
        owner, spot = home.spot(), away.spot()
        await owner.create_topic("zone:12")
        subscription = await spot.subscribe("zone:*", count_max=2 * COUNT)
        mine = await owner.subscribe("zone:12", count_max=2 * COUNT)
        await subscription.active()
        for payload in numbered(range(COUNT)):
            await spot.publish("zone:12", payload)
        assert await payloads(mine, COUNT) == await payloads(subscription, COUNT) == numbered(range(COUNT))
        for payload in numbered(range(COUNT)):
            await owner.publish("zone:12", payload)
        assert await payloads(mine, COUNT) == await payloads(subscription, COUNT) == numbered(range(COUNT))
        await home.close()
        await subscription.pending()
        with pytest.raises(NoOwner):
            await spot.publish("zone:12", b"")
        again = await cast.node(registry, 1)
        await meshed(again, away)
        await again.spot().create_topic("zone:12")
        await subscription.active()
        await spot.publish("zone:12", b"again")
        assert await payloads(subscription, 1) == [b"again"]
        assert (subscription.missed_count, subscription.dropped_count) == (0, 0)


@pytest.mark.spec("SPT-17")
async def test_a_closed_node_leaves_nothing_behind() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        home = await cast.node(registry, 1)
        gc.collect()
        before = alive()
        async with TopicCast() as inner:
            away = await inner.node(registry, 2)
            await meshed(home, away)
            spot = away.spot()
            await spot.create_topic("zone:12")
            await (await home.spot().subscribe("zone:12")).active()
            await spot.subscribe("*")
        await until(lambda: home.peers == (), "it has left")
        await until(lambda: len(registry.services["spot-node"]) == 1, "it is not listed any more")
        await until(lambda: alive().descriptors <= before.descriptors, "its connections are closed")
        await until(lambda: alive().tasks <= before.tasks, "its tasks have ended, and those who dialled it")
        assert alive().threads <= before.threads
