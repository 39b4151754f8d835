"""Nodes and spots as a program uses them: many spots, owners that go, clusters, failover, lifetimes."""

import asyncio
import os
from collections import Counter
from contextlib import AsyncExitStack
from errno import EAGAIN, EINVAL
from pathlib import Path

import pytest

from hansa import (
    AlreadyClosed,
    BadArgument,
    NotOwner,
    PeerJoined,
    PeerLeft,
    SpotNode,
    SubscriptionState,
    TopicAnnounced,
    TopicMessage,
    TopicRemoved,
    TopicReport,
    UsageError,
    WouldBlock,
)
from tests.support.discovery_cast import ANY, WITHIN_S, until
from tests.support.discovery_processes import RegistryProcess
from tests.support.reserved_ports import reserved_endpoints
from tests.support.topics_cast import NODES, TopicCast, meshed, messages, payloads, waiting
from tests.support.topics_wire import (
    ANNOUNCE,
    QUERY,
    QUERY_RESP,
    REMOVE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    WirePeer,
    mark,
    message,
)

ROOM = "chat:room1"
PENDING, ACTIVE = SubscriptionState.PENDING, SubscriptionState.ACTIVE

pytestmark = pytest.mark.timeout(60)


# ---- spots -----------------------------------------------------------------------------------------------


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


# ---- owners ----------------------------------------------------------------------------------------------


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
        node = await cast.node(registry, 5, query_interval_s=0.05)
        await peer.register(registry)
        await peer.meet(node)
        lost, found = await node.spot().subscribe("a"), await node.spot().subscribe("c")
        assert (lost.state, found.state) == (ACTIVE, PENDING)
        peer.topics = ["b", "c"]
        await found.active()
        await lost.pending()
        assert node.topics == {"b": peer.routing_id, "c": peer.routing_id}


# ---- peers -----------------------------------------------------------------------------------------------


@pytest.mark.spec("SPT-14")
async def test_peers_come_and_go_with_the_list_and_with_nothing_else() -> None:
    async with TopicCast() as cast, WirePeer(9, ROOM) as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        events = cast.heard(node)
        for _ in range(2):
            await until(lambda: not node.peers, "nobody is there")
            await peer.register(registry)
            await peer.meet(node)
            await until(lambda: node.topics == {ROOM: peer.routing_id}, "its topics are known")
            assert node.peers == (peer.routing_id,)
            await peer.unregister()
            await until(lambda: peer.router.peers == (), "the node has hung up")
            await until(lambda: node.topics == {}, "its topics went with it")
            peer.heard.clear()
        assert len(events.of(PeerJoined)) == len(events.of(PeerLeft)) == 2


@pytest.mark.spec("SPT-14")
async def test_of_two_nodes_the_lower_id_dials_and_one_connection_is_enough() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        numbers = [3, 1, 4, 2]
        nodes = await cast.mesh(await cast.registry(), *numbers)
        ports = {
            node.endpoint.port: number for node, number in zip(nodes, numbers, strict=True) if node.endpoint
        }
        # Whom each was dialled by: the id of one end is in its port, that of the other in nobody's.
        dialled = Counter(ports[port] for port in remote_ports() if port in ports)
        assert dialled == {4: 3, 3: 2, 2: 1}


def remote_ports() -> list[int]:
    """The far ends of all TCP connections that stand on this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[2].rpartition(":")[2], 16) for row in rows if row[3] == "01"]


@pytest.mark.spec("SPT-14")
async def test_without_discovery_a_node_works_locally() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        node = await cast.local()
        assert (node.endpoint, node.peers, node.topics) == (None, (), {})
        owner, spot = node.spot(), node.spot()
        subscription = await spot.subscribe("chat:*")
        assert subscription.state is PENDING
        await owner.create_topic(ROOM)
        await subscription.active()
        await spot.publish(ROOM, b"hello")
        assert await payloads(spot, 1) == [b"hello"]
        await owner.close()
        await subscription.pending()
        # Nobody can be found without saying where to be found.
        with pytest.raises(BadArgument):
            SpotNode(discovery=await cast.discovery("tcp://127.0.0.1:1"))


@pytest.mark.spec("SPT-14")
@pytest.mark.spec("SPT-15")
async def test_two_clusters_at_one_registry_do_not_see_each_other() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        red = await cast.mesh(registry, 1, 2, service="spot-node.red")
        blue = await cast.mesh(registry, 3, 4, service="spot-node.blue")
        plain = await cast.node(registry, 5)
        assert {name: len(found) for name, found in registry.services.items()} == {
            "spot-node.red": 2,
            "spot-node.blue": 2,
            NODES: 1,
        }
        # The same name in each, and one that only one of them has.
        for cluster in (red, blue):
            await cluster[0].spot().create_topic(ROOM)
        subscriptions = [await cluster[1].spot().subscribe(ROOM) for cluster in (red, blue)]
        alone = await plain.spot().subscribe("*")
        for subscription in subscriptions:
            await subscription.active()
        await red[1].spot().publish(ROOM, b"red")
        await blue[1].spot().publish(ROOM, b"blue")
        assert [await payloads(one, 1) for one in subscriptions] == [[b"red"], [b"blue"]]
        assert [waiting(one) for one in subscriptions] == [[], []]
        assert (plain.peers, plain.topics, alone.state) == ((), {}, PENDING)
        assert [node.peers for node in red] == [(red[1].routing_id,), (red[0].routing_id,)]


@pytest.mark.spec("SPT-15")
@pytest.mark.parametrize(
    "service",
    ["spot", "spot-node.", "spot-nodes", "spot-node.Red", "spot-node.rot_1", "spot-node." + 55 * "x"],
)
def test_a_wrong_service_name_is_refused_before_anything_happens(service: str) -> None:
    with pytest.raises(BadArgument) as refused:
        SpotNode(ANY, service=service)
    assert refused.value.errno == EINVAL


@pytest.mark.spec("SPT-16")
async def test_a_node_goes_to_the_next_registry_when_its_own_dies_and_its_mesh_goes_on() -> None:
    with reserved_endpoints(4) as (pub_1, pub_2, router_1, router_2):
        async with AsyncExitStack() as stack, TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
            first, second = [
                await stack.enter_async_context(
                    RegistryProcess(pub, router, peers=(peer,), registry_id=number, heartbeat_interval=0.1)
                )
                for number, (pub, router, peer) in enumerate(
                    [(pub_1, router_1, pub_2), (pub_2, router_2, pub_1)], 1
                )
            ]
            for registry in (first, second):
                await registry.ready()
            where = ([pub_1, pub_2], [router_1, router_2])
            one, other = [await cast.node_at(*where, number) for number in (1, 2)]
            await meshed(one, other)
            owner = one.spot()
            await owner.create_topic(ROOM)
            subscription = await other.spot().subscribe(ROOM)
            await subscription.active()
            alone = await cast.discovery(pub_2, services=(NODES,))
            await until(lambda: alone.provider_count(NODES) == 2, "the second has heard of both")
            since = max(entry.registered_at for entry in alone.providers(NODES))
            await first.kill()
            # Both register at the second, and nothing has happened between them meanwhile.
            await until(
                lambda: [entry.registered_at > since for entry in alone.providers(NODES)] == [True, True],
                "both have moved",
            )
            assert (subscription.state, subscription.missed_count) == (ACTIVE, 0)
            await owner.publish(ROOM, b"still there")
            assert await payloads(subscription, 1) == [b"still there"]
            # Who comes now finds them there.
            third = await cast.node_at([pub_2], [router_2], 3)
            await meshed(one, other, third)
            late = await third.spot().subscribe(ROOM)
            await late.active()
            await owner.publish(ROOM, b"to both")
            assert await payloads(subscription, 1) == await payloads(late, 1) == [b"to both"]


# ---- looking -------------------------------------------------------------------------------------------


async def test_a_survey_asks_every_node_and_leaves_out_who_does_not_answer() -> None:
    async with TopicCast() as cast, WirePeer(9, "raw") as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        home, away = await cast.mesh(registry, 1, 2)
        await peer.register(registry)
        for node in (home, away):
            await peer.meet(node)
        owner, spot = home.spot(), away.spot()
        await owner.create_topic("a")
        await spot.create_topic("b")
        for topic in ("a", "b"):
            await (await spot.subscribe(topic)).active()
        for _ in range(3):
            await owner.publish("a", b"")
        assert await home.survey() == (
            TopicReport(
                topic="a", owner=home.routing_id, subscribers_count=1, published_count=3, dropped_count=0
            ),
            TopicReport(
                topic="b", owner=away.routing_id, subscribers_count=1, published_count=0, dropped_count=0
            ),
            # Who knows only the specification tells its topics, and no more.
            TopicReport(
                topic="raw",
                owner=peer.routing_id,
                subscribers_count=None,
                published_count=None,
                dropped_count=None,
            ),
        )
        peer.answers = False
        assert [report.topic for report in await home.survey(timeout=0.1)] == ["a", "b"]


# ---- lifetimes -------------------------------------------------------------------------------------------


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
        await asyncio.sleep(0)
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
async def test_a_node_is_used_only_after_it_was_entered() -> None:
    node = SpotNode()
    with pytest.raises(UsageError, match="async with"):
        await node.spot().create_topic(ROOM)
