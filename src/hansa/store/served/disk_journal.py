"""The journal's writer: all changes that wait are flushed together, off the event loop.

A change is safe when its record is flushed; until then nobody is told of it. While one flush runs, new
records wait for the next one, so a slow disk makes the groups larger and not the queue longer. A disk that
refuses a write or a flush is final: nobody knows what it kept of the last block, so nothing more is written
until the store is started again, and `error` says why. A moment after a flush, a mark beside the journal says
how far everything is flushed: the next start believes only that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hansa.errors import StoreUnavailable
from hansa.limits import STORE_JOURNAL_BYTES, STORE_MARK_S, STORE_UNFLUSHED_BYTES_MAX
from hansa.runtime.tasks import TaskScope
from hansa.store.served.folder import StoreFolder
from hansa.store.served.journal import encode_block
from hansa.store.served.records import Image

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class JournalStats:
    """What the journal has done since its start."""

    flushes_count: int = 0
    records_count: int = 0
    bytes_count: int = 0
    snapshots_count: int = 0
    failed_snapshots_count: int = 0


class DiskJournal:
    """Makes records safe, in their order. Belongs to one event loop.

    `image` must return the store as it is after the last appended record; `on_safe` is called after each
    flush, and after the one that failed.
    """

    def __init__(
        self,
        folder: StoreFolder,
        image: Callable[[], Image],
        on_safe: Callable[[], None],
        *,
        fsync: bool = True,
        snapshot_bytes: int = STORE_JOURNAL_BYTES,
    ) -> None:
        self.stats = JournalStats()
        self.error: StoreUnavailable | None = None
        self._folder = folder
        self._image = image
        self._on_safe = on_safe
        self._fsync = fsync
        self._snapshot_bytes = snapshot_bytes
        self.appended = folder.next_sequence - 1
        """The number of the last record that was appended."""
        self.safe = self._marked = self.appended
        """The number of the last record that is flushed, with all before it."""
        self._waiting: list[bytes] = []
        self._unflushed_bytes = 0
        self._journal_bytes = folder.journal_bytes
        self._last_snapshot_bytes = 0
        self._snapshot_callers: list[asyncio.Future[None]] = []
        self._callers: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._tasks = TaskScope("journal", self._failed)
        # One thread writes blocks, another one snapshots, so that no block waits for a snapshot.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="hansa journal")
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="hansa snapshot")
        self._snapshot_task: asyncio.Task[None] | None = None
        self._mark_timer: asyncio.TimerHandle | None = None
        self._is_mark_due = False
        self._closing = False
        self._task = self._tasks.spawn(self._flush_all(), "flushing")

    @property
    def is_full(self) -> bool:
        """Whether the maximum waits for the disk."""
        return self._unflushed_bytes > STORE_UNFLUSHED_BYTES_MAX

    def append(self, record: bytes) -> int:
        """Have a record written; returns its number. Records of one turn of the loop become safe together."""
        self.appended += 1
        self._waiting.append(record)
        self._unflushed_bytes += len(record)
        self._wake.set()
        return self.appended

    async def until_safe(self, sequence: int) -> None:
        """Wait until this record and all before it are flushed. Raises `StoreUnavailable` if they cannot be.

        They may be on the disk all the same. Cancelling it changes nothing.
        """
        if sequence <= self.safe:
            return
        if self.error is not None:
            raise self.error
        caller = asyncio.get_running_loop().create_future()
        self._callers.append((sequence, caller))
        await caller

    async def snapshot(self) -> None:
        """Take a snapshot now, and wait for it. Raises `StoreUnavailable` if it cannot be written."""
        if self.error is not None:
            raise self.error
        caller = asyncio.get_running_loop().create_future()
        self._snapshot_callers.append(caller)
        self._wake.set()
        await caller

    async def close(self) -> None:
        """Flush what waits, and end the threads. The folder is the caller's to close."""
        self._closing = True
        if self._mark_timer is not None:
            self._mark_timer.cancel()
        self._wake.set()
        await asyncio.wait([self._task])
        if self._snapshot_task is not None:
            await asyncio.wait([self._snapshot_task])
        await self._tasks.close()
        self._writer.shutdown()
        self._copier.shutdown()

    async def _flush_all(self) -> None:
        while self.error is None:
            if self._is_mark_due:
                await self._mark()
            elif self._waiting or self._is_snapshot_due():
                await self._flush()
            elif not self._closing:
                self._wake.clear()
                await self._wake.wait()
            elif self._fsync and self._marked < self.safe:
                await self._mark()
            else:
                return
        await self._do(self._folder.mark_failed)

    async def _flush(self) -> None:
        records, self._waiting = self._waiting, []
        first, last = self.safe + 1, self.safe + len(records)
        # The store is in the state after the last of these records now: the moment for an image of it.
        image = self._image() if self._is_snapshot_due() else None
        try:
            if records:
                await self._do(lambda: self._write(first, records))
            if image is not None:
                await self._do(lambda: self._folder.begin_segment(last + 1))
        except OSError as error:
            self._give_up(error)
            return
        self.safe = last
        self.stats.flushes_count += 1
        self.stats.records_count += len(records)
        self._unflushed_bytes -= sum(map(len, records))
        self._expect_mark()
        while self._callers and self._callers[0][0] <= last:
            _tell([self._callers.popleft()[1]], None)
        self._on_safe()
        if image is not None:
            self._marked = last
            self._journal_bytes = 0
            callers, self._snapshot_callers = self._snapshot_callers, []
            self._snapshot_task = self._tasks.spawn(self._keep(image, last, callers), "snapshot")

    def _expect_mark(self) -> None:
        if self._fsync and self._mark_timer is None and not self._closing:
            self._mark_timer = asyncio.get_running_loop().call_later(STORE_MARK_S, self._want_mark)

    def _want_mark(self) -> None:
        self._mark_timer = None
        self._is_mark_due = True
        self._wake.set()

    async def _mark(self) -> None:
        self._is_mark_due = False
        safe = self.safe
        try:
            await self._do(lambda: self._folder.mark_flushed(safe))
        except OSError as error:
            self._give_up(error)
        else:
            self._marked = safe

    async def _do(self, work: Callable[[], None]) -> None:
        if self._fsync:
            await asyncio.get_running_loop().run_in_executor(self._writer, work)
        else:
            # It only writes into the system's memory, which is quicker than going to a thread and back.
            work()

    def _write(self, first: int, records: list[bytes]) -> None:
        block = encode_block(first, records)
        self._folder.append(block)
        self._journal_bytes += len(block)
        self.stats.bytes_count += len(block)

    def _is_snapshot_due(self) -> bool:
        if self._snapshot_task is not None:
            return False
        due = self._journal_bytes > max(self._snapshot_bytes, self._last_snapshot_bytes)
        return due or bool(self._snapshot_callers)

    async def _keep(self, image: Image, sequence: int, callers: list[asyncio.Future[None]]) -> None:
        loop = asyncio.get_running_loop()
        failure: StoreUnavailable | None = StoreUnavailable(f"no snapshot was made of {self._folder.path}")
        try:
            self._last_snapshot_bytes = await loop.run_in_executor(
                self._copier, self._folder.write_snapshot, image, sequence
            )
            self.stats.snapshots_count += 1
            failure = None
        except OSError as error:
            # Nothing is lost by it: the journal has everything. It is tried again after the next bytes.
            self.stats.failed_snapshots_count += 1
            failure = StoreUnavailable(f"no snapshot could be written in {self._folder.path}: {error}")
            logger.error("%s", failure)
        finally:
            self._snapshot_task = None
            self._wake.set()
            _tell(callers, failure)

    def _give_up(self, error: OSError) -> None:
        self.error = StoreUnavailable(
            f"the journal in {self._folder.path} cannot be written ({error.strerror or error}):"
            " changes are refused until the store is started again"
        )
        self.error.__cause__ = error
        logger.error("%s", self.error)
        _tell([*(caller for _, caller in self._callers), *self._snapshot_callers], self.error)
        self._callers.clear()
        self._snapshot_callers.clear()
        self._on_safe()

    def _failed(self, error: BaseException) -> None:
        logger.error("the journal failed: %s", error, exc_info=error)
        if self.error is None:
            self._give_up(OSError(str(error)))


def _tell(callers: list[asyncio.Future[None]], failure: StoreUnavailable | None) -> None:
    """Wake the callers, or fail them. Callers that were cancelled meanwhile are left out."""
    for caller in callers:
        if caller.done():
            continue
        if failure is None:
            caller.set_result(None)
        else:
            caller.set_exception(failure)
