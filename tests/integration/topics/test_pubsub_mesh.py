"""The PUB/SUB mesh: nodes without owners, over TCP, at a registry."""

import asyncio

import pytest

from hansa import SpotNode, UsageError
from hansa.errors import BadArgument, WouldBlock
from hansa.ids import routing_id
from hansa.topics import PeerJoined, PeerLeft, SubscriptionState, TopicReport
from hansa.transport import Dealer
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.registry_callers import Caller
from tests.support.reserved_ports import reserved_endpoints
from tests.support.topics_cast import NODES, TopicCast, messages, numbered, payloads, waiting
from tests.support.topics_pubsub import PUBSUB, ZONE, linked

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-20")
@pytest.mark.spec("SPT-22")
async def test_three_nodes_publish_one_topic_and_each_subscription_gets_all_in_order() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        nodes = await cast.mesh(await cast.registry(), 1, 2, 3, **PUBSUB)
        spots = [node.spot() for node in nodes]
        subscriptions = [await spot.subscribe(ZONE) for spot in spots]
        for spot in spots:
            await linked(spot, ZONE, *subscriptions)
        for one in subscriptions:
            waiting(one)
        for number in range(200):
            for name, spot in zip("abc", spots, strict=True):
                await spot.publish(ZONE, f"{name}{number}".encode())
        for one in subscriptions:
            got = [payload.decode() for payload in await payloads(one, 600)]
            for name in "abc":
                assert [text for text in got if text[0] == name] == [f"{name}{n}" for n in range(200)]
            assert (one.missed_count, one.dropped_count) == (0, 0)
        # Nobody hears itself twice.
        await linked(spots[0], ZONE, *subscriptions)
        assert [waiting(one) for one in subscriptions] == [[], [], []]
        assert [node.stats.duplicates_count for node in nodes] == [0, 0, 0]


@pytest.mark.spec("SPT-20")
async def test_publishing_always_succeeds() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        node = await cast.node(await cast.registry(), 1, **PUBSUB)
        spot = node.spot()
        await spot.publish(ZONE, b"to nobody")
        spot.post("zone:2", b"to nobody")
        await spot.publish(ZONE, b"to nobody")
        assert node.topics == {ZONE: node.routing_id, "zone:2": node.routing_id}
        assert node.stats.published_count == 3
        assert node.owned == spot.owned == ()
        assert await node.survey() == (
            TopicReport(
                topic=ZONE,
                owner=node.routing_id,
                subscribers_count=None,
                published_count=2,
                dropped_count=None,
            ),
            TopicReport(
                topic="zone:2",
                owner=node.routing_id,
                subscribers_count=None,
                published_count=1,
                dropped_count=None,
            ),
        )


@pytest.mark.spec("SPT-20")
async def test_there_is_nothing_to_own() -> None:
    async with TopicCast() as cast:
        node = await cast.local(**PUBSUB)
        spot = node.spot()
        with pytest.raises(UsageError, match=r"PUB/SUB mesh have no owners.*mesh='router'"):
            await spot.create_topic(ZONE)
        with pytest.raises(UsageError, match="PUB/SUB mesh have no owners"):
            await spot.destroy_topic(ZONE)
        assert not node.has_owners


async def test_a_mesh_of_another_kind_is_refused() -> None:
    with pytest.raises(BadArgument, match="'router' or 'pubsub'"):
        SpotNode(mesh="star")  # type: ignore[arg-type]


@pytest.mark.spec("SPT-06")
@pytest.mark.spec("SPT-20")
async def test_patterns_receive_by_beginning_and_names_only_themselves() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        here, there = await cast.mesh(await cast.registry(), 1, 2, **PUBSUB)
        publisher = there.spot()
        exact = await here.spot().subscribe("zone:1")
        pattern = await here.spot().subscribe("zone:1*")
        everything = await here.spot().subscribe("*")
        await linked(publisher, "zone:1", exact, pattern, everything)
        for topic in ("zone:12", "Zone:1", "zone:1:a", "zone:", "room", "zone:1"):
            await publisher.publish(topic, topic.encode())
        assert [message.topic for message in await messages(everything, 6)] == [
            "zone:12",
            "Zone:1",
            "zone:1:a",
            "zone:",
            "room",
            "zone:1",
        ]
        assert await payloads(pattern, 3) == [b"zone:12", b"zone:1:a", b"zone:1"]
        assert await payloads(exact, 1) == [b"zone:1"]
        assert waiting(exact) == waiting(pattern) == []
        assert [one.missed_count for one in (exact, pattern, everything)] == [0, 0, 0]
        # One spot that matches three times receives once, by name.
        spot = here.spot()
        texts = ("*", "zone:*", "zone:1")
        widest, wide, narrow = [await spot.subscribe(text) for text in texts]
        await linked(publisher, "zone:1", narrow)
        await publisher.publish("zone:1", b"once")
        assert (await spot.recv()).payload == b"once"
        assert (widest.received_count, wide.received_count) == (0, 0)


@pytest.mark.spec("SPT-09")
@pytest.mark.spec("SPT-20")
async def test_after_unsubscribing_nothing_comes_and_subscribing_again_begins_anew() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        here, there = await cast.mesh(await cast.registry(), 1, 2, **PUBSUB)
        publisher, spot = there.spot(), here.spot()
        marker = await here.spot().subscribe("marker")
        for text in (ZONE, "zone:*"):
            subscription = await spot.subscribe(text)
            await linked(publisher, ZONE, subscription)
            await spot.unsubscribe(text)
            assert here.wanted == {"marker": 1}
            # One connection carries both, in order.
            for _ in range(50):
                await publisher.publish(ZONE, b"nobody wants this")
            await linked(publisher, "marker", marker)
            again = await spot.subscribe(ZONE)
            await linked(publisher, ZONE, again)
            assert again.missed_count == here.stats.missed_count == 0
            await again.close()
            with pytest.raises(WouldBlock):
                spot.recv_nowait()


@pytest.mark.spec("SPT-04")
@pytest.mark.spec("SPT-20")
async def test_subscriptions_are_active_at_once() -> None:
    async with TopicCast() as cast:
        node = await cast.local(**PUBSUB)
        spot = node.spot()
        exact, pattern = await spot.subscribe(ZONE), await spot.subscribe("room:*")
        for one in (exact, pattern):
            assert one.state is SubscriptionState.ACTIVE
            await one.active(timeout=0.001)
        assert exact.topics == {ZONE: SubscriptionState.ACTIVE}
        await exact.close()
        assert exact.topics == {}


@pytest.mark.spec("SPT-14")
@pytest.mark.spec("SPT-20")
async def test_a_local_node_needs_no_network() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        node = await cast.local(**PUBSUB)
        one, other = node.spot(), node.spot()
        exact, pattern = await one.subscribe(ZONE), await other.subscribe("zone:*")
        for payload in numbered(range(1_000)):
            await one.publish(ZONE, payload)
        assert await payloads(exact, 1_000) == await payloads(pattern, 1_000) == numbered(range(1_000))
        assert node.endpoint is None
        assert node.peers == ()
        assert node.wanted == {ZONE: 2}
        assert node.subscribers(ZONE) == ()
        assert node.stats.delivered_count == 2_000
        await one.publish(ZONE, b"last")
        assert (await one.recv()).sequence == 1_001


@pytest.mark.spec("SPT-20")
async def test_a_late_joiner_gets_what_is_published_from_then_on() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        first = await cast.node(registry, 1, **PUBSUB)
        publisher = first.spot()
        for payload in numbered(range(100)):
            await publisher.publish(ZONE, payload)
        late = await cast.node(registry, 2, **PUBSUB)
        subscription = await late.spot().subscribe(ZONE)
        await linked(publisher, ZONE, subscription)
        for payload in numbered(range(100, 200)):
            await publisher.publish(ZONE, payload)
        assert await payloads(subscription, 100) == numbered(range(100, 200))
        assert subscription.missed_count == 0
        # And the other way: who was there first finds the late one.
        back = await publisher.subscribe("back")
        await linked(late.spot(), "back", back)


@pytest.mark.spec("SPT-14")
@pytest.mark.spec("SPT-20")
async def test_nodes_that_leave_are_told_and_the_others_go_on() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        here, there = await cast.mesh(registry, 1, 2, **PUBSUB)
        events = cast.heard(here)
        leaving = await cast.node(registry, 3, **PUBSUB)
        await events.wait(PeerJoined, peer=leaving.routing_id)
        assert set(here.peers) == {there.routing_id, leaving.routing_id}
        spot = here.spot()
        subscription = await spot.subscribe(ZONE)
        await linked(leaving.spot(), ZONE, subscription)
        await leaving.close()
        await events.wait(PeerLeft, peer=leaving.routing_id)
        await until(lambda: here.peers == (there.routing_id,), "it is gone")
        await linked(there.spot(), ZONE, subscription)
        assert subscription.missed_count == 0
        # It comes back under its id, with counts of its own.
        back = await cast.node(registry, 3, **PUBSUB)
        await events.wait(PeerJoined, peer=back.routing_id, count=2)
        await linked(back.spot(), ZONE, subscription)
        assert (subscription.missed_count, here.stats.duplicates_count) == (0, 0)
        assert len(events.of(PeerLeft)) == 1


@pytest.mark.spec("SPT-20")
async def test_a_node_does_not_dial_itself_where_another_was_listed_before() -> None:
    with reserved_endpoints(1) as (bind,):
        former = Caller(Dealer(routing_id(9)))
        async with TopicCast() as cast, former, asyncio.timeout(WITHIN_S):
            registry = await cast.registry()
            await former.dial(registry.router)
            await former.register(bind, service=NODES)
            discovery = await cast.discovery(registry, services=(NODES,))
            await discovery.wait_available(NODES)
            # Entering waits for whom it dials.
            node = await cast.local(bind=bind, discovery=discovery, **PUBSUB)
            assert [one.endpoint for one in discovery.providers(NODES)] == [str(node.endpoint)]
            assert node.peers == ()


@pytest.mark.spec("SPT-20")
@pytest.mark.spec("SPT-24")
async def test_a_node_unregisters_and_registers_again_without_closing() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        leaving, staying = await cast.mesh(await cast.registry(), 1, 2, **PUBSUB)
        here, there = leaving.spot(), staying.spot()
        subscriptions = [await here.subscribe(ZONE), await there.subscribe(ZONE)]
        await linked(there, ZONE, *subscriptions)
        await leaving.unregister()
        await until(lambda: (leaving.peers, staying.peers) == ((), ()), "they hear each other no more")
        await here.publish(ZONE, b"alone")
        await leaving.register()
        assert leaving.peers == (staying.routing_id,)
        for spot in (here, there):
            await linked(spot, ZONE, *subscriptions)


@pytest.mark.spec("SPT-17")
@pytest.mark.spec("SPT-20")
async def test_what_was_published_last_still_leaves_when_the_node_closes() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        here, leaving = await cast.mesh(await cast.registry(), 1, 2, **PUBSUB)
        subscription = await here.spot().subscribe(ZONE)
        publisher = leaving.spot()
        await linked(publisher, ZONE, subscription)
        for payload in numbered(range(1_000)):
            publisher.post(ZONE, payload)
        await leaving.close()
        assert await payloads(subscription, 1_000) == numbered(range(1_000))
