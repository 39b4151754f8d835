"""Tasks with a parent, components that end once, calls that block, and losses that cancel work.

`TaskScope` is the one place that starts tasks: all of them have ended when its `close` returns. `Closing` is
for components that several tasks may close at the same time. `in_thread` runs a call that may block for ever.
A `Loss` is the loss of something that is owned, which may come once and for good; a `GuardedBlock` is
cancelled when it comes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from hansa.errors import Fenced, UsageError
from hansa.runtime.mailboxes import Waiters

T = TypeVar("T")
E = TypeVar("E", bound=Fenced)


class TaskScope:
    """A named group of tasks that may be opened and closed by different tasks, unlike `asyncio.TaskGroup`.

    A component lives from `__aenter__` to `__aexit__`, and blocking wrappers run these in different tasks,
    which a TaskGroup forbids. A failure of a task is reported to `on_failure`; it never stays unseen.
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
        """Give tasks `grace_s` to end by themselves, cancel the rest, and wait until all have ended.

        Cancelling it ends the grace, and nothing else: the tasks have ended all the same.
        """
        try:
            if self._tasks and grace_s:
                await asyncio.wait(self._tasks, timeout=grace_s)
        finally:
            tasks = [task for task in self._tasks if not task.done()]
            for task in tasks:
                task.cancel()
            await _ended(tasks)

    def cancel(self) -> None:
        """Cancel all tasks without waiting for their ends, which `close` does."""
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)


class Closing:
    """The one end of a component, however many tasks ask for it: all of them return when it has ended.

    Later callers wait for the first one. If the first one failed, or was cancelled, it did not come to the
    end: the next caller closes again, which must do no harm.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._is_done = False

    async def once(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close, unless that was done before. The first caller begins before any other task runs."""
        async with self._turn:
            if not self._is_done:
                await close()
                self._is_done = True


async def _ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all have ended. A cancellation meanwhile takes effect after that: they are cancelled too."""
    cancelled: asyncio.CancelledError | None = None
    while tasks := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def in_thread(call: Callable[[], T], name: str) -> tuple[asyncio.Future[T], threading.Thread]:
    """Run one blocking call in a thread of its own; returns the future of its outcome, and the thread.

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
        with suppress(RuntimeError):  # The loop has ended, and nobody waits any longer.
            loop.call_soon_threadsafe(settle, result, error)

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return outcome, thread


class Loss(Generic[E]):
    """A loss that may come. The first error counts; belongs to one event loop."""

    def __init__(self) -> None:
        self._error: E | None = None
        self._waiters = Waiters()
        self._callbacks: dict[Callable[[], None], None] = {}

    @property
    def error(self) -> E | None:
        return self._error

    def set(self, error: E) -> None:
        """It is lost. Callbacks run before this returns, each once."""
        if self._error is not None:
            return
        self._error = error
        self._waiters.wake_all()
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks:
            callback()

    def call_back(self, callback: Callable[[], None]) -> None:
        """Call `callback` when it is lost: at the loop's next turn if it is already."""
        if self._error is not None:
            asyncio.get_running_loop().call_soon(callback)
        else:
            self._callbacks[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call it. A callback that was never given, or was already called, is fine."""
        self._callbacks.pop(callback, None)

    def check(self) -> None:
        """Raise the error if it is lost."""
        if self._error is not None:
            raise again(self._error)

    async def wait(self) -> E:
        """Wait until it is lost; returns the error, and does not raise it. Cancelling it changes nothing."""
        while self._error is None:
            await self._waiters.wait()
        return self._error


def again(error: E) -> E:
    """A copy of the error to raise again: the traceback of one error raised twice would show both places."""
    copy = type(error)(str(error))
    copy.__cause__ = error.__cause__
    return copy


class GuardedBlock:
    """`async with GuardedBlock(loss)`: its body is cancelled at the loss; the block raises the error then.

    Of several losses the first one given is raised. With a timeout it is `asyncio.timeout` too, in one: it
    raises `TimeoutError`. As there, a cancellation from outside stays one, also when both come together;
    blocks may be nested and stand in or around task groups. If the body ended by itself after the loss, the
    block raises the error too: the end was no longer covered. The body's own errors take precedence.
    """

    def __init__(self, *losses: Loss[Any], timeout: float | None = None) -> None:
        self._losses = losses
        self._timeout_s = timeout
        self._task: asyncio.Task[object] | None = None
        self._cancelling_count = 0
        self._has_cancelled = False
        self._call: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._check()
        task = asyncio.current_task()
        if task is None:
            raise UsageError("a guarded block needs a task that can be cancelled")
        self._task = task
        self._cancelling_count = task.cancelling()
        for loss in self._losses:
            loss.call_back(self._lost)
        if self._timeout_s is not None:
            self._timer = asyncio.get_running_loop().call_later(max(self._timeout_s, 0.0), self._cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for loss in self._losses:
            loss.forget(self._lost)
        for handle in (self._call, self._timer):
            if handle is not None:
                handle.cancel()
        if self._has_cancelled and self._task is not None:
            still_count = self._task.uncancel()
            if still_count <= self._cancelling_count and kind is asyncio.CancelledError:
                self._check()
                raise TimeoutError from error
        if kind is None:
            self._check()

    def _check(self) -> None:
        for loss in self._losses:
            loss.check()

    def _lost(self) -> None:
        # In a turn of its own of the loop: a task that cancels itself would carry that out of the block.
        if self._call is None:
            self._call = asyncio.get_running_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self._has_cancelled:
            self._has_cancelled = True
            self._task.cancel()
