"""Locks, a semaphore and fenced counters under every fault: nobody holds what another holds."""

import pytest

from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import Locks
from tests.support.gate_seeds import COUNTED_SEEDS, gate_seeds


@pytest.mark.spec("CRD-09", "CRD-10", "CRD-11", "CRD-15")
@gate_seeds(but=COUNTED_SEEDS)
def test_nobody_holds_what_another_does_and_no_acknowledged_update_is_lost(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, Locks).run()


@pytest.mark.spec("CRD-17")
def test_what_was_given_back_does_not_come_back_with_an_older_store() -> None:
    """Its key was there again, on a lease that its owner renewed: nobody had it, and all waited for it."""
    Simulation(1590, Locks).run()


def test_without_faults_everybody_is_served() -> None:
    class Calm(Locks):
        """The same, with a look at how much was done."""

        def unsettled(self) -> str:
            idle = [name for name in ("east", "west") if self.counters.count(name) < 5]
            return super().unsettled() or ", ".join(idle)

    for seed in range(5):
        outcome = Simulation(seed, Calm).play(())
        assert isinstance(outcome, Outcome), outcome
