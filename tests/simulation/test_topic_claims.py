"""Topics claimed in a store under every fault: a topic has one owner, and planted bugs are caught."""

from typing import Any

import pytest

from hansa.coordination.session_times import SessionTimes
from hansa.messaging.spot.over_claims import TopicClaims
from hansa.testing import Outcome, Simulation, SimulationFailed
from hansa.testing.scenarios import TopicClaiming

SEEDS_COUNT = 200
PARTS_COUNT = 10
ONE_OWNER = "a topic has one owner"


@pytest.mark.spec("SPT-12")
@pytest.mark.parametrize("part", range(PARTS_COUNT))
def test_a_topic_has_one_owner(part: int) -> None:
    for seed in range(part, SEEDS_COUNT, PARTS_COUNT):
        Simulation(seed, TopicClaiming).run()


def test_nodes_come_to_own_topics_and_lose_some() -> None:
    counts = {"owned": 0, "lost": 0}

    class Counted(TopicClaiming):
        """The same, with a look at how much was done."""

        def unsettled(self) -> str:
            found = super().unsettled()
            if not found:
                counts["owned"] += self.owned_count
                counts["lost"] += self.lost_count
            return found

    for seed in range(10):
        assert isinstance(Simulation(seed, Counted).run(), Outcome)
    assert counts["owned"] > 100
    assert counts["lost"] > 3


async def _nothing(*_arguments: Any) -> None:
    """What should be done is not."""


@pytest.mark.parametrize(
    ("planted", "name", "bug"),
    [
        (TopicClaims, "_lost", lambda *_arguments: None),
        (TopicClaims, "claim", _nothing),
        (SessionTimes, "deadline_s", lambda _self, kept: kept.until_s),
    ],
    ids=["a loss that is not told", "a topic that is not claimed", "a session without a margin"],
)
def test_a_planted_bug_is_caught(
    monkeypatch: pytest.MonkeyPatch, planted: type[object], name: str, bug: Any
) -> None:
    monkeypatch.setattr(planted, name, bug)
    with pytest.raises(SimulationFailed) as caught:
        for seed in range(100):
            Simulation(seed, TopicClaiming, shrink_tries_max=1).run()
    assert caught.value.failure.broken.invariant == ONE_OWNER
