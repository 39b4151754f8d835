"""The one thread with the one event loop behind all blocking objects of a process.

The thread starts with the first object that is opened and has ended when the last one is closed. Its steps
are how any thread has things done in its loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

from hansa.errors import AlreadyClosed, Unavailable
from hansa.runtime.steps import LooseStep, Steps

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
        # A daemon, so that a program that forgot to close an object can still end.
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
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
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
    # Its steps know already that they belong to the parent.
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
