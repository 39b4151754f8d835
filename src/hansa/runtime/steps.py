"""Steps: how any thread runs something in the thread of an event loop.

A thread hands a *step* to the loop and waits for it on a plain lock: nothing cheaper lets one thread wait for
another, and Ctrl-C ends the wait (`wait_for`). Steps go through a deque, and only the first step after the
loop has emptied it wakes the loop: threads that call at the same time share one wake-up.

A step is carried out or refused, never forgotten. A step that is posted too late is refused by whichever side
notices first: the loop that ends, or the thread that posts. After a fork the child process refuses
everything, because the loop is the parent's.
"""

from __future__ import annotations

import asyncio
import os
from _thread import LockType, allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Coroutine
from threading import main_thread
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from hansa.errors import AlreadyClosed, HansaError, UsageError
from hansa.limits import SIGNAL_LOOK_S
from hansa.runtime.tasks import TaskScope

T = TypeVar("T")


class Step(Protocol):
    """Something to do in the loop's thread. One of the two methods is called, once, and must not raise."""

    def run(self) -> None: ...

    def refuse(self, error: HansaError) -> None: ...


class Steps:
    """The way into the loop that runs where this is made, until it is closed or the loop ends."""

    def __init__(self, name: str, advice: str) -> None:
        """`advice` tells a caller from the loop's own thread what to do instead of waiting."""
        self.ident = get_ident()
        """The loop's thread; 0 once the loop has ended."""
        self.refusal: HansaError | None = None
        """Why all steps are refused; None while they are not."""
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._advice = advice
        self._steps: deque[Step] = deque()
        self._is_woken = False
        self._tasks = TaskScope(name, self._task_failed)
        self._tasks.spawn(self._last_as_long_as_the_loop(), "steps")
        _all_steps.add(self)

    def refuse(self, error: HansaError) -> None:
        """Refuse waiting and later steps. The first reason is the one that callers are told."""
        if self.refusal is None:
            self.refusal = error
        self.ident = 0  # The next thread that is started may get the number of one that has ended.
        self._refuse_rest()

    async def close(self) -> None:
        """Refuse later steps, and end those that have begun. Only in the loop's thread."""
        # First: a step that begins now would not be waited for.
        self.refuse(AlreadyClosed("the object was closed before the call"))
        await self._tasks.close()

    def forked(self) -> None:
        """This is a copy in a child process, without the loop: refuse everything."""
        # The waiting steps belong to threads that are not here.
        self._steps = deque()
        self._is_woken = True  # So that this copy never wakes the loop, whose pipe the parent still reads.
        self.ident = 0
        self.refusal = UsageError(
            "this object was made before a fork and belongs to the parent process: make a new one here"
        )

    # -- work for the loop

    def post(self, step: Step) -> None:
        """Have this step done in the loop's thread, soon and in order; callable from any thread."""
        self._steps.append(step)
        # Without a lock: `_take` clears the flag before it takes, so a step is either seen by it or finds the
        # flag cleared. Two threads that find it cleared wake the loop twice, which does no harm.
        if not self._is_woken:
            try:
                self._is_woken = True
                self._loop.call_soon_threadsafe(self._take)
            except RuntimeError:
                self.refuse(AlreadyClosed(f"the event loop of {self._name} is closed"))
            except BaseException:
                # An interrupt: perhaps the loop was not woken, and then the next thread must do it.
                self._is_woken = False
                raise
        if self.refusal is not None:
            self._refuse_rest()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task that ends with the loop; only in the loop's thread."""
        return self._tasks.spawn(work, name)

    def run(self, function: Callable[[], T]) -> T:
        """Call the function in the loop's thread; returns or raises what it does. It must not block."""
        if get_ident() == self.ident:
            return function()
        asked = _Asked(function)
        self.post(asked)
        return asked.wait()

    def call(self, make_work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Run a coroutine in the loop and wait for its result.

        An interrupt (Ctrl-C) while it waits cancels the coroutine, waits for its end, and is raised then.
        Raises UsageError in the loop's own thread, where waiting would stop everything.
        """
        self.check_not_inside(what)
        return Job(self, make_work, what).carry_out()

    def check_not_inside(self, what: str) -> None:
        """Raise UsageError in the loop's own thread."""
        if get_ident() == self.ident:
            raise UsageError(f"{what} waits, and this is the thread that everybody waits for: {self._advice}")

    def _take(self) -> None:
        self._is_woken = False
        if self.refusal is not None:
            self._refuse_rest()
            return
        steps = self._steps
        # As many as there are now: a thread that posts without end must not keep the loop from its sockets.
        for _ in range(len(steps)):
            steps.popleft().run()

    def _refuse_rest(self) -> None:
        error = self.refusal
        assert error is not None
        while True:
            try:
                step = self._steps.popleft()
            except IndexError:
                return
            step.refuse(error)

    async def _last_as_long_as_the_loop(self) -> None:
        """It is cancelled with all tasks when the loop ends, also if nobody has closed this before."""
        try:
            await self._loop.create_future()
        finally:
            self.refuse(AlreadyClosed(f"the event loop of {self._name} has ended"))

    def _task_failed(self, error: BaseException) -> None:
        self._loop.call_exception_handler({"message": f"a task of {self._name} failed", "exception": error})


def wait_for(lock: LockType, deadline_s: float | None = None) -> bool:
    """Wait until another thread releases the lock; False when none did by the deadline, on `monotonic`.

    A signal that comes just before the wait begins, or that the kernel gives to another thread, does not end
    a wait: it is noted for the main thread, which raises it when it runs again. So the main thread wakes now
    and then.
    """
    if get_ident() != main_thread().ident:
        return lock.acquire(True, -1 if deadline_s is None else max(0.0, deadline_s - monotonic()))
    while True:
        left_s = SIGNAL_LOOK_S if deadline_s is None else max(0.0, deadline_s - monotonic())
        if lock.acquire(True, min(left_s, SIGNAL_LOOK_S)):
            return True
        if deadline_s is not None and monotonic() >= deadline_s:
            return False


class Answer(Generic[T]):
    """A result that one thread waits for and the loop's thread supplies, once."""

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
        # A copy for each: a traceback grows on the error that is raised.
        self.fail(type(error)(str(error)))

    def wait(self) -> T:
        wait_for(self._lock)
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The error's traceback refers to this frame: without this there would be a cycle.
                del self._error
        return self._value


class LooseStep:
    """A step that nobody waits for."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def run(self) -> None:
        self._function()

    def refuse(self, error: HansaError) -> None:
        pass


class _Asked(Answer[T]):
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


class Job(Answer[T]):
    """A coroutine in the loop. Interrupting the thread that waits for it cancels it, and awaits its end."""

    __slots__ = ("_make_work", "_steps", "_task", "_what")

    def __init__(self, steps: Steps, make_work: Callable[[], Coroutine[Any, Any, T]], what: str) -> None:
        super().__init__()
        self._steps = steps
        self._make_work = make_work
        self._what = what
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        self._task = self._steps.spawn(self._work(), self._what)
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

    def carry_out(self) -> T:
        """Post it, and wait for its result."""
        try:
            self._steps.post(self)
            return self.wait()
        except BaseException:
            # Either its own error, or an interrupt of this thread.
            if not self.is_settled:
                self._give_up()
            raise

    def _give_up(self) -> None:
        """Return when all that has begun has ended. It may not even have been posted."""
        try:
            is_begun = self._steps.run(self._cancel)
        except HansaError:
            return  # Everything has ended.
        if is_begun:
            wait_for(self._lock)

    def _cancel(self) -> bool:
        """Returns whether there is something that will end."""
        if self._task is None:
            return False
        self._task.cancel()
        return True


# ---- after a fork ----------------------------------------------------------------------------------

_all_steps: WeakSet[Steps] = WeakSet()


def _after_fork_in_child() -> None:
    for steps in list(_all_steps):
        steps.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
