"""Who stands where in a line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.coordination.line import Head, epoch_of, has_head, head_key, head_of, in_order, place_of
from hansa.errors import BadRecord
from hansa.store.values import KeyValue


def item(key: bytes, created: int) -> KeyValue:
    return KeyValue(key=key, value=b"", create_revision=created, mod_revision=created, version=1)


def test_the_order_is_that_of_creation_and_not_of_names() -> None:
    items = [item(b"a", 9), item(b"b", 3), item(b"c", 5)]
    assert [each.key for each in in_order(items)] == [b"b", b"c", b"a"]


def test_the_first_has_its_turn_and_the_others_know_who_is_ahead() -> None:
    items = [item(b"a", 9), item(b"b", 3), item(b"c", 5)]
    first, last = place_of(b"b", items, revision=9), place_of(b"a", items, revision=9)
    assert first is not None
    assert last is not None
    assert (first.is_turn, first.ahead, first.own.create_revision, first.revision) == (True, (), 3, 9)
    assert (last.is_turn, last.is_next, [each.key for each in last.ahead]) == (False, False, [b"b", b"c"])


def test_who_is_not_there_has_no_place() -> None:
    assert place_of(b"x", [item(b"a", 9)], revision=9) is None


@given(created=st.lists(st.integers(1, 10**6), min_size=1, max_size=30, unique=True), turns=st.integers(1, 5))
def test_as_many_as_there_are_turns_have_one_and_one_is_next(created: list[int], turns: int) -> None:
    items = [item(b"%d" % number, number) for number in created]
    places = [place_of(each.key, items, revision=1, turns_count=turns) for each in items]
    assert sum(place is not None and place.is_turn for place in places) == min(turns, len(items))
    assert sum(place is not None and place.is_next for place in places) == (len(items) > turns)


# ---- after a hand-over

PREFIX = b"locks/dock/"
A, B, C, D = (PREFIX + name for name in (b"a", b"b", b"c", b"d"))


def line_with(head: Head, at: int, **created: int) -> list[KeyValue]:
    """A line of these, with a head that was written at a revision."""
    items = [item(PREFIX + name.encode(), number) for name, number in created.items()]
    found = KeyValue(
        key=head_key(PREFIX), value=head.encode(), create_revision=at, mod_revision=at, version=1
    )
    return [*items, found]


def test_who_took_last_stands_first_and_the_others_in_the_order_of_coming() -> None:
    line = line_with(Head(first=C), 20, a=25, b=12, c=14, d=22)
    assert [each.key for each in in_order(line)] == [C, B, D, A]
    head = head_of(line)
    # An old waiter must take its turn; one that came later owns as ever.
    assert [epoch_of(each, head) for each in in_order(line)] == [20, 0, 22, 25]


def test_a_sealed_head_has_the_old_owner_the_named_one_and_then_the_rest() -> None:
    line = line_with(Head(first=A, epoch=7, next=C, is_open=True), 20, a=10, b=12, c=14, d=22)
    assert [each.key for each in in_order(line)] == [A, C, B, D]
    assert [epoch_of(each, head_of(line)) for each in in_order(line)] == [7, 0, 0, 0]
    places = {key: place_of(key, line, revision=22) for key in (A, B, C, D)}
    assert {key: place is not None and place.is_turn for key, place in places.items()} == {
        A: True,
        B: False,
        C: True,
        D: False,
    }
    # Both are gone: the oldest of the rest comes, and must take what was sealed.
    left = [each for each in line if each.key not in (A, C)]
    heir = place_of(B, left, revision=23)
    assert heir is not None
    assert (heir.is_turn, heir.epoch) == (True, 0)


def test_what_is_still_to_be_read_must_be_taken_by_those_who_came_later_too() -> None:
    line = line_with(Head(first=C, is_open=True), 20, d=22)
    assert epoch_of(in_order(line)[0], head_of(line)) == 0
    line = line_with(Head(first=C), 20, d=22)
    assert epoch_of(in_order(line)[0], head_of(line)) == 22


def test_an_epoch_that_is_written_down_is_that_of_the_first() -> None:
    line = line_with(Head(first=A, epoch=10), 20, a=10, b=12)
    assert [epoch_of(each, head_of(line)) for each in in_order(line)] == [10, 0]


@given(
    created=st.lists(st.integers(1, 100), min_size=1, max_size=12, unique=True),
    first=st.integers(0, 14),
    after=st.integers(0, 14),
    at=st.integers(1, 100),
)
def test_all_but_the_head_stand_in_line_once(created: list[int], first: int, after: int, at: int) -> None:
    keys = [PREFIX + b"%d" % number for number in created]
    ends = [*keys, *[PREFIX + b"x%d" % number for number in range(15)]]
    head = Head(first=ends[first % len(ends)], next=ends[after % len(ends)], epoch=3)
    named = [item(key, number) for key, number in zip(keys, created, strict=True)]
    found = KeyValue(
        key=head_key(PREFIX), value=head.encode(), create_revision=at, mod_revision=at, version=1
    )
    order = [each.key for each in in_order([*named, found])]
    assert sorted(order) == sorted(keys)
    rest = [key for key in order if key not in (head.first, head.next)]
    assert rest == sorted(rest, key=lambda key: created[keys.index(key)])
    if head.first in keys:
        assert order[0] == head.first
    elif head.next in keys:
        assert order[0] == head.next


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"first": 1, "epoch": 0, "next": "", "open": true}'])
def test_a_head_that_cannot_be_read_says_so(value: bytes) -> None:
    found = KeyValue(key=head_key(PREFIX), value=value, create_revision=1, mod_revision=1, version=1)
    assert has_head([found])
    with pytest.raises(BadRecord, match="who stands first"):
        in_order([found])
