"""A journal's format on disk, and how a torn write is distinguished from damage. Pure, for any journal.

All records that were waiting when a flush began are one block. It is appended, flushed, and only then are its
changes told; the next block is written after that. So a machine that stops leaves at most one block
unfinished, the last one, and of that any sectors: a disk writes a sector whole or not at all, in any order.
To know what happened the bytes must answer three questions, and each has its own means.

*Is this sector there?* A block is made of cells of a sector's size, each with a first byte that is not zero.
A sector that was never written is zeros, so no record can look like one, whatever its bytes are.

*Is it what was written?* Each cell has a checksum, over its place as well: the block's first record and the
cell's number in the block. A cell that is there and is wrong was changed after it was written. That is
damage, also in the last block, and a start refuses it.

*Was the block flushed?* A block behind it says so. For the last block only something that stands elsewhere
can say it: the mark, a file of two slots that are written in turn. A mark is written after a flush, so it is
never ahead of the truth. Up to the record that it names nothing may be absent.

A block is therefore cut off as torn only if cells of it are absent, all others are right, nothing else stands
behind it, and the mark does not say that it was flushed. One case remains: a disk loses sectors that it said
it had flushed, they are of the very last block, and the machine stops before the mark is written.

    segment  its head, as long as a cell: magic, first sequence, crc | block | block | ...
    block    one cell or more; in them, one after the other: head, records, zeros up to the last cell's end
      head   sequence of its first record, count of records, bytes of them, crc of the other cells' crcs
      record length | its bytes, see `records`
    cell     first of a block, or not; 507 bytes; crc
    mark     magic, number, segment that is written to, last flushed sequence, whether the disk failed, crc

Blocks begin on sectors of their own: what was flushed is never written again.

The format before this one is only read (`renewed`); a start rewrites it. It had one checksum a block, and no
mark, so that a torn end cannot always be distinguished from damage. Only a last block that the file's end
cuts short counts as torn; everything else is refused.

    segment  magic, first sequence, crc | block | block | ...
    block    magic, sequence of its first record, count, bytes, crc of them, crc of this head | records
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from hansa.errors import StoreCorrupt

SEGMENT_MAGIC: Final = b"HANSAJ2\n"
MARK_MAGIC: Final = b"HANSAM1\n"
# The sector size, which a disk writes whole or not at all; disks with larger sectors write a multiple of it.
CELL_BYTES: Final = 512
# No disk writes two slots at once.
MARK_SLOT_BYTES: Final = 4096
MARKS_BYTES: Final = 2 * MARK_SLOT_BYTES

_SEGMENT: Final = struct.Struct("<8sQ")
_BLOCK: Final = struct.Struct("<QIII")  # sequence, count of records, bytes, crc of the other cells' crcs
_LENGTH: Final = struct.Struct("<I")
_CRC: Final = struct.Struct("<I")
_SEQUENCE: Final = struct.Struct("<Q")
_MARK: Final = struct.Struct("<8sQQQB")
_FIRST: Final = b"\xa7"
_NEXT: Final = b"\xb7"
_ROOM: Final = CELL_BYTES - len(_FIRST) - _CRC.size
_CHECKED: Final = CELL_BYTES - _CRC.size
_ABSENT: Final = bytes(CELL_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The contents of a segment's file: its records, up to where it is good, and what must be cut off."""

    first_sequence: int
    next_sequence: int
    records: tuple[bytes, ...]
    good_bytes: int
    cut_bytes: int
    damage: str | None
    """What is wrong at its end, and where; None if that is only a torn block, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlushMark:
    """How far a journal was flushed for certain.

    `number` grows with each mark. `segment` is the one that was being written (its first sequence, 0 before
    there was one), and `is_failed` says that the disk refused a write or a flush then.
    """

    number: int = 0
    segment: int = 0
    sequence: int = 0
    is_failed: bool = False


def segment_name(first_sequence: int) -> str:
    """The file name of the segment that begins with this record. Names sort in the order of segments."""
    return f"journal-{first_sequence:020d}.log"


def encode_segment_head(first_sequence: int) -> bytes:
    """The first bytes of a segment."""
    head = _SEGMENT.pack(SEGMENT_MAGIC, first_sequence).ljust(_CHECKED, b"\0")
    return head + _CRC.pack(crc32(head))


def encode_block(sequence: int, records: Sequence[bytes]) -> bytes:
    """The records as one block. `sequence` is the first record's."""
    body = b"".join(part for record in records for part in (_LENGTH.pack(len(record)), record))
    start = _start_of(sequence)
    cells: list[bytes] = []
    checksums: list[bytes] = []
    for index, at in enumerate(range(_ROOM - _BLOCK.size, len(body), _ROOM), 1):
        cell = _NEXT + body[at : at + _ROOM].ljust(_ROOM, b"\0")
        checksum = _CRC.pack(crc32(cell, start + index))
        cells += (cell, checksum)
        checksums.append(checksum)
    head = _BLOCK.pack(sequence, len(records), len(body), crc32(b"".join(checksums)))
    first = _FIRST + (head + body[: _ROOM - _BLOCK.size]).ljust(_ROOM, b"\0")
    return b"".join((first, _CRC.pack(crc32(first, start)), *cells))


def encode_mark(mark: FlushMark) -> tuple[int, bytes]:
    """A mark, and its place in the file of marks: it never overwrites the one before it."""
    body = _MARK.pack(MARK_MAGIC, mark.number, mark.segment, mark.sequence, mark.is_failed)
    return mark.number % 2 * MARK_SLOT_BYTES, body + _CRC.pack(crc32(body))


def read_marks(data: bytes, name: str) -> FlushMark:
    """The last mark in a file of marks. Raises `StoreCorrupt` if neither slot can be read."""
    found = [mark for place in (0, MARK_SLOT_BYTES) if (mark := _mark_at(data, place)) is not None]
    if not found:
        raise damaged(name, 0, "neither of its marks can be read")
    return max(found, key=lambda mark: mark.number)


def read_segment(data: bytes, name: str, first_sequence: int, *, is_last: bool, flushed: int = 0) -> Segment:
    """All records of a segment that should begin with this one.

    Only the last segment may have an end that is cut off, and only behind the record `flushed`. Damage in the
    last segment is returned, and the caller must raise it. For any other segment, or if it does not begin as
    one, raises `StoreCorrupt`, which names the file and the place.
    """
    if data[:CELL_BYTES] != encode_segment_head(first_sequence):
        raise damaged(name, 0, f"it does not begin as the segment from record {first_sequence} on")
    records: list[bytes] = []
    place, sequence = CELL_BYTES, first_sequence
    problem: str | None = None
    while place < len(data):
        block = _block_at(data, place, sequence)
        if block is None:
            problem = _problem_at(data, place, sequence)
            break
        found, place = block
        records += found
        sequence += len(found)
    if problem is None and place < len(data) and not is_last:
        problem = f"record {sequence} was not written to its end, and others were behind it"
    if problem is None and is_last and sequence <= flushed:
        problem = f"record {sequence} is gone, and all up to {flushed} were flushed"
    if problem is not None and not is_last:
        raise damaged(name, place, problem)
    return Segment(
        first_sequence=first_sequence,
        next_sequence=sequence,
        records=tuple(records),
        good_bytes=place,
        cut_bytes=len(data) - place,
        damage=None if problem is None else f"{name} is damaged at byte {place}: {problem}",
    )


def damaged(name: str, place: int, what: str) -> StoreCorrupt:
    """The error for a file that cannot be read at a place."""
    return StoreCorrupt(
        f"{name} is damaged at byte {place}: {what}. Nothing was changed; restore the folder from a copy"
    )


def records_of(body: bytes, count: int) -> list[bytes] | None:
    """The records of a block; None if they do not fill it."""
    records, place = [], 0
    while place + _LENGTH.size <= len(body):
        (size,) = _LENGTH.unpack_from(body, place)
        place += _LENGTH.size
        records.append(body[place : place + size])
        place += size
    return records if place == len(body) and len(records) == count else None


def _block_at(data: bytes, place: int, sequence: int) -> tuple[list[bytes], int] | None:
    """The records of the whole and good block that begins here, and where it ends."""
    if not _is_cell(data, place, sequence, 0):
        return None
    end = _end_of(data, place)
    cells = range(place, end, CELL_BYTES)
    if end > len(data) or not all(_is_cell(data, at, sequence, n) for n, at in enumerate(cells[1:], 1)):
        return None
    content = b"".join(data[at + len(_FIRST) : at + _CHECKED] for at in cells)
    _, count, size, checksum = _BLOCK.unpack_from(content)
    if crc32(b"".join(data[at + _CHECKED : at + CELL_BYTES] for at in cells[1:])) != checksum:
        return None
    records = records_of(content[_BLOCK.size : _BLOCK.size + size], count)
    return None if not records else (records, end)


def _problem_at(data: bytes, place: int, sequence: int) -> str | None:
    """What is wrong with an incomplete block at this place; None if it is only torn.

    Only one block can be unfinished, so all up to the file's end must belong to this one.
    """
    is_torn = _is_cell(data, place, sequence, 0) and _end_of(data, place) > len(data)
    for index, at in enumerate(range(place, len(data), CELL_BYTES)):
        cell = data[at : at + CELL_BYTES]
        is_begun = len(cell) < CELL_BYTES and cell.startswith(_NEXT if index else _FIRST)
        if is_begun or cell == _ABSENT[: len(cell)]:
            is_torn = True
        elif not _is_cell(data, at, sequence, index):
            other = _BLOCK.unpack_from(cell, len(_FIRST))[0] if len(cell) == CELL_BYTES else sequence
            if not index and _is_cell(data, at, other, 0):
                return f"record {other} stands where {sequence} should"
            return f"record {sequence} cannot be read: what is at byte {at} is not what was written there"
    return None if is_torn else f"the cells of the block from {sequence} on are not one write"


def _is_cell(data: bytes, at: int, sequence: int, index: int) -> bool:
    """Whether this cell of this block is here, as it was written."""
    cell = data[at : at + CELL_BYTES]
    if len(cell) < CELL_BYTES or not cell.startswith(_NEXT if index else _FIRST):
        return False
    return _CRC.unpack_from(cell, _CHECKED) == (crc32(cell[:_CHECKED], _start_of(sequence) + index),)


def _start_of(sequence: int) -> int:
    """The start value of the checksum of a block's first cell; each next cell has one more."""
    # From different starts the same bytes have different checksums. Room is left to count up in 32 bits.
    return crc32(_SEQUENCE.pack(sequence)) >> 1


def _end_of(data: bytes, place: int) -> int:
    """The end of the block whose first cell is here."""
    _, _, size, _ = _BLOCK.unpack_from(data, place + len(_FIRST))
    return place + -(-(_BLOCK.size + int(size)) // _ROOM) * CELL_BYTES


def _mark_at(data: bytes, place: int) -> FlushMark | None:
    slot = data[place : place + _MARK.size + _CRC.size]
    if len(slot) < _MARK.size + _CRC.size or not slot.startswith(MARK_MAGIC):
        return None
    if _CRC.unpack_from(slot, _MARK.size) != (crc32(slot[: _MARK.size]),):
        return None
    _, number, segment, sequence, is_failed = _MARK.unpack_from(slot)
    return FlushMark(number=number, segment=segment, sequence=sequence, is_failed=bool(is_failed))


# ---- the form before this one --------------------------------------------------------------------

_OLD_SEGMENT_MAGIC: Final = b"HANSAJ1\n"
_OLD_BLOCK_MAGIC: Final = b"\xa7BLK"
_OLD_BLOCK: Final = struct.Struct("<4sQIIII")


def is_first_form(data: bytes) -> bool:
    """Whether a segment's file is in the first format, or was being made in it."""
    return _OLD_SEGMENT_MAGIC.startswith(data[: len(_OLD_SEGMENT_MAGIC)])


def renewed(data: bytes, name: str, first_sequence: int, *, is_last: bool) -> tuple[bytes, int]:
    """The segment in today's format, and how many torn bytes of it were left out. Raises `StoreCorrupt`."""
    facts = _OLD_SEGMENT_MAGIC + _SEQUENCE.pack(first_sequence)
    head = facts + _CRC.pack(crc32(facts))
    is_being_made = is_last and len(data) < len(head)
    if not is_being_made and not data.startswith(head):
        raise damaged(name, 0, f"it does not begin as the segment from record {first_sequence} on")
    parts = [encode_segment_head(first_sequence)]
    place, sequence = min(len(head), len(data)), first_sequence
    while place < len(data):
        block = data[place : place + _OLD_BLOCK.size]
        if is_last and len(block) < _OLD_BLOCK.size and block.startswith(_OLD_BLOCK_MAGIC[: len(block)]):
            break
        found = _OLD_BLOCK.unpack(block) if len(block) == _OLD_BLOCK.size else None
        if (
            found is None
            or found[:2] != (_OLD_BLOCK_MAGIC, sequence)
            or found[-1] != crc32(block[: -_CRC.size])
        ):
            raise damaged(name, place, f"record {sequence} cannot be read")
        _, _, count, size, checksum, _ = found
        end = place + _OLD_BLOCK.size + size
        if is_last and end > len(data):
            break
        body = data[place + _OLD_BLOCK.size : end]
        records = records_of(body, count) if crc32(body) == checksum else None
        if not records:
            raise damaged(name, place, f"record {sequence} cannot be read")
        parts.append(encode_block(sequence, records))
        place, sequence = end, sequence + count
    return b"".join(parts), len(data) - place
