"""What `active` promises, what a retained topic gives to who comes later, and tables of many topics."""

import asyncio
from typing import Any

import pytest

from hansa.ids import routing_id
from hansa.topics import SubscriptionState
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.reserved_ports import reserved_endpoints
from tests.support.tcp_proxy import TcpProxy
from tests.support.topics_cast import TopicCast, meshed, payloads, waiting
from tests.support.topics_processes import NodeProcess

ROOM = "chat:room1"

pytestmark = pytest.mark.timeout(100)


@pytest.mark.spec("SPT-04")
@pytest.mark.parametrize("numbers", [(1, 2), (2, 1)], ids=["the owner dials", "the owner is dialled"])
async def test_nothing_published_after_active_is_lost_however_often_it_is_tried(
    numbers: tuple[int, int],
) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        home, away = await cast.mesh(await cast.registry(), *numbers)
        owner = home.spot()
        await owner.create_topic(ROOM)
        for number in range(300):
            spot = away.spot()
            subscription = await spot.subscribe(ROOM if number % 2 else "chat:*")
            # Whatever is published before the confirmation may or may not come, but nothing after it is lost.
            owner.post(ROOM, b"early")
            await subscription.active()
            for part in range(3):
                owner.post(ROOM, b"%d" % part)
            got: list[bytes] = []
            while got[-1:] != [b"2"]:
                got += await payloads(subscription, 1)
            assert got[-3:] == [b"0", b"1", b"2"]
            assert got[:-3] in ([], [b"early"])
            await spot.close()
        assert home.subscribers(ROOM) in ((), (away.routing_id,))


@pytest.mark.spec("SPT-04")
async def test_nothing_is_lost_when_the_topic_comes_after_the_subscription() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        home, away = await cast.mesh(await cast.registry(), 1, 2)
        spot = away.spot()
        subscription = await spot.subscribe("chat:*")
        for number in range(200):
            owner = home.spot()
            await owner.create_topic(ROOM)
            await subscription.active()
            await owner.publish(ROOM, b"%d" % number)
            assert await payloads(subscription, 1) == [b"%d" % number]
            await owner.close()
            await subscription.pending()
        assert waiting(spot) == []
        assert subscription.missed_count == 0


async def test_the_latest_message_of_a_retained_topic_comes_to_who_subscribes_later_and_comes_once() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        home, away = await cast.mesh(await cast.registry(), 1, 2)
        owner = home.spot()
        await owner.create_topic("kept", retain=True)
        await owner.create_topic("not kept")
        for topic in ("kept", "not kept"):
            for payload in (b"old", b"latest"):
                await owner.publish(topic, payload)
        subscribed = []
        # At another node, at another spot of that node, and at the owner's own.
        for node in (away, away, home):
            spot = node.spot()
            both = [await spot.subscribe(topic) for topic in ("kept", "not kept")]
            for subscription in both:
                await subscription.active()
            assert await payloads(both[0], 1) == [b"latest"]
            assert [one.missed_count for one in both] == [0, 0]
            subscribed.append(both[0])
        await owner.publish("kept", b"new")
        # What this node keeps is as old as what it got last.
        assert await payloads(subscribed[0], 1) == [b"new"]
        late = await away.spot().subscribe("k*")
        await late.active()
        assert await payloads(late, 1) == [b"new"]
        # Routed publishes are kept as well.
        await away.spot().publish("kept", b"routed")
        assert await payloads(late, 1) == [b"routed"]
        third = await away.spot().subscribe("kept")
        await third.active()
        assert await payloads(third, 1) == [b"routed"]
        assert waiting(late) == waiting(third) == []


async def test_a_retained_topic_after_a_cut_brings_the_latest_message_and_counts_the_others() -> None:
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast, TcpProxy(bind) as proxy, asyncio.timeout(WITHIN_S):
            registry = await cast.registry()
            through: dict[str, Any] = {"bind": bind, "advertise": proxy.endpoint}
            home, away = await cast.node(registry, 1), await cast.node(registry, 2, **through)
            await meshed(home, away)
            owner = home.spot()
            await owner.create_topic("kept", retain=True)
            subscription = await away.spot().subscribe("kept")
            await subscription.active()
            await owner.publish("kept", b"before")
            assert await payloads(subscription, 1) == [b"before"]
            # Nothing is published while it is away: nothing is repeated.
            proxy.refuse()
            await subscription.pending()
            proxy.forward()
            await subscription.active()
            proxy.refuse()
            await subscription.pending()
            await until(lambda: home.subscribers("kept") == (), "the owner knows")
            for payload in (b"1", b"2", b"3"):
                await owner.publish("kept", payload)
            proxy.forward()
            await subscription.active()
            assert await payloads(subscription, 1) == [b"3"]
            assert (subscription.received_count, subscription.missed_count) == (2, 2)
            assert waiting(subscription) == []


@pytest.mark.spec("SPT-11")
async def test_a_node_with_sixty_five_thousand_topics_tells_them_all() -> None:
    count = 65_000
    async with TopicCast() as cast, asyncio.timeout(4 * WITHIN_S):
        registry = await cast.registry(heartbeat_timeout=60.0)
        async with NodeProcess(1, str(registry.pub), str(registry.router)) as owner:
            await owner.ready()
            await owner.do("create_many", prefix="zone:", count=count)
            node = await cast.node(registry, 2, join_timeout=WITHIN_S)
            # Entering has waited for them.
            topics = node.topics
            assert topics == dict.fromkeys((f"zone:{number}" for number in range(count)), routing_id(1))
            spot = node.spot()
            few = await spot.subscribe("zone:6499*")
            await few.active()
            # 6499 itself, and 64990 to 64999.
            assert len(few.topics) == 11
            await spot.publish("zone:64999", b"hello")
            assert await payloads(few, 1) == [b"hello"]
            assert few.state is SubscriptionState.ACTIVE
        # All go with their owner.
        await few.pending()
        assert node.topics == {}
