"""The link machine, driven by bytes and a made-up clock, and two of them against each other."""

import pytest

from hansa.transport.environment import SocketOptions
from hansa.transport.events import CloseReason
from hansa.transport.link import (
    Effect,
    Established,
    Link,
    LinkEnded,
    LinkState,
    SubscriptionAdded,
    SubscriptionCancelled,
    WriteBytes,
)
from hansa.wire import commands
from hansa.wire.frames import encode

OPTIONS = SocketOptions(heartbeat_interval=1, heartbeat_timeout=3, handshake_s_max=10)


def link(
    socket_type: str = "ROUTER",
    identity: bytes = b"",
    options: SocketOptions = OPTIONS,
    *,
    accepting: bool = False,
) -> Link:
    return Link(socket_type=socket_type, identity=identity, accepting=accepting, options=options, now=0.0)


def take(machine: Link) -> list[Effect]:
    effects = list(machine.effects)
    machine.effects.clear()
    return effects


def written(machine: Link) -> bytes:
    return b"".join(e.data for e in take(machine) if isinstance(e, WriteBytes))


def hear(machine: Link, data: bytes, now: float = 0.0) -> list[list[bytes]]:
    machine.heard = True
    messages = machine.receive(data)
    while machine.parser.stopped and not machine.is_closed:
        messages += machine.proceed(now)
    return messages


def opening(socket_type: str, *, minor: int = 1, mechanism: bytes = b"NULL", identity: bytes = b"") -> bytes:
    properties = {"Socket-Type": socket_type.encode(), "Identity": identity}
    return commands.encode_greeting(minor=minor, mechanism=mechanism) + commands.encode_ready(properties)


def ready(socket_type: str = "ROUTER", peer_type: str = "DEALER", *, minor: int = 1) -> Link:
    machine = link(socket_type)
    hear(machine, opening(peer_type, minor=minor))
    assert machine.state is LinkState.READY
    take(machine)
    return machine


def ended(machine: Link) -> LinkEnded:
    ends = [effect for effect in machine.effects if isinstance(effect, LinkEnded)]
    assert len(ends) == 1
    assert machine.is_closed
    return ends[0]


def message(*parts: bytes) -> bytes:
    out: list[bytes] = []
    encode(list(parts), out)
    return b"".join(out)


@pytest.mark.parametrize(
    "pair", [("ROUTER", "DEALER"), ("ROUTER", "ROUTER"), ("DEALER", "DEALER"), ("PUB", "SUB")]
)
def test_two_links_greet_each_other_whatever_the_chunking(pair: tuple[str, str]) -> None:
    for step in (1, 9, 64, 1000):
        a, b = link(pair[0], b"a"), link(pair[1], b"b")
        from_a, from_b = written(a), written(b)
        for at in range(0, len(from_b), step):
            hear(a, from_b[at : at + step])
        for at in range(0, len(from_a), step):
            hear(b, from_a[at : at + step])
        named = pair[0] in ("ROUTER", "DEALER")
        assert take(a) == [Established(identity=b"b" if named else b"")]
        assert take(b) == [Established(identity=b"a" if named else b"")]


@pytest.mark.parametrize(
    ("first_bytes", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", CloseReason.BAD_VERSION),
        (b"\xff" + bytes(8) + b"\x7f\x01\x05", CloseReason.BAD_VERSION),
        (opening("DEALER", mechanism=b"CURVE"), CloseReason.BAD_MECHANISM),
        (opening("PUB"), CloseReason.BAD_SOCKET_TYPE),
        (opening(""), CloseReason.BAD_SOCKET_TYPE),
        (commands.encode_greeting() + commands.encode_ping(), CloseReason.PROTOCOL_VIOLATION),
        (commands.encode_greeting() + message(b"early"), CloseReason.PROTOCOL_VIOLATION),
        (commands.encode_greeting() + b"\x04\x02\x07x", CloseReason.PROTOCOL_VIOLATION),
        (commands.encode_greeting() + commands.encode_rejection("go away"), CloseReason.REFUSED_BY_PEER),
        (opening("DEALER", identity=bytes(256)), CloseReason.PROTOCOL_VIOLATION),
        (opening("DEALER") + opening("DEALER")[64:], CloseReason.PROTOCOL_VIOLATION),
        (opening("DEALER") + commands.encode_subscribe(b""), CloseReason.PROTOCOL_VIOLATION),
        (opening("DEALER") + commands.encode_rejection("bye"), CloseReason.REFUSED_BY_PEER),
        (opening("DEALER") + b"\x02" + (1 << 60).to_bytes(8, "big"), CloseReason.FRAME_TOO_LARGE),
    ],
)
def test_a_handshake_or_stream_that_goes_wrong_ends_with_its_reason(
    first_bytes: bytes, reason: CloseReason
) -> None:
    for step in (1, len(first_bytes)):
        machine = link()
        for at in range(0, len(first_bytes), step):
            hear(machine, first_bytes[at : at + step])
        end = ended(machine)
        assert end.reason is reason
        assert end.detail


def test_the_accepting_side_is_ready_only_when_it_has_let_the_peer_in() -> None:
    dialling, accepting = link("DEALER", b"d"), link("ROUTER", b"r", accepting=True)
    from_dialling = written(dialling)
    hear(dialling, written(accepting))
    assert dialling.state is LinkState.HANDSHAKE
    hear(accepting, from_dialling)
    assert take(accepting) == [Established(identity=b"d")]
    accepting.welcome()
    accepting.welcome()
    hear(dialling, written(accepting))
    assert take(dialling) == [Established(identity=b"r")]


def test_a_peer_that_is_refused_was_never_connected() -> None:
    dialling, accepting = link("DEALER"), link("ROUTER", accepting=True)
    from_dialling = written(dialling)
    hear(dialling, written(accepting))
    hear(accepting, from_dialling)
    accepting.refuse(CloseReason.ID_IN_USE, "twice")
    hear(dialling, written(accepting))
    assert ended(dialling).reason is CloseReason.REFUSED_BY_PEER


def test_a_wrong_socket_type_is_told_why() -> None:
    machine = link()
    written(machine)
    hear(machine, opening("PUB"))
    assert b"ERROR" in written(machine)


def test_messages_after_ready_in_the_same_chunk_are_delivered_after_the_handshake() -> None:
    machine = link()
    assert hear(machine, opening("DEALER") + message(b"a", b"b")) == [[b"a", b"b"]]
    assert machine.state is LinkState.READY


def test_a_peer_that_does_not_finish_the_handshake_is_given_up() -> None:
    machine = link()
    hear(machine, commands.encode_greeting())
    take(machine)
    assert machine.deadline() == 10
    machine.tick(9.9)
    assert not machine.is_closed
    machine.tick(10)
    assert ended(machine).reason is CloseReason.HANDSHAKE_TIMEOUT


def test_a_quiet_peer_is_pinged_and_a_silent_one_given_up() -> None:
    machine = ready()
    assert machine.deadline() == 1
    machine.tick(1)
    assert b"PING" in written(machine)
    hear(machine, commands.encode_pong(bytes(8)))
    machine.tick(2)
    written(machine)
    machine.tick(3)
    machine.tick(4.9)
    assert not machine.is_closed
    machine.tick(5)
    assert ended(machine).reason is CloseReason.HEARTBEAT_TIMEOUT


def test_a_tick_at_the_deadline_always_does_what_is_due() -> None:
    # The numbers of a simulation in which the difference rounded to just below the bound, for ever.
    machine = ready()
    hear(machine, message(b"x"))
    machine.tick(1022.9132385692984)
    take(machine)
    for _ in range(10):
        deadline = machine.deadline()
        if deadline is None:
            break
        machine.tick(deadline)
    assert ended(machine).reason is CloseReason.HEARTBEAT_TIMEOUT


def test_any_bytes_count_as_a_sign_of_life() -> None:
    machine = ready()
    for now in range(1, 20):
        hear(machine, message(b"x"))
        machine.tick(now)
    assert not machine.is_closed


def test_a_3_0_peer_is_neither_pinged_nor_given_up() -> None:
    machine = ready(minor=0)
    assert machine.deadline() is None
    machine.tick(1000)
    assert take(machine) == []


def test_heartbeats_can_be_off() -> None:
    machine = link(options=SocketOptions(heartbeat_interval=None))
    hear(machine, opening("DEALER"))
    assert machine.deadline() is None


def test_a_ping_is_answered_with_its_context() -> None:
    machine = ready()
    hear(machine, commands.encode_ping(context=b"abc"))
    assert written(machine) == commands.encode_pong(b"abc")


def test_the_peers_own_time_to_live_is_kept() -> None:
    machine = link(options=SocketOptions(heartbeat_interval=None))
    hear(machine, opening("DEALER"))
    hear(machine, commands.encode_ping(ttl_s=2))
    take(machine)
    machine.tick(0)
    assert machine.deadline() == 2
    machine.tick(2)
    assert ended(machine).reason is CloseReason.HEARTBEAT_TIMEOUT


def test_a_pong_confirms_what_was_handed_over_before_its_ping_and_no_more() -> None:
    machine = ready()
    machine.handed_count = 5
    machine.ping(1.0)
    ping = written(machine)
    machine.handed_count = 8
    other = ready("DEALER", "ROUTER")
    hear(other, ping)
    hear(machine, written(other))
    assert machine.confirmed_count == 5
    assert machine.in_doubt_count == 3


@pytest.mark.parametrize("context", [b"", b"short", (9).to_bytes(8, "little"), bytes(16)])
def test_a_pong_that_cannot_be_true_confirms_nothing(context: bytes) -> None:
    machine = ready()
    machine.handed_count = 8
    hear(machine, commands.encode_pong(context))
    assert machine.in_doubt_count == 8


def test_subscriptions_become_effects_in_order() -> None:
    machine = ready("PUB", "SUB")
    hear(machine, commands.encode_subscribe(b"a") + commands.encode_cancel(b"a"))
    assert take(machine) == [SubscriptionAdded(prefix=b"a"), SubscriptionCancelled(prefix=b"a")]


def test_a_subscription_is_said_as_the_peer_understands_it() -> None:
    assert ready("SUB", "PUB").subscription(b"ab", wanted=True) == commands.encode_subscribe(b"ab")
    assert ready("SUB", "PUB").subscription(b"ab", wanted=False) == commands.encode_cancel(b"ab")
    assert ready("SUB", "PUB", minor=0).subscription(b"ab", wanted=True) == b"\x00\x03\x01ab"
    assert ready("SUB", "PUB", minor=0).subscription(b"ab", wanted=False) == b"\x00\x03\x00ab"
    assert ready("SUB", "PUB", minor=0).subscription(bytes(255), wanted=True)[:1] == b"\x02"


def test_an_ended_link_stays_ended_and_says_so_once() -> None:
    machine = ready()
    machine.refuse(CloseReason.ID_IN_USE, "twice")
    machine.refuse(CloseReason.ID_IN_USE, "twice")
    machine.end(CloseReason.CONNECTION_LOST, "later")
    machine.tick(1000)
    assert machine.proceed(0) == []
    assert machine.receive(message(b"too late")) == []
    assert ended(machine).reason is CloseReason.ID_IN_USE
    assert machine.deadline() is None
