"""The life of a store that is elsewhere: whose loop it is, who waits for it, and how they are let go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from hansa.errors import AlreadyClosed, StoreUnavailable, TimedOut, UsageError
from hansa.store.etcd_rotation import Trail
from hansa.transport.over_waiters import Waiters

T = TypeVar("T")


class StoreLife:
    """From opening to closing. Every call goes through `within`, so that closing ends it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users_count = 0
        self._limits: dict[asyncio.Timeout, None] = {}
        self._left = Waiters()
        self.is_closed = False

    def enter(self) -> bool:
        """One more user; says whether it is the first. Raises `AlreadyClosed`, `UsageError`."""
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} is closed: make another one")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self.check_usable()
        self._users_count += 1
        return self._users_count == 1

    def leave(self) -> bool:
        """One user less; says whether it was the last. From then on it is closed, and all calls end."""
        self._users_count -= 1
        if self._users_count:
            return False
        self.is_closed = True
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(now)
        return True

    async def left(self) -> None:
        """Wait until every call has ended."""
        while self._limits:
            await self._left.wait()

    def check_usable(self) -> None:
        """Raises `AlreadyClosed`, and `UsageError` outside of `async with` and of its event loop."""
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} is closed")
        if self._loop is None:
            raise UsageError(f"store {self._name} is not open: use it inside `async with`")
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError(f"store {self._name} belongs to another event loop: open one for this loop")

    async def within(self, work: Callable[[Trail], Awaitable[T]], timeout: float | None, trail: Trail) -> T:
        """Do it before the deadline.

        Raises `TimedOut` when it may have been done, `StoreUnavailable` when it surely was not,
        `AlreadyClosed` when the store was closed before it was done.
        """
        self.check_usable()
        if timeout is not None and not timeout > 0.0:
            raise TimedOut(f"store {self._name} was given no time to answer")
        try:
            async with asyncio.timeout(timeout) as limit:
                self._limits[limit] = None
                try:
                    return await work(trail)
                finally:
                    del self._limits[limit]
                    self._left.wake_all()
                    # It knows the task, whose error knows this frame, in a circle: what the call holds (a
                    # connection) would stay open until the garbage collector comes.
                    del limit
        except TimeoutError:
            text = f"store {self._name} did not answer within {timeout} s: {trail.last_text}"
        # Not inside of `except`: an error remembers the one before it, which closes the same circle.
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} was closed")
        raise TimedOut(text) if trail.may_be_done else StoreUnavailable(text)
