"""Tasks with a parent, components that end once, and calls that block.

`TaskScope` is the one place that starts tasks: all of them have ended when its `close` returns. `Closing` is
for components that several tasks may close at the same time. `in_thread` runs a call that may block for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


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


def in_thread(call: Callable[[], T], name: str) -> tuple[asyncio.Future[T], threading.Thread]:
    """Run one blocking call in a thread of its own; the future of its outcome, and the thread.

    Not an executor: those wait at the end of the program until every call has returned.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: OSError | None) -> None:
        if outcome.cancelled():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # type: ignore[arg-type]  # There is one unless there is an error.

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except OSError as problem:
            error = problem
        with suppress(RuntimeError):  # The loop has ended, and nobody waits any more.
            loop.call_soon_threadsafe(settle, result, error)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return outcome, thread
