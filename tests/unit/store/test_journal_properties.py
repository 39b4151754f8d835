"""Whatever was done, and wherever the file breaks: the store is what it was at some block, or refuses."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.errors import StoreCorrupt
from hansa.store.journal import encode_block, encode_segment_head, read_segment
from hansa.store.journal_records import (
    Change,
    Committed,
    LeaseEnded,
    LeaseGranted,
    Record,
    decode_record,
    encode_record,
)
from hansa.store.snapshot import decode_snapshot, encode_snapshot
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


def state_of(data: bytes) -> object:
    found = read_segment(data, "a file", 1, is_last=True)
    return view(replayed([decode_record(record) for record in found.records]))


@pytest.mark.spec("CRD-01")
@settings(max_examples=60)
@given(groups)
def test_a_journal_cut_anywhere_is_the_store_at_the_last_whole_block(
    played_groups: list[list[tuple[str, object]]],
) -> None:
    data, ends, views = written(played_groups)
    # Every place in the last two blocks: replaying for each place of a long file would prove no more.
    first = ends[max(0, len(ends) - 3)]
    for size in range(first, len(data) + 1):
        whole = sum(end <= size for end in ends) - 1
        assert state_of(data[:size]) == views[whole]


@settings(max_examples=100)
@given(groups, st.data())
def test_a_journal_with_a_changed_byte_is_refused_or_an_older_store(
    played_groups: list[list[tuple[str, object]]], data: st.DataObject
) -> None:
    whole, ends, views = written(played_groups)
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= data.draw(st.integers(1, 255))
    try:
        state = state_of(bytes(changed))
    except StoreCorrupt as error:
        assert "a file is damaged at byte" in str(error)
        return
    # Only the last block may pass for one that was never written to its end.
    assert place >= ends[-2] if len(ends) > 1 else True
    assert state == views[max(0, len(views) - 2)]


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
    read.begin(restored, now=0.0)
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
