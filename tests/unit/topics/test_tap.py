"""Many threads read one spot: each message goes to one of them, in order, and nobody waits in vain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from time import monotonic

import pytest

from hansa.errors import AlreadyClosed, TimedOut, WouldBlock
from hansa.topics import TopicMessage, WhenSlow, threads
from hansa.topics.threads import LOOK_COUNT_MAX
from tests.support.interrupts import interrupted_after
from tests.support.loop_thread import WITHIN_S
from tests.support.thread_spots import ThreadSpots, thread_spots

MESSAGES = 2_000
READERS = 8


@pytest.fixture
def stage() -> Iterator[ThreadSpots]:
    with thread_spots() as stage:
        yield stage


def payloads(messages: list[TopicMessage]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.mark.spec("SPT-18")
def test_each_message_goes_to_one_of_the_threads_and_each_thread_sees_its_own_in_order(
    stage: ThreadSpots,
) -> None:
    subscription = stage.reader.subscribe("t")
    with ThreadPoolExecutor(READERS) as pool:
        reading = [pool.submit(lambda: [int(one.payload) for one in stage.reader]) for _ in range(READERS)]
        for number in range(MESSAGES):
            stage.owner.publish("t", b"%d" % number)
        stage.until(lambda: subscription._inner.waiting_count + len(stage.reader._tap) == 0)
        stage.reader.close()
        seen = [future.result(WITHIN_S) for future in reading]
    for numbers in seen:
        assert numbers == sorted(numbers)
    assert sorted(number for numbers in seen for number in numbers) == list(range(MESSAGES))


def test_a_burst_wakes_as_many_threads_as_it_has_messages(stage: ThreadSpots) -> None:
    stage.reader.subscribe("t")
    met = threading.Barrier(4)

    def read() -> bytes:
        message = stage.reader.recv(WITHIN_S)
        met.wait(WITHIN_S)  # Nobody reads a second one before all have one.
        return message.payload

    with ThreadPoolExecutor(4) as pool:
        reading = [pool.submit(read) for _ in range(4)]
        stage.until_waiting(4)
        stage.post(b"0", b"1", b"2", b"3")
        assert sorted(future.result(WITHIN_S) for future in reading) == [b"0", b"1", b"2", b"3"]


def test_threads_that_give_up_again_and_again_lose_no_message(stage: ThreadSpots) -> None:
    stage.reader.subscribe("t")
    found: list[int] = []
    ended = threading.Event()

    def read(number: int) -> None:
        while not ended.is_set():
            try:
                found.append(int(stage.reader.recv((number % 4) * 0.0003).payload))
            except TimedOut:
                continue
            if len(found) == MESSAGES:
                ended.set()

    with ThreadPoolExecutor(READERS) as pool:
        reading = [pool.submit(read, number) for number in range(READERS)]
        for number in range(MESSAGES):
            stage.owner.publish("t", b"%d" % number)
        assert ended.wait(WITHIN_S)
        assert not wait(reading, WITHIN_S).not_done
    assert sorted(found) == list(range(MESSAGES))
    stage.until(lambda: stage.reader._tap._task is None)


def test_one_look_takes_a_bounded_number(stage: ThreadSpots) -> None:
    subscription = stage.reader.subscribe("t")
    stage.post(*[b"%d" % number for number in range(LOOK_COUNT_MAX * 3)])
    assert stage.reader.recv(WITHIN_S).payload == b"0"
    assert subscription._inner.waiting_count == LOOK_COUNT_MAX * 2
    assert len(stage.reader._tap) == LOOK_COUNT_MAX - 1


def test_recv_all_gives_what_was_taken_and_what_came_since(stage: ThreadSpots) -> None:
    stage.reader.subscribe("t")
    stage.post(b"0", b"1", b"2")
    assert stage.reader.recv(WITHIN_S).payload == b"0"
    stage.post(b"3", b"4")
    assert payloads(stage.reader.recv_all(WITHIN_S)) == [b"1", b"2", b"3", b"4"]


def test_recv_all_has_no_bound_but_the_inbox(stage: ThreadSpots) -> None:
    stage.reader.subscribe("t")
    numbers = [b"%d" % number for number in range(LOOK_COUNT_MAX * 3)]
    stage.post(*numbers)
    assert payloads(stage.reader.recv_all(WITHIN_S)) == numbers
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(stage.reader.recv_all, WITHIN_S)
        stage.until_waiting(1)
        stage.post(*numbers)
        assert payloads(reading.result(WITHIN_S)) == numbers
    # It is over: the next look is bounded again.
    stage.post(*numbers)
    stage.reader.recv(WITHIN_S)
    assert len(stage.reader._tap) == LOOK_COUNT_MAX - 1


@pytest.mark.parametrize("is_from_the_spot", [True, False])
def test_where_only_the_latest_counts_nothing_grows_old_on_the_way(
    stage: ThreadSpots, is_from_the_spot: bool
) -> None:
    stage.owner.create_topic("u")
    subscription = stage.reader.subscribe_pattern("*", when_slow=WhenSlow.KEEP_LATEST)
    source = stage.reader if is_from_the_spot else subscription
    stage.post(b"t1")
    stage.post(b"u1", topic="u")
    assert source.recv(WITHIN_S).payload == b"t1"
    stage.post(b"u2", topic="u")
    assert source.recv(WITHIN_S).payload == b"u2"
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(source.recv, WITHIN_S)
        stage.until(lambda: source._tap._task is not None)

        def post_both() -> None:
            stage.owner._inner.post("t", b"t2")
            stage.owner._inner.post("u", b"u3")

        stage.loop.inside(post_both)
        assert reading.result(WITHIN_S).payload == b"t2"
    stage.post(b"u4", topic="u")
    assert source.recv_nowait().payload == b"u4"
    stage.post(b"t5")
    stage.post(b"u5", topic="u")
    assert payloads(source.recv_all(WITHIN_S)) == [b"t5", b"u5"]


def test_not_waiting_is_told_from_waiting_too_long(stage: ThreadSpots) -> None:
    subscription = stage.reader.subscribe("t")
    for source in (stage.reader, subscription):
        with pytest.raises(WouldBlock):
            source.recv_nowait()
        for timeout in (0.01, 0, -1):
            with pytest.raises(TimedOut, match=f"no message after {timeout} s"):
                source.recv(timeout)
            with pytest.raises(TimedOut):
                source.recv_all(timeout)
        stage.post(b"0", b"1", b"2")
        assert source.recv(0).payload == b"0"
        assert source.recv_nowait().payload == b"1"
        assert payloads(source.recv_all(0)) == [b"2"]
    assert stage.reader._tap._task is None


class InterruptedLock:
    """What the thread waits on; it is interrupted there when `then` returns."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._is_held:
            self._then()
            raise KeyboardInterrupt
        self._is_held = True
        return True

    def release(self) -> None:
        pass


@pytest.mark.parametrize("timeout", [None, WITHIN_S])
def test_an_interrupt_leaves_nothing_behind(
    stage: ThreadSpots, monkeypatch: pytest.MonkeyPatch, timeout: float | None
) -> None:
    stage.reader.subscribe("t")
    lock = InterruptedLock(lambda: stage.until_waiting(1))
    monkeypatch.setattr(threads, "allocate_lock", lambda: lock)
    with pytest.raises(KeyboardInterrupt):
        stage.reader.recv(timeout)
    monkeypatch.undo()
    assert not stage.reader._tap._line
    stage.until(lambda: stage.reader._tap._task is None)
    waiters = stage.reader._inner._waiters
    assert waiters is not None
    assert len(waiters) == 0
    stage.post(b"0", b"1")
    assert payloads(stage.reader.recv_all(WITHIN_S)) == [b"0", b"1"]


@pytest.mark.parametrize("timeout", [None, WITHIN_S])
def test_an_interrupt_that_comes_just_before_the_wait_ends_it_all_the_same(
    stage: ThreadSpots, timeout: float | None
) -> None:
    stage.reader.subscribe("t")
    begun_at = monotonic()
    with interrupted_after(lambda: stage.until_waiting(1), wakes=False):
        stage.reader.recv(timeout)
    assert monotonic() - begun_at < WITHIN_S


def test_an_interrupt_as_the_message_comes_loses_nothing(
    stage: ThreadSpots, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.reader.subscribe("t")

    def message_comes() -> None:
        stage.until_waiting(1)
        stage.post(b"0", b"1")
        stage.until(lambda: len(stage.reader._tap) == 2)

    lock = InterruptedLock(message_comes)
    monkeypatch.setattr(threads, "allocate_lock", lambda: lock)
    with pytest.raises(KeyboardInterrupt):
        stage.reader.recv()
    monkeypatch.undo()
    assert payloads(stage.reader.recv_all(WITHIN_S)) == [b"0", b"1"]


def test_one_thread_that_leaves_does_not_end_the_wait_of_another(stage: ThreadSpots) -> None:
    stage.reader.subscribe("t")
    with ThreadPoolExecutor(2) as pool:
        staying = pool.submit(stage.reader.recv, WITHIN_S)
        leaving = pool.submit(stage.reader.recv, 0.02)
        assert isinstance(leaving.exception(WITHIN_S), TimedOut)
        stage.until_waiting(1)
        stage.post(b"0")
        assert staying.result(WITHIN_S).payload == b"0"


def test_who_comes_while_the_loop_is_told_to_rest_is_served(stage: ThreadSpots) -> None:
    stage.reader.subscribe("t")
    tap = stage.reader._tap
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(stage.reader.recv, WITHIN_S)
        stage.until_waiting(1)

        def leave_and_return() -> None:
            waiter = tap._line.popleft()
            tap._rest()  # The task is cancelled and has not ended.
            tap._line.append(waiter)
            tap.run()

        stage.loop.inside(leave_and_return)
        stage.until_waiting(1)
        stage.post(b"0")
        assert first.result(WITHIN_S).payload == b"0"


def test_a_wake_up_that_is_not_used_goes_to_the_next(stage: ThreadSpots) -> None:
    tap = stage.reader._tap
    first, second = threading.Lock(), threading.Lock()
    for waiter in (first, second):
        waiter.acquire()
    tap._line.extend([first, second])
    tap._put([TopicMessage("t", b"0")])
    assert first.acquire(blocking=False)
    tap._leave(first)
    assert second.acquire(blocking=False)


def test_a_subscription_is_read_by_itself_beside_the_others(stage: ThreadSpots) -> None:
    stage.owner.create_topic("u")
    one, other = stage.reader.subscribe("t"), stage.reader.subscribe("u")
    stage.post(b"t0", b"t1")
    stage.post(b"u0", topic="u")
    assert other.recv(WITHIN_S).payload == b"u0"
    assert one.waiting_count == 2
    assert one.recv(WITHIN_S).payload == b"t0"
    assert one.waiting_count == 1
    stage.post(b"u1", topic="u")
    assert payloads(one.recv_all(WITHIN_S)) == [b"t1"]
    assert stage.reader.recv(WITHIN_S).payload == b"u1"


def test_what_was_taken_of_a_topic_is_dropped_when_it_is_unsubscribed(stage: ThreadSpots) -> None:
    for topic in ("u", "zone:1"):
        stage.owner.create_topic(topic)
    subscription = stage.reader.subscribe("t")
    stage.reader.subscribe("u")
    stage.reader.subscribe("zone:*")
    stage.post(b"t0")
    stage.post(b"t1")
    stage.post(b"u0", topic="u")
    stage.post(b"z0", topic="zone:1")
    assert stage.reader.recv(WITHIN_S).payload == b"t0"
    subscription.close()
    assert payloads(stage.reader.recv_all(WITHIN_S)) == [b"u0", b"z0"]
    with pytest.raises(AlreadyClosed, match="was unsubscribed"):
        subscription.recv(WITHIN_S)


def test_what_was_taken_of_a_subscription_is_dropped_with_it(stage: ThreadSpots) -> None:
    subscription = stage.reader.subscribe("t")
    stage.post(b"0", b"1", b"2")
    assert subscription.recv(WITHIN_S).payload == b"0"
    stage.reader.unsubscribe("t")
    for read in (subscription.recv, subscription.recv_nowait, subscription.recv_all):
        with pytest.raises(AlreadyClosed, match="was unsubscribed"):
            read()


def test_a_failure_of_the_source_reaches_who_waits(
    stage: ThreadSpots, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(spot: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("hansa.topics.spot.Spot.recv_nowait", fail)
    with pytest.raises(Exception, match=r"recv failed: ZeroDivisionError\('oh'\)"):
        stage.reader.recv(WITHIN_S)
    assert stage.owner.owned == ("t",)  # The loop goes on.
