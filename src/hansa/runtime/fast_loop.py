"""Runs a program on uvloop where it is installed, on asyncio's own loop elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def loop_name() -> str:
    """The module of the event loop that `run` uses."""
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return "asyncio"
    return "uvloop"


def run(program: Coroutine[Any, Any, T]) -> T:
    """Run until the program ends. Ctrl-C cancels it, lets it end in order, and raises KeyboardInterrupt."""
    factory = None
    if loop_name() == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(program)
