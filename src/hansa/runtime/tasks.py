"""Tasks with a parent, and components that end once.

`TaskScope` is the one place that starts tasks: all of them have ended when its `close` returns. `Closing` is
for components that several tasks may close at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


class TaskScope:
    """A named group of tasks that may be opened and closed by different tasks, unlike `asyncio.TaskGroup`.

    A component lives from `__aenter__` to `__aexit__`, and blocking wrappers run these in different tasks,
    which a TaskGroup forbids. A task that fails is told to `on_failure`; it never fails unseen.
    """

    def __init__(self, name: str, on_failure: Callable[[BaseException], None]) -> None:
        self._name = name
        self._on_failure = on_failure
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._closed = False

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}: {name}")
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    async def close(self, *, grace_s: float = 0.0) -> None:
        """Give tasks a while to end by themselves, cancel the rest, and wait until all have ended.

        Cancelling it takes the while away, and nothing else: the tasks have ended all the same.
        """
        try:
            if self._tasks and grace_s:
                await asyncio.wait(self._tasks, timeout=grace_s)
        finally:
            tasks = [task for task in self._tasks if not task.done()]
            for task in tasks:
                task.cancel()
            await _ended(tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)


class Closing:
    """The one end of a component, however many tasks ask for it: all of them return when it has ended.

    Who comes second waits for the first. A first one that failed, or was cancelled, did not come to the end:
    the next one closes again, which must do no harm.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._is_done = False

    async def once(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close, unless that was done before. The first to come begins before anybody else runs."""
        async with self._turn:
            if not self._is_done:
                await close()
                self._is_done = True


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all have ended. Whoever is cancelled meanwhile is so afterwards: they are cancelled too."""
    cancelled: asyncio.CancelledError | None = None
    while tasks := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
