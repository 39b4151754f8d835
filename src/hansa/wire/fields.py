"""One frame, one field: bounded text, and unsigned integers of a fixed size, little-endian.

Decoders raise `BadFrame` and name the field. Encoders raise `BadArgument`: hansa sends nothing that it would
not accept itself.
"""

from hansa.errors import BadArgument, BadFrame


def decode_text(frame: bytes, field: str, *, bytes_min: int, bytes_max: int) -> str:
    """Strict UTF-8 of a bounded length."""
    if not bytes_min <= len(frame) <= bytes_max:
        raise BadFrame(f"{field} has {len(frame)} bytes instead of {bytes_min} to {bytes_max}")
    try:
        return str(frame, "utf-8")
    except UnicodeDecodeError as wrong:
        raise BadFrame(f"{field} is not UTF-8: {wrong.reason} at byte {wrong.start}") from None


def encode_text(text: str, field: str, *, bytes_min: int, bytes_max: int) -> bytes:
    """The frame that `decode_text` reads back."""
    try:
        frame = text.encode("utf-8")
    except UnicodeEncodeError as wrong:
        raise BadArgument(f"{field} cannot be written as UTF-8: {wrong.reason}") from None
    if not bytes_min <= len(frame) <= bytes_max:
        raise BadArgument(f"{field} has {len(frame)} bytes instead of {bytes_min} to {bytes_max}")
    return frame


def encode_clipped(text: str, *, bytes_max: int) -> bytes:
    """Text for people, cut at a whole character: a message about a failure must not fail itself."""
    frame = text.encode("utf-8", "replace")
    if len(frame) <= bytes_max:
        return frame
    return frame[:bytes_max].decode("utf-8", "ignore").encode("utf-8")


def decode_uint(frame: bytes, field: str, *, size: int) -> int:
    """An unsigned integer of exactly `size` bytes."""
    if len(frame) != size:
        raise BadFrame(f"{field} has {len(frame)} bytes instead of {size}")
    return int.from_bytes(frame, "little")


def encode_uint(number: int, field: str, *, size: int) -> bytes:
    """The frame that `decode_uint` reads back."""
    try:
        return number.to_bytes(size, "little")
    except OverflowError:
        raise BadArgument(f"{field} {number} does not fit {size} unsigned bytes") from None
