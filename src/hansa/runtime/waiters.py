"""Tasks that wait in line until a callback wakes them."""

from __future__ import annotations

import asyncio
from collections import deque


class Waiters:
    """A line of waiting tasks. Being woken promises nothing: look again at what you waited for.

    Cancelling `wait` leaves the line; a wake-up that the task got and will not use goes to the next one.
    """

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._line)

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._line:
                self._line.remove(waiter)
            else:
                self.wake(1)
            raise

    def wake(self, count: int) -> None:
        """Wake up to so many, those that came first."""
        for _ in range(min(count, len(self._line))):
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def wake_all(self) -> None:
        self.wake(len(self._line))
