"""The leader's machine, when news and steps cross each other."""

from dataclasses import replace

import pytest

from hansa.assignment.partition import Partition
from hansa.assignment.rebalancing import (
    ClearPartition,
    Command,
    OfferPartition,
    PlacePartition,
    WithdrawOffer,
    WritePlan,
)
from hansa.coordination.handover import HandoverStep, advanced
from hansa.coordination.placed import Placement
from tests.unit.assignment.test_rebalancing import Desk


def offered_desk(partitions: int = 2) -> tuple[Desk, str]:
    """A desk where `a` has all and is about to give a partition to `b`; and the name of that."""
    desk = Desk(partitions=partitions)
    desk.begins()
    desk.joins("a")
    desk.settles()
    desk.hands_over = False
    desk.joins("b")
    offer = desk.until(lambda command: isinstance(command, OfferPartition))
    assert isinstance(offer, OfferPartition)
    record = desk.records[offer.partition]
    desk.writes(offer.partition, record, HandoverStep.PREPARED, target_key=str(desk.leases["b"]))
    return desk, offer.partition


def drains(desk: Desk, node: str, *, is_draining: bool = True) -> None:
    desk.workers[node] = replace(desk.workers[node], is_draining=is_draining)
    desk._tell_workers()


def test_a_hand_over_that_the_next_plan_does_not_have_is_withdrawn() -> None:
    desk, name = offered_desk()
    drains(desk, "b")
    withdrawal = desk.until(lambda command: isinstance(command, WithdrawOffer))
    assert isinstance(withdrawal, WithdrawOffer)
    assert (withdrawal.partition, withdrawal.trouble) == (name, "the plan has changed")
    desk.hands_over = True
    desk.settles()
    assert desk.counts() == {"a": 2, "b": 0}


@pytest.mark.spec("ASG-02")
def test_a_move_of_an_old_plan_that_came_too_far_is_made_good_by_another_plan() -> None:
    desk, name = offered_desk()
    drains(desk, "b")
    (command,) = desk.turn()
    assert isinstance(command, WritePlan)
    # The plan counts on `a`, which has sealed it meanwhile.
    desk.writes(name, desk.records[name], HandoverStep.SEALED)
    (placed,) = [step for step in desk.turn() if not isinstance(step, WritePlan)] or desk.turn()
    assert isinstance(placed, PlacePartition)
    assert (placed.node, placed.is_handed) == ("b", True)
    desk.writes(name, desk.records[name], HandoverStep.DONE)
    desk.hands_over = True
    desk.settles()
    assert desk.counts() == {"a": 2, "b": 0}


@pytest.mark.spec("ASG-02")
def test_an_owner_that_was_placed_while_the_next_plan_was_made_is_planned_with() -> None:
    desk = Desk(partitions=2)
    desk.begins()
    desk.joins("a", "b")
    desk.settles()
    (name,) = (name for name, owner in desk.owners().items() if owner == "b")
    desk.leaves("b")
    assert [type(command) for command in desk.turn()] == [WritePlan]
    (place,) = desk.machine.decide(now=desk.now, wall=0.0)
    assert isinstance(place, PlacePartition)
    # It is on its way; and `b` is there again, on the same session: the next plan says that it stays.
    desk.joins("b")
    desk.leases["b"] = desk.entries[name][0].lease
    desk._tell_workers()
    desk.now += desk.settings.join_delay
    desk.turn()
    desk.machine.done(place, desk.carries_out(place), now=desk.now)
    assert desk.owners()[name] == "a"
    desk.settles()
    assert desk.counts() == {"a": 1, "b": 1}


@pytest.mark.spec("ASG-02")
def test_who_was_given_something_and_is_not_ready_any_more_keeps_it() -> None:
    desk = Desk(partitions=1)
    desk.begins()
    desk.defines(Partition(name="p0", pinned="b"))
    desk.joins("a", "b")
    assert [type(command) for command in desk.turn()] == [WritePlan]
    (place,) = desk.machine.decide(now=desk.now, wall=0.0)
    assert isinstance(place, PlacePartition)
    # It is on its way, and somebody suspects `b`: the next plan says that nobody may be given it.
    desk.workers["b"] = replace(desk.workers["b"], takes_more=False)
    desk._tell_workers()
    desk.now += desk.settings.join_delay
    desk.turn()
    assert desk.plan is not None
    assert desk.plan.unplaced.keys() == {"p0"}
    desk.machine.done(place, desk.carries_out(place), now=desk.now)
    assert not [step for step in desk.settles() if isinstance(step, ClearPartition)]
    assert (desk.owners(), dict(desk.plan.unplaced)) == ({"p0": "b"}, {})
    # It may not have it any more at all: then it does not keep it.
    desk.defines(Partition(name="p0", pinned="nobody"))
    assert [step for step in desk.settles() if isinstance(step, ClearPartition)]
    assert desk.owners() == {"p0": ""}


@pytest.mark.spec("ASG-08")
def test_a_step_of_which_half_the_news_has_come_is_not_made_again() -> None:
    desk, name = offered_desk()
    desk.writes(name, desk.records[name], HandoverStep.SEALED)
    (place,) = desk.machine.decide(now=desk.now, wall=0.0)
    assert isinstance(place, PlacePartition)
    assert place.over == desk.entries[name][0].epoch
    desk.revision += 1
    revision, lease = desk.revision, desk.leases["b"]
    entry = Placement(node="b", lease=lease, epoch=revision)
    taken = advanced(
        desk.records[name],
        HandoverStep.TAKEN,
        at=desk.now,
        target_key=str(lease),
        taken_by="b",
        next_epoch=revision,
    )
    desk.machine.done(place, revision, now=desk.now)
    desk.machine.hear_entry(name, entry, revision=revision)
    assert desk.machine.decide(now=desk.now, wall=0.0) == []
    taken = replace(taken, revision=revision)
    desk.machine.hear_handover(name, taken, revision=revision, now=desk.now)
    assert not [
        each for each in desk.machine.decide(now=desk.now, wall=0.0) if isinstance(each, PlacePartition)
    ]


@pytest.mark.spec("ASG-08")
def test_the_number_of_a_plan_that_could_not_be_written_is_not_used_again() -> None:
    desk = Desk()
    desk.begins()
    desk.joins("a")
    numbers = []
    for _ in range(3):
        (command,) = desk.machine.decide(now=desk.now, wall=0.0)
        assert isinstance(command, WritePlan)
        numbers.append(command.plan.number)
        # It may still come to the store, or parts of it.
        desk.machine.written(command, None, now=desk.now)
    assert numbers == [1, 2, 3]


@pytest.mark.spec("ASG-08")
def test_what_was_sealed_goes_back_to_its_owner_s_new_session_when_all_sessions_are_over() -> None:
    desk, name = offered_desk()
    desk.writes(name, desk.records[name], HandoverStep.SEALED)
    desk.leaves("b")
    desk.has_new_session("a")
    desk.begins()
    desk.hands_over = True
    desk.settles()
    assert {entry.lease for entry, _ in desk.entries.values()} == {desk.leases["a"]}
    assert desk.records[name].step is HandoverStep.DONE


@pytest.mark.spec("ASG-12")
def test_what_nobody_may_have_is_not_placed_on_its_owner_s_new_session() -> None:
    desk = Desk()
    desk.begins()
    desk.joins("a")
    desk.settles()
    desk.defines(Partition(name="p0", role="pump"))
    desk.has_new_session("a")
    steps: list[Command] = [step for step in desk.settles() if getattr(step, "partition", "") == "p0"]
    assert [type(step) for step in steps] == [ClearPartition]


def test_a_move_by_hand_stays_where_it_went() -> None:
    desk, name = offered_desk()
    desk.writes(name, desk.records[name], HandoverStep.SEALED)
    desk.hands_over = True
    desk.settles()
    plan = desk.plan
    # By hand, back to where it was.
    entry = desk.entries[name][0]
    record = replace(
        desk.records[name],
        number=2,
        step=HandoverStep.OFFERED,
        source=entry.node,
        target="a",
        epoch=entry.epoch,
        owner_key=str(entry.lease),
        asked_by="by hand",
        next_epoch=0,
        taken_by="",
        target_key="",
        times={HandoverStep.OFFERED: desk.now},
    )
    desk._keeps(name, record)
    desk.hands_over = False
    desk.seals(name)
    desk.hands_over = True
    desk.settles()
    assert desk.owners()[name] == "a"
    assert desk.plan == plan
