"""Bad input to a node, a process, while topics go both ways between it and another one.

Whatever comes is counted and harms nobody else; who sends too much of it loses its connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from hansa.ids import routing_id
from hansa.limits import CONTROL_COUNT_MAX, PARTS_MAX, STRIKES_MAX, TOPICS_MAX
from hansa.topics import PeerJoined
from hansa.transport import Connected, Dealer, Disconnected, Environment, Router, SocketOptions
from tests.integration.faults.bad_messages import GARBAGE, NODE_NUISANCES, NODE_SPECIALS, Frames
from tests.support import zmtp_bytes as zmtp
from tests.support.discovery_cast import WITHIN_S
from tests.support.lanes import Lane
from tests.support.recorder import Recorder
from tests.support.topics_cast import TopicCast
from tests.support.topics_processes import NodeProcess
from tests.support.topics_wire import ANNOUNCE, QUERY_RESP, REMOVE, SUBSCRIBE, message

OPTIONS = SocketOptions(reconnect_s_min=0.02, reconnect_s_max=0.1, linger=0.5)
MINE, THEIRS = "good:victim", "good:friend"
VICTIM, FRIEND = 5, 9
GROWTH_KIB_MAX = 60 * 1024

pytestmark = pytest.mark.timeout(100)


class Nodes:
    """Two nodes, each an owner that the other one has subscribed to."""

    def __init__(self, victim: NodeProcess, friend: NodeProcess) -> None:
        self.victim, self.friend = victim, friend
        self._published = 0

    async def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = (await self.victim.do("stats"))["stats"]
        return stats

    async def rss_kib(self) -> int:
        rss_kib: int = (await self.victim.do("stats"))["rss_kib"]
        return rss_kib

    @asynccontextmanager
    async def busy(self, count: int) -> AsyncIterator[None]:
        """So many messages go from the friend to the victim meanwhile, and all arrive."""
        await self.friend.begin("publish", topic=THEIRS, first=self._published, count=count)
        self._published += count
        yield
        await self.friend.event("publish")
        await self.unharmed()

    async def unharmed(self) -> None:
        """Both still publish to each other, and nothing of all that they did was lost."""
        for publisher, topic in ((self.victim, MINE), (self.friend, THEIRS)):
            assert await publisher.do("publish", topic=topic, first=self._published, count=10) == {
                "event": "publish",
                "count": 10,
            }
        self._published += 10
        for reader, topic in ((self.victim, THEIRS), (self.friend, MINE)):
            while (books := await reader.books(topic))["last"] != self._published - 1:
                await asyncio.sleep(0.005)
            assert (books["missed"], books["dropped"], books["is_in_order"]) == (0, 0, True), books
            if topic == THEIRS:
                assert books["received"] == self._published
        stats = (await self.victim.do("stats"))["happened"]
        assert stats.get("SubscriptionSuspended", 0) == 0


@asynccontextmanager
async def nodes(**settings: Any) -> AsyncIterator[Nodes]:
    async with TopicCast() as cast, AsyncExitStack() as stack, asyncio.timeout(2 * WITHIN_S):
        registry = await cast.registry(heartbeat_timeout=60.0)
        where = str(registry.pub), str(registry.router)
        victim, friend = [
            await stack.enter_async_context(NodeProcess(number, *where, create=topic, **settings))
            for number, topic in ((VICTIM, MINE), (FRIEND, THEIRS))
        ]
        for node, wanted in ((victim, THEIRS), (friend, MINE)):
            await node.ready()
            await node.do("subscribe", text=wanted, count_max=1_000_000)
        for node, wanted in ((victim, THEIRS), (friend, MINE)):
            assert "code" not in await node.do("active", text=wanted)
        yield Nodes(victim, friend)


@asynccontextmanager
async def dialling(endpoint: str, number: int = 3) -> AsyncIterator[Dealer]:
    async with Dealer(routing_id(number), environment=Environment(options=OPTIONS)) as dealer:
        await dealer.connect(endpoint).up()
        yield dealer


async def all_read(dealer: Dealer, mark: str = "all read") -> list[Frames]:
    """Ask something that is answered: everything before it has been read. What came until then."""
    await dealer.send([SUBSCRIBE, mark.encode()])
    came = []
    while (parts := (await dealer.recv()).parts)[:2] != [REMOVE, mark.encode()]:
        came.append(parts)
    return came


@pytest.mark.spec("SEC-05")
async def test_every_malformed_message_is_counted_and_harms_nobody() -> None:
    async with nodes() as both, dialling(both.victim.endpoint) as dealer, both.busy(5_000):
        await all_read(dealer)
        assert (await both.stats())["bad_frames"] == {}
        for number, (what, frames) in enumerate(NODE_SPECIALS.items()):
            await dealer.send(frames)
            # Only what can be read is answered, and this could not be.
            assert await all_read(dealer) == [], what
            assert (await both.stats())["bad_frames"] == {"bad-frame": number + 1}, what
        assert len(NODE_SPECIALS) < STRIKES_MAX
        stats = await both.stats()
        assert (stats["expelled_count"], stats["peers_count"]) == (0, 2)
        # Nothing of it was taken for something.
        topics = (await both.victim.do("topics"))["topics"]
        assert topics.keys() == {MINE, THEIRS}


@pytest.mark.spec("SEC-05")
async def test_what_can_be_read_and_concerns_nobody_is_counted_by_what_it_was() -> None:
    async with nodes() as both, dialling(both.victim.endpoint) as dealer, both.busy(5_000):
        await all_read(dealer)
        before = await both.stats()
        for frames in NODE_NUISANCES:
            await dealer.send(frames)
        # Messages of a topic that was asked for, but not of this peer; a command with frames behind its own.
        await dealer.send(message(THEIRS, b"1000000", 2**63))
        await dealer.send(message(THEIRS, b"1000000"))
        await dealer.send([REMOVE, THEIRS.encode()])
        await dealer.send([SUBSCRIBE, b"nobody:owns:this", *[b"and more"] * 1_000])
        await all_read(dealer)
        after = await both.stats()
        assert after["unwanted_count"] - before["unwanted_count"] == 3
        assert after["refused_count"] - before["refused_count"] == 1
        assert after["subscribes_refused_count"] - before["subscribes_refused_count"] == 3
        assert after["publishes_refused_count"] == 0
        assert (after["bad_frames"], after["expelled_count"]) == ({}, 0)
        topics = (await both.victim.do("topics"))["topics"]
        assert topics[THEIRS] == "01:00000009"


@pytest.mark.spec("SEC-05")
async def test_who_sends_too_much_that_means_nothing_loses_its_connection_and_may_come_back() -> None:
    async with (
        nodes() as both,
        Dealer(routing_id(3), environment=Environment(options=OPTIONS)) as dealer,
        both.busy(5_000),
    ):
        outbound = dealer.connect(both.victim.endpoint)
        for count in (1, 2):
            await outbound.up()
            assert outbound.connection is not None
            ended = outbound.connection.closed
            for _ in range(STRIKES_MAX):
                await dealer.send([b"\x99", b"zone"])
            await ended
            while (stats := await both.stats())["expelled_count"] < count:
                await asyncio.sleep(0.005)
            assert stats["bad_frames"] == {"bad-frame": count * STRIKES_MAX}
        await outbound.up()
        await all_read(dealer)


@pytest.mark.spec("SEC-05")
async def test_claims_beyond_the_bound_are_refused_and_cost_the_connection() -> None:
    async with (
        nodes() as both,
        Dealer(routing_id(3), environment=Environment(options=OPTIONS)) as dealer,
        both.busy(20_000),
    ):
        outbound = dealer.connect(both.victim.endpoint)
        await outbound.up()
        assert outbound.connection is not None
        ended = outbound.connection.closed
        before = await both.rss_kib()
        for number in range(TOPICS_MAX):
            await dealer.send([ANNOUNCE, b"claim:%d" % number])
        await all_read(dealer)
        stats = await both.stats()
        assert (stats["topics_count"], stats["bad_frames"]) == (TOPICS_MAX + 2, {})
        for number in range(STRIKES_MAX):
            await dealer.send([ANNOUNCE, b"one:more:%d" % number])
        await ended
        while (stats := await both.stats())["expelled_count"] == 0:
            await asyncio.sleep(0.005)
        assert stats["bad_frames"] == {"limit-exceeded": STRIKES_MAX}
        while (await both.stats())["topics_count"] > 2:
            await asyncio.sleep(0.005)
        assert await both.rss_kib() - before < GROWTH_KIB_MAX


@pytest.mark.spec("SEC-05")
async def test_who_asks_on_and_on_without_reading_the_answers_is_sent_away() -> None:
    async with nodes(outgoing_count_max=1_000) as both, both.busy(5_000):
        before = await both.rss_kib()
        host, _, port = both.victim.endpoint.removeprefix("tcp://").rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(zmtp.greeting() + zmtp.ready(b"DEALER", routing_id(3)))
        # What the kernel takes of the answers (some 10 MiB), what the node keeps of them, and more.
        flood = zmtp.message(SUBSCRIBE, b"t" * 255) * 1_000
        with pytest.raises(ConnectionError):
            for _ in range(10 * CONTROL_COUNT_MAX // 1_000):
                writer.write(flood)
                await writer.drain()
        writer.close()
        while (stats := await both.stats())["peers_count"] > 1:
            await asyncio.sleep(0.005)
        assert stats["subscribes_refused_count"] > CONTROL_COUNT_MAX
        assert await both.rss_kib() - before < GROWTH_KIB_MAX


@pytest.mark.spec("SEC-05")
async def test_a_peer_under_the_nodes_own_id_or_another_nodes_id_is_nobody() -> None:
    async with nodes(tell="TopicDemoted") as both:
        # The node's own: what it says would be taken for the node's own word.
        async with Dealer(routing_id(VICTIM), environment=Environment(options=OPTIONS)) as dealer:
            outbound = dealer.connect(both.victim.endpoint)
            await outbound.up()
            assert outbound.connection is not None
            ended = outbound.connection.closed
            await dealer.send([ANNOUNCE, THEIRS.encode()])
            await dealer.send(message(THEIRS, b"1000000", 1))
            await ended
        stats = await both.stats()
        assert stats["demotions_count"] == 0
        assert (await both.victim.do("topics"))["topics"] == {MINE: "01:00000005", THEIRS: "01:00000009"}
        await both.unharmed()


@pytest.mark.spec("SEC-05")
async def test_a_message_of_too_many_frames_and_bytes_that_are_no_zmtp_end_their_connection() -> None:
    async with nodes() as both, both.busy(5_000):
        lane = Lane(name="tcp", folder=None)  # type: ignore[arg-type]
        try:
            garbage = [bytes_ for _, bytes_ in GARBAGE]
            garbage.append(
                zmtp.greeting()
                + zmtp.ready(b"DEALER")
                + zmtp.frame(QUERY_RESP, more=True)
                + zmtp.frame(b"t", more=True) * PARTS_MAX
            )
            for one in garbage:
                peer = await lane.dial_raw(both.victim.endpoint)
                peer.send(one)
                await peer.lost
            assert (await both.stats())["peers_count"] == 1
        finally:
            await lane.end()


@pytest.mark.spec("SEC-05")
@pytest.mark.spec("SPT-14")
async def test_an_impostor_at_a_listed_endpoint_is_left_alone() -> None:
    """The registry lists one id there, and another one answers: nothing of what it says is believed."""
    seen = Recorder()
    async with (
        TopicCast() as cast,
        Router(routing_id(7), environment=Environment(options=OPTIONS), on_event=seen) as impostor,
        asyncio.timeout(WITHIN_S),
    ):
        registry = await cast.registry(heartbeat_timeout=60.0)
        node = await cast.node(registry, VICTIM)
        events = cast.heard(node)
        where = await impostor.bind("tcp://127.0.0.1:0")
        async with Dealer(routing_id(FRIEND), environment=Environment(options=OPTIONS)) as dealer:
            await dealer.connect(registry.router).up()
            await dealer.send([b"\x01\x00", b"spot-node", str(where).encode(), b"\x01\x00\x00\x00"])
            # The node dials it, and hangs up.
            await seen.wait(Connected, peer=node.routing_id)
            await seen.wait(Disconnected, peer=node.routing_id)
            assert (node.peers, node.topics) == ((), {})
            assert events.of(PeerJoined) == []
