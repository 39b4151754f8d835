"""A node of hansa's and one that knows only the specification: libzmq and frames, in a process of its own."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from hansa import NoOwner, SpotNode, TopicExists
from hansa.ids import routing_id
from hansa.topics import PeerJoined, PeerLeft, SubscriptionState, TopicDemoted
from tests.support.discovery_cast import WITHIN_S, until
from tests.support.peer_process import PeerProcess
from tests.support.topics_cast import TopicCast, messages, payloads, waiting

NODE, LOWER, HIGHER = 5, 2, 9
SCRIPT = Path(__file__).with_name("raw_node.py")
BOTH = pytest.mark.parametrize("number", [LOWER, HIGHER], ids=["libzmq dials", "hansa dials"])

pytestmark = pytest.mark.timeout(60)


class RawNode(PeerProcess):
    """raw_node.py, listed at a registry."""

    def __init__(self, cast: TopicCast, node: SpotNode, registry: Any, number: int) -> None:
        arguments = (f"--pub={registry.pub}", f"--router={registry.router}", f"--number={number}")
        super().__init__("topics/raw_node.py", *arguments)
        self.routing_id = routing_id(number)
        self._node = node

    async def joined(self) -> None:
        """Wait until both have asked each other what they own, and answered."""
        missing = {"registered", "met", "QUERY", "QUERY_RESP"}
        while missing:
            told = await self.hear()
            missing -= {told.get("heard"), *told}
        await until(lambda: self.routing_id in self._node.peers, "they are connected")
        await self._node.in_step()

    async def do(self, order: str) -> None:
        await self.say(order)
        while (await self.hear()).get("did") != order.split()[0]:
            pass

    async def heard(self, command: str) -> list[bytes]:
        """The fields of the next such message of hansa's node."""
        wanted = (command, self._node.routing_id.hex())
        while ((told := await self.hear()).get("heard"), told.get("peer")) != wanted:
            pass
        return [bytes.fromhex(field) for field in told["fields"]]


def test_the_raw_node_uses_nothing_of_hansas() -> None:
    assert re.search(r"^\s*(from|import) (hansa|tests)", SCRIPT.read_text(), re.MULTILINE) is None


@BOTH
@pytest.mark.spec("SPT-05")
@pytest.mark.spec("SPT-11")
@pytest.mark.spec("SPT-19")
async def test_a_raw_node_subscribes_to_a_topic_of_hansas_and_publishes_to_it(number: int) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, NODE)
        spot = node.spot()
        await spot.create_topic("zone:12:state")
        mine = await spot.subscribe("zone:12:state")
        async with RawNode(cast, node, registry, number) as raw:
            await raw.joined()
            await raw.do("subscribe zone:12:state")
            await until(lambda: node.subscribers("zone:12:state") == (raw.routing_id,), "it has subscribed")
            # By the owner, and routed by the raw node: both come back to it, in the specified frames.
            await spot.publish("zone:12:state", b"first")
            topic, payload, *_ = await raw.heard("MESSAGE")
            assert (topic, payload) == (b"zone:12:state", b"first")
            await raw.do("publish zone:12:state second")
            topic, payload, *_ = await raw.heard("MESSAGE")
            assert (topic, payload) == (b"zone:12:state", b"second")
            assert await payloads(mine, 2) == [b"first", b"second"]
            # What is created and destroyed later is told.
            await spot.create_topic("zone:13:state")
            assert (await raw.heard("TOPIC_ANNOUNCE"))[0] == b"zone:13:state"
            await spot.destroy_topic("zone:13:state")
            assert (await raw.heard("TOPIC_REMOVE"))[0] == b"zone:13:state"
            await raw.do("unsubscribe zone:12:state")
            await until(lambda: node.subscribers("zone:12:state") == (), "it has unsubscribed")
            await spot.publish("zone:12:state", b"third")
            # It asks once more: the answer is the next thing that it hears, so nothing came in between.
            await raw.say("query")
            assert [(await raw.hear()).get("did"), (await raw.hear()).get("heard")] == ["query", "QUERY_RESP"]
        assert node.stats.bad_frames == {}


@BOTH
@pytest.mark.spec("SPT-02")
@pytest.mark.spec("SPT-04")
@pytest.mark.spec("SPT-05")
@pytest.mark.spec("SPT-07")
async def test_hansa_subscribes_to_a_topic_of_a_raw_node_and_publishes_to_it(number: int) -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, NODE)
        spot = node.spot()
        events = cast.heard(node)
        early = await spot.subscribe("zone:*")
        async with RawNode(cast, node, registry, number) as raw:
            await raw.joined()
            assert early.state is SubscriptionState.PENDING
            await raw.do("own zone:12:state")
            assert await raw.heard("SUBSCRIBE") == [b"zone:12:state"]
            # Such an owner confirms nothing.
            await early.active()
            assert node.topics == {"zone:12:state": raw.routing_id}
            with pytest.raises(TopicExists):
                await spot.create_topic("zone:12:state")
            await raw.do("publish zone:12:state first")
            await spot.publish("zone:12:state", b"second")
            assert await raw.heard("PUBLISH") == [b"zone:12:state", b"second"]
            got = await messages(spot, 2)
            assert [(one.topic, one.payload, one.sequence) for one in got] == [
                ("zone:12:state", b"first", 0),
                ("zone:12:state", b"second", 0),
            ]
            # It takes the topic back, creates it again, and leaves.
            await raw.do("remove zone:12:state")
            await early.pending()
            with pytest.raises(NoOwner):
                await spot.publish("zone:12:state", b"nobody there")
            await raw.do("own zone:12:state")
            assert await raw.heard("SUBSCRIBE") == [b"zone:12:state"]
            await early.active()
            await spot.unsubscribe("zone:*")
            assert await raw.heard("UNSUBSCRIBE") == [b"zone:12:state"]
            late = await spot.subscribe("zone:12:state")
            assert await raw.heard("SUBSCRIBE") == [b"zone:12:state"]
            await late.active()
            await raw.say("leave")
            await late.pending()
            while "left" not in await raw.hear():
                pass
        await until(lambda: node.peers == (), "it has left")
        assert node.topics == {}
        assert [event.peer for event in events.of(PeerJoined)] == [raw.routing_id]
        assert [event.peer for event in events.of(PeerLeft)] == [raw.routing_id]
        assert (waiting(spot), node.stats.bad_frames) == ([], {})


@pytest.mark.spec("SPT-12")
async def test_a_raw_node_of_lower_id_wins_a_topic_and_one_of_higher_id_loses_it() -> None:
    async with TopicCast() as cast, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry()
        node = await cast.node(registry, NODE)
        spot = node.spot()
        events = cast.heard(spot)
        subscription = await spot.subscribe("zone:12:state")
        async with RawNode(cast, node, registry, HIGHER) as high, RawNode(cast, node, registry, LOWER) as low:
            await high.joined()
            await low.joined()
            # The raw node owns it, and hansa's claims it in the same moment: here it is forced by a claim
            # that the raw node makes although it has heard of the other's.
            await spot.create_topic("zone:12:state")
            await high.heard("TOPIC_ANNOUNCE")
            await high.do("own zone:12:state")
            await high.do("query")
            await high.heard("QUERY_RESP")
            assert (node.topics, events.of(TopicDemoted)) == ({"zone:12:state": node.routing_id}, [])
            # Against the lower id it is hansa's that loses.
            await low.do("own zone:12:state")
            demoted = await events.wait(TopicDemoted)
            assert (demoted.topic, demoted.winner) == ("zone:12:state", low.routing_id)
            assert await low.heard("SUBSCRIBE") == [b"zone:12:state"]
            await subscription.active()
            await spot.publish("zone:12:state", b"hello")
            assert await low.heard("PUBLISH") == [b"zone:12:state", b"hello"]
            assert await payloads(subscription, 1) == [b"hello"]
            assert node.topics == {"zone:12:state": low.routing_id}
            # The winner leaves. The higher id had claimed it and was demoted meanwhile: it is asked, and not
            # taken for the owner until it claims the topic again.
            await low.say("leave")
            await until(lambda: node.topics == {}, "nobody owns it")
            await subscription.pending()
            await high.do("own zone:12:state")
            assert await high.heard("SUBSCRIBE") == [b"zone:12:state"]
            await subscription.active()
            await high.do("publish zone:12:state from high")
            assert await payloads(subscription, 1) == [b"from"]
        assert node.stats.bad_frames == {}
