"""A registry cluster under cuts, pauses, crashes and restarts: lists converge, nothing removed comes back."""

import pytest

from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import RegistryCluster
from tests.support.gate_seeds import gate_seeds


@pytest.mark.spec("DIS-10", "DIS-11", "DIS-13", "DIS-24", "DIS-29", "DIS-30")
@gate_seeds()
def test_lists_converge_and_nothing_removed_comes_back(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, RegistryCluster).run()


@pytest.mark.parametrize("seed", [596, 1496, 1710, 18913469])
def test_seeds_that_once_failed(seed: int) -> None:
    """596, 1710: a provider that was back was left for an old word of its. 1496: busy is not well."""
    Simulation(seed, RegistryCluster).run()


def test_without_faults_everybody_is_found_and_asked() -> None:
    for seed in range(5):
        outcome = Simulation(seed, RegistryCluster).play(())
        assert isinstance(outcome, Outcome), outcome
        assert outcome.facts_count > 500


def test_one_seed_gives_one_history() -> None:
    assert Simulation(7, RegistryCluster).run() == Simulation(7, RegistryCluster).run()
