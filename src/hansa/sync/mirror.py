"""What all blocking objects share: from opened to closed they hold the background thread.

A `Mirror` has an asynchronous object behind it. Closing an `EndingMirror` also ends the calls that wait.
"""

from __future__ import annotations

import asyncio
import threading
from _thread import get_ident
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hansa.errors import AlreadyClosed, TimedOut, UsageError
from hansa.runtime.steps import Steps
from hansa.sync.background import Background, hold, release

T = TypeVar("T")


class Mirror:
    """A blocking object with an async one behind it, which only the loop's thread touches while open."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._background: Background | None = None
        self._steps: Steps | None = None
        self._was_open = False
        # Opening and closing, one at a time.
        self._turn = threading.RLock()
        # Before it is open and after it was closed there is no loop's thread that would keep order.
        self._direct_turn = threading.RLock()

    def _open(self, make_work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._check_not_inside("opening")
        with self._turn:
            if self._background is not None:
                raise UsageError(f"{self.name} is open already")
            background = hold()
            try:
                background.steps.call(make_work, f"opening {self.name}")
            except BaseException:
                release(background)
                raise
            self._background, self._steps = background, background.steps
            self._was_open = True

    def _close(self, make_work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Nothing happens when it is not open; who comes second waits for the first."""
        self._check_not_inside("closing")
        with self._turn:
            background = self._background
            if background is None:
                return
            try:
                background.steps.call(make_work, f"closing {self.name}")
            finally:
                self._background = self._steps = None
                release(background)

    def _check_not_inside(self, what: str) -> None:
        if self._steps is not None:
            self._steps.check_not_inside(f"{what} {self.name}")

    def _call(self, make_work: Callable[[], Coroutine[Any, Any, T]], what: str) -> T:
        """Wait for a coroutine. Raises UsageError, AlreadyClosed when it is not open."""
        return self._held().call(make_work, f"{what} of {self.name}")

    def _ask(self, question: Callable[[], T]) -> T:
        """An answer that needs no waiting, also before the object is open and after it was closed."""
        steps = self._steps
        if steps is None:
            with self._direct_turn:
                return question()
        if get_ident() == steps.ident:
            return question()
        try:
            return steps.run(question)
        except AlreadyClosed:
            if self._steps is not None:
                raise  # The answer itself.
            with self._direct_turn:
                return question()

    def _held(self) -> Steps:
        steps = self._steps
        if steps is None:
            if self._was_open:
                raise AlreadyClosed(f"{self.name} is closed")
            raise UsageError(f"{self.name} is used before it was entered: write `with`")
        return steps


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

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task that is cancelled when this object closes. Only in the loop's thread, while it is open."""
        task = self._held().spawn(work, name)
        self._calls[task] = None
        task.add_done_callback(self._calls.pop)
        return task

    def _check_process(self) -> None:
        """Before what any thread may read without asking the loop: raises UsageError after a fork."""
        steps = self._steps
        if steps is not None and (refusal := steps.refusal) is not None:
            raise type(refusal)(str(refusal))

    def _check_entered(self) -> None:
        """As `_check_process`, for what there is from entering on: raises UsageError before."""
        self._check_process()
        if not self._was_open:
            self._held()

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


async def within(timeout: float | None, wait: Callable[[], Coroutine[Any, Any, T]], otherwise: str) -> T:
    """What it gives. Raises TimedOut, with this text and how long that was."""
    try:
        async with asyncio.timeout(timeout):
            return await wait()
    except TimeoutError:
        raise TimedOut(f"{otherwise} after {timeout} s") from None


def shielded(callback: Callable[[T], None]) -> Callable[[T], None]:
    """The user's callback, for the loop's thread: not even `sys.exit()` in it ends the loop."""

    def call(value: T) -> None:
        try:
            callback(value)
        except Exception:
            raise
        except BaseException as error:
            raise UsageError(f"a callback raised {type(error).__name__}, which ends nothing here") from error

    return call
