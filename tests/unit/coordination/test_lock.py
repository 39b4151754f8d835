"""A lock among those who behave: order, fences, giving back."""

import asyncio

import pytest

from hansa.coordination.lock import Hold, Lock
from hansa.coordination.session import Session
from hansa.errors import BadArgument, NotHeld, SessionLost, TimedOut, UsageError
from hansa.store.values import Put
from tests.support.virtual_store import TroubledStore, virtual


@pytest.mark.spec("CRD-09")
@virtual
async def test_one_holds_and_the_next_comes_after_it(store: TroubledStore) -> None:
    async with Session(store) as first, Session(store) as second:
        hold = await Lock(first, "dock", note=b"cog").acquire()
        assert hold.is_held
        waiter = asyncio.ensure_future(Lock(second, "dock", note=b"hulk").acquire())
        await asyncio.sleep(60.0)
        assert not waiter.done()
        lock = Lock(second, "dock")
        holder = await lock.holder()
        assert holder is not None
        assert (holder.lease, holder.fence, holder.note) == (first.lease, hold.fence, b"cog")
        assert [each.note for each in await lock.waiting()] == [b"hulk"]
        await hold.release()
        assert not hold.is_held
        next_hold = await waiter
        assert next_hold.is_held
        assert next_hold.fence > hold.fence
        await next_hold.release()
        assert await lock.holder() is None
        assert await store.keys() == []


@virtual
async def test_locks_of_one_session_and_of_one_object_exclude_each_other(store: TroubledStore) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        hold = await lock.acquire()
        for other in (lock, Lock(session, "dock")):
            assert await other.try_acquire() is None
            with pytest.raises(TimedOut):
                await other.acquire(timeout=1.0)
        assert await Lock(session, "other").try_acquire() is not None
        async with Session(store, cluster="elsewhere") as elsewhere:
            assert await Lock(elsewhere, "dock").try_acquire() is not None
        await hold.release()
        assert await lock.try_acquire() is not None


@pytest.mark.spec("CRD-09")
@virtual
async def test_fifty_get_it_in_the_order_in_which_they_came(store: TroubledStore) -> None:
    count = 50
    order: list[int] = []
    fences: list[int] = []
    inside = 0

    async def contend(number: int) -> None:
        nonlocal inside
        async with Session(store, ttl=60.0) as session:
            await asyncio.sleep(number * 0.1)
            async with Lock(session, "dock") as hold:
                inside += 1
                assert inside == 1
                order.append(number)
                fences.append(hold.fence)
                await asyncio.sleep(7.0)
                inside -= 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            tasks.create_task(contend(number))
    assert order == list(range(count))
    assert fences == sorted(fences)


@virtual
async def test_a_hand_over_wakes_one_waiter_and_not_all(store: TroubledStore) -> None:
    count = 50
    async with Session(store, ttl=60.0) as session:
        first = await Lock(session, "dock").acquire()
        waiting = []
        for _ in range(count):
            waiting.append(asyncio.ensure_future(Lock(session, "dock").acquire()))
            await asyncio.sleep(0.1)
        store.counts.clear()
        read_before = store.events_given_count
        holds = [first]
        for waiter in waiting:
            await holds[-1].release()
            holds.append(await waiter)
        # One read and one delete per hand-over; each delete is told to the one behind, and to nobody else
        # but, at most, the one who deleted it.
        assert store.counts["scan"] == count
        assert store.counts["commit"] == count
        assert store.counts["watch exact"] == store.counts["watch prefix"] == 0
        assert store.events_given_count - read_before <= 2 * count
        await holds[-1].release()


@pytest.mark.spec("CRD-09")
@virtual
async def test_trying_does_not_wait_and_leaves_no_trace(store: TroubledStore) -> None:
    async with Session(store) as first, Session(store) as second:
        began_s = store.now
        hold = await Lock(first, "dock").try_acquire()
        assert hold is not None
        lock = Lock(second, "dock")
        assert await lock.try_acquire() is None
        assert store.now == began_s
        assert len(await store.keys()) == 1
        await hold.release()
        hold = await lock.try_acquire()
        assert hold is not None
        assert lock.stats.acquired_count == 1


@virtual
async def test_who_times_out_leaves_the_line(store: TroubledStore) -> None:
    async with Session(store) as session:
        hold = await Lock(session, "dock").acquire()
        lock = Lock(session, "dock")
        behind = asyncio.ensure_future(Lock(session, "dock").acquire())
        with pytest.raises(TimedOut, match=r"dock.*2\.5 s"):
            await lock.acquire(timeout=2.5)
        await asyncio.sleep(0.1)
        assert len(await store.keys()) == 2
        assert lock.stats.timed_out_count == 1
        await hold.release()
        await (await behind).release()


@pytest.mark.spec("CRD-09")
@virtual
async def test_only_the_owner_releases_and_once_is_enough(store: TroubledStore) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        hold = await lock.acquire()
        await hold.release()
        other = await lock.acquire()
        await hold.release()
        assert other.is_held
        with pytest.raises(NotHeld):
            hold.check()
        with pytest.raises(NotHeld):
            await hold.refresh()
        with pytest.raises(NotHeld):
            async with hold:
                pass
        other.check()
        assert "owned" in repr(other)
        assert "given back" in repr(hold)


@virtual
async def test_a_late_release_does_not_delete_a_key_that_was_made_anew(store: TroubledStore) -> None:
    async with Session(store) as session:
        hold = await Lock(session, "dock").acquire()
        key = hold.guard.key
        hold._claim._leave()
        await store.delete(key)
        await store.put(key, b"somebody else's")
        await hold._claim._delete(1.0)
        assert await store.get(key) is not None


@virtual
async def test_the_guard_holds_in_a_transaction_as_long_as_the_lock_does(store: TroubledStore) -> None:
    async with Session(store) as session:
        hold = await Lock(session, "dock").acquire()
        assert (await store.commit([hold.guard], then=[Put("k", b"1")])).is_success
        await hold.release()
        assert not (await store.commit([hold.guard], then=[Put("k", b"2")])).is_success


@virtual
async def test_blocks_give_back_whatever_happens_in_them(store: TroubledStore) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        async with lock as hold:
            assert hold.is_held
        assert not hold.is_held
        with pytest.raises(ZeroDivisionError):
            async with lock:
                raise ZeroDivisionError
        async with await lock.acquire() as hold:
            assert hold.is_held
        async with lock as hold:
            await hold.release()
        task = asyncio.ensure_future(_stay_in(lock))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.keys() == []
        assert lock.stats.acquired_count == 5


async def _stay_in(lock: Lock) -> None:
    async with lock:
        await asyncio.Event().wait()


@virtual
async def test_a_task_that_would_wait_for_itself_is_told(store: TroubledStore) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        async with lock as hold:
            with pytest.raises(UsageError, match="wait for itself"):
                async with lock:
                    pass
            with pytest.raises(UsageError, match="once"):
                async with hold:
                    pass
            assert hold.is_held
            task = asyncio.ensure_future(_stay_in(lock))
            await asyncio.sleep(1.0)
        await asyncio.sleep(1.0)
        assert len(await store.keys()) == 1
        task.cancel()
        await asyncio.wait([task])
        with pytest.raises(UsageError):
            await lock.__aexit__(None, None, None)


@virtual
async def test_a_lock_needs_a_live_session_and_a_name(store: TroubledStore) -> None:
    session = Session(store)
    with pytest.raises(UsageError, match="not open"):
        await Lock(session, "dock").acquire()
    async with session:
        with pytest.raises(BadArgument):
            Lock(session, "a/b")
    for wait in (Lock(session, "dock").acquire, Lock(session, "dock").try_acquire):
        with pytest.raises(SessionLost, match="was left"):
            await wait()


@virtual
async def test_leaving_the_session_ends_all_that_hangs_on_it(store: TroubledStore) -> None:
    before = asyncio.all_tasks()
    async with Session(store) as session:
        hold = await Lock(session, "dock").acquire()
        waiter: asyncio.Future[Hold] = asyncio.ensure_future(Lock(session, "dock").acquire())
        await asyncio.sleep(1.0)
    assert not hold.is_held
    with pytest.raises(SessionLost, match="was left"):
        await waiter
    assert await store.keys() == []
    assert asyncio.all_tasks() == before


@virtual
async def test_the_wait_is_counted(store: TroubledStore) -> None:
    async with Session(store) as session:
        lock = Lock(session, "dock")
        hold = await lock.acquire()
        waiter = asyncio.ensure_future(lock.acquire())
        await asyncio.sleep(3.0)
        await hold.release()
        await (await waiter).release()
        stats = lock.stats
        assert (stats.acquired_count, stats.lost_count, stats.timed_out_count) == (2, 0, 0)
        assert stats.waited_s == pytest.approx(3.0)
        assert stats.waited_s_max == pytest.approx(3.0)
