"""The blocks of what a thread owns."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import pytest

from hansa import sync
from hansa.coordination import Handover
from hansa.errors import LockLost, TimedOut, UsageError
from hansa.limits import FAREWELL_STORE_S_MAX
from hansa.sync.ownership import Ownership


def owned(
    session: sync.Session, check: Callable[[], None], give_back: Callable[[], Coroutine[Any, Any, bool]]
) -> Ownership:
    async def hand_over(*arguments: object, **settings: object) -> Handover:
        raise AssertionError("nobody hands it over")

    return Ownership(session, check, give_back, lambda thread, step: None, hand_over)


def test_a_loss_of_another_owner_is_not_held_up_by_a_store_that_does_not_answer() -> None:
    ends: list[str] = []

    async def give_back() -> bool:
        try:
            return await asyncio.Event().wait()
        finally:
            ends.append("given up")

    with sync.open_store("memory://farewell") as store, sync.Session(store) as session:
        begun_at = monotonic()
        with pytest.raises(LockLost, match="of another"), owned(session, lambda: None, give_back):
            raise LockLost("the lock of another session")
        assert monotonic() - begun_at < FAREWELL_STORE_S_MAX
    assert ends == ["given up"]


def test_what_was_lost_is_given_back_and_told_when_the_block_is_left() -> None:
    given_back: list[bool] = []
    checks = iter([None, LockLost("nightly is lost")])

    def check() -> None:
        if (loss := next(checks)) is not None:
            raise loss

    async def give_back() -> bool:
        given_back.append(True)
        return False

    with sync.open_store("memory://loss") as store, sync.Session(store) as session:
        with pytest.raises(LockLost, match="nightly"), owned(session, check, give_back):
            assert given_back == []
        assert given_back == [True]


def test_a_thread_that_would_wait_for_itself_is_told_so() -> None:
    with sync.open_store("memory://itself") as store, sync.Session(store) as session:
        with sync.Lock(session, "dock"):
            with (
                pytest.raises(UsageError, match="lock 'dock': this thread is inside already, and might wait"),
                sync.Lock(session, "dock"),
            ):
                pass
            with pytest.raises(UsageError, match="might wait for itself"):
                sync.Lock(session, "dock").acquire()
            # Who has a limit to its patience waits, and who asks for another lock has it.
            with pytest.raises(TimedOut):
                sync.Lock(session, "dock").acquire(timeout=0.05)
            with sync.Lock(session, "other").acquire(), sync.Semaphore(session, "dock", 1):
                pass
        with sync.Lock(session, "dock").acquire(), pytest.raises(UsageError, match="lock 'dock'"):
            sync.Lock(session, "dock").acquire()
        with (
            sync.Election(session, "harbour").campaign(),
            pytest.raises(UsageError, match="leadership of 'harbour'"),
        ):
            sync.Election(session, "harbour").win()
        with sync.Election(session, "harbour").win(), pytest.raises(UsageError, match="this thread"):
            sync.Election(session, "harbour").win()
        with sync.Lock(session, "dock"):
            pass
        assert not session._inner.inside


def test_a_thread_may_have_as_many_places_as_there_are() -> None:
    with (
        sync.open_store("memory://places") as store,
        sync.Session(store) as session,
        ThreadPoolExecutor(1) as pool,
    ):
        with sync.Semaphore(session, "berths", 2), sync.Semaphore(session, "berths", 2):
            with pytest.raises(UsageError, match="semaphore 'berths'"):
                sync.Semaphore(session, "berths", 2).acquire()
            # Another thread waits for one of them.
            other = pool.submit(sync.Semaphore(session, "berths", 2).acquire)
            while not sync.Semaphore(session, "berths", 2).waiting():
                assert not other.done()
        assert other.result(10.0).release()


def test_a_block_that_another_thread_leaves_is_that_of_the_one_that_entered_it() -> None:
    with (
        sync.open_store("memory://left") as store,
        sync.Session(store) as session,
        ThreadPoolExecutor(1) as pool,
    ):
        hold = sync.Lock(session, "dock").acquire().__enter__()
        pool.submit(hold.__exit__, None, None, None).result(10.0)
        with sync.Lock(session, "dock"):
            pass
        assert not session._inner.inside
