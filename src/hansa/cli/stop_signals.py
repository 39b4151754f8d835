"""SIGTERM and Ctrl-C as something a program waits for."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """`asked` is set by the first signal (end in order), `urged` by the second (end now)."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urged = asyncio.Event()

    def ask(self) -> None:
        if self.asked.is_set():
            self.urged.set()
        self.asked.set()


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Within the block SIGTERM and SIGINT end nothing by themselves: they are told to the `Stop`."""
    loop = asyncio.get_running_loop()
    stop = Stop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.ask)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
