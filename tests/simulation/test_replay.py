"""One seed, one history: bit for bit, in other processes, under other hash seeds."""

import gc
import os
import subprocess
import sys

import pytest

from hansa.testing import Simulation, World, world
from hansa.testing.scenarios import RouterDealer

PROGRAM = """
import sys
from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import RouterDealer

for seed in map(int, sys.argv[1:]):
    outcome = Simulation(seed, RouterDealer).play()
    print(outcome.digest if isinstance(outcome, Outcome) else outcome.tail)
"""
SEEDS = (3, 14, 15)


def digests_of_a_process(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, SEEDS)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout


def test_processes_with_different_hash_seeds_have_the_same_history() -> None:
    first, second = digests_of_a_process("1"), digests_of_a_process("2")
    assert len(first.split()) == len(SEEDS)
    assert first == second


@pytest.mark.parametrize("seed", SEEDS)
def test_runs_within_one_process_have_the_same_history(seed: int) -> None:
    assert Simulation(seed, RouterDealer).run() == Simulation(seed, RouterDealer).run()


def test_many_runs_in_one_process_need_the_memory_of_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "COLLECT_WORLDS", 5)
    for seed in range(8):
        Simulation(seed, RouterDealer).run()
    # They are cleared away together; those since then still wait for it.
    assert sum(isinstance(thing, World) for thing in gc.get_objects()) <= 5
