"""Who is who: ids given, ids made up, ids claimed twice."""

import asyncio

import pytest

from hansa.errors import UnknownPeer
from hansa.transport import CloseReason, Connected, Disconnected, HandshakeFailed, Message
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane, quick
from tests.support.recorder import Recorder


async def test_many_peers_are_told_apart(lane: Lane) -> None:
    names = [b"leaf-%d" % number for number in range(50)]
    async with lane.router(b"hub") as hub:
        endpoint = str(await hub.bind(lane.endpoint()))
        leaves = {name: lane.dealer(name) for name in names}
        async with asyncio.TaskGroup() as group:
            for leaf in leaves.values():
                await leaf.__aenter__()
                leaf.connect(endpoint)
                group.create_task(leaf.send([b"hello"]), name="hello")
        heard = {(await hub.recv()).peer for _ in names}
        assert heard == set(names)
        assert set(hub.peers) == set(names)
        for name in names:
            await hub.send(name, [b"for you", name])
        for name, leaf in leaves.items():
            assert (await leaf.recv()).parts == [b"for you", name]
            await leaf.__aexit__(None, None, None)


async def test_an_unknown_peer_is_an_error(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        await hub.bind(lane.endpoint())
        with pytest.raises(UnknownPeer, match="nobody"):
            await hub.send(b"nobody", [b"x"])
        with pytest.raises(UnknownPeer, match="nobody"):
            hub.post(b"nobody", [b"x"])


async def test_a_peer_that_left_is_unknown_again(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        async with lane.dealer(b"leaf") as leaf:
            leaf.connect(str(await hub.bind(lane.endpoint())))
            await seen.wait(Connected, peer=b"leaf")
        await seen.wait(Disconnected, peer=b"leaf")
        assert hub.peers == ()
        with pytest.raises(UnknownPeer):
            await hub.send(b"leaf", [b"x"])


async def test_anonymous_peers_get_ids_of_their_own(lane: Lane) -> None:
    async with (
        lane.router(b"hub") as hub,
        lane.dealer() as first,
        lane.dealer() as second,
        lane.dealer() as third,
    ):
        endpoint = str(await hub.bind(lane.endpoint()))
        by_text = {}
        for dealer, text in ((first, b"1"), (second, b"2"), (third, b"3")):
            dealer.connect(endpoint)
            await dealer.send([text])
            got = await hub.recv()
            by_text[text] = got.peer
            assert got.parts == [text]
        assert len(set(by_text.values())) == 3
        # A zero byte in front: such an id can never be one that a peer gave itself.
        assert all(peer[:1] == b"\0" and len(peer) == 5 for peer in by_text.values())
        await hub.send(by_text[b"2"], [b"to the second"])
        assert (await second.recv()).parts == [b"to the second"]


async def test_the_longest_id_is_accepted(lane: Lane) -> None:
    longest = bytes(range(1, 256))
    assert len(longest) == 255
    async with lane.router(b"hub") as hub, lane.dealer(longest) as leaf:
        leaf.connect(str(await hub.bind(lane.endpoint())))
        await leaf.send([b"x"])
        assert await hub.recv() == Message(longest, [b"x"])


async def test_an_id_of_256_bytes_is_refused(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(zmtp.greeting() + zmtp.ready(b"DEALER", b"x" * 256))
        await seen.wait(HandshakeFailed)
        await raw.lost
        assert hub.peers == ()


async def test_a_second_peer_with_an_id_in_use_is_refused_and_both_sides_see_it(lane: Lane) -> None:
    seen, seen_by_second = Recorder(), Recorder()
    async with (
        lane.router(b"hub", on_event=seen) as hub,
        lane.dealer(b"twin") as first,
        lane.dealer(b"twin", on_event=seen_by_second) as second,
    ):
        endpoint = str(await hub.bind(lane.endpoint()))
        first.connect(endpoint)
        await seen.wait(Connected, peer=b"twin")
        second.connect(endpoint)
        refused = await seen.wait(HandshakeFailed)
        assert (refused.reason, refused.peer) == (CloseReason.ID_IN_USE, b"twin")
        told = await seen_by_second.wait(HandshakeFailed)
        assert told.reason == CloseReason.REFUSED_BY_PEER
        assert "id-in-use" in told.detail
        assert hub.stats.ended[CloseReason.ID_IN_USE] >= 1
        assert second.stats.ended[CloseReason.REFUSED_BY_PEER] >= 1
        await first.send([b"I was first"])
        assert await hub.recv() == Message(b"twin", [b"I was first"])
        assert not seen.of(Disconnected)


async def test_a_refused_twin_gets_in_when_the_first_leaves(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub, lane.dealer(b"twin") as second:
        endpoint = str(await hub.bind(lane.endpoint()))
        async with lane.dealer(b"twin") as first:
            first.connect(endpoint)
            await seen.wait(Connected, peer=b"twin")
            waiting = second.connect(endpoint)
            await seen.wait(HandshakeFailed, reason=CloseReason.ID_IN_USE)
        await waiting.up()
        await second.send([b"now me"])
        assert await hub.recv() == Message(b"twin", [b"now me"])


async def test_a_second_peer_takes_over_if_the_socket_was_asked_to(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(takeover=True)) as hub:
        endpoint = await hub.bind(lane.endpoint())
        first, second = await lane.dial_raw(endpoint), await lane.dial_raw(endpoint)
        await first.shake_hands(b"DEALER", b"twin")
        await seen.wait(Connected, peer=b"twin")
        await second.shake_hands(b"DEALER", b"twin")
        await seen.wait(Connected, peer=b"twin", count=2)
        gone = await seen.wait(Disconnected, peer=b"twin")
        assert gone.reason == CloseReason.TAKEN_OVER
        await first.lost
        await hub.send(b"twin", [b"for the new one"])
        assert await second.read_message() == [b"for the new one"]
        assert hub.peers == (b"twin",)
        assert hub.stats.ended[CloseReason.TAKEN_OVER] == 1


async def test_the_end_of_the_former_is_told_before_its_successor(lane: Lane) -> None:
    """Whoever keeps a list of peers from the events must not end up without the one that is connected."""
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(takeover=True)) as hub:
        endpoint = await hub.bind(lane.endpoint())
        for _ in range(3):
            raw = await lane.dial_raw(endpoint)
            await raw.shake_hands(b"DEALER", b"twin")
        await seen.wait(Connected, count=3)
        await seen.wait(Disconnected, count=2)
        kinds = [type(event) for event in seen.events]
        assert kinds == [Connected, Disconnected, Connected, Disconnected, Connected]


async def test_two_sockets_of_one_name_may_talk(lane: Lane) -> None:
    """Ids need to differ only among the peers of one socket."""
    async with lane.router(b"me") as router, lane.router(b"me") as other:
        await other.connect(str(await router.bind(lane.endpoint()))).up()
        await other.send(b"me", [b"to my namesake"])
        assert await router.recv() == Message(b"me", [b"to my namesake"])
