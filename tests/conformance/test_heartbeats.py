"""Idle connections live, dead peers are noticed."""

import asyncio
import contextlib

import pytest

from hansa.errors import Backlogged, UnknownPeer
from hansa.limits import WRITE_TURN_BYTES
from hansa.transport import CloseReason, Connected, Disconnected, Message
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane, quick
from tests.support.recorder import Recorder

BEATING = {"heartbeat_interval": 0.05, "heartbeat_timeout": 0.2}


async def test_a_ping_is_answered_with_its_context(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        for context in (b"", b"x", b"sixteen bytes ok"):
            raw.send(zmtp.ping(ttl_ds=100, context=context))
            assert await raw.read_command() == (b"PONG", context)


async def test_a_ping_context_of_17_bytes_is_a_violation(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        raw.send(zmtp.ping(context=bytes(17)))
        assert (await seen.wait(Disconnected)).reason == CloseReason.PROTOCOL_VIOLATION


async def test_an_idle_connection_is_pinged_and_lives(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(**BEATING)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        for _ in range(8):  # twice the timeout
            name, data = await raw.read_command()
            assert name == b"PING"
            assert len(data) >= 2
            raw.send(zmtp.pong(data[2:]))
        raw.send(zmtp.message(b"alive"))
        assert await hub.recv() == Message(b"raw", [b"alive"])
        assert not seen.of(Disconnected)


async def test_two_idle_sockets_keep_their_connection(lane: Lane) -> None:
    seen = Recorder()
    async with (
        lane.router(b"hub", on_event=seen, options=quick(**BEATING)) as hub,
        lane.dealer(b"leaf", on_event=seen, options=quick(**BEATING)) as leaf,
    ):
        leaf.connect(str(await hub.bind(lane.endpoint())))
        await seen.wait(Connected, count=2)
        # The only proof of nothing happening is time: three timeouts of it.
        await asyncio.wait({asyncio.ensure_future(hub.recv())}, timeout=0.6)
        assert not seen.of(Disconnected)
        await hub.send(b"leaf", [b"still there?"])
        assert await leaf.recv() == Message(b"hub", [b"still there?"])


async def test_a_silent_peer_that_was_accepted_is_given_up(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(**BEATING)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        await seen.wait(Connected)
        gone = await seen.wait(Disconnected, within_s=3)
        assert (gone.peer, gone.reason) == (b"raw", CloseReason.HEARTBEAT_TIMEOUT)
        assert hub.stats.ended[CloseReason.HEARTBEAT_TIMEOUT] == 1
        await raw.lost


async def test_a_silent_peer_that_was_dialled_is_given_up_and_dialled_again(lane: Lane) -> None:
    seen = Recorder()
    async with lane.dealer(b"leaf", on_event=seen, options=quick(**BEATING)) as leaf:
        listener = await lane.listen_raw()
        leaf.connect(listener.endpoint)
        raw = await listener.accept()
        await raw.shake_hands(b"ROUTER", b"hub")
        await seen.wait(Connected, peer=b"hub")
        gone = await seen.wait(Disconnected, within_s=3)
        assert gone.reason == CloseReason.HEARTBEAT_TIMEOUT
        again = await listener.accept()
        await again.shake_hands(b"ROUTER", b"hub")
        await seen.wait(Connected, count=2)


async def test_a_dead_peer_is_noticed_while_we_send_to_it(lane: Lane) -> None:
    """Writing succeeds into the kernel's buffers; only an answer proves life."""
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(**BEATING)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        await seen.wait(Connected)
        raw.stop_reading()
        while not seen.of(Disconnected):
            with contextlib.suppress(UnknownPeer):  # It may go while a send waits.
                await hub.send(b"raw", [b"are you there?"])
            await asyncio.sleep(0.01)
        assert seen.of(Disconnected)[0].reason == CloseReason.HEARTBEAT_TIMEOUT


async def test_any_traffic_counts_as_life(lane: Lane) -> None:
    """A peer that sends messages and answers no PING in time is busy, not dead."""
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(**BEATING)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        pings = 0
        while pings < 8:
            name, _ = await raw.read_command()
            assert name == b"PING"
            pings += 1
            raw.send(zmtp.message(b"busy"))
            await hub.recv()
        assert not seen.of(Disconnected)


@pytest.mark.parametrize("options", [{"heartbeat_interval": None}, {}])
async def test_without_heartbeats_or_before_the_first_nothing_is_pinged(
    lane: Lane, options: dict[str, None]
) -> None:
    async with lane.router(b"hub", options=quick(**options)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        raw.send(zmtp.message(b"hello"))
        await hub.recv()
        waiting = asyncio.ensure_future(raw.read_frame())
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        await hub.send(b"raw", [b"first thing you hear"])
        assert (await waiting).body == b"first thing you hear"


async def test_a_3_0_peer_is_never_pinged(lane: Lane) -> None:
    """PING came with 3.1; an older peer would take it for a violation."""
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(**BEATING)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"old", minor=0)
        waiting = asyncio.ensure_future(raw.read_frame())
        done, _ = await asyncio.wait({waiting}, timeout=0.4)
        assert not done
        assert not seen.of(Disconnected)
        await hub.send(b"old", [b"hello"])
        assert (await waiting).body == b"hello"


async def test_the_ttl_in_a_peers_ping_is_kept(lane: Lane) -> None:
    """The peer promises to be heard within its ttl; when it is not, it is gone, whatever our own timeout."""
    seen = Recorder()
    options = quick(heartbeat_interval=10.0, heartbeat_timeout=30.0)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        raw.send(zmtp.ping(ttl_ds=2, context=b""))
        assert await raw.read_command() == (b"PONG", b"")
        gone = await seen.wait(Disconnected, within_s=3)
        assert gone.reason == CloseReason.HEARTBEAT_TIMEOUT


@pytest.mark.spec("SEC-05")
async def test_a_peer_that_pings_and_never_reads_costs_no_memory(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(linger=0.1)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        await seen.wait(Connected)
        raw.stop_reading()
        pings = zmtp.ping(ttl_ds=0, context=b"sixteen bytes ok") * 1_000
        for _ in range(400):  # 10 MB of questions, and as many answers if all were kept
            raw.send(pings)
            await asyncio.sleep(0)
        raw.send(zmtp.message(b"the end"))
        assert (await hub.recv()).parts == [b"the end"]
        connection = hub._connected[b"raw"]
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 2 * WRITE_TURN_BYTES


async def test_heartbeats_that_waited_for_room_are_sent_before_the_messages_that_waited(lane: Lane) -> None:
    """Neither the answer to the peer's PING nor our own PING is forgotten when the peer reads again."""
    seen = Recorder()
    options = quick(outgoing_count_max=4, heartbeat_interval=0.05, heartbeat_timeout=20.0)
    async with lane.router(b"hub", on_event=seen, options=options) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        await raw.shake_hands(b"DEALER", b"raw")
        await seen.wait(Connected)
        raw.stop_reading()
        posted_count = 0
        with contextlib.suppress(Backlogged):
            while True:
                hub.post(b"raw", [bytes(60_000)])
                posted_count += 1
                await asyncio.sleep(0)
        raw.send(zmtp.ping(context=b"ask") + zmtp.message(b"after"))
        # By then the PING was answered; and an interval later one of our own was due.
        assert (await hub.recv()).parts == [b"after"]
        await asyncio.sleep(0.1)
        raw.go_on_reading()
        commands: set[bytes] = set()
        read_count = 0
        while read_count < posted_count - 1:
            got = await raw.read_frame()
            read_count += not got.is_command
            # A PING from before the pause stands before almost all of the messages.
            if got.is_command and read_count > 1:
                commands.add(got.command_name)
        assert commands >= {b"PING", b"PONG"}
