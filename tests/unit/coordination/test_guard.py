"""The guard of a session: many keys with one reader, through all that their watches can suffer."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import ceil
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.coordination import following
from hansa.coordination.following import Guard
from hansa.coordination.lock import Lock
from hansa.coordination.session import Session
from hansa.errors import Compacted, HandshakeRefused, HansaError, StoreUnavailable, TimedOut, WatchOverrun
from hansa.limits import FOLLOW_RETRY_S_MAX, STORE_TXN_COUNT_MAX
from hansa.runtime.tasks import TaskScope
from hansa.store.memory import MemoryWatch
from hansa.store.values import Delete, KeyValue, Operation, Put
from tests.support.scripted_store import ScriptedStore, item, play, put, read
from tests.support.virtual_store import TroubledStore, virtual

BROKEN = StoreUnavailable("the store is away")


@asynccontextmanager
async def guarding(store: Any) -> AsyncIterator[Guard]:
    """A guard of its own. No task of it may fail."""
    failures: list[BaseException] = []
    tasks = TaskScope("the test", failures.append)
    guard = Guard(store, tasks, Chance.seeded(1))
    try:
        yield guard
    finally:
        guard.close()
        await tasks.close()
        assert not failures


async def made(store: TroubledStore, key: str, value: bytes = b"") -> KeyValue:
    await store.put(key, value)
    found = await store.get(key)
    assert found is not None
    return found


def noting(told: list[bytes | None]) -> Callable[[KeyValue | None], None]:
    """A callback that notes values."""
    return lambda now: told.append(None if now is None else now.value)


def watches() -> list[MemoryWatch]:
    """Those of the memory stores that are open."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, MemoryWatch) and not each._closed]


# ---- many keys, one reader


@pytest.mark.spec("OWN-01")
@virtual
async def test_a_thousand_keys_that_are_held_need_no_task(store: TroubledStore) -> None:
    gone: list[int] = []
    async with Session(store) as session:
        tasks = asyncio.all_tasks()
        for number in range(1_000):
            known = await made(store, f"k/{number}")
            session.guard.look_after(
                known, revision=known.mod_revision, on_gone=partial(gone.append, number), is_brief=False
            )
        assert asyncio.all_tasks() == tasks
        assert store.counts["watch exact"] == 1_000
        await store.delete("k/7")
        await store.delete("k/999")
        await asyncio.sleep(0.01)
        assert gone == [7, 999]
        assert asyncio.all_tasks() == tasks
    assert not watches()


@virtual
async def test_keys_come_and_go_while_others_are_watched(store: TroubledStore) -> None:
    gone: list[str] = []
    async with guarding(store) as guard:
        for key in ("a", "b", "c"):
            known = await made(store, key)
            guard.look_after(
                known, revision=known.mod_revision, on_gone=partial(gone.append, key), is_brief=False
            )
        guard.let_go(b"b")
        guard.let_go(b"nobody follows this")
        assert len(watches()) == 2
        await store.commit((), [Delete("a"), Delete("b")])
        # The news of it are under way when it is let go.
        await store.delete("c")
        guard.let_go(b"c")
        await asyncio.sleep(1.0)
        assert gone == ["a"]
        assert not watches()


@virtual
async def test_a_key_that_is_put_is_not_gone_and_one_that_is_made_anew_is(store: TroubledStore) -> None:
    gone: list[float] = []
    async with guarding(store) as guard:
        known = await made(store, "k")
        guard.look_after(
            known, revision=known.mod_revision, on_gone=lambda: gone.append(store.now), is_brief=False
        )
        await store.put("k", b"marked")
        await asyncio.sleep(1.0)
        assert not gone
        # Told together.
        await store.delete("k")
        await store.put("k", b"another one's")
        await asyncio.sleep(1.0)
        assert len(gone) == 1


@virtual
async def test_a_callback_that_fails_makes_the_guard_deaf_for_nothing_else(store: TroubledStore) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    error = RuntimeError("a fault of the caller's")

    def fail(_: KeyValue | None) -> None:
        raise error

    async with guarding(store) as guard:
        revision = (await made(store, "a")).mod_revision
        guard.follow(b"a", revision=revision, on_change=fail)
        guard.follow(b"b", revision=revision, on_change=told.append)
        await store.commit((), [Put("a", b"1"), Put("b", b"1")])
        await asyncio.sleep(0.1)
        assert told == [error, await store.get("b")]
        # After a gap, too.
        told.clear()
        await break_all(store)
        await store.commit((), [Put("a", b"2"), Put("b", b"2")])
        await asyncio.sleep(1.0)
        assert told == [error, await store.get("b")]


# ---- following


@virtual
async def test_who_follows_is_told_each_change_until_the_key_is_let_go(store: TroubledStore) -> None:
    told: list[bytes | None] = []
    async with guarding(store) as guard:
        revision = (await made(store, "k", b"known")).mod_revision
        guard.follow(b"k", revision=revision, on_change=noting(told))
        for change in (Put("k", b"1"), Put("k", b"2"), Delete("k"), Put("k", b"3")):
            await asyncio.sleep(0.1)
            await store.commit((), [change])
        await asyncio.sleep(0.1)
        assert told == [b"1", b"2", None, b"3"]
        guard.let_go(b"k")
        await store.put("k", b"4")
        await asyncio.sleep(0.1)
        assert len(told) == 4
        # What has changed since that revision is told, too: the last of it.
        guard.follow(b"k", revision=revision, on_change=noting(told))
        await asyncio.sleep(0.1)
        assert told[4:] == [b"4"]


@virtual
async def test_of_changes_that_come_together_the_last_is_told(store: TroubledStore) -> None:
    told: list[bytes | None] = []
    async with guarding(store) as guard:
        revision = (await made(store, "k")).mod_revision
        guard.follow(b"k", revision=revision, on_change=noting(told))
        store.pause()
        await asyncio.sleep(0.1)
        changes: list[Operation] = [Put("k", b"1"), Delete("k"), Put("k", b"2"), Delete("k")]
        for change in changes:
            # As others do who reach it.
            store._engine.commit((), [change], (), now=store.now)
        store._acted()
        await asyncio.sleep(0.1)
        assert not told
        store.resume()
        await asyncio.sleep(0.1)
        assert told == [None]


@virtual
async def test_who_lets_go_in_the_callback_is_told_nothing_more(store: TroubledStore) -> None:
    told: list[KeyValue | None] = []
    async with guarding(store) as guard:

        def once(now: KeyValue | None) -> None:
            told.append(now)
            guard.let_go(b"k")

        guard.follow(b"k", revision=(await made(store, "k")).mod_revision, on_change=once)
        await store.put("k", b"1")
        await asyncio.sleep(0.1)
        await store.put("k", b"2")
        await asyncio.sleep(0.1)
        assert len(told) == 1
        assert not watches()


# ---- watches that break


async def break_all(store: TroubledStore) -> None:
    """Have all watches end that wait, by a history that was lost, as of now."""
    for watcher, readers in list(store._readers.items()):
        store._engine._watchers._end(watcher, Compacted("the store went back", store._engine.revision))
        readers.wake_all()
    await asyncio.sleep(0.001)


@virtual
async def test_many_broken_watches_are_read_anew_in_few_transactions(store: TroubledStore) -> None:
    """And what happened in the gap is told, of each key that it happened to."""
    gone: list[int] = []
    async with guarding(store) as guard:
        for number in range(1_000):
            known = await made(store, f"k/{number}")
            guard.look_after(
                known, revision=known.mod_revision, on_gone=partial(gone.append, number), is_brief=False
            )
        store.counts.clear()
        tasks_count = len(asyncio.all_tasks())
        await break_all(store)
        await store.commit((), [Delete("k/3"), Delete("k/500")])
        await store.delete("k/900")
        await store.put("k/900", b"another one's")
        store.counts.clear()
        most = 0
        for _ in range(1_000):
            most = max(most, len(asyncio.all_tasks()) - tasks_count)
            await asyncio.sleep(0.001)
        assert sorted(gone) == [3, 500, 900]
        assert store.counts["commit"] == ceil(1_000 / STORE_TXN_COUNT_MAX)
        assert most == 1
        assert store.counts["scan"] == 0
        assert len(asyncio.all_tasks()) == tasks_count
        # They are watched again.
        await store.delete("k/4")
        await asyncio.sleep(0.01)
        assert gone[-1] == 4


@virtual
async def test_a_key_that_did_not_change_in_a_gap_is_told_once_at_most(store: TroubledStore) -> None:
    told: list[bytes | None] = []
    async with guarding(store) as guard:
        revision = (await made(store, "k", b"known")).mod_revision
        guard.follow(b"k", revision=revision, on_change=noting(told))
        for _ in range(3):
            await break_all(store)
            await asyncio.sleep(1.0)
        # Nobody has said what it was before.
        assert told == [b"known"]
        await break_all(store)
        await store.put("k", b"in the gap")
        await asyncio.sleep(1.0)
        await break_all(store)
        await store.delete("k")
        await asyncio.sleep(1.0)
        await break_all(store)
        await asyncio.sleep(1.0)
        assert told == [b"known", b"in the gap", None]


@virtual
async def test_a_key_that_is_let_go_in_a_gap_is_neither_read_nor_told(store: TroubledStore) -> None:
    told: list[KeyValue | None] = []
    async with guarding(store) as guard:
        revision = (await made(store, "k")).mod_revision
        # In its pause, and while it is read.
        for wait_s in (0.0, 1.0):
            guard.follow(b"k", revision=revision, on_change=told.append)
            await asyncio.sleep(0.1)
            store.counts.clear()
            await break_all(store)
            store.pause()
            await asyncio.sleep(wait_s)
            guard.let_go(b"k")
            store.resume()
            await asyncio.sleep(10.0)
            assert store.counts["commit"] == (wait_s > 0.0)
            assert not watches()
        assert not told


@virtual
async def test_a_store_that_is_away_is_asked_again_with_growing_pauses(store: TroubledStore) -> None:
    gone: list[float] = []
    async with guarding(store) as guard:
        known = await made(store, "k")
        guard.look_after(
            known, revision=known.mod_revision, on_gone=lambda: gone.append(store.now), is_brief=False
        )
        await break_all(store)
        await store.delete("k")
        store.lost_answers_count = 8
        store.counts.clear()
        began_s = store.now
        await asyncio.sleep(60.0)
        assert store.counts["commit"] == 9
        assert len(gone) == 1
        # The pauses double, up to a bound: in all more than eight of the first one.
        assert gone[0] - began_s > 4 * FOLLOW_RETRY_S_MAX


@virtual
async def test_a_closed_store_ends_the_following_quietly(store: TroubledStore) -> None:
    told: list[KeyValue | None] = []
    async with guarding(store) as guard:
        guard.follow(b"k", revision=(await made(store, "k")).mod_revision, on_change=told.append)
        await store.close()
        guard.follow(b"other", revision=1, on_change=told.append)
        await asyncio.sleep(10.0)
    assert not told


@virtual
async def test_a_session_that_is_lost_looks_after_nothing_any_more(store: TroubledStore) -> None:
    async with Session(store) as session:
        hold = await Lock(session, "dock").acquire()
        await asyncio.sleep(1.0)
        assert len(watches()) == 1
        await break_all(store)
        session.end_lost("for the test")
        assert not watches()
        session.guard.follow(b"k", revision=1, on_change=lambda _: None)
        assert not watches()
        store.counts.clear()
        await asyncio.sleep(10.0)
        assert store.counts["commit"] == 0
        assert not hold.is_held


# ---- word for word


def followed(store: ScriptedStore) -> list[bytes | None]:
    """What a guard is told of the one key from revision 5 on, until it is told that it is gone."""
    told: list[bytes | None] = []

    async def scene() -> None:
        is_gone, note = asyncio.Event(), noting(told)

        def changed(now: KeyValue | None) -> None:
            note(now)
            if now is None:
                is_gone.set()

        async with guarding(store) as guard, asyncio.timeout(60):
            guard.follow(b"k", revision=5, on_change=changed)
            await is_gone.wait()

    play(scene)
    return told


GONE = read(20)


@pytest.mark.parametrize(
    "error",
    [
        BROKEN,
        Compacted("forgotten"),
        WatchOverrun("too much", 7),
        TimedOut("too slow"),
        HandshakeRefused("not for you"),
    ],
)
def test_after_a_broken_watch_it_reads_and_watches_on_from_there(error: HansaError) -> None:
    store = ScriptedStore(
        watches=[[error], [put(item(b"news", modified=12)), error], []],
        scans=[read(9, item(b"read", modified=8)), GONE],
    )
    assert followed(store) == [b"read", b"news", None]
    assert [asked[:2] for asked in store.asked[:4]] == [
        ("watch", 6),
        ("commit", 0),
        ("watch", 10),
        ("commit", 0),
    ]
    assert all(watch.is_closed for watch in store.opened)


@pytest.mark.parametrize("error", [BROKEN, TimedOut("too slow"), HandshakeRefused("not for you")])
def test_a_read_that_fails_is_repeated_after_growing_pauses(error: HansaError) -> None:
    store = ScriptedStore(watches=[[BROKEN], []], scans=[error] * 5 + [GONE])
    assert followed(store) == [None]
    reads_s = [pause_s for pause_s in store.pauses_s if pause_s > 0.0]
    assert len(reads_s) == 6
    assert reads_s[-1] > 10 * reads_s[0]


def test_the_pauses_begin_anew_when_the_watch_has_told_something() -> None:
    still_there = read(9, item(modified=8))
    store = ScriptedStore(
        watches=[[BROKEN], [put(item(b"news", modified=12)), BROKEN], []],
        scans=[BROKEN] * 5 + [still_there, GONE],
    )
    assert followed(store) == [b"", b"news", None]
    reads_s = [pause_s for pause_s in store.pauses_s if pause_s > 0.0]
    assert max(reads_s) > 1.0
    assert reads_s[-1] < 0.15


def test_what_broke_without_any_news_is_not_asked_ever_faster() -> None:
    store = ScriptedStore(watches=[[BROKEN]] * 6 + [[]], scans=[read(9, item(modified=8))] * 5 + [GONE])
    assert followed(store) == [b"", None]
    reads_s = [pause_s for pause_s in store.pauses_s if pause_s > 0.0]
    assert len(reads_s) == 6
    assert reads_s[-1] > 10 * reads_s[0]


def test_brief_keys_are_due_after_the_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """One timer for all; each is watched when its own delay is over."""
    monkeypatch.setattr(following, "GUARD_DELAY_S", 1.0)

    async def scene(store: TroubledStore) -> None:
        async with guarding(store) as guard:
            on_gone: Callable[[], None] = lambda: None  # noqa: E731
            for key in ("a", "b", "c"):
                known = await made(store, key)
                guard.look_after(known, revision=known.mod_revision, on_gone=on_gone, is_brief=True)
                await asyncio.sleep(0.25)
            guard.let_go(b"b")
            counts = []
            for pause_s in (0.3, 0.5, 0.0):
                counts.append(len(watches()))
                await asyncio.sleep(pause_s)
            assert counts == [0, 1, 2]

    virtual(scene)()
