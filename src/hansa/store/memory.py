"""The memory store: a store in this process; nothing is kept on disk, nothing is sent.

It belongs to one event loop and serves any number of its tasks. Each call lets the loop run once before it
acts. So a call that is cancelled has done nothing, and code that forgets that others act in between fails in
tests and not in production. After that the call is done in one go, which makes a transaction one.

`LoopKeeping` renews a lease with a task of the same event loop; the simulator's stores use it, too. It asks
every interval, counted from question to question, and sooner after a failure; it counts the time of an answer
from the moment the question was asked; it reports each answer and each failure; and it ends when the lease is
lost or the store closed.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Final, Generic, Self, TypeVar
from weakref import WeakValueDictionary

from hansa.clock import Clock
from hansa.errors import (
    AlreadyClosed,
    Compacted,
    HansaError,
    LeaseLost,
    StoreUnavailable,
    TimedOut,
    UsageError,
    WatchOverrun,
)
from hansa.limits import STORE_TIMEOUT_S
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import Bell, Waiters
from hansa.runtime.tasks import TaskScope
from hansa.store.engine import Engine
from hansa.store.store import Store, Watch
from hansa.store.values import (
    Compare,
    Delete,
    DeleteResult,
    Get,
    KeyValue,
    LeaseInfo,
    Operation,
    Outcome,
    Put,
    Scan,
    StoreStatus,
    WatchBatch,
    as_bytes,
    as_key,
    as_lease,
    as_revision,
    prefix_range,
)
from hansa.store.watching import Watcher, WatcherStage, WatchInterest
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

T = TypeVar("T")
WatchT = TypeVar("WatchT", bound=Watch)

# After a failed renewal the next one comes this much sooner, so that a lost answer costs little of the lease.
_HASTE: Final = 4
_TIMER_S_MIN: Final = 0.001


class EngineStore(Store, Generic[WatchT]):
    """The calls of a `Store` whose answers an `Engine` gives: one of its own, or one on a simulated host."""

    def __init__(self, *, name: str, clock: Clock, kind: str) -> None:
        self.name = name
        self._clock = clock
        self._kind = kind
        # Keepings that still renew: a task holds its keeping, and this does not.
        self._keepings: WeakValueDictionary[int, LoopKeeping] = WeakValueDictionary()

    @property
    def clock(self) -> Clock:
        return self._clock

    @abstractmethod
    async def _ask(self, act: Callable[[Engine, float], T], timeout: float | None) -> T:
        """Have the engine act, at its own time, and return the result. Raises its error, or `TimedOut`."""

    @abstractmethod
    def _check_usable(self) -> None:
        """Raise unless the store is open."""

    @abstractmethod
    def _watching(self, interest: WatchInterest, start_revision: int) -> WatchT: ...

    async def get(
        self, key: bytes | str, *, revision: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> KeyValue | None:
        wanted = as_key(key)
        as_revision(revision)
        return await self._ask(lambda engine, now: engine.get(wanted, revision=revision, now=now), timeout)

    async def scan(
        self,
        prefix_or_key: bytes | str,
        range_end: bytes | str | None = None,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Scan:
        start, end = prefix_range(prefix_or_key) if range_end is None else (prefix_or_key, range_end)
        what = Get(start, end, limit, keys_only)
        as_revision(revision)
        return await self._ask(lambda engine, now: engine.scan(what, revision=revision, now=now), timeout)

    async def put(
        self, key: bytes | str, value: bytes, *, lease: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> int:
        outcome = await self.commit((), (Put(key, value, lease),), timeout=timeout)
        return outcome.revision

    async def delete(self, key: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> bool:
        return await self._delete(Delete(key), timeout) > 0

    async def delete_prefix(self, prefix: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        return await self._delete(Delete(*prefix_range(prefix)), timeout)

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        # Copied: a call that is under way must not change with the caller's lists.
        parts = tuple(compares), tuple(then), tuple(otherwise)
        return await self._ask(lambda engine, now: engine.commit(*parts, now=now), timeout)

    async def grant(self, ttl: float, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        return await self._ask(lambda engine, now: engine.grant(ttl, now=now), timeout)

    async def keep_alive(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> float:
        as_lease(lease)
        return await self._ask(lambda engine, now: engine.renew(lease, now=now), timeout)

    def keep(
        self,
        lease: int,
        *,
        ttl: float,
        granted_s: float,
        interval: float,
        loop_silence_s_max: float,
        on_change: Callable[[], None],
    ) -> LoopKeeping:
        as_lease(lease)
        self._check_usable()
        keeping = LoopKeeping(
            self, lease, ttl_s=ttl, granted_s=granted_s, interval_s=interval, on_change=on_change
        )
        self._keepings[id(keeping)] = keeping
        return keeping

    async def revoke(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        as_lease(lease)
        await self._ask(lambda engine, now: engine.revoke(lease, now=now), timeout)

    async def lease_info(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> LeaseInfo | None:
        as_lease(lease)
        return await self._ask(lambda engine, now: engine.lease_info(lease, now=now), timeout)

    async def compact(self, revision: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        as_revision(revision)
        await self._ask(lambda engine, now: engine.compact(revision, now=now), timeout)

    def watch(
        self, prefix: bytes | str, *, start_revision: int = 0, before: bool = False, exact: bool = False
    ) -> WatchT:
        interest = WatchInterest(as_key(prefix) if exact else as_bytes(prefix), exact, before)
        self._check_usable()
        return self._watching(interest, start_revision)

    async def status(self, *, timeout: float | None = STORE_TIMEOUT_S) -> StoreStatus:
        revision = await self._ask(_revision_now, timeout)
        return StoreStatus(engine=self._kind, name=self.name, revision=revision)

    async def _delete(self, delete: Delete, timeout: float | None) -> int:
        outcome = await self.commit((), (delete,), timeout=timeout)
        return sum(result.count for result in outcome.results if isinstance(result, DeleteResult))


def _revision_now(engine: Engine, now: float) -> int:
    engine.tick(now=now)
    return engine.revision


class MemoryStore(EngineStore["MemoryWatch"]):
    """A `Store` in memory. See `Store` for what the calls promise.

    `async with` may be entered more than once; leaving the last time closes it, and what it held is gone.
    Calls from another event loop raise `UsageError`.
    """

    def __init__(self, *, environment: Environment | None = None, name: str = "memory") -> None:
        environment = environment or Environment()
        super().__init__(name=name, clock=environment.clock, kind="memory")
        self._engine = Engine(environment.chance)
        self._home: Home | None = None
        self._users_count = 0
        self._closed = False
        self._context: Context | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._is_paused = False
        self._resumed = Waiters()
        # By watcher, and not by watch: a watch that its user drops must not be kept alive here.
        self._readers: dict[Watcher, Bell] = {}
        self._thrown_away: deque[Watcher] = deque()

    def __repr__(self) -> str:
        return f"<MemoryStore {self.name!r} at revision {self._engine.revision}>"

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def __aenter__(self) -> Self:
        if self._closed:
            raise AlreadyClosed(f"store {self.name} is closed: make another one")
        if self._home is None:
            self._home = Home(f"store {self.name}", "open one for this loop")
            self._context = copy_context()
        self._check_usable()
        self._users_count += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users_count -= 1
        if not self._users_count:
            await self.close()

    def pause(self) -> None:
        """Stop answering, as a store that cannot be reached: calls wait for `resume` or their deadline.

        For tests of programs that use a store. Leases go on, and expire; watches tell of it after `resume`.
        """
        self._check_usable()
        self._is_paused = True

    def resume(self) -> None:
        """Answer again."""
        self._check_usable()
        self._is_paused = False
        self._resumed.wake_all()
        for readers in self._readers.values():
            readers.wake_all()

    def _watching(self, interest: WatchInterest, start_revision: int) -> MemoryWatch:
        watcher, error = None, None
        try:
            watcher = self._engine.watch(interest, as_revision(start_revision), now=self._now())
        except (Compacted, StoreUnavailable) as refusal:
            error = refusal
        finally:
            self._acted()
        return MemoryWatch(self, watcher, error)

    async def _ask(self, act: Callable[[Engine, float], T], timeout: float | None) -> T:
        await self._turn(timeout)
        try:
            return act(self._engine, self._now())
        finally:
            # Also after an error: leases may have expired before it.
            self._acted()

    async def _turn(self, timeout: float | None) -> None:
        """Let the loop run once, or until the store answers again. Raises `TimedOut`, `AlreadyClosed`."""
        self._check_usable()
        if timeout is not None and not timeout > 0.0:
            raise TimedOut(f"store {self.name} was given no time to answer")
        if self._is_paused:
            try:
                async with asyncio.timeout(timeout):
                    await self._answering()
            except TimeoutError:
                raise TimedOut(f"store {self.name} did not answer within {timeout} s") from None
        else:
            await asyncio.sleep(0)
        self._check_usable()

    async def _answering(self) -> None:
        while self._is_paused and not self._closed:
            await self._resumed.wait()

    def _check_usable(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"store {self.name} is closed")
        if self._home is None:
            raise UsageError(f"store {self.name} is not open: use it inside `async with`")
        self._home.check()

    def _now(self) -> float:
        return self._clock.monotonic()

    def _acted(self) -> None:
        for watcher in self._engine.news():
            self._readers[watcher].wake_all()
        while self._thrown_away:
            self._forget(self._thrown_away.popleft())
        self._arm()

    def _arm(self) -> None:
        """Set a timer for the next expiring lease. A timer that comes too early looks again."""
        deadline_s = self._engine.deadline()
        if self._timer is not None:
            if deadline_s is not None and self._timer_s <= deadline_s:
                return
            self._timer.cancel()
            self._timer = None
        if deadline_s is None or self._home is None:
            return
        self._timer_s = deadline_s
        # At least a moment: a clock that rounds must not make the loop spin.
        delay_s = max(deadline_s - self._now(), _TIMER_S_MIN)
        # In the store's own context: in the simulator the last caller may be gone when the timer comes.
        self._timer = self._home.loop.call_later(delay_s, self._expire, context=self._context)

    def _expire(self) -> None:
        self._timer = None
        self._engine.tick(now=self._now())
        self._acted()

    def _forget(self, watcher: Watcher) -> None:
        self._engine.unwatch(watcher)
        self._readers.pop(watcher, None)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._resumed.wake_all()
        # Not awaited: in the simulator the task of a host that was killed never ends.
        for keeping in list(self._keepings.values()):
            keeping.stop()
        for readers in self._readers.values():
            readers.wake_all()
        self._readers.clear()


class MemoryWatch:
    """A `Watch` of a memory store: see there. If it is thrown away without `close`, it costs nothing more."""

    def __init__(self, store: MemoryStore, watcher: Watcher | None, error: HansaError | None) -> None:
        self._store = store
        self._watcher = watcher
        self._error = error
        self._start_revision = 0 if watcher is None else watcher.next_revision
        self._closed = False
        self._readers = Bell()
        if watcher is not None:
            store._readers[watcher] = self._readers

    async def ready(self, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        self._check_open()
        await self._store._turn(timeout)
        self._check_open()
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._start_revision

    def take(self) -> WatchBatch | None:
        if self._closed:
            return None
        self._store._check_usable()
        if self._error is not None:
            # Without its old traceback: the same error is raised again and again.
            raise self._error.with_traceback(None)
        if self._watcher is None or self._store._is_paused:
            return None
        try:
            batch = self._store._engine.take(self._watcher)
        except (Compacted, WatchOverrun) as error:
            self._error = error
            self._store._readers.pop(self._watcher, None)
            raise
        if batch is None and self._is_catching_up:
            # A long past without anything that is wanted: let others run meanwhile.
            self._readers.wake_all()
        return batch

    def call_back(self, on_news: Callable[[], None]) -> None:
        self._readers.call_back(on_news)

    def close(self) -> None:
        self._closed = True
        self._readers.silence()
        if self._watcher is not None:
            self._store._forget(self._watcher)
        # A waiting step may be in either list of waiters.
        self._readers.wake_all()
        self._store._resumed.wake_all()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        while not self._closed:
            if (batch := self.take()) is not None:
                return batch
            if self._store._is_paused:
                await self._store._resumed.wait()
            elif self._is_catching_up:
                await asyncio.sleep(0)
            else:
                await self._readers.wait()
        raise StopAsyncIteration

    @property
    def _is_catching_up(self) -> bool:
        return self._watcher is not None and self._watcher.stage is WatcherStage.CATCHING_UP

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("this watch is closed")

    def __del__(self) -> None:
        # The garbage collector may run in the middle of anything, in any thread: the store handles it later.
        if self._watcher is not None and not self._closed:
            self._store._thrown_away.append(self._watcher)


class LoopKeeping:
    """A `Keeping` on the event loop. A stuck loop renews nothing, so `loop_silence_s_max` is not needed."""

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
        self.kept_until_s = granted_s + ttl_s
        self.is_lost = False
        self.failures_count = 0
        self._due_s = granted_s + interval_s
        self.loop_lag_s = 0.0
        self._tasks = TaskScope(f"lease {lease:x}", self._failed)
        self._task = self._tasks.spawn(self._renew_all(), "renewing")

    def stop(self) -> None:
        self._task.cancel()

    async def stopped(self) -> None:
        await self._tasks.close()

    def lose(self) -> None:
        """The store is not the one that granted the lease: whatever it answers, the lease is gone."""
        if self._task.cancelling() or self._task.done():
            return
        self.is_lost = True
        self._task.cancel()
        self._on_change()

    async def _renew_all(self) -> None:
        clock = self._store.clock
        while not self.is_lost:
            await asyncio.sleep(self._due_s - clock.monotonic())
            sent_s = clock.monotonic()
            self.loop_lag_s = max(sent_s - self._due_s, 0.0)
            try:
                ttl_s = await self._store.keep_alive(self._lease, timeout=self._interval_s)
            except LeaseLost:
                self.is_lost = True
            except (StoreUnavailable, TimedOut):
                self.failures_count += 1
                self._due_s = clock.monotonic() + self._interval_s / _HASTE
            except AlreadyClosed:
                return
            else:
                self.failures_count = 0
                self.kept_until_s = sent_s + min(ttl_s, self._ttl_s)
                self._due_s = sent_s + self._interval_s
            self._on_change()

    def _failed(self, error: BaseException) -> None:
        logger.error("lease %x is no longer renewed: %s", self._lease, error, exc_info=error)
