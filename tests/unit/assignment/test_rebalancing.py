"""The leader's machine: what it commands, from what it was told. A desk plays its driver and the store."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hansa.assignment.partition import GroupSettings, Partition
from hansa.assignment.plan import Plan, PlanState
from hansa.assignment.planner import Candidate
from hansa.assignment.rebalancing import (
    ClearPartition,
    Command,
    EndPlan,
    OfferPartition,
    PlacePartition,
    Rebalancing,
    RemovePartition,
    Step,
    WithdrawOffer,
    WritePlan,
    asked_by,
)
from hansa.coordination.handover import Handover, HandoverStep, advanced, offered
from hansa.coordination.placed import Placement
from hansa.limits import ASSIGNMENT_MOVE_TRIES_COUNT

STEPS_COUNT_MAX = 10_000


class Desk:
    """Tells a machine what is so, carries out what it commands, and keeps what the store would have."""

    def __init__(self, partitions: int = 6, **settings: object) -> None:
        self.now = 100.0
        self.revision = 1
        self.settings = GroupSettings(**settings)  # type: ignore[arg-type]
        self.partitions = {f"p{n}": Partition(name=f"p{n}") for n in range(partitions)}
        self.workers: dict[str, Candidate] = {}
        self.leases: dict[str, int] = {}
        self.entries: dict[str, tuple[Placement, int]] = {}
        self.records: dict[str, Handover] = {}
        self.plan: Plan | None = None
        self.machine = Rebalancing("g", "leader")
        self.commands: list[Command] = []
        self.hands_over = True
        """Whether the nodes do their part of a hand-over at once."""

    # -- the world

    def joins(self, *nodes: str, **traits: object) -> None:
        for node in nodes:
            self.workers[node] = Candidate(node=node, **traits)  # type: ignore[arg-type]
            self.leases[node] = self._next()
        self._tell_workers()

    def leaves(self, *nodes: str) -> None:
        for node in nodes:
            del self.workers[node], self.leases[node]
        self._tell_workers()

    def has_new_session(self, node: str) -> None:
        self.leases[node] = self._next()
        self._tell_workers()

    def _tell_workers(self) -> None:
        self.machine.hear_workers(dict(self.workers), dict(self.leases), now=self.now)

    def defines(self, partition: Partition) -> None:
        self.partitions[partition.name] = partition
        self.machine.hear_partition(partition.name, partition, now=self.now)

    def undefines(self, name: str) -> None:
        del self.partitions[name]
        self.machine.hear_partition(name, None, now=self.now)

    def configures(self, **settings: object) -> None:
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]
        self.machine.hear_settings(self.settings, now=self.now)

    def owners(self) -> dict[str, str]:
        return {name: entry.node for name, (entry, _) in self.entries.items()}

    def counts(self) -> dict[str, int]:
        owners = list(self.owners().values())
        return {node: owners.count(node) for node in self.workers}

    # -- the leader

    def begins(self) -> None:
        """A new leader reads all there is."""
        self.machine = Rebalancing("g", "leader")
        self.machine.hear_settings(self.settings, now=self.now)
        for name, partition in self.partitions.items():
            self.machine.hear_partition(name, partition, now=self.now)
        for name, (entry, revision) in self.entries.items():
            self.machine.hear_entry(name, entry, revision=revision)
        for name, record in self.records.items():
            self.machine.hear_handover(name, record, revision=record.revision, now=self.now)
        self._tell_workers()
        self.machine.begin(self.plan, now=self.now)

    def turn(self) -> list[Command]:
        """One decision, with all that follows of it at once."""
        commands = self.machine.decide(now=self.now, wall=self.now)
        self.commands += commands
        for command in commands:
            if isinstance(command, WritePlan | EndPlan):
                assert self.plan is command.before
                self.plan = replace(command.plan, revision=self._next())
                self.machine.written(command, self.plan, now=self.now)
            else:
                self.machine.done(command, self.carries_out(command), now=self.now)
        return commands

    def settles(self) -> list[Command]:
        """Decide, and let time go by, until two checks find nothing to do; gives all that was done."""
        begun, checks_count = len(self.commands), self.machine.stats.checks_count
        for _ in range(STEPS_COUNT_MAX):
            if self.turn():
                checks_count = self.machine.stats.checks_count
            elif self.machine.stats.checks_count >= checks_count + 2:
                return self.commands[begun:]
            else:
                self.now = self.machine.deadline(now=self.now)
        raise AssertionError("it does not come to rest")

    def until(self, is_it: Callable[[Command], bool]) -> Command:
        """Decide until there is such a command, and gives it; all before it, and it, are carried out."""
        for _ in range(STEPS_COUNT_MAX):
            for command in self.turn():
                if is_it(command):
                    return command
            self.now = min(self.machine.deadline(now=self.now), self.now + 60.0)
        raise AssertionError("it never comes to that")

    def carries_out(self, step: Step) -> int:
        name, record = step.partition, self.records.get(step.partition)
        match step:
            case PlacePartition():
                placement = Placement(node=step.node, lease=self.leases[step.node], epoch=self.revision + 1)
                if record is not None and record.step.is_early:
                    self.writes(name, record, HandoverStep.WITHDRAWN, trouble="placed meanwhile")
                elif record is not None and record.is_open:
                    self.writes(
                        name,
                        record,
                        HandoverStep.TAKEN,
                        target_key=str(placement.lease),
                        taken_by=step.node,
                        next_epoch=placement.epoch,
                    )
                self._puts(name, placement)
                if self.hands_over and (taken := self.records.get(name)) is not None and taken.is_open:
                    self.writes(name, taken, HandoverStep.DONE)
            case OfferPartition():
                assert record is None or not record.is_open
                assert self.machine.plan is not None
                assert step.plan_revision == self.machine.plan.revision > 0
                self._offers(name, step.node, step.timeout, asked_by("g"), step.reason)
                if self.hands_over:
                    self.seals(name)
            case WithdrawOffer():
                self.writes(name, step.record, HandoverStep.WITHDRAWN, trouble=step.trouble)
            case ClearPartition():
                self._puts(name, Placement(node="", lease=0, epoch=self.revision + 1))
            case RemovePartition():
                del self.entries[name]
                self.machine.hear_entry(name, None, revision=self._next())
        return self.revision

    def is_asked_by_hand(self, name: str, node: str) -> None:
        """Somebody asks for a hand-over beside all plans."""
        self._offers(name, node, 10.0, "by hand", "by hand")

    def _offers(self, name: str, node: str, timeout: float, who: str, reason: str) -> None:
        entry = self.entries[name][0]
        offer = offered(
            self.records.get(name),
            kind="assignment:g",
            name=name,
            source=entry.node,
            target=node,
            epoch=entry.epoch,
            owner_key=str(entry.lease),
            timeout=timeout,
            at=self.now,
            asked_by=who,
            reason=reason,
        )
        self._keeps(name, offer)

    # -- the nodes

    def seals(self, name: str) -> None:
        """Both nodes do their part, up to what is the leader's."""
        record = self.records[name]
        self.writes(name, record, HandoverStep.PREPARED, target_key=str(self.leases[record.target]))
        self.writes(name, self.records[name], HandoverStep.SEALED)

    def writes(self, name: str, record: Handover, step: HandoverStep, **more: object) -> None:
        self._keeps(name, advanced(record, step, at=self.now, **more))

    def _keeps(self, name: str, record: Handover) -> None:
        record = self.records[name] = replace(record, revision=self._next())
        self.machine.hear_handover(name, record, revision=record.revision, now=self.now)

    def _puts(self, name: str, placement: Placement) -> None:
        revision = self._next()
        self.entries[name] = (placement, revision)
        self.machine.hear_entry(name, placement, revision=revision)

    def _next(self) -> int:
        self.revision += 1
        return self.revision


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.begins()
    return desk


def moves_of(commands: list[Command]) -> list[Step]:
    return [command for command in commands if isinstance(command, PlacePartition | OfferPartition)]


@pytest.mark.spec("ASG-02")
def test_the_plan_is_written_before_anything_is_placed(desk: Desk) -> None:
    desk.joins("a", "b")
    first = desk.turn()
    assert [type(command) for command in first] == [WritePlan]
    assert desk.entries == {}
    desk.settles()
    assert desk.counts() == {"a": 3, "b": 3}
    assert desk.plan is not None
    assert desk.plan.state is PlanState.DONE
    assert isinstance(desk.commands[-1], EndPlan)


def test_a_plan_that_could_not_be_written_is_not_begun(desk: Desk) -> None:
    desk.joins("a")
    (command,) = desk.machine.decide(now=desk.now, wall=0.0)
    assert isinstance(command, WritePlan)
    assert desk.machine.decide(now=desk.now, wall=0.0) == []
    other = replace(command.plan, number=7, leader="other", moves=())
    desk.plan = other
    desk.machine.written(command, other, now=desk.now)
    again = desk.turn()
    assert [type(each) for each in again] == [WritePlan]
    assert desk.plan is not None
    assert desk.plan.number == 8


@pytest.mark.spec("ASG-02")
def test_a_join_moves_its_share_and_nothing_else(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.settles()
    before = desk.owners()
    desk.joins("c")
    moves = moves_of(desk.settles())
    assert desk.counts() == {"a": 2, "b": 2, "c": 2}
    moved = {move.partition for move in moves}
    assert len(moved) == 2
    assert all(desk.owners()[name] == owner for name, owner in before.items() if name not in moved)


@pytest.mark.spec("ASG-13")
def test_after_a_join_nothing_moves_for_a_while(desk: Desk) -> None:
    desk.joins("a")
    desk.settles()
    began_s = desk.now
    desk.joins("b")
    assert desk.turn() == []
    desk.until(lambda command: isinstance(command, OfferPartition))
    assert desk.now - began_s >= desk.settings.join_delay
    assert desk.machine.stats.join_to_rebalance_s == desk.now - began_s


def test_what_nobody_owns_does_not_wait_for_others_to_join(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.settles()
    desk.joins("c")
    desk.leaves("a")
    placed = [command for command in (*desk.turn(), *desk.turn()) if isinstance(command, PlacePartition)]
    assert len(placed) == 3


@pytest.mark.spec("ASG-13")
def test_nothing_moves_while_nothing_changes_however_often_it_checks(desk: Desk) -> None:
    desk.joins("a", "b", "c")
    desk.settles()
    plan, entries = desk.plan, dict(desk.entries)
    for _ in range(20):
        desk.now = desk.machine.deadline(now=desk.now)
        assert desk.turn() == []
    assert desk.machine.stats.checks_count >= 19
    assert (desk.plan, desk.entries) == (plan, entries)


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_more_moves_are_open_than_the_settings_say(at_once: int) -> None:
    desk = Desk(partitions=20, moves_at_once=at_once)
    desk.begins()
    desk.joins("a")
    desk.settles()
    desk.hands_over = False
    desk.joins("b")
    desk.until(lambda command: isinstance(command, OfferPartition))
    offered_count = at_once
    while offered_count < 10:
        open_names = [name for name, record in desk.records.items() if record.is_open]
        assert len(open_names) == at_once
        assert desk.turn() == []
        desk.seals(open_names[0])
        (placed,) = desk.turn()
        assert isinstance(placed, PlacePartition)
        desk.writes(open_names[0], desk.records[open_names[0]], HandoverStep.DONE)
        (offer,) = desk.turn()
        assert isinstance(offer, OfferPartition)
        offered_count += 1


@pytest.mark.spec("ASG-08")
def test_a_new_leader_carries_on_the_plan_of_the_one_before() -> None:
    desk = Desk(partitions=12, moves_at_once=2)
    desk.begins()
    desk.joins("a", "b")
    desk.settles()
    desk.joins("c")
    desk.until(lambda command: isinstance(command, OfferPartition))
    half_done, plan = desk.counts()["c"], desk.plan
    assert plan is not None
    assert plan.state is PlanState.OPEN
    assert half_done < 4
    desk.begins()
    after = desk.settles()
    assert not any(isinstance(command, WritePlan) for command in after)
    assert desk.counts() == {"a": 4, "b": 4, "c": 4}
    assert desk.plan is not None
    assert (desk.plan.number, desk.plan.state) == (plan.number, PlanState.DONE)


@pytest.mark.spec("ASG-08")
@pytest.mark.parametrize("step", [HandoverStep.OFFERED, HandoverStep.PREPARED, HandoverStep.SEALED])
def test_a_new_leader_goes_on_with_a_hand_over_that_is_open(step: HandoverStep) -> None:
    desk = Desk(partitions=2)
    desk.begins()
    desk.joins("a")
    desk.settles()
    desk.joins("b")
    desk.hands_over = False
    offer = desk.until(lambda command: isinstance(command, OfferPartition))
    assert isinstance(offer, OfferPartition)
    record = desk.records[offer.partition]
    if step is not HandoverStep.OFFERED:
        desk.writes(offer.partition, record, HandoverStep.PREPARED, target_key=str(desk.leases["b"]))
    if step is HandoverStep.SEALED:
        desk.writes(offer.partition, desk.records[offer.partition], HandoverStep.SEALED)
    desk.begins()
    desk.hands_over = True
    if step is not HandoverStep.SEALED:
        assert moves_of(desk.turn()) == []
        if step is HandoverStep.OFFERED:
            desk.seals(offer.partition)
        else:
            desk.writes(offer.partition, desk.records[offer.partition], HandoverStep.SEALED)
    after = moves_of(desk.settles())
    assert [(type(each), each.partition) for each in after] == [(PlacePartition, offer.partition)]
    assert desk.records[offer.partition].step is HandoverStep.DONE


@pytest.mark.parametrize("is_entry_first", [True, False])
def test_what_was_handed_over_is_placed_once_in_whatever_order_the_news_of_it_come(
    desk: Desk, is_entry_first: bool
) -> None:
    desk.joins("a")
    desk.settles()
    desk.hands_over = False
    desk.configures(moves_at_once=1)
    desk.joins("b")
    offer = desk.until(lambda command: isinstance(command, OfferPartition))
    assert isinstance(offer, OfferPartition)
    name = offer.partition
    desk.seals(name)
    (place,) = desk.machine.decide(now=desk.now, wall=desk.now)
    assert isinstance(place, PlacePartition)
    entry = Placement(node="b", lease=desk.leases["b"], epoch=desk.revision + 1)
    revision = desk.revision + 1
    taken = replace(
        advanced(desk.records[name], HandoverStep.TAKEN, at=desk.now, taken_by="b", next_epoch=entry.epoch),
        revision=revision,
    )
    done = replace(advanced(taken, HandoverStep.DONE, at=desk.now), revision=revision + 1)
    desk.machine.done(place, revision, now=desk.now)
    if is_entry_first:
        desk.machine.hear_entry(name, entry, revision=revision)
        assert desk.machine.decide(now=desk.now, wall=desk.now) == []
    desk.machine.hear_handover(name, taken, revision=revision, now=desk.now)
    assert desk.machine.decide(now=desk.now, wall=desk.now) == []
    desk.machine.hear_handover(name, done, revision=revision + 1, now=desk.now)
    if not is_entry_first:
        # By the entry that it knows the old owner still has it.
        commands = desk.machine.decide(now=desk.now, wall=desk.now)
        assert all(isinstance(command, OfferPartition) and command.partition != name for command in commands)
        desk.machine.hear_entry(name, entry, revision=revision)
    commands = desk.machine.decide(now=desk.now, wall=desk.now)
    assert all(isinstance(command, OfferPartition) and command.partition != name for command in commands)


def test_a_new_leader_makes_another_plan_if_something_has_changed(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.until(lambda command: isinstance(command, WritePlan))
    number = desk.plan.number if desk.plan is not None else 0
    desk.leaves("b")
    desk.begins()
    desk.settles()
    assert desk.counts() == {"a": 6}
    assert desk.plan is not None
    assert desk.plan.number > number


def test_an_owner_with_another_session_is_given_its_own_again(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.settles()
    before = desk.owners()
    epochs = {name: entry.epoch for name, (entry, _) in desk.entries.items()}
    desk.has_new_session("a")
    placed = moves_of(desk.settles())
    assert {step.partition for step in placed} == {name for name, owner in before.items() if owner == "a"}
    assert desk.owners() == before
    assert all(desk.entries[step.partition][0].epoch > epochs[step.partition] for step in placed)


def test_who_leaves_loses_only_what_it_had(desk: Desk) -> None:
    desk.joins("a", "b", "c")
    desk.settles()
    before = desk.owners()
    desk.leaves("b")
    moved = {step.partition for step in moves_of(desk.settles())}
    assert moved == {name for name, owner in before.items() if owner == "b"}
    assert desk.counts() == {"a": 3, "c": 3}


def test_a_move_that_is_withdrawn_is_offered_again_and_then_given_up(desk: Desk) -> None:
    desk.joins("a")
    desk.settles()
    desk.hands_over = False
    desk.joins("b")
    tries: dict[str, int] = {}
    for _ in range(200):
        for command in desk.turn():
            if isinstance(command, OfferPartition):
                tries[command.partition] = tries.get(command.partition, 0) + 1
                desk.writes(
                    command.partition,
                    desk.records[command.partition],
                    HandoverStep.WITHDRAWN,
                    trouble="its worker leaves",
                )
        if desk.plan is not None and desk.plan.state is PlanState.DONE and tries:
            break
        desk.now = min(desk.machine.deadline(now=desk.now), desk.now + 5.0)
    assert tries == dict.fromkeys(tries, ASSIGNMENT_MOVE_TRIES_COUNT)
    assert len(tries) == 3
    assert desk.plan is not None
    assert set(desk.plan.failed) == tries.keys()
    assert desk.machine.stats.moves_failed_count == 3
    # The next check plans it anew.
    desk.hands_over = True
    desk.until(lambda command: isinstance(command, WritePlan))
    desk.settles()
    assert desk.counts() == {"a": 3, "b": 3}


def test_a_hand_over_past_its_time_is_withdrawn(desk: Desk) -> None:
    desk.joins("a")
    desk.settles()
    desk.hands_over = False
    desk.joins("b")
    offer = desk.until(lambda command: isinstance(command, OfferPartition))
    began_s = desk.now
    withdrawal = desk.until(lambda command: isinstance(command, WithdrawOffer))
    assert isinstance(withdrawal, WithdrawOffer)
    assert isinstance(offer, OfferPartition)
    assert desk.now - began_s >= offer.timeout


def test_what_was_sealed_goes_to_another_when_both_are_gone() -> None:
    desk = Desk(partitions=2)
    desk.begins()
    desk.joins("a")
    desk.settles()
    desk.joins("b", "c")
    desk.hands_over = False
    offer = desk.until(lambda command: isinstance(command, OfferPartition))
    assert isinstance(offer, OfferPartition)
    desk.seals(offer.partition)
    other = ({"b", "c"} - {offer.node}).pop()
    desk.leaves("a", offer.node)
    desk.hands_over = True
    desk.settles()
    assert desk.counts() == {other: 2}
    assert desk.records[offer.partition].taken_by == other


def test_a_partition_that_is_undefined_has_its_entry_removed(desk: Desk) -> None:
    desk.joins("a")
    desk.settles()
    desk.undefines("p1")
    desk.settles()
    assert "p1" not in desk.entries
    assert len(desk.entries) == 5


@pytest.mark.spec("ASG-12")
def test_an_owner_that_may_not_have_it_any_more_loses_it_though_nobody_else_may(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.settles()
    desk.defines(Partition(name="p0", role="pump"))
    desk.settles()
    assert desk.owners()["p0"] == ""
    assert desk.plan is not None
    assert "p0" in desk.plan.unplaced
    desk.joins("c", roles=frozenset({"pump"}))
    desk.settles()
    assert desk.owners()["p0"] == "c"


def test_a_pinned_partition_waits_for_its_node(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.settles()
    desk.defines(Partition(name="p0", pinned="c"))
    desk.settles()
    assert desk.owners()["p0"] == ""
    desk.joins("c")
    desk.settles()
    assert desk.owners()["p0"] == "c"


def test_a_draining_node_gives_all_up_and_a_lonely_one_keeps_it(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.settles()
    desk.workers["a"] = replace(desk.workers["a"], is_draining=True)
    desk._tell_workers()
    desk.settles()
    assert desk.counts() == {"a": 0, "b": 6}
    desk.workers["b"] = replace(desk.workers["b"], is_draining=True)
    desk._tell_workers()
    desk.settles()
    assert desk.counts() == {"a": 0, "b": 6}


def test_a_move_by_hand_goes_on_beside_the_plan(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.settles()
    name = next(name for name, owner in desk.owners().items() if owner == "a")
    desk.is_asked_by_hand(name, "b")
    assert desk.turn() == []
    desk.seals(name)
    (placed,) = desk.turn()
    assert isinstance(placed, PlacePartition)
    assert (placed.node, placed.is_handed) == ("b", True)
    # Nobody has asked for a plan, so it stays there.
    assert moves_of(desk.settles()) == []
    assert desk.owners()[name] == "b"


@pytest.mark.spec("ASG-12")
def test_a_move_by_hand_against_a_pin_is_made_good_by_the_next_check(desk: Desk) -> None:
    desk.joins("a", "b")
    desk.settles()
    name = next(name for name, owner in desk.owners().items() if owner == "a")
    desk.defines(Partition(name=name, pinned="a"))
    desk.settles()
    desk.is_asked_by_hand(name, "b")
    desk.seals(name)
    desk.turn()
    assert desk.owners()[name] == "b"
    desk.settles()
    assert desk.owners()[name] == "a"


def test_many_changes_are_told_in_short(desk: Desk) -> None:
    desk.joins(*(f"node-{n}" for n in range(30)))
    desk.settles()
    assert desk.plan is not None
    assert "more" in desk.plan.reason
    assert len(desk.plan.reason) < 200
