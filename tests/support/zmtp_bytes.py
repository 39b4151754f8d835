"""ZMTP as bytes, written from the specification and sharing nothing with hansa's own encoder.

The tests need a second opinion: a mistake that encoder and parser share would otherwise pass unseen.
"""

import struct
from dataclasses import dataclass

MORE, LONG, COMMAND = 1, 2, 4
SIGNATURE = b"\xff" + bytes(8) + b"\x7f"


def greeting(*, major: int = 3, minor: int = 1, mechanism: bytes = b"NULL", as_server: int = 0) -> bytes:
    """The 64 bytes a peer of version 3 opens with."""
    return SIGNATURE + bytes((major, minor)) + mechanism.ljust(20, b"\0") + bytes((as_server,)) + bytes(31)


# A peer of version 2.0: signature, revision 1, its socket type (DEALER), its empty identity as a frame.
GREETING_2_0 = SIGNATURE + b"\x01" + b"\x05" + b"\x00\x00"
# A peer of version 1.0 opens with its identity: here an empty one, as a frame (length 1, flags 0).
GREETING_1_0 = b"\x01\x00"


def frame(body: bytes, *, more: bool = False, command: bool = False, long: bool | None = None) -> bytes:
    """One frame; `long` forces the eight-byte length even where one byte would do."""
    flags = (MORE if more else 0) | (COMMAND if command else 0)
    if len(body) > 255 if long is None else long:
        return struct.pack(">BQ", flags | LONG, len(body)) + body
    return bytes((flags, len(body))) + body


def frame_header(length: int, *, more: bool = False) -> bytes:
    """The header of a long frame that promises `length` bytes."""
    return struct.pack(">BQ", LONG | (MORE if more else 0), length)


def message(*parts: bytes) -> bytes:
    """One message of the given parts."""
    last = len(parts) - 1
    return b"".join(frame(part, more=index < last) for index, part in enumerate(parts))


def command(name: bytes, data: bytes = b"") -> bytes:
    """One command frame."""
    return frame(bytes((len(name),)) + name + data, command=True)


def metadata(**properties: bytes) -> bytes:
    """Properties of a READY command; underscores in names stand for dashes."""
    out = b""
    for key, value in properties.items():
        name = key.replace("_", "-").encode()
        out += bytes((len(name),)) + name + struct.pack(">I", len(value)) + value
    return out


def ready(socket_type: bytes, identity: bytes = b"", **more: bytes) -> bytes:
    """The READY command of the NULL mechanism."""
    return command(b"READY", metadata(Socket_Type=socket_type, Identity=identity, **more))


def error(reason: bytes) -> bytes:
    """The ERROR command of a peer that refuses."""
    return command(b"ERROR", bytes((len(reason),)) + reason)


def ping(*, ttl_ds: int = 0, context: bytes = b"") -> bytes:
    """A PING; its time to live is counted in tenths of a second."""
    return command(b"PING", struct.pack(">H", ttl_ds) + context)


def pong(context: bytes = b"") -> bytes:
    """The answer to a PING with the same context."""
    return command(b"PONG", context)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame as it was read."""

    flags: int
    body: bytes

    @property
    def more(self) -> bool:
        """Another frame of the same message follows."""
        return bool(self.flags & MORE)

    @property
    def is_command(self) -> bool:
        """Not a message, but a command."""
        return bool(self.flags & COMMAND)

    @property
    def command_name(self) -> bytes:
        """The command's name, empty for a message's frame."""
        return self.body[1 : 1 + self.body[0]] if self.is_command else b""

    @property
    def command_data(self) -> bytes:
        """What follows the command's name."""
        return self.body[1 + self.body[0] :]


def properties(data: bytes) -> dict[str, bytes]:
    """The properties of a READY command's data, by lower-case name."""
    found: dict[str, bytes] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        (size,) = struct.unpack_from(">I", data, name_end)
        found[data[at + 1 : name_end].decode().lower()] = data[name_end + 4 : name_end + 4 + size]
        at = name_end + 4 + size
    return found
