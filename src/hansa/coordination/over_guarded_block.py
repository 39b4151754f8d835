"""A block of work that is cancelled when what it stands on is lost."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Generic, Self, TypeVar

from hansa.coordination.over_loss import Loss
from hansa.errors import Fenced, UsageError

E = TypeVar("E", bound=Fenced)


class GuardedBlock(Generic[E]):
    """`async with GuardedBlock(loss)`: its body is cancelled at the loss; the block raises the error then.

    As with `asyncio.timeout`, a cancellation from outside stays one, also when both come together; blocks may
    be nested and stand in or around task groups. A body that has ended by itself after the loss raises the
    error too: its end was not covered. Errors of the body's own go first.
    """

    def __init__(self, loss: Loss[E]) -> None:
        self._loss = loss
        self._task: asyncio.Task[object] | None = None
        self._cancelling_count = 0
        self._has_cancelled = False
        self._call: asyncio.Handle | None = None

    async def __aenter__(self) -> Self:
        self._loss.check()
        task = asyncio.current_task()
        if task is None:
            raise UsageError("a guarded block needs a task that can be cancelled")
        self._task = task
        self._cancelling_count = task.cancelling()
        self._loss.call_back(self._lost)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loss.forget(self._lost)
        if self._call is not None:
            self._call.cancel()
        if self._has_cancelled and self._task is not None:
            still_count = self._task.uncancel()
            if still_count <= self._cancelling_count and kind is asyncio.CancelledError:
                self._loss.check()
        if kind is None:
            self._loss.check()

    def _lost(self) -> None:
        # In a turn of the loop's own: a task that cancels itself would carry that out of the block.
        self._call = asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        self._call = None
        if self._task is not None:
            self._has_cancelled = True
            self._task.cancel()
