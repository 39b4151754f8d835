"""A barrier: nobody passes before all have come, round after round, whoever dies."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from hansa.chance import Chance
from hansa.coordination.barrier import Barrier
from hansa.coordination.line import Permit, decode_permit
from hansa.coordination.session import Session
from hansa.errors import BadArgument, SessionLost, StoreUnavailable, TimedOut
from hansa.store.values import EventKind
from tests.support.virtual_store import TroubledStore, virtual


@pytest.mark.spec("CRD-15")
@virtual
async def test_all_pass_together_when_the_last_has_come(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        barrier = Barrier(session, "tide", 3)
        waiting = [asyncio.ensure_future(barrier.wait()) for _ in range(2)]
        await asyncio.sleep(5.0)
        assert not any(waiter.done() for waiter in waiting)
        assert await barrier.waiting_count() == 2
        generation = await barrier.wait()
        assert [await waiter for waiter in waiting] == [generation, generation]
        await asyncio.sleep(1.0)
        assert await store.keys() == []


@pytest.mark.spec("CRD-15")
def test_rounds_do_not_mix_though_some_leave_late() -> None:
    async def live(store: TroubledStore) -> None:
        parties, rounds = 5, 12
        passed: list[list[int]] = [[] for _ in range(parties)]
        chance = Chance.seeded(store.seed)

        async def party(number: int) -> None:
            async with Session(store, ttl=60.0) as session:
                barrier = Barrier(session, "tide", parties)
                for step in range(rounds):
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                    assert min(map(len, passed)) >= step - 1
                    generation = await barrier.wait()
                    # Nobody is let through before all have come for this round.
                    passed[number].append(generation)

        async with asyncio.TaskGroup() as tasks:
            for number in range(parties):
                tasks.create_task(party(number))
        assert passed[0] == sorted(set(passed[0]))
        assert all(each == passed[0] for each in passed)

    virtual(live, seeds=range(10))()


@pytest.mark.spec("CRD-15")
def test_whatever_befalls_parties_and_store_it_opens_for_the_right_number_and_once() -> None:
    virtual(_rough_life, seeds=range(30))()


async def _rough_life(store: TroubledStore) -> None:
    """Parties that give up, are cancelled, die, and lose their sessions, at a store that loses answers."""
    chance = Chance.seeded(store.seed).fork("rough life")
    parties = 2 + chance.below(4)
    prefix = b"/hansa/default/barriers/tide/"
    opened: dict[int, list[bytes]] = {}
    passed: dict[int, list[int]] = {}

    async def look_on() -> None:
        async for batch in store.watch(prefix, start_revision=1):
            for event in batch.events:
                if event.kind is EventKind.PUT and decode_permit(event.item.value).is_inside:
                    opened.setdefault(batch.revision, []).append(event.item.key)

    async def die() -> None:
        for _ in range(3):
            await asyncio.sleep(chance.uniform(0.0, 20.0))
            with suppress(StoreUnavailable, TimedOut):
                lease = await store.grant(chance.uniform(1.0, 6.0))
                key = prefix + b"%016x-1" % lease
                await store.put(key, Permit(count=parties).encode(), lease=lease)

    async def trouble() -> None:
        for _ in range(12):
            await asyncio.sleep(chance.uniform(0.0, 4.0))
            lost_count = 1 + chance.below(3)
            kind = chance.choose(("answers", "requests", "pause"))
            if kind == "answers":
                store.lost_answers_count += lost_count
            elif kind == "requests":
                store.lost_requests_count += lost_count
            else:
                store.pause()
                await asyncio.sleep(chance.uniform(0.1, 8.0))
                store.resume()

    async def come(number: int, session: Session) -> None:
        barrier = Barrier(session, "tide", parties)
        for _ in range(5):
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            timeout_s = chance.choose((chance.uniform(0.0, 3.0), 40.0))
            try:
                if chance.flip(0.5):
                    generation = await barrier.wait(timeout=timeout_s)
                else:
                    async with asyncio.timeout(timeout_s):
                        generation = await barrier.wait()
            except (TimedOut, TimeoutError):
                continue
            passed.setdefault(generation, []).append(number)

    async def party(number: int) -> None:
        for _ in range(4):
            with suppress(SessionLost, StoreUnavailable, TimedOut):
                async with Session(store, ttl=4.0) as session:
                    await come(number, session)

    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(look_on())
        async with asyncio.TaskGroup() as lives:
            for life in (die(), trouble(), *map(party, range(parties + chance.below(4)))):
                lives.create_task(life)
        store.lost_answers_count = store.lost_requests_count = 0
        # What was given up goes with its lease at the latest, and then it works as on the first day.
        await asyncio.sleep(10.0)
        assert await store.keys() == []
        async with Session(store) as session, asyncio.TaskGroup() as lives:
            last = [lives.create_task(Barrier(session, "tide", parties).wait(5.0)) for _ in range(parties)]
        assert len({task.result() for task in last}) == 1
        await asyncio.sleep(1.0)
        looking.cancel()
    for keys in opened.values():
        assert len(set(keys)) == len(keys) == parties
    for generation, numbers in passed.items():
        assert generation in opened
        assert len(set(numbers)) == len(numbers) <= parties


@virtual
async def test_more_than_enough_pass_in_the_order_in_which_they_came(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        store.pause()
        waiting = [asyncio.ensure_future(Barrier(session, "tide", 3).wait()) for _ in range(7)]
        await asyncio.sleep(1.0)
        store.resume()
        await asyncio.sleep(10.0)
        done = Counter(waiter.result() for waiter in waiting if waiter.done())
        assert sorted(done.values()) == [3, 3]
        assert await Barrier(session, "tide", 3).waiting_count() == 1
        for waiter in waiting:
            waiter.cancel()
        await asyncio.wait(waiting)


@pytest.mark.spec("CRD-15")
@virtual
async def test_a_party_that_dies_before_it_opens_is_not_counted(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        barrier = Barrier(session, "tide", 3)
        lease = await store.grant(10.0)
        value = Permit(count=3).encode()
        await store.put(session.keys.barrier("tide") + b"%016x-1" % lease, value, lease=lease)
        first = asyncio.ensure_future(barrier.wait())
        await asyncio.sleep(11.0)
        second = asyncio.ensure_future(barrier.wait())
        await asyncio.sleep(5.0)
        assert not first.done()
        assert not second.done()
        await barrier.wait()
        assert await first == await second


@virtual
async def test_one_that_dies_between_the_count_and_the_opening_is_not_counted(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        barrier = Barrier(session, "tide", 2)
        ghost = session.keys.barrier("tide") + b"ghost"
        await store.put(ghost, Permit(count=2).encode())
        commit, is_first = store.commit, True

        async def dies_just_before(compares, then=(), otherwise=(), **options):  # type: ignore[no-untyped-def]
            nonlocal is_first
            if len(compares) == 2 and is_first:
                is_first = False
                await store.delete(ghost)
            return await commit(compares, then, otherwise, **options)

        store.commit = dies_just_before  # type: ignore[method-assign]
        first = asyncio.ensure_future(barrier.wait())
        await asyncio.sleep(5.0)
        assert not is_first
        assert not first.done()
        second = await barrier.wait()
        assert await first == second


@virtual
async def test_who_gives_up_or_is_cancelled_is_not_counted(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        barrier = Barrier(session, "tide", 2)
        with pytest.raises(TimedOut, match="tide"):
            await barrier.wait(timeout=1.0)
        for turns_count in range(8):
            task = asyncio.ensure_future(barrier.wait())
            for _ in range(turns_count):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        await asyncio.sleep(20.0)
        assert await barrier.waiting_count() == 0


@virtual
async def test_lost_answers_open_it_once(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        barrier = Barrier(session, "tide", 2)
        for lose in ("lost_answers_count", "lost_requests_count"):
            first = asyncio.ensure_future(barrier.wait())
            await asyncio.sleep(0.1)
            setattr(store, lose, 3)
            second = await barrier.wait()
            assert await first == second
            await asyncio.sleep(1.0)


@virtual
async def test_one_whose_key_is_deleted_comes_again(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        barrier = Barrier(session, "tide", 2)
        first = asyncio.ensure_future(barrier.wait())
        await asyncio.sleep(0.1)
        assert await store.delete_prefix(session.keys.barrier("tide")) == 1
        await asyncio.sleep(0.1)
        assert await barrier.waiting_count() == 1
        assert await barrier.wait() == await first


@virtual
async def test_a_lost_session_ends_the_wait(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        barrier = Barrier(session, "tide", 2)
        store.pause()
        with pytest.raises(SessionLost):
            await barrier.wait()
        store.resume()
    with pytest.raises(SessionLost):
        await barrier.wait()


@virtual
async def test_numbers_that_disagree_or_cannot_be_are_refused(store: TroubledStore) -> None:
    async with Session(store, ttl=60.0) as session:
        first = asyncio.ensure_future(Barrier(session, "tide", 2).wait())
        await asyncio.sleep(0.1)
        with pytest.raises(BadArgument, match="2 parties, here by 3"):
            await Barrier(session, "tide", 3).wait()
        await Barrier(session, "tide", 2).wait()
        await first
        for parties in (0, 101):
            with pytest.raises(BadArgument):
                Barrier(session, "tide", parties)
        assert await Barrier(session, "alone", 1).wait() > 0
        full = Barrier(session, "full", 100)
        async with asyncio.TaskGroup() as tasks:
            passed = [tasks.create_task(full.wait()) for _ in range(100)]
        assert len({task.result() for task in passed}) == 1
