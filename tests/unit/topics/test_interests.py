"""Who wants a topic, against the obvious scan."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import InvariantBroken
from hansa.topics.inbox import Inbox, Reader, WhenSlow
from hansa.topics.wants import Interests
from tests.support.spot_mesh import NOBODY, FakeSubscriber


class Owner:
    """A spot that takes itself for equal to any other."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def wish(spot: object, prefix: bytes, is_pattern: bool = False) -> FakeSubscriber:
    inbox = Inbox(Reader(NOBODY), 1, 1, WhenSlow.DROP_OLDEST)
    return FakeSubscriber("", spot, inbox, prefix, is_pattern)


def matches(one: FakeSubscriber, topic: bytes) -> bool:
    return topic.startswith(one.prefix) if one.is_pattern else topic == one.prefix


OWNERS = [Owner(), Owner(), Owner()]
names = st.text("ab", max_size=3).map(str.encode)
wishes = st.lists(st.tuples(st.sampled_from(range(3)), names, st.booleans()), max_size=25)


def best(mine: list[FakeSubscriber]) -> FakeSubscriber:
    exact = [one for one in mine if not one.is_pattern]
    return exact[0] if exact else max(mine, key=lambda one: len(one.prefix))


@given(wishes, st.lists(st.integers(0, 24), max_size=15), names)
def test_everything_is_what_a_scan_would_find(
    asked: list[tuple[int, bytes, bool]], withdrawn: list[int], topic: bytes
) -> None:
    interests = Interests()
    plain = [wish(OWNERS[owner], prefix, is_pattern) for owner, prefix, is_pattern in asked]
    for one in plain:
        interests.add(one)
    for number in withdrawn:
        if number < len(plain):
            interests.remove(plain.pop(number))
    wanting = [one for one in plain if matches(one, topic)]
    assert interests.matching(topic) == wanting
    assert interests.count(topic) == len(wanting)
    assert interests.has_exact(topic) == any(not one.is_pattern for one in wanting)
    chosen = [best(mine) for owner in OWNERS if (mine := [one for one in wanting if one.spot is owner])]
    assert interests.targets(topic) == sorted(chosen, key=plain.index)
    assert sorted(interests.exact_topics) == sorted({one.prefix for one in plain if not one.is_pattern})
    assert len(interests) == len(plain)


@pytest.mark.spec("SPT-08")
def test_patterns_and_exact_subscriptions_are_counted_together() -> None:
    interests = Interests()
    exact, pattern = wish(OWNERS[0], b"zone:12:state"), wish(OWNERS[1], b"zone:12:", is_pattern=True)
    interests.add(exact)
    interests.add(pattern)
    interests.add(wish(OWNERS[2], b"zone:12"))
    assert interests.count(b"zone:12:state") == 2
    interests.remove(exact)
    assert interests.count(b"zone:12:state") == 1
    interests.remove(pattern)
    assert interests.count(b"zone:12:state") == 0


@pytest.mark.spec("SPT-08")
def test_a_spot_that_matches_twice_receives_by_name_else_by_the_longest_pattern() -> None:
    interests = Interests()
    everything, zone = wish(OWNERS[0], b"", is_pattern=True), wish(OWNERS[0], b"zone:", is_pattern=True)
    by_name, other = wish(OWNERS[0], b"zone:1"), wish(OWNERS[1], b"", is_pattern=True)
    for one in (everything, other, by_name, zone):
        interests.add(one)
    assert interests.targets(b"zone:1") == [other, by_name]
    assert interests.targets(b"zone:2") == [other, zone]
    assert interests.targets(b"room:1") == [everything, other]


@pytest.mark.spec("SPT-06")
def test_a_pattern_does_not_match_less_than_its_prefix() -> None:
    interests = Interests()
    interests.add(wish(OWNERS[0], b"zone:12:", is_pattern=True))
    assert [interests.count(topic) for topic in (b"zone:12:", b"zone:12:a", b"zone:12", b"Zone:12:a")] == [
        1,
        1,
        0,
        0,
    ]


def test_adding_twice_and_removing_what_is_not_there_are_found() -> None:
    interests = Interests()
    one = wish(OWNERS[0], b"a")
    with pytest.raises(InvariantBroken):
        interests.remove(one)
    interests.add(one)
    with pytest.raises(InvariantBroken):
        interests.add(one)
    interests.remove(one)
    with pytest.raises(InvariantBroken):
        interests.remove(one)
