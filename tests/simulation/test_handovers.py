"""Hand-overs with trouble at each of their steps: one owner at a time, and nothing that was sealed is lost."""

from collections import Counter
from typing import Any

import pytest

from hansa.coordination.handover import HandoverStep
from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import HandoverScenario
from hansa.testing.scenarios.handovers import CELLS
from tests.support.gate_seeds import FIRST_COUNT, gate_seeds

TIMES = 3


@pytest.mark.spec("OWN-04", "OWN-05")
@gate_seeds(TIMES)
def test_whoever_dies_at_whichever_step_one_owner_is_left_and_what_was_sealed(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, HandoverScenario).run()


def test_without_faults_everybody_is_handed_what_the_one_before_has_sealed() -> None:
    class Calm(HandoverScenario):
        """The same, with a look at how much was done."""

        def unsettled(self) -> str:
            return super().unsettled() or ("" if self.handed_count > 3 else f"{self.handed_count} times")

    for seed in range(5):
        outcome = Simulation(seed, Calm).play(())
        assert isinstance(outcome, Outcome), outcome


def test_the_gate_strikes_everybody_at_each_step_in_every_way() -> None:
    """A strike whose moment never comes proves nothing: one in ten runs may be in too much trouble for it."""
    assert TIMES * FIRST_COUNT >= len(CELLS) == len(set(CELLS)) == 5 * 4 * 3 * 4
    struck: Counter[tuple[Any, ...]] = Counter()
    steps: Counter[HandoverStep] = Counter()
    runs: list[HandoverScenario] = []

    class Watched(HandoverScenario):
        """The same, which can be looked at when it is over."""

        def check(self) -> None:
            super().check()
            runs[:] = [self]

    # Every other seed has one harm or the other, and all have each step and each victim.
    for seed in range(0, len(CELLS), 3):
        Simulation(seed, Watched).run()
        (run,) = runs
        struck[run.cell.step, run.cell.victim] += run.store.struck_count
        struck[run.cell.harm, run.cell.moment] += run.store.struck_count
        steps.update(run.truth.steps)
    assert len(struck) == 5 * 4 + 3 * 4
    assert min(struck.values()) >= 1, struck
    assert sum(struck.values()) >= 0.9 * 2 * len(CELLS) / 3, struck
    assert min(steps[step] for step in HandoverStep) > 50, steps
