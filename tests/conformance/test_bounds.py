"""Hard bounds: who breaks one is closed with a reason, and nobody else notices."""

import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hansa.transport import CloseReason, Connected, Disconnected, HandshakeFailed, Message, Router
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane, quick
from tests.support.raw_peer import RawPeer
from tests.support.recorder import Recorder

BOUNDS = {"frame_bytes_max": 1000, "message_bytes_max": 2500, "parts_max": 5}

VIOLATIONS = {
    "frame of one byte too many": (zmtp.frame_header(1001), CloseReason.FRAME_TOO_LARGE),
    "frame of 2**40 bytes": (zmtp.frame_header(1 << 40), CloseReason.FRAME_TOO_LARGE),
    "frame of 2**63 bytes": (zmtp.frame_header(1 << 63), CloseReason.FRAME_TOO_LARGE),
    "frame of 2**64-1 bytes": (zmtp.frame_header(2**64 - 1), CloseReason.FRAME_TOO_LARGE),
    "message in three frames": (
        zmtp.frame(bytes(1000), more=True) * 2 + zmtp.frame_header(501),
        CloseReason.MESSAGE_TOO_LARGE,
    ),
    "six parts": (zmtp.message(*[b""] * 6), CloseReason.TOO_MANY_PARTS),
    "endless parts": (zmtp.frame(b"", more=True) * 10_000, CloseReason.TOO_MANY_PARTS),
    "a reserved flag": (b"\x08\x00", CloseReason.PROTOCOL_VIOLATION),
    "all reserved flags": (b"\xf8\x00", CloseReason.PROTOCOL_VIOLATION),
    "a command with more": (b"\x05\x05\x04PING", CloseReason.PROTOCOL_VIOLATION),
    "a ping without ttl": (zmtp.command(b"PING"), CloseReason.PROTOCOL_VIOLATION),
    "a second READY": (zmtp.ready(b"DEALER", b"again"), CloseReason.PROTOCOL_VIOLATION),
    "an empty command": (b"\x04\x00", CloseReason.PROTOCOL_VIOLATION),
    "a command name beyond the end": (b"\x04\x02\x09P", CloseReason.PROTOCOL_VIOLATION),
}


@asynccontextmanager
async def hub_with_a_good_peer(
    lane: Lane, seen: Recorder, **bounds: int
) -> AsyncIterator[tuple[Router, str]]:
    """A router with tight bounds; at the end its good peer is still connected and heard."""
    async with lane.router(b"hub", on_event=seen, options=quick(**bounds)) as hub:
        endpoint = str(await hub.bind(lane.endpoint()))
        async with lane.dealer(b"good") as good:
            await good.connect(endpoint).up()
            await seen.wait(Connected, peer=b"good")
            yield hub, endpoint
            await good.send([b"undisturbed"])
            assert await hub.recv() == Message(b"good", [b"undisturbed"])
            await hub.send(b"good", [b"answer"])
            assert await good.recv() == Message(b"hub", [b"answer"])
            assert not seen.of(Disconnected, peer=b"good")


async def greeted(lane: Lane, endpoint: str, name: bytes) -> RawPeer:
    """A raw dealer with its handshake done."""
    raw = await lane.dial_raw(endpoint)
    await raw.shake_hands(b"DEALER", name)
    return raw


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize(("violation", "reason"), VIOLATIONS.values(), ids=VIOLATIONS.keys())
async def test_a_violation_closes_that_peer_only(lane: Lane, violation: bytes, reason: CloseReason) -> None:
    seen = Recorder()
    async with hub_with_a_good_peer(lane, seen, **BOUNDS) as (hub, endpoint):
        bad = await greeted(lane, endpoint, b"bad")
        await seen.wait(Connected, peer=b"bad")
        bad.send(zmtp.message(b"before") + violation)
        gone = await seen.wait(Disconnected, peer=b"bad")
        assert gone.reason == reason
        assert gone.address
        await bad.lost
        assert hub.peers == (b"good",)
        assert hub.stats.ended[reason] == 1
        # What was whole before the violation still counts.
        assert await hub.recv() == Message(b"bad", [b"before"])


@pytest.mark.spec("SEC-05")
async def test_what_just_fits_is_let_through(lane: Lane) -> None:
    seen = Recorder()
    async with hub_with_a_good_peer(lane, seen, **BOUNDS) as (hub, endpoint):
        raw = await greeted(lane, endpoint, b"raw")
        fits = [bytes(1000), bytes(1000), bytes(500), b"", b""]
        raw.send(zmtp.message(*fits))
        assert await hub.recv() == Message(b"raw", fits)


@pytest.mark.spec("SEC-05")
async def test_one_connection_too_many_is_refused(lane: Lane) -> None:
    seen = Recorder()
    async with hub_with_a_good_peer(lane, seen, connections_max=2) as (hub, endpoint):
        second = await greeted(lane, endpoint, b"second")
        await seen.wait(Connected, peer=b"second")
        third = await lane.dial_raw(endpoint)
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason == CloseReason.TOO_MANY_CONNECTIONS
        await third.lost
        assert hub.stats.ended[CloseReason.TOO_MANY_CONNECTIONS] == 1
        await second.close()
        await seen.wait(Disconnected, peer=b"second")
        await greeted(lane, endpoint, b"fourth")
        await seen.wait(Connected, peer=b"fourth")


@pytest.mark.spec("SEC-05")
async def test_one_unfinished_handshake_too_many_is_refused(lane: Lane) -> None:
    seen = Recorder()
    async with hub_with_a_good_peer(lane, seen, handshaking_max=2) as (hub, endpoint):
        first, second = await lane.dial_raw(endpoint), await lane.dial_raw(endpoint)
        await first.read(64)  # our greeting: both are inside
        await second.read(64)
        third = await lane.dial_raw(endpoint)
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason == CloseReason.TOO_MANY_HANDSHAKING
        await third.lost
        assert hub.stats.ended[CloseReason.TOO_MANY_HANDSHAKING] == 1
        first.send(zmtp.greeting() + zmtp.ready(b"DEALER", b"first"))
        await seen.wait(Connected, peer=b"first")
        await greeted(lane, endpoint, b"fourth")
        await seen.wait(Connected, peer=b"fourth")


@pytest.mark.spec("SEC-05")
async def test_one_subscription_too_many_closes_the_subscriber(lane: Lane) -> None:
    seen = Recorder()
    async with lane.pub(on_event=seen, options=quick(subscriptions_max=10)) as pub:
        raw = await lane.dial_raw(await pub.bind(lane.endpoint()))
        await raw.shake_hands(b"SUB", b"greedy")
        raw.send(b"".join(zmtp.command(b"SUBSCRIBE", b"%d" % number) for number in range(11)))
        gone = await seen.wait(Disconnected)
        assert gone.reason == CloseReason.TOO_MANY_SUBSCRIPTIONS
        assert pub.stats.ended[CloseReason.TOO_MANY_SUBSCRIPTIONS] == 1


async def test_repeating_a_subscription_is_not_one_more(lane: Lane) -> None:
    seen = Recorder()
    async with lane.pub(on_event=seen, options=quick(subscriptions_max=2)) as pub:
        raw = await lane.dial_raw(await pub.bind(lane.endpoint()))
        await raw.shake_hands(b"SUB")
        raw.send(b"".join(zmtp.command(b"SUBSCRIBE", prefix) for prefix in (b"a", b"b", b"a", b"b")))
        raw.send(zmtp.ping(context=b"sync"))
        assert await raw.read_command() == (b"PONG", b"sync")
        assert not seen.of(Disconnected)


async def test_an_unknown_command_is_ignored(lane: Lane) -> None:
    seen = Recorder()
    async with hub_with_a_good_peer(lane, seen) as (hub, endpoint):
        raw = await greeted(lane, endpoint, b"raw")
        raw.send(zmtp.command(b"FUTURE", b"data") + zmtp.message(b"after"))
        assert await hub.recv() == Message(b"raw", [b"after"])


async def test_a_command_between_the_frames_of_a_message_does_not_split_it(lane: Lane) -> None:
    seen = Recorder()
    async with hub_with_a_good_peer(lane, seen) as (hub, endpoint):
        raw = await greeted(lane, endpoint, b"raw")
        raw.send(zmtp.frame(b"one", more=True) + zmtp.ping(context=b"mid") + zmtp.frame(b"two"))
        assert await hub.recv() == Message(b"raw", [b"one", b"two"])
        assert await raw.read_command() == (b"PONG", b"mid")


@pytest.mark.spec("SEC-05")
async def test_a_promised_frame_costs_nothing_until_it_comes(lane: Lane) -> None:
    """A header that promises the largest frame allowed, from many peers, must not reserve the memory."""
    seen = Recorder()
    async with hub_with_a_good_peer(lane, seen) as (hub, endpoint):
        before = _resident_bytes()
        for number in range(20):
            raw = await greeted(lane, endpoint, b"liar-%d" % number)
            raw.send(zmtp.message(b"sync") + zmtp.frame_header(64 * 1024 * 1024) + b"first bytes")
            assert (await hub.recv()).parts == [b"sync"]
        assert _resident_bytes() - before < 64 * 1024 * 1024


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
