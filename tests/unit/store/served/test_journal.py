"""A journal gives back what was written into it, and says so when it cannot."""

import struct
from zlib import crc32

import pytest

from hansa.errors import StoreCorrupt
from hansa.store.served.journal import (
    CELL_BYTES,
    MARK_SLOT_BYTES,
    MARKS_BYTES,
    FlushMark,
    encode_block,
    encode_mark,
    encode_segment_head,
    is_first_form,
    read_marks,
    read_segment,
    renewed,
    segment_name,
)
from hansa.store.served.records import (
    Change,
    Committed,
    CompactedAt,
    LeaseEnded,
    LeaseGranted,
    Record,
    decode_record,
    encode_record,
)

HEAD = encode_segment_head(7)
FIRST = encode_block(7, [b"one", b"two"])
SECOND = encode_block(9, [b"three" * 300])
ZEROS = encode_block(9, [bytes(4 * CELL_BYTES)])


def read(data: bytes, *, is_last: bool = True, flushed: int = 0) -> tuple[tuple[bytes, ...], int, int]:
    found = read_segment(data, "a file", 7, is_last=is_last, flushed=flushed)
    if found.damage is not None:
        raise StoreCorrupt(found.damage)
    assert found.next_sequence == 7 + len(found.records)
    return found.records, found.good_bytes, found.cut_bytes


@pytest.mark.parametrize("is_last", [True, False])
def test_records_come_back_in_order(is_last: bool) -> None:
    data = HEAD + FIRST + SECOND
    assert read(data, is_last=is_last) == ((b"one", b"two", b"three" * 300), len(data), 0)


def test_segments_are_in_the_order_of_their_names() -> None:
    numbers = [1, 9, 10, 99, 10**9, 2**63]
    assert sorted(map(segment_name, numbers)) == [segment_name(number) for number in numbers]


@pytest.mark.parametrize("size", [0, 1, 485, 486, 487, 488, 489, 5_000])
def test_blocks_begin_on_sectors_of_their_own_and_no_sector_of_them_is_zeros(size: int) -> None:
    block = encode_block(1, [bytes(size)])
    assert len(block) % CELL_BYTES == 0
    assert all(any(block[at : at + CELL_BYTES]) for at in range(0, len(block), CELL_BYTES))
    assert read_segment(encode_segment_head(1) + block, "", 1, is_last=False).records == (bytes(size),)


def test_a_block_that_the_end_cuts_short_is_cut_off_in_the_last_segment_only() -> None:
    whole = HEAD + FIRST
    for size in range(1, len(SECOND)):
        assert read(whole + SECOND[:size]) == ((b"one", b"two"), len(whole), size)
        with pytest.raises(StoreCorrupt, match=f"a file is damaged at byte {len(whole)}: record 9"):
            read(whole + SECOND[:size], is_last=False)


@pytest.mark.spec("CRD-18")
@pytest.mark.parametrize("block", [SECOND, ZEROS])
def test_a_last_block_is_torn_only_if_a_sector_of_it_is_absent_and_no_other_is_wrong(block: bytes) -> None:
    start = len(HEAD + FIRST)
    for absent in range(0, len(block), CELL_BYTES):
        data = bytearray(HEAD + FIRST + block)
        data[start + absent : start + absent + CELL_BYTES] = bytes(CELL_BYTES)
        assert read(bytes(data)) == ((b"one", b"two"), start, len(block))
        # Of another sector one bit is not what was written: somebody may have been told of this block.
        data[start + (absent + CELL_BYTES) % len(block) + 100] ^= 0x10
        with pytest.raises(StoreCorrupt, match=f"damaged at byte {start}: record 9 cannot be read"):
            read(bytes(data))


@pytest.mark.spec("CRD-18")
def test_what_the_mark_says_was_flushed_is_never_torn() -> None:
    start = len(HEAD + FIRST)
    absent = bytearray(HEAD + FIRST + SECOND)
    absent[start : start + CELL_BYTES] = bytes(CELL_BYTES)
    for data in (bytes(absent), HEAD + FIRST + SECOND[:700], HEAD + FIRST):
        assert read(data, flushed=8)[0] == (b"one", b"two")
        with pytest.raises(StoreCorrupt, match="record 9 is gone, and all up to 9 were flushed"):
            read(data, flushed=9)


def test_space_that_was_taken_and_never_written_is_cut_off() -> None:
    assert read(HEAD + FIRST + bytes(10)) == ((b"one", b"two"), len(HEAD + FIRST), 10)
    assert read(HEAD + FIRST + bytes(5_000)) == ((b"one", b"two"), len(HEAD + FIRST), 5_000)


def test_a_hole_with_a_good_block_behind_it_is_damage() -> None:
    data = bytearray(HEAD + FIRST + SECOND + encode_block(10, [b"four"]))
    data[len(HEAD + FIRST) : len(HEAD + FIRST) + CELL_BYTES] = bytes(CELL_BYTES)
    with pytest.raises(StoreCorrupt, match=f"damaged at byte {len(HEAD + FIRST)}: record 9"):
        read(bytes(data))


@pytest.mark.parametrize("place", [0, 1, 12, 30, 60, CELL_BYTES - 1])
def test_a_changed_byte_is_damage_also_in_the_last_block(place: int) -> None:
    for data in (HEAD + FIRST + SECOND, HEAD + FIRST):
        changed = bytearray(data)
        changed[len(HEAD) + place] ^= 0x10
        with pytest.raises(StoreCorrupt, match=f"damaged at byte {CELL_BYTES}: record 7"):
            read(bytes(changed))


def test_cells_of_two_writes_of_one_block_are_no_block() -> None:
    other = encode_block(9, [b"THREE" * 300])
    with pytest.raises(StoreCorrupt, match="the cells of the block from 9 on are not one write"):
        read(HEAD + FIRST + SECOND[:CELL_BYTES] + other[CELL_BYTES:])


def test_bytes_that_nobody_wrote_are_damage() -> None:
    for rubbish in (b"rubbish", b"rubbish" * 100, bytes(CELL_BYTES) + b"rubbish"):
        with pytest.raises(
            StoreCorrupt, match=f"damaged at byte {len(HEAD + FIRST)}: record 9 cannot be read"
        ):
            read(HEAD + FIRST + rubbish)


def test_a_segment_in_anothers_place_is_damage() -> None:
    for data in (encode_segment_head(8) + encode_block(8, [b"one"]), b"something", b"", HEAD[:-1]):
        with pytest.raises(StoreCorrupt, match="does not begin as the segment from record 7 on"):
            read(data)
    with pytest.raises(StoreCorrupt, match="record 9 stands where 7 should"):
        read(HEAD + SECOND)


def slots(*marks: FlushMark) -> bytearray:
    data = bytearray(MARKS_BYTES)
    for mark in marks:
        place, encoded = encode_mark(mark)
        data[place : place + len(encoded)] = encoded
    return data


def test_the_last_mark_counts_and_a_bad_one_leaves_the_one_before_it() -> None:
    old = FlushMark(number=4, segment=1, sequence=40)
    new = FlushMark(number=5, segment=41, sequence=40, is_failed=True)
    data = slots(old, new)
    assert read_marks(bytes(data), "marks") == new
    data[MARK_SLOT_BYTES + 20] ^= 1
    assert read_marks(bytes(data), "marks") == old
    data[20] ^= 1
    with pytest.raises(StoreCorrupt, match="marks is damaged at byte 0: neither of its marks"):
        read_marks(bytes(data), "marks")


def old_block(sequence: int, *records: bytes) -> bytes:
    body = b"".join(struct.pack("<I", len(record)) + record for record in records)
    head = struct.pack("<4sQIII", b"\xa7BLK", sequence, len(records), len(body), crc32(body))
    return head + struct.pack("<I", crc32(head)) + body


OLD_FACTS = struct.pack("<8sQ", b"HANSAJ1\n", 7)
OLD_HEAD = OLD_FACTS + struct.pack("<I", crc32(OLD_FACTS))
OLD = OLD_HEAD + old_block(7, b"one", b"two") + old_block(9, bytes(2_000))


def test_a_segment_of_the_first_form_is_read_in_todays() -> None:
    assert is_first_form(OLD)
    assert not is_first_form(HEAD)
    data, torn_bytes = renewed(OLD, "old", 7, is_last=False)
    assert torn_bytes == 0
    assert read(data, is_last=False)[0] == (b"one", b"two", bytes(2_000))


def test_of_the_first_form_only_an_end_that_is_not_there_is_torn() -> None:
    whole = len(OLD) - len(old_block(9, bytes(2_000)))
    for size in (whole + 1, whole + 27, whole + 28, len(OLD) - 1):
        data, torn_bytes = renewed(OLD[:size], "old", 7, is_last=True)
        assert (read(data)[0], torn_bytes) == ((b"one", b"two"), size - whole)
        with pytest.raises(StoreCorrupt, match=f"old is damaged at byte {whole}: record 9"):
            renewed(OLD[:size], "old", 7, is_last=False)
    for size in range(len(OLD_HEAD)):
        assert is_first_form(OLD_HEAD[:size])
        assert read(renewed(OLD_HEAD[:size], "old", 7, is_last=True)[0])[0] == ()
    for place in (8, 30, whole + 2, whole + 20, len(OLD) - 5):
        changed = bytearray(OLD)
        changed[place] ^= 1
        with pytest.raises(StoreCorrupt, match="old is damaged"):
            renewed(bytes(changed), "old", 7, is_last=True)


@pytest.mark.parametrize(
    "record",
    [
        Committed(revision=2, changes=(Change(b"k", b"v", 3), Change(b"gone", None), Change(b"e", b""))),
        LeaseGranted(revision=2, lease=2**62, ttl_s=0.25),
        LeaseEnded(revision=9, lease=1, is_expired=True),
        LeaseEnded(revision=9, lease=1, is_expired=False),
        CompactedAt(revision=2**40, oldest=2**39),
    ],
)
def test_a_record_is_read_as_it_was_written_and_in_no_other_length(record: Record) -> None:
    data = encode_record(record)
    assert decode_record(data) == record
    for wrong in (data[:-1], data + b"\0", b"", b"\xee" + data[1:]):
        with pytest.raises(StoreCorrupt):
            decode_record(wrong)
