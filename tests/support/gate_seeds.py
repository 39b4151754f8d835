"""Which seeds of a scenario run at the gate: the first ones, and a window that moves with the commit.

The first ones are the same for everybody, so that whoever breaks something sees it. The window is another for
each commit, so that what is rare is found by and by, and the commit that fails fails again. `make sim` plays
2,000 seeds.
"""

import subprocess
from functools import cache
from pathlib import Path

import pytest

FIRST_COUNT = 100
WINDOW_COUNT = 25
# Beyond what `make sim` plays.
WINDOW_FROM = 10_000
WINDOWS_COUNT = 1_000_000
PARTS_COUNT = 10

_ROOT = Path(__file__).resolve().parents[2]


@cache
def commit_here() -> str:
    """The commit that is checked out; empty in a tree without git."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def seeds_for(commit: str, times: int = 1) -> list[int]:
    """All seeds of the gate at this commit, or so many times as many."""
    number = int(commit[:12] or "0", 16) % WINDOWS_COUNT
    window_count = times * WINDOW_COUNT
    first = WINDOW_FROM + number * window_count
    return [*range(times * FIRST_COUNT), *range(first, first + window_count)]


def gate_seeds(times: int = 1) -> pytest.MarkDecorator:
    """`@gate_seeds()`: the test gets `seeds`, a part of them at a time, so that parts run side by side.

    A scenario that has something else for each of many seeds is played so many `times` as often.
    """
    seeds = seeds_for(commit_here(), times)
    parts = [seeds[part::PARTS_COUNT] for part in range(PARTS_COUNT)]
    return pytest.mark.parametrize("seeds", parts, ids=[f"part{part}" for part in range(PARTS_COUNT)])
