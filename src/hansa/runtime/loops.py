"""The event loop of a program, and of an object that belongs to it.

`run` is for programs: uvloop where it is installed, asyncio's own loop elsewhere. `Home` is for objects: the
loop to which they belong, and the error for callers from anywhere else.
"""

from __future__ import annotations

import asyncio
from _thread import get_ident
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hansa.errors import UsageError

T = TypeVar("T")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's factory where it is installed; None for asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def loop_name() -> str:
    """The module of the event loop that `run` uses."""
    return "uvloop" if loop_factory() else "asyncio"


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run until the program ends. Ctrl-C cancels it, lets it end in order, and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(program)


class Home:
    """The loop that runs where this is made. Others must not touch its objects: they have no locks.

    On a hot path compare `asyncio._get_running_loop()` with `loop`, and call `check` only if they differ.
    """

    __slots__ = ("_advice", "_name", "_thread", "loop")

    def __init__(self, name: str, advice: str) -> None:
        """`advice` tells a caller from elsewhere what to do instead."""
        self.loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._name = name
        self._advice = advice

    def check(self) -> None:
        """Raise UsageError in another thread, and in another event loop of the same thread."""
        running = asyncio._get_running_loop()
        if running is self.loop:
            return
        if get_ident() != self._thread:
            raise UsageError(f"{self._name} belongs to the event loop of another thread: {self._advice}")
        # Between two runs of its loop nothing else can be under way.
        if running is not None:
            raise UsageError(f"{self._name} belongs to another event loop: {self._advice}")
