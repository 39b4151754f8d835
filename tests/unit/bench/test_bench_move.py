"""What the benchmark of moves says of messages that came, and of times that are told apart."""

from bench.kinds.move import PUBLISHERS_COUNT, Times
from bench.peers.movers import NUMBER_BYTES, Books
from hansa import TopicMessage


def messages(*numbers: int, lane: int = 0) -> list[TopicMessage]:
    payloads = [bytes((lane,)) + number.to_bytes(NUMBER_BYTES, "little") + b"rest" for number in numbers]
    return [TopicMessage("topic", payload, 1) for payload in payloads]


def test_what_is_missed_twice_or_late_is_counted_for_each_publisher() -> None:
    books = Books()
    books.enter(messages(0, 1, 3, 4, 2, 4, 7), 1.0)
    books.enter(messages(0, 1, 2, lane=1), 1.0)
    assert books.count([9, 3]) == {"missed": 3, "twice": 1, "late": 1}
    assert books.count([9, 5]) == {"missed": 5, "twice": 1, "late": 1}


def test_all_that_came_in_order_is_right() -> None:
    books = Books()
    for lane in range(PUBLISHERS_COUNT):
        books.enter(messages(*range(100), lane=lane), 1.0)
    assert books.count([100] * PUBLISHERS_COUNT) == {"missed": 0, "twice": 0, "late": 0}


def test_the_longest_gaps_are_those_since_the_last_look() -> None:
    books = Books()
    books.enter(messages(0), 10.0)
    books.enter(messages(0, lane=1), 13.0)
    books.enter(messages(1), 15.0)
    assert books.look() == {"gap_s": 3.0, "lane_gap_s": 5.0}
    assert books.look() == {"gap_s": 0.0, "lane_gap_s": 0.0}
    books.enter(messages(2), 16.0)
    assert books.look() == {"gap_s": 1.0, "lane_gap_s": 1.0}


def test_what_is_told_apart_is_in_no_percentile() -> None:
    times = Times("pause")
    times.add([number / 100 for number in range(100)], is_apart=False)
    times.add([7.0, 8.0], is_apart=True)
    assert times.figures() == {"pause_s": 0.5, "pause_p99_s": 0.99}
    assert times.apart() == {"pause_apart_s": 8.0}


def test_times_that_were_never_measured_are_no_figures() -> None:
    times = Times("pause")
    assert times.figures() == times.apart() == {}
