"""ZMTP's greeting and commands: what two peers say to each other besides messages.

Layouts are those of ZMTP 3.1 (and 3.0, which lacks PING, PONG, SUBSCRIBE and CANCEL). A command's body is
a name (length byte, ASCII) and its data. Decoders raise BadFrame and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hansa.errors import BadFrame
from hansa.wire.frames import encode_command

GREETING_BYTES: Final = 64
SIGNATURE_BYTES: Final = 10
VERSION: Final = (3, 1)
NULL: Final = b"NULL"
PING_CONTEXT_BYTES_MAX: Final = 16

_SIGNATURE: Final = b"\xff" + bytes(8) + b"\x7f"


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """The first 64 bytes of a connection."""

    major: int
    minor: int
    mechanism: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The end of the NULL handshake: the peer's socket type and id. Property names are in lower case."""

    properties: dict[str, bytes]

    @property
    def socket_type(self) -> str:
        return self.properties.get("socket-type", b"").decode("ascii", "replace")

    @property
    def identity(self) -> bytes:
        return self.properties.get("identity", b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """ERROR: the peer refuses the connection, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscribe:
    """To a PUB: send messages with this prefix. The topic mesh has a SUBSCRIBE, too: see `wire.topics`."""

    prefix: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancel:
    prefix: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ping:
    """The peer asks for a PONG and may be dropped after `ttl_s` of silence (0: it does not say)."""

    ttl_s: float
    context: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Pong:
    context: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A command of a later version, which is ignored."""

    name: bytes


Command = Ready | Rejection | Subscribe | Cancel | Ping | Pong | Unknown


def encode_greeting(*, mechanism: bytes = NULL, minor: int = VERSION[1]) -> bytes:
    """The greeting of a peer that speaks ZMTP 3.`minor`."""
    return _SIGNATURE + bytes((VERSION[0], minor)) + mechanism.ljust(20, b"\0") + bytes(32)


def greeting_is_hopeless(start: bytes) -> str:
    """What is wrong with the start of a greeting, or the empty string.

    Peers of other protocols and older versions do not send 64 bytes and then wait: they are recognized early.
    """
    if start[:1] not in (b"", b"\xff"):
        return "the peer does not speak ZMTP"
    if len(start) >= SIGNATURE_BYTES and not start[9] & 1:
        return "the peer speaks ZMTP 1.0, 3.0 is the oldest understood"
    if len(start) > SIGNATURE_BYTES and start[10] < VERSION[0]:
        version = "2.0" if start[10] == 1 else f"{start[10]}.x"
        return f"the peer speaks ZMTP {version}, 3.0 is the oldest understood"
    return ""


def decode_greeting(data: bytes) -> Greeting:
    """Raises BadFrame unless these are the 64 bytes of a ZMTP 3 greeting."""
    wrong = greeting_is_hopeless(data)
    if wrong or len(data) != GREETING_BYTES:
        raise BadFrame(wrong or f"a greeting has {GREETING_BYTES} bytes, not {len(data)}")
    return Greeting(major=data[10], minor=data[11], mechanism=data[12:32].rstrip(b"\0"))


def encode_ready(properties: dict[str, bytes]) -> bytes:
    body = bytearray(b"\x05READY")
    for name, value in properties.items():
        body += bytes((len(name),)) + name.encode("ascii") + len(value).to_bytes(4, "big") + value
    return encode_command(bytes(body))


def encode_rejection(reason: str) -> bytes:
    text = reason.encode("ascii", "replace")[:255]
    return encode_command(b"\x05ERROR" + bytes((len(text),)) + text)


def encode_subscribe(prefix: bytes) -> bytes:
    return encode_command(b"\x09SUBSCRIBE" + prefix)


def encode_cancel(prefix: bytes) -> bytes:
    return encode_command(b"\x06CANCEL" + prefix)


def encode_ping(*, ttl_s: float = 0.0, context: bytes = b"") -> bytes:
    return encode_command(b"\x04PING" + min(round(ttl_s * 10), 0xFFFF).to_bytes(2, "big") + context)


def encode_pong(context: bytes) -> bytes:
    return encode_command(b"\x04PONG" + context)


def decode_command(body: bytes) -> Command:
    """The command in a command frame's body. Raises BadFrame."""
    if not body or len(body) < 1 + body[0]:
        raise BadFrame("a command without its whole name")
    name, data = body[1 : 1 + body[0]], body[1 + body[0] :]
    if name == b"PING":
        if len(data) < 2 or len(data) > 2 + PING_CONTEXT_BYTES_MAX:
            raise BadFrame(f"PING carries {len(data)} bytes; 2 to {2 + PING_CONTEXT_BYTES_MAX} are right")
        return Ping(ttl_s=int.from_bytes(data[:2], "big") / 10, context=data[2:])
    if name == b"PONG":
        if len(data) > PING_CONTEXT_BYTES_MAX:
            raise BadFrame(f"PONG carries {len(data)} bytes; {PING_CONTEXT_BYTES_MAX} at most are right")
        return Pong(context=data)
    if name == b"SUBSCRIBE":
        return Subscribe(prefix=data)
    if name == b"CANCEL":
        return Cancel(prefix=data)
    if name == b"READY":
        return Ready(properties=_decode_properties(data))
    if name == b"ERROR":
        if not data or len(data) < 1 + data[0]:
            raise BadFrame("ERROR without its whole reason")
        return Rejection(reason=data[1 : 1 + data[0]].decode("ascii", "replace"))
    return Unknown(name=name)


def _decode_properties(data: bytes) -> dict[str, bytes]:
    properties: dict[str, bytes] = {}
    pos, end = 0, len(data)
    while pos < end:
        name_end = pos + 1 + data[pos]
        value_start = name_end + 4
        if data[pos] == 0 or value_start > end:
            raise BadFrame("READY with a broken property name")
        name = data[pos + 1 : name_end].decode("ascii", "replace").lower()
        pos = value_start + int.from_bytes(data[name_end:value_start], "big")
        if pos > end:
            raise BadFrame(f"READY's property {name!r} is longer than the command")
        properties[name] = data[value_start:pos]
    return properties
