"""Counting what is missing, against the obvious table, and within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.topics.open_mesh import REPEATED, Arrivals

topics = st.sampled_from([b"a", b"ab", b"b"])
origins = st.sampled_from([b"one", b"two"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("note"), topics, origins, st.integers(1, 9)),
        st.tuples(st.just("forget"), topics, origins, st.just(0)),
        st.tuples(st.just("forget a*"), topics, origins, st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.spec("SPT-22")
@given(steps)
def test_gaps_and_repetitions_are_those_of_a_table(changes: list[tuple[str, bytes, bytes, int]]) -> None:
    arrivals, table = Arrivals(), dict[tuple[bytes, bytes], int]()
    for what, topic, origin, sequence in changes:
        if what == "note":
            last = table.get((topic, origin))
            expected = 0 if last is None else REPEATED if sequence <= last else sequence - last - 1
            assert arrivals.note(topic, origin, sequence) == expected
            table[topic, origin] = max(sequence, last or 0)
        elif what == "forget":
            arrivals.forget(topic)
            table = {key: last for key, last in table.items() if key[0] != topic}
        else:
            # The given topic is still wanted by somebody.
            arrivals.forget_unwanted(b"a", topic.__eq__)
            table = {
                key: last for key, last in table.items() if key[0] == topic or not key[0].startswith(b"a")
            }
        assert len(arrivals) == len(table)


@pytest.mark.spec("SPT-22")
def test_every_origin_and_topic_is_counted_by_itself() -> None:
    arrivals = Arrivals()
    assert arrivals.note(b"t", b"one", 7) == 0
    assert arrivals.note(b"t", b"two", 100) == 0
    assert arrivals.note(b"u", b"one", 3) == 0
    assert arrivals.note(b"t", b"one", 8) == 0
    assert arrivals.note(b"t", b"two", 105) == 4
    assert arrivals.note(b"t", b"one", 8) == REPEATED
    assert arrivals.note(b"t", b"one", 2) == REPEATED
    assert arrivals.note(b"t", b"one", 10) == 1


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=200), st.integers(1, 12))
def test_the_memory_is_bounded_and_whatever_is_forgotten_is_counted(
    keys: list[tuple[int, int]], count_max: int
) -> None:
    arrivals, noted = Arrivals(count_max), set[tuple[int, int]]()
    for number, (topic, origin) in enumerate(keys, 1):
        # The newest number of all, so never a repetition; forgotten or not, a count is never negative.
        assert arrivals.note(b"%d" % topic, b"%d" % origin, number) >= 0
        noted.add((topic, origin))
        assert len(arrivals) <= max(2, count_max)
        kept = sum(len(known) for table in (arrivals._young, arrivals._old) for known in table.values())
        assert len(arrivals) == kept
        assert sorted({*arrivals._young, *arrivals._old}) == arrivals._topics.starting_with(b"")
        assert len(arrivals) + arrivals.forgotten_count >= len(noted)


def test_those_that_arrive_are_kept_while_the_silent_are_forgotten() -> None:
    arrivals = Arrivals(8)
    arrivals.note(b"silent", b"one", 1)
    for number in range(1, 101):
        assert arrivals.note(b"busy", b"one", number * 3) == (0 if number == 1 else 2)
        arrivals.note(b"other:%d" % number, b"one", 1)
    assert arrivals.forgotten_count >= 90
    # What was forgotten begins anew: no repetition, and nothing missing.
    assert arrivals.note(b"silent", b"one", 1) == 0
