"""A lock when things go wrong: stores away, lost answers, keys deleted, cancellation anywhere."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from hansa.coordination.barrier import Barrier
from hansa.coordination.election import Election
from hansa.coordination.lock import Hold, Lock, Semaphore
from hansa.coordination.session import Session
from hansa.errors import LockLost, SessionLost, StoreUnavailable, TimedOut
from tests.support.virtual_store import TroubledStore, virtual


@pytest.mark.spec("CRD-09")
@virtual
async def test_the_holder_stops_by_itself_before_another_can_begin(store: TroubledStore) -> None:
    events: list[tuple[str, float]] = []

    async def hold_on(session: Session) -> None:
        with pytest.raises(LockLost, match="could not renew") as caught:
            async with Lock(session, "dock") as hold:
                try:
                    await asyncio.Event().wait()
                finally:
                    assert not hold.is_held
                    events.append(("stopped", store.now))
        assert isinstance(caught.value.__cause__, SessionLost)

    async with Session(store, ttl=10.0) as first, Session(store, ttl=60.0) as second:
        holder = asyncio.ensure_future(hold_on(first))
        await asyncio.sleep(5.0)
        deadline_s = first.deadline_s
        waiter = asyncio.ensure_future(Lock(second, "dock").acquire())
        await asyncio.sleep(0.1)
        store.pause()
        await holder
        store.resume()
        hold = await waiter
        events.append(("began", store.now))
        assert [what for what, _ in events] == ["stopped", "began"]
        assert events[0][1] == pytest.approx(deadline_s)
        assert events[1][1] >= deadline_s + first.margin_s - 1e-6
        assert hold.is_held


@virtual
async def test_a_holder_asks_the_clock_and_needs_no_loop(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        lock = Lock(session, "dock")
        hold = await lock.acquire()
        store.process_stops(9.0)
        assert not hold.is_held
        with pytest.raises(LockLost, match="stuck"):
            hold.check()
        assert not await hold.release()


@virtual
async def test_a_store_that_comes_back_in_time_costs_the_holder_nothing(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session, Lock(session, "dock") as hold:
        for _ in range(5):
            store.pause()
            await asyncio.sleep(5.0)
            store.resume()
            await asyncio.sleep(5.0)
            assert hold.is_held
            await hold.refresh()


@virtual
async def test_a_body_that_ran_past_the_deadline_without_a_pause_is_told_at_its_end(
    store: TroubledStore,
) -> None:
    async with Session(store, ttl=10.0) as session:
        with pytest.raises(LockLost):
            async with Lock(session, "dock"):
                store.process_stops(20.0)


@pytest.mark.spec("CRD-10")
@pytest.mark.parametrize(
    "acquire",
    [
        lambda session: Lock(session, "dock").acquire(),
        lambda session: Lock(session, "dock").try_acquire(),
        lambda session: Semaphore(session, "dock", 2).acquire(),
        lambda session: Semaphore(session, "dock", 2).try_acquire(),
        lambda session: Election(session, "dock").win(),
        lambda session: Barrier(session, "dock", 1).wait(),
    ],
)
def test_what_is_won_after_the_deadline_is_not_given(acquire: Callable[[Session], Awaitable[Any]]) -> None:
    """The store said yes, and the process was stopped before it read that."""

    async def live(store: TroubledStore) -> None:
        async with Session(store, ttl=10.0) as session:
            store.stops_after_commit_s = 9.5
            with pytest.raises(SessionLost, match="stuck"):
                await acquire(session)
            assert not session.is_live

    virtual(live)()


@pytest.mark.spec("CRD-09")
@virtual
async def test_a_key_that_somebody_deleted_is_a_lost_lock(store: TroubledStore) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        with pytest.raises(LockLost, match="somebody deleted the key"):
            async with lock as hold:
                await store.delete(hold.guard.key)
                await asyncio.Event().wait()
        hold = await lock.acquire()
        await store.delete(hold.guard.key)
        assert "somebody deleted" in str(await hold.lost())
        assert not hold.is_held
        assert not await hold.release()
        assert session.is_live
        assert lock.stats.lost_count == 2
        # The lock itself works on.
        async with lock:
            pass


@virtual
async def test_who_is_taken_out_of_the_line_is_told_and_the_one_behind_goes_on(
    store: TroubledStore,
) -> None:
    async with Session(store) as session:
        first = await Lock(session, "dock").acquire()
        second = asyncio.ensure_future(Lock(session, "dock").acquire())
        await asyncio.sleep(0.1)
        third = asyncio.ensure_future(Lock(session, "dock").acquire())
        await asyncio.sleep(0.1)
        line = await store.scan("")
        created = sorted(item.create_revision for item in line.items)
        key = next(item.key for item in line.items if item.create_revision == created[1])
        await store.delete(key)
        with pytest.raises(LockLost, match="somebody deleted"):
            await second
        await asyncio.sleep(1.0)
        assert not third.done()
        await first.release()
        assert (await third).is_held


@virtual
async def test_a_waiter_whose_session_is_lost_is_told_so(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as first, Session(store, ttl=10.0) as second:
        await Lock(first, "dock").acquire()
        waiter = asyncio.ensure_future(Lock(second, "dock").acquire())
        await asyncio.sleep(0.1)
        await store.revoke(second.lease)
        with pytest.raises((SessionLost, LockLost)):
            await waiter
        assert len(await store.keys()) == 1


@virtual
async def test_an_orphan_goes_with_its_lease(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        lease = await store.grant(10.0)
        await store.put(session.keys.lock("dock") + b"%016x-1" % lease, b"", lease=lease)
        lock = Lock(session, "dock")
        await lock.acquire()
        assert store.now == pytest.approx(1_010.0)
        assert lock.stats.waited_s == pytest.approx(10.0)


@pytest.mark.spec("CRD-11")
@virtual
async def test_a_lost_answer_to_entering_does_not_enter_twice(store: TroubledStore) -> None:
    async with Session(store) as session:
        store.lost_answers_count = 2
        hold = await Lock(session, "dock").acquire()
        assert hold.is_held
        assert await lines(store) == [hold.guard.key]
        store.lost_requests_count = 2
        waiter = asyncio.ensure_future(Lock(session, "dock").acquire())
        await asyncio.sleep(5.0)
        assert len(await store.keys()) == 2
        store.lost_answers_count = 1
        await hold.release()
        assert (await waiter).is_held


@virtual
async def test_trying_tells_of_a_lost_answer_and_tidies_up(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        lock = Lock(session, "dock")
        for lose in ("lost_answers_count", "lost_requests_count"):
            setattr(store, lose, 1)
            with pytest.raises(TimedOut):
                await lock.try_acquire()
            await asyncio.sleep(15.0)
            assert await lines(store) == []
        assert await lock.try_acquire() is not None


@pytest.mark.parametrize("gives_up", [False, True])
def test_entering_that_is_carried_out_late_finds_that_all_is_over(gives_up: bool) -> None:
    async def live(store: TroubledStore) -> None:
        async with Session(store, ttl=60.0) as session:
            lock = Lock(session, "dock")
            commit = store.commit
            sent: list[tuple[Any, Any]] = []

            async def keeps_the_first(
                compares: Any, then: Any = (), otherwise: Any = (), **options: Any
            ) -> Any:
                if sent:
                    return await commit(compares, then, otherwise, **options)
                sent.append((compares, then))
                raise TimedOut("it waits in the network")

            store.commit = keeps_the_first  # type: ignore[method-assign]
            if gives_up:
                with pytest.raises(TimedOut):
                    await lock.try_acquire()
            else:
                await (await lock.acquire()).release()
            await asyncio.sleep(1.0)
            assert not (await commit(*sent[0])).is_success
            assert (await lock.acquire(timeout=1.0)).is_held

    virtual(live)()


@virtual
async def test_a_release_that_the_store_does_not_hear_goes_on_in_the_background(
    store: TroubledStore,
) -> None:
    async with Session(store, ttl=30.0) as session:
        hold = await Lock(session, "dock").acquire()
        store.pause()
        began_s = store.now
        await hold.release()
        assert store.now - began_s <= 2.0 + 1e-6
        assert not hold.is_held
        await asyncio.sleep(5.0)
        store.resume()
        await asyncio.sleep(5.0)
        assert await lines(store) == []


@virtual
async def test_acquiring_waits_for_a_store_that_is_away_until_its_own_time_is_over(
    store: TroubledStore,
) -> None:
    async with Session(store, ttl=60.0) as session:
        lock = Lock(session, "dock")
        store.pause()
        began_s = store.now
        with pytest.raises(TimedOut):
            await lock.acquire(timeout=12.0)
        assert store.now - began_s == pytest.approx(12.0)
        waiter = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(12.0)
        store.resume()
        hold = await waiter
        assert hold.is_held
        assert await lines(store) == [hold.guard.key]


@virtual
async def test_acquiring_ends_with_the_session_however_long_the_store_is_away(
    store: TroubledStore,
) -> None:
    async with Session(store, ttl=10.0) as session:
        store.pause()
        with pytest.raises(SessionLost, match="could not renew"):
            await Lock(session, "dock").acquire()
        assert store.now == pytest.approx(1_009.0)


@virtual
async def test_a_compaction_makes_nobody_miss_its_turn(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        hold = await Lock(session, "dock").acquire()
        waiter = asyncio.ensure_future(Lock(session, "dock").acquire())
        await asyncio.sleep(0.1)
        # Nobody is told while the store is paused; then the history that they would read is gone.
        for watcher in list(store._readers):
            store._engine._watchers._end(watcher, StoreUnavailable("the connection was lost"))
            store._readers[watcher].wake_all()
        await hold.release()
        await store.put("x", b"")
        await store.compact((await store.status()).revision)
        next_hold = await waiter
        assert next_hold.is_held
        for watcher in list(store._readers):
            store._engine._watchers._end(watcher, StoreUnavailable("the connection was lost"))
            store._readers[watcher].wake_all()
        await asyncio.sleep(5.0)
        assert next_hold.is_held
        await store.delete(next_hold.guard.key)
        await next_hold.lost()


async def lines(store: TroubledStore) -> list[bytes]:
    """All keys but those that say that an entry is over."""
    return [key for key in await store.keys() if b"/left/" not in key]


async def _acquire(lock: Lock) -> Hold | None:
    return await lock.acquire()


async def _acquire_in_time(lock: Lock) -> Hold | None:
    return await lock.acquire(timeout=30.0)


async def _try(lock: Lock) -> Hold | None:
    return await lock.try_acquire()


async def _block(lock: Lock) -> Hold | None:
    async with lock:
        await asyncio.sleep(0)
    return None


@pytest.mark.parametrize("attempt", [_acquire, _acquire_in_time, _try, _block])
@pytest.mark.parametrize("is_contended", [False, True])
def test_cancelling_anywhere_leaves_no_key_behind(
    attempt: Callable[[Lock], Awaitable[Hold | None]], is_contended: bool
) -> None:
    async def live(store: TroubledStore) -> None:
        ends = set()
        async with Session(store, ttl=60.0) as session:
            for turns_count in range(25):
                other = await Lock(session, "dock").acquire() if is_contended else None
                task = asyncio.ensure_future(attempt(Lock(session, "dock")))
                for turn in range(turns_count):
                    if other is not None and turn == 8:
                        await other.release()
                        other = None
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                ends.add(task.cancelled())
                if not task.cancelled() and (hold := task.result()) is not None:
                    assert hold.is_held
                    await hold.release()
                if other is not None:
                    await other.release()
                await asyncio.sleep(20.0)
                assert await lines(store) == []
        assert ends == {True, False}

    virtual(live, seeds=(1, 2, 3))()


@virtual
async def test_cancelling_a_release_does_not_undo_it(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        hold = await Lock(session, "dock").acquire()
        store.pause()
        task = asyncio.ensure_future(hold.release())
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not hold.is_held
        store.resume()
        await asyncio.sleep(1.0)
        assert await lines(store) == []


@virtual
async def test_losing_the_lock_cancels_the_tasks_of_the_body_too(store: TroubledStore) -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with Session(store, ttl=10.0) as session:
        with pytest.raises(LockLost):
            async with Lock(session, "dock"), Lock(session, "other"), asyncio.TaskGroup() as tasks:
                tasks.create_task(work("a"))
                tasks.create_task(work("b"))
                await asyncio.sleep(0)
                store.pause()
        assert sorted(ended) == ["a", "b"]
        store.resume()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(1.0)


@virtual
async def test_what_was_given_back_is_not_lost_later(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        lock = Lock(session, "dock")
        hold = await lock.acquire()
        waiting = asyncio.ensure_future(hold.lost())
        await hold.release()
        session.end_lost("for the test")
        await asyncio.sleep(1.0)
        assert not waiting.done()
        assert lock.stats.lost_count == 0
        waiting.cancel()


@virtual
async def test_a_key_that_went_with_its_lease_was_not_deleted_by_somebody(store: TroubledStore) -> None:
    """The store tells of the key before anybody here has looked at the clock."""
    async with Session(store, ttl=10.0) as session:
        hold = await Lock(session, "dock").acquire()
        store.process_stops(20.0)
        await store.get("whatever")
        assert "was stuck for" in str(await hold.lost())


@virtual
async def test_who_cannot_enter_because_the_lease_is_gone_tells_the_whole_session(
    store: TroubledStore,
) -> None:
    async with Session(store, ttl=10.0) as session:
        await store.revoke(session.lease)
        with pytest.raises(SessionLost):
            await Lock(session, "dock").acquire()
        assert not session.is_live
        assert "the store ended the lease" in str(session.loss.error)


@virtual
async def test_a_refresh_says_that_the_key_was_deleted_meanwhile(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        hold = await Lock(session, "dock").acquire()
        store.answers_late_s = 1.0
        refreshing = asyncio.ensure_future(hold.refresh())
        await asyncio.sleep(0.1)
        await store.delete(hold.guard.key)
        with pytest.raises(LockLost, match="somebody deleted"):
            await refreshing
        assert session.is_live
