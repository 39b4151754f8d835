"""Topics that go from node to node over real sockets while they are used, with a store that says who owns."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from hansa import Store, open_store
from tests.support.discovery_cast import WITHIN_S
from tests.support.topics_cast import TopicCast, payloads

ROOM = "chat:room/1 100%"

pytestmark = [pytest.mark.timeout(60)]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store(f"memory://{uuid4()}") as store:
        yield store


async def test_a_topic_moves_and_its_publishers_and_subscribers_go_on(store: Store) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        nodes = await cast.mesh(registry, 1, 5, 9, store=store)
        spots = [node.spot() for node in nodes]
        subscriptions = [await spot.subscribe(ROOM) for spot in spots]
        await spots[0].create_topic(ROOM, retain=True)
        for subscription in subscriptions:
            await subscription.active()
        for spot in spots:
            await spot.publish(ROOM, b"before")
        record = await spots[0].hand_over(ROOM, to=nodes[2].routing_id, reason="a test")
        assert (spots[0].owned, nodes[2].owned, nodes[2].heir.owned) == ((), (ROOM,), (ROOM,))
        assert record.reason == "a test"
        for spot in spots:
            await spot.publish(ROOM, b"after")
        for subscription in subscriptions:
            assert await payloads(subscription, 6) == [b"before"] * 3 + [b"after"] * 3
