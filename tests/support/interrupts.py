"""Ctrl-C, for a thread that waits."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def interrupted_after(ready: Callable[[], object], *, wakes: bool = True) -> Iterator[None]:
    """The block gets Ctrl-C, once, after `ready`, which another thread calls, has returned.

    One that does not wake goes to that other thread: it is noted for the main thread, whose wait goes on, as
    does one that comes just before the wait begins.
    """
    main_ident = threading.get_ident()

    def interrupt() -> None:
        ready()
        signal.pthread_kill(main_ident if wakes else threading.get_ident(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)
