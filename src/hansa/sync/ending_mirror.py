"""Blocking objects whose waiting calls end with them, whatever lives on behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hansa.errors import AlreadyClosed
from hansa.sync.mirror import Mirror

T = TypeVar("T")


class EndingMirror(Mirror):
    """A mirror whose closing ends all calls that wait, with AlreadyClosed.

    What it mirrors would not always do that: a store in memory lives on with its other users, and a session
    that is left tells those who wait that it is lost.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # Of the loop's thread alone.
        self._calls: dict[asyncio.Task[Any], None] = {}
        self._is_ending = False

    def _open(self, make_work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        async def begin() -> None:
            await make_work()
            self._is_ending = False

        super()._open(begin)

    def _close(self, make_work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        async def end() -> None:
            self._is_ending = True
            for task in self._calls:
                task.cancel()
            await make_work()

        super()._close(end)

    def _call(self, make_work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        return super()._call(lambda: self._until_the_end(make_work, what), what)

    def _check_process(self) -> None:
        """Before what any thread may read without asking the loop: raises UsageError after a fork."""
        steps = self._steps
        if steps is not None and (refusal := steps.refusal) is not None:
            raise type(refusal)(str(refusal))

    async def _until_the_end(self, make_work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        if self._is_ending:
            raise AlreadyClosed(f"{what} of {self.name}: it is closed")
        task = asyncio.current_task()
        assert task is not None
        self._calls[task] = None
        try:
            return await make_work()
        finally:
            del self._calls[task]
