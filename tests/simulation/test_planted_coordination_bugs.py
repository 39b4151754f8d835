"""The scenarios of coordination find what they are there to find: each test plants a bug, which is caught."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hansa.coordination import claim, following, line, stay
from hansa.coordination.claim import Claim, TakenClaim
from hansa.coordination.fencing import FencedKey, encode_fence
from hansa.coordination.following import Copy
from hansa.coordination.lookout import Lookout
from hansa.coordination.member import MemberStatus
from hansa.coordination.roster import RosterBook
from hansa.coordination.session import SessionTimes
from hansa.coordination.stay import Stay
from hansa.errors import StaleFence
from hansa.keys import Keys
from hansa.runtime.mailboxes import EventFeeds
from hansa.store.memory import LoopKeeping
from hansa.store.mvcc import Mvcc
from hansa.store.values import Compare, CompareTarget, Delete, KeyValue, Outcome, Put, prefix_range
from hansa.testing.scenarios import Elections, Locks, RosterScenario
from hansa.testing.simulation import Scenario
from hansa.testing.store_host import DriftingClock, StoreHost
from hansa.testing.store_link import StoreLink
from tests.support.planted_bugs import first_failure

SETTLED = "all is well 40 s after the last fault"
NOT_SO = "who believes to own does own"
TOO_MANY = "not more own than may"
NOT_FIRST = "who came first owns first"
LOST = "no acknowledged update is lost"


def broken(scenario: type[Scenario], seeds_max: int, *, first: int = 0) -> str:
    return first_failure(scenario, range(first, first + seeds_max)).failure.broken.invariant


async def nothing(*arguments: Any, **settings: Any) -> None:
    """What should be done is not."""


def leave_out(monkeypatch: pytest.MonkeyPatch, is_left_out: Callable[[Compare], bool]) -> None:
    """Nobody asks the store for these comparisons any more."""
    original = StoreLink.commit

    async def careless(self: StoreLink, compares: Sequence[Compare], *parts: Any, **settings: Any) -> Outcome:
        kept = [compare for compare in compares if not is_left_out(compare)]
        return await original(self, kept, *parts, **settings)

    monkeypatch.setattr(StoreLink, "commit", careless)


# Sessions and elections.


def test_a_session_without_a_margin_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SessionTimes, "deadline_s", lambda self, until_s: until_s)
    assert broken(Elections, 60) == NOT_SO


@pytest.mark.spec("CRD-09")
def test_sessions_that_go_by_the_date_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class ByTheDate(DriftingClock):
        """What `time.time()` is to those who use it for durations."""

        def monotonic(self) -> float:
            return self.wall()

    monkeypatch.setattr(StoreHost, "clock_of", lambda self, host: ByTheDate(host.clock, rate=1.0))
    assert broken(Elections, 60) == NOT_SO


def test_a_leader_that_ignores_the_deadline_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def standing(self: Claim[Any]) -> bool:
        return bool(self.epoch and not self.has_left and self.loss.error is None)

    monkeypatch.setattr(Claim, "is_standing", property(standing))
    monkeypatch.setattr(Claim, "as_lost", lambda self: self.loss.error)
    monkeypatch.setattr(Claim, "_session_lost", lambda self: None)
    assert broken(Elections, 20) == NOT_SO


def test_a_candidate_that_does_not_wait_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(*arguments: Any, **settings: Any) -> Any:
        place = line.place_of(*arguments, **settings)
        return None if place is None else dataclasses.replace(place, is_turn=True)

    monkeypatch.setattr(claim, "place_of", hasty)
    assert broken(Elections, 5) in (TOO_MANY, NOT_FIRST)
    assert broken(Locks, 5) in (TOO_MANY, NOT_FIRST)


def test_a_leader_that_believes_until_its_resignation_is_answered_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def late(self: TakenClaim[Any], timeout_s: float) -> None:
        if not self.has_left:
            try:
                await self._delete(timeout_s)
            finally:
                self._leave()

    monkeypatch.setattr(TakenClaim, "_give_back", late)
    assert broken(Elections, 5) == NOT_SO


def test_observers_that_take_the_last_for_the_leader_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "in_order", lambda items: line.in_order(items)[::-1])
    assert broken(Elections, 5) in (SETTLED, "terms are seen in order")


def test_candidates_that_wait_for_a_deletion_they_missed_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = following.key_changed

    async def deaf(store: Any, known: Any, *, revision: int, **settings: Any) -> Any:
        # A watch from revision 0 is one from now on.
        return await original(store, known, revision=-1, **settings)

    monkeypatch.setattr(claim, "key_changed", deaf)
    assert broken(Elections, 60) == SETTLED


# Locks and what they guard.


def test_storage_that_checks_no_fence_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def careless(self: FencedKey, fence: int, value: bytes, **settings: Any) -> int:
        return await self._store.put(self.key, value, **settings)

    monkeypatch.setattr(FencedKey, "write", careless)
    assert broken(Locks, 60) in (LOST, "what was refused is not written")


def test_storage_that_checks_the_fence_on_writing_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def take(self: FencedKey, fence: int, **settings: Any) -> bytes | None:
        found = await self._store.get(self.key, **settings)
        return None if found is None else found.value

    async def write(self: FencedKey, fence: int, value: bytes, **settings: Any) -> int:
        stored = encode_fence(fence)
        puts = [Put(self.fence_key, stored), Put(self.key, value)]
        outcome = await self._store.commit(
            [Compare.value(self.fence_key, ">", stored)], otherwise=puts, **settings
        )
        if outcome.is_success:
            raise StaleFence("a newer owner has written")
        return outcome.revision

    monkeypatch.setattr(FencedKey, "take", take)
    monkeypatch.setattr(FencedKey, "write", write)
    assert broken(Locks, 20) == LOST


def test_a_write_that_was_given_up_and_overwrites_a_later_one_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fence is still that of its writer, who has written again meanwhile."""
    leave_out(
        monkeypatch,
        lambda compare: compare.key.startswith(b"counters/") and compare.target is CompareTarget.REVISION,
    )
    assert broken(Locks, 60) == LOST


def test_a_key_that_comes_late_and_stands_in_the_way_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waiter has tried again, held, and released; then its first try creates the key once more."""
    leave_out(monkeypatch, lambda compare: compare.key.startswith(Keys().prefix + b"left/"))
    assert broken(Locks, 60) == SETTLED


def test_a_release_of_another_s_lock_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def rude(self: TakenClaim[Any], timeout: float) -> bool:
        await self.session.store.commit([], then=[Delete(*prefix_range(self.prefix))], timeout=timeout)
        return True

    monkeypatch.setattr(TakenClaim, "_delete", rude)
    assert broken(Locks, 5) in ("only its owner releases", NOT_SO)


def test_a_lock_that_is_never_released_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TakenClaim, "_delete", nothing)
    assert broken(Locks, 5) == SETTLED


# A store that goes back in time.


@pytest.mark.spec("CRD-17")
def test_watches_that_wait_for_a_revision_of_a_lost_history_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Mvcc, "can_resume", lambda self, start_revision: True)
    assert broken(Elections, 30) == SETTLED


@pytest.mark.spec("CRD-17")
def test_sessions_that_live_on_with_what_they_gave_back_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreLink, "_lost", lambda self, lost: None)
    assert broken(Locks, 60) == SETTLED
    # A stay sees it by its record, too: both must be blind.
    hear = Stay.hear

    def by_its_own_revision(self: Stay, item: KeyValue | None, *, revision: int) -> None:
        hear(self, item, revision=revision if item is None else item.mod_revision)

    monkeypatch.setattr(Stay, "hear", by_its_own_revision)
    assert broken(RosterScenario, 60) == "what was acknowledged is said"


@pytest.mark.spec("CRD-17")
def test_a_start_that_gives_out_revisions_once_more_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def leap(self: StoreHost) -> None:
        self._run_revision = self._engine.revision + 1
        self._engine.begin_run(self._run_revision, now=self._seen_s)

    monkeypatch.setattr(StoreHost, "_leap", leap)
    assert broken(Locks, 60) in ("tokens grow", NOT_SO, SETTLED)


# Members.


def test_a_follower_that_loses_what_happened_in_a_gap_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Copy.read

    def forgetful(self: Copy, scan: Any) -> Any:
        is_first = not self.revision
        found = original(self, scan)
        return found if is_first else None

    monkeypatch.setattr(Copy, "read", forgetful)
    assert broken(RosterScenario, 20) in (SETTLED, "statuses follow the table")


def test_a_roster_that_declares_members_down_without_the_store_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = RosterBook._step

    def rash(self: RosterBook, entry: Any, member: Any, *arguments: Any) -> Any:
        if member.status is MemberStatus.SUSPECT:
            member = dataclasses.replace(member, status=MemberStatus.DOWN)
        return original(self, entry, member, *arguments)

    monkeypatch.setattr(RosterBook, "_step", rash)
    assert broken(RosterScenario, 20) == "who is down has lost its record"


def test_an_event_that_is_told_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original, told = EventFeeds.put, {"count": 0}

    def repetitive(self: EventFeeds[Any], event: Any) -> None:
        told["count"] += 1
        for _ in range(1 if told["count"] % 20 else 2):
            original(self, event)

    monkeypatch.setattr(EventFeeds, "put", repetitive)
    assert broken(RosterScenario, 5) in (
        "no event comes twice",
        "statuses follow the table",
        "incarnations grow",
    )


def test_a_node_that_keeps_its_incarnation_on_its_next_session_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keeping(record: Any, **changes: Any) -> Any:
        if getattr(record, "incarnation", 0):
            changes.pop("incarnation", None)
        return dataclasses.replace(record, **changes)

    monkeypatch.setattr(stay, "replace", keeping)
    assert broken(RosterScenario, 20) in (
        "each session has an incarnation of its own",
        "incarnations grow",
    )


def test_heartbeats_that_end_unnoticed_after_a_failure_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LoopKeeping.__init__

    def once(self: LoopKeeping, *arguments: Any, **settings: Any) -> None:
        told = settings["on_change"]

        def heard() -> None:
            told()
            if self.failures_count:
                # Who knows that its session is lost joins again in time.
                self.kept_until_s = math.inf
                self.stop()

        original(self, *arguments, **{**settings, "on_change": heard})

    monkeypatch.setattr(LoopKeeping, "__init__", once)
    assert broken(RosterScenario, 150) == "who stutters within bounds is not down"


def test_a_statement_that_comes_late_over_a_later_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(
        monkeypatch,
        lambda compare: compare.key.startswith(Keys().nodes) and compare.target is CompareTarget.REVISION,
    )
    # It takes two answers lost in a row, which is rare.
    assert broken(RosterScenario, 100, first=90) == "what was acknowledged is said"


def test_statements_that_undo_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Stay.write

    async def hasty(self: Stay, change: Any, **settings: Any) -> None:
        # What is to be said comes from what is said now, and not from what is said when its turn comes.
        info = change(self.info)
        await original(self, lambda _: info, **settings)

    monkeypatch.setattr(Stay, "write", hasty)
    assert broken(RosterScenario, 20) == "what was acknowledged is said"


def test_a_suspicion_that_nobody_refutes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Lookout._say

    async def grudging(self: Lookout, member: Any, lease: Any) -> None:
        now = self._looker.view.get(member.id)
        if now is not None and now.status is not MemberStatus.SUSPECT:
            await original(self, member, lease)

    monkeypatch.setattr(Lookout, "_say", grudging)
    assert broken(RosterScenario, 30) == SETTLED
