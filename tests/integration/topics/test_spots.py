"""Spots as a program uses them: a thousand of them, what they receive, and how they end."""

import asyncio
import os
from errno import EAGAIN, EINVAL

import pytest

from hansa import SpotNode, TopicMessage, UsageError
from hansa.errors import AlreadyClosed, BadArgument, WouldBlock
from hansa.limits import PUBLISH_TURN_COUNT
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.topics_cast import NODES, TopicCast, messages, payloads, waiting
from tests.support.topics_wire import (
    REMOVE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WirePeer,
    message,
)

ROOM = "chat:room1"

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-01")
@pytest.mark.spec("SPT-08")
async def test_a_thousand_spots_hold_no_sockets_and_share_one_subscription() -> None:
    async with TopicCast() as cast, WirePeer(9, ROOM) as owner, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        await owner.register(registry)
        await owner.meet(node)
        before = len(os.listdir("/proc/self/fd"))
        spots = [node.spot() for _ in range(1_000)]
        for number, spot in enumerate(spots):
            await spot.create_topic(f"spot:{number}")
            await spot.subscribe(ROOM)
            await spot.subscribe(f"spot:{(number + 1) % 1_000}")
        assert len(os.listdir("/proc/self/fd")) == before
        # One message on the wire is one in each of them.
        owner.say(node, *message(ROOM, b"to all"))
        for spot in spots:
            assert await payloads(spot, 1) == [b"to all"]
        for number, spot in enumerate(spots):
            await spot.publish(f"spot:{number}", b"%d" % number)
        for number, spot in enumerate(spots):
            assert await payloads(spot, 1) == [b"%d" % ((number + 1) % 1_000)]
            await spot.close()
        await owner.heard_all(node)
        assert owner.asked == [(SUBSCRIBE, ROOM), (UNSUBSCRIBE, ROOM)]
        assert (node.owned, node.wanted) == ((), {})
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.spec("SPT-09")
async def test_unsubscribe_takes_a_name_or_a_pattern_and_nothing_else() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        one, other = await cast.mesh(await cast.registry(), 1, 2)
        owner, spot = one.spot(), other.spot()
        await owner.create_topic("zone:12:state")
        for text in ("zone:12:state", "zone:*", "*"):
            await (await spot.subscribe(text)).active()
        assert [one.text for one in spot.subscriptions] == ["zone:12:state", "zone:*", "*"]
        for text in ("zone:12", "zone:12:*", "zone:12:state*"):
            with pytest.raises(BadArgument, match="zone") as refused:
                await spot.unsubscribe(text)
            assert refused.value.errno == EINVAL
        # Each takes over from the one before; with the last nothing comes any more.
        for number, text in enumerate(("zone:12:state", "zone:*", "*")):
            await owner.publish("zone:12:state", b"%d" % number)
            assert await payloads(spot, 1) == [b"%d" % number]
            await spot.unsubscribe(text)
        await until(lambda: one.subscribers("zone:12:state") == (), "the owner has been told")
        assert (spot.subscriptions, other.wanted) == ((), {})
        await owner.publish("zone:12:state", b"to nobody")
        assert waiting(spot) == []


@pytest.mark.spec("SPT-10")
async def test_messages_are_received_one_by_one_all_at_once_or_by_iteration() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        one, other = await cast.mesh(await cast.registry(), 1, 2)
        owner, spot = one.spot(), other.spot()
        for topic in ("a", "b"):
            await owner.create_topic(topic)
            await (await spot.subscribe(topic)).active()
        with pytest.raises(WouldBlock) as nothing:
            spot.recv_nowait()
        assert nothing.value.errno == EAGAIN
        await owner.publish("a", b"")
        await owner.publish("b", b"\x00\xff" * 50_000)
        await owner.publish("a", b"third")
        assert [(m.topic, m.payload) for m in await messages(spot, 3)] == [
            ("a", b""),
            ("b", b"\x00\xff" * 50_000),
            ("a", b"third"),
        ]
        # All that wait, but at least one.
        asking = asyncio.ensure_future(spot.recv_all())
        await owner.publish("a", b"1")
        got = await asking
        assert [m.payload for m in got] == [b"1"]
        await owner.publish("b", b"2")
        got = [await spot.recv()]
        for number in range(3, 10):
            await owner.publish("a", b"%d" % number)
        while len(got) < 8:
            got += await spot.recv_all()
        assert [m.payload for m in got] == [b"%d" % number for number in range(2, 10)]
        assert [m.sequence for m in got[1:]] == list(range(got[1].sequence, got[1].sequence + 7))

        # Iteration ends with the spot.
        found: list[TopicMessage] = []

        async def read() -> None:
            async for message in spot:
                found.append(message)

        reading = asyncio.ensure_future(read())
        await owner.publish("b", b"last")
        await until(lambda: len(found) == 1, "it is read")
        await spot.close()
        await reading
        assert found[0].payload == b"last"


@pytest.mark.spec("SPT-17")
async def test_closing_a_node_closes_its_spots_in_order_and_everything_later_says_so() -> None:
    async with TopicCast() as cast, WirePeer(9) as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        await peer.register(registry)
        await peer.meet(node)
        spots = [node.spot(f"spot {number}") for number in range(5)]
        for number, spot in enumerate(spots):
            await spot.create_topic(f"topic:{number}")
        subscription = await spots[0].subscribe("*")
        receiving = [asyncio.ensure_future(spot.recv()) for spot in spots]
        await asyncio.sleep(0)  # So that all of them wait.
        await node.close()
        for spot, task in zip(spots, receiving, strict=True):
            with pytest.raises(AlreadyClosed, match=spot.name):
                await task
            assert spot.is_closed
        assert [frames[1] for frames in peer.of(REMOVE)] == [b"topic:%d" % number for number in range(5)]
        assert [one.routing_id for one in registry.services[NODES]] == [peer.routing_id]
        spot = spots[0]
        for call in (
            lambda: spot.create_topic("x"),
            lambda: spot.destroy_topic("topic:0"),
            lambda: spot.publish("topic:0", b""),
            lambda: spot.subscribe("x"),
            lambda: spot.subscribe_pattern("*"),
            lambda: spot.unsubscribe("*"),
            spot.recv,
            spot.recv_all,
            subscription.recv,
            subscription.active,
        ):
            with pytest.raises(AlreadyClosed, match="spot 0"):
                await call()
        with pytest.raises(AlreadyClosed):
            spot.recv_nowait()
        with pytest.raises(AlreadyClosed):
            spot.post("topic:0", b"")
        # Closing again does nothing; a closed node makes no spots, and is not entered again.
        await spot.close()
        await node.close()
        with pytest.raises(AlreadyClosed):
            node.spot()
        with pytest.raises(UsageError):
            await node.__aenter__()


@pytest.mark.spec("SPT-17")
async def test_a_closed_spot_publishes_to_no_topic_of_another_spot_either() -> None:
    async with SpotNode() as node, node.spot() as owner, asyncio.timeout(WITHIN_S):
        await owner.create_topic(ROOM)
        closed, resting = node.spot("closed"), node.spot("resting")
        await closed.close()
        with pytest.raises(AlreadyClosed, match="closed"):
            await closed.publish(ROOM, b"")
        with pytest.raises(AlreadyClosed, match="closed"):
            closed.post(ROOM, b"")
        for _ in range(PUBLISH_TURN_COUNT):
            await resting.publish(ROOM, b"")
        publishing = asyncio.ensure_future(resting.publish(ROOM, b""))
        await asyncio.sleep(0)  # So that it rests.
        await resting.close()
        with pytest.raises(AlreadyClosed, match="resting"):
            await publishing
        assert node.stats.published_count == PUBLISH_TURN_COUNT


@pytest.mark.spec("SPT-17")
async def test_a_node_is_used_only_after_it_was_entered() -> None:
    node = SpotNode()
    with pytest.raises(UsageError, match="async with"):
        await node.spot().create_topic(ROOM)
