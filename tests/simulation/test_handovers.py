"""Hand-overs with trouble at each step: one owner at a time, and nothing that was sealed is lost."""

from collections import Counter
from typing import Any

import pytest

from hansa.coordination.handover import HandoverStep
from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import HandoverScenario, PlacedHandovers
from hansa.testing.scenarios.handovers import CELLS
from hansa.testing.scenarios.placements import CELLS as PLACED_CELLS
from tests.support.gate_seeds import gate_seeds

# Of the gate: in their runs it is counted what happens. Some of all steps, victims, harms and moments.
COUNTED_SEEDS = range(0, len(CELLS), 7)


@pytest.mark.spec("OWN-04", "OWN-05")
@gate_seeds(len(CELLS), but=COUNTED_SEEDS)
def test_whoever_dies_at_whichever_step_one_owner_is_left_and_what_was_sealed(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, HandoverScenario).run()


@pytest.mark.spec("OWN-05")
@gate_seeds(len(PLACED_CELLS), but=COUNTED_SEEDS)
def test_the_same_for_entries_that_a_leader_moves(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, PlacedHandovers).run()


def test_without_faults_everybody_is_handed_what_the_one_before_has_sealed() -> None:
    class Calm(HandoverScenario):
        """The same, with a look at how much was done."""

        def unsettled(self) -> str:
            return super().unsettled() or ("" if self.handed_count > 3 else f"{self.handed_count} times")

    class CalmPlaced(PlacedHandovers):
        """The same, with a look at how much was done."""

        def unsettled(self) -> str:
            return super().unsettled() or ("" if self.handed_count > 1 else f"{self.handed_count} times")

    for seed in range(5):
        for scenario in (Calm, CalmPlaced):
            outcome = Simulation(seed, scenario).play(())
            assert isinstance(outcome, Outcome), outcome


@pytest.mark.spec("OWN-04", "OWN-05")
@pytest.mark.parametrize("scenario", [HandoverScenario, PlacedHandovers], ids=lambda scenario: scenario.name)
def test_the_gate_strikes_everybody_at_each_step_in_every_way(
    scenario: type[HandoverScenario | PlacedHandovers],
) -> None:
    """A strike whose moment never comes proves nothing: a few runs may be in too much trouble for it."""
    assert len(CELLS) == len(set(CELLS)) == len(PLACED_CELLS) == len(set(PLACED_CELLS)) == 5 * 4 * 3 * 4
    struck: Counter[Any] = Counter()
    steps: Counter[HandoverStep] = Counter()
    runs: list[Any] = []

    class Watched(scenario):  # type: ignore[misc,valid-type]
        """The same, which can be looked at when it is over."""

        def check(self) -> None:
            super().check()
            runs[:] = [self]

    for seed in COUNTED_SEEDS:
        Simulation(seed, Watched).run()
        (run,) = runs
        if run.store.struck_count:
            struck.update((run.cell.step, run.cell.victim, run.cell.harm, run.cell.moment))
        steps.update(run.steps)
    assert len(struck) == 5 + 4 + 3 + 4, struck
    assert struck.total() >= 0.75 * 4 * len(COUNTED_SEEDS), struck
    assert min(steps[step] for step in HandoverStep) > 20, steps


@pytest.mark.spec("OWN-05")
def test_whoever_looks_after_hand_overs_takes_none_for_another_of_its_number() -> None:
    """A store that went back has another one under the number of one that is overdue."""
    Simulation(756, HandoverScenario).run()
