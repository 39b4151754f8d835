"""The life of a store that is elsewhere: its event loop, its callers, and how they are released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from math import inf
from typing import Any, Final, TypeVar

from hansa.errors import AlreadyClosed, StoreUnavailable, TimedOut, UsageError
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import Waiters
from hansa.store.etcd.rotation import Trail

T = TypeVar("T")

# A clock that rounds must not make the loop spin.
_EARLY_S_MAX: Final = 0.001


class _Limit:
    """When a call ends at the latest. Then the task that makes it is cancelled, as by `asyncio.timeout`."""

    __slots__ = ("_cancels_count", "_task", "deadline_s", "is_over")

    def __init__(self, task: asyncio.Task[Any], deadline_s: float) -> None:
        self._task: asyncio.Task[Any] | None = task
        # Of others, who want the task ended and not the call.
        self._cancels_count = task.cancelling()
        self.deadline_s = deadline_s
        self.is_over = False

    def end(self) -> None:
        if not self.is_over and self._task is not None:
            self.is_over = True
            self._task.cancel()

    def lift(self) -> bool:
        """The call has ended. Says whether it was cancelled by this, and by nobody else; twice is once."""
        # Forgotten: an error knows the frame that knows this, in a circle with the task. What the call holds
        # (a connection) would stay open until the garbage collector comes.
        task, self._task = self._task, None
        return self.is_over and task is not None and task.uncancel() <= self._cancels_count


class StoreLife:
    """From opening to closing. Every call goes through `within`, so that closing ends it.

    One timer rings for all calls (a timer for each was a tenth of what a call costs: `make bench`, store).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._home: Home | None = None
        self._users_count = 0
        self._limits: dict[_Limit, None] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = inf
        self._context: Context | None = None
        self._left = Waiters()
        self.is_closed = False

    def enter(self) -> bool:
        """One more user; says whether it is the first. Raises `AlreadyClosed`, `UsageError`."""
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} is closed: make another one")
        if self._home is None:
            self._home = Home(f"store {self._name}", "open one for this loop")
            # The timer's: who set it may be gone when it rings.
            self._context = copy_context()
        self.check_usable()
        self._users_count += 1
        return self._users_count == 1

    def leave(self) -> bool:
        """One user less; says whether it was the last. From then on it is closed, and all calls end."""
        self._users_count -= 1
        if self._users_count:
            return False
        self.close()
        return True

    def close(self) -> None:
        """From now on it is closed, and all calls end."""
        self.is_closed = True
        for limit in self._limits:
            limit.end()

    async def left(self) -> None:
        """Wait until every call has ended."""
        while self._limits:
            await self._left.wait()
        if self._alarm is not None:
            self._alarm.cancel()

    def check_usable(self) -> asyncio.AbstractEventLoop:
        """Its loop. Raises `AlreadyClosed`, and `UsageError` outside of `async with` and in another loop."""
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} is closed")
        home = self._home
        if home is None:
            raise UsageError(f"store {self._name} is not open: use it inside `async with`")
        # Not `home.check()`: every call comes this way (`make bench`, store).
        if asyncio._get_running_loop() is not home.loop:
            home.check()
        return home.loop

    async def within(self, work: Callable[[Trail], Awaitable[T]], timeout: float | None, trail: Trail) -> T:
        """Do it before the deadline.

        Raises `TimedOut` when it may have been done, `StoreUnavailable` when it surely was not,
        `AlreadyClosed` when the store was closed before it was done.
        """
        limit = self._begin(timeout)
        try:
            return await work(trail)
        except asyncio.CancelledError:
            if not limit.lift():
                raise
        finally:
            limit.lift()
            del self._limits[limit]
            if self.is_closed:
                self._left.wake_all()
        # Not inside of `except`: an error remembers the one before it, which closes the circle of `lift`.
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} was closed")
        text = f"store {self._name} did not answer within {timeout} s: {trail.last_text}"
        raise TimedOut(text) if trail.may_be_done else StoreUnavailable(text)

    def _begin(self, timeout: float | None) -> _Limit:
        loop, task = self.check_usable(), asyncio.current_task()
        if task is None:
            raise UsageError(f"store {self._name} is called from a task, and not from a callback")
        if timeout is None:
            deadline_s = inf
        elif timeout > 0.0:
            deadline_s = loop.time() + timeout
        else:
            raise TimedOut(f"store {self._name} was given no time to answer")
        limit = _Limit(task, deadline_s)
        self._limits[limit] = None
        if deadline_s < self._alarm_s:
            self._set_alarm(loop, deadline_s)
        return limit

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, at_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = at_s
        self._alarm = None if at_s == inf else loop.call_at(at_s, self._ring, loop, context=self._context)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what is late, and be called again for the next that is still under way."""
        late_s = loop.time() + _EARLY_S_MAX
        next_s = inf
        for limit in self._limits:
            if limit.deadline_s <= late_s:
                limit.end()
            else:
                next_s = min(next_s, limit.deadline_s)
        self._set_alarm(loop, next_s)
