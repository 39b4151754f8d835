"""The troubles of the scenarios of coordination do come: a fault that never happens proves nothing.

These are the first seeds of the gate, judged as the others are (`gate_seeds`).
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from hansa.testing import Simulation
from hansa.testing.scenarios import Elections, Locks, RosterScenario
from hansa.testing.scenarios.roster import RosterTruth
from hansa.testing.simulation import Scenario
from tests.support.gate_seeds import COUNTED_SEEDS

EVERYWHERE = {
    "a program is paused": r"is paused",
    "a program crashes": r"crashes|loses power",
    "a program ends and starts again": r"starts life [2-9]",
    "the store starts again": r"store: starts life [2-9]",
    "the store is paused": r"store: is paused",
    "the store forgets its history": r"store: forgets",
    "the store goes back in time": r"store: is put back in time",
    "a client finds that the store went back": r"finds that the store went back",
    "a lease ends by itself": r"store: revision \d+: delete (?!.* by )",
    "a request comes late": r"store: does late what",
}
OWNERS = {
    "a session is lost": r"gives up: session-lost",
    "the store cannot be reached": r"gives up: store-unavailable",
    "an owner is paused for longer than its lease": r"has lost .*, and is paused",
}
FACTS: dict[type[Scenario], dict[str, str]] = {
    Elections: {
        **EVERYWHERE,
        **OWNERS,
        "a leader resigns": r"resigns",
        "patience ends": r"campaigns no longer",
    },
    Locks: {
        **EVERYWHERE,
        **OWNERS,
        "a lock is lost while it is used": r"loses \w+: lock-lost",
        "a write is refused by its fence": r"loses \w+: stale-fence",
        "patience ends": r"has no patience",
    },
    RosterScenario: {
        **EVERYWHERE,
        "a member is suspected": r"MemberSuspected",
        "a suspicion is refuted": r"MemberRefuted",
        "a member is down": r"MemberDown",
        "a member finds that it is gone": r"joined again",
        "a statement has no known outcome": r"does not know whether",
    },
}


class Played:
    """What happened in all runs of a scenario."""

    def __init__(self, scenario: type[Scenario]) -> None:
        self.counts: Counter[str] = Counter()
        self.rates: set[float] = set()
        self.truths: list[RosterTruth] = []
        for seed in COUNTED_SEEDS:
            self._play(seed, scenario)

    def _play(self, seed: int, scenario: type[Scenario]) -> None:
        ended: list[Any] = []

        class Watched(scenario):  # type: ignore[misc,valid-type]
            """The same, which can be looked at when it is over."""

            def check(self) -> None:
                super().check()
                ended[:] = [self, self.world.history.facts]

        Simulation(seed, Watched).run()
        run, facts = ended
        self.rates |= {run.store.clock_of(host).rate for host in run.world.hosts.values()}
        if isinstance(run, RosterScenario):
            self.truths.append(run.truth)
        for fact in facts:
            told = f"{fact.node}: {fact.what}" if fact.node == "store" else fact.what
            self.counts.update(what for what, words in FACTS[scenario].items() if re.match(words, told))

    def check(self, scenario: type[Scenario]) -> None:
        """Each kind of trouble came again, and clocks were as fast and as slow as they may be."""
        counts = {what: self.counts[what] for what in FACTS[scenario]}
        assert min(counts.values()) >= 2, counts
        assert 0.99 <= min(self.rates) < 0.992
        assert 1.008 < max(self.rates) <= 1.01


@pytest.mark.spec("CRD-11")
@pytest.mark.parametrize("scenario", [Elections, Locks], ids=lambda scenario: scenario.name)
def test_every_kind_of_trouble_comes_again(scenario: type[Scenario]) -> None:
    Played(scenario).check(scenario)


@pytest.mark.spec("CRD-03", "CRD-05", "CRD-06", "CRD-11")
def test_members_that_stutter_go_down_when_they_must_and_are_hardly_suspected_while_well(
    record_property: Callable[[str, object], None],
) -> None:
    """None goes down while it is well: the scenario itself sees to that. The suspicions are counted."""
    played = Played(RosterScenario)
    played.check(RosterScenario)
    downs_count = sum(truth.downs_count for truth in played.truths)
    suspicions_count = sum(truth.suspicions_count for truth in played.truths)
    false_count = sum(truth.false_suspicions_count for truth in played.truths)
    record_property("members down", downs_count)
    record_property("members suspected", suspicions_count)
    record_property("members suspected while well", false_count)
    assert downs_count >= 20
    assert suspicions_count >= 10
    assert false_count <= suspicions_count / 20
