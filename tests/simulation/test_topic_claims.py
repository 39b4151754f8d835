"""Topics claimed in a store under every fault: an owner has a claim, a claim an owner; bugs are caught."""

import asyncio
from contextvars import Context
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.coordination.claim import Claim, Line, TakenClaim
from hansa.coordination.session import SessionKeeper, SessionTimes
from hansa.errors import Fenced
from hansa.store.values import WatchBatch
from hansa.testing import Failure, Host, Outcome, Simulation, World
from hansa.testing.faults import FaultPlan
from hansa.testing.scenarios import TopicClaiming
from hansa.testing.scenarios.topic_claims import TOPICS, NodeLife
from hansa.testing.store_link import StoreLink
from hansa.topics import SpotNode
from hansa.topics.claims import TopicClaims
from hansa.transport import Environment
from tests.support.gate_seeds import gate_seeds
from tests.support.planted_bugs import first_failure

# Of the gate: in their runs it is counted what happens.
COUNTED_SEEDS = range(10)
# Of a planted bug.
SEEDS_MAX = 100
ONE_OWNER = "a topic has one owner"
SETTLED = "all is well 60 s after the last fault"
UNHANDLED = "no error goes unhandled"


@pytest.mark.spec("SPT-12", "SPT-25")
@gate_seeds(but=COUNTED_SEEDS)
def test_a_topic_has_one_owner_who_has_claimed_it_and_all_agree_in_the_end(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, TopicClaiming).run()


@pytest.mark.spec("SPT-12", "SPT-25")
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

    for seed in COUNTED_SEEDS:
        assert isinstance(Simulation(seed, Counted).run(), Outcome)
    assert counts["owned"] > 100
    assert counts["lost"] > 3


class WakingTogether(TopicClaiming):
    """Two nodes go on in one instant: the loser, whose lease ended in the pause, and the topic's next owner.

    The next owner is paused when the store has its claim, before it hears so. The seed says whose turn is
    first.
    """

    chaos_s = 0.0
    quiet_s = 30.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.names = ["loser", "owner"]
        self.has_woken = False

    def plan(self, chance: Chance) -> FaultPlan:
        return ()

    def unsettled(self) -> str:
        return "" if self.has_woken and self.owned_count == 2 else "nobody else has the topic"

    async def _be_node(self, host: Host, link: StoreLink, environment: Environment) -> None:
        is_loser = host.name == "loser"
        ttl_s = 1.0 if is_loser else 10.0
        async with (
            SpotNode(store=link, claim_ttl=ttl_s, environment=environment) as node,
            node.spot() as spot,
        ):
            self._nodes.append(NodeLife(host, node))
            while not (is_loser or self.owned_count):
                await asyncio.sleep(0.1)
            while not await self._owns(host, spot, TOPICS[0], environment.chance):
                await asyncio.sleep(0.1)
            if is_loser:
                self.world.pause("loser")
            await asyncio.Event().wait()

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        super()._witness(batch, origin)
        has_lost = "loser" not in self.store.living_leases().values()
        if origin == "owner" and has_lost and self._standing[TOPICS[0]] and not self.has_woken:
            self.world.pause("owner")
            # By then the store's answer is there, and waits.
            self.world.loop.call_later(1.0, self._wake, context=Context())

    def _wake(self) -> None:
        self.has_woken = True
        for name in self.names:
            self.world.resume(name)


def test_who_goes_on_after_a_pause_has_its_turn_before_it_is_judged() -> None:
    """Seed 2144454: the next owner had its turn first, and was judged before the other one had its own."""
    for seed in range(20):
        assert isinstance(Simulation(seed, WakingTogether).run(), Outcome)


def test_who_goes_on_after_a_pause_and_does_not_learn_of_its_loss_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TopicClaims, "_lost", lambda *_arguments: None)
    for seed in range(20):
        failure = Simulation(seed, WakingTogether).play()
        assert isinstance(failure, Failure)
        assert failure.broken.invariant == ONE_OWNER


def _first_failure(planted: object, **bugs: Any) -> Failure:
    """What is found, with these in the place of what the class or module has by these names."""
    with pytest.MonkeyPatch.context() as patch:
        for name, bug in bugs.items():
            patch.setattr(planted, name, bug, raising=False)
        return first_failure(TopicClaiming, range(SEEDS_MAX)).failure


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
        (SessionTimes, "deadline_s", lambda _self, until_s: until_s),
    ],
    ids=["a loss that is not told", "a claim after another that stands", "a session without a margin"],
)
def test_a_planted_bug_is_caught(planted: object, name: str, bug: Any) -> None:
    assert _first_failure(planted, **{name: bug}).broken.invariant == ONE_OWNER
