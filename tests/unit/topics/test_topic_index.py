"""Topics by their beginning, against the obvious scan."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.topics.owners import TopicIndex

names = st.lists(st.sampled_from([b"a", b"b", b"\xff"]), max_size=3).map(b"".join)
steps = st.lists(st.tuples(st.sampled_from(["add", "discard", "look"]), names), max_size=80)


@given(steps)
def test_a_look_finds_what_a_scan_would_find(changes: list[tuple[str, bytes]]) -> None:
    index, plain = TopicIndex(), set[bytes]()
    for what, name in changes:
        if what == "add":
            index.add(name)
            plain.add(name)
        elif what == "discard":
            index.discard(name)
            plain.discard(name)
        else:
            assert index.starting_with(name) == sorted(topic for topic in plain if topic.startswith(name))
        assert (name in index) == (name in plain)
        assert len(index) == len(plain)
    assert index.starting_with(b"") == sorted(plain)


@pytest.mark.parametrize("batch_count", [1, 5, 100])
def test_additions_between_two_looks_are_merged_with_what_was_there(batch_count: int) -> None:
    index, plain = TopicIndex(), list[bytes]()
    for batch in range(4):
        for number in range(batch_count):
            # Each batch lies between the topics of the ones before.
            topic = b"%d:%d" % (number * 31 % batch_count, batch)
            index.add(topic)
            plain.append(topic)
        assert index.starting_with(b"") == sorted(plain)
        assert index.starting_with(b"0:") == sorted(topic for topic in plain if topic.startswith(b"0:"))


def test_what_begins_alike_stands_apart_from_its_neighbours() -> None:
    index = TopicIndex()
    for topic in (b"zone:12", b"zone:12:state", b"zone:12:a", b"zone:13:a", b"zone:1", b"zone:12;"):
        index.add(topic)
    assert index.starting_with(b"zone:12:") == [b"zone:12:a", b"zone:12:state"]
    assert index.starting_with(b"zone:12") == [b"zone:12", b"zone:12:a", b"zone:12:state", b"zone:12;"]
    assert index.starting_with(b"zone:14") == []


class Counted(bytes):
    """A topic that counts how often it is compared, which is what sorting and searching cost."""

    comparisons_count = 0

    def __lt__(self, other: bytes) -> bool:
        Counted.comparisons_count += 1
        return bytes.__lt__(self, other)

    __hash__ = bytes.__hash__


def counted_topics(count: int) -> Iterator[bytes]:
    return (Counted(b"%d:%d" % (number * 7919 % count, number)) for number in range(count))


def test_adding_compares_nothing_and_a_look_sorts_once() -> None:
    index, topics = TopicIndex(), list(counted_topics(4096))
    Counted.comparisons_count = 0
    for topic in topics:
        index.add(topic)
    assert Counted.comparisons_count == 0
    assert len(index.starting_with(Counted(b""))) == 4096
    # 4096 topics are sorted with some 12 comparisons each.
    assert Counted.comparisons_count < 4096 * 15


def test_a_look_without_changes_scans_nothing() -> None:
    index = TopicIndex()
    for topic in counted_topics(4096):
        index.add(topic)
    index.starting_with(b"")
    Counted.comparisons_count = 0
    assert index.starting_with(Counted(b"77:")) == [
        b"77:%d" % n for n in range(4096) if n * 7919 % 4096 == 77
    ]
    assert Counted.comparisons_count < 30


def test_looks_between_single_additions_do_not_sort_everything_again() -> None:
    index = TopicIndex()
    for topic in counted_topics(4096):
        index.add(topic)
    index.starting_with(b"")
    Counted.comparisons_count = 0
    for number in range(100):
        index.add(Counted(b"new:%d" % number))
        assert len(index.starting_with(Counted(b"new:"))) == number + 1
    assert Counted.comparisons_count < 100 * 50


def test_removed_topics_do_not_keep_their_place_for_ever() -> None:
    index = TopicIndex()
    for round_number in range(50):
        for number in range(100):
            index.add(b"%d:%d" % (round_number, number))
        index.starting_with(b"")
        for number in range(100):
            index.discard(b"%d:%d" % (round_number, number))
    assert len(index) == 0
    assert len(index._sorted) <= 100
    assert len(index._gone) <= 100
