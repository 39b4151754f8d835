"""Who owns what: every peer is told, subscriptions follow, and what was not told is found out."""

import asyncio

import pytest

from hansa import TopicExists
from hansa.errors import NotOwner
from hansa.topics import SubscriptionState, TopicAnnounced, TopicRemoved
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.topics_cast import TopicCast
from tests.support.topics_wire import (
    ANNOUNCE,
    QUERY,
    QUERY_RESP,
    REMOVE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WirePeer,
    mark,
    query_resp,
)

ROOM = "chat:room1"
PENDING, ACTIVE = SubscriptionState.PENDING, SubscriptionState.ACTIVE

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-02")
@pytest.mark.spec("SPT-03")
async def test_every_peer_is_told_what_is_created_and_destroyed_however_it_goes() -> None:
    async with (
        TopicCast() as cast,
        WirePeer(1) as low,
        WirePeer(9) as high,
        asyncio.timeout(WITHIN_S),
    ):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        peers = (low, high)
        for peer in peers:
            await peer.register(registry)
            await peer.meet(node)
        ann, bob = node.spot(), node.spot()

        async def told(command: bytes) -> list[list[str]]:
            for peer in peers:
                await peer.heard_all(node)
            return [[frames[1].decode() for frames in peer.of(command)] for peer in peers]

        for topic in ("a", "b", "c"):
            await ann.create_topic(topic)
        await bob.create_topic("d")
        assert await told(ANNOUNCE) == 2 * [["a", "b", "c", "d"]]
        with pytest.raises(NotOwner, match="d"):
            await ann.destroy_topic("d")
        await ann.destroy_topic("b")
        assert await told(REMOVE) == 2 * [["b"]]
        await ann.close()
        assert await told(REMOVE) == 2 * [["b", "a", "c"]]
        assert node.topics == {"d": node.routing_id}
        # The node goes: its topics first, then its connections.
        await node.close()
        await until(lambda: low.router.peers == high.router.peers == (), "it has left")
        assert [[frames[1] for frames in peer.of(REMOVE)] for peer in peers] == 2 * [[b"b", b"a", b"c", b"d"]]


@pytest.mark.spec("SPT-02")
async def test_who_creates_a_topic_waits_for_the_word_of_a_node_that_has_just_come() -> None:
    async with TopicCast() as cast, WirePeer(9, ROOM) as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        spot = node.spot()
        peer.answers = False
        await peer.register(registry)
        await until(lambda: peer.of(QUERY) != [], "it is asked")
        creating = [asyncio.ensure_future(spot.create_topic(topic)) for topic in (ROOM, "chat:room2")]
        await peer.heard_all(node)
        assert not any(task.done() for task in creating)
        peer.say(node, *query_resp(peer.topics))
        with pytest.raises(TopicExists):
            await creating[0]
        await creating[1]
        assert node.topics == {ROOM: peer.routing_id, "chat:room2": node.routing_id}


@pytest.mark.spec("SPT-02")
async def test_who_never_says_what_it_owns_holds_nobody_up_for_long() -> None:
    async with TopicCast() as cast, WirePeer(9, ROOM) as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        spot = node.spot()
        peer.answers = False
        await peer.register(registry)
        await until(lambda: peer.of(QUERY) != [], "it is asked")
        await spot.create_topic(ROOM)
        assert node.owned == (ROOM,)


@pytest.mark.spec("SPT-03")
async def test_destroying_a_spot_or_a_node_destroys_its_topics_for_all_other_nodes() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        one, other = await cast.mesh(await cast.registry(), 1, 2)
        events = cast.heard(other)
        ann, bob = one.spot(), one.spot()
        watching = other.spot()
        subscriptions = {}
        for spot, topic in ((ann, "a"), (bob, "b")):
            await spot.create_topic(topic)
            subscriptions[topic] = await watching.subscribe(topic)
            await subscriptions[topic].active()
        await ann.close()
        await subscriptions["a"].pending()
        assert subscriptions["b"].state is ACTIVE
        await one.close()
        await subscriptions["b"].pending()
        assert other.topics == {}
        assert [event.topic for event in events.of(TopicAnnounced)] == ["a", "b"]
        assert [event.topic for event in events.of(TopicRemoved)] == ["a", "b"]


@pytest.mark.spec("SPT-04")
async def test_a_subscription_is_active_when_the_owner_has_confirmed_it_and_not_before() -> None:
    async with TopicCast() as cast, WirePeer(9, ROOM, is_hansa=True) as owner, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        await owner.register(registry)
        await owner.meet(node)
        spot = node.spot()
        subscription = await spot.subscribe(ROOM)
        await owner.heard_all(node)
        assert (subscription.state, owner.asked) == (PENDING, [(SUBSCRIBE, ROOM)])
        # An announcement that confirms nothing is no confirmation.
        owner.say(node, ANNOUNCE, ROOM.encode(), mark(7, 0))
        await owner.heard_all(node)
        assert subscription.state is PENDING
        owner.say(node, ANNOUNCE, ROOM.encode(), mark(7, 0, confirm=True))
        await subscription.active()
        assert subscription.topics == {ROOM: ACTIVE}
        owner.say(node, REMOVE, ROOM.encode())
        await subscription.pending()
        assert subscription.topics == {ROOM: PENDING}
        assert len(owner.asked) == 1


@pytest.mark.spec("SPT-04")
async def test_a_late_confirmation_of_an_earlier_subscription_is_none() -> None:
    async with TopicCast() as cast, WirePeer(9, ROOM, is_hansa=True) as owner, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        await owner.register(registry)
        await owner.meet(node)
        spot = node.spot()
        await spot.subscribe(ROOM)
        await spot.unsubscribe(ROOM)
        subscription = await spot.subscribe(ROOM)
        await owner.heard_all(node)
        assert owner.asked == [(SUBSCRIBE, ROOM), (UNSUBSCRIBE, ROOM), (SUBSCRIBE, ROOM)]
        # The answer to the first: between it and the second the owner had nobody to send to.
        owner.say(node, ANNOUNCE, ROOM.encode(), mark(7, 40, confirm=True))
        await owner.heard_all(node)
        assert subscription.state is PENDING
        owner.say(node, ANNOUNCE, ROOM.encode(), mark(7, 45, confirm=True))
        await subscription.active()
        assert subscription.missed_count == 0


@pytest.mark.spec("SPT-11")
@pytest.mark.parametrize("number", [1, 9], ids=["the peer dials", "the node dials"])
async def test_on_connect_both_sides_ask_and_both_know_all_topics(number: int) -> None:
    theirs = [f"theirs:{n}" for n in range(50)]
    async with TopicCast() as cast, WirePeer(number, *theirs) as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        spot = node.spot()
        mine = [f"mine:{n}" for n in range(50)]
        for topic in mine:
            await spot.create_topic(topic)
        await peer.register(registry)
        await peer.meet(node)
        # The first thing that either says is QUERY.
        assert peer.heard[0][1][0] == QUERY
        (answer,) = peer.of(QUERY_RESP)
        assert (answer[1], sorted(frame.decode() for frame in answer[2:52])) == (b"\x32\0\0\0", sorted(mine))
        assert {topic for topic, owner in node.topics.items() if owner == peer.routing_id} == set(theirs)
        assert {topic for topic, owner in node.topics.items() if owner == node.routing_id} == set(mine)


@pytest.mark.spec("SPT-11")
async def test_what_a_peer_forgot_to_tell_is_found_out_by_asking_again() -> None:
    async with TopicCast() as cast, WirePeer(9, "a", "b") as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5, query_interval=0.05)
        await peer.register(registry)
        await peer.meet(node)
        lost, found = await node.spot().subscribe("a"), await node.spot().subscribe("c")
        assert (lost.state, found.state) == (ACTIVE, PENDING)
        peer.topics = ["b", "c"]
        await found.active()
        await lost.pending()
        assert node.topics == {"b": peer.routing_id, "c": peer.routing_id}
