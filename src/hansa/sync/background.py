"""The one thread with the one event loop behind all blocking objects of a process.

Any thread hands *steps* to the loop and waits for them on a plain lock, the cheapest thing that one thread
can wait for another on, and one that Ctrl-C interrupts. Steps go through a deque, and only the first after
the loop has emptied it wakes the loop: many threads that call at once share one wake-up.

The thread starts with the first object that is opened and has ended when the last one is closed. A step is
carried out or refused, never forgotten: what is posted too late is refused by whoever notices first, the
thread that ends or the thread that posts.
"""

from __future__ import annotations

import asyncio
import os
import threading
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from hansa.errors import AlreadyClosed, HansaError, Unavailable, UsageError
from hansa.transport.over_tasks import TaskScope

T = TypeVar("T")


class Step(Protocol):
    """Something to do in the loop's thread. One of the two is called, once, and neither may raise."""

    def run(self) -> None: ...

    def refuse(self, error: HansaError) -> None: ...


class Background:
    """A thread that runs an event loop, for as long as somebody holds it."""

    def __init__(self) -> None:
        self.holders_count = 0
        self.ident = 0
        self.loop: asyncio.AbstractEventLoop
        self._steps: deque[Step] = deque()
        self._is_woken = False
        self._refusal: HansaError | None = None
        self._stopping: asyncio.Event
        self._tasks = TaskScope("hansa.sync", self._task_failed)
        self._started = threading.Event()
        # A daemon, so that a program that forgot to close an object can still end.
        self._thread = threading.Thread(target=self._main, name="hansa.sync", daemon=True)

    # -- life

    def start(self) -> None:
        """Return when the loop runs. Raises Unavailable when the system has no room for one."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise Unavailable(f"hansa.sync cannot start its thread: {error}") from error
        self._started.wait()
        if self._refusal is not None:
            raise Unavailable("hansa.sync cannot start its event loop; its thread has told why")

    def stop(self) -> None:
        """End the loop and wait for the thread."""
        self.post(Order(self._stopping.set))
        self._thread.join()

    def forked(self) -> None:
        """This is a copy in a child process, without the thread: whatever it is asked for is refused."""
        self._refusal = UsageError(
            "this object was made before a fork and belongs to the parent process: make a new one here"
        )
        self._steps = deque()
        self._is_woken = True  # The loop, whose pipe the parent still reads, is never woken from here.

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._live())
        finally:
            self._refusal = self._refusal or AlreadyClosed("the object was closed while the call waited")
            self._started.set()
            self._refuse_rest()

    async def _live(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.ident = get_ident()
        self._stopping = asyncio.Event()
        self._started.set()
        await self._stopping.wait()
        # First: what begins now would not be waited for.
        self._refusal = AlreadyClosed("the object was closed before the call")
        await self._tasks.close()

    # -- work for the loop

    def post(self, step: Step) -> None:
        """Have this step done in the loop's thread, soon and in order; callable from any thread."""
        self._steps.append(step)
        # Without a lock: `_take` clears the flag before it takes, so a step is either seen by it or finds the
        # flag down. Two that find it down wake the loop twice, which does no harm.
        if not self._is_woken:
            self._is_woken = True
            with suppress(RuntimeError):  # Closed: there is a refusal then.
                self.loop.call_soon_threadsafe(self._take)
        if self._refusal is not None:
            self._refuse_rest()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that ends with the loop; only in the loop's thread."""
        return self._tasks.spawn(work, name)

    def run(self, function: Callable[[], T]) -> T:
        """What the function returns or raises, called in the loop's thread. It must not block."""
        if get_ident() == self.ident:
            return function()
        asked = _Asked(function)
        self.post(asked)
        return asked.wait()

    def call(self, make_work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Run a coroutine in the loop and wait for what comes of it.

        An interrupt (Ctrl-C) while it waits cancels the coroutine, waits for its end, and is raised then.
        Raises UsageError in the loop's own thread, where waiting would stop everything.
        """
        self.check_not_inside(what)
        job = _Job(self, make_work, what)
        self.post(job)
        return job.wait()

    def check_not_inside(self, what: str) -> None:
        """Raises UsageError in the loop's own thread."""
        if get_ident() == self.ident:
            raise UsageError(
                f"{what} waits, and this is the thread that everybody waits for: do not call it from a "
                "callback, hand the work to a thread of yours"
            )

    def _take(self) -> None:
        self._is_woken = False
        if self._refusal is not None:
            self._refuse_rest()
        steps = self._steps
        # As many as there are now: whoever posts without end must not keep the loop from its sockets.
        for _ in range(len(steps)):
            steps.popleft().run()

    def _refuse_rest(self) -> None:
        error = self._refusal
        assert error is not None
        while True:
            try:
                step = self._steps.popleft()
            except IndexError:
                return
            step.refuse(error)

    def _task_failed(self, error: BaseException) -> None:
        self.loop.call_exception_handler({"message": "a task of hansa.sync failed", "exception": error})


class Outcome(Generic[T]):
    """Something that one thread waits for and the loop's thread supplies, once."""

    __slots__ = ("_error", "_lock", "_value", "is_settled")

    def __init__(self) -> None:
        self.is_settled = False
        self._lock = allocate_lock()
        self._lock.acquire()
        self._error: BaseException | None = None
        self._value: T

    def succeed(self, value: T) -> None:
        self._value = value
        self.is_settled = True
        self._lock.release()

    def fail(self, error: BaseException) -> None:
        self._error = error
        self.is_settled = True
        self._lock.release()

    def refuse(self, error: HansaError) -> None:
        # Each its own: a traceback grows on the error that is raised.
        self.fail(type(error)(str(error)))

    def wait(self) -> T:
        self._lock.acquire()
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The error's traceback knows this frame: without this it would know itself.
                del self._error
        return self._value


class Order:
    """A step that nobody waits for."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def run(self) -> None:
        self._function()

    def refuse(self, error: HansaError) -> None:
        pass


class _Asked(Outcome[T]):
    """A function call in the loop's thread."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__()
        self._function = function

    def run(self) -> None:
        try:
            self.succeed(self._function())
        except BaseException as error:
            self.fail(error)


class _Job(Outcome[T]):
    """A coroutine in the loop."""

    __slots__ = ("_background", "_make_work", "_task", "_what")

    def __init__(
        self, background: Background, make_work: Callable[[], Coroutine[Any, Any, T]], what: str
    ) -> None:
        super().__init__()
        self._background = background
        self._make_work = make_work
        self._what = what
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        self._task = self._background.spawn(self._work(), self._what)
        self._task.add_done_callback(self._ended)

    async def _work(self) -> None:
        try:
            value = await self._make_work()
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)
        else:
            self.succeed(value)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # Also when it was cancelled before its first step, which nothing inside it would see.
        if task.cancelled():
            self.fail(AlreadyClosed(f"{self._what} was given up"))

    def wait(self) -> T:
        try:
            return super().wait()
        except BaseException:
            # Its own error, or an interrupt of this thread. Then what it began must end before going on.
            if not self.is_settled:
                self._background.post(Order(self._cancel))
                self._lock.acquire()
            raise

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


# ---- the one of this process -----------------------------------------------------------------------

_turn = threading.Lock()
_present: Background | None = None


def hold() -> Background:
    """The process's background thread, started if need be. Whoever holds it calls `release` once."""
    global _present
    with _turn:
        if _present is None:
            background = Background()
            background.start()
            _present = background
        _present.holders_count += 1
        return _present


def release(background: Background) -> None:
    """Hold it no longer; after the last holder's release the thread has ended."""
    global _present
    with _turn:
        background.holders_count -= 1
        is_last = background.holders_count == 0
        if is_last and _present is background:
            _present = None
    if is_last:
        background.stop()


def _after_fork_in_child() -> None:
    global _present, _turn
    # Whoever held the lock is a thread of the parent.
    _turn = threading.Lock()
    if _present is not None:
        _present.forked()
        _present = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed; None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
