"""Whatever was done, and wherever the file breaks: the store is what it was at some block, or refuses."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.errors import StoreCorrupt
from hansa.store.served.journal import CELL_BYTES, encode_block, encode_segment_head, read_segment
from hansa.store.served.records import (
    Change,
    Committed,
    LeaseEnded,
    LeaseGranted,
    Record,
    decode_record,
    decode_snapshot,
    encode_record,
    encode_snapshot,
)
from tests.support.store_views import Played, replayed, steps, view

groups = st.lists(st.lists(steps, min_size=1, max_size=3), min_size=1, max_size=6)


def written(played_groups: list[list[tuple[str, object]]]) -> tuple[bytes, list[int], list[tuple[Any, ...]]]:
    """A segment with a block a group; where each block ends, and what the store was then."""
    played = Played()
    data = encode_segment_head(1)
    sequence, ends, views = 1, [len(data)], [view(played.store)]
    for group in played_groups:
        records = [encode_record(record) for step in group for record in played.play(step)]
        if not records:
            continue
        data += encode_block(sequence, records)
        sequence += len(records)
        ends.append(len(data))
        views.append(view(played.store))
    return data, ends, views


def state_of(data: bytes, *, flushed: int = 0) -> object:
    found = read_segment(data, "a file", 1, is_last=True, flushed=flushed)
    if found.damage is not None:
        raise StoreCorrupt(found.damage)
    return view(replayed([decode_record(record) for record in found.records]))


@pytest.mark.spec("CRD-01")
@settings(max_examples=60)
@given(groups, st.data())
def test_a_journal_cut_anywhere_is_the_store_at_the_last_whole_block(
    played_groups: list[list[tuple[str, object]]], data: st.DataObject
) -> None:
    whole, ends, views = written(played_groups)
    size = data.draw(st.integers(ends[0], len(whole)) | st.sampled_from(ends))
    assert state_of(whole[:size]) == views[sum(end <= size for end in ends) - 1]


# Bytes that look like sectors that were never written, and like cells.
contents = st.lists(
    st.builds(
        bytes.__mul__,
        st.sampled_from([b"\0", b"\xa7", b"\xb7", b"some"]),
        st.sampled_from([0, 1, 480, 2_000]),
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.spec("CRD-18")
@settings(max_examples=200)
@given(st.lists(contents, min_size=1, max_size=3), st.data())
def test_whatever_its_bytes_a_block_is_torn_by_absent_sectors_and_damaged_by_a_changed_bit(
    blocks: list[list[bytes]], data: st.DataObject
) -> None:
    whole, sequence = encode_segment_head(1), 1
    start = last = 0
    for records in blocks:
        start, last = len(whole), sequence
        whole += encode_block(sequence, records)
        sequence += len(records)
    sectors = range(start, len(whole), CELL_BYTES)
    absent = data.draw(st.sets(st.sampled_from(sectors)), label="absent")
    length = data.draw(st.integers(start, len(whole)), label="length")
    changed = data.draw(st.none() | st.integers(0, len(whole) - 1), label="changed")
    broken = bytearray(whole)
    for at in absent:
        broken[at : at + CELL_BYTES] = bytes(CELL_BYTES)
    del broken[length:]
    # The bits of a sector that is not there, or not whole, change nothing about that.
    is_wrong = (
        changed is not None
        and changed - changed % CELL_BYTES not in absent
        and changed - changed % CELL_BYTES + CELL_BYTES <= length
    )
    if is_wrong and changed is not None:
        broken[changed] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    is_whole = not absent and length == len(whole)
    for flushed in (last - 1, sequence - 1):
        try:
            found = read_segment(bytes(broken), "a file", 1, is_last=True, flushed=flushed)
        except StoreCorrupt:
            assert is_wrong
            continue
        assert (found.damage is not None) == (is_wrong or (not is_whole and flushed >= last))
        if found.damage is None:
            assert found.next_sequence == (sequence if is_whole else last)


@settings(max_examples=100)
@given(groups, groups)
def test_a_snapshot_and_the_journal_behind_it_are_the_whole_journal(
    before: list[list[tuple[str, object]]], after: list[list[tuple[str, object]]]
) -> None:
    played = Played()
    for group in before:
        for step in group:
            played.play(step)
    file = b"".join(encode_snapshot(played.store.image(), 5))
    read = decode_snapshot(file, "a file")
    restored = replayed([])
    restored.begin(read, now=0.0)
    assert read.sequence == 5
    assert view(restored) == view(played.store)
    for group in after:
        for step in group:
            for record in played.play(step):
                restored.replay(record, now=0.0)
    assert view(restored) == view(played.store)


def test_a_replay_that_goes_another_way_is_refused() -> None:
    grant = LeaseGranted(revision=1, lease=11, ttl_s=1.0)
    put = Committed(revision=2, changes=(Change(b"k", b"v", 11),))
    sequences: tuple[list[Record], ...] = (
        [put],  # without its lease
        [grant, grant],
        [grant, put, put],  # the same revision twice
        [Committed(revision=2, changes=(Change(b"k", None),))],  # a delete of nothing
        [Committed(revision=2, changes=())],
        [grant, put, LeaseEnded(revision=2, lease=11, is_expired=True)],  # it had a key
        [LeaseEnded(revision=1, lease=11, is_expired=True)],
    )
    for records in sequences:
        with pytest.raises(StoreCorrupt):
            replayed(records)
