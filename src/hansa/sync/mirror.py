"""The base of all blocking objects, and the one thread with the one event loop behind them.

The thread starts with the first object that is opened and has ended when the last one is closed. Through its
steps any thread runs work in its loop. A `Mirror` has an asynchronous object behind it. Closing an
`EndingMirror` also ends the calls that wait. An `OpeningStore` makes the asynchronous store, again after it
was closed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from _thread import get_ident
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from hansa.errors import AlreadyClosed, TimedOut, Unavailable, UsageError
from hansa.runtime.loops import loop_factory
from hansa.runtime.steps import LooseStep, Steps
from hansa.store.opening import open_store as open_async_store
from hansa.store.store import Store as AsyncStore
from hansa.transport import Environment

if TYPE_CHECKING:
    from hansa.sync.store import Store

T = TypeVar("T")
A = TypeVar("A", bound=AbstractAsyncContextManager[Any])

_ADVICE = "do not call it from a callback, hand the work to a thread of yours"


class Background:
    """A thread that runs an event loop, for as long as somebody holds it."""

    def __init__(self) -> None:
        self.holders_count = 0
        self.loop: asyncio.AbstractEventLoop
        self.steps: Steps
        self._stopping: asyncio.Event
        self._is_alive = False
        self._started = threading.Event()
        # A daemon thread, so that a program that forgot to close an object can still end.
        self._thread = threading.Thread(target=self._main, name="hansa.sync", daemon=True)

    def start(self) -> None:
        """Return when the loop runs. Raises Unavailable when the system has no room for one."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise Unavailable(f"hansa.sync cannot start its thread: {error}") from error
        self._started.wait()
        if not self._is_alive:
            raise Unavailable("hansa.sync cannot start its event loop; its thread has told why")

    def stop(self) -> None:
        """End the loop and wait for the thread."""
        self.steps.post(LooseStep(self._stopping.set))
        self._thread.join()

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._live())
        finally:
            if self._is_alive:
                self.steps.refuse(AlreadyClosed("the object was closed while the call waited"))
            self._started.set()

    async def _live(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.steps = Steps("hansa.sync", _ADVICE)
        self._is_alive = True
        self._started.set()
        await self._stopping.wait()
        await self.steps.close()


# ---- the one of this process -----------------------------------------------------------------------

_background_turn = threading.Lock()
_present: Background | None = None


def hold() -> Background:
    """The process's background thread, started if needed. Each holder calls `release` once."""
    global _present
    with _background_turn:
        if _present is None:
            background = Background()
            background.start()
            _present = background
        _present.holders_count += 1
        return _present


def release(background: Background) -> None:
    """Hold it no longer; after the last holder's release the thread has ended."""
    global _present
    with _background_turn:
        background.holders_count -= 1
        is_last = background.holders_count == 0
        if is_last and _present is background:
            _present = None
    if is_last:
        background.stop()


# ---- what is opened and closed ---------------------------------------------------------------------


class Mirror(Generic[A]):
    """A blocking object with an async one behind it, which only the loop's thread touches while open."""

    def __init__(self, name: str, inner: A) -> None:
        self.name = name
        self._inner = inner
        self._background: Background | None = None
        self._steps: Steps | None = None
        self._was_open = False
        # One opening or closing at a time.
        self._turn = threading.RLock()
        # Before it is open and after it was closed no loop's thread keeps order.
        self._direct_turn = threading.RLock()

    def __enter__(self) -> Self:
        self._open(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(lambda: self._inner.__aexit__(kind, error, trace))

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
        """Does nothing when it is not open; a second caller waits for the first."""
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
        """An answer without waiting, also before the object is open and after it was closed."""
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
                raise  # The question itself raised it.
            with self._direct_turn:
                return question()

    def _held(self) -> Steps:
        steps = self._steps
        if steps is None:
            if self._was_open:
                raise AlreadyClosed(f"{self.name} is closed")
            raise UsageError(f"{self.name} is used before it was entered: write `with`")
        return steps


class EndingMirror(Mirror[A]):
    """A mirror whose closing ends all calls that wait, with AlreadyClosed.

    The asynchronous object would not always do that: a store in memory lives on with its other users, and a
    session that is left tells its waiters that it is lost.
    """

    def __init__(self, name: str, inner: A) -> None:
        super().__init__(name, inner)
        # Used by the loop's thread alone.
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
        """Call it before reading a value without asking the loop: raises UsageError after a fork."""
        steps = self._steps
        if steps is not None and (refusal := steps.refusal) is not None:
            raise type(refusal)(str(refusal))

    def _check_entered(self) -> None:
        """As `_check_process`, for values that exist from entering on: raises UsageError before."""
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
    """The result of `wait()`. Raises TimedOut, with this text and the timeout."""
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


# ---- a store, which is opened by an address, and again after it was closed -------------------------

# Threads that open one name at the same time must find one store.
_opening_turn = threading.Lock()


def open_store(address: str, *, environment: Environment | None = None, **options: Any) -> Store:
    """The store at an address, for threads; open it with `with`.

    Addresses and options are those of the asynchronous `open_store`. A `memory://name` is shared by all who
    open it here. Raises BadEndpoint, which says what to write, and never a password.
    """
    from hansa.sync.store import Store  # That module imports this one.

    def make() -> AsyncStore:
        with _opening_turn:
            return open_async_store(address, environment=environment, **options)

    scheme, _, rest = address.partition("://")
    return Store(make, name=f"{scheme}://{rest.rpartition('@')[2]}")


class OpeningStore(EndingMirror[AsyncStore]):
    """The part of a blocking store that makes the asynchronous one, again after it was closed."""

    def __init__(self, make: Callable[[], AsyncStore], *, name: str = "store") -> None:
        """`make` returns the asynchronous store; it is called now, and when a closed one is opened again."""
        super().__init__(name, make())
        self._make = make

    def __enter__(self) -> Self:
        self._open(self._enter)
        return self

    def close(self) -> None:
        """Close it here: waiting calls get AlreadyClosed, watches end. Closing twice does no harm.

        A store that others have entered too, such as a `memory://name`, lives on with them.
        """
        self.__exit__(None, None, None)

    async def _enter(self) -> None:
        try:
            await self._inner.__aenter__()
        except AlreadyClosed:
            # Another thread has closed the store that both had found under one name.
            self._inner = self._make()
            await self._inner.__aenter__()


def _after_fork_in_child() -> None:
    global _present, _background_turn, _opening_turn
    # The locks may be held by threads of the parent.
    _background_turn = threading.Lock()
    _opening_turn = threading.Lock()
    # Its steps know already that they belong to the parent.
    _present = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
