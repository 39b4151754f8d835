"""Elections under cuts, pauses, crashes and clocks that drift: never two leaders, in the end one."""

import os
import subprocess
import sys

import pytest

from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import Elections
from tests.support.gate_seeds import COUNTED_SEEDS, gate_seeds

PROGRAM = """
import sys
from hansa.testing import Simulation
from hansa.testing.scenarios import SCENARIOS

for name in ("elections", "locks", "roster", "handovers", "placed_handovers"):
    print(Simulation(int(sys.argv[1]), SCENARIOS[name]).run().digest)
"""


@pytest.mark.spec("CRD-08", "CRD-11")
@gate_seeds(but=COUNTED_SEEDS)
def test_one_leads_at_a_time_and_terms_grow(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, Elections).run()


def test_without_faults_the_office_changes_hands_and_is_never_lost() -> None:
    class Calm(Elections):
        """The same, with a look at how often somebody led."""

        def unsettled(self) -> str:
            return super().unsettled() or ("" if self.claims.count > 1 else "hardly anybody led")

    for seed in range(5):
        outcome = Simulation(seed, Calm).play(())
        assert isinstance(outcome, Outcome), outcome


def digests_of_a_process(seed: int, hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(seed)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout.split()


def test_one_seed_gives_one_history_in_every_process() -> None:
    first = digests_of_a_process(3, "1")
    assert len(set(first)) == 5
    assert first == digests_of_a_process(3, "2")
    assert first[0] == Simulation(3, Elections).run().digest
