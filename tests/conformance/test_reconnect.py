"""Peers that go and return: what waits for them, what fails, what is dialled again."""

import asyncio

import pytest

from hansa.errors import Backlogged, PeerAway, UnknownPeer
from hansa.transport import Away, CloseReason, Connected, Disconnected, HandshakeFailed, Message, Overflow
from tests.support.lanes import Lane, quick
from tests.support.recorder import Recorder


async def test_a_connection_made_before_anyone_listens_comes_up_when_someone_does(lane: Lane) -> None:
    async with lane.dealer(b"leaf") as leaf:
        async with lane.router(b"placeholder") as placeholder:
            endpoint = str(await placeholder.bind(lane.endpoint()))
        outbound = leaf.connect(endpoint)
        await leaf.send([b"sent before there was a hub"])
        assert not outbound.is_up
        async with lane.router(b"hub") as hub:
            await hub.bind(endpoint)
            assert await outbound.up() == b"hub"
            assert await hub.recv() == Message(b"leaf", [b"sent before there was a hub"])


async def test_a_failed_dial_is_reported(lane: Lane) -> None:
    seen = Recorder()
    async with lane.dealer(b"leaf", on_event=seen) as leaf:
        async with lane.router() as placeholder:
            endpoint = str(await placeholder.bind(lane.endpoint()))
        leaf.connect(endpoint)
        failed = await seen.wait(HandshakeFailed, count=3)
        assert failed.reason == CloseReason.CONNECT_FAILED
        assert failed.address
        assert leaf.stats.ended[CloseReason.CONNECT_FAILED] >= 3


@pytest.mark.parametrize("kind", ["router", "dealer"])
async def test_the_connection_returns_when_the_bound_side_does(lane: Lane, kind: str) -> None:
    seen = Recorder()
    async with getattr(lane, kind)(b"leaf", on_event=seen) as leaf:
        endpoint = lane.endpoint()
        for turn in range(3):
            async with lane.router(b"hub") as hub:
                bound = await hub.bind(endpoint)
                if turn == 0:
                    endpoint = str(bound)
                    outbound = leaf.connect(endpoint)
                await seen.wait(Connected, count=turn + 1)
                assert await outbound.up() == b"hub"
                if kind == "router":
                    await leaf.send(b"hub", [b"turn %d" % turn])
                else:
                    await leaf.send([b"turn %d" % turn])
                assert await hub.recv() == Message(b"leaf", [b"turn %d" % turn])
                await hub.send(b"leaf", [b"back"])
                assert await leaf.recv() == Message(b"hub", [b"back"])
            await seen.wait(Disconnected, count=turn + 1, peer=b"hub")
            assert not outbound.is_up


@pytest.mark.parametrize("kind", ["router", "dealer"])
async def test_messages_wait_for_a_peer_that_is_away_and_keep_their_order(lane: Lane, kind: str) -> None:
    seen = Recorder()
    async with getattr(lane, kind)(b"leaf", on_event=seen, options=quick(away=Away.WAIT)) as leaf:
        async with lane.router(b"hub") as hub:
            endpoint = str(await hub.bind(lane.endpoint()))
            await leaf.connect(endpoint).up()
        await seen.wait(Disconnected, peer=b"hub")
        for number in range(500):
            parts = [b"%d" % number]
            await (leaf.send(b"hub", parts) if kind == "router" else leaf.send(parts))
        async with lane.router(b"hub") as hub:
            await hub.bind(endpoint)
            for number in range(500):
                assert await hub.recv() == Message(b"leaf", [b"%d" % number])


@pytest.mark.parametrize("kind", ["router", "dealer"])
async def test_messages_for_a_peer_that_is_away_fail_if_so_chosen(lane: Lane, kind: str) -> None:
    seen = Recorder()
    async with getattr(lane, kind)(b"leaf", on_event=seen, options=quick(away=Away.FAIL)) as leaf:
        async with lane.router(b"hub") as hub:
            endpoint = str(await hub.bind(lane.endpoint()))
            outbound = leaf.connect(endpoint)
            await outbound.up()
        await seen.wait(Disconnected, peer=b"hub")
        with pytest.raises(PeerAway):
            await (leaf.send(b"hub", [b"x"]) if kind == "router" else leaf.send([b"x"]))
        with pytest.raises(PeerAway):
            leaf.post(b"hub", [b"x"]) if kind == "router" else leaf.post([b"x"])
        async with lane.router(b"hub") as hub:
            await hub.bind(endpoint)
            await outbound.up()
            await (leaf.send(b"hub", [b"y"]) if kind == "router" else leaf.send([b"y"]))
            assert await hub.recv() == Message(b"leaf", [b"y"])


async def test_a_dealer_without_any_peer_fails_if_so_chosen(lane: Lane) -> None:
    async with lane.dealer(options=quick(away=Away.FAIL)) as dealer:
        with pytest.raises(PeerAway):
            await dealer.send([b"x"])
        with pytest.raises(PeerAway):
            dealer.post([b"x"])


async def test_what_waits_for_an_absent_peer_is_bounded_and_blocks(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"leaf", on_event=seen, options=quick(outgoing_count_max=10)) as leaf:
        async with lane.router(b"hub") as hub:
            endpoint = str(await hub.bind(lane.endpoint()))
            await leaf.connect(endpoint).up()
        await seen.wait(Disconnected, peer=b"hub")
        for number in range(10):
            await leaf.send(b"hub", [b"%d" % number])
        with pytest.raises(Backlogged):
            leaf.post(b"hub", [b"one too many"])
        blocked = asyncio.ensure_future(leaf.send(b"hub", [b"10"]))
        done, _ = await asyncio.wait({blocked}, timeout=0.05)
        assert not done
        async with lane.router(b"hub") as hub:
            await hub.bind(endpoint)
            for number in range(11):
                assert await hub.recv() == Message(b"leaf", [b"%d" % number])
            await blocked


async def test_what_waits_for_an_absent_peer_is_bounded_and_fails(lane: Lane) -> None:
    seen = Recorder()
    options = quick(outgoing_count_max=10, overflow=Overflow.FAIL)
    async with lane.router(b"leaf", on_event=seen, options=options) as leaf:
        async with lane.router(b"hub") as hub:
            endpoint = str(await hub.bind(lane.endpoint()))
            await leaf.connect(endpoint).up()
        await seen.wait(Disconnected, peer=b"hub")
        for number in range(10):
            await leaf.send(b"hub", [b"%d" % number])
        with pytest.raises(Backlogged):
            await leaf.send(b"hub", [b"one too many"])


async def test_the_bound_side_forgets_a_peer_that_left(lane: Lane) -> None:
    """It cannot dial: nothing says that the peer will ever return, so nothing waits for it."""
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(away=Away.WAIT)) as hub:
        endpoint = str(await hub.bind(lane.endpoint()))
        async with lane.router(b"leaf") as leaf:
            leaf.connect(endpoint)
            await seen.wait(Connected, peer=b"leaf")
        await seen.wait(Disconnected, peer=b"leaf")
        with pytest.raises(UnknownPeer):
            await hub.send(b"leaf", [b"x"])


async def test_a_killed_connection_is_made_again(lane: Lane) -> None:
    """The peer vanishes without a goodbye, again and again."""
    seen = Recorder()
    async with lane.dealer(b"leaf", on_event=seen) as leaf:
        listener = await lane.listen_raw()
        leaf.connect(listener.endpoint)
        for turn in range(5):
            raw = await listener.accept()
            await raw.shake_hands(b"ROUTER", b"hub")
            await leaf.send([b"turn %d" % turn])
            assert await raw.read_message() == [b"turn %d" % turn]
            raw.abort()
            gone = await seen.wait(Disconnected, count=turn + 1)
            assert gone.reason in (CloseReason.CONNECTION_LOST, CloseReason.CLOSED_BY_PEER)


async def test_half_a_message_is_not_delivered_after_a_reconnect(lane: Lane) -> None:
    from tests.support import zmtp_bytes as zmtp

    seen = Recorder()
    async with lane.dealer(b"leaf", on_event=seen) as leaf:
        listener = await lane.listen_raw()
        leaf.connect(listener.endpoint)
        raw = await listener.accept()
        await raw.shake_hands(b"ROUTER", b"hub")
        raw.send(
            zmtp.message(b"whole") + zmtp.frame(b"first half", more=True) + zmtp.frame_header(50_000) + b"x"
        )
        assert await leaf.recv() == Message(b"hub", [b"whole"])
        await raw.close()
        again = await listener.accept()
        await again.shake_hands(b"ROUTER", b"hub")
        again.send(zmtp.message(b"fresh"))
        assert await leaf.recv() == Message(b"hub", [b"fresh"])


async def test_waiting_for_a_connection_ends_with_its_closing(lane: Lane) -> None:
    from hansa.errors import HansaError

    async with lane.dealer(b"leaf") as leaf:
        async with lane.router() as placeholder:
            endpoint = str(await placeholder.bind(lane.endpoint()))
        outbound = leaf.connect(endpoint)
        waiting = asyncio.ensure_future(outbound.up())
        await asyncio.sleep(0)
        await outbound.close()
        with pytest.raises(HansaError):
            await waiting
