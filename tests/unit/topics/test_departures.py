"""Numbers of what this node publishes: in a row, never twice, and within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.errors import BadArgument
from hansa.topics.open_mesh import Departures
from tests.support.topics_pubsub import read_origin


def published(departures: Departures, topic: str) -> tuple[int, int]:
    """Epoch and sequence of the next publication."""
    departure = departures.count(topic)
    node, epoch = read_origin(departure.origin)
    assert node == b"node"
    return epoch, departure.sequence


def test_every_topic_is_counted_by_itself_from_1_on() -> None:
    departures = Departures(b"node", 5)
    assert [published(departures, topic) for topic in ("a", "b", "a", "a")] == [
        (5, 1),
        (5, 1),
        (5, 2),
        (5, 3),
    ]
    assert departures.counts == {"a": 3, "b": 1}
    assert len(departures) == 2


@given(st.lists(st.integers(0, 12), max_size=150), st.integers(1, 9))
def test_a_number_never_comes_twice_and_epochs_only_rise(chosen: list[int], count_max: int) -> None:
    departures, last = Departures(b"node", 1, count_max), dict[int, tuple[int, int]]()
    for topic in chosen:
        epoch, sequence = published(departures, str(topic))
        if topic in last:
            before = last[topic]
            assert (epoch, sequence) == (before[0], before[1] + 1) or (epoch > before[0] and sequence == 1)
        last[topic] = epoch, sequence
        assert len(departures) <= max(2, count_max)
        assert len(departures.counts) == len(departures)
        assert departures.counts[str(topic)] == sequence


def test_those_that_are_published_keep_their_count_while_the_silent_are_forgotten() -> None:
    departures = Departures(b"node", 1, 8)
    published(departures, "silent")
    for number in range(1, 101):
        assert published(departures, "busy") == (1, number)
        published(departures, f"other:{number}")
    assert departures.forgotten_count >= 90
    epoch, sequence = published(departures, "silent")
    assert epoch > 1
    assert sequence == 1


def test_what_is_no_topic_is_refused_and_not_remembered() -> None:
    departures = Departures(b"node", 1)
    for topic in ("", "zone:*", "a\n", "x" * 256):
        with pytest.raises(BadArgument):
            departures.count(topic)
    assert len(departures) == 0


def test_the_frame_is_the_name_in_utf8() -> None:
    assert Departures(b"node", 1).count("존:1").frame == "존:1".encode()


def test_counts_are_in_the_order_of_the_names() -> None:
    departures = Departures(b"node", 1, 4)
    for topic in ("c", "a", "d", "b"):
        published(departures, topic)
    assert list(departures.counts) == sorted(departures.counts)
