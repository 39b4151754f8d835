"""Who stands where in a line."""

from hypothesis import given
from hypothesis import strategies as st

from hansa.coordination.line import in_order, place_of
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
