"""The unit tests that the specification names (seed 000, 9.1), under its names, on TCP with a real registry.

Where a test asks what nodes send each other, one of the nodes is played by hand and keeps what it gets.
"""

import asyncio
from errno import EEXIST, ENOENT

import pytest

from hansa import NoOwner, SubscriptionActivated, SubscriptionSuspended, TimedOut, TopicExists
from hansa.topics import SubscriptionState, TopicDemoted
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.topics_cast import TopicCast, meshed, messages, numbered, payloads, waiting
from tests.support.topics_wire import (
    ANNOUNCE,
    MESSAGE,
    PUBLISH,
    QUERY,
    REMOVE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WirePeer,
    message,
)

ROOM = "chat:room1"
PENDING, ACTIVE = SubscriptionState.PENDING, SubscriptionState.ACTIVE

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-02")
async def test_spot_topic_unique() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        one, other = await cast.mesh(await cast.registry(), 1, 2)
        ann, bob, cyd = one.spot("ann"), one.spot("bob"), other.spot("cyd")
        await ann.create_topic(ROOM)
        await until(lambda: ROOM in other.topics, "the other node has heard of it")
        for spot in (ann, bob, cyd):
            with pytest.raises(TopicExists, match=ROOM) as refused:
                await spot.create_topic(ROOM)
            assert refused.value.errno == EEXIST
        assert one.topics == other.topics == {ROOM: one.routing_id}
        assert (ann.owned, bob.owned, cyd.owned, other.owned) == ((ROOM,), (), (), ())
        # It is free again for anybody when it is destroyed.
        await ann.destroy_topic(ROOM)
        await until(lambda: not other.topics, "the other node has heard of that, too")
        await cyd.create_topic(ROOM)
        assert other.topics == {ROOM: other.routing_id}


@pytest.mark.spec("SPT-04")
async def test_spot_pending_subscribe() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        one, other = await cast.mesh(await cast.registry(), 1, 2)
        subscription = await one.spot().subscribe(ROOM)
        assert subscription.state is PENDING
        await subscription.pending(timeout=0)
        with pytest.raises(TimedOut, match=ROOM):
            await subscription.active(timeout=0.01)
        assert one.wanted == {ROOM: 1}
        # An owner appears, elsewhere: nobody has to subscribe again.
        await other.spot().create_topic(ROOM)
        await subscription.active()
        assert (subscription.state, other.subscribers(ROOM)) == (ACTIVE, (one.routing_id,))


@pytest.mark.spec("SPT-05")
async def test_spot_publish_no_owner() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        one, other = await cast.mesh(await cast.registry(), 1, 2)
        alone = await cast.local()
        for node in (one, alone):
            spot = node.spot()
            subscription = await spot.subscribe(ROOM)
            for publish in (spot.publish, spot.post):
                with pytest.raises(NoOwner, match=ROOM) as refused:
                    done = publish(ROOM, b"hello")
                    if done is not None:
                        await done
                assert refused.value.errno == ENOENT
            assert (waiting(spot), subscription.received_count) == ([], 0)
        # An owner that has gone is none either.
        owner = other.spot()
        await owner.create_topic(ROOM)
        await until(lambda: ROOM in one.topics, "it is known")
        await one.spot().publish(ROOM, b"hello")
        await owner.destroy_topic(ROOM)
        await until(lambda: ROOM not in one.topics, "it is gone")
        with pytest.raises(NoOwner):
            await one.spot().publish(ROOM, b"hello")


@pytest.mark.spec("SPT-05")
async def test_spot_local_fanout() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        node = await cast.node(await cast.registry())
        owner, *others = (node.spot() for _ in range(21))
        await owner.create_topic(ROOM)
        subscribed, deaf = others[:15], others[15:]
        for spot in (owner, *subscribed):
            subscription = await spot.subscribe(ROOM)
            # Here nobody has to be asked.
            assert subscription.state is ACTIVE
        await owner.publish(ROOM, b"by the owner")
        await deaf[0].publish(ROOM, b"by another")
        for spot in (owner, *subscribed):
            got = await messages(spot, 2)
            assert [(one.topic, one.payload) for one in got] == [
                (ROOM, b"by the owner"),
                (ROOM, b"by another"),
            ]
        assert [waiting(spot) for spot in (owner, *others)] == [[]] * 21


@pytest.mark.spec("SPT-05")
@pytest.mark.spec("SPT-22")
async def test_spot_remote_fanout() -> None:
    count = 200
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        home, *away = await cast.mesh(await cast.registry(), 2, 1, 3, 4)
        owner = home.spot()
        await owner.create_topic(ROOM)
        subscribed = [node.spot() for node in (home, *away[:2]) for _ in range(3)]
        for spot in subscribed:
            await (await spot.subscribe(ROOM)).active()
        for payload in numbered(range(count)):
            await owner.publish(ROOM, payload)
        # Anybody else's goes through the owner, whether its node is subscribed or not.
        for node in (away[0], away[2]):
            spot = node.spot()
            for payload in numbered(range(count, 2 * count)):
                await spot.publish(ROOM, payload)
        for spot in subscribed:
            got = await messages(spot, 3 * count)
            assert [one.payload for one in got[:count]] == numbered(range(count))
            assert [one.sequence for one in got] == list(range(got[0].sequence, got[0].sequence + 3 * count))
            # What two publish at once comes in any order, each one's in its own.
            rest = [one.payload for one in got[count:]]
            assert sorted(rest) == sorted(2 * numbered(range(count, 2 * count)))
            assert waiting(spot) == []
        assert set(home.subscribers(ROOM)) == {node.routing_id for node in away[:2]}


@pytest.mark.spec("SPT-08")
async def test_spot_refcount_subscribe() -> None:
    async with TopicCast() as cast, WirePeer(9, ROOM, "chat:room2") as owner, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        await owner.register(registry)
        await owner.meet(node)
        ann, bob, cyd = (node.spot() for _ in range(3))
        # 0 -> 1 asks the owner; 1 -> 2 and 2 -> 3 do not, whether by name or by pattern.
        await ann.subscribe(ROOM)
        await owner.heard_all(node)
        assert owner.asked == [(SUBSCRIBE, ROOM)]
        await bob.subscribe(ROOM)
        await ann.subscribe(ROOM)
        await cyd.subscribe("chat:room1*")
        await owner.heard_all(node)
        assert owner.asked == [(SUBSCRIBE, ROOM)]
        assert node.wanted == {ROOM: 3}
        # Nor do 3 -> 2 and 2 -> 1; 1 -> 0 does.
        await ann.unsubscribe(ROOM)
        await bob.close()
        await owner.heard_all(node)
        assert owner.asked == [(SUBSCRIBE, ROOM)]
        await cyd.unsubscribe("chat:room1*")
        await owner.heard_all(node)
        assert owner.asked == [(SUBSCRIBE, ROOM), (UNSUBSCRIBE, ROOM)]
        assert node.wanted == {}
        # And from the beginning, at once: only what is left in the end may matter, and that is one of each.
        await cyd.subscribe(ROOM)
        await ann.subscribe(ROOM)
        await ann.close()
        await cyd.close()
        await owner.heard_all(node)
        assert owner.asked[2:] == [(SUBSCRIBE, ROOM), (UNSUBSCRIBE, ROOM)]


@pytest.mark.spec("SPT-07")
@pytest.mark.spec("SPT-08")
@pytest.mark.spec("SPT-09")
async def test_spot_pattern_subscribe() -> None:
    known = ["zone:12:state", "zone:12", "zone:13:state", "Zone:12:state", "a:zone:12:state"]
    async with TopicCast() as cast, WirePeer(9, *known) as owner, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        await owner.register(registry)
        await owner.meet(node)
        spot = node.spot()
        # What is known already, and only what begins with "zone:12:".
        pattern = await spot.subscribe_pattern("zone:12:*")
        await owner.heard_all(node)
        assert owner.asked == [(SUBSCRIBE, "zone:12:state")]
        assert pattern.topics == {"zone:12:state": ACTIVE}
        # What comes later.
        for topic in ("zone:12:events", "zone:14:events", "zone:12:"):
            owner.say(node, ANNOUNCE, topic.encode())
        await owner.heard_all(node)
        assert owner.asked[1:] == [(SUBSCRIBE, "zone:12:events"), (SUBSCRIBE, "zone:12:")]
        assert set(pattern.topics) == {"zone:12:state", "zone:12:events", "zone:12:"}
        # A spot that is matched twice receives once, by its exact subscription; and asks nothing anew.
        exact = await spot.subscribe("zone:12:state")
        owner.say(node, *message("zone:12:state", b"1"))
        owner.say(node, *message("zone:12:events", b"2"))
        assert await payloads(spot, 2) == [b"1", b"2"]
        assert waiting(spot) == []
        assert (exact.received_count, pattern.received_count) == (1, 1)
        # What is taken back with the pattern is what nobody else wants.
        await spot.unsubscribe("zone:12:*")
        await owner.heard_all(node)
        assert sorted(owner.asked[3:]) == [(UNSUBSCRIBE, "zone:12:"), (UNSUBSCRIBE, "zone:12:events")]
        await spot.unsubscribe("zone:12:state")
        await owner.heard_all(node)
        assert owner.asked[5:] == [(UNSUBSCRIBE, "zone:12:state")]


@pytest.mark.spec("SPT-12")
async def test_spot_owner_conflict() -> None:
    async with TopicCast() as cast, WirePeer(9) as witness, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        low, high = await cast.mesh(registry, 1, 2)
        await witness.register(registry)
        await meshed_with(witness, low, high)
        # Both create it in the same moment: neither can know of the other.
        ann, bob = low.spot(), high.spot()
        heard = cast.heard(bob)
        mine = await ann.subscribe(ROOM)
        theirs = await bob.subscribe(ROOM)
        await asyncio.gather(ann.create_topic(ROOM), bob.create_topic(ROOM))
        assert (ann.owned, bob.owned) == ((ROOM,), (ROOM,))
        # The lower id wins. The loser's spot is told, and its topic is the winner's now.
        demoted = await heard.wait(TopicDemoted)
        assert (demoted.topic, demoted.winner) == (ROOM, low.routing_id)
        assert (high.owned, bob.owned, low.owned) == ((), (), (ROOM,))
        assert low.topics == high.topics == {ROOM: low.routing_id}
        await theirs.active()
        # What the loser publishes goes to the winner, who brings it to everybody.
        await bob.publish(ROOM, b"hello")
        assert await payloads(mine, 1) == await payloads(theirs, 1) == [b"hello"]
        assert low.subscribers(ROOM) == (high.routing_id,)
        # Nobody was told of a removal, and both claims were announced.
        await witness.heard_all(high)
        assert witness.of(REMOVE) == []
        assert [peer for peer, frames in witness.heard if frames[0] == ANNOUNCE] == [
            low.routing_id,
            high.routing_id,
        ]


@pytest.mark.spec("SPT-12")
async def test_a_node_loses_against_a_lower_id_on_the_wire_and_wins_against_a_higher_one() -> None:
    async with (
        TopicCast() as cast,
        WirePeer(1) as low,
        WirePeer(9) as high,
        asyncio.timeout(WITHIN_S),
    ):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        for peer in (low, high):
            await peer.register(registry)
            await peer.meet(node)
        spot = node.spot()
        heard = cast.heard(spot)
        await spot.create_topic(ROOM)
        subscription = await spot.subscribe(ROOM)
        # The higher id claims it: nothing changes, and nothing is said to it.
        high.say(node, ANNOUNCE, ROOM.encode())
        await high.heard_all(node)
        assert (node.topics, spot.owned) == ({ROOM: node.routing_id}, (ROOM,))
        assert [frames[0] for _, frames in high.heard if frames[0] not in (QUERY, b"\x05")] == [ANNOUNCE]
        # The lower id claims it: the node is demoted, subscribes there, and publishes go there.
        low.say(node, ANNOUNCE, ROOM.encode())
        demoted = await heard.wait(TopicDemoted)
        assert (demoted.topic, demoted.winner) == (ROOM, low.routing_id)
        await spot.publish(ROOM, b"hello")
        await low.heard_all(node)
        assert low.asked == [(SUBSCRIBE, ROOM)]
        assert low.of(PUBLISH) == [[PUBLISH, ROOM.encode(), b"hello"]]
        assert waiting(spot) == []
        low.say(node, *message(ROOM, b"hello"))
        assert await payloads(subscription, 1) == [b"hello"]
        assert low.of(REMOVE) == high.of(REMOVE) == []
        # A message of who is not the owner is nothing that was asked for.
        high.say(node, *message(ROOM, b"forged"))
        await high.heard_all(node)
        assert (waiting(spot), high.of(MESSAGE)) == ([], [])


@pytest.mark.spec("SPT-04")
@pytest.mark.spec("SPT-13")
async def test_spot_pending_reactivate() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        spot = node.spot()
        heard = cast.heard(spot)
        subscription = await spot.subscribe(ROOM)
        pattern = await spot.subscribe("chat:*")
        # Three owners, one after another: each goes in its own way.
        for number, way in enumerate(("the topic is destroyed", "its spot is closed", "its node is closed")):
            other = await cast.node(registry, 1 + 8 * (number % 2))
            await meshed(node, other)
            owner = other.spot()
            await owner.create_topic(ROOM)
            await subscription.active()
            await pattern.active()
            await owner.publish(ROOM, way.encode())
            assert await payloads(subscription, 1) == [way.encode()]
            if way == "the topic is destroyed":
                await owner.destroy_topic(ROOM)
            elif way == "its spot is closed":
                await owner.close()
            else:
                await other.close()
            await subscription.pending()
            await pattern.pending()
            await other.close()
            assert (subscription.state, node.topics) == (PENDING, {})
            await until(lambda: node.peers == (), "that node has left")
        kinds = [type(event) for event in heard.events if getattr(event, "subscription", None) == ROOM]
        assert kinds == 3 * [SubscriptionActivated, SubscriptionSuspended]
        assert waiting(spot) == []


async def meshed_with(witness: WirePeer, *nodes: object) -> None:
    for node in nodes:
        await witness.meet(node)  # type: ignore[arg-type]
