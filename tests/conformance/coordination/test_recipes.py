"""Locks, elections, semaphores, barriers and fences, the same on every engine, in real time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from hansa.coordination import following
from hansa.coordination.barrier import Barrier
from hansa.coordination.election import Election, LeaderInfo
from hansa.coordination.fencing import FencedKey
from hansa.coordination.lock import Lock, Semaphore
from hansa.coordination.session import Session
from hansa.errors import LeadershipLost, LockLost, StaleFence, TimedOut
from hansa.keys import Keys
from hansa.store.store import Store

WAIT_S_MAX = 20.0


@pytest.mark.spec("CRD-09")
async def test_a_lock_is_handed_on_in_order_with_growing_fences(store: Store, other_store: Store) -> None:
    order: list[int] = []
    fences: list[int] = []
    inside = 0
    entered = asyncio.Event()

    async def contend(session: Session, number: int) -> None:
        nonlocal inside
        async with Lock(session, "dock") as hold:
            inside += 1
            assert inside == 1
            order.append(number)
            fences.append(hold.fence)
            await entered.wait()
            inside -= 1

    async with Session(store) as first, Session(other_store) as second, asyncio.timeout(WAIT_S_MAX):
        lock = Lock(first, "dock")
        async with asyncio.TaskGroup() as tasks:
            for number in range(10):
                tasks.create_task(contend((first, second)[number % 2], number))
                while len(await lock.waiting()) < number or await lock.holder() is None:
                    await asyncio.sleep(0.01)
            entered.set()
        assert await lock.holder() is None
    assert order == list(range(10))
    assert fences == sorted(set(fences))
    assert (await store.scan(Keys().prefix)).count == 0


@pytest.mark.spec("CRD-09")
async def test_trying_and_timing_out_leave_the_line(store: Store, other_store: Store) -> None:
    async with Session(store) as first, Session(other_store) as second, asyncio.timeout(WAIT_S_MAX):
        hold = await Lock(first, "dock").acquire()
        lock = Lock(second, "dock")
        assert await lock.try_acquire() is None
        with pytest.raises(TimedOut):
            await lock.acquire(timeout=0.1)
        waiter = asyncio.ensure_future(lock.acquire())
        while not await lock.waiting():
            await asyncio.sleep(0.01)
        waiter.cancel()
        while await lock.waiting():
            await asyncio.sleep(0.01)
        await hold.release()
        async with asyncio.timeout(5.0):
            other = await lock.try_acquire()
        assert other is not None
        assert other.fence > hold.fence


@pytest.mark.spec("CRD-09")
async def test_a_lock_of_one_that_dies_is_free_when_its_lease_is_over(
    store: Store, other_store: Store, ttl_s: float
) -> None:
    async with Session(store, ttl=ttl_s) as first, Session(other_store) as second:
        hold = await Lock(first, "dock").acquire()
        first._open_keeping().stop()  # As one that is killed: it renews no more and says nothing.
        async with asyncio.timeout(WAIT_S_MAX):
            next_hold = await Lock(second, "dock").acquire()
        assert not hold.is_held
        assert next_hold.fence > hold.fence


@pytest.mark.spec("CRD-09")
async def test_the_holder_stops_by_itself_before_the_store_gives_it_to_another(
    store: Store, other_store: Store, ttl_s: float, away: Callable[[bool], None]
) -> None:
    stopped_s = 0.0
    async with Session(store, ttl=ttl_s) as first, Session(other_store, ttl=30.0) as second:
        with pytest.raises(LockLost):
            async with Lock(first, "dock"):
                waiter = asyncio.ensure_future(Lock(second, "dock").acquire())
                while not await Lock(first, "dock").waiting():
                    await asyncio.sleep(0.01)
                deadline_s = first.deadline_s
                away(True)
                try:
                    async with asyncio.timeout(WAIT_S_MAX):
                        await asyncio.Event().wait()
                finally:
                    stopped_s = store.clock.monotonic()
        assert not waiter.done()
        assert deadline_s <= stopped_s < deadline_s + ttl_s / 3 + 0.5
        away(False)
        async with asyncio.timeout(WAIT_S_MAX):
            assert (await waiter).is_held


@pytest.mark.spec("CRD-11")
async def test_a_store_that_comes_back_in_time_costs_nothing(
    store: Store, away: Callable[[bool], None]
) -> None:
    async with Session(store, ttl=4.0, renew_interval=0.5) as session, Lock(session, "dock") as hold:
        away(True)
        while not session.failures_count:
            await asyncio.sleep(0.01)
        away(False)
        async with asyncio.timeout(WAIT_S_MAX):
            while session.failures_count:
                await asyncio.sleep(0.01)
        await hold.refresh()
        assert hold.is_held


async def test_a_key_that_somebody_deletes_is_a_lost_lock(store: Store, other_store: Store) -> None:
    async with Session(store) as session:
        with pytest.raises(LockLost, match="somebody deleted"):
            async with asyncio.timeout(WAIT_S_MAX), Lock(session, "dock") as hold:
                await other_store.delete(hold.guard.key)
                await asyncio.Event().wait()
        assert session.is_live


@pytest.mark.spec("CRD-09")
async def test_a_key_deleted_before_it_was_watched_is_told_as_soon_as_it_is(
    store: Store, other_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Later than any store answers.
    monkeypatch.setattr(following, "GUARD_DELAY_S", 1.0)
    async with Session(store) as session, asyncio.timeout(WAIT_S_MAX):
        hold = await Lock(session, "dock").acquire()
        assert await other_store.delete(hold.guard.key)
        assert hold.is_held
        hold.check()
        assert "somebody deleted" in str(await hold.lost())
        with pytest.raises(LockLost, match="somebody deleted"):
            hold.check()


async def test_a_compaction_makes_nobody_miss_its_turn(store: Store, other_store: Store) -> None:
    async with Session(store) as first, Session(other_store) as second, asyncio.timeout(WAIT_S_MAX):
        hold = await Lock(first, "dock").acquire()
        waiter = asyncio.ensure_future(Lock(second, "dock").acquire())
        while not await Lock(first, "dock").waiting():
            await asyncio.sleep(0.01)
        await store.compact(await store.put("elsewhere", b""))
        await hold.release()
        assert (await waiter).is_held


@pytest.mark.spec("CRD-15")
async def test_no_more_than_its_limit_hold_a_semaphore(store: Store, other_store: Store) -> None:
    inside = inside_max = done = 0
    three_are_in = asyncio.Event()

    async def contend(session: Session) -> None:
        nonlocal inside, inside_max, done
        async with Semaphore(session, "berths", 3):
            inside += 1
            inside_max = max(inside_max, inside)
            if inside == 3:
                three_are_in.set()
            await three_are_in.wait()
            await asyncio.sleep(0.01)
            inside -= 1
            done += 1

    async with (
        asyncio.timeout(WAIT_S_MAX),
        Session(store) as first,
        Session(other_store) as second,
        asyncio.TaskGroup() as tasks,
    ):
        for number in range(8):
            tasks.create_task(contend((first, second)[number % 2]))
    assert (done, inside_max) == (8, 3)


@pytest.mark.spec("CRD-15")
async def test_a_barrier_opens_for_all_round_after_round(store: Store, other_store: Store) -> None:
    passed: list[list[int]] = [[] for _ in range(4)]

    async def party(session: Session, mine: list[int]) -> None:
        barrier = Barrier(session, "tide", 4)
        for step in range(5):
            generation = await barrier.wait()
            mine.append(generation)
            assert min(map(len, passed)) >= step

    async with (
        asyncio.timeout(WAIT_S_MAX),
        Session(store) as first,
        Session(other_store) as second,
        asyncio.TaskGroup() as tasks,
    ):
        for number, mine in enumerate(passed):
            tasks.create_task(party((first, second)[number % 2], mine))
    assert passed[0] == sorted(set(passed[0]))
    assert all(mine == passed[0] for mine in passed)


@pytest.mark.spec("CRD-08", "CRD-16")
async def test_leaders_follow_each_other_and_observers_see_it(store: Store, other_store: Store) -> None:
    async with (
        Session(store, node="cog") as first,
        Session(other_store) as second,
        asyncio.timeout(WAIT_S_MAX),
    ):
        news = Election(second, "harbour").observe()
        assert await anext(news) is None
        began = store.clock.wall()
        async with Election(first, "harbour", value=b"a").campaign() as leadership:
            leader = await anext(news)
            assert leader is not None
            assert began - 1 <= leader.since <= store.clock.wall() + 1
            expected = LeaderInfo(
                term=leadership.term, value=b"a", lease=first.lease, node="cog", since=leader.since
            )
            assert leader == expected
            waiter = asyncio.ensure_future(Election(second, "harbour", value=b"b").win())
            await leadership.proclaim(b"c")
            assert await anext(news) == replace(expected, value=b"c")
        next_leadership = await waiter
        leader = await anext(news)
        while leader is None:
            leader = await anext(news)
        assert (leader.term, leader.value, leader.lease) == (next_leadership.term, b"b", second.lease)
        assert next_leadership.term > leadership.term
        await store.delete(next_leadership.guard.key)
        assert isinstance(await next_leadership.lost(), LeadershipLost)
        assert await anext(news) is None


@pytest.mark.spec("CRD-10")
async def test_no_acknowledged_update_under_a_fence_is_lost(store: Store, other_store: Store) -> None:
    acknowledged = refused = 0

    async def count_up(session: Session, where: Store) -> None:
        nonlocal acknowledged, refused
        counter = FencedKey(where, "counter")
        for _ in range(3):
            # No lock is waited for here: what counts is that an old fence cannot write.
            hold = await Semaphore(session, "writers", 4).acquire()
            try:
                value = int(await counter.take(hold.fence) or b"0")
                await counter.write(hold.fence, b"%d" % (value + 1))
                acknowledged += 1
            except StaleFence:
                refused += 1
            await hold.release()

    async with Session(store) as first, Session(other_store) as second, asyncio.timeout(WAIT_S_MAX):
        async with asyncio.TaskGroup() as tasks:
            for number in range(8):
                tasks.create_task(count_up((first, second)[number % 2], (store, other_store)[number % 2]))
        item = await store.get("counter")
    assert item is not None
    assert int(item.value) == acknowledged
    assert acknowledged + refused == 24
