"""A journal gives back what was written into it, and says so when it cannot."""

import pytest

from hansa.errors import StoreCorrupt
from hansa.store.journal import (
    BLOCK_HEAD_BYTES,
    SECTOR_BYTES,
    SEGMENT_HEAD_BYTES,
    encode_block,
    encode_segment_head,
    read_segment,
    segment_name,
)
from hansa.store.journal_records import (
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


def read(data: bytes, *, is_last: bool = True) -> tuple[tuple[bytes, ...], int, int]:
    found = read_segment(data, "a file", 7, is_last=is_last)
    assert found.next_sequence == 7 + len(found.records)
    return found.records, found.good_bytes, found.torn_bytes


@pytest.mark.parametrize("is_last", [True, False])
def test_records_come_back_in_order(is_last: bool) -> None:
    data = HEAD + FIRST + SECOND
    assert read(data, is_last=is_last) == ((b"one", b"two", b"three" * 300), len(data), 0)


def test_segments_are_in_the_order_of_their_names() -> None:
    numbers = [1, 9, 10, 99, 10**9, 2**63]
    assert sorted(map(segment_name, numbers)) == [segment_name(number) for number in numbers]


def test_a_block_that_the_end_cuts_short_is_cut_off_in_the_last_segment_only() -> None:
    whole = HEAD + FIRST
    for size in range(1, len(SECOND)):
        assert read(whole + SECOND[:size]) == ((b"one", b"two"), len(whole), size)
        with pytest.raises(StoreCorrupt, match=f"a file is damaged at byte {len(whole)}: record 9"):
            read(whole + SECOND[:size], is_last=False)


def test_a_last_block_with_a_sector_that_was_never_written_is_cut_off() -> None:
    data = bytearray(HEAD + FIRST + SECOND)
    data[SECTOR_BYTES : 2 * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    assert read(bytes(data)) == ((b"one", b"two"), len(HEAD + FIRST), len(SECOND))


def test_space_that_was_taken_and_never_written_is_cut_off() -> None:
    assert read(HEAD + FIRST + bytes(10)) == ((b"one", b"two"), len(HEAD + FIRST), 10)
    assert read(HEAD + FIRST + bytes(5_000)) == ((b"one", b"two"), len(HEAD + FIRST), 5_000)


def test_a_hole_with_a_good_block_behind_it_is_damage() -> None:
    data = bytearray(HEAD + FIRST + SECOND + encode_block(10, [b"four"]))
    data[SECTOR_BYTES : 2 * SECTOR_BYTES] = bytes(SECTOR_BYTES)
    with pytest.raises(StoreCorrupt, match=f"damaged at byte {len(HEAD + FIRST)}: record 9"):
        read(bytes(data))


@pytest.mark.parametrize("place", [0, 4, 12, BLOCK_HEAD_BYTES - 1, BLOCK_HEAD_BYTES, BLOCK_HEAD_BYTES + 9])
def test_a_changed_byte_is_damage_also_in_the_last_block(place: int) -> None:
    for data in (HEAD + FIRST + SECOND, HEAD + FIRST):
        changed = bytearray(data)
        changed[len(HEAD) + place] ^= 0x10
        with pytest.raises(StoreCorrupt, match=f"damaged at byte {SEGMENT_HEAD_BYTES}: record 7"):
            read(bytes(changed))


def test_a_segment_that_was_being_made_is_empty() -> None:
    for size in range(SEGMENT_HEAD_BYTES):
        assert read(HEAD[:size]) == ((), 0, size)
        with pytest.raises(StoreCorrupt, match="does not begin"):
            read(HEAD[:size], is_last=False)
    # Its length was written, and nothing of its head.
    assert read(bytes(SEGMENT_HEAD_BYTES)) == ((), 0, SEGMENT_HEAD_BYTES)
    with pytest.raises(StoreCorrupt, match="does not begin"):
        read(bytes(SEGMENT_HEAD_BYTES) + FIRST)
    with pytest.raises(StoreCorrupt, match="does not begin"):
        read(b"something")


def test_a_segment_in_anothers_place_is_damage() -> None:
    with pytest.raises(StoreCorrupt, match="does not begin as the segment from record 7 on"):
        read(encode_segment_head(8) + encode_block(8, [b"one"]))
    with pytest.raises(StoreCorrupt, match="record 9 stands where 7 should"):
        read(HEAD + SECOND)


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
