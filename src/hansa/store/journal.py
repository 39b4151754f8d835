"""The journal's form on disk: segments of blocks of records, and how the end of one is told from damage.

All records that were waiting when a flush began are one block, written in one go and flushed before the next
block is written. So a block that stands behind another proves that the other was flushed, and three cases
can be told apart. A block that the file's end cuts short, or that has a sector of zeros in it, with nothing
readable behind it, was being written when the machine stopped: nobody was told of it, and it is cut off. A
bad block with a readable one behind it was flushed once, and is damaged. A bad last block that is complete
and has no such hole was flushed too, as far as anybody can know: damaged. Damage is never repaired here.

    segment  magic, first sequence, crc | block | block | ...
    block    magic, sequence of its first record, count, bytes, crc of them, crc of this head | records
    record   length | its bytes, see `journal_records`
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from hansa.errors import StoreCorrupt

SEGMENT_MAGIC: Final = b"HANSAJ1\n"
BLOCK_MAGIC: Final = b"\xa7BLK"

_SEGMENT: Final = struct.Struct("<8sQ")
_BLOCK: Final = struct.Struct("<4sQIII")  # magic, sequence, count of records, bytes, crc of the bytes
_CRC: Final = struct.Struct("<I")
_LENGTH: Final = struct.Struct("<I")
SEGMENT_HEAD_BYTES: Final = _SEGMENT.size + _CRC.size
BLOCK_HEAD_BYTES: Final = _BLOCK.size + _CRC.size
# What a disk writes whole or not at all.
SECTOR_BYTES: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What a segment's file holds: its records, up to where it is good, and what must be cut off behind."""

    first_sequence: int
    next_sequence: int
    records: tuple[bytes, ...]
    good_bytes: int
    torn_bytes: int


def segment_name(first_sequence: int) -> str:
    """The file of the segment that begins with this record; in the order of names they are in order."""
    return f"journal-{first_sequence:020d}.log"


def encode_segment_head(first_sequence: int) -> bytes:
    """The first bytes of a segment."""
    return _sealed(_SEGMENT.pack(SEGMENT_MAGIC, first_sequence))


def encode_block(sequence: int, records: Sequence[bytes]) -> bytes:
    """Records as one block. `sequence` is the first one's."""
    body = b"".join(part for record in records for part in (_LENGTH.pack(len(record)), record))
    head = _BLOCK.pack(BLOCK_MAGIC, sequence, len(records), len(body), crc32(body))
    return _sealed(head) + body


def read_segment(data: bytes, name: str, first_sequence: int, *, is_last: bool) -> Segment:
    """All records of a segment that should begin with this one.

    Only the last segment may have a torn end. Raises `StoreCorrupt`, which names the file and the place.
    """
    head = encode_segment_head(first_sequence)
    is_head_torn = len(data) < SEGMENT_HEAD_BYTES and head.startswith(data)
    if is_last and (is_head_torn or data == bytes(SEGMENT_HEAD_BYTES)):
        # It was being made. Nothing was ever written into it.
        return Segment(
            first_sequence=first_sequence,
            next_sequence=first_sequence,
            records=(),
            good_bytes=0,
            torn_bytes=len(data),
        )
    if data[:SEGMENT_HEAD_BYTES] != head:
        raise _damaged(name, 0, f"it does not begin as the segment from record {first_sequence} on")
    records: list[bytes] = []
    place, sequence = SEGMENT_HEAD_BYTES, first_sequence
    while place < len(data):
        block = _block_at(data, place)
        if block is None:
            if not is_last or not _is_torn(data, place, sequence):
                raise _damaged(name, place, f"record {sequence} cannot be read")
            break
        if block.sequence != sequence:
            raise _damaged(name, place, f"record {block.sequence} stands where {sequence} should")
        found = _records_of(data[place + BLOCK_HEAD_BYTES : block.end], block.count)
        if found is None:
            raise _damaged(name, place, f"the records of the block from {sequence} on do not fill it")
        records += found
        sequence += block.count
        place = block.end
    return Segment(
        first_sequence=first_sequence,
        next_sequence=sequence,
        records=tuple(records),
        good_bytes=place,
        torn_bytes=len(data) - place,
    )


@dataclass(frozen=True, slots=True)
class _Block:
    sequence: int
    count: int
    end: int


def _block_at(data: bytes, place: int) -> _Block | None:
    """The whole and good block that begins here, if there is one."""
    head = _head_at(data, place)
    if head is None:
        return None
    sequence, count, size, checksum = head
    start = place + BLOCK_HEAD_BYTES
    if start + size > len(data) or crc32(memoryview(data)[start : start + size]) != checksum:
        return None
    return _Block(sequence, count, start + size)


def _head_at(data: bytes, place: int) -> tuple[int, int, int, int] | None:
    head = data[place : place + BLOCK_HEAD_BYTES]
    if len(head) < BLOCK_HEAD_BYTES or not head.startswith(BLOCK_MAGIC):
        return None
    if _sealed(head[: _BLOCK.size]) != head:
        return None
    _, sequence, count, size, checksum = _BLOCK.unpack_from(head)
    return sequence, count, size, checksum


def _is_torn(data: bytes, place: int, sequence: int) -> bool:
    """Whether what begins here was being written when the machine stopped. See the top of the file."""
    if len(data) - place < BLOCK_HEAD_BYTES:
        # Too short for a block: an end, if what there is of it is one's beginning, or never got written.
        rest = data[place:]
        return rest.startswith(BLOCK_MAGIC[: len(rest)]) or not any(rest)
    head = _head_at(data, place)
    if head is not None and place + BLOCK_HEAD_BYTES + head[2] > len(data):
        return True
    return _has_hole(data, place) and not any(_later_blocks(data, place, sequence))


def _has_hole(data: bytes, place: int) -> bool:
    """Whether a whole sector, or what of one lies in here, was never written."""
    start = place
    while start < len(data):
        end = min(len(data), (start // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if not any(memoryview(data)[start:end]):
            return True
        start = end
    return False


def _later_blocks(data: bytes, place: int, sequence: int) -> Iterator[bool]:
    found = data.find(BLOCK_MAGIC, place + 1)
    while found >= 0:
        block = _block_at(data, found)
        yield block is not None and block.sequence > sequence
        found = data.find(BLOCK_MAGIC, found + 1)


def _records_of(body: bytes, count: int) -> list[bytes] | None:
    records, place = [], 0
    while place + _LENGTH.size <= len(body):
        (size,) = _LENGTH.unpack_from(body, place)
        place += _LENGTH.size
        records.append(body[place : place + size])
        place += size
    return records if place == len(body) and len(records) == count else None


def _sealed(head: bytes) -> bytes:
    return head + _CRC.pack(crc32(head))


def _damaged(name: str, place: int, what: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"{name} is damaged at byte {place}: {what}. Nothing was changed; restore the folder from a copy"
    )
