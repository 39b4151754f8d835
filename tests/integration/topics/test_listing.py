"""Who is listed is in the mesh: nodes that unregister and come back, that were never listed, or are none."""

import asyncio
from collections.abc import Awaitable
from errno import EINVAL

import pytest

from hansa import HansaError, ProviderInfo, Registry, SpotNode, UsageError
from hansa.errors import AlreadyClosed, BadArgument, NotRegistered
from hansa.ids import routing_id
from hansa.topics import MessagesMissed, PeerLeft, SubscriptionState, doorkeeper, mesh, pubsub_mesh
from hansa.transport import Dealer, Environment
from tests.support.discovery_cast import ANY, OPTIONS, WITHIN_S, until
from tests.support.registry_callers import Caller
from tests.support.topics_cast import NODES, TopicCast, meshed, numbered, payloads
from tests.support.topics_wire import QUERY_RESP, WirePeer

ROOM = "chat:room1"
BOTH_WAYS = pytest.mark.parametrize("number", [1, 9], ids=["it dials", "it is dialled"])

pytestmark = pytest.mark.timeout(60)


# -- listed no more


@pytest.mark.spec("SPT-14")
@pytest.mark.spec("SPT-24")
@BOTH_WAYS
async def test_a_peer_that_is_listed_no_more_is_let_go_and_its_topics_have_no_owner(number: int) -> None:
    async with TopicCast() as cast, WirePeer(number, ROOM) as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        discovery = await cast.discovery(registry, services=(NODES,))
        node = await cast.node(registry, 5, discovery=discovery)
        events = cast.heard(node)
        await peer.register(registry)
        await peer.meet(node)
        await until(lambda: discovery.provider_count(NODES) == 2, "it is listed")
        subscription = await node.spot().subscribe("chat:*")
        assert subscription.state is SubscriptionState.ACTIVE
        await peer.unregister()
        await subscription.pending()
        assert (node.peers, node.topics) == ((), {})
        await until(lambda: peer.router.peers == (), "the peer sees it, too")
        assert "not listed" in events.of(PeerLeft)[0].reason
        if number == 1:
            # It dials again by itself, and is not let in until it is listed.
            await until(lambda: node.stats.unlisted_count >= 2, "it was not let in")
            assert node.peers == ()
        await peer.register(registry)
        await subscription.active()


@pytest.mark.spec("SPT-24")
async def test_a_node_that_dials_before_it_is_listed_is_let_in_and_stays_when_it_is() -> None:
    async with TopicCast() as cast, WirePeer(1, ROOM) as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        discovery = await cast.discovery(registry, services=(NODES,))
        node = await cast.node(registry, 5, discovery=discovery)
        events = cast.heard(node)
        await peer.meet(node)
        subscription = await node.spot().subscribe(ROOM)
        await subscription.active()
        await peer.register(registry)
        await until(lambda: discovery.provider_count(NODES) == 2, "it is listed")
        await peer.heard_all(node)
        assert (node.peers, events.of(PeerLeft)) == ((peer.routing_id,), [])


@pytest.mark.spec("SPT-24")
async def test_a_node_that_is_never_listed_is_let_go_but_not_while_no_registry_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doorkeeper, "UNLISTED_S_MAX", 0.05)
    async with TopicCast() as cast, WirePeer(1) as peer, WirePeer(2) as other, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node, deaf = await cast.node(registry, 5), await cast.local(bind=ANY, options=OPTIONS)
        assert deaf.endpoint is not None
        assert node.endpoint is not None
        await other.router.connect(deaf.endpoint).up()
        await other.heard_all(deaf)
        await peer.router.connect(node.endpoint).up()
        await until(lambda: node.stats.unlisted_count > 0, "it was let go")
        await until(lambda: node.peers == (), "it is gone")
        # A node without a discovery has no list to judge by.
        assert (deaf.peers, deaf.stats.unlisted_count) == ((other.routing_id,), 0)


# -- unregister and register


@pytest.mark.spec("SPT-24")
@BOTH_WAYS
async def test_a_node_unregisters_and_registers_again_without_closing(number: int) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        leaving, staying = await cast.node(registry, number), await cast.node(registry, 5)
        await meshed(leaving, staying)
        owner = leaving.spot()
        await owner.create_topic(ROOM)
        near, far = await owner.subscribe(ROOM), await staying.spot().subscribe("chat:*")
        await far.active()
        events = cast.heard(staying)
        await leaving.unregister()
        await far.pending()
        await until(lambda: (leaving.peers, staying.peers) == ((), ()), "both have let go")
        assert staying.topics == {}
        # Here everything works on, alone.
        for payload in numbered(range(3)):
            await owner.publish(ROOM, payload)
        assert await payloads(near, 3) == numbered(range(3))
        with pytest.raises(NotRegistered):
            await leaving.unregister()
        # Entering waits until all have spoken, and so does this.
        await leaving.register()
        await leaving.register()
        assert leaving.peers == (staying.routing_id,)
        await far.active()
        assert (far.missed_count, [event.count for event in events.of(MessagesMissed)]) == (3, [3])
        await owner.publish(ROOM, b"back")
        assert await payloads(far, 1) == [b"back"]


@pytest.mark.spec("SPT-24")
async def test_a_node_that_has_unregistered_lets_nobody_in() -> None:
    async with TopicCast() as cast, WirePeer(1) as peer, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        await node.unregister()
        await peer.register(registry)
        assert node.endpoint is not None
        peer.router.connect(node.endpoint)
        await until(lambda: node.stats.unlisted_count > 0, "it was not let in")
        assert (node.peers, peer.of(QUERY_RESP)) == ((), [])
        await node.register()
        await until(lambda: node.peers == (peer.routing_id,), "it is let in")


async def test_a_node_without_a_registry_has_nothing_to_unregister_from() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        node = await cast.local()
        for call in (node.unregister, node.register):
            with pytest.raises(UsageError):
                await call()


@pytest.mark.spec("SPT-24")
async def test_a_node_may_unregister_before_a_registry_was_found() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        discovery = await cast.discovery("tcp://127.0.0.1:1", services=())
        async with SpotNode(
            ANY,
            ["tcp://127.0.0.1:1"],
            discovery=discovery,
            join_timeout=0.0,
            environment=Environment(options=OPTIONS),
        ) as node:
            await node.unregister(timeout=0.01)
            with pytest.raises(NotRegistered):
                await node.unregister()


# -- waiting to be in step


@pytest.mark.parametrize("kind", ["router", "pubsub"])
async def test_who_waits_for_a_node_that_is_away_is_told_when_this_one_closes(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (mesh, pubsub_mesh):
        monkeypatch.setattr(module, "JOIN_S_MAX", 10 * WITHIN_S)
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        node = await cast.local(bind=ANY, mesh=kind, options=OPTIONS)
        away = ProviderInfo(
            service=NODES, endpoint="tcp://127.0.0.1:1", routing_id=routing_id(9), weight=1, registered_at=1
        )
        node.mesh.list_node(away)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(refused(node.in_step()))
            await asyncio.sleep(0)
            await node.close()
        assert waiting.result() is AlreadyClosed


async def refused(call: Awaitable[None]) -> type[Exception] | None:
    try:
        await call
    except HansaError as error:
        return type(error)
    return None


# -- what is no node


@pytest.mark.spec("SPT-23")
@pytest.mark.parametrize("service", ["spot-node", "spot-node.blue"])
async def test_a_provider_cannot_register_the_name_of_nodes(service: str) -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        registry = await cast.registry()
        provider = await cast.provider(registry)
        with pytest.raises(BadArgument, match="reserved for the nodes of topic meshes") as refused:
            await provider.register(service)
        assert refused.value.errno == EINVAL
        assert registry.services == {}


async def registry_with_a_stranger(cast: TopicCast, caller: Caller) -> Registry:
    """It lists a provider as a node, as somebody can do it who does not use hansa's provider."""
    registry = await cast.registry(heartbeat_timeout=60.0)
    provider = await cast.provider(registry, routing_id=routing_id(9))
    await caller.dial(registry.router)
    await caller.register(str(provider.endpoint), service=NODES)
    return registry


@pytest.mark.spec("SPT-23")
async def test_what_is_listed_and_no_node_delays_neither_joining_nor_surveys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Who waited for it would wait for long.
    for module, name in ((mesh, "JOIN_S_MAX"), (doorkeeper, "STRANGER_S")):
        monkeypatch.setattr(module, name, 10 * WITHIN_S)
    caller = Caller(Dealer(routing_id(9), environment=Environment(options=OPTIONS)))
    async with TopicCast() as cast, caller, asyncio.timeout(WITHIN_S):
        registry = await registry_with_a_stranger(cast, caller)
        # The lowest ids: they dial whoever is listed.
        node = await cast.node(registry, 1, join_timeout=10 * WITHIN_S)
        assert node.peers == (routing_id(9),)
        await node.spot().create_topic(ROOM)
        other = await cast.node(registry, 2, join_timeout=10 * WITHIN_S)
        assert other.topics == {ROOM: node.routing_id}
        assert [report.topic for report in await other.survey(timeout=10 * WITHIN_S)] == [ROOM]


@pytest.mark.spec("SPT-23")
async def test_what_is_listed_and_no_node_is_let_go_and_tried_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("STRANGER_S", "STRANGER_REST_S"):
        monkeypatch.setattr(doorkeeper, name, 0.05)
    caller = Caller(Dealer(routing_id(9), environment=Environment(options=OPTIONS)))
    async with TopicCast() as cast, caller, asyncio.timeout(WITHIN_S):
        registry = await registry_with_a_stranger(cast, caller)
        discovery = await cast.discovery(registry, services=())
        node = await cast.local(bind=ANY, discovery=discovery, routing_id=routing_id(1), options=OPTIONS)
        events = cast.heard(node)
        await until(lambda: node.stats.strangers_count >= 3, "it was let go, and tried again")
        await events.wait(PeerLeft)
        assert "nothing that a node says" in events.of(PeerLeft)[0].reason
