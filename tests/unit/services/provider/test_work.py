"""What runs and what waits: the machine alone."""

import pytest

from hansa.errors import BadArgument
from hansa.limits import WAITING_SWEEP_S
from hansa.services.provider.work import BUSY, DRAINING, EXPIRED, START, WAIT, Handler, Request, Workload


async def think(request: Request) -> bytes:
    return b""


def block(request: Request) -> bytes:
    return b""


TASK, THREAD = Handler(0, think), Handler(1, block)


def asked(number: int = 0, *, peer: bytes = b"gate", deadline: float | None = None, size: int = 0) -> Request:
    return Request([bytes(size)], 0, number, peer, deadline)


def make(
    concurrency_max: int = 2, threads_max: int = 8, waiting_max: int = 3, bytes_max: int = 1_000
) -> Workload:
    return Workload(
        concurrency_max=concurrency_max,
        threads_max=threads_max,
        waiting_max=waiting_max,
        waiting_bytes_max=bytes_max,
    )


def started(work: Workload, now: float = 0.0) -> int | None:
    """The number of the request whose turn it is."""
    due = work.next_due(now)
    return None if due is None else due[0].request_id


@pytest.mark.spec("DIS-26")
def test_so_many_run_so_many_wait_and_the_rest_is_turned_away() -> None:
    work = make()
    verdicts = [work.offer(asked(number), TASK, 0.0) for number in range(7)]
    assert verdicts == [START, START, WAIT, WAIT, WAIT, BUSY, BUSY]
    assert (work.running_count, work.waiting_count, work.tally.busy_count) == (2, 3, 2)


@pytest.mark.spec("DIS-26")
def test_first_come_first_served() -> None:
    work = make(concurrency_max=1)
    for number in range(4):
        work.offer(asked(number), TASK, 0.0)
    turns = []
    while work.waiting_count:
        work.ended(TASK)
        turns.append(started(work))
    assert turns == [1, 2, 3]
    work.ended(TASK)
    assert started(work) is None
    assert (work.running_count, work.waiting_count) == (0, 0)


def test_nothing_is_due_while_everything_runs() -> None:
    work = make(concurrency_max=1)
    work.offer(asked(0), TASK, 0.0)
    work.offer(asked(1), TASK, 0.0)
    assert started(work) is None


@pytest.mark.spec("DIS-26")
def test_full_threads_do_not_hold_up_tasks() -> None:
    work = make(concurrency_max=3, threads_max=1, waiting_max=5)
    assert [work.offer(asked(n), THREAD, 0.0) for n in (0, 1)] == [START, WAIT]
    assert [work.offer(asked(n), TASK, 0.0) for n in (2, 3, 4)] == [START, START, WAIT]
    work.ended(TASK)
    assert started(work) == 4  # Though 1 is older: it needs a thread.
    work.ended(THREAD)
    assert started(work) == 1


def test_threads_and_tasks_share_the_slots_in_the_order_of_arrival() -> None:
    work = make(concurrency_max=1, threads_max=8, waiting_max=5)
    for number, handler in enumerate([TASK, THREAD, TASK, THREAD]):
        work.offer(asked(number), handler, 0.0)
    turns = []
    for handler in (TASK, THREAD, TASK):
        work.ended(handler)
        turns.append(started(work))
    assert turns == [1, 2, 3]


@pytest.mark.spec("DIS-26")
def test_work_whose_caller_has_given_up_is_never_started() -> None:
    work = make(concurrency_max=1)
    assert work.offer(asked(0, deadline=10.0), TASK, 10.0) == EXPIRED
    assert work.offer(asked(1), TASK, 10.0) == START
    assert work.offer(asked(2, deadline=11.0), TASK, 10.0) == WAIT
    assert work.offer(asked(3, deadline=99.0), TASK, 10.0) == WAIT
    work.ended(TASK)
    assert started(work, 11.0) == 3
    assert work.tally.expired_count == 2


def test_a_full_line_is_swept_of_what_has_expired_but_not_for_every_request() -> None:
    work = make(concurrency_max=1, waiting_max=2)
    for number in range(3):
        work.offer(asked(number, deadline=5.0 + number), TASK, 0.0)
    assert work.offer(asked(3), TASK, 1.0) == BUSY  # Nothing has expired yet.
    assert work.offer(asked(4), TASK, 6.0) == WAIT
    assert work.offer(asked(5), TASK, 7.0 - 1e-9) == BUSY
    assert work.offer(asked(6), TASK, 7.0 + WAITING_SWEEP_S / 2) == BUSY  # Swept a moment ago.
    assert work.offer(asked(7), TASK, 7.0 + WAITING_SWEEP_S) == WAIT
    assert (work.tally.expired_count, work.waiting_count) == (2, 2)


@pytest.mark.spec("DIS-26")
def test_work_whose_caller_has_left_is_never_started() -> None:
    work = make(concurrency_max=1)
    work.offer(asked(0, peer=b"a"), TASK, 0.0)
    for number, peer in enumerate([b"a", b"b", b"a"], 1):
        work.offer(asked(number, peer=peer), TASK, 0.0)
    work.peer_left(b"a")
    assert (work.waiting_count, work.tally.abandoned_count, work.running_count) == (1, 2, 1)
    work.ended(TASK)
    assert started(work) == 2


def test_what_waits_is_bounded_in_bytes_too() -> None:
    work = make(concurrency_max=1, waiting_max=100, bytes_max=1_000)
    work.offer(asked(0), TASK, 0.0)
    assert work.offer(asked(1, size=5_000), TASK, 0.0) == WAIT  # Alone it may be as large as a message.
    assert work.offer(asked(2), TASK, 0.0) == BUSY
    work.ended(TASK)
    assert started(work) == 1
    assert work.offer(asked(3, size=999), TASK, 0.0) == WAIT
    assert work.offer(asked(4, size=1), TASK, 0.0) == WAIT
    assert work.offer(asked(5), TASK, 0.0) == BUSY


@pytest.mark.spec("DIS-29")
def test_when_shut_nothing_new_comes_in_and_what_waits_goes_on() -> None:
    work = make(concurrency_max=1)
    work.offer(asked(0), TASK, 0.0)
    work.offer(asked(1), TASK, 0.0)
    work.shut()
    assert work.offer(asked(2), TASK, 0.0) == DRAINING
    work.ended(TASK)
    assert started(work) == 1


def test_giving_up_returns_what_waited_in_order() -> None:
    work = make(concurrency_max=1, waiting_max=5)
    for number, handler in enumerate([TASK, THREAD, TASK, THREAD]):
        work.offer(asked(number), handler, 0.0)
    assert [request.request_id for request in work.give_up()] == [1, 2, 3]
    assert (work.waiting_count, work.tally.draining_count) == (0, 3)
    work.ended(TASK)
    assert started(work) is None


@pytest.mark.parametrize("wrong", [{"concurrency_max": 0}, {"threads_max": 0}, {"waiting_max": -1}])
def test_work_that_could_never_run_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadArgument, match="must be able to run"):
        make(**wrong)


def test_no_waiting_at_all_is_possible() -> None:
    work = make(concurrency_max=1, waiting_max=0)
    assert [work.offer(asked(n), TASK, 0.0) for n in range(2)] == [START, BUSY]
