"""ZMTP frames: bytes to messages and back.

Theory of operation. A frame is flags (1 byte), a length (1 byte, or 8 with LONG) and a body; frames with MORE
continue a message, COMMAND frames stand between frames. The parser makes one pass over each chunk and stops
early only at a command, because a command may change how the rest is read. A frame that the chunk cuts waits
as `_tail` when it is small; a large one is collected in pieces and joined once, so that a frame of any size
is copied once however it arrives. Every length is compared with its bound before anything is kept for it.

This is the hot path of everything: plain typed Python that mypyc also compiles (see hatch_build.py). `make
bench` cases `rr` and `pub` measure it.
"""

from typing import Any, Final, cast

from hansa.errors import BadArgument

MORE: Final = 1
LONG: Final = 2
COMMAND: Final = 4

FRAME_TOO_LARGE: Final = "frame-too-large"
MESSAGE_TOO_LARGE: Final = "message-too-large"
TOO_MANY_PARTS: Final = "too-many-parts"
PROTOCOL_VIOLATION: Final = "protocol-violation"

_LARGE_BYTES: Final = 8 * 1024  # A cut frame above this is collected in pieces, below it is re-read.
_PIECE_BYTES: Final = (
    4 * 1024
)  # Smaller pieces are merged: a bytewise sender must not cost 40 times its bytes.

_SHORT: Final = [bytes((0, n)) for n in range(256)]
_SHORT_MORE: Final = [bytes((MORE, n)) for n in range(256)]


class FrameParser:
    """Turns chunks of any size into messages. After a violation it reads nothing more."""

    def __init__(
        self, *, frame_bytes_max: int, message_bytes_max: int, parts_max: int, command_bytes_max: int
    ) -> None:
        if frame_bytes_max < 255:
            raise BadArgument(
                f"frame_bytes_max is {frame_bytes_max}; a short frame may have 255 bytes, so allow that"
            )
        self._frame_bytes_max = frame_bytes_max
        self._message_bytes_max = message_bytes_max
        self._parts_max = parts_max
        self._command_bytes_max = command_bytes_max
        self._data = b""
        self._pos = 0
        self._tail = b""
        self._pieces: list[bytes | bytearray | memoryview] = []
        self._missing = 0
        self._large_more = False
        self._parts: list[bytes] = []
        self._message_bytes = 0
        self.commands_only = True
        """Until the handshake is over a peer has no messages to send, and gets no memory for any."""
        self.count = 0
        """Messages completed so far."""
        self.stopped = False
        """True when `command` or `violation` waits for the caller."""
        self.command: bytes | None = None
        """The command at which `feed` or `resume` stopped; `resume` continues after it."""
        self.violation = ""
        """Why the stream is broken for good, or empty."""
        self.detail = ""

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The messages that this chunk completes, up to the first command in it."""
        if self.stopped:
            if self.violation:
                return []
            self._data = self._data[self._pos :] + data
            self._pos = 0
            return []
        pos = 0
        if self._missing:
            if len(data) < self._missing:
                self._missing -= len(data)
                self._keep_piece(data)
                return []
            pos = self._missing
            self._pieces.append(memoryview(data)[:pos])
            self._missing = 0
            body = b"".join(self._pieces)
            self._pieces = []
            self._parts.append(body)
            if not self._large_more:
                return self._parse(data, pos, [self._finish()])
        elif self._tail:
            data = self._tail + data
            self._tail = b""
        return self._parse(data, pos, [])

    def resume(self) -> list[list[bytes]]:
        """The messages after the command at which parsing stopped, up to the next one."""
        if self.violation:
            return []
        self.command = None
        self.stopped = False
        data = self._data
        self._data = b""
        return self._parse(data, self._pos, [])

    def _parse(self, data: bytes, pos: int, messages: list[list[bytes]]) -> list[list[bytes]]:
        end = len(data)
        parts = self._parts
        message_bytes = self._message_bytes
        message_bytes_max = self._message_bytes_max
        parts_max = self._parts_max
        while end - pos >= 2:
            flags = data[pos]
            if flags & LONG:
                if end - pos < 9:
                    break
                start = pos + 9
                length = int.from_bytes(data[pos + 1 : start], "big")
                if length > self._frame_bytes_max:
                    return self._violate(
                        FRAME_TOO_LARGE,
                        f"a frame of {length} bytes, {self._frame_bytes_max} allowed",
                        messages,
                    )
            else:
                start = pos + 2
                length = data[pos + 1]
            stop = start + length
            if flags > 3:
                if flags & 0xF8 or flags & MORE:
                    return self._violate(PROTOCOL_VIOLATION, f"frame flags 0x{flags:02x}", messages)
                if length > self._command_bytes_max:
                    return self._violate(
                        FRAME_TOO_LARGE,
                        f"a command of {length} bytes, {self._command_bytes_max} allowed",
                        messages,
                    )
                if stop > end:
                    break
                self.command = data[start:stop]
                self.stopped = True
                self._data = data
                self._pos = stop
                self._message_bytes = message_bytes
                self.count += len(messages)
                return messages
            if self.commands_only:
                return self._violate(
                    PROTOCOL_VIOLATION, "a message before the end of the handshake", messages
                )
            message_bytes += length
            if message_bytes > message_bytes_max:
                return self._violate(
                    MESSAGE_TOO_LARGE,
                    f"a message of {message_bytes} bytes, {message_bytes_max} allowed",
                    messages,
                )
            if len(parts) >= parts_max:
                return self._violate(TOO_MANY_PARTS, f"a message of more than {parts_max} parts", messages)
            if stop > end:
                if length > _LARGE_BYTES:
                    self._missing = stop - end
                    self._large_more = flags & MORE != 0
                    self._pieces.append(memoryview(data)[start:])
                    pos = end
                else:
                    message_bytes -= length
                break
            parts.append(data[start:stop])
            pos = stop
            if not flags & MORE:
                messages.append(parts)
                parts = self._parts = []
                message_bytes = 0
        self._message_bytes = message_bytes
        if pos < end:
            self._tail = data[pos:]
        self.count += len(messages)
        return messages

    def _keep_piece(self, data: bytes) -> None:
        if len(data) >= _PIECE_BYTES:
            self._pieces.append(data)
            return
        last = self._pieces[-1]
        if isinstance(last, bytearray):
            last += data
        else:
            self._pieces.append(bytearray(data))

    def _finish(self) -> list[bytes]:
        parts = self._parts
        self._parts = []
        self._message_bytes = 0
        return parts

    def _violate(self, violation: str, detail: str, messages: list[list[bytes]]) -> list[list[bytes]]:
        """Messages that were complete before the violation are still delivered: they were sent correctly."""
        self.violation = violation
        self.detail = detail
        self.stopped = True
        self.command = None
        self._parts = []
        self._pieces = []
        self.count += len(messages)
        return messages


def encode(parts: list[bytes], out: list[bytes]) -> int:
    """Append a message's wire form to `out`, header and body by turns; returns its size in bytes.

    Raises BadArgument, with `out` as it was, when there is no part or a part is not bytes.
    """
    last = len(parts) - 1
    if last < 0:
        raise BadArgument("a message needs at least one part; send [b''] for an empty one")
    mark = len(out)
    total = 0
    # Any: compiled code would raise an error of its own in the middle, and leave half a message behind.
    for index, part in enumerate(cast("list[Any]", parts)):
        if not isinstance(part, bytes):
            del out[mark:]
            raise BadArgument(f"part {index} is {type(part).__name__}, not bytes")
        length = len(part)
        if length < 256:
            out.append(_SHORT_MORE[length] if index < last else _SHORT[length])
            total += length + 2
        else:
            out.append((b"\x03" if index < last else b"\x02") + length.to_bytes(8, "big"))
            total += length + 9
        out.append(part)
    return total


def encode_command(body: bytes) -> bytes:
    length = len(body)
    if length < 256:
        return bytes((COMMAND, length)) + body
    return bytes((COMMAND | LONG,)) + length.to_bytes(8, "big") + body
