"""Members that stutter, crash and return: nobody is down without a cause, and all views agree in the end."""

import pytest

from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import RosterScenario
from tests.support.gate_seeds import COUNTED_SEEDS, gate_seeds


@pytest.mark.spec("CRD-03", "CRD-05", "CRD-06", "CRD-11")
@gate_seeds(but=COUNTED_SEEDS)
def test_nobody_is_down_without_a_cause_and_all_views_converge(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, RosterScenario).run()


@pytest.mark.spec("CRD-17")
@pytest.mark.parametrize("seed", [540, 992])
def test_a_store_that_went_back_is_told_again_what_it_forgot(seed: int) -> None:
    """540: a node's last word was forgotten, and its own watch had not heard of it. 992: nobody had a lease
    and no record, and was taken for a member."""
    Simulation(seed, RosterScenario).run()


def test_without_faults_nobody_is_suspected() -> None:
    class Calm(RosterScenario):
        """The same, with a look at what was said of the members."""

        def unsettled(self) -> str:
            return super().unsettled() or ("" if not self.truth.suspicions_count else str(self.truth))

    for seed in range(5):
        outcome = Simulation(seed, Calm).play(())
        assert isinstance(outcome, Outcome), outcome
