"""Tests that compute as fast as they can give way to those beside them, which wait and have deadlines."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_LOWER = 10


@contextmanager
def giving_way() -> Iterator[None]:
    """Take only what other tests leave of the processor; processes that start meanwhile do so, too.

    Only where this process may take its priority back afterwards: as root.
    """
    if os.geteuid() != 0:
        yield
        return
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, before + _LOWER)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
