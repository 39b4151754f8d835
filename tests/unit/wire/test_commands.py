"""Golden bytes of the greeting and the commands, and what broken ones become."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadFrame
from hansa.wire import commands
from hansa.wire.commands import (
    Cancel,
    Ping,
    Pong,
    Ready,
    Rejection,
    Subscribe,
    Unknown,
    decode_command,
    decode_greeting,
    greeting_is_hopeless,
)

GREETING_31 = bytes.fromhex("ff00000000000000007f" + "0301" + "4e554c4c" + "00" * 16 + "00" + "00" * 31)
READY_DEALER = bytes.fromhex(
    "04 2a 05 52454144590b 536f636b65742d54797065 00000006 4445414c455208 4964656e74697479 00000001 61"
)


def body(command: bytes) -> bytes:
    return command[2:]


def test_the_greeting_is_64_golden_bytes() -> None:
    assert commands.encode_greeting() == GREETING_31
    greeting = decode_greeting(GREETING_31)
    assert (greeting.major, greeting.minor, greeting.mechanism) == (3, 1, b"NULL")


def test_ready_has_golden_bytes() -> None:
    assert commands.encode_ready({"Socket-Type": b"DEALER", "Identity": b"a"}) == READY_DEALER
    ready = decode_command(body(READY_DEALER))
    assert isinstance(ready, Ready)
    assert ready.socket_type == "DEALER"
    assert ready.identity == b"a"


def test_property_names_are_read_in_any_case() -> None:
    ready = decode_command(b"\x05READY\x0bsocket-TYPE\x00\x00\x00\x03PUB")
    assert isinstance(ready, Ready)
    assert ready.socket_type == "PUB"
    assert ready.identity == b""


@pytest.mark.parametrize(
    ("encoded", "golden", "value"),
    [
        (commands.encode_subscribe(b"ab"), "04 0c 09 535542534352494245 6162", Subscribe(prefix=b"ab")),
        (commands.encode_cancel(b""), "04 07 06 43414e43454c", Cancel(prefix=b"")),
        (
            commands.encode_ping(ttl_s=1.5, context=b"c"),
            "04 08 04 50494e47 000f 63",
            Ping(ttl_s=1.5, context=b"c"),
        ),
        (commands.encode_pong(b"c"), "04 06 04 504f4e47 63", Pong(context=b"c")),
        (commands.encode_rejection("no"), "04 09 05 4552524f52 02 6e6f", Rejection(reason="no")),
    ],
)
def test_commands_have_golden_bytes(encoded: bytes, golden: str, value: commands.Command) -> None:
    assert encoded == bytes.fromhex(golden)
    assert decode_command(body(encoded)) == value


def test_a_command_of_a_later_version_is_passed_over() -> None:
    assert decode_command(b"\x05HELLOxyz") == Unknown(name=b"HELLO")


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"\x05REA",
        b"\x04PING",
        b"\x04PING\x00",
        b"\x04PING\x00\x00" + bytes(17),
        b"\x04PONG" + bytes(17),
        b"\x05ERROR",
        b"\x05ERROR\x05no",
        b"\x05READY\x00",
        b"\x05READY\x0bSocket-Type",
        b"\x05READY\x0bSocket-Type\xff\xff\xff\xffPUB",
    ],
)
def test_a_broken_command_is_a_bad_frame(broken: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_command(broken)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_command_or_a_bad_frame(data: bytes) -> None:
    try:
        decode_command(data)
    except BadFrame as error:
        assert str(error)


@given(st.binary(max_size=80))
def test_any_bytes_are_a_greeting_or_a_bad_frame(data: bytes) -> None:
    try:
        decode_greeting(data)
    except BadFrame as error:
        assert str(error)


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"GET / HTTP/1.1", "does not speak ZMTP"),
        (b"\x01\x00", "does not speak ZMTP"),
        (b"\xff" + bytes(8) + b"\x00", "ZMTP 1.0"),
        (b"\xff" + bytes(8) + b"\x7f\x01", "ZMTP 2.0"),
        (b"\xff" + bytes(8) + b"\x7f\x02", "ZMTP 2.x"),
    ],
)
def test_other_protocols_and_older_versions_are_told_apart_early(start: bytes, says: str) -> None:
    assert says in greeting_is_hopeless(start)


def test_a_good_greeting_has_hope_at_every_length() -> None:
    assert not any(greeting_is_hopeless(GREETING_31[:n]) for n in range(65))
