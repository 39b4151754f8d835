"""The scenario of hand-overs finds what it is there to find: each test plants a bug, which is caught."""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.coordination import Handovers, PlacedClaim, PlacedMoves, Placer, claim, line, succession
from hansa.coordination.claim import Claim, TakenClaim
from hansa.coordination.following import patiently
from hansa.coordination.giving import Giving
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.line import Head, Place
from hansa.errors import TimedOut
from hansa.keys import Keys
from hansa.store.values import Compare, CompareTarget, Delete, KeyValue, Outcome, Put
from hansa.testing.scenarios import HandoverScenario, PlacedHandovers
from hansa.testing.scenarios.handovers import CELLS
from hansa.testing.scenarios.placements import CELLS as PLACED_CELLS
from hansa.testing.scenarios.strikes import Moment, Victim
from hansa.testing.store_link import StoreLink
from tests.support.planted_bugs import first_failure

SETTLED = "all is well 40 s after the last fault"
NOT_SO = "who believes to own does own"
TOO_MANY = "nobody owns what another does"
NOT_FIRST = "who came first owns first"
SEALED = "an owner that has sealed no longer acts"
LOST = "no sealed state is lost"
UNREAD = "who owns next reads what was sealed"
TWICE = "no state is read twice"
EPOCHS = "epochs grow"
UNTRUE = "the record says what happened"
WRITER = "each step is written by whose it is"
STEPS = "steps follow each other"

HANDOVERS = Keys().handovers


# A run that fails is left as it is; what its nodes were doing is thrown away later, and then finds no loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def broken(
    *only: HandoverStep | Victim | Moment,
    scenario: type[HandoverScenario | PlacedHandovers] = HandoverScenario,
    rounds_count: int = 1,
) -> str:
    """Play the gate's first seeds: to be quick, those with such strikes only."""
    cells = CELLS if scenario is HandoverScenario else PLACED_CELLS
    seeds = (
        seed
        for seed, cell in enumerate(cells * rounds_count)
        if {cell.step, cell.victim, cell.moment}.issuperset(only)
    )
    return first_failure(scenario, seeds).failure.broken.invariant


def step_of(operations: Sequence[Any]) -> HandoverStep | None:
    """The step that a transaction writes."""
    for operation in operations:
        if isinstance(operation, Put) and operation.key.startswith(HANDOVERS):
            return Handover.decode(operation.value).step
    return None


def leave_out(
    monkeypatch: pytest.MonkeyPatch, step: HandoverStep, is_left_out: Callable[[Compare], bool]
) -> None:
    """Who writes this step does not ask the store for these comparisons."""
    original = StoreLink.commit

    async def careless(
        self: StoreLink, compares: Sequence[Compare], then: Sequence[Any] = (), *parts: Any, **settings: Any
    ) -> Outcome:
        if step_of(then) is step:
            compares = [compare for compare in compares if not is_left_out(compare)]
        return await original(self, compares, then, *parts, **settings)

    monkeypatch.setattr(StoreLink, "commit", careless)


def is_of_record(compare: Compare) -> bool:
    return compare.key.startswith(HANDOVERS)


def is_of_claim(compare: Compare) -> bool:
    return compare.target is CompareTarget.CREATED and not compare.key.startswith(HANDOVERS)


def standing_though_sealed(claim: Claim[Any]) -> bool:
    """Whether it is owned, or sealed and not yet taken."""
    return bool(claim.epoch and not claim.has_left and claim.loss.error is None and claim.session.is_live)


# What a transaction compares.


def test_an_offer_over_an_open_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, HandoverStep.OFFERED, is_of_record)
    assert broken() == STEPS


def test_an_offer_of_who_does_not_own_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, HandoverStep.OFFERED, is_of_claim)
    assert broken(HandoverStep.OFFERED) == UNTRUE


def test_a_seal_of_who_does_not_own_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, HandoverStep.SEALED, is_of_claim)
    assert broken(HandoverStep.SEALED) == UNTRUE


def test_a_seal_over_another_step_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, HandoverStep.SEALED, is_of_record)
    assert broken(HandoverStep.SEALED) == STEPS


def test_taking_what_was_withdrawn_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, HandoverStep.TAKEN, lambda compare: True)
    assert broken(HandoverStep.TAKEN) in (STEPS, TOO_MANY)


def test_withdrawing_what_was_taken_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, HandoverStep.WITHDRAWN, is_of_record)
    assert broken() in (STEPS, LOST, WRITER)


# Who owns.


def test_an_owner_that_acts_on_after_sealing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claim, "is_standing", property(standing_though_sealed))
    assert broken() == SEALED


def test_an_owner_that_takes_a_lost_answer_of_its_seal_for_a_no_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Giving._write

    async def write(self: Giving, now: Any, decision: Any, handed: Any) -> None:
        try:
            await original(self, now, decision, handed)
        except TimedOut:
            # As if nothing had been sealed.
            self._claim.unseal()
            raise

    monkeypatch.setattr(Giving, "_write", write)
    assert broken(HandoverStep.SEALED) in (SEALED, NOT_SO)


def test_an_heir_that_comes_before_the_successor_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = line._ordered

    def by_age(items: Any, head: Head | None) -> list[KeyValue]:
        found = original(items, head)
        return (
            found
            if head is None
            else sorted(found, key=lambda item: (item.key != head.first, item.create_revision))
        )

    # What `place_of` asks.
    monkeypatch.setattr(line, "_ordered", by_age)
    # Who is to have it must stand still until who has sealed it is gone.
    assert broken(HandoverStep.SEALED, Victim.NEW, rounds_count=3) == NOT_FIRST


def test_an_older_waiter_that_owns_in_its_own_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_come(item: KeyValue, head: Head | None) -> int:
        if head is not None and item.key == head.first:
            return head.first_epoch
        return 0 if head is not None and head.is_open else item.create_revision

    monkeypatch.setattr(line, "epoch_of", first_come)
    assert broken() in (NOT_SO, EPOCHS)


def test_a_successor_that_owns_in_the_epoch_of_its_key_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = TakenClaim.own

    def own(self: TakenClaim[Any], epoch: int, **settings: Any) -> None:
        original(self, self._created, **settings)

    monkeypatch.setattr(TakenClaim, "own", own)
    assert broken() in (NOT_SO, EPOCHS, UNTRUE, TOO_MANY)


# What was sealed.


def test_a_turn_that_is_taken_without_what_was_sealed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = succession._try_to_take

    async def forgetful(claim: Any, place: Place) -> Any:
        if place.head is not None and place.head.next != claim.key:
            place = dataclasses.replace(place, head=dataclasses.replace(place.head, is_open=False))
        return await original(claim, place)

    monkeypatch.setattr(succession, "_try_to_take", forgetful)
    assert broken() == LOST


def test_a_lost_answer_of_taking_that_loses_the_state_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = succession._try_to_take
    tried: set[bytes] = set()

    async def forgetful(claim: Any, place: Place) -> Any:
        is_again = claim.key in tried
        tried.add(claim.key)
        found, handover = await original(claim, place)
        return found, None if is_again else handover

    monkeypatch.setattr(succession, "_try_to_take", forgetful)
    assert broken(HandoverStep.TAKEN) == UNREAD


def test_a_state_that_is_read_from_an_older_record_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = succession._try_to_take

    async def stale(claim: Any, place: Place) -> Any:
        before = claim.record.latest if claim.record is not None else None
        found, handover = await original(claim, place)
        if handover is not None and before is not None:
            handover = dataclasses.replace(handover, state=before.state)
        return found, handover

    monkeypatch.setattr(succession, "_try_to_take", stale)
    assert broken() == UNREAD


def test_a_state_that_nobody_says_to_have_read_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent(claim: Any, trouble: str) -> None:
        """What was read is not told."""

    monkeypatch.setattr(claim, "finish", silent)
    assert broken() in (TWICE, SETTLED, UNREAD)


# How it ends.


def test_a_withdrawal_that_leaves_the_line_sealed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = StoreLink.commit

    async def careless(
        self: StoreLink, compares: Sequence[Compare], then: Sequence[Any] = (), *parts: Any, **settings: Any
    ) -> Outcome:
        if step_of(then) is HandoverStep.WITHDRAWN:
            then = [operation for operation in then if operation.key.startswith(HANDOVERS)]
        return await original(self, compares, then, *parts, **settings)

    monkeypatch.setattr(StoreLink, "commit", careless)
    assert broken() in (SETTLED, LOST, NOT_FIRST, TOO_MANY)


def test_an_owner_that_does_not_know_what_became_of_an_earlier_hand_over_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Giving, "_ended", lambda self, now: None)
    assert broken(HandoverStep.DONE, Victim.OLD) in ("who handed it over has not lost it", NOT_SO)


def test_a_head_that_is_forgotten_while_older_ones_wait_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(self: Handovers, record: Handover) -> bool:
        deletes = [Delete(self._keys.handover(record.kind, record.name))]
        deletes.append(Delete(line.head_key(self._keys.line(record.kind, record.name))))
        return (await self._store.commit([], then=deletes)).is_success

    monkeypatch.setattr(Handovers, "_forget", forget)
    assert broken() in (NOT_SO, TOO_MANY, EPOCHS, NOT_FIRST, UNTRUE)


def test_an_offer_from_outside_of_what_changed_hands_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = StoreLink.commit

    async def careless(
        self: StoreLink, compares: Sequence[Compare], then: Sequence[Any] = (), *parts: Any, **settings: Any
    ) -> Outcome:
        if step_of(then) is HandoverStep.OFFERED and self._host_name == "asker":
            compares = [compare for compare in compares if is_of_record(compare)]
        return await original(self, compares, then, *parts, **settings)

    monkeypatch.setattr(StoreLink, "commit", careless)
    assert broken() == UNTRUE


# What a leader places.


def test_a_placed_seal_that_compares_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, HandoverStep.SEALED, lambda compare: True)
    assert broken(HandoverStep.SEALED, scenario=PlacedHandovers) in (STEPS, UNTRUE)


def test_a_leader_that_places_past_what_was_sealed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Placer._look

    async def blind(self: Placer, entry: bytes, node: str) -> Any:
        item, _, revision, lease = await original(self, entry, node)
        return item, None, revision, lease

    monkeypatch.setattr(Placer, "_look", blind)
    leave_out_of_placing(monkeypatch)
    assert broken(scenario=PlacedHandovers) in (LOST, "nothing is placed past what is sealed", STEPS)


def leave_out_of_placing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries and offers are written whatever the record is."""
    original = StoreLink.commit

    async def careless(
        self: StoreLink, compares: Sequence[Compare], then: Sequence[Any] = (), *parts: Any, **settings: Any
    ) -> Outcome:
        if any(isinstance(operation, Put) and operation.key.startswith(b"entries/") for operation in then):
            compares = [compare for compare in compares if not is_of_record(compare)]
        return await original(self, compares, then, *parts, **settings)

    monkeypatch.setattr(StoreLink, "commit", careless)


def test_an_owner_of_an_entry_that_acts_on_after_sealing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claim, "is_standing", property(standing_though_sealed))
    assert broken(HandoverStep.SEALED, scenario=PlacedHandovers) == SEALED


def test_who_reads_nothing_although_the_entry_is_another_one_s_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def read(self: PlacedMoves, claim: PlacedClaim) -> Handover | None:
        item = await patiently(partial(self._keeper.store.get, self._key(claim)), Chance.seeded(1))
        return None if item is None else Handover.decode(item.value, revision=item.mod_revision)

    monkeypatch.setattr(PlacedMoves, "_read", read)
    assert broken(HandoverStep.TAKEN, scenario=PlacedHandovers) == "what was sealed is what is read"
