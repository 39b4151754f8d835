"""Follows a prefix, or one key, of a store through all that a watch can suffer.

`Copy` decides what is news. It is first given a whole read, then the batches of a watch that begins right
after it. When the watch breaks (the history was compacted, the reader was too slow, the store was away) it is
given another whole read, and tells the difference: nothing twice, and nothing missed that still matters. A
key that was deleted and created again in between shows as a delete and a put, since its `create_revision`
differs; a key that came and went in between never shows.

`Following` drives it. It must: read, then watch from the next revision, and take the read over only when the
watch is ready; close a watch that is not; after a failure drop the watch, tell of the trouble and pause,
once, also when the step is cancelled; begin its pauses anew after a good read; and end a pause when closed.

`key_changed` waits for one key. It must: close each watch; after a broken one pause, read the key as often as
the store needs, see whether what was read is what it waits for, and only then watch on from there; and begin
its pauses anew when a watch has told something. `Guard` waits for the keys of a session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Self, TypeVar

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, Compacted, HansaError, StoreUnavailable, TimedOut, WatchOverrun
from hansa.limits import (
    FOLLOW_RETRY_S_MAX,
    FOLLOW_RETRY_S_MIN,
    GUARD_DELAY_S,
    RECONNECT_JITTER,
    STORE_TIMEOUT_S,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import TaskScope
from hansa.store.store import Store, Watch
from hansa.store.values import EventKind, KeyValue, Scan, WatchBatch, as_bytes, as_key
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All keys at a revision: the first thing that a follower is told."""

    revision: int
    items: Mapping[bytes, KeyValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What is different since the last news. Deletes come before puts: a key may be in both.

    `deletes` are the keys as they last were. `is_after_gap` says that a watch was lost and this is the
    difference of two reads, of which `revision` is the second one's.
    """

    revision: int
    puts: tuple[KeyValue, ...] = ()
    deletes: tuple[KeyValue, ...] = ()
    is_after_gap: bool = False


def changes(news: Snapshot | Changed) -> tuple[tuple[KeyValue, ...], tuple[KeyValue, ...]]:
    """What was put, and what was deleted before that."""
    if isinstance(news, Snapshot):
        return tuple(news.items.values()), ()
    return news.puts, news.deletes


class Copy:
    """The keys as far as they are known here, and the revision that this is true for."""

    def __init__(self) -> None:
        self._items: dict[bytes, KeyValue] = {}
        self._revision: int | None = None

    @property
    def items(self) -> Mapping[bytes, KeyValue]:
        """The keys now: a view, which changes with the copy."""
        return MappingProxyType(self._items)

    @property
    def revision(self) -> int:
        return self._revision or 0

    def read(self, scan: Scan) -> Snapshot | Changed | None:
        """Take a whole read. Gives a `Snapshot` the first time, then the difference, None without one.

        A read older than what is known is believed, too: the store was replaced by one that knows less.
        """
        before = self._items
        is_first = self._revision is None
        self._items = {item.key: item for item in scan.items}
        self._revision = scan.revision
        if is_first:
            return Snapshot(revision=scan.revision, items=dict(self._items))
        gone = [item for key, item in before.items() if not _goes_on(item, self._items.get(key))]
        new = [item for key, item in self._items.items() if item != before.get(key)]
        if not gone and not new:
            return None
        # In the order of their making, as a watch would have told it.
        new.sort(key=lambda item: (item.mod_revision, item.key))
        return Changed(revision=scan.revision, puts=tuple(new), deletes=tuple(gone), is_after_gap=True)

    def apply(self, batch: WatchBatch) -> Changed | None:
        """Take the changes of one revision. Gives None for what is known already."""
        if batch.revision <= self.revision:
            return None
        self._revision = batch.revision
        before: dict[bytes, KeyValue | None] = {}
        for event in batch.events:
            key = event.item.key
            before.setdefault(key, self._items.get(key))
            if event.kind is EventKind.PUT:
                self._items[key] = event.item
            else:
                self._items.pop(key, None)
        deletes = [item for key, item in before.items() if item and not _goes_on(item, self._items.get(key))]
        puts = [self._items[key] for key in before if key in self._items]
        if not deletes and not puts:
            return None
        return Changed(revision=batch.revision, puts=tuple(puts), deletes=tuple(deletes))


def _goes_on(before: KeyValue, now: KeyValue | None) -> bool:
    """Whether it is still the same key, and not one that was deleted and created anew."""
    return now is not None and now.create_revision == before.create_revision


# What makes a call worth another try.
TROUBLE = (StoreUnavailable, TimedOut)


def patient_backoff(chance: Chance, s_max: float = FOLLOW_RETRY_S_MAX) -> Backoff:
    """The pauses of whoever waits for a store that cannot be reached."""
    s_max = min(FOLLOW_RETRY_S_MAX, s_max)
    return Backoff(s_min=FOLLOW_RETRY_S_MIN, s_max=s_max, jitter=RECONNECT_JITTER, chance=chance)


async def patiently(ask: Callable[[], Awaitable[T]], chance: Chance) -> T:
    """What the store answers, however long it cannot be reached. A lost answer is asked for again."""
    backoff: Backoff | None = None
    while True:
        try:
            return await ask()
        except TROUBLE:
            backoff = backoff or patient_backoff(chance)
            await asyncio.sleep(backoff.next_s())


class Following:
    """An async iterator: first a `Snapshot` of all keys with a prefix, then each `Changed`. For one reader.

    After a compaction, an overrun or a store that was away it reads anew and gives the difference, once. It
    waits for a store that cannot be reached, however long, with growing pauses; `is_current` says so, and
    `on_trouble` is called with each failure. A step raises `AlreadyClosed` when the store was closed, and
    ends after `close`. Cancelling a step takes nothing out.
    """

    def __init__(
        self,
        store: Store,
        prefix: bytes | str,
        *,
        exact: bool = False,
        timeout: float = STORE_TIMEOUT_S,
        environment: Environment | None = None,
        on_trouble: Callable[[HansaError], None] | None = None,
        on_read: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._prefix = as_key(prefix) if exact else as_bytes(prefix)
        self._exact = exact
        self._timeout_s = timeout
        self._on_trouble = on_trouble
        self._on_read = on_read
        self._backoff = patient_backoff((environment or Environment()).chance)
        self._copy = Copy()
        self._watch: Watch | None = None
        # When the last try failed, the pause that the next step begins with, should this one be cancelled.
        self._pause_s = 0.0
        self._closed = False
        self._closing = Waiters()
        self.troubles_count = 0
        self.reads_count = 0

    @property
    def items(self) -> Mapping[bytes, KeyValue]:
        """The keys as they were when the last news was given: a view, which changes with it."""
        return self._copy.items

    @property
    def revision(self) -> int:
        """The revision of the last news."""
        return self._copy.revision

    @property
    def is_current(self) -> bool:
        """Whether a watch is open: False before the first read, and from a failure to the next good read."""
        return self._watch is not None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Snapshot | Changed:
        while not self._closed:
            news: Snapshot | Changed | None = None
            try:
                if self._watch is None:
                    await self._wait()
                    news = await self._read()
                else:
                    news = self._copy.apply(await anext(self._watch))
            except StopAsyncIteration:
                # Only `close` ends a watch so.
                self._drop()
            except (Compacted, WatchOverrun, StoreUnavailable, TimedOut) as error:
                self._failed(error)
            if news is not None and not self._closed:
                return news
        raise StopAsyncIteration

    def close(self) -> None:
        """Follow no more: a step that waits ends."""
        self._closed = True
        self._drop()
        self._closing.wake_all()

    async def _wait(self) -> None:
        if not self._pause_s or self._closed:
            return
        try:
            async with asyncio.timeout(self._pause_s):
                await self._closing.wait()
        except TimeoutError:
            self._pause_s = 0.0

    async def _read(self) -> Snapshot | Changed | None:
        """Read all, and watch from there on. Nothing is taken over before the watch is sure to have begun."""
        if self._closed:
            return None
        scan = await self._store.scan(self._prefix, b"" if self._exact else None, timeout=self._timeout_s)
        watch = self._store.watch(self._prefix, start_revision=scan.revision + 1, exact=self._exact)
        try:
            await watch.ready(timeout=self._timeout_s)
        except BaseException:
            watch.close()
            raise
        if self._closed:
            watch.close()
            return None
        self._watch = watch
        self._backoff.reset()
        self.reads_count += 1
        news = self._copy.read(scan)
        if self._on_read is not None:
            self._on_read()
        return news

    def _failed(self, error: HansaError) -> None:
        self._drop()
        self.troubles_count += 1
        self._pause_s = self._backoff.next_s()
        logger.debug("following %r: %s; reading anew in %.2f s", self._prefix, error, self._pause_s)
        if self._on_trouble is not None:
            self._on_trouble(error)

    def _drop(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


async def key_changed(
    store: Store,
    known: KeyValue,
    *,
    revision: int,
    chance: Chance,
    is_enough: Callable[[KeyValue], bool] = lambda item: False,
) -> KeyValue | None:
    """Wait until a key, known at a revision, is gone (gives None), or was put so that `is_enough` (gives it).

    A key that was deleted and created anew is gone. It waits for a store that cannot be reached, however
    long. Raises `AlreadyClosed`. Cancelling it leaves nothing behind.
    """
    backoff = patient_backoff(chance)
    while True:
        watch = store.watch(known.key, start_revision=revision + 1, exact=True)
        try:
            async for batch in watch:
                backoff.reset()
                for found in (event.item for event in batch.events):
                    # One that was deleted has no such revision.
                    if found.create_revision != known.create_revision:
                        return None
                    if is_enough(found):
                        return found
        except (Compacted, WatchOverrun, *TROUBLE):
            await asyncio.sleep(backoff.next_s())
        finally:
            watch.close()
        scan = await patiently(partial(store.scan, known.key, b""), chance)
        revision, items = scan.revision, scan.items
        if not items or items[0].create_revision != known.create_revision:
            return None
        if is_enough(items[0]):
            return items[0]


class Guard:
    """Looks after the keys of one session, which nobody but their owner should delete.

    One timer serves them all, and nothing is begun for a key that is let go within GUARD_DELAY_S: nobody
    could be told earlier. A key that stays is then watched by itself, from its own revision on, so nothing is
    missed. There is a watch for each such key: one over a common prefix would be told of everybody's.
    """

    def __init__(self, store: Store, tasks: TaskScope, chance: Chance) -> None:
        self._store = store
        self._tasks = tasks
        self._chance = chance
        # In the order in which they are due.
        self._waiting: dict[bytes, tuple[float, KeyValue, int, Callable[[], None]]] = {}
        self._watching: dict[bytes, asyncio.Task[None]] = {}
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None

    def look_after(
        self, known: KeyValue, *, revision: int, on_gone: Callable[[], None], is_brief: bool
    ) -> None:
        """Call this when the key is gone, or was made anew, after this revision.

        What is not held for a moment only is watched at once.
        """
        if self._is_closed:
            return
        if not is_brief:
            self._begin(known, revision, on_gone)
            return
        loop = asyncio.get_running_loop()
        self._waiting[known.key] = (loop.time() + GUARD_DELAY_S, known, revision, on_gone)
        if self._timer is None:
            self._timer = loop.call_later(GUARD_DELAY_S, self._due)

    def follow(self, key: bytes, *, revision: int, on_change: Callable[[KeyValue | None], None]) -> None:
        """Call this with the key as it is now (None: gone) after each change after this revision.

        Until `let_go`. Changes that come together may be told as one.
        """
        if not self._is_closed:
            self._watching[key] = self._tasks.spawn(
                self._follow(key, revision, on_change), f"follows {key!r}"
            )

    async def _follow(self, key: bytes, revision: int, on_change: Callable[[KeyValue | None], None]) -> None:
        following = Following(self._store, key, exact=True, environment=Environment(chance=self._chance))
        try:
            async for _ in following:
                item = following.items.get(key)
                if item is None or item.mod_revision > revision:
                    on_change(item)
        except AlreadyClosed:
            return
        finally:
            following.close()

    def let_go(self, key: bytes) -> None:
        """Look after it no more."""
        if self._waiting.pop(key, None) is None and (task := self._watching.pop(key, None)) is not None:
            task.cancel()

    def close(self) -> None:
        """Look after nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        for task in self._watching.values():
            task.cancel()
        self._watching.clear()

    def _due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for key, (due_s, known, revision, on_gone) in list(self._waiting.items()):
            if due_s > loop.time():
                self._timer = loop.call_at(due_s, self._due)
                return
            del self._waiting[key]
            self._begin(known, revision, on_gone)

    def _begin(self, known: KeyValue, revision: int, on_gone: Callable[[], None]) -> None:
        self._watching[known.key] = self._tasks.spawn(
            self._watch(known, revision, on_gone), f"guards {known.key!r}"
        )

    async def _watch(self, known: KeyValue, revision: int, on_gone: Callable[[], None]) -> None:
        try:
            await key_changed(self._store, known, revision=revision, chance=self._chance)
        except AlreadyClosed:
            return  # Nothing renews the lease any more: the session's clock tells.
        self._watching.pop(known.key, None)
        on_gone()
