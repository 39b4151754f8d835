"""The first bytes: who is let in, who is turned away and told why."""

import pytest

from hansa.transport import CloseReason, Connected, HandshakeFailed, Message
from tests.support import zmtp_bytes as zmtp
from tests.support.lanes import Lane, quick
from tests.support.recorder import Recorder

# Socket types that fit, by ours; all others must be refused.
FITS = {
    "router": {b"ROUTER", b"DEALER", b"REQ"},
    "dealer": {b"ROUTER", b"DEALER", b"REP"},
    "pub": {b"SUB", b"XSUB"},
    "sub": {b"PUB", b"XPUB"},
}
ALL_TYPES = [
    b"ROUTER",
    b"DEALER",
    b"REQ",
    b"REP",
    b"PUB",
    b"SUB",
    b"XPUB",
    b"XSUB",
    b"PUSH",
    b"PULL",
    b"PAIR",
]
GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: example\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 53,  # a TLS hello where none was expected
    bytes(64),
    b"\xff" * 64,
    b"\xff" + bytes(8) + b"\x7e" + bytes(54),
    b"\n",
]


@pytest.mark.parametrize("ours", FITS)
async def test_only_fitting_socket_types_are_let_in(lane: Lane, ours: str) -> None:
    for theirs in ALL_TYPES:
        seen = Recorder()
        async with getattr(lane, ours)(on_event=seen) as socket:
            raw = await lane.dial_raw(await socket.bind(lane.endpoint()))
            raw.send(zmtp.greeting() + zmtp.ready(theirs))
            if theirs in FITS[ours]:
                await seen.wait(Connected)
            else:
                refused = await seen.wait(HandshakeFailed)
                assert refused.reason == CloseReason.BAD_SOCKET_TYPE
                assert theirs.decode() in refused.detail
                await raw.read(64)
                while (said := await raw.read_command())[0] != b"ERROR":
                    assert said[0] == b"READY"
                await raw.lost
                assert socket.peers == ()
                assert socket.stats.ended[CloseReason.BAD_SOCKET_TYPE] == 1


async def test_a_router_and_a_pub_refuse_each_other_and_both_say_so(lane: Lane) -> None:
    seen_by_router, seen_by_pub = Recorder(), Recorder()
    async with lane.router(b"r", on_event=seen_by_router) as router, lane.pub(on_event=seen_by_pub) as pub:
        pub.connect(str(await router.bind(lane.endpoint())))
        at_router = await seen_by_router.wait(HandshakeFailed)
        at_pub = await seen_by_pub.wait(HandshakeFailed)
        assert at_router.reason == CloseReason.BAD_SOCKET_TYPE
        assert at_pub.reason in (CloseReason.BAD_SOCKET_TYPE, CloseReason.REFUSED_BY_PEER)
        assert (router.peers, pub.peers) == ((), ())


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_instead_of_a_greeting_is_turned_away(lane: Lane, garbage: bytes) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub, lane.dealer(b"good") as good:
        endpoint = await hub.bind(lane.endpoint())
        good.connect(str(endpoint))
        await seen.wait(Connected, peer=b"good")
        raw = await lane.dial_raw(endpoint)
        raw.send(garbage)
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason in (CloseReason.BAD_VERSION, CloseReason.BAD_MECHANISM)
        await raw.lost
        await good.send([b"undisturbed"])
        assert await hub.recv() == Message(b"good", [b"undisturbed"])


@pytest.mark.parametrize("opening", [zmtp.GREETING_1_0, zmtp.GREETING_2_0], ids=["1.0", "2.0"])
async def test_old_versions_are_refused_without_waiting_for_more(lane: Lane, opening: bytes) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(opening)
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason == CloseReason.BAD_VERSION
        assert hub.stats.ended[CloseReason.BAD_VERSION] == 1
        await raw.lost


@pytest.mark.parametrize("minor", [0, 1, 2, 9])
async def test_every_minor_version_of_3_is_welcome(lane: Lane, minor: int) -> None:
    async with lane.router(b"hub") as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        properties = await raw.shake_hands(b"DEALER", b"raw", minor=minor)
        assert properties["socket-type"] == b"ROUTER"
        assert properties["identity"] == b"hub"
        raw.send(zmtp.message(b"hello"))
        assert await hub.recv() == Message(b"raw", [b"hello"])


async def test_our_greeting_is_that_of_version_3_1_with_the_null_mechanism(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        assert await raw.greet() == zmtp.greeting()


async def test_a_later_major_version_is_answered_with_ours(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(zmtp.greeting(major=4, minor=0) + zmtp.ready(b"DEALER", b"newer"))
        await raw.read(64)
        raw.send(zmtp.message(b"speaking 3.1 to you"))
        assert await hub.recv() == Message(b"newer", [b"speaking 3.1 to you"])


@pytest.mark.parametrize("mechanism", [b"PLAIN", b"CURVE", b"NULLX", b""])
async def test_other_mechanisms_are_refused(lane: Lane, mechanism: bytes) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(zmtp.greeting(mechanism=mechanism))
        assert (await seen.wait(HandshakeFailed)).reason == CloseReason.BAD_MECHANISM
        await raw.lost


BAD_FIRST_COMMANDS = {
    "a message": zmtp.message(b"too early"),
    "a ping": zmtp.ping(),
    "an unknown command": zmtp.command(b"HELLO"),
    "an empty command": zmtp.frame(b"", command=True),
    "a name beyond the end": zmtp.frame(b"\x20READY", command=True),
    "a property beyond the end": zmtp.command(b"READY", b"\x0bSocket-Type\x00\x00\x00\xffROUTER"),
    "a name without a value": zmtp.command(b"READY", b"\x0bSocket-Type\x00\x00"),
    "no socket type": zmtp.command(b"READY", zmtp.metadata(Identity=b"x")),
    "a command with more": b"\x05" + zmtp.ready(b"DEALER")[1:],
    "a reserved flag": b"\x84" + zmtp.ready(b"DEALER")[1:],
}


@pytest.mark.spec("SEC-05")
@pytest.mark.parametrize("opening", BAD_FIRST_COMMANDS.values(), ids=BAD_FIRST_COMMANDS.keys())
async def test_a_bad_first_command_is_a_violation(lane: Lane, opening: bytes) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(zmtp.greeting() + opening)
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason in (CloseReason.PROTOCOL_VIOLATION, CloseReason.BAD_SOCKET_TYPE)
        await raw.lost
        assert hub.peers == ()
        assert sum(hub.stats.ended.values()) == 1


@pytest.mark.spec("SEC-05")
async def test_a_huge_command_is_refused_before_it_is_read(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(zmtp.greeting() + b"\x06" + (1 << 40).to_bytes(8, "big"))
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason in (CloseReason.PROTOCOL_VIOLATION, CloseReason.FRAME_TOO_LARGE)
        await raw.lost


async def test_property_names_have_no_case(lane: Lane) -> None:
    async with lane.router(b"hub") as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(zmtp.greeting())
        raw.send(
            zmtp.command(b"READY", zmtp.metadata(SOCKET_TYPE=b"DEALER", iDENTITY=b"shouting", X_More=b"1"))
        )
        raw.send(zmtp.message(b"hello"))
        assert await hub.recv() == Message(b"shouting", [b"hello"])


@pytest.mark.parametrize("said", [b"", zmtp.greeting()[:1], zmtp.greeting()[:63], zmtp.greeting()])
async def test_who_does_not_finish_the_handshake_in_time_is_cut(lane: Lane, said: bytes) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen, options=quick(handshake_s_max=0.1)) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(said)
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason == CloseReason.HANDSHAKE_TIMEOUT
        assert refused.address
        await raw.lost
        assert hub.stats.ended[CloseReason.HANDSHAKE_TIMEOUT] == 1


async def test_a_dialled_peer_that_stays_silent_is_given_up_and_dialled_again(lane: Lane) -> None:
    seen = Recorder()
    async with lane.dealer(b"leaf", on_event=seen, options=quick(handshake_s_max=0.1)) as dealer:
        listener = await lane.listen_raw()
        dealer.connect(listener.endpoint)
        await listener.accept()
        assert (await seen.wait(HandshakeFailed)).reason == CloseReason.HANDSHAKE_TIMEOUT
        again = await listener.accept()
        await again.shake_hands(b"ROUTER", b"raw")
        await seen.wait(Connected, peer=b"raw")


async def test_an_error_command_of_the_peer_is_shown(lane: Lane) -> None:
    seen = Recorder()
    async with lane.dealer(b"leaf", on_event=seen) as dealer:
        listener = await lane.listen_raw()
        dealer.connect(listener.endpoint)
        raw = await listener.accept()
        raw.send(zmtp.greeting() + zmtp.error(b"we are closed on sundays"))
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason == CloseReason.REFUSED_BY_PEER
        assert "we are closed on sundays" in refused.detail


async def test_a_peer_that_leaves_in_the_handshake_is_reported(lane: Lane) -> None:
    seen = Recorder()
    async with lane.router(b"hub", on_event=seen) as hub:
        raw = await lane.dial_raw(await hub.bind(lane.endpoint()))
        raw.send(zmtp.greeting())
        await raw.read(64)
        raw.abort()
        refused = await seen.wait(HandshakeFailed)
        assert refused.reason in (CloseReason.CONNECTION_LOST, CloseReason.CLOSED_BY_PEER)
