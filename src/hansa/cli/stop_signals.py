"""SIGTERM and Ctrl-C as something that a program waits for, or as the end of a block."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """`asked` is set by the first signal (end in order), `urged` by the second (end now)."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urged = asyncio.Event()

    def ask(self) -> None:
        if self.asked.is_set():
            self.urged.set()
        self.asked.set()

    async def within(self, seconds: float) -> bool:
        """Wait this long; returns whether the first signal has come."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.asked.wait()
        return self.asked.is_set()


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Within the block SIGTERM and SIGINT end nothing by themselves: they set the `StopRequest`."""
    loop = asyncio.get_running_loop()
    stop = StopRequest()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.ask)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


class Interruption:
    """Whether a block was cut short by a signal."""

    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self.was_made = False

    def make(self) -> None:
        """Cancel the block; its open objects close in order, and a second signal changes nothing."""
        if not self.was_made:
            self.was_made = True
            self._scope.reschedule(asyncio.get_running_loop().time())


@asynccontextmanager
async def until_stopped() -> AsyncIterator[Interruption]:
    """SIGTERM or SIGINT cancels the block, wherever it waits, and the program continues after it."""
    loop = asyncio.get_running_loop()
    with suppress(TimeoutError):
        # A deadline that a signal brings near: asyncio.timeout already cancels its own task from a handler,
        # and distinguishes that from other cancellations.
        async with asyncio.timeout(None) as scope:
            cut = Interruption(scope)
            for number in _SIGNALS:
                loop.add_signal_handler(number, cut.make)
            try:
                yield cut
            finally:
                for number in _SIGNALS:
                    loop.remove_signal_handler(number)
