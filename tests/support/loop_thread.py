"""An event loop in a thread of its own, with steps into it, for tests that are the other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hansa.runtime.steps import LooseStep, Steps

T = TypeVar("T")
WITHIN_S = 10.0


class LoopThread:
    """Runs until it is told to leave. With `closes` False it leaves its steps open, as a program may."""

    def __init__(self, *, closes: bool = True) -> None:
        self.steps: Steps
        self._closes = closes
        self._leaving: asyncio.Event
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), name="test loop")
        self._thread.start()
        assert self._started.wait(WITHIN_S)

    async def _live(self) -> None:
        self.steps = Steps("test", "ask somebody else")
        self._leaving = asyncio.Event()
        self._started.set()
        await self._leaving.wait()
        if self._closes:
            await self.steps.close()

    def leave(self) -> None:
        self.steps.post(LooseStep(self._leaving.set))
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def inside(self, function: Callable[[], T]) -> T:
        """Call it in the loop's thread."""
        return self.steps.run(function)

    def awaited(self, make_work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Await it in the loop."""
        return self.steps.call(make_work, "the test")


@contextmanager
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    try:
        yield thread
    finally:
        thread.leave()
