"""Following the keys below a prefix, or one key, of a store through all that can happen to a watch.

`Copy` decides what is news. It is first given a whole read, then the batches of a watch that begins right
after it. When the watch breaks (the history was compacted, the reader was too slow, the store was away) it is
given another whole read, and reports the difference: nothing twice, and nothing missed that still matters. A
key that was deleted and created again in between shows as a delete and a put, since its `create_revision`
differs; a key that was created and deleted in between never shows.

`Following` drives it. It must: read, then watch from the next revision, and use the read only when the watch
is ready; close a watch that does not become ready; after a failure drop the watch, report the trouble and
pause once, also when the step is cancelled; start again with short pauses after a good read; and end a pause
when it is closed.

`key_changed` waits for one key. It must: close each watch; after a broken watch pause, read the key until the
store answers, check whether the key is what it waits for, and only then watch on from there; and start again
with short pauses when a watch has told something.

`Guard` waits for all keys of a session at once, without a task. It must do for each of them what
`key_changed` does for one, with separate pauses; read many keys with broken watches in one transaction, and
run only one such read at a time; report what it finds after a gap only if that is news; and, when a key is
let go, close its watch and report nothing more of it.
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
from hansa.errors import (
    AlreadyClosed,
    Compacted,
    HandshakeRefused,
    HansaError,
    StoreUnavailable,
    TimedOut,
    WatchOverrun,
    invariant,
)
from hansa.limits import (
    FOLLOW_RETRY_S_MAX,
    FOLLOW_RETRY_S_MIN,
    GUARD_DELAY_S,
    GUARD_GATHER_S,
    RECONNECT_JITTER,
    STORE_TIMEOUT_S,
    STORE_TXN_COUNT_MAX,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import TaskScope
from hansa.store.store import Store, Watch
from hansa.store.values import EventKind, Get, GetResult, KeyValue, Scan, WatchBatch, as_bytes, as_key
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All keys at a revision: the first news that a follower gets."""

    revision: int
    items: Mapping[bytes, KeyValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The difference since the last news. Deletes come before puts: a key may be in both.

    `deletes` are the keys as they last were. `is_after_gap` says that a watch was lost and this is the
    difference of two reads; `revision` is that of the second read.
    """

    revision: int
    puts: tuple[KeyValue, ...] = ()
    deletes: tuple[KeyValue, ...] = ()
    is_after_gap: bool = False


def changes(news: Snapshot | Changed) -> tuple[tuple[KeyValue, ...], tuple[KeyValue, ...]]:
    """The keys that were put, and the keys that were deleted before that."""
    if isinstance(news, Snapshot):
        return tuple(news.items.values()), ()
    return news.puts, news.deletes


class Copy:
    """The keys as far as they are known here, and the revision at which that is true."""

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
        """Take in a whole read. Returns a `Snapshot` the first time, then the difference, if there is any.

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
        # In the order in which they were put, as a watch would have told them.
        new.sort(key=lambda item: (item.mod_revision, item.key))
        return Changed(revision=scan.revision, puts=tuple(new), deletes=tuple(gone), is_after_gap=True)

    def apply(self, batch: WatchBatch) -> Changed | None:
        """Take in the changes of one revision. Returns None for what is known already."""
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
    """Whether it is still the same key, and was not deleted and created again."""
    return now is not None and now.create_revision == before.create_revision


# What makes a call worth another try.
TROUBLE = (StoreUnavailable, TimedOut)


def patient_backoff(chance: Chance, s_max: float = FOLLOW_RETRY_S_MAX) -> Backoff:
    """The pauses of a caller that waits for a store that cannot be reached."""
    s_max = min(FOLLOW_RETRY_S_MAX, s_max)
    return Backoff(s_min=FOLLOW_RETRY_S_MIN, s_max=s_max, jitter=RECONNECT_JITTER, chance=chance)


async def patiently(ask: Callable[[], Awaitable[T]], chance: Chance) -> T:
    """Ask until the store answers, however long it cannot be reached. After a lost answer it asks again."""
    backoff: Backoff | None = None
    while True:
        try:
            return await ask()
        except TROUBLE:
            backoff = backoff or patient_backoff(chance)
            await asyncio.sleep(backoff.next_s())


class Following:
    """An async iterator: first a `Snapshot` of all keys with a prefix, then each `Changed`. For one reader.

    After a compaction, an overrun or a store that was away it reads again and returns the difference, once.
    It waits for a store that cannot be reached, however long, with growing pauses; `is_current` is False
    meanwhile, and `on_trouble` is called with each failure. A step raises `AlreadyClosed` when the store was
    closed, and ends after `close`. Cancelling a step loses no news.
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
        # After a failed try, the pause before the next one; kept here in case the step is cancelled in it.
        self._pause_s = 0.0
        self._closed = False
        self._closing = Waiters()
        self.troubles_count = 0
        self.reads_count = 0

    @property
    def items(self) -> Mapping[bytes, KeyValue]:
        """The keys as they were when the last news was returned: a view, which changes with it."""
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
                # A watch ends in this way only when `close` was called.
                self._drop()
            except (Compacted, WatchOverrun, StoreUnavailable, TimedOut) as error:
                self._failed(error)
            if news is not None and not self._closed:
                return news
        raise StopAsyncIteration

    def close(self) -> None:
        """Stop following: a waiting step ends."""
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
        """Read all keys, and watch from there on. The read is used only once the watch has surely begun."""
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
    """Wait until a key, known at a revision, is gone (returns None), or a put `is_enough` (returns the key).

    A key that was deleted and created again counts as gone. It waits for a store that cannot be reached,
    however long. Raises `AlreadyClosed`. Cancelling it leaves nothing behind.
    """
    backoff = patient_backoff(chance)
    while True:
        watch = store.watch(known.key, start_revision=revision + 1, exact=True)
        try:
            async for batch in watch:
                backoff.reset()
                for found in (event.item for event in batch.events):
                    # A deleted key has another one: 0.
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


# After these errors a key is read again.
_BROKEN = (Compacted, WatchOverrun, HandshakeRefused, *TROUBLE)


class _Followed:
    """A key that a `Guard` follows, and the revision up to which it knows it."""

    __slots__ = (
        "_has_told",
        "_on_change",
        "_told",
        "backoff",
        "key",
        "keys_only",
        "revision",
        "timer",
        "watch",
    )

    def __init__(
        self,
        key: bytes,
        revision: int,
        on_change: Callable[[KeyValue | None], None],
        *,
        keys_only: bool,
    ) -> None:
        self.key = key
        self.revision = revision
        self.keys_only = keys_only
        self.watch: Watch | None = None
        # The pauses since the last news; one of them runs while the timer does.
        self.backoff: Backoff | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._on_change = on_change
        self._told: KeyValue | None = None
        self._has_told = False

    def tell(self, now: KeyValue | None) -> None:
        """Report the key as it is now; None: it is gone."""
        self._told, self._has_told = now, True
        self._on_change(now)

    def tell_difference(self, now: KeyValue | None) -> None:
        """Report the key after a gap, unless this is what was reported last."""
        if not self._has_told or _version(now) != _version(self._told):
            self.tell(now)

    def end(self) -> None:
        """Stop waiting for changes."""
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        if self.timer is not None:
            self.timer.cancel()


def _version(item: KeyValue | None) -> tuple[int, int]:
    return (0, 0) if item is None else (item.create_revision, item.mod_revision)


class Guard:
    """Watches the keys of one session, and follows other keys: all with one reader, which is no task.

    Each key has a watch, which calls the guard when it has news: one watch over a common prefix would be told
    of everybody's keys. Nothing is started for a key that is held briefly and let go within GUARD_DELAY_S:
    nobody could be told earlier. A key that is held for longer is watched from its own revision on, so
    nothing is missed.
    """

    def __init__(self, store: Store, tasks: TaskScope, chance: Chance) -> None:
        self._store = store
        self._tasks = tasks
        self._chance = chance
        # In the order in which their delays end.
        self._waiting: dict[bytes, tuple[float, KeyValue, int, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._followed: dict[bytes, _Followed] = {}
        # Keys whose watch broke and whose pause is over; a task reads them while there are any.
        self._unread: dict[bytes, _Followed] = {}
        self._is_reading = False
        self._is_closed = False

    def look_after(
        self, known: KeyValue, *, revision: int, on_gone: Callable[[], None], is_brief: bool
    ) -> None:
        """Call `on_gone` when the key is deleted, or created again, after this revision.

        A key that is not held briefly is watched at once.
        """
        if self._is_closed:
            return
        if not is_brief:
            self._look_after(known, revision, on_gone)
            return
        loop = asyncio.get_running_loop()
        self._waiting[known.key] = (loop.time() + GUARD_DELAY_S, known, revision, on_gone)
        if self._timer is None:
            self._timer = loop.call_later(GUARD_DELAY_S, self._due)

    def follow(self, key: bytes, *, revision: int, on_change: Callable[[KeyValue | None], None]) -> None:
        """Call `on_change` with the key as it is now (None: gone) after each change after this revision.

        Until `let_go(key)`. Of changes that come together only the last may be reported; the last one always
        is. After a gap in the watch the key may be reported although nothing has changed.
        """
        if not self._is_closed:
            self._begin(_Followed(key, revision, on_change, keys_only=False))

    def let_go(self, key: bytes) -> None:
        """Stop watching or following the key."""
        self._waiting.pop(key, None)
        if (one := self._followed.pop(key, None)) is not None:
            self._unread.pop(key, None)
            one.end()

    def close(self) -> None:
        """Stop watching all keys."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        for key in list(self._followed):
            self.let_go(key)

    def _due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for key, (due_s, known, revision, on_gone) in list(self._waiting.items()):
            if due_s > loop.time():
                self._timer = loop.call_at(due_s, self._due)
                return
            del self._waiting[key]
            self._look_after(known, revision, on_gone)

    def _look_after(self, known: KeyValue, revision: int, on_gone: Callable[[], None]) -> None:
        def changed(now: KeyValue | None) -> None:
            if now is None or now.create_revision != known.create_revision:
                self.let_go(known.key)
                on_gone()

        self._begin(_Followed(known.key, revision, changed, keys_only=True))

    def _begin(self, one: _Followed) -> None:
        invariant(one.key not in self._followed, f"the key {one.key!r} is followed already")
        self._followed[one.key] = one
        self._watch(one)

    def _watch(self, one: _Followed) -> None:
        try:
            one.watch = self._store.watch(one.key, start_revision=one.revision + 1, exact=True)
        except AlreadyClosed:
            return  # The store was closed, so nothing renews the lease: the session's clock ends it.
        one.watch.call_back(partial(self._hear, one))

    def _hear(self, one: _Followed) -> None:
        news: WatchBatch | None = None
        while (batch := self._take(one)) is not None:
            news = batch
        if news is not None:
            event = news.events[-1]
            one.tell(event.item if event.kind is EventKind.PUT else None)

    def _take(self, one: _Followed) -> WatchBatch | None:
        if one.watch is None:
            return None
        try:
            batch = one.watch.take()
        except _BROKEN as error:
            one.watch.close()
            one.watch = None
            self._read_later(one, error)
            return None
        except AlreadyClosed:
            return None  # As above.
        if batch is not None:
            one.revision, one.backoff = batch.revision, None
        return batch

    def _read_later(self, one: _Followed, error: HansaError) -> None:
        one.backoff = one.backoff or patient_backoff(self._chance)
        pause_s = one.backoff.next_s()
        logger.debug("guarding %r: %s; reading it anew in %.2f s", one.key, error, pause_s)
        one.timer = asyncio.get_running_loop().call_later(pause_s, self._read_soon, one)

    def _read_soon(self, one: _Followed) -> None:
        self._unread[one.key] = one
        if not self._is_reading:
            self._is_reading = True
            self._tasks.spawn(self._read(), "reads keys anew")

    async def _read(self) -> None:
        """Read the keys whose watches broke, and watch on from there."""
        try:
            # Keys whose watches broke together are read together.
            await asyncio.sleep(GUARD_GATHER_S)
            while self._unread:
                await self._read_some()
        finally:
            self._is_reading = False

    async def _read_some(self) -> None:
        some = list(self._unread.values())[:STORE_TXN_COUNT_MAX]
        if not all(one.keys_only for one in some):
            # One value may fill a whole answer.
            some = some[:1]
        try:
            outcome = await self._store.commit((), [Get(one.key, keys_only=one.keys_only) for one in some])
        except AlreadyClosed:
            self._unread.clear()
            return
        except _BROKEN as error:
            for one in some:
                if self._unread.pop(one.key, None) is one:
                    self._read_later(one, error)
            return
        loop = asyncio.get_running_loop()
        for one, found in zip(some, outcome.results, strict=True):
            # A key that was let go meanwhile is gone from here, or is followed again.
            if isinstance(found, GetResult) and self._unread.get(one.key) is one:
                del self._unread[one.key]
                # Each in a turn of its own, as news are: a callback that fails harms no other key.
                loop.call_soon(self._found, one, outcome.revision, found.items)

    def _found(self, one: _Followed, revision: int, items: tuple[KeyValue, ...]) -> None:
        if self._followed.get(one.key) is one:
            one.revision = revision
            self._watch(one)
            one.tell_difference(items[0] if items else None)
