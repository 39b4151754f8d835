"""Plays seeds until one finds the bug that a test has planted.

Most of a search is runs that find nothing. So the seed that found a bug is kept in `found_by.json` beside the
tests, and is played first. When it finds the bug no more, because the scenario has changed, the seeds are
played one after the other as if none was kept. `python -m tests.support.planted_bugs` writes the file anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from hansa.testing import Simulation, SimulationFailed
from hansa.testing.simulation import Scenario

FOLDER = Path(__file__).parents[1] / "simulation"
FOUND_BY = FOLDER / "found_by.json"
# A file to which searches, from the first seed on, add a line with what found the bug.
_NOTES = "HANSA_NOTE_PLANTED_BUGS"


def first_failure(
    scenario: type[Scenario], seeds: Iterable[int], *, shrink_tries_max: int = 0
) -> SimulationFailed:
    """How the first of these seeds fails that does. Its faults are left as they are: fewer break the same."""
    order = list(seeds)
    name = f"{os.environ['PYTEST_CURRENT_TEST'].rpartition('/')[2].rpartition(' ')[0]} {scenario.name}"
    kept = None if _NOTES in os.environ else _kept().get(name)
    for seed in [kept, *order] if kept is not None and kept in order else order:
        try:
            Simulation(seed, scenario, shrink_tries_max=shrink_tries_max).run()
        except SimulationFailed as failed:
            assert f"replay: make sim SEED={seed} SEEDS=1 SCENARIO={scenario.name}" in str(failed)
            if seed != order[0]:
                _note(name, seed)
            return failed
    raise AssertionError(f"{len(order)} seeds did not find the bug")


@cache
def _kept() -> dict[str, int]:
    kept: dict[str, int] = json.loads(FOUND_BY.read_text(encoding="utf-8"))
    return kept


def _note(name: str, seed: int) -> None:
    if (notes := os.environ.get(_NOTES)) is not None:
        with open(notes, "a", encoding="utf-8") as file:
            print(json.dumps([name, seed]), file=file)


def main() -> None:
    """Search for all planted bugs, and keep what found them."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as notes:
        command = [sys.executable, "-m", "pytest", "-q", str(FOLDER), *sys.argv[1:]]
        status = subprocess.run(command, env={**os.environ, _NOTES: notes.name}, check=False).returncode
        found = dict(sorted(json.loads(line) for line in notes))
    FOUND_BY.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.exit(status)


if __name__ == "__main__":
    main()
