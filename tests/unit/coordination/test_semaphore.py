"""A semaphore: so many at a time, in order, without a herd."""

import asyncio

import pytest

from hansa.coordination.line import Permit, decode_permit
from hansa.coordination.lock import Hold, Semaphore
from hansa.coordination.session import Session
from hansa.errors import BadArgument, BadRecord, LockLost, TimedOut, UsageError
from tests.support.virtual_store import TroubledStore, virtual


@pytest.mark.spec("CRD-15")
@virtual
async def test_no_more_than_its_limit_hold_it_and_all_get_it_in_order(store: TroubledStore) -> None:
    order: list[int] = []
    inside = inside_max = 0

    async def contend(number: int) -> None:
        nonlocal inside, inside_max
        async with Session(store, ttl=60.0) as session:
            await asyncio.sleep(number * 0.01)
            async with Semaphore(session, "berths", 3):
                order.append(number)
                inside += 1
                inside_max = max(inside_max, inside)
                await asyncio.sleep(1.0 + number % 4)
                inside -= 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(30):
            tasks.create_task(contend(number))
    assert inside_max == 3
    assert order == list(range(30))
    assert await store.keys() == []


@pytest.mark.spec("CRD-15")
@virtual
async def test_every_place_that_becomes_free_is_taken(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        semaphore = Semaphore(session, "berths", 3, note=b"cog")
        holds = [await semaphore.acquire() for _ in range(3)]
        waiting: list[asyncio.Future[Hold]] = []
        for _ in range(6):
            waiting.append(asyncio.ensure_future(semaphore.acquire()))
            await asyncio.sleep(0.1)
        assert await semaphore.try_acquire() is None
        assert len(await semaphore.holders()) == 3
        assert [info.note for info in await semaphore.waiting()] == [b"cog"] * 6
        # One who waits in the middle goes; then two holders at once, not the oldest first.
        waiting[1].cancel()
        await asyncio.sleep(0.1)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(holds[2].release())
            tasks.create_task(holds[1].release())
        await asyncio.sleep(1.0)
        assert [waiter.done() for waiter in waiting] == [True, True, True, False, False, False]
        await holds[0].release()
        await (await waiting[0]).release()
        await (await waiting[2]).release()
        await asyncio.sleep(1.0)
        assert all(waiter.done() for waiter in waiting)
        assert semaphore.stats.acquired_count == 8


@virtual
async def test_a_freed_place_wakes_a_few_and_not_all(store: TroubledStore) -> None:
    async with Session(store, ttl=600.0) as session:
        semaphore = Semaphore(session, "berths", 2)
        holds = [await semaphore.acquire(), await semaphore.acquire()]
        waiting = []
        for _ in range(40):
            waiting.append(asyncio.ensure_future(semaphore.acquire()))
            await asyncio.sleep(0.1)
        store.counts.clear()
        store.events_given_count = 0
        for waiter in waiting:
            await holds.pop(0).release()
            holds.append(await waiter)
            await asyncio.sleep(0.1)
        # Of each hand-over hear: who deleted its key, who is next, and who becomes next.
        assert store.events_given_count <= 6 * len(waiting)
        assert store.counts["scan"] <= 3 * len(waiting)


@virtual
async def test_two_limits_for_one_name_are_refused(store: TroubledStore) -> None:
    async with Session(store) as first, Session(store) as second:
        hold = await Semaphore(first, "berths", 2).acquire()
        other = Semaphore(second, "berths", 3)
        for attempt in (other.acquire, other.try_acquire):
            with pytest.raises(BadArgument, match="limit of 2, here with 3"):
                await attempt()
            assert await store.keys() == [hold.guard.key]
        await hold.release()
        async with other:
            pass


@virtual
async def test_a_holder_that_dies_makes_room(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        lease = await store.grant(10.0)
        value = Permit(count=2).encode()
        await store.put(session.keys.semaphore("berths") + b"%016x-1" % lease, value, lease=lease)
        semaphore = Semaphore(session, "berths", 2)
        async with await semaphore.acquire():
            assert await semaphore.try_acquire() is None
            async with await semaphore.acquire():
                assert store.now == pytest.approx(1_010.0)


@virtual
async def test_the_promotion_survives_lost_answers(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        semaphore = Semaphore(session, "berths", 1)
        wide = Semaphore(session, "quays", 2)
        holds = [await wide.acquire(), await wide.acquire()]
        waiting = []
        for _ in range(3):
            waiting.append(asyncio.ensure_future(wide.acquire()))
            await asyncio.sleep(0.1)
        await holds[0].release()
        store.lost_answers_count = 2
        assert (await waiting[0]).is_held
        await holds[1].release()
        store.lost_requests_count = 2
        assert (await waiting[1]).is_held
        with pytest.raises(TimedOut):
            async with semaphore:
                await semaphore.acquire(timeout=1.0)


@virtual
async def test_a_hold_that_somebody_deletes_is_lost(store: TroubledStore) -> None:
    async with Session(store) as session:
        semaphore = Semaphore(session, "berths", 2)
        with pytest.raises(LockLost, match="somebody deleted"):
            async with semaphore as hold:
                await store.delete(hold.guard.key)
                await asyncio.Event().wait()
        async with semaphore:
            with pytest.raises(UsageError):
                async with semaphore:
                    pass
        with pytest.raises(UsageError):
            await semaphore.__aexit__(None, None, None)


@virtual
async def test_limits_that_cannot_be_are_refused(store: TroubledStore) -> None:
    session = Session(store)
    for limit in (0, -1, 10_001):
        with pytest.raises(BadArgument, match="limit"):
            Semaphore(session, "berths", limit)


def test_permits_are_read_as_they_are_written() -> None:
    for permit in (Permit(count=1), Permit(count=10_000, is_inside=True, note=b"a b\n\0")):
        assert decode_permit(permit.encode()) == permit


@pytest.mark.parametrize(
    "value", [b"", b"3 waiting", b"x waiting\n", b"-3 waiting\n", b"3 sleeping\n", b"3\n"]
)
def test_a_value_that_hansa_did_not_write_is_refused(value: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_permit(value)


def test_a_count_that_is_too_long_is_refused() -> None:
    with pytest.raises(BadRecord):
        decode_permit(b"9" * 5_000 + b" waiting\n")
