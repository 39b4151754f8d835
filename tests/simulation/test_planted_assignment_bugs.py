"""The scenario of assignments finds what it is there to find: each test plants a bug, which is caught."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from hansa.assignment import rebalancing
from hansa.assignment.assigner import Term
from hansa.assignment.handoff import Handoffs, SavedHandoff
from hansa.assignment.partition import Partition
from hansa.assignment.plan import Plan
from hansa.assignment.planner import Candidate, Move, Sharing, share_out
from hansa.assignment.rebalancing import Command, Rebalancing, WritePlan
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.placed import PlacedClaim
from hansa.coordination.placing import PlacedMoves, Placer
from hansa.keys import Keys
from hansa.store.values import Compare, CompareTarget, Delete, KeyValue, Outcome, Put
from hansa.testing.scenarios import AssignmentScenario
from hansa.testing.scenarios.assignment_truth import (
    ALLOWED,
    APART,
    AT_ONCE,
    BOUNDED,
    GIVEN,
    LEAVING,
    LOST,
    ONCE,
    ONLY_OWNER,
    PLANS,
    SEALED,
    STEPS,
    TWICE,
    UNSAVED,
    UNTRUE,
    WRITER,
    PlanStep,
)
from hansa.testing.scenarios.assignments import CELLS, CELLS_STRIDE, GROUP
from hansa.testing.scenarios.strikes import Harm, Moment, Victim
from hansa.testing.store_link import StoreLink
from tests.support.planted_bugs import first_failure

SETTLED = "all is well 60 s after the last fault"
STILL = "nothing moves when nothing changes"
STOPS = "a host stops when it is asked to"

KEYS = Keys()
ENTRIES = KEYS.assignments(GROUP)
HANDOFFS = KEYS.handoffs(GROUP)
PLAN = KEYS.plans(GROUP)
SEEDS_MAX = 80

# A run that fails is left as it is; what its nodes were doing is thrown away later, and then finds no loop.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def broken(*only: Enum) -> str:
    """Play the gate's first seeds: to be quick, those with such strikes first."""
    cells = {seed: CELLS[seed * CELLS_STRIDE % len(CELLS)] for seed in range(SEEDS_MAX)}
    aimed = [
        seed
        for seed, cell in cells.items()
        if {cell.step, cell.victim, cell.harm, cell.moment}.issuperset(only)
    ]
    seeds = (*aimed, *(seed for seed in cells if seed not in aimed))
    return first_failure(AssignmentScenario, seeds).failure.broken.invariant


def leave_out(
    monkeypatch: pytest.MonkeyPatch, prefixes: Sequence[bytes], is_left_out: Callable[[Compare], bool]
) -> None:
    """Who puts, or deletes, something below the prefixes does not ask the store for these comparisons."""
    original = StoreLink.commit

    async def careless(
        self: StoreLink, compares: Sequence[Compare], then: Sequence[Any] = (), *parts: Any, **settings: Any
    ) -> Outcome:
        if any(isinstance(each, Put | Delete) and each.key.startswith(tuple(prefixes)) for each in then):
            compares = [compare for compare in compares if not is_left_out(compare)]
        return await original(self, compares, then, *parts, **settings)

    monkeypatch.setattr(StoreLink, "commit", careless)


# What is saved.


@pytest.mark.spec("ASG-05")
def test_a_handoff_that_is_saved_without_the_owner_s_guards_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave_out(monkeypatch, [HANDOFFS], lambda compare: not compare.key.startswith(HANDOFFS))
    assert broken(Harm.PAUSE) in (LOST, ONLY_OWNER)


def test_a_handoff_that_is_saved_whatever_stands_there_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, [HANDOFFS], lambda compare: compare.key.startswith(HANDOFFS))
    assert broken(Victim.STORE) == LOST


@pytest.mark.spec("ASG-04")
def test_a_worker_that_lets_go_before_it_has_saved_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Worker, work: Work, farewell: Any) -> None:
        return

    monkeypatch.setattr(Worker, "save_last", nothing)
    assert broken() == UNSAVED


@pytest.mark.spec("ASG-04")
def test_a_work_that_forgets_a_save_without_an_answer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It saves the state once more, without what was to be done in the same transaction."""
    original = Work._carry_out

    async def forgetful(self: Work, *parts: Any) -> None:
        try:
            await original(self, *parts)
        finally:
            self._notes_count += self._in_doubt is not None
            self._in_doubt = None

    monkeypatch.setattr(Work, "_carry_out", forgetful)
    assert broken() == APART


@pytest.mark.spec("ASG-04")
def test_a_work_that_takes_an_answer_for_one_to_all_that_it_noted_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Work.settle

    async def hasty(self: Work) -> None:
        await original(self)
        self._saved_notes_count = self._notes_count

    async def save_last(self: Worker, work: Work, farewell: Any) -> None:
        if work.is_in_doubt:
            await hasty(work)
        elif work.is_unsaved:
            await work.save()

    monkeypatch.setattr(Work, "settle", hasty)
    monkeypatch.setattr(Worker, "save_last", save_last)
    assert broken() in (UNSAVED, ONCE)


def test_a_worker_that_reads_the_handoff_before_it_owns_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    early: dict[tuple[Any, str], KeyValue | None] = {}
    take, heed = Handoffs.take, PlacedMoves._heed

    async def hasty_heed(self: PlacedMoves, key: bytes, record: Handover) -> None:
        if record.target == self._node and record.step is HandoverStep.OFFERED:
            store = self._keeper.store
            early[store, record.name] = await store.get(HANDOFFS + record.name.encode())
        await heed(self, key, record)

    async def hasty_take(self: Handoffs, claim: PlacedClaim, partition: str) -> Any:
        found, definition = await take(self, claim, partition)
        if (self._store, partition) in early:
            item = early.pop((self._store, partition))
            found = None if item is None else await self.read(item)
        return found, definition

    monkeypatch.setattr(PlacedMoves, "_heed", hasty_heed)
    monkeypatch.setattr(Handoffs, "take", hasty_take)
    assert broken() in (GIVEN, LOST, SETTLED)


def test_a_state_that_does_not_go_with_its_offset_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Handoffs.read

    async def behind(self: Handoffs, item: KeyValue, **settings: Any) -> SavedHandoff:
        found = await original(self, item, **settings)
        last_offset = max(found.handoff.last_offset - 1, -1)
        return replace(found, handoff=replace(found.handoff, last_offset=last_offset))

    monkeypatch.setattr(Handoffs, "read", behind)
    assert broken() == ONCE


# Who works.


def test_an_owner_whose_guards_leave_out_its_lease_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(monkeypatch, [b"acts/", HANDOFFS], lambda compare: compare.target is CompareTarget.LEASE)
    assert broken(Harm.PAUSE) in (ONLY_OWNER, LOST)


def test_two_works_of_one_partition_after_a_lost_session_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Worker._begin

    async def hasty(self: Worker, claim: PlacedClaim, partition: str, *parts: Any) -> None:
        self._works.pop(partition, None)
        await original(self, claim, partition, *parts)

    monkeypatch.setattr(Worker, "_begin", hasty)
    assert broken() == TWICE


def test_a_worker_that_lets_go_while_somebody_works_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Worker.ask

    def hasty(self: Worker, claim: PlacedClaim, partition: str, reason: str) -> None:
        work = self._works.get(partition)
        original(self, claim, partition, reason)
        if work is not None and work.claim is claim and work._block is not None:
            self._tasks.spawn(self._let_go(work), "lets go too early")

    monkeypatch.setattr(Worker, "ask", hasty)
    assert broken() in (SEALED, UNSAVED)


def test_a_worker_that_leaves_and_takes_offers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = PlacedMoves.__init__

    def willing(self: PlacedMoves, *parts: Any, **settings: Any) -> None:
        original(self, *parts, **settings | {"refuse": lambda record: ""})

    monkeypatch.setattr(PlacedMoves, "__init__", willing)
    assert broken() == LEAVING


# Who leads.


@pytest.mark.spec("ASG-08")
def test_a_leader_that_leaves_out_its_guard_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(
        monkeypatch,
        [ENTRIES, PLAN, KEYS.handovers],
        lambda compare: compare.key.startswith(KEYS.prefix + b"leader/"),
    )
    assert broken(Victim.LEADER, Harm.PAUSE) in (WRITER, PLANS, STEPS, UNTRUE, BOUNDED)


def test_an_owner_that_is_placed_past_what_was_sealed_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Placer._look

    async def blind(self: Placer, entry: bytes, node: str = "") -> Any:
        item, record, revision, lease = await original(self, entry, node)
        is_late = record is not None and record.is_open and not record.step.is_early
        return item, (None if is_late else record), revision, lease

    place = Placer.place

    async def careless(self: Placer, entry: bytes, node: str, **settings: Any) -> int:
        return await place(self, entry, node, **settings | {"is_handed": False})

    monkeypatch.setattr(Placer, "_look", blind)
    monkeypatch.setattr(Placer, "place", careless)
    leave_out(monkeypatch, [ENTRIES], lambda compare: compare.key.startswith(KEYS.handovers))
    assert broken(HandoverStep.SEALED) == LOST


@pytest.mark.spec("ASG-02")
def test_moves_that_begin_before_the_plan_is_written_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Rebalancing.decide

    def hasty(self: Rebalancing, *, now: float, wall: float) -> list[Command]:
        commands = original(self, now=now, wall=wall)
        for command in commands:
            if isinstance(command, WritePlan):
                self._take_up(command.plan.moves)
                self._is_writing = False
                return [*original(self, now=now, wall=wall), command]
        return commands

    monkeypatch.setattr(Rebalancing, "decide", hasty)
    assert broken(PlanStep.HEAD) in (BOUNDED, PLANS)


def test_a_number_of_a_plan_that_is_used_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Rebalancing._made

    def thrifty(self: Rebalancing, *parts: Any, **settings: Any) -> Plan | None:
        found = original(self, *parts, **settings)
        return found and replace(found, number=1 if self.plan is None else self.plan.number + 1)

    monkeypatch.setattr(Rebalancing, "_made", thrifty)
    assert broken(PlanStep.HEAD, Victim.LEADER, Moment.LATE) == PLANS


def test_a_plan_whose_head_comes_before_its_parts_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def write(self: Any, plan: Plan, guard: Compare, *, before: Plan | None) -> Plan:
        revision = await self._write_head(plan, guard, before=before)
        for number, part in enumerate(plan.encode_parts()):
            await self._commit(guard, [], [Put(self._parts(plan.number) + b"%06d" % number, part)])
        return replace(plan, revision=revision)

    monkeypatch.setattr("hansa.assignment.plan.Plans.write", write)
    assert broken() == PLANS


def test_more_moves_at_once_than_the_settings_say_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Rebalancing._offer

    def hasty(self: Rebalancing, steps: list[Command], now: float) -> None:
        settings, self.settings = self.settings, replace(self.settings, moves_at_once=100)
        original(self, steps, now)
        self.settings = settings

    monkeypatch.setattr(Rebalancing, "_offer", hasty)
    assert broken() == AT_ONCE


@pytest.mark.spec("ASG-08")
def test_a_leader_that_forgets_an_open_hand_over_of_the_one_before_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Term._hear_handover

    def forgetful(self: Term, item: KeyValue, is_there: bool) -> None:
        if self.machine.plan is not None:
            original(self, item, is_there)

    monkeypatch.setattr(Term, "_hear_handover", forgetful)
    assert broken(HandoverStep.TAKEN, Victim.LEADER) in (SETTLED, AT_ONCE)


def test_a_leader_that_takes_half_the_news_of_a_step_for_all_of_it_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Placer.place

    async def place(self: Placer, entry: bytes, node: str, *, body: bytes, **settings: Any) -> int:
        return await original(self, entry, node, body=body)

    monkeypatch.setattr(Placer, "place", place)
    monkeypatch.setattr(Rebalancing, "_is_told", lambda self, name, busy: busy.revision is not None)
    assert broken() == BOUNDED


def test_an_owner_that_works_and_is_taken_for_gone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Rebalancing._is_owned

    def blind(self: Rebalancing, name: str) -> bool:
        return name not in self._targets and original(self, name)

    monkeypatch.setattr(Rebalancing, "_is_owned", blind)
    assert broken() == BOUNDED


@pytest.mark.spec("ASG-12")
def test_a_planner_that_does_not_look_at_roles_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(
        workers: Iterable[Candidate],
        partitions: Iterable[Partition],
        owners: Mapping[str, str],
        *,
        per_node_max: int | None = None,
    ) -> Sharing:
        return share_out(
            workers, [replace(each, role="") for each in partitions], owners, per_node_max=per_node_max
        )

    monkeypatch.setattr(rebalancing, "share_out", blind)
    assert broken() == ALLOWED


@pytest.mark.spec("ASG-13")
def test_a_leader_that_moves_something_at_each_look_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgets that nothing has changed."""

    def unsteady(
        workers: Iterable[Candidate],
        partitions: Iterable[Partition],
        owners: Mapping[str, str],
        *,
        per_node_max: int | None = None,
    ) -> Sharing:
        found = share_out(workers, partitions, owners, per_node_max=per_node_max)
        owner = owners.get("p1", "")
        others = [each.node for each in workers if each.node != owner and not each.is_draining]
        if found.moves or not owner or not others:
            return found
        move = Move(partition="p1", source=owner, target=min(others), reason="for a change")
        return replace(found, moves=(move,))

    original = Rebalancing._due_plan

    def restless(self: Rebalancing, now: float, wall: float) -> Plan | None:
        if now >= self._check_at_s:
            self._planned_inputs, self._is_changed = "", True
        return original(self, now, wall)

    monkeypatch.setattr(rebalancing, "share_out", unsteady)
    monkeypatch.setattr(Rebalancing, "_due_plan", restless)
    assert broken() in (STILL, SETTLED, ALLOWED)
