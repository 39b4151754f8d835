"""A recorded store on an event loop, with its journal: the server answers from it.

Nobody is told of anything that is not safe on disk. A call that changes something, or that decides by what it
sees, acts at once in memory and answers when everything that it did and saw is flushed. A plain read does not
wait: it gets the keys as of the last safe revision, which has every change that anybody was told of. Watchers
read the log up to the same revision. The same holds when the disk fails: reads go on, and changes are
refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self, TypeVar

from hansa.errors import AlreadyClosed, Compacted, FutureRevision, HansaError, StoreUnavailable
from hansa.limits import STORE_JOURNAL_BYTES
from hansa.runtime.tasks import Closing
from hansa.store.served.answers import BUSY, IN_DOUBT, RequestRefused
from hansa.store.served.disk_journal import DiskJournal, JournalStats
from hansa.store.served.folder import Identity, Recovery, StoreFolder
from hansa.store.served.recorded import RecordedStore
from hansa.store.served.records import encode_record
from hansa.store.values import WatchBatch
from hansa.store.watching import Watcher, Watchers, WatchInterest
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TIMER_S_MIN: Final = 0.001


class ServedStore:
    """A store in a data folder, or without one in memory only. An async context manager, for one loop.

    Entering raises what `StoreFolder.open` and `recover` raise. Leaving flushes all changes.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        *,
        fsync: bool = True,
        environment: Environment | None = None,
        snapshot_bytes: int = STORE_JOURNAL_BYTES,
        give_up_damage: bool = False,
    ) -> None:
        self._path = folder
        self._give_up_damage = give_up_damage
        self._fsync = fsync
        self._snapshot_bytes = snapshot_bytes
        environment = environment or Environment()
        self._clock, self._chance = environment.clock, environment.chance
        self.state = RecordedStore(self._chance)
        """The current keys and leases, safe or not."""
        self._folder: StoreFolder | None = None
        self._journal: DiskJournal | None = None
        self._identity: Identity | None = None
        self.recovery = Recovery(revision=1)
        """What the start found in the folder."""
        self.safe_revision = self.state.revision
        """The revision up to which everything may be told."""
        self.run_revision = self.state.revision
        """Where this run began: each start has a higher revision."""
        # Changes that are not safe yet: the record's number, the revision after it, what watchers will see.
        self._unsafe: deque[tuple[int, int, WatchBatch | None]] = deque()
        self._watchers = Watchers(_SafeLog(self))
        self._readers: dict[Watcher, Callable[[], None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._closed = False
        self._closing = Closing()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        if self._path is None:
            self._identity = Identity.draw(self._chance)
            self._begin_run()
            return self
        # Before any task runs here, so it may block the loop: nobody waits for it yet.
        self._folder = StoreFolder.open(self._path, self._chance, fsync=self._fsync)
        try:
            self.recovery = self._folder.recover(
                self.state, now=self._clock.monotonic(), give_up_damage=self._give_up_damage
            )
            self._journal = DiskJournal(
                self._folder,
                self.state.image,
                self._on_safe,
                fsync=self._fsync,
                snapshot_bytes=self._snapshot_bytes,
            )
        except BaseException:
            self._folder.close()
            raise
        self._identity = self._folder.identity
        self.safe_revision = self.state.revision
        self._begin_run()
        # A disk that refuses even this refuses changes: then all that was safe before can still be read.
        with suppress(StoreUnavailable):
            await self._journal.until_safe(self._journal.appended)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.once(self._close)

    async def _close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            if self._journal is not None:
                await self._journal.close()
        finally:
            if self._folder is not None:
                self._folder.close()

    @property
    def identity(self) -> Identity:
        if self._identity is None:
            raise AlreadyClosed("the store is not open: use it inside `async with`")
        return self._identity

    @property
    def folder(self) -> Path | None:
        """Where the store is kept; None when only in memory."""
        return None if self._folder is None else self._folder.path

    @property
    def failure(self) -> StoreUnavailable | None:
        """Why changes are refused; None while they are accepted."""
        return None if self._journal is None else self._journal.error

    @property
    def journal_stats(self) -> JournalStats | None:
        return None if self._journal is None else self._journal.stats

    @property
    def records(self) -> tuple[int, int]:
        """The numbers of the last record and of the last safe one."""
        return (0, 0) if self._journal is None else (self._journal.appended, self._journal.safe)

    async def act(self, work: Callable[[RecordedStore, float], T]) -> T:
        """Do work that changes the store, or decides by what it sees; returns once that is safe.

        Raises what `work` raises, and `StoreUnavailable` while changes are refused. If the disk fails while
        the change is being written, nobody knows its outcome: it is refused as "request timed out". A
        cancelled call has done its work.
        """
        self._check()
        now = self._clock.monotonic()
        failure: HansaError | None = None
        result: T | None = None
        try:
            self._tick(now)
            result = work(self.state, now)
        except HansaError as error:
            failure = error
        finally:
            self._record()
        journal = self._journal
        if journal is not None and journal.safe < journal.appended:
            try:
                await journal.until_safe(journal.appended)
            except StoreUnavailable as error:
                raise RequestRefused(IN_DOUBT[0], f"{IN_DOUBT[1]}: {error}") from error
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]

    async def read(self, work: Callable[[RecordedStore, int], T], revision: int = 0) -> T:
        """Read keys at a revision (0: now), as far as they are safe. Raises what `work` raises.

        `work` is called with the revision to read at, 0 for the store as it is.
        """
        if self._closed:
            raise AlreadyClosed("the store is closed")
        if self.failure is None:
            self._tick(self._clock.monotonic())
            self._record()
        if revision > self.safe_revision:
            raise FutureRevision(f"revision {revision}: the store is at {self.safe_revision}")
        if revision or self.safe_revision == self.state.revision:
            return work(self.state, revision)
        try:
            return work(self.state, self.safe_revision)
        except Compacted:
            # Compacted after the last safe revision: that compaction will be safe soon.
            return await self.act(lambda store, _: work(store, 0))

    async def snapshot(self) -> None:
        """Write a snapshot, and drop the journal before it. Raises `StoreUnavailable`."""
        if self._journal is not None:
            await self._journal.snapshot()

    def watch(self, interest: WatchInterest, start_revision: int, on_news: Callable[[], None]) -> Watcher:
        """See `Watchers.add`. `on_news` is called when there is something to take, and was nothing before."""
        watcher = self._watchers.add(interest, start_revision)
        self._readers[watcher] = on_news
        return watcher

    def take(self, watcher: Watcher) -> WatchBatch | None:
        """See `Watchers.take`."""
        return self._watchers.take(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """See `Watchers.remove`."""
        self._watchers.remove(watcher)
        self._readers.pop(watcher, None)

    def _check(self) -> None:
        if self._closed:
            raise AlreadyClosed("the store is closed")
        if self._journal is not None:
            if self._journal.error is not None:
                raise self._journal.error
            if self._journal.is_full:
                raise RequestRefused(*BUSY)

    def _begin_run(self) -> None:
        self.state.begin_run(wall_s=self._clock.wall())
        self._record()
        self.run_revision = self.state.revision

    def _record(self) -> None:
        """Pass new records to the journal; without a journal they count as safe at once."""
        told = self.state.taken()
        if not told:
            if self._timer is None:
                self._arm()
            return
        revision = self.safe_revision
        for change in told:
            revision = change.record.revision
            if self._journal is not None:
                sequence = self._journal.append(encode_record(change.record))
                self._unsafe.append((sequence, revision, change.batch))
            else:
                self._publish(revision, change.batch)
        self._arm()

    def _on_safe(self) -> None:
        assert self._journal is not None
        safe = self._journal.safe
        while self._unsafe and self._unsafe[0][0] <= safe:
            _, revision, batch = self._unsafe.popleft()
            self._publish(revision, batch)

    def _publish(self, revision: int, batch: WatchBatch | None) -> None:
        self.safe_revision = revision
        if batch is not None:
            for watcher in self._watchers.publish(batch):
                self._readers[watcher]()

    def _arm(self) -> None:
        """Set a timer for the next expiring lease. A timer that comes too early looks again."""
        deadline_s = self.state.deadline()
        if self._timer is not None:
            if deadline_s is not None and self._timer_s <= deadline_s:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_s is None or self._loop is None or self._closed:
            return
        self._timer_s = deadline_s
        delay_s = max(deadline_s - self._clock.monotonic(), _TIMER_S_MIN)
        self._timer = self._loop.call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.failure is not None:
            return
        self._tick(self._clock.monotonic())
        self._record()

    def _tick(self, now: float) -> None:
        stalls_count = self.state.stalls_count
        self.state.tick(now=now)
        if self.state.stalls_count > stalls_count:
            logger.warning(
                "the store stood still for longer than a lease: all leases have their whole time again"
            )


class _SafeLog:
    """The log up to the safe revision, as watchers may see it."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served

    @property
    def revision(self) -> int:
        return self._served.safe_revision

    @property
    def compacted_revision(self) -> int:
        return self._served.state.compacted_revision

    def log(self, start_revision: int, count_max: int) -> Sequence[WatchBatch]:
        batches = self._served.state.log(start_revision, count_max)
        return [batch for batch in batches if batch.revision <= self._served.safe_revision]

    def can_resume(self, start_revision: int) -> bool:
        return start_revision <= self.revision + 1 and self._served.state.can_resume(start_revision)
