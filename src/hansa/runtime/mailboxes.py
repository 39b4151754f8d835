"""Hands what callbacks deliver to tasks that wait for it: a deque, and one wake-up per burst."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from hansa.errors import AlreadyClosed, WouldBlock
from hansa.runtime.waiters import Waiters

T = TypeVar("T")


class Mailbox(Generic[T]):
    """An unbounded queue for one event loop; its owner bounds what it puts in.

    `asyncio.Queue` does the same with more per item. Cancelling `get` takes nothing out.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._items: deque[T] = deque()
        self._getters = Waiters()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put_all(self, items: Iterable[T]) -> None:
        self._items.extend(items)
        self._getters.wake(len(self._items))

    def put(self, item: T) -> None:
        self._items.append(item)
        self._getters.wake(1)

    def drop_oldest(self) -> None:
        self._items.popleft()

    def get_nowait(self) -> T:
        """Raises WouldBlock when nothing is there, AlreadyClosed when nothing will ever be."""
        if self._items:
            return self._items.popleft()
        if self._closed:
            raise AlreadyClosed(f"{self._what} is closed")
        raise WouldBlock(f"{self._what} has nothing yet")

    async def get(self) -> T:
        """Raises AlreadyClosed once the mailbox is closed and empty."""
        while not self._items and not self._closed:
            await self._getters.wait()
        return self.get_nowait()

    def close(self) -> None:
        """What is in it can still be taken; then getters end."""
        self._closed = True
        self._getters.wake_all()
