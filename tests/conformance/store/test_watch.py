"""Watches tell what changes, in order, once, without gap, on every engine."""

import asyncio
from collections.abc import Callable

import pytest

from hansa.errors import AlreadyClosed, BadArgument, Compacted, HansaError, WatchOverrun
from hansa.limits import STORE_TXN_COUNT_MAX, STORE_WATCH_COUNT_MAX
from hansa.store.store import Store, Watch
from hansa.store.values import Delete, EventKind, Put
from tests.conformance.store.engines import StoreEngine

pytestmark = pytest.mark.spec("CRD-01")


async def told(watch: Watch, count: int) -> list[tuple[int, list[bytes]]]:
    """The next batches: their revisions and keys."""
    batches = [await anext(watch) for _ in range(count)]
    return [(batch.revision, [event.item.key for event in batch.events]) for batch in batches]


async def test_a_watch_from_now_tells_what_comes_and_nothing_older(store: Store) -> None:
    revision = await store.put("a", b"old")
    watch = store.watch("a")
    assert await watch.ready() == revision + 1
    await store.put("b", b"")
    await store.put("a/1", b"new")
    await store.delete("a")
    first, second = await anext(watch), await anext(watch)
    assert (first.revision, first.events[0].kind, first.events[0].item.value) == (
        revision + 2,
        EventKind.PUT,
        b"new",
    )
    assert (second.revision, second.events[0].kind, second.events[0].item.key) == (
        revision + 3,
        EventKind.DELETE,
        b"a",
    )
    assert first.events[0].before is None
    watch.close()


async def test_a_watch_from_the_past_goes_on_into_the_present(store: Store) -> None:
    first = await store.put("k", b"")
    await store.put("k", b"")
    watch = store.watch("k", start_revision=first)
    assert await watch.ready() == first
    assert await told(watch, 1) == [(first, [b"k"])]
    await store.put("k", b"")
    assert await told(watch, 2) == [(first + 1, [b"k"]), (first + 2, [b"k"])]
    waiting = asyncio.ensure_future(told(watch, 1))
    await store.put("k", b"")
    assert await waiting == [(first + 3, [b"k"])]
    watch.close()


async def test_a_watch_is_resumed_after_its_last_batch_without_gap_or_repeat(store: Store) -> None:
    first = (await store.status()).revision + 1
    revisions: list[int] = []
    while len(revisions) < 12:
        watch = store.watch("k", start_revision=first + len(revisions))
        for _ in range(5):
            await store.put("k", b"")
        revisions += [revision for revision, _ in await told(watch, 3)]
        watch.close()
    assert revisions == list(range(first, first + 12))


@pytest.mark.spec("CRD-17")
async def test_a_watch_from_a_revision_that_the_store_never_had_says_so(store: Store) -> None:
    """Who comes from there has seen it in a history that was lost; waiting would make it deaf."""
    revision = await store.put("k", b"")
    for start in (revision + 2, revision + 1_000):
        watch = store.watch("k", start_revision=start)
        with pytest.raises(Compacted) as caught:
            await watch.ready()
        assert caught.value.compacted_revision == revision
        with pytest.raises(Compacted):
            await anext(watch)
        watch.close()
    again = store.watch("k", start_revision=caught.value.compacted_revision)
    assert await told(again, 1) == [(revision, [b"k"])]
    again.close()


async def test_all_changes_of_a_revision_come_in_one_batch(store: Store) -> None:
    await store.put("a/0", b"")
    watch, late_from = store.watch("a/"), (await store.status()).revision + 1
    await watch.ready()
    await store.commit((), [Put("a/2", b""), Put("b", b""), Delete("a/0"), Put("a/1", b"")])
    late = store.watch("a/", start_revision=late_from)
    for each in (watch, late):
        assert await told(each, 1) == [(late_from, [b"a/2", b"a/0", b"a/1"])]
        each.close()


async def test_what_was_before_is_told_to_those_who_ask(store: Store) -> None:
    watch = store.watch("k", before=True, exact=True)
    await watch.ready()
    await store.put("k", b"1")
    await store.put("kk", b"")
    await store.put("k", b"2")
    await store.delete("k")
    events = [(await anext(watch)).events[0] for _ in range(3)]
    assert [event.before and event.before.value for event in events] == [None, b"1", b"2"]
    watch.close()


async def test_a_watch_from_a_forgotten_revision_says_so(store: Store) -> None:
    first = await store.put("k", b"")
    for _ in range(3):
        await store.put("k", b"")
    await store.compact(first + 2)
    watch = store.watch("k", start_revision=first)
    depths: list[int] = []
    for _ in range(3):
        with pytest.raises(Compacted) as caught:
            await watch.ready()
        assert caught.value.compacted_revision == first + 2
        with pytest.raises(Compacted) as caught:
            await anext(watch)
        depths.append(len(caught.traceback))
    # What is told again and again does not grow.
    assert depths[1] == depths[2]
    watch.close()
    again = store.watch("k", start_revision=caught.value.compacted_revision)
    assert await told(again, 2) == [(first + 2, [b"k"]), (first + 3, [b"k"])]
    again.close()


async def test_compaction_takes_nothing_from_a_watch_that_has_it(store: Store) -> None:
    watch = store.watch("k")
    first = await watch.ready()
    for _ in range(5):
        await store.put("k", b"")
    await store.compact(first + 4)
    assert [revision for revision, _ in await told(watch, 5)] == list(range(first, first + 5))
    watch.close()


async def test_many_watches_hear_each_what_they_want(store: Store) -> None:
    watches = [store.watch(f"k/{number % 50}/") for number in range(500)]
    every = store.watch("k/")
    for watch in watches:
        await watch.ready()
    first = await every.ready()
    for number in range(50):
        await store.put(f"k/{number}/x", b"")
    for number, watch in enumerate(watches):
        assert await told(watch, 1) == [(first + number % 50, [b"k/%d/x" % (number % 50)])]
        watch.close()
    assert len(await told(every, 50)) == 50
    every.close()


async def test_a_watch_that_is_not_read_is_ended_loudly_and_can_be_resumed(store: Store) -> None:
    slow, quick = store.watch("k"), store.watch("k")
    first = await slow.ready()
    assert await quick.ready() == first
    # Twice what may wait: a server tells a watch of a commit some time after the commit was answered.
    commits = 2 * (STORE_WATCH_COUNT_MAX // STORE_TXN_COUNT_MAX)
    puts = [Put(f"k{number}", b"") for number in range(STORE_TXN_COUNT_MAX)]
    for _ in range(commits):
        await store.commit((), puts)
        await anext(quick)
    quick.close()
    revisions: list[int] = []
    with pytest.raises(WatchOverrun) as caught:
        async for batch in slow:
            revisions.append(batch.revision)
    assert revisions == list(range(first, caught.value.resume_revision))
    with pytest.raises(WatchOverrun):
        await anext(slow)
    again = store.watch("k", start_revision=caught.value.resume_revision)
    rest = first + commits - caught.value.resume_revision
    assert rest > 0
    assert [revision for revision, _ in await told(again, rest)] == list(
        range(caught.value.resume_revision, first + commits)
    )
    again.close()


async def test_a_closed_watch_ends(store: Store) -> None:
    watch = store.watch("k")
    await watch.ready()
    waiting = asyncio.ensure_future(anext(watch, None))
    await store.put("x", b"")
    watch.close()
    watch.close()
    assert await waiting is None
    assert [batch async for batch in watch] == []
    with pytest.raises(AlreadyClosed):
        await watch.ready()


async def test_a_cancelled_step_takes_nothing_out(store: Store) -> None:
    watch = store.watch("k")
    first = await watch.ready()
    for number in range(3):
        waiting = asyncio.ensure_future(anext(watch))
        await store.put("x", b"")
        waiting.cancel()
        assert (await asyncio.gather(waiting, return_exceptions=True))[0].__class__ is asyncio.CancelledError
        await store.put("k", b"")
        assert await told(watch, 1) == [(first + 2 * number + 1, [b"k"])]
    watch.close()


async def test_a_watch_that_cannot_be_is_refused_and_disturbs_no_other(store: Store) -> None:
    for revision in (-1, 2**63):
        with pytest.raises(BadArgument):
            store.watch("k", start_revision=revision)
    with pytest.raises(BadArgument):
        store.watch("", exact=True)
    watch = store.watch("k")
    first = await watch.ready()
    await store.put("k", b"")
    assert await told(watch, 1) == [(first, [b"k"])]
    watch.close()


# ---- one reader of many watches


class Reader:
    """Reads any number of watches, and has no task."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.errors: dict[str, HansaError] = {}
        self._looked = asyncio.Event()

    def read(self, name: str, watch: Watch) -> Watch:
        def look() -> None:
            try:
                while (batch := watch.take()) is not None:
                    self.told.append((name, batch.revision))
            except HansaError as error:
                self.errors[name] = error
            self._looked.set()

        watch.call_back(look)
        return watch

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._looked.clear()
                await self._looked.wait()


async def test_one_reader_hears_many_watches_without_a_task_for_any(store: Store) -> None:
    reader, keys = Reader(), [f"k/{number:03}" for number in range(200)]
    # With the first one the client of a server begins to listen to it.
    watches = [reader.read("first", store.watch("first", exact=True))]
    await watches[0].ready()
    tasks = len(asyncio.all_tasks())
    watches += [reader.read(key, store.watch(key, exact=True)) for key in keys]
    for watch in watches:
        await watch.ready()
    # A store may have a call of its own under way.
    while len(asyncio.all_tasks()) > tasks:
        await asyncio.sleep(0.005)
    revisions = [await store.put(key, b"") for key in keys]
    await store.put("k/0000", b"nobody's")
    # One is closed, and one is added, while it reads.
    watches[1].close()
    await store.put(keys[0], b"")
    late = reader.read("late", store.watch("late", exact=True, start_revision=revisions[-1]))
    last = await store.commit((), [Put(keys[1], b""), Put("late", b"")])
    expected = [*zip(keys, revisions, strict=True), (keys[1], last.revision), ("late", last.revision)]
    await reader.until(lambda: len(reader.told) == len(expected))
    assert sorted(reader.told) == sorted(expected)
    assert [watch.take() for watch in (*watches, late)] == [None] * 202
    for watch in (*watches, late):
        watch.close()


async def test_who_is_called_back_late_is_told_what_was_before(store: Store) -> None:
    reader = Reader()
    revision = await store.put("k", b"")
    watch, past = store.watch("k"), store.watch("k", start_revision=revision)
    first = await watch.ready()
    assert watch.take() is None
    for _ in range(3):
        await store.put("k", b"")
    # It is there, and nobody was waiting.
    batch = await anext(watch)
    reader.read("now", watch)
    reader.read("past", past)
    await reader.until(lambda: len(reader.told) == 6)
    assert batch.revision == first
    assert sorted(reader.told) == [
        *(("now", first + number) for number in (1, 2)),
        *(("past", first + number) for number in (-1, 0, 1, 2)),
    ]
    for each in (watch, past):
        each.close()


async def test_who_is_called_back_is_told_of_a_watch_that_ends_and_hears_the_others(store: Store) -> None:
    reader = Reader()
    live = reader.read("live", store.watch("k"))
    first = await live.ready()
    for _ in range(3):
        await store.put("k", b"")
    await store.compact(first + 2)
    lost = reader.read("lost", store.watch("k", start_revision=first))
    await reader.until(lambda: "lost" in reader.errors)
    for _ in range(2):
        with pytest.raises(Compacted):
            lost.take()
    await store.put("k", b"")
    await reader.until(lambda: len(reader.told) == 4)
    assert reader.told == [("live", first + number) for number in range(4)]
    for each in (live, lost):
        each.close()
    assert (live.take(), lost.take()) == (None, None)


async def test_who_is_called_back_hears_on_when_the_store_is_back(
    engine: StoreEngine, make_store: Callable[[], Store]
) -> None:
    async with make_store() as store:
        reader = Reader()
        watch = reader.read("k", store.watch("k"))
        first = await watch.ready()
        await store.put("k", b"")
        await reader.until(lambda: len(reader.told) == 1)
        engine.pause(store)
        try:
            assert watch.take() is None
            putting = asyncio.ensure_future(store.put("k", b"", timeout=30))
            await asyncio.sleep(0)
        finally:
            engine.resume(store)
        assert await putting == first + 1
        await reader.until(lambda: len(reader.told) == 2)
        assert reader.told == [("k", first), ("k", first + 1)]
        watch.close()


async def test_who_is_called_back_is_told_that_the_store_was_closed(make_store: Callable[[], Store]) -> None:
    reader = Reader()
    async with make_store() as store:
        watch = reader.read("k", store.watch("k"))
        await watch.ready()
    await reader.until(lambda: "k" in reader.errors)
    assert isinstance(reader.errors["k"], AlreadyClosed)
    watch.close()
