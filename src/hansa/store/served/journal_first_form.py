"""The first form of a journal's segments, which is read and never written: a start rewrites it. Pure.

It had one checksum a block, and no mark, so that a torn end cannot always be told from damage. Only a last
block that the file's end cuts short is taken for torn; everything else is refused.

    segment  magic, first sequence, crc | block | block | ...
    block    magic, sequence of its first record, count, bytes, crc of them, crc of this head | records
"""

import struct
from typing import Final
from zlib import crc32

from hansa.store.served.journal import damaged, encode_block, encode_segment_head, records_of

SEGMENT_MAGIC: Final = b"HANSAJ1\n"
BLOCK_MAGIC: Final = b"\xa7BLK"

_SEQUENCE: Final = struct.Struct("<Q")
_BLOCK: Final = struct.Struct("<4sQIIII")
_CRC: Final = struct.Struct("<I")


def is_first_form(data: bytes) -> bool:
    """Whether a segment's file is in this form, or was being made in it."""
    return SEGMENT_MAGIC.startswith(data[: len(SEGMENT_MAGIC)])


def renewed(data: bytes, name: str, first_sequence: int, *, is_last: bool) -> tuple[bytes, int]:
    """The segment in today's form, and how many torn bytes of it were left out. Raises `StoreCorrupt`."""
    facts = SEGMENT_MAGIC + _SEQUENCE.pack(first_sequence)
    head = facts + _CRC.pack(crc32(facts))
    is_being_made = is_last and len(data) < len(head)
    if not is_being_made and not data.startswith(head):
        raise damaged(name, 0, f"it does not begin as the segment from record {first_sequence} on")
    parts = [encode_segment_head(first_sequence)]
    place, sequence = min(len(head), len(data)), first_sequence
    while place < len(data):
        block = data[place : place + _BLOCK.size]
        if is_last and len(block) < _BLOCK.size and block.startswith(BLOCK_MAGIC[: len(block)]):
            break
        found = _BLOCK.unpack(block) if len(block) == _BLOCK.size else None
        if found is None or found[:2] != (BLOCK_MAGIC, sequence) or found[-1] != crc32(block[: -_CRC.size]):
            raise damaged(name, place, f"record {sequence} cannot be read")
        _, _, count, size, checksum, _ = found
        end = place + _BLOCK.size + size
        if is_last and end > len(data):
            break
        body = data[place + _BLOCK.size : end]
        records = records_of(body, count) if crc32(body) == checksum else None
        if not records:
            raise damaged(name, place, f"record {sequence} cannot be read")
        parts.append(encode_block(sequence, records))
        place, sequence = end, sequence + count
    return b"".join(parts), len(data) - place
