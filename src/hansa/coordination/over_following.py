"""Follows a prefix of a store through all that a watch can suffer.

`Copy` decides what is news; this drives. It must: read, then watch from the next revision, and take the read
over only when the watch is ready; close a watch that is not; after a failure drop the watch, tell of the
trouble and pause, once, also when the step is cancelled; begin its pauses anew after a good read; and end a
pause when closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Self

from hansa.chance import Chance
from hansa.coordination.following import Changed, Copy, Snapshot
from hansa.errors import Compacted, HansaError, StoreUnavailable, TimedOut, WatchOverrun
from hansa.limits import FOLLOW_RETRY_S_MAX, FOLLOW_RETRY_S_MIN, RECONNECT_JITTER, STORE_TIMEOUT_S
from hansa.store.store import Store, Watch
from hansa.store.values import KeyValue, as_bytes, as_key
from hansa.transport.backoff import Backoff
from hansa.transport.over_waiters import Waiters

logger = logging.getLogger(__name__)


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
        chance: Chance | None = None,
        on_trouble: Callable[[HansaError], None] | None = None,
    ) -> None:
        self._store = store
        self._prefix = as_key(prefix) if exact else as_bytes(prefix)
        self._exact = exact
        self._timeout_s = timeout
        self._on_trouble = on_trouble
        self._backoff = Backoff(
            s_min=FOLLOW_RETRY_S_MIN,
            s_max=FOLLOW_RETRY_S_MAX,
            jitter=RECONNECT_JITTER,
            chance=chance if chance is not None else Chance.system(),
        )
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
        return self._copy.read(scan)

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
