"""A topic mesh under cuts, pauses, crashes and restarts: one owner each, nothing lost that is not counted."""

import os
import subprocess
import sys

import pytest

from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import SpotMesh
from tests.support.gate_seeds import gate_seeds

PROGRAM = """
import sys
from hansa.testing import Simulation
from hansa.testing.scenarios import SpotMesh

for seed in map(int, sys.argv[1:]):
    print(Simulation(seed, SpotMesh).run().digest)
"""


@pytest.mark.spec("SPT-04", "SPT-08", "SPT-11", "SPT-12", "SPT-13", "SPT-14", "SPT-21", "SPT-22")
@gate_seeds()
def test_all_nodes_agree_and_what_is_lost_is_counted(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, SpotMesh).run()


def test_a_subscription_that_ends_right_after_a_pause_is_judged_by_all_that_it_was_told() -> None:
    """Seed 7948351: its messages had come, and what says of which owners had not been heard yet."""
    Simulation(7948351, SpotMesh).run()


def test_without_faults_everything_that_was_published_is_given_out() -> None:
    class Calm(SpotMesh):
        """The same, with a look at the books when it is over."""

        def unsettled(self) -> str:
            missing = super().unsettled()
            lost = [] if missing else self.cast.posts.lost(self.cast.watched)
            return missing or "\n".join(map(str, lost))

    for seed in range(5):
        outcome = Simulation(seed, Calm).play(())
        assert isinstance(outcome, Outcome), outcome
        assert outcome.facts_count > 500


def digests_of_a_process(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "3", "7", "11"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout


def test_one_seed_gives_one_history_in_every_process() -> None:
    first = digests_of_a_process("1")
    assert len(first.split()) == 3
    assert first == digests_of_a_process("2")
    assert first.split()[1] == Simulation(7, SpotMesh).run().digest
