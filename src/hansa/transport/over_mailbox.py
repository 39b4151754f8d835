"""Hands what arrives in callbacks to tasks that wait for it: a deque and one wake-up per burst."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

from hansa.errors import AlreadyClosed, WouldBlock

T = TypeVar("T")


class Mailbox(Generic[T]):
    """An unbounded queue for one event loop; its owner bounds what it puts in.

    `asyncio.Queue` does the same with more per item. Cancelling `get` takes nothing out.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._items: deque[T] = deque()
        self._getters: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put_all(self, items: Iterable[T]) -> None:
        self._items.extend(items)
        self._wake()

    def put(self, item: T) -> None:
        self._items.append(item)
        self._wake()

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
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                if getter in self._getters:
                    self._getters.remove(getter)
                else:
                    self._wake()  # The wake-up that this task will not use goes to the next one.
                raise
        return self.get_nowait()

    def close(self) -> None:
        """What is in it can still be taken; then getters end."""
        self._closed = True
        while self._getters:
            self._release(self._getters.popleft())

    def _wake(self) -> None:
        for _ in range(min(len(self._getters), len(self._items))):
            self._release(self._getters.popleft())

    @staticmethod
    def _release(getter: asyncio.Future[None]) -> None:
        if not getter.done():
            getter.set_result(None)
