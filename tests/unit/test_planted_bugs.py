"""The seed that found a planted bug is played first, and the others when it finds it no more."""

from collections.abc import Callable

import pytest

from hansa.testing import Failure, SimulationFailed
from hansa.testing.scenarios import RouterDealer
from hansa.testing.world import Broken
from tests.support import planted_bugs

Search = Callable[..., tuple[int, list[int]]]


@pytest.fixture
def search(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Search seeds 0 to 9 for a bug that these find; gives which did, and which were played."""

    def run(*, finding: set[int], kept: int | None = None) -> tuple[int, list[int]]:
        played: list[int] = []

        class Simulation:
            def __init__(self, seed: int, *_others: object, **_settings: object) -> None:
                self.seed = seed

            def run(self) -> None:
                played.append(self.seed)
                if self.seed in finding:
                    failure = Failure(broken=Broken("it works", "it does not"), plan=(), tail="")
                    raise SimulationFailed(
                        scenario=RouterDealer.name, seed=self.seed, failure=failure, planned_count=0
                    )

        name = f"test_planted_bugs.py::{request.node.name} router_dealer"
        monkeypatch.setattr(planted_bugs, "Simulation", Simulation)
        monkeypatch.setattr(planted_bugs, "_kept", lambda: {} if kept is None else {name: kept})
        return planted_bugs.first_failure(RouterDealer, range(10)).seed, played

    return run


def test_without_a_note_the_seeds_are_played_in_order(search: Search) -> None:
    assert search(finding={3, 7}) == (3, [0, 1, 2, 3])


def test_the_seed_of_the_note_is_played_first(search: Search) -> None:
    assert search(finding={3, 7}, kept=7) == (7, [7])


def test_a_seed_that_finds_the_bug_no_more_costs_one_run(search: Search) -> None:
    assert search(finding={1}, kept=7) == (1, [7, 0, 1])


def test_a_seed_beyond_the_bound_is_not_played(search: Search) -> None:
    assert search(finding={1, 40}, kept=40) == (1, [0, 1])


def test_a_bug_that_no_seed_finds_fails_the_test(search: Search) -> None:
    with pytest.raises(AssertionError, match="10 seeds did not find the bug"):
        search(finding=set(), kept=7)
