"""Which seeds of a scenario run at the gate: the first ones, and a window that moves with the commit.

The first ones are the same for everybody, so that whoever breaks something sees it. The window is another for
each commit, so that what is rare is found by and by, and the commit that fails fails again. `make sim` plays
2,000 seeds.
"""

import subprocess
from collections.abc import Collection
from functools import cache
from pathlib import Path

import pytest

FIRST_COUNT = 100
WINDOW_COUNT = 25
# Beyond what `make sim` plays.
WINDOW_FROM = 10_000
WINDOWS_COUNT = 1_000_000
PARTS_COUNT = 10
# Of the scenarios of coordination: `test_coordination_faults.py` plays them, and sees what came about.
COUNTED_SEEDS = range(40)

_ROOT = Path(__file__).resolve().parents[2]


@cache
def commit_here() -> str:
    """The commit that is checked out; empty in a tree without git."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def seeds_for(commit: str, first_count: int = FIRST_COUNT) -> list[int]:
    """All seeds of the gate at this commit. The window has a quarter as many as the first ones."""
    number = int(commit[:12] or "0", 16) % WINDOWS_COUNT
    window_count = first_count * WINDOW_COUNT // FIRST_COUNT
    first = WINDOW_FROM + number * window_count
    return [*range(first_count), *range(first, first + window_count)]


def gate_seeds(first_count: int = FIRST_COUNT, *, but: Collection[int] = ()) -> pytest.MarkDecorator:
    """`@gate_seeds()`: the test gets `seeds`, a part of them at a time, so that parts run side by side.

    A scenario in which each of many seeds has something of its own says how many these are. `but` are those
    that another test of the scenario plays, which also counts what happens in the runs.
    """
    assert set(but) <= set(range(first_count)), "who plays others plays none of the gate"
    seeds = [seed for seed in seeds_for(commit_here(), first_count) if seed not in but]
    parts = [seeds[part::PARTS_COUNT] for part in range(PARTS_COUNT)]
    return pytest.mark.parametrize("seeds", parts, ids=[f"part{part}" for part in range(PARTS_COUNT)])
