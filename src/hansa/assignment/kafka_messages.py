"""The messages of a Kafka partition on their way from the consumer to a work.

One consumer receives for all partitions of a process. What it has for a partition waits in a `PartitionFlow`
of that work, which has a bound: when it is full the partition is paused, below half of the bound it goes on.
Nothing is thrown away for being too much. A flow belongs to one opening: what the consumer received before is
none of it.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, Protocol, Self, TypeVar

from hansa.runtime.mailboxes import Waiters


class Placed(Protocol):
    """What has an offset."""

    def offset(self) -> int | None: ...


M = TypeVar("M", bound=Placed)


class PartitionFlow(Generic[M]):
    """An async iterator over the messages of a partition from an offset on, in order. Ends after `stop`.

    Cancelling a step takes nothing out.
    """

    def __init__(self, next_offset: int, *, count_max: int) -> None:
        self.next_offset = next_offset
        """What is below it is not taken."""
        self._count_max = count_max
        self._waiting: deque[M] = deque()
        self._getters = Waiters()
        self._is_full = False
        self.is_stopped = False
        self.filled_count = 0
        """How often it was full."""

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_flowing(self) -> bool:
        """Whether more may come: not from when it is full until half of it was read."""
        if self._is_full and len(self._waiting) <= self._count_max // 2:
            self._is_full = False
        return not self.is_stopped and not self._is_full

    def put(self, message: M) -> bool:
        """Take a message, unless its place in the order is past, or the flow has stopped: says whether.

        It takes what comes after it is full: that was on its way.
        """
        offset = message.offset()
        if self.is_stopped or offset is None or offset < self.next_offset:
            return False
        self.next_offset = offset + 1
        self._waiting.append(message)
        if len(self._waiting) >= self._count_max and not self._is_full:
            self._is_full = True
            self.filled_count += 1
        self._getters.wake(1)
        return True

    def stop(self) -> None:
        """End: what waits is given to nobody here."""
        self.is_stopped = True
        self._waiting.clear()
        self._getters.wake_all()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> M:
        while not self._waiting:
            if self.is_stopped:
                raise StopAsyncIteration
            await self._getters.wait()
        return self._waiting.popleft()
