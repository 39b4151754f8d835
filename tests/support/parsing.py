"""Reading a stream of frames twice: with hansa's parser, and with a slow one that is easy to believe."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hansa.wire.frames import FrameParser

Item = list[bytes] | bytes
"""A message is a list of parts, a command is its body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a parser is told to refuse."""

    frame_bytes_max: int = 1_000
    message_bytes_max: int = 2_500
    parts_max: int = 6
    command_bytes_max: int = 300

    def parser(self) -> FrameParser:
        """A parser of these bounds, past its handshake."""
        parser = FrameParser(
            frame_bytes_max=self.frame_bytes_max,
            message_bytes_max=self.message_bytes_max,
            parts_max=self.parts_max,
            command_bytes_max=self.command_bytes_max,
        )
        parser.commands_only = False
        return parser


@dataclass(slots=True)
class Outcome:
    """What a stream meant, up to its end or its first violation."""

    items: list[Item] = field(default_factory=list)
    violation: str = ""


def read_all(parser: FrameParser, chunks: Iterable[bytes]) -> Outcome:
    """What the parser makes of the chunks, in the order of the stream."""
    outcome = Outcome()
    for chunk in chunks:
        outcome.items += parser.feed(chunk)
        while parser.stopped and not parser.violation:
            assert parser.command is not None
            outcome.items.append(parser.command)
            outcome.items += parser.resume()
        if parser.violation:
            assert parser.detail
            outcome.violation = parser.violation
            break
    return outcome


def read_slowly(data: bytes, bounds: Bounds) -> Outcome:
    """The same by the specification: one frame after another, from a stream that is all there."""
    outcome = Outcome()
    parts: list[bytes] = []
    at = 0
    while len(data) - at >= 2:
        flags = data[at]
        if flags & 2:
            if len(data) - at < 9:
                break
            (size,) = struct.unpack_from(">Q", data, at + 1)
            start = at + 9
        else:
            size, start = data[at + 1], at + 2
        outcome.violation = _violation(flags, size, parts, bounds)
        if outcome.violation or start + size > len(data):
            break
        body, at = data[start : start + size], start + size
        if flags & 4:
            outcome.items.append(body)
            continue
        parts.append(body)
        if not flags & 1:
            outcome.items.append(parts)
            parts = []
    return outcome


def _violation(flags: int, size: int, parts: list[bytes], bounds: Bounds) -> str:
    if flags & 2 and size > bounds.frame_bytes_max:
        return "frame-too-large"
    if flags & 0xF8 or flags & 5 == 5:
        return "protocol-violation"
    if flags & 4:
        return "frame-too-large" if size > bounds.command_bytes_max else ""
    if sum(map(len, parts)) + size > bounds.message_bytes_max:
        return "message-too-large"
    return "too-many-parts" if len(parts) >= bounds.parts_max else ""


def cut(data: bytes, places: Iterable[int]) -> Iterator[bytes]:
    """The data in pieces, cut at the given places."""
    last = 0
    for place in sorted({place for place in places if 0 < place < len(data)}):
        yield data[last:place]
        last = place
    yield data[last:]


def bytewise(data: bytes) -> Iterator[bytes]:
    """The data one byte at a time."""
    return (data[at : at + 1] for at in range(len(data)))
