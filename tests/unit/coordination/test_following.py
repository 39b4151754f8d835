"""Following a prefix: what a reader is told, through all that a watch suffers."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from hansa.chance import Chance
from hansa.coordination.following import Changed, Copy, Following, Snapshot
from hansa.errors import AlreadyClosed, BadArgument, HansaError
from hansa.store.memory import MemoryStore
from hansa.store.values import Delete, Put, Scan
from hansa.testing.host import SimClock
from hansa.testing.loop import SimLoop
from hansa.transport import Environment

STEP_S_MAX = 5.0


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    async with MemoryStore() as store:
        yield store


async def step(following: Following) -> Snapshot | Changed:
    async with asyncio.timeout(STEP_S_MAX):
        return await anext(following)


def puts(news: Snapshot | Changed) -> dict[bytes, bytes]:
    assert isinstance(news, Changed)
    return {item.key: item.value for item in news.puts}


def deletes(news: Snapshot | Changed) -> list[bytes]:
    assert isinstance(news, Changed)
    return [item.key for item in news.deletes]


async def test_first_all_that_is_there_then_each_change(store: MemoryStore) -> None:
    await store.put("k/a", b"1")
    await store.put("other", b"1")
    following = Following(store, "k/")
    assert not following.is_current
    first = await step(following)
    assert isinstance(first, Snapshot)
    assert (first.revision, {key: item.value for key, item in first.items.items()}) == (3, {b"k/a": b"1"})
    assert following.is_current
    await store.commit([], [Put("k/b", b"2"), Put("k/c", b"3"), Delete("k/a")])
    await store.put("other", b"2")
    await store.put("k/b", b"4")
    both = await step(following)
    assert puts(both) == {b"k/b": b"2", b"k/c": b"3"}
    assert isinstance(both, Changed)
    assert [(item.key, item.value) for item in both.deletes] == [(b"k/a", b"1")]
    assert not both.is_after_gap
    assert puts(await step(following)) == {b"k/b": b"4"}
    assert {key: item.value for key, item in following.items.items()} == {b"k/b": b"4", b"k/c": b"3"}
    # The snapshot is of then, the items are of now.
    assert list(first.items) == [b"k/a"]
    following.close()


async def test_one_key_is_followed_without_its_longer_neighbours(store: MemoryStore) -> None:
    following = Following(store, "k", exact=True)
    first = await step(following)
    assert isinstance(first, Snapshot)
    assert not first.items
    await store.put("kk", b"")
    await store.put("k", b"1")
    assert puts(await step(following)) == {b"k": b"1"}
    following.close()


@pytest.mark.spec("CRD-03")
async def test_after_a_compaction_the_difference_is_told_once(store: MemoryStore) -> None:
    for name in ("k/same", "k/changed", "k/gone", "k/anew"):
        await store.put(name, b"1")
    following = Following(store, "k/")
    first = await step(following)
    lose_watch(following)
    await store.put("k/changed", b"2")
    await store.delete("k/gone")
    await store.delete("k/anew")
    await store.put("k/anew", b"1")
    await store.put("k/new", b"1")
    await store.put("k/brief", b"1")
    await store.delete("k/brief")
    last = await store.put("k/changed", b"3")
    news = await step(following)
    assert isinstance(news, Changed)
    assert news.is_after_gap
    assert news.revision == last
    assert puts(news) == {b"k/anew": b"1", b"k/new": b"1", b"k/changed": b"3"}
    assert [item.key for item in news.puts] == [b"k/anew", b"k/new", b"k/changed"]
    # Deleted and created again is both.
    assert sorted(deletes(news)) == [b"k/anew", b"k/gone"]
    assert isinstance(first, Snapshot)
    assert {item.create_revision for item in news.deletes} == {
        first.items[key].create_revision for key in (b"k/anew", b"k/gone")
    }
    await store.put("k/new", b"2")
    assert puts(await step(following)) == {b"k/new": b"2"}
    following.close()


def lose_watch(following: Following) -> None:
    """As if the history that the watch should read had been forgotten."""
    watch = following._watch
    assert watch is not None
    watch.close()


async def test_a_real_compaction_is_overcome(store: MemoryStore) -> None:
    await store.put("k/a", b"1")
    troubles: list[HansaError] = []
    following = Following(
        store, "k/", on_trouble=troubles.append, environment=Environment(chance=Chance.seeded(1))
    )
    await step(following)
    watch = following._watch
    assert watch is not None
    # A watch that is as far behind as no reader of a quiet test can be.
    behind = store.watch("k/", start_revision=2)
    following._watch = behind
    watch.close()
    revision = await store.put("k/a", b"2")
    await store.compact(revision)
    assert puts(await step(following)) == {b"k/a": b"2"}
    assert [error.code for error in troubles] == ["compacted"]
    assert (following.troubles_count, following.reads_count) == (1, 2)
    following.close()


async def test_a_slow_reader_that_was_overrun_gets_the_difference(store: MemoryStore) -> None:
    store._engine._watchers._count_max = 3
    following = Following(store, "k/")
    await step(following)
    for number in range(10):
        await store.put("k/a", b"%d" % number)
    news = await step(following)
    # What was kept is told, or not: the last is what counts.
    while b"9" not in puts(news).values():
        news = await step(following)
    assert isinstance(news, Changed)
    assert news.is_after_gap
    assert following.troubles_count == 1
    following.close()


def test_a_store_that_is_away_is_waited_for_with_growing_pauses() -> None:
    loop = SimLoop(Chance.seeded(1))

    async def scene() -> None:
        async with MemoryStore(
            environment=Environment(clock=SimClock(loop), chance=Chance.seeded(2))
        ) as store:
            store.pause()
            tries_s: list[float] = []
            following = Following(
                store,
                "k/",
                timeout=1.0,
                environment=Environment(chance=Chance.seeded(3)),
                on_trouble=lambda error: tries_s.append(loop.time()),
            )
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(anext(following))
                await asyncio.sleep(60)
                store.resume()
                assert isinstance(await reading, Snapshot)
            pauses_s = [later - before - 1.0 for before, later in pairwise(tries_s)]
            assert 15 < len(tries_s) < 30
            assert pauses_s[0] < 0.07
            assert pauses_s[-1] > 1.5
            assert max(pauses_s) <= 2.0 * 1.2
            assert len({round(pause_s, 6) for pause_s in pauses_s[-5:]}) == 5
            following.close()

    try:
        loop.run_until_complete(scene())
    finally:
        loop.close()


async def test_cancelling_a_step_takes_nothing_out(store: MemoryStore) -> None:
    following = Following(store, "k/")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(following)
    assert isinstance(await step(following), Snapshot)
    for number in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await anext(following)
        await store.put("k/a", b"%d" % number)
        assert puts(await step(following)) == {b"k/a": b"%d" % number}
    following.close()


async def test_it_ends_when_it_is_closed_and_fails_when_the_store_is(store: MemoryStore) -> None:
    following = Following(store, "k/")
    await step(following)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(anext(following, None))
        await asyncio.sleep(0)
        following.close()
    assert reading.result() is None
    assert [news async for news in following] == []
    async with MemoryStore() as other:
        lost = Following(other, "k/")
        await step(lost)
    with pytest.raises(AlreadyClosed):
        await step(lost)
    with pytest.raises(BadArgument):
        Following(store, "", exact=True)


async def test_closing_ends_a_pause(store: MemoryStore) -> None:
    following = Following(store, "k/", environment=Environment(chance=Chance.seeded(1)))
    following._pause_s = 3_600.0
    async with asyncio.timeout(STEP_S_MAX), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(anext(following, None))
        await asyncio.sleep(0)
        following.close()
    assert reading.result() is None


async def test_what_is_known_already_is_not_told_again(store: MemoryStore) -> None:
    copy = Copy()
    await store.put("k/a", b"1")
    await store.put("k/a", b"2")
    copy.read(await store.scan("k/"))
    watch = store.watch("k/", start_revision=2)
    assert [copy.apply(await anext(watch)) for _ in range(2)] == [None, None]
    assert copy.read(await store.scan("k/")) is None
    await store.put("k/b", b"")
    await store.delete("k/b")
    assert isinstance(copy.apply(await anext(watch)), Changed)
    assert isinstance(copy.apply(await anext(watch)), Changed)
    # A store that was restored from an older state is believed.
    older = Scan(revision=2, items=(), count=0, more=False)
    news = copy.read(older)
    assert isinstance(news, Changed)
    assert deletes(news) == [b"k/a"]
    assert copy.revision == 2
    watch.close()
