"""A lease kept alive by a task of the event loop, for stores that live in the loop themselves.

It must: ask every interval, from one question to the next; sooner after a failure; believe an answer from
when the question was asked; tell of each answer and each failure; and end when the lease is lost or the store
is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from hansa.errors import AlreadyClosed, LeaseLost, StoreUnavailable, TimedOut
from hansa.store.store import Store
from hansa.transport.over_tasks import TaskScope

logger = logging.getLogger(__name__)

# After a renewal that failed the next one comes sooner, so that one lost answer costs little of the lease.
_HASTE: Final = 4


class LoopKeeping:
    """A `Keeping`. A loop that is stuck renews nothing, so `loop_silence_s_max` needs no clock of its own."""

    def __init__(
        self,
        store: Store,
        lease: int,
        *,
        ttl_s: float,
        granted_s: float,
        interval_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self._store = store
        self._lease = lease
        self._ttl_s = ttl_s
        self._interval_s = interval_s
        self._on_change = on_change
        self._kept_until_s = granted_s + ttl_s
        self._is_lost = False
        self._failures_count = 0
        self._due_s = granted_s + interval_s
        self._lag_s = 0.0
        self._tasks = TaskScope(f"lease {lease:x}", self._failed)
        self._task = self._tasks.spawn(self._renew_all(), "renewing")

    @property
    def kept_until_s(self) -> float:
        return self._kept_until_s

    @property
    def is_lost(self) -> bool:
        return self._is_lost

    @property
    def failures_count(self) -> int:
        return self._failures_count

    @property
    def loop_lag_s(self) -> float:
        return self._lag_s

    def stop(self) -> None:
        self._task.cancel()

    async def stopped(self) -> None:
        await self._tasks.close()

    def lose(self) -> None:
        """The store is not the one that granted it: whatever it answers, the lease is gone."""
        if self._task.cancelling() or self._task.done():
            return
        self._is_lost = True
        self._task.cancel()
        self._on_change()

    async def _renew_all(self) -> None:
        clock = self._store.clock
        while not self._is_lost:
            await asyncio.sleep(self._due_s - clock.monotonic())
            sent_s = clock.monotonic()
            self._lag_s = max(sent_s - self._due_s, 0.0)
            try:
                ttl_s = await self._store.keep_alive(self._lease, timeout=self._interval_s)
            except LeaseLost:
                self._is_lost = True
            except (StoreUnavailable, TimedOut):
                self._failures_count += 1
                self._due_s = clock.monotonic() + self._interval_s / _HASTE
            except AlreadyClosed:
                return
            else:
                self._failures_count = 0
                self._kept_until_s = sent_s + min(ttl_s, self._ttl_s)
                self._due_s = sent_s + self._interval_s
            self._on_change()

    def _failed(self, error: BaseException) -> None:
        logger.error("lease %x is renewed no more: %s", self._lease, error, exc_info=error)
