"""Topics that are claimed in a store before they are created: there is one owner, whoever hears whom."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from hansa import Fenced, NoOwner, SpotNode, Store, StoreUnavailable, TimedOut, TopicExists, open_store, sync
from hansa.errors import AlreadyClosed, BadArgument, NotOwner
from hansa.ids import format_id
from hansa.topics import TopicLost
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.store_process import StoreProcess
from tests.support.topics_cast import TopicCast, payloads
from tests.support.topics_processes import NodeProcess
from tests.support.topics_wire import QUERY, WirePeer, query_resp

ROOM = "chat:room/1 100%"
TTL_S = 2.0

pytestmark = [pytest.mark.timeout(60), pytest.mark.spec("SPT-12", "SPT-25")]


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with open_store(f"memory://{uuid4()}") as store:
        yield store


async def _keys(store: Store) -> list[bytes]:
    return [item.key for item in (await store.scan("/hansa/default/topics/")).items]


def _all_know(nodes: list[SpotNode], owner: SpotNode) -> bool:
    return all(node.topics == {ROOM: owner.routing_id} for node in nodes)


async def test_of_nodes_that_do_not_hear_each_other_one_creates_a_topic_and_the_others_learn_who(
    store: Store,
) -> None:
    async with TopicCast() as cast:
        nodes = [await cast.local(store=store) for _ in range(5)]
        spots = [node.spot() for node in nodes]
        for _ in range(20):
            results = await asyncio.gather(
                *(spot.create_topic(ROOM) for spot in spots), return_exceptions=True
            )
            owners = [node for node in nodes if ROOM in node.owned]
            assert len(owners) == 1
            refused = [result for result in results if result is not None]
            assert [type(result) for result in refused] == [TopicExists] * 4
            winner = nodes.index(owners[0])
            with pytest.raises(TopicExists, match=format_id(owners[0].routing_id)):
                await spots[winner - 1].create_topic(ROOM)
            await spots[winner].destroy_topic(ROOM)
            assert await _keys(store) == []


@pytest.mark.parametrize("way", ["destroy", "close the spot", "close the node"])
async def test_what_is_given_up_can_be_created_elsewhere_at_once(store: Store, way: str) -> None:
    async with TopicCast() as cast, SpotNode(store=store) as other:
        node = await cast.local(store=store)
        spot, successor = node.spot(), other.spot()
        await spot.create_topic(ROOM)
        with pytest.raises(TopicExists):
            await successor.create_topic(ROOM)
        if way == "destroy":
            await spot.destroy_topic(ROOM)
        elif way == "close the spot":
            await spot.close()
            # Its own node waits for what is under way; others would be refused a moment longer.
            spot = node.spot()
            await spot.create_topic(ROOM)
            await spot.destroy_topic(ROOM)
        else:
            await node.close()
        await successor.create_topic(ROOM)
        await successor.publish(ROOM, b"mine now")


async def test_meshes_of_other_services_and_clusters_have_claims_of_their_own(store: Store) -> None:
    async with TopicCast() as cast:
        for settings in ({}, {"service": "spot-node.blue"}, {"cluster": "blue"}):
            node = await cast.local(store=store, **settings)
            await node.spot().create_topic(ROOM)


async def test_a_claim_that_is_deleted_is_lost_and_the_spot_is_told_and_may_try_again(store: Store) -> None:
    async with TopicCast() as cast:
        node = await cast.local(store=store)
        spot = node.spot()
        heard = cast.heard(spot)
        subscription = await spot.subscribe(ROOM)
        await spot.create_topic(ROOM)
        assert subscription.state == "active"
        await store.delete_prefix("/hansa/default/topics/")
        lost = await heard.wait(TopicLost)
        assert lost.topic == ROOM
        assert "somebody deleted the key" in lost.reason
        assert (spot.owned, node.owned, subscription.state) == ((), (), "pending")
        with pytest.raises(NoOwner):
            await spot.publish(ROOM, b"nobody's")
        with pytest.raises(NotOwner):
            await spot.destroy_topic(ROOM)
        await spot.create_topic(ROOM)
        await spot.publish(ROOM, b"again")
        assert await payloads(subscription, 1) == [b"again"]


async def test_of_nodes_that_hear_each_other_and_create_at_once_one_succeeds_and_none_is_ever_demoted(
    store: Store,
) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        nodes = await cast.mesh(registry, 1, 5, 9, store=store)
        spots = [node.spot() for node in nodes]
        subscriptions = [await spot.subscribe(ROOM) for spot in spots]
        winners = set()
        for number in range(10):
            # Another one is the first to ask each time.
            turn = [spots[(number + place) % 3] for place in range(3)]
            results = await asyncio.gather(
                *(spot.create_topic(ROOM) for spot in turn), return_exceptions=True
            )
            assert sorted(type(result).__name__ for result in results) == ["NoneType"] + ["TopicExists"] * 2
            (owner,) = (node for node in nodes if ROOM in node.owned)
            winners.add(owner.routing_id)
            await until(partial(_all_know, nodes, owner), "all know the owner")
            for subscription in subscriptions:
                await subscription.active()
            for spot in spots:
                await spot.publish(ROOM, b"%d" % number)
            for subscription in subscriptions:
                assert await payloads(subscription, 3) == [b"%d" % number] * 3
            await spots[nodes.index(owner)].destroy_topic(ROOM)
            assert await _keys(store) == []
        assert len(winners) == 3
        assert [(node.stats.conflicts_count, node.stats.demotions_count) for node in nodes] == [(0, 0)] * 3


@pytest.mark.parametrize(("owner", "successor"), [(1, 9), (9, 1)], ids=["low to high", "high to low"])
async def test_when_a_claim_is_lost_the_others_hear_it_and_follow_the_next_owner(
    store: Store, owner: int, successor: int
) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        former, later, third = await cast.mesh(registry, owner, successor, 5, store=store)
        spot, next_spot = former.spot(), later.spot()
        heard = cast.heard(spot)
        await spot.create_topic(ROOM)
        subscription = await third.spot().subscribe(ROOM)
        await subscription.active()
        await store.delete_prefix("/hansa/default/topics/")
        await subscription.pending()
        assert (await heard.wait(TopicLost)).topic == ROOM
        assert (former.owned, third.topics) == ((), {})
        await next_spot.create_topic(ROOM)
        await subscription.active()
        # The former owner is a publisher like others.
        await until(lambda: former.topics == {ROOM: later.routing_id}, "it knows the next owner")
        await spot.publish(ROOM, b"from the former owner")
        await next_spot.publish(ROOM, b"from the owner")
        assert sorted(await payloads(subscription, 2)) == [b"from the former owner", b"from the owner"]
        with pytest.raises(TopicExists):
            await spot.create_topic(ROOM)
        assert (former.owned, later.owned, len(await _keys(store))) == ((), (ROOM,), 1)


async def test_a_claim_that_is_lost_while_the_other_nodes_are_asked_makes_no_second_owner(
    store: Store,
) -> None:
    """A node that is listed as the owner answers late; meanwhile the lease ends, and another node claims."""
    async with TopicCast() as cast, WirePeer(9, ROOM) as stale, asyncio.timeout(2 * WITHIN_S):
        east, west = [await cast.registry() for _ in range(2)]
        loser, winner = await cast.node(east, 5, store=store), await cast.node(west, 1, store=store)
        await stale.register(east)
        await stale.meet(loser)
        assert loser.topics == {ROOM: stale.routing_id}
        stale.answers = False
        asked_count = len(stale.of(QUERY))
        spot, rightful = loser.spot(), winner.spot()
        creating = asyncio.ensure_future(spot.create_topic(ROOM))
        await until(lambda: len(stale.of(QUERY)) > asked_count, "the stale owner is asked")
        assert len(await _keys(store)) == 1
        await store.delete_prefix("/hansa/default/topics/")
        await rightful.create_topic(ROOM)
        stale.say(loser, *query_resp([]))
        with pytest.raises(Fenced):
            await creating
        assert (spot.owned, loser.owned) == ((), ())
        # They come to hear each other: there is one owner, and nothing to settle.
        for one, other in ((east, west), (west, east)):
            one.add_peer(str(other.pub))
        await until(lambda: loser.topics == {ROOM: winner.routing_id}, "it knows the owner")
        assert (winner.owned, winner.stats.conflicts_count) == ((ROOM,), 0)
        subscription = await spot.subscribe(ROOM)
        await subscription.active()
        await spot.publish(ROOM, b"hello")
        assert await payloads(subscription, 1) == [b"hello"]


async def test_a_creation_that_waits_for_a_listed_node_ends_with_its_own_node_and_asks_for_no_lease(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted: list[float] = []
    grant = store.grant

    async def counted(ttl_s: float, **settings: float | None) -> int:
        granted.append(ttl_s)
        return await grant(ttl_s, **settings)

    async with TopicCast() as cast, WirePeer(9, answers=False) as silent, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5, store=store)
        await silent.register(registry)
        await silent.meet(node, ask=False)
        monkeypatch.setattr(store, "grant", counted)
        creating = asyncio.ensure_future(node.spot().create_topic(ROOM))
        await asyncio.sleep(0)
        await node.close()
        with pytest.raises(AlreadyClosed):
            await creating
        assert granted == []
        successor = await cast.local(store=store)
        await successor.spot().create_topic(ROOM)
        assert len(granted) == 1


async def test_a_topic_of_a_node_that_knows_no_store_is_not_taken_from_it(store: Store) -> None:
    async with TopicCast() as cast:
        registry = await cast.registry()
        plain, claiming = await cast.node(registry, 1), await cast.node(registry, 2, store=store)
        await plain.spot().create_topic(ROOM)
        await until(lambda: ROOM in claiming.topics, "it is known")
        spot = claiming.spot()
        with pytest.raises(TopicExists, match="did not ask the store"):
            await spot.create_topic(ROOM)
        async with asyncio.timeout(WITHIN_S):
            while await _keys(store):
                await asyncio.sleep(0.01)
        assert claiming.owned == ()


async def test_a_cancelled_claim_leaves_nothing_behind(store: Store) -> None:
    async with TopicCast() as cast:
        node = await cast.local(store=store)
        spot = node.spot()
        for turns_count in range(12):
            creating = asyncio.ensure_future(spot.create_topic(ROOM))
            for _ in range(turns_count):
                await asyncio.sleep(0)
            creating.cancel()
            await asyncio.wait([creating])
            if not creating.cancelled():
                await spot.destroy_topic(ROOM)
            assert node.owned == ()
            async with asyncio.timeout(WITHIN_S):
                while await _keys(store):
                    await asyncio.sleep(0.001)


async def test_a_pubsub_mesh_has_nothing_to_claim(store: Store) -> None:
    with pytest.raises(BadArgument, match="no owners"):
        SpotNode("tcp://127.0.0.1:0", mesh="pubsub", store=store)


async def test_without_its_store_a_node_creates_nothing_and_gives_up_what_it_had(tmp_path: Path) -> None:
    with StoreProcess(tmp_path) as process:
        async with TopicCast() as cast, open_store(f"etcd://{process.address}") as store:
            node = await cast.local(store=store, claim_ttl=TTL_S)
            spot = node.spot()
            heard = cast.heard(spot)
            await spot.create_topic(ROOM)
            await asyncio.to_thread(process.kill)
            with pytest.raises((StoreUnavailable, TimedOut)):
                await spot.create_topic("another")
            lost = await heard.wait(TopicLost)
            assert (lost.topic, node.owned) == (ROOM, ())
            await asyncio.to_thread(process.start)
            # A new lease, and without a restart of the node. The old claim ends with its own lease.
            async with asyncio.timeout(WITHIN_S):
                while ROOM not in node.owned:
                    try:
                        await spot.create_topic(ROOM)
                    except (StoreUnavailable, TimedOut, TopicExists, Fenced):
                        # Fenced: a store that is slow to start may lose the new lease, too.
                        await asyncio.sleep(0.05)


@pytest.mark.parametrize("way", ["killed", "stopped"])
async def test_an_owner_that_is_killed_or_stands_still_is_followed_by_another_that_it_does_not_depose(
    tmp_path: Path, way: str
) -> None:
    with StoreProcess(tmp_path) as store:
        async with TopicCast() as cast, AsyncExitStack() as stack:
            registry = await cast.registry(heartbeat_timeout=1.5)
            where = str(registry.pub), str(registry.router)
            url = f"etcd://{store.address}"
            # The lower id would win, if they only heard each other.
            low = await stack.enter_async_context(
                NodeProcess(2, *where, store=url, claim_ttl=TTL_S, tell="TopicLost")
            )
            high = await stack.enter_async_context(NodeProcess(9, *where, store=url, claim_ttl=TTL_S))
            for node in (low, high):
                await node.ready()
                await node.do("subscribe", text=ROOM)
            assert "code" not in await low.do("create", topic=ROOM)
            assert (await high.do("create", topic=ROOM))["code"] == "topic-exists"
            if way == "killed":
                await low.kill()
            else:
                low.freeze()
            refusals = set()
            async with asyncio.timeout(WITHIN_S):
                while code := (await high.do("create", topic=ROOM)).get("code"):
                    refusals.add(code)
                    await asyncio.sleep(0.05)
            assert refusals == {"topic-exists"}
            if way == "stopped":
                low.thaw()
                assert (await low.event("happened", kind="TopicLost"))["topic"] == ROOM
                assert "code" not in await low.do("active", text=ROOM)
                assert (await low.do("topics"))["topics"] == {ROOM: "01:00000009"}
                assert (await low.do("create", topic=ROOM))["code"] == "topic-exists"
            stats = (await high.do("stats"))["stats"]
            assert (stats["demotions_count"], (await high.do("topics"))["owned"]) == (0, [ROOM])
            await high.do("publish", topic=ROOM, first=0, count=10)
            for node in (high, low) if way == "stopped" else (high,):
                async with asyncio.timeout(WITHIN_S):
                    while (books := await node.books(ROOM))["received"] < 10:
                        await asyncio.sleep(0.01)
                assert (books["first"], books["last"], books["is_in_order"]) == (0, 9, True)


def test_threads_claim_topics_too() -> None:
    with (
        sync.open_store(f"memory://{uuid4()}") as store,
        sync.SpotNode(store=store) as node,
        sync.SpotNode(store=store) as other,
        node.spot() as spot,
        other.spot() as successor,
    ):
        spot.create_topic(ROOM)
        with pytest.raises(TopicExists):
            successor.create_topic(ROOM)
        spot.destroy_topic(ROOM)
        successor.create_topic(ROOM)
