"""Publishing through an owner elsewhere: what it refuses, what is in doubt, and losing a topic to another."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hansa import NoOwner
from hansa.errors import Backlogged
from hansa.ids import routing_id
from hansa.topics import PublishesInDoubt, PublishesRefused
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.reserved_ports import reserved_endpoints
from tests.support.tcp_proxy import TcpProxy
from tests.support.topics_cast import TopicCast, meshed, numbered, payloads, waiting
from tests.support.topics_processes import NodeProcess

ROOM = "chat:room1"

pytestmark = pytest.mark.timeout(60)


@pytest.mark.spec("SPT-05")
async def test_publishes_that_reach_a_node_which_owns_the_topic_no_more_are_refused_and_told() -> None:
    async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
        home, away = await cast.mesh(await cast.registry(), 1, 2)
        owner, spot = home.spot(), away.spot()
        heard = cast.heard(away)
        await owner.create_topic(ROOM)
        mine = await owner.subscribe(ROOM)
        await until(lambda: ROOM in away.topics, "it is known")
        # In the same turn: the owner has not read what is under way to it when it destroys the topic.
        for payload in numbered(range(7)):
            spot.post(ROOM, payload)
        await owner.destroy_topic(ROOM)
        await until(lambda: sum(one.count for one in heard.of(PublishesRefused)) == 7, "all are refused")
        assert {(one.topic, one.owner) for one in heard.of(PublishesRefused)} == {(ROOM, home.routing_id)}
        assert (home.stats.refused_count, away.stats.publishes_refused_count) == (7, 7)
        assert waiting(mine) == []
        with pytest.raises(NoOwner):
            spot.post(ROOM, b"")


@pytest.mark.spec("SPT-05")
async def test_publishes_under_way_when_the_connection_breaks_are_in_doubt_and_at_most_so_many() -> None:
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast, TcpProxy(bind) as proxy, asyncio.timeout(WITHIN_S):
            registry = await cast.registry()
            through: dict[str, Any] = {"bind": bind, "advertise": proxy.endpoint}
            away, home = await cast.node(registry, 1), await cast.node(registry, 2, **through)
            await meshed(away, home)
            owner, spot = home.spot(), away.spot()
            heard = cast.heard(away)
            await owner.create_topic(ROOM)
            mine = await owner.subscribe(ROOM)
            await until(lambda: ROOM in away.topics, "it is known")
            for payload in numbered(range(100)):
                await spot.publish(ROOM, payload)
            assert await payloads(mine, 100) == numbered(range(100))
            proxy.hold()
            for payload in numbered(range(100, 150)):
                await spot.publish(ROOM, payload)
            proxy.refuse()
            doubt = await heard.wait(PublishesInDoubt)
            # Fifty are lost indeed. Of the hundred before them nobody here can know.
            assert doubt.owner == home.routing_id
            assert 50 <= doubt.count <= 150
            assert away.stats.publishes_in_doubt_count == doubt.count
            with pytest.raises(NoOwner):
                await spot.publish(ROOM, b"")
            proxy.forward()
            await until(lambda: ROOM in away.topics, "it is known again")
            await spot.publish(ROOM, b"150")
            assert await payloads(mine, 1) == [b"150"]


@pytest.mark.spec("SPT-05")
async def test_an_owner_that_is_stopped_and_killed_leaves_publishes_in_doubt() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, 5)
        heard = cast.heard(node)
        spot = node.spot()
        async with NodeProcess(9, str(registry.pub), str(registry.router), create=ROOM) as owner:
            await owner.ready()
            await until(lambda: ROOM in node.topics, "it is known")
            owner.freeze()
            for number in range(20):
                await spot.publish(ROOM, b"%d" % number)
        doubt = await heard.wait(PublishesInDoubt)
        assert (doubt.owner, doubt.count) == (routing_id(9), 20)


@pytest.mark.spec("SPT-05")
async def test_a_publisher_waits_for_an_owner_that_does_not_read_and_post_says_so() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry(heartbeat_timeout=60.0)
        node = await cast.node(registry, 5)
        spot = node.spot()
        async with NodeProcess(9, str(registry.pub), str(registry.router), create=ROOM) as owner:
            await owner.ready()
            await owner.do("subscribe", text=ROOM, count_max=1_000_000)
            await until(lambda: ROOM in node.topics, "it is known")
            owner.freeze()
            count, size = 0, 256 * 1024
            with pytest.raises(Backlogged):
                while True:
                    spot.post(ROOM, b"%d " % count + bytes(size))
                    count += 1
            waiting_one = asyncio.ensure_future(spot.publish(ROOM, b"%d " % count + bytes(size)))
            await asyncio.sleep(0.05)  # Not a wait for something: for this long nothing may happen.
            assert not waiting_one.done()
            owner.thaw()
            await waiting_one
            while (books := await owner.books(ROOM))["received"] < count + 1:
                await asyncio.sleep(0.01)
            assert (books["last"], books["is_in_order"], books["missed"]) == (count, True, 0)


@pytest.mark.spec("SPT-12")
async def test_of_two_processes_that_own_a_topic_the_one_of_lower_id_keeps_it() -> None:
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast, AsyncExitStack() as stack, TcpProxy(bind) as proxy:
            registry = await cast.registry(heartbeat_timeout=60.0)
            where = str(registry.pub), str(registry.router)
            tell = "TopicDemoted,PeerLeft,PeerJoined"
            # The two cannot reach each other: each becomes the owner, as each sees it.
            proxy.refuse()
            high = await stack.enter_async_context(
                NodeProcess(9, *where, bind=bind, advertise=proxy.endpoint, tell=tell)
            )
            low = await stack.enter_async_context(NodeProcess(2, *where, tell=tell))
            for node in (high, low):
                await node.ready()
                assert "code" not in await node.do("create", topic=ROOM)
                await node.do("subscribe", text=ROOM)
                assert "code" not in await node.do("active", text=ROOM)
            # They can.
            proxy.forward()
            demoted = await high.event("happened", kind="TopicDemoted")
            assert (demoted["topic"], demoted["winner"]) == (ROOM, "01:00000002")
            assert "code" not in await high.do("active", text=ROOM)
            told = await high.do("topics")
            assert (told["topics"], told["owned"], told["wanted"]) == ({ROOM: "01:00000002"}, [], {ROOM: 1})
            assert (await low.do("topics"))["owned"] == [ROOM]
            # Both publish; both receive all of it.
            await high.do("publish", topic=ROOM, first=0, count=10)
            while (await low.books(ROOM))["received"] < 10:
                await asyncio.sleep(0.005)
            await low.do("publish", topic=ROOM, first=10, count=10)
            for node in (high, low):
                while (books := await node.books(ROOM))["received"] < 20:
                    await asyncio.sleep(0.005)
                assert (books["first"], books["last"], books["is_in_order"]) == (0, 19, True)
            # The winner dies: nobody owns it any more, and the loser may create it again.
            await low.kill()
            assert "code" not in await high.do("pending", text=ROOM)
            assert "code" not in await high.do("create", topic=ROOM)
            assert "code" not in await high.do("active", text=ROOM)
            stats = (await high.do("stats"))["stats"]
            assert (stats["demotions_count"], stats["conflicts_count"]) == (1, 1)
