"""What waits in a subscription: order, bounds, policies, exact counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.topics.inbox import Inbox, Reader, TopicMessage, WhenSlow
from tests.support.spot_mesh import NOBODY

BIG = 1 << 30


def inbox_of(
    when_slow: WhenSlow, *, count_max: int = 3, bytes_max: int = BIG, reader: Reader | None = None
) -> Inbox:
    return Inbox(Reader(NOBODY) if reader is None else reader, count_max, bytes_max, when_slow)


def message(number: int, topic: str = "t", size_bytes: int = 1) -> TopicMessage:
    return TopicMessage(topic, bytes([number]) * size_bytes, number)


def put(inbox: Inbox, *messages: TopicMessage) -> None:
    for one in messages:
        inbox.put(one, len(one.payload))


def numbers(messages: list[TopicMessage]) -> list[int]:
    return [one.sequence for one in messages]


def drained(inbox: Inbox) -> list[int]:
    found = []
    while (one := inbox.next()) is not None:
        found.append(one.sequence)
    return found


def test_messages_leave_in_the_order_in_which_they_came() -> None:
    inbox = inbox_of(WhenSlow.DROP_OLDEST, count_max=100)
    put(inbox, message(1), message(2))
    assert inbox.next() == message(1)
    put(inbox, message(3))
    assert drained(inbox) == [2, 3]
    assert inbox.next() is None


@pytest.mark.parametrize("when_slow", WhenSlow)
def test_taking_all_gives_what_next_would_and_leaves_nothing(when_slow: WhenSlow) -> None:
    inbox = inbox_of(when_slow, count_max=100)
    put(inbox, message(1, "a"), message(2, "b"), message(3, "c"))
    assert inbox.next() == message(1, "a")
    put(inbox, message(4, "d"))
    assert numbers(inbox.take_all()) == [2, 3, 4]
    assert (inbox.held_count, inbox.held_bytes) == (0, 0)
    assert inbox.take_all() == []
    put(inbox, message(5))
    assert numbers(inbox.take_all()) == [5]


@pytest.mark.spec("SPT-21")
def test_drop_oldest_keeps_the_newest_and_counts_the_others() -> None:
    inbox = inbox_of(WhenSlow.DROP_OLDEST)
    put(inbox, *(message(n) for n in range(1, 8)))
    assert (inbox.held_count, inbox.dropped_count, inbox.accepted_count) == (3, 4, 7)
    assert drained(inbox) == [5, 6, 7]


@pytest.mark.spec("SPT-21")
def test_drop_newest_keeps_the_oldest_and_counts_the_others() -> None:
    inbox = inbox_of(WhenSlow.DROP_NEWEST)
    put(inbox, *(message(n) for n in range(1, 8)))
    assert (inbox.held_count, inbox.dropped_count, inbox.accepted_count) == (3, 4, 3)
    assert drained(inbox) == [1, 2, 3]
    put(inbox, message(8))
    assert drained(inbox) == [8]


@pytest.mark.spec("SPT-21")
def test_keep_latest_holds_one_message_a_topic_in_its_place_and_counts_the_others() -> None:
    inbox = inbox_of(WhenSlow.KEEP_LATEST)
    put(inbox, message(1, "a"), message(2, "b"), message(3, "a"), message(4, "a"))
    assert (inbox.held_count, inbox.dropped_count, inbox.accepted_count) == (2, 2, 4)
    assert numbers(inbox.take_all()) == [4, 2]


@pytest.mark.spec("SPT-21")
def test_keep_latest_drops_the_topic_that_waited_longest_when_topics_are_too_many() -> None:
    inbox = inbox_of(WhenSlow.KEEP_LATEST)
    put(inbox, *(message(n, f"topic-{n}") for n in range(1, 6)))
    assert (inbox.held_count, inbox.dropped_count) == (3, 2)
    assert drained(inbox) == [3, 4, 5]


@pytest.mark.spec("SPT-21")
def test_keep_latest_never_drops_the_message_that_has_just_come() -> None:
    inbox = inbox_of(WhenSlow.KEEP_LATEST, count_max=100, bytes_max=10)
    put(inbox, message(1, "a", 4), message(2, "b", 4), message(3, "a", 8))
    assert numbers(inbox.take_all()) == [3]
    assert inbox.dropped_count == 2


@pytest.mark.spec("SPT-21")
@pytest.mark.parametrize(
    ("when_slow", "left"),
    [(WhenSlow.DROP_OLDEST, [2, 3, 4]), (WhenSlow.DROP_NEWEST, [1, 2, 3]), (WhenSlow.KEEP_LATEST, [4])],
)
def test_bytes_are_bounded_as_messages_are_but_for_the_one_that_exceeds_them(
    when_slow: WhenSlow, left: list[int]
) -> None:
    inbox = inbox_of(when_slow, count_max=100, bytes_max=25)
    put(inbox, *(message(n, size_bytes=10) for n in range(1, 5)))
    assert drained(inbox) == left
    assert inbox.dropped_count == 4 - len(left)
    assert (inbox.held_count, inbox.held_bytes) == (0, 0)


@pytest.mark.spec("SPT-21")
@pytest.mark.parametrize("when_slow", WhenSlow)
def test_a_message_larger_than_the_bound_is_taken_alone(when_slow: WhenSlow) -> None:
    inbox = inbox_of(when_slow, bytes_max=10)
    put(inbox, message(1, size_bytes=50))
    assert drained(inbox) == [1]
    assert inbox.dropped_count == 0


def test_what_was_dropped_is_told_once() -> None:
    inbox = inbox_of(WhenSlow.DROP_OLDEST, count_max=1)
    put(inbox, message(1), message(2), message(3))
    assert inbox.take_untold() == 2
    assert inbox.take_untold() == 0
    put(inbox, message(4))
    assert inbox.take_untold() == 1
    assert inbox.dropped_count == 3


def test_a_reader_that_waits_is_woken_once_by_the_message_that_is_taken() -> None:
    reader = Reader(NOBODY)
    inbox = inbox_of(WhenSlow.DROP_NEWEST, count_max=2, reader=reader)
    assert not inbox.put(message(1), 1)
    reader.expect()
    assert inbox.put(message(2), 1)
    assert not reader.is_awaited
    reader.expect()
    # Dropped: there is nothing new to read.
    assert not inbox.put(message(3), 1)
    assert reader.is_awaited


@pytest.mark.parametrize("when_slow", [WhenSlow.DROP_OLDEST, WhenSlow.KEEP_LATEST])
def test_a_reader_is_woken_also_by_a_message_that_took_anothers_place(when_slow: WhenSlow) -> None:
    inbox = inbox_of(when_slow, count_max=1)
    put(inbox, message(1))
    inbox.reader.expect()
    assert inbox.put(message(2), 1)


def test_messages_are_equal_by_what_they_say_and_show_it() -> None:
    assert TopicMessage("t", b"x", 1) == TopicMessage("t", b"x", 1)
    for other in (TopicMessage("u", b"x", 1), TopicMessage("t", b"y", 1), TopicMessage("t", b"x", 2), "t"):
        assert TopicMessage("t", b"x", 1) != other
    assert len({TopicMessage("t", b"x", 1), TopicMessage("t", b"x", 1), TopicMessage("t", b"x")}) == 2
    assert repr(TopicMessage("t", b"x", 7)) == "TopicMessage('t', b'x', 7)"


class Model:
    """An inbox as its documentation tells it, without any cleverness."""

    def __init__(self, when_slow: WhenSlow, count_max: int, bytes_max: int) -> None:
        self.when_slow = when_slow
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.waiting: list[TopicMessage] = []
        self.dropped_count = 0

    def is_full(self) -> bool:
        return len(self.waiting) >= self.count_max or self.held_bytes() >= self.bytes_max

    def held_bytes(self) -> int:
        return sum(len(one.payload) for one in self.waiting)

    def put(self, new: TopicMessage) -> None:
        if self.when_slow is WhenSlow.KEEP_LATEST:
            self._keep(new)
        elif self.is_full() and self.when_slow is WhenSlow.DROP_NEWEST:
            self.dropped_count += 1
        else:
            while self.waiting and self.is_full():
                self._drop(self.waiting[0])
            self.waiting.append(new)

    def _keep(self, new: TopicMessage) -> None:
        topics = [one.topic for one in self.waiting]
        if new.topic in topics:
            self.waiting[topics.index(new.topic)] = new
            self.dropped_count += 1
        else:
            self.waiting.append(new)
        while len(self.waiting) > 1 and (
            len(self.waiting) > self.count_max or self.held_bytes() > self.bytes_max
        ):
            self.waiting.sort(key=lambda one: one is new)
            self._drop(self.waiting[0])

    def _drop(self, one: TopicMessage) -> None:
        self.waiting.remove(one)
        self.dropped_count += 1


actions = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 12)) | st.sampled_from(["next", "take_all"]),
    max_size=60,
)


@pytest.mark.spec("SPT-21")
@given(st.sampled_from(WhenSlow), st.integers(1, 5), st.integers(1, 30), actions)
def test_an_inbox_does_what_its_documentation_tells(
    when_slow: WhenSlow, count_max: int, bytes_max: int, actions: list[tuple[str, int] | str]
) -> None:
    inbox = inbox_of(when_slow, count_max=count_max, bytes_max=bytes_max)
    model = Model(when_slow, count_max, bytes_max)
    put_count = read_count = 0
    for action in actions:
        if action == "next":
            one = inbox.next()
            assert one == (model.waiting.pop(0) if model.waiting else None)
            read_count += one is not None
        elif action == "take_all":
            messages = inbox.take_all()
            assert messages == model.waiting
            read_count += len(messages)
            model.waiting.clear()
        else:
            put_count += 1
            new = TopicMessage(str(action[0]), bytes(int(action[1])), put_count)
            inbox.put(new, len(new.payload))
            model.put(new)
        assert inbox.held_count == len(model.waiting)
        assert inbox.held_bytes == model.held_bytes()
        assert inbox.dropped_count == model.dropped_count
    # Nothing is lost without being counted.
    assert put_count == read_count + inbox.dropped_count + inbox.held_count
