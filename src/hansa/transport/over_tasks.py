"""Tasks with a parent. The one place that starts them: everything started here is gone after `close`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
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
