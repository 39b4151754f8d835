"""How guarded storage writes a fence, and what it says to who comes with an old one.

Guarded storage remembers the highest fence it was shown. An owner first *takes* it (raises the fence, and
only then reads), and then writes under its fence. So once a new owner has read, no write of an older one can
come behind its back: a fence that is checked on writing alone loses what was written between read and write.
"""

from binascii import crc32
from typing import Final

from hansa.errors import BadArgument, BadRecord, NotHeld, StaleFence, StoreCorrupt

FENCE_MAX: Final = 2**63 - 2
_HEX_DIGITS: Final = 16
_MAGIC: Final = b"hansa-fenced-1"


def as_fence(fence: int) -> int:
    """A fence that can be. Raises `BadArgument`."""
    if not 0 < fence <= FENCE_MAX:
        raise BadArgument(f"fence {fence}: give hold.fence or leadership.term")
    return fence


def encode_fence(fence: int) -> bytes:
    """As text of a fixed width, so that the order of bytes is the order of fences."""
    return b"%016x" % fence


def decode_fence(text: bytes) -> int:
    """Raises `BadRecord`."""
    try:
        if len(text) == _HEX_DIGITS:
            return int(text, 16)
    except ValueError:
        pass
    raise BadRecord(f"a fence cannot be {text[:40]!r}")


def refusal(what: str, *, fence: int, stored: int) -> StaleFence | NotHeld:
    """Why a write or a take under this fence is refused, given the one that is stored (0: none)."""
    if stored > fence:
        return StaleFence(
            f"{what}: fence {fence} is stale, fence {stored} was raised since; nothing was written"
        )
    return NotHeld(f"{what}: take({fence}) before writing under that fence; the fence is at {stored}")


def encode_file(fence: int, value: bytes | None) -> bytes:
    """A file: a line with the fence, whether there is a value, its length and a checksum; then the value."""
    head = b"%s %s %s %d" % (
        _MAGIC,
        encode_fence(fence),
        b"empty" if value is None else b"value",
        len(value or b""),
    )
    return b"%s %08x\n%s" % (head, crc32(value or b"", crc32(head)), value or b"")


def decode_file(data: bytes, what: str) -> tuple[int, bytes | None]:
    """The fence and the value in a file. Raises `StoreCorrupt`."""
    head, separator, value = data.partition(b"\n")
    words = head.split(b" ")
    if not separator or len(words) != 5 or words[0] != _MAGIC:
        raise StoreCorrupt(f"{what} is no file that hansa fences: it begins with {data[:20]!r}")
    checked = head.rpartition(b" ")[0]
    if words[4] != b"%08x" % crc32(value, crc32(checked)) or words[3] != b"%d" % len(value):
        raise StoreCorrupt(f"{what} is damaged: its checksum does not match; put back a copy of it")
    return decode_fence(words[1]), value if words[2] == b"value" else None
