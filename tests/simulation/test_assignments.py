"""Work that is shared out among workers on a store: one owner each, nothing lost or done twice, then rest."""

from collections import Counter
from enum import Enum
from typing import Any

import pytest

from hansa.assignment import plan
from hansa.coordination.handover import HandoverStep
from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import AssignmentScenario
from hansa.testing.scenarios.assignment_truth import PlanStep
from hansa.testing.scenarios.assignments import CELLS, CELLS_STRIDE
from hansa.testing.scenarios.strikes import Harm, Moment, Victim
from tests.support.gate_seeds import gate_seeds

# Of the gate: in their runs it is counted what happens.
COUNTED_SEEDS = range(30)


@pytest.mark.spec("ASG-02", "ASG-04", "ASG-05", "ASG-08")
@gate_seeds(80, but=COUNTED_SEEDS)
def test_whoever_dies_at_whichever_step_each_partition_has_one_owner_and_loses_nothing(
    seeds: list[int],
) -> None:
    for seed in seeds:
        Simulation(seed, AssignmentScenario).run()


@pytest.mark.spec("ASG-02")
def test_without_faults_work_is_handed_on_as_plans_and_the_operator_say() -> None:
    runs: list[AssignmentScenario] = []

    class Calm(AssignmentScenario):
        """The same, which can be looked at when it is over."""

        def check(self) -> None:
            super().check()
            runs[:] = [self]

    for seed in range(5):
        outcome = Simulation(seed, Calm).play(())
        assert isinstance(outcome, Outcome), outcome
        (run,) = runs
        assert run.handed_count > 3
        assert run.truth.acts_count > 20
        assert run.truth.steps[HandoverStep.DONE] > 3


@pytest.mark.spec("ASG-08")
def test_a_plan_in_many_parts_is_whole_or_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PLAN_PART_MOVES_COUNT", 1)
    of_parts = [seed for seed in range(2 * len(CELLS)) if cell_of(seed).step is PlanStep.PART]
    for seed in of_parts[:8]:
        Simulation(seed, AssignmentScenario).run()


@pytest.mark.parametrize("seed", [3, 7])
def test_one_seed_has_one_history(seed: int) -> None:
    assert Simulation(seed, AssignmentScenario).run() == Simulation(seed, AssignmentScenario).run()


def cell_of(seed: int) -> Any:
    return CELLS[seed * CELLS_STRIDE % len(CELLS)]


@pytest.mark.spec("ASG-02", "ASG-04", "ASG-05", "ASG-08")
def test_seeds_in_a_row_strike_everybody_at_each_step_in_every_way() -> None:
    assert len({cell_of(seed) for seed in range(len(CELLS))}) == len(set(CELLS)) == len(CELLS)
    struck: Counter[Enum] = Counter()
    steps: Counter[Enum] = Counter()
    runs: list[AssignmentScenario] = []

    class Watched(AssignmentScenario):
        """The same, which can be looked at when it is over."""

        def check(self) -> None:
            super().check()
            runs[:] = [self]

    for seed in COUNTED_SEEDS:
        Simulation(seed, Watched).run()
        (run,) = runs
        if run.store.struck_count:
            struck.update((run.cell.step, run.cell.victim, run.cell.harm, run.cell.moment))
        steps.update(run.truth.steps)
    aims = {Victim.OLD, Victim.NEW, Victim.LEADER, Victim.STORE, Harm.CRASH, Harm.PAUSE, Harm.CUT, *Moment}
    assert aims <= struck.keys(), struck
    # A strike whose moment never comes proves nothing: some runs have no such step, or a store that goes
    # back instead.
    assert struck.total() >= 0.6 * 4 * len(COUNTED_SEEDS), struck
    assert min(steps[step] for step in (*HandoverStep, *PlanStep)) > 20, steps


@pytest.mark.spec("ASG-08")
@pytest.mark.parametrize("seed", [440, 853, 1689, 216, 641, 1280])
def test_seeds_that_failed_once(seed: int) -> None:
    """What each of them has shown, in turn.

    A late placing that brought back what was deleted; a move by hand against a pin; a save that was taken for
    another one without an answer, so that what was noted was forgotten; a late offer of a plan that was over;
    a partition that was placed when the next plan said that nobody may be given it, and was taken back; an
    entry of an owner that is gone, which waits for an heir that nobody may be.
    """
    Simulation(seed, AssignmentScenario).run()
