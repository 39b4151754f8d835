"""A spot that reads several subscriptions: one order, and a line that does not outgrow what waits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.topics.inbox import Inbox, Reader, TopicMessage, WhenSlow
from tests.support.spot_mesh import NOBODY

BIG = 1 << 30


def inbox_of(
    reader: Reader, *, count_max: int = 100, bytes_max: int = BIG, when_slow: WhenSlow = WhenSlow.DROP_OLDEST
) -> Inbox:
    inbox = Inbox(reader, count_max, bytes_max, when_slow)
    reader.add(inbox)
    return inbox


def put(inbox: Inbox, number: int, topic: str = "t", size_bytes: int = 1) -> None:
    inbox.put(TopicMessage(topic, bytes(size_bytes), number), size_bytes)


def numbers(messages: list[TopicMessage]) -> list[int]:
    return [one.sequence for one in messages]


def test_a_reader_without_subscriptions_has_nothing() -> None:
    reader = Reader(NOBODY)
    assert reader.next() is None
    assert reader.take_all() == []


def test_one_subscription_is_read_without_a_line() -> None:
    reader = Reader(NOBODY)
    inbox = inbox_of(reader)
    put(inbox, 1)
    put(inbox, 2)
    assert reader.line is None
    assert reader.next() == TopicMessage("t", b"\0", 1)
    assert numbers(reader.take_all()) == [2]


@pytest.mark.spec("SPT-10")
def test_several_subscriptions_are_read_in_the_order_in_which_their_messages_came() -> None:
    reader = Reader(NOBODY)
    a, b = inbox_of(reader), inbox_of(reader)
    for number, inbox in enumerate((a, b, b, a, b, a)):
        put(inbox, number)
    first = reader.next()
    assert first is not None
    assert [first.sequence, *numbers(reader.take_all())] == [0, 1, 2, 3, 4, 5]
    assert reader.next() is None


def test_what_waited_before_the_second_subscription_came_is_read_first() -> None:
    reader = Reader(NOBODY)
    a = inbox_of(reader)
    put(a, 1)
    put(a, 2)
    b = inbox_of(reader)
    put(b, 3)
    put(a, 4)
    assert numbers(reader.take_all()) == [1, 2, 3, 4]


def test_a_subscription_that_ends_takes_its_messages_with_it() -> None:
    reader = Reader(NOBODY)
    a, b, c = (inbox_of(reader) for _ in range(3))
    for number, inbox in enumerate((a, b, c, a, b, c)):
        put(inbox, number)
    reader.remove(a)
    assert numbers(reader.take_all()) == [1, 2, 4, 5]
    for number, inbox in enumerate((b, c, b)):
        put(inbox, number)
    reader.remove(b)
    assert numbers(reader.take_all()) == [1]
    put(c, 7)
    assert numbers(reader.take_all()) == [7]
    reader.remove(c)
    assert reader.take_all() == []


def test_a_subscription_can_be_read_itself_and_the_rest_keeps_its_order() -> None:
    reader = Reader(NOBODY)
    a, b = inbox_of(reader), inbox_of(reader)
    for number, inbox in enumerate((a, b, a, b)):
        put(inbox, number)
    assert numbers(a.take_all()) == [0, 2]
    reader.passed_by(2)
    assert numbers(reader.take_all()) == [1, 3]


@pytest.mark.spec("SPT-21")
@pytest.mark.parametrize(
    ("when_slow", "size_bytes", "bytes_max"),
    [
        (WhenSlow.DROP_OLDEST, 1, BIG),
        (WhenSlow.DROP_OLDEST, 6, 10),
        (WhenSlow.DROP_NEWEST, 1, BIG),
        (WhenSlow.KEEP_LATEST, 1, BIG),
        (WhenSlow.KEEP_LATEST, 6, 10),
    ],
)
def test_the_line_of_a_stopped_reader_stays_bounded(
    when_slow: WhenSlow, size_bytes: int, bytes_max: int
) -> None:
    reader = Reader(NOBODY)
    slow = inbox_of(reader, count_max=10, bytes_max=bytes_max, when_slow=when_slow)
    inbox_of(reader)
    for number in range(20_000):
        put(slow, number, f"topic-{number % 50}", size_bytes)
    assert reader.line is not None
    assert len(reader.line) < 5_000
    assert slow.held_count <= 10
    assert len(reader.take_all()) == 20_000 - slow.dropped_count


@pytest.mark.spec("SPT-21")
def test_messages_of_different_sizes_leave_no_line_behind() -> None:
    reader = Reader(NOBODY)
    slow = inbox_of(reader, count_max=1_000, bytes_max=100)
    inbox_of(reader)
    for number in range(20_000):
        # One large message pushes out many small ones.
        put(slow, number, size_bytes=99 if number % 50 == 0 else 1)
    assert reader.line is not None
    assert len(reader.line) < 5_000


def test_the_line_of_a_subscription_that_is_read_itself_stays_bounded() -> None:
    reader = Reader(NOBODY)
    a, _ = inbox_of(reader), inbox_of(reader)
    for number in range(20_000):
        put(a, number)
        assert a.next() is not None
        reader.passed_by(1)
    assert reader.line is not None
    assert len(reader.line) < 5_000
    assert reader.next() is None


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["put", "put", "put", "next", "take_all"])), max_size=80
    )
)
def test_whoever_reads_gets_every_message_once_and_each_subscription_in_order(
    actions: list[tuple[int, str]],
) -> None:
    reader = Reader(NOBODY)
    inboxes = [inbox_of(reader) for _ in range(3)]
    put_count = 0
    waiting: list[tuple[int, int]] = []
    for which, action in actions:
        if action == "put":
            put(inboxes[which], put_count, f"topic-{which}")
            waiting.append((which, put_count))
            put_count += 1
        elif action == "next":
            one = reader.next()
            assert (one is None) == (not waiting)
            if one is not None:
                came = next(entry for entry in waiting if f"topic-{entry[0]}" == one.topic)
                assert one.sequence == came[1]
                waiting.remove(came)
        else:
            own = inboxes[which].take_all()
            reader.passed_by(len(own))
            assert numbers(own) == [number for at, number in waiting if at == which]
            waiting = [entry for entry in waiting if entry[0] != which]
    assert sorted(numbers(reader.take_all())) == sorted(number for _, number in waiting)
