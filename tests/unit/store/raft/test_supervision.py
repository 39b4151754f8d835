"""When a member's process is started again, and when it is given up."""

import pytest

from hansa.chance import Chance
from hansa.errors import InvariantBroken
from hansa.limits import RAFT_CRASHES_MAX
from hansa.runtime.backoff import Backoff
from hansa.store.raft.supervision import Kill, Launch, ProcessState, Report, Supervision, Terminate


@pytest.fixture
def supervision() -> Supervision:
    backoff = Backoff(s_min=1.0, s_max=8.0, jitter=0.2, chance=Chance.seeded(1))
    return Supervision(backoff, stable_s=30.0, stop_s_max=10.0)


def crash(supervision: Supervision, now: float) -> float:
    """Let it end, wait, and start again; gives the pause."""
    supervision.exited(now=now)
    assert supervision.deadline is not None
    pause_s = supervision.deadline - now
    assert supervision.tick(now=supervision.deadline - 0.001) == []
    assert supervision.tick(now=supervision.deadline) == [Launch()]
    return pause_s


def test_it_is_started_once(supervision: Supervision) -> None:
    assert supervision.start() == [Launch()]
    with pytest.raises(InvariantBroken):
        supervision.start()


def test_pauses_between_starts_grow_to_their_bound_and_are_moved_by_chance(supervision: Supervision) -> None:
    supervision.start()
    supervision.ready(now=0.0)
    pauses = [crash(supervision, 0.0) for _ in range(6)]
    for pause_s, planned_s in zip(pauses, [1, 2, 4, 8, 8, 8], strict=True):
        assert planned_s * 0.8 <= pause_s <= planned_s * 1.2
        assert pause_s != planned_s
    assert supervision.restarts_count == 6


def test_one_that_ran_for_long_starts_again_soon(supervision: Supervision) -> None:
    supervision.start()
    for _ in range(3):
        supervision.ready(now=0.0)
        crash(supervision, 1.0)
    supervision.ready(now=100.0)
    assert crash(supervision, 130.0) <= 1.2
    assert supervision.crashes_count == 1


def test_one_that_was_never_ready_is_given_up_and_reported(supervision: Supervision) -> None:
    supervision.start()
    for _ in range(RAFT_CRASHES_MAX - 1):
        crash(supervision, 0.0)
    assert supervision.exited(now=0.0) == [Report(crashes_count=RAFT_CRASHES_MAX, is_final=True)]
    assert supervision.state is ProcessState.ENDED
    assert supervision.deadline is None


def test_one_that_was_ready_once_is_reported_and_tried_for_ever(supervision: Supervision) -> None:
    supervision.start()
    supervision.ready(now=0.0)
    for _ in range(RAFT_CRASHES_MAX - 1):
        crash(supervision, 0.0)
    assert supervision.exited(now=0.0) == [Report(crashes_count=RAFT_CRASHES_MAX, is_final=False)]
    assert supervision.state is ProcessState.RESTING
    assert supervision.tick(now=100.0) == [Launch()]


def test_stopping_asks_first_and_kills_at_the_deadline(supervision: Supervision) -> None:
    supervision.start()
    assert supervision.stop(now=5.0) == [Terminate()]
    assert supervision.tick(now=14.9) == []
    assert supervision.tick(now=15.0) == [Kill()]
    assert supervision.tick(now=16.0) == []
    assert supervision.exited(now=16.0) == []
    assert supervision.state is ProcessState.ENDED


def test_asking_to_stop_twice_is_asking_once(supervision: Supervision) -> None:
    supervision.start()
    supervision.stop(now=0.0)
    assert supervision.stop(now=9.0) == []
    assert supervision.tick(now=10.0) == [Kill()]


def test_one_that_rests_is_not_started_after_it_was_stopped(supervision: Supervision) -> None:
    supervision.start()
    supervision.exited(now=0.0)
    assert supervision.stop(now=0.1) == []
    assert supervision.state is ProcessState.ENDED
    assert supervision.tick(now=100.0) == []


def test_one_that_ends_when_asked_is_not_started_again(supervision: Supervision) -> None:
    supervision.start()
    supervision.stop(now=0.0)
    supervision.exited(now=0.1)
    assert supervision.tick(now=100.0) == []
    assert supervision.crashes_count == 0
