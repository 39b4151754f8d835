"""Topics claimed in a store under every fault: an owner has a claim, a claim an owner; bugs are caught."""

from typing import Any

import pytest

from hansa.coordination.claim import Claim, Line, TakenClaim
from hansa.coordination.session import SessionKeeper, SessionTimes
from hansa.errors import Fenced
from hansa.testing import Failure, Outcome, Simulation
from hansa.testing.scenarios import TopicClaiming
from hansa.topics.claims import TopicClaims
from tests.support.gate_seeds import gate_seeds

# Of a planted bug.
SEEDS_MAX = 100
ONE_OWNER = "a topic has one owner"
SETTLED = "all is well 60 s after the last fault"
UNHANDLED = "no error goes unhandled"


@pytest.mark.spec("SPT-12", "SPT-25")
@gate_seeds()
def test_a_topic_has_one_owner_who_has_claimed_it_and_all_agree_in_the_end(seeds: list[int]) -> None:
    for seed in seeds:
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


def _first_failure(planted: object, **bugs: Any) -> Failure:
    """What is found, with these in the place of what the class or module has by these names."""
    with pytest.MonkeyPatch.context() as patch:
        for name, bug in bugs.items():
            patch.setattr(planted, name, bug, raising=False)
        for seed in range(SEEDS_MAX):
            played = Simulation(seed, TopicClaiming).play()
            if isinstance(played, Failure):
                return played
    raise AssertionError(f"{SEEDS_MAX} seeds did not find the bug")


def test_a_claim_that_is_not_looked_at_after_the_survey_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(self: TopicClaims, topic: str, claim: TakenClaim[Fenced]) -> None:
        if claim.loss.error is None:
            kept(self, topic, claim)

    kept = TopicClaims.keep
    monkeypatch.setattr(Claim, "check", lambda self: None)
    failure = _first_failure(TopicClaims, keep=keep)
    assert failure.broken.invariant == ONE_OWNER


def test_a_cancelled_closing_that_gives_nothing_up_is_caught() -> None:
    async def close(self: TopicClaims) -> None:
        self._is_closed = True
        self._claims.clear()
        await self._tasks.close()
        await self._keeper.__aexit__(None, None, None)

    broken = _first_failure(TopicClaims, close=close).broken
    assert broken.invariant in (UNHANDLED, SETTLED)
    # Either the lease that is kept shows it, or the task that guards the claim.
    assert "lease" in broken.detail or "guards" in broken.detail


def test_a_claim_of_a_closed_node_is_caught() -> None:
    async def close(self: SessionKeeper, *_arguments: Any) -> None:
        """It opens sessions on and on, for whoever asks."""

    broken = _first_failure(SessionKeeper, _leave=close).broken
    assert broken.invariant in (UNHANDLED, SETTLED)
    assert "lease" in broken.detail or "keeper" in broken.detail


def test_a_destroyed_topic_that_stays_claimed_is_caught() -> None:
    broken = _first_failure(TopicClaims, release_later=lambda *arguments: None).broken
    assert broken.invariant == SETTLED


async def _claimed_anyway(line: Line[Fenced], timeout: float) -> TakenClaim[Fenced]:
    claim = line._claim(await line.sessions.live(timeout))
    await claim.enter(is_patient=False)
    return line._owned(claim, 0.0)


@pytest.mark.parametrize(
    ("planted", "name", "bug"),
    [
        (TopicClaims, "_lost", lambda *_arguments: None),
        (Line, "try_acquire", _claimed_anyway),
        (SessionTimes, "deadline_s", lambda _self, kept: kept.until_s),
    ],
    ids=["a loss that is not told", "a claim after another that stands", "a session without a margin"],
)
def test_a_planted_bug_is_caught(planted: object, name: str, bug: Any) -> None:
    assert _first_failure(planted, **{name: bug}).broken.invariant == ONE_OWNER
