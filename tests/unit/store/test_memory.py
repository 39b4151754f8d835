"""The memory store's own ways: its loop, its timers, its watches. The rest is in tests/conformance."""

import asyncio
import gc

import pytest

from hansa.chance import Chance
from hansa.clock import ManualClock
from hansa.errors import AlreadyClosed, BadEndpoint, UsageError
from hansa.store.memory import MemoryStore
from hansa.store.opening import open_store
from hansa.testing.host import SimClock
from hansa.testing.loop import SimLoop
from hansa.transport import Environment


async def test_a_store_that_is_not_open_says_how_to_open_it() -> None:
    with pytest.raises(UsageError, match="async with"):
        await MemoryStore().get("k")


async def test_a_store_belongs_to_one_loop() -> None:
    async with MemoryStore(name="docks") as store:

        async def elsewhere() -> None:
            with pytest.raises(UsageError, match="docks belongs to the event loop of another thread"):
                await store.get("k")
            with pytest.raises(UsageError):
                store.watch("k")

        await asyncio.to_thread(asyncio.run, elsewhere())
        await store.put("k", b"")


async def test_the_last_to_leave_closes_it() -> None:
    store = MemoryStore()
    async with store:
        async with store:
            await store.put("k", b"")
        assert not store.is_closed
        assert await store.get("k") is not None
    assert store.is_closed
    with pytest.raises(AlreadyClosed):
        async with store:
            pass


async def test_nothing_is_left_behind_when_it_closes() -> None:
    loop = asyncio.get_running_loop()
    async with MemoryStore() as store:
        await store.grant(60.0)
        assert [timer for timer in loop._scheduled if not timer.cancelled()] != []  # type: ignore[attr-defined]
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []  # type: ignore[attr-defined]


async def test_a_lease_that_is_still_kept_is_kept_no_more_when_it_closes() -> None:
    async with MemoryStore() as store:
        before = asyncio.all_tasks()
        store.keep(
            await store.grant(60.0),
            ttl=60.0,
            granted_s=store.clock.monotonic(),
            interval=20.0,
            loop_silence_s_max=60.0,
            on_change=lambda: None,
        )
        assert len(asyncio.all_tasks()) == len(before) + 1
        await asyncio.sleep(0)
    # It is not waited for, and ends at once.
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


async def test_a_watch_that_is_thrown_away_costs_nothing_more() -> None:
    async with MemoryStore() as store:
        watches = [store.watch("k"), store.watch("k")]
        assert (len(store._engine._watchers), len(store._readers)) == (2, 2)
        watches.pop()
        gc.collect()
        await store.put("k", b"")
        assert (len(store._engine._watchers), len(store._readers)) == (1, 1)
        assert (await anext(watches[0])).revision == 2


async def test_a_paused_store_tells_its_watches_nothing_until_it_answers_again() -> None:
    clock = ManualClock()
    async with MemoryStore(environment=Environment(clock=clock)) as store:
        await store.put("k", b"", lease=await store.grant(10.0))
        watch, closed = store.watch("k"), store.watch("k")
        store.pause()
        clock.advance(10.0)
        store._expire()
        steps = [asyncio.ensure_future(anext(each, None)) for each in (watch, closed)]
        assert (await asyncio.wait(steps, timeout=0.01))[0] == set()
        closed.close()
        assert await steps[1] is None
        assert not steps[0].done()
        store.resume()
        batch = await steps[0]
        assert batch is not None
        assert batch.revision == 3
        watch.close()


def test_leases_expire_in_virtual_time_at_their_deadline() -> None:
    loop = SimLoop(Chance.seeded(3))

    async def live() -> list[float]:
        async with MemoryStore(
            environment=Environment(clock=SimClock(loop), chance=Chance.seeded(4))
        ) as store:
            began_s, expired_s = loop.time(), []
            for ttl_s in (3_600.0, 1.5, 0.1):
                await store.put(f"k/{ttl_s}", b"", lease=await store.grant(ttl_s))
            kept = await store.grant(2.0)
            await store.put("kept", b"", lease=kept)
            watch = store.watch("k/")
            await asyncio.sleep(1.0)
            await store.keep_alive(kept)
            for _ in range(3):
                batch = await anext(watch)
                assert len(batch.events) == 1
                expired_s.append(loop.time() - began_s)
            watch.close()
            return expired_s

    try:
        times = loop.run_until_complete(live())
    finally:
        loop.close()
    assert times == pytest.approx([1.0, 1.5, 3_600.0])


async def test_a_given_clock_decides_when_a_lease_is_over() -> None:
    clock = ManualClock()
    async with MemoryStore(environment=Environment(clock=clock)) as store:
        lease = await store.grant(10.0)
        await store.put("k", b"", lease=lease)
        watch = store.watch("k")
        clock.advance(9.0)
        assert await store.get("k") is not None
        clock.advance(1.0)
        assert await store.get("k") is None
        assert len((await anext(watch)).events) == 1
        watch.close()


async def test_one_name_is_one_store_until_it_is_closed() -> None:
    first = open_store("memory://docks")
    assert open_store("memory://docks") is first
    assert open_store("memory://yard") is not first
    async with first, open_store("memory://docks") as second:
        await first.put("k", b"")
        assert await second.get("k") is not None
    third = open_store("memory://docks")
    assert third is not first
    async with third:
        assert await third.get("k") is None


@pytest.mark.parametrize("address", ["memory", "memory://", "memory://a b", "mysql://host", "://x", ""])
def test_an_address_that_stands_for_no_store_says_what_to_write(address: str) -> None:
    with pytest.raises(BadEndpoint, match="memory://name"):
        open_store(address)
