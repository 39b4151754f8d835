"""A node of the PUB/SUB mesh and the publishers that are listed: dialled, asked for prefixes, given up."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hansa import SpotNode
from hansa.endpoint import Endpoint
from hansa.errors import BadArgument
from hansa.ids import routing_id
from hansa.limits import JOIN_S_MAX
from hansa.presence.provider_info import ProviderInfo
from hansa.topics import PeerJoined, PeerLeft
from hansa.topics.pubsub_mesh import PubSubMesh
from hansa.transport import Pub
from tests.support.discovery_cast import ANY, OPTIONS, WITHIN_S, until
from tests.support.reserved_ports import reserved_endpoints
from tests.support.topics_cast import TopicCast, payloads
from tests.support.topics_pubsub import PUBSUB

pytestmark = pytest.mark.timeout(60)


class Publisher:
    """A PUB, and what it is asked for."""

    def __init__(self, pub: Pub) -> None:
        self.pub = pub
        self.endpoint: Endpoint | None = None
        self.asked: list[tuple[bytes, bool]] = []

    def listed(self, number: int = 9) -> ProviderInfo:
        return info(str(self.endpoint), number)


def info(endpoint: str, number: int = 9) -> ProviderInfo:
    return ProviderInfo(
        service="spot-node", endpoint=endpoint, routing_id=routing_id(number), weight=1, registered_at=0.0
    )


@asynccontextmanager
async def publishing(bind: str = ANY) -> AsyncIterator[Publisher]:
    async with Pub(on_subscription=lambda _, prefix, wanted: asked.append((prefix, wanted))) as pub:
        publisher = Publisher(pub)
        asked = publisher.asked
        publisher.endpoint = await pub.bind(bind)
        yield publisher


async def node_of(cast: TopicCast) -> SpotNode:
    return await cast.local(bind=ANY, options=OPTIONS, **PUBSUB)


@pytest.mark.spec("SPT-08")
@pytest.mark.spec("SPT-20")
async def test_a_publisher_is_asked_once_for_each_prefix_and_told_when_nobody_wants_it() -> None:
    async with TopicCast() as cast, publishing() as publisher, asyncio.timeout(WITHIN_S):
        node = await node_of(cast)
        node.mesh.list_node(publisher.listed())
        spots = [node.spot() for _ in range(3)]
        for spot in spots:
            await spot.subscribe("zone:1")
            await spot.subscribe("zone:1*")
        await spots[0].subscribe("*")
        await until(lambda: publisher.asked == [(b"zone:1", True), (b"", True)], "it is asked for both")
        for spot in spots[1:]:
            await spot.close()
        await spots[0].unsubscribe("zone:1")
        await spots[0].unsubscribe("*")
        await until(lambda: publisher.asked[2:] == [(b"", False)], "everything is no longer wanted")
        await spots[0].unsubscribe("zone:1*")
        await until(lambda: publisher.asked[3:] == [(b"zone:1", False)], "nothing is wanted")


async def test_a_subscription_that_is_refused_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansa.topics.open_mesh.NODE_SUBSCRIPTIONS_MAX", 1)
    async with TopicCast() as cast, publishing() as publisher, asyncio.timeout(WITHIN_S):
        node = await node_of(cast)
        spot = node.spot()
        await spot.subscribe("first")
        with pytest.raises(BadArgument, match="1 subscriptions, which is the most"):
            await spot.subscribe("second")
        assert [one.text for one in spot.subscriptions] == ["first"]
        node.mesh.list_node(publisher.listed())
        await until(lambda: publisher.asked == [(b"first", True)], "it is asked for one")
        await spot.unsubscribe("first")
        await until(lambda: publisher.asked[1:] == [(b"first", False)], "and for no other")


async def test_a_message_is_not_compared_with_every_prefix() -> None:
    class NotLookedThrough(Counter[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            raise AssertionError("all prefixes are looked at")

    async with TopicCast() as cast, publishing() as publisher, asyncio.timeout(WITHIN_S):
        node = await node_of(cast)
        node.mesh.list_node(publisher.listed())
        await node.in_step()
        spot = node.spot()
        subscription = await spot.subscribe("zone:1")
        await spot.subscribe("zone:2")
        await spot.unsubscribe("zone:2")
        await until(lambda: publisher.asked[-1:] == [(b"zone:2", False)], "it is asked for one")
        assert isinstance(node.mesh, PubSubMesh)
        node.mesh._sub._wanted = NotLookedThrough(node.mesh._sub._wanted)
        publisher.pub.post([b"zone:1", b"found at once"])
        assert await payloads(subscription, 1) == [b"found at once"]


@pytest.mark.spec("SPT-14")
async def test_who_is_listed_no_more_is_hung_up_on() -> None:
    async with TopicCast() as cast, publishing() as publisher, asyncio.timeout(WITHIN_S):
        node = await node_of(cast)
        events = cast.heard(node)
        node.mesh.list_node(publisher.listed())
        await events.wait(PeerJoined, peer=routing_id(9))
        assert node.peers == (routing_id(9),)
        # Somebody else's entry is not this one.
        node.mesh.unlist_node(publisher.listed(8))
        assert node.peers == (routing_id(9),)
        node.mesh.unlist_node(publisher.listed())
        assert not node.peers
        await until(lambda: publisher.pub.peers == (), "the publisher sees it go")
        assert [event.reason for event in events.of(PeerLeft)] == ["no longer listed"]


async def test_a_node_that_follows_another_at_its_endpoint_is_known_by_its_own_id() -> None:
    async with TopicCast() as cast, publishing() as publisher, asyncio.timeout(WITHIN_S):
        node = await node_of(cast)
        events = cast.heard(node)
        subscription = await node.spot().subscribe("zone:1")
        node.mesh.list_node(publisher.listed(9))
        await events.wait(PeerJoined, peer=routing_id(9))
        node.mesh.unlist_node(publisher.listed(9))
        node.mesh.list_node(publisher.listed(7))
        await events.wait(PeerJoined, peer=routing_id(7))
        assert node.peers == (routing_id(7),)
        await until(lambda: len(publisher.pub.peers) == 1, "the first connection is gone")
        await until(lambda: publisher.asked.count((b"zone:1", True)) == 2, "the second one has asked")
        publisher.pub.post([b"zone:1", b"once"])
        publisher.pub.post([b"zone:1", b"last"])
        assert await payloads(subscription, 2) == [b"once", b"last"]


async def test_a_node_is_in_step_as_soon_as_the_listed_are_connected() -> None:
    async with TopicCast() as cast, publishing() as publisher:
        node = await node_of(cast)
        node.mesh.list_node(publisher.listed())
        await node.in_step(timeout=JOIN_S_MAX / 2)
        assert node.peers == (routing_id(9),)


async def test_a_publisher_that_is_not_there_is_given_up_and_found_when_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hansa.topics.pubsub_mesh.JOIN_S_MAX", 0.05)
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast, asyncio.timeout(WITHIN_S):
            node = await node_of(cast)
            events = cast.heard(node)
            node.mesh.list_node(info(bind))
            await node.in_step()
            assert node.peers == ()
            async with publishing(bind):
                await events.wait(PeerJoined, peer=routing_id(9))


async def test_one_that_is_unlisted_is_not_waited_for() -> None:
    with reserved_endpoints(1) as (bind,):
        async with TopicCast() as cast:
            node = await node_of(cast)
            node.mesh.list_node(info(bind))
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(node.in_step(timeout=JOIN_S_MAX / 2))
                await asyncio.sleep(0)
                assert not waiting.done()
                node.mesh.unlist_node(info(bind))


async def test_an_endpoint_that_cannot_be_dialled_is_reported_and_no_more() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with TopicCast() as cast:
        node = await node_of(cast)
        node.mesh.list_node(info("tcp://*:5555"))
        assert "cannot dial tcp://*:5555" in reported[0]["message"]
        await node.in_step(timeout=WITHIN_S)
        node.mesh.unlist_node(info("tcp://*:5555"))


async def test_nobody_is_dialled_after_the_end() -> None:
    async with TopicCast() as cast, publishing() as publisher:
        node = await node_of(cast)
        await node.close()
        node.mesh.list_node(publisher.listed())
        assert node.peers == ()
