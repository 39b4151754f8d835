"""Entries that a leader places, and keepers of sessions: only the owner acts; planted bugs are caught."""

import dataclasses
from typing import Any

import pytest

from hansa.coordination import (
    HandoverStep,
    PlacedClaim,
    PlacedClaims,
    PlacedMoves,
    Placement,
    Placer,
    SessionKeeper,
)
from hansa.coordination.claim import Claim
from hansa.errors import SessionLost
from hansa.store.values import Compare, CompareTarget
from hansa.testing import Outcome, Simulation
from hansa.testing.scenarios import Placements
from tests.support.gate_seeds import gate_seeds
from tests.support.planted_bugs import first_failure

# Of the gate: in their runs it is counted what happens.
COUNTED_SEEDS = range(10)
SETTLED = "all is well 40 s after the last fault"
ONLY_OWNER = "only the owner acts"


@pytest.mark.spec("OWN-01", "OWN-02")
@gate_seeds(but=COUNTED_SEEDS)
def test_only_the_owner_of_an_entry_acts_and_all_hear_of_a_lost_session_in_order(seeds: list[int]) -> None:
    for seed in seeds:
        Simulation(seed, Placements).run()


def test_without_faults_all_entries_have_owners_that_act() -> None:
    class Calm(Placements):
        """The same, with a look at how much was done."""

        def unsettled(self) -> str:
            return super().unsettled() or ("" if self.acts_count > 50 else f"{self.acts_count} acts")

    for seed in range(3):
        assert isinstance(Simulation(seed, Calm).play(()), Outcome)


@pytest.mark.spec("OWN-01", "OWN-02")
def test_what_is_handed_over_comes_to_its_end_under_all_faults() -> None:
    handed = 0

    class Counted(Placements):
        """The same, with a look at how much was handed over."""

        def unsettled(self) -> str:
            nonlocal handed
            found = super().unsettled()
            if not found:
                handed += self.handed_count
            return found

    for seed in COUNTED_SEEDS:
        assert isinstance(Simulation(seed, Counted).run(), Outcome)
    assert handed > 30


@pytest.mark.parametrize("seed", [226, 268])
def test_a_loss_that_comes_after_the_end_of_a_hand_over_changes_nothing_of_it(seed: int) -> None:
    """It had two outcomes then, and who gave failed."""
    Simulation(seed, Placements).run()


def broken(seeds_max: int = 60) -> str:
    return first_failure(Placements, range(seeds_max)).failure.broken.invariant


def without(monkeypatch: pytest.MonkeyPatch, target: CompareTarget) -> None:
    """The guards of placed claims compare everything but this."""
    guards: Any = PlacedClaim.__dict__["guards"]

    def careless(self: PlacedClaim) -> tuple[Compare, ...]:
        return tuple(compare for compare in guards.fget(self) if compare.target is not target)

    monkeypatch.setattr(PlacedClaim, "guards", property(careless))


def test_guards_that_leave_out_the_record_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, CompareTarget.LEASE)
    assert broken() == ONLY_OWNER


def test_guards_that_leave_out_the_entry_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, CompareTarget.REVISION)
    assert broken() == ONLY_OWNER


def test_a_claim_that_is_believed_on_an_old_lease_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PlacedClaims._hear

    def credulous(self: PlacedClaims, item: Any) -> None:
        session = self._keeper.session
        lease = session._lease if session is not None else 0
        placement = Placement.decode(item.value)
        if session is None or placement.node != self._node or placement.lease == lease:
            return original(self, item)
        claim = self._claims[item.key] = PlacedClaim(session, item, placement)
        self._on_claim(claim)
        return None

    monkeypatch.setattr(PlacedClaims, "_hear", credulous)
    assert broken() in ("a claim is on the session that its entry names", SETTLED)


def test_a_claim_that_does_not_hear_of_its_session_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(self: Claim[Any]) -> bool:
        return bool(self.epoch and not self.has_left and self.loss.error is None)

    monkeypatch.setattr(Claim, "is_standing", property(standing))
    monkeypatch.setattr(Claim, "_session_lost", lambda self: None)
    assert broken() == "a loss is told when all claims know it"


def test_an_entry_that_is_taken_away_and_believed_in_on_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlacedClaims, "_drop", lambda self, key, reason: None)
    assert broken() == SETTLED


def test_a_loss_that_is_not_told_to_who_hung_on_later_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(self: SessionKeeper) -> None:
        while True:
            session = await self._open()
            for part in list(self._hanging):
                part.session_opened(session)
            self._news.wake_all()
            lost = await session.lost()
            for part in list(self._hanging)[:2]:
                part.session_lost(lost)

    monkeypatch.setattr(SessionKeeper, "_keep", keep)
    assert broken() == "all are told, once and in order"


def test_a_session_that_is_told_before_the_loss_of_the_last_one_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def keep(self: SessionKeeper) -> None:
        lost: SessionLost | None = None
        while True:
            session = await self._open()
            for part in list(self._hanging):
                part.session_opened(session)
                if lost is not None:
                    part.session_lost(lost)
            self._news.wake_all()
            lost = await session.lost()

    monkeypatch.setattr(SessionKeeper, "_keep", keep)
    assert broken() in ("all are told, once and in order", "a loss is told before what follows it")


def test_a_keeper_that_opens_no_second_session_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(self: SessionKeeper) -> None:
        session = await self._open()
        for part in list(self._hanging):
            part.session_opened(session)
        self._news.wake_all()
        lost = await session.lost()
        for part in list(self._hanging):
            part.session_lost(lost)

    monkeypatch.setattr(SessionKeeper, "_keep", keep)
    assert broken() == SETTLED


def test_a_leader_that_places_past_what_is_sealed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Placer._look

    async def careless(self: Placer, entry: bytes, node: str) -> Any:
        item, record, revision, lease = await original(self, entry, node)
        late = record is not None and record.is_open and not record.step.is_early
        return item, (advanced_away(record) if late else record), revision, lease

    def advanced_away(record: Any) -> Any:
        return dataclasses.replace(record, step=HandoverStep.DONE)

    monkeypatch.setattr(Placer, "_look", careless)
    assert broken() == "nothing is placed past what is sealed"


def test_an_owner_that_acts_on_after_the_seal_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(self: Claim[Any]) -> bool:
        return bool(self.epoch and self.loss.error is None and self.session.is_live)

    monkeypatch.setattr(Claim, "is_standing", property(standing))
    assert broken() in ("nothing is owned by who has sealed it", SETTLED)


def test_a_state_that_the_next_owner_does_not_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: PlacedMoves, claim: PlacedClaim) -> bytes:
        return b""

    monkeypatch.setattr(PlacedMoves, "handed_state", nothing)
    assert broken() == "what was sealed is what is read"
