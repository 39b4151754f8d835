"""For every test of this folder: whatever it started has ended, also when it failed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    before = _children()
    yield
    left = {pid: command for pid, command in _children().items() if pid not in before}
    assert not left, f"left running: {left}"


def _children() -> dict[int, str]:
    """The processes whose parent is this one, by id."""
    found: dict[int, str] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name may hold anything, spaces and parentheses too.
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # It has just ended.
        if int(rest.split()[1]) == os.getpid():
            found[int(stat.parent.name)] = name
    return found
