"""Nodes that find each other: peers, clusters, registries, and looking at all of them at once."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from errno import EINVAL
from pathlib import Path

import pytest

from hansa import SpotNode
from hansa.errors import BadArgument
from hansa.topics import PeerJoined, PeerLeft, SubscriptionState, TopicReport
from tests.support.discovery_cast import ANY, WITHIN_S, until
from tests.support.discovery_processes import RegistryProcess
from tests.support.leftovers import alive
from tests.support.reserved_ports import reserved_endpoints
from tests.support.topics_cast import NODES, TopicCast, meshed, payloads, waiting
from tests.support.topics_wire import WirePeer

ROOM = "chat:room1"
PENDING, ACTIVE = SubscriptionState.PENDING, SubscriptionState.ACTIVE

pytestmark = pytest.mark.timeout(60)


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
    """The far ends of the TCP connections of this process that stand."""
    mine = {descriptor.split()[1] for descriptor in alive().descriptors}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        int(row[2].rpartition(":")[2], 16) for row in rows if row[3] == "01" and f"socket:[{row[9]}]" in mine
    ]


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
        # This one hears of all nodes, and its id is the lowest: it would dial them.
        everything = await cast.discovery(registry, services=())
        everything.subscribe_all()
        plain = await cast.node(registry, 0, discovery=everything)
        red = await cast.mesh(registry, 1, 2, service="spot-node.red")
        blue = await cast.mesh(registry, 3, 4, service="spot-node.blue")
        await until(lambda: len(everything.services) == 3, "it has heard of them")
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
