"""A group from outside: define, set, move, pin, drain, assign, follow; workers share one memory store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from hansa.assignment.assignments import Assignments, all_groups
from hansa.assignment.partition import GroupSettings, Partition
from hansa.assignment.planner import Move
from hansa.assignment.topology import (
    PartitionAssigned,
    PartitionLost,
    PartitionRevoked,
    PartitionUpdated,
    TopologyEvent,
)
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Handovers, HandoverStep, Members, NodeInfo, SessionKeeper
from hansa.errors import BadArgument, BadRecord, Conflict, NoOwner, NoSuccessor, NotThere, TimedOut
from hansa.keys import Keys
from hansa.runtime.mailboxes import EventStream
from hansa.store.memory import MemoryStore
from hansa.store.values import Put

WAIT_S_MAX = 30.0


class Plant:
    """Workers of a group `g`, each with a session of its own, in one store."""

    def __init__(self, store: MemoryStore, stack: AsyncExitStack) -> None:
        self.store = store
        self.group = Assignments(store, "g")
        self._stack = stack
        self._exits: dict[str, AsyncExitStack] = {}
        self.keepers: dict[str, SessionKeeper] = {}
        self.workers: dict[str, Worker] = {}

    async def joins(self, *names: str, **more: object) -> None:
        for name in names:
            stack = self._exits[name] = AsyncExitStack()
            self._stack.push_async_callback(stack.aclose)
            keeper = await stack.enter_async_context(SessionKeeper(self.store, ttl=20.0, node=name))
            info = NodeInfo(id=name, **more)  # type: ignore[arg-type]
            members = await stack.enter_async_context(Members(self.store, info, session=keeper))
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            worker = await stack.enter_async_context(Worker(members, "g"))
            tasks.create_task(worker.run(work_on))
            self.keepers[name], self.workers[name] = keeper, worker

    async def leaves(self, name: str) -> None:
        await self._exits.pop(name).aclose()

    async def loses_its_session(self, name: str) -> None:
        session = await self.keepers[name].live()
        await self.store.revoke(session.lease)

    async def shares(self, **counts: int) -> None:
        """Wait until each has so many."""
        async with self.group.view() as view:
            await view.until(lambda _: view.counts == counts, timeout=WAIT_S_MAX)

    async def saves(self, name: str, partition: str) -> Work:
        """Have a worker save what it has noted of a partition."""
        while (work := self.workers[name].works.get(partition)) is None or not work.is_unsaved:
            await asyncio.sleep(0.001)
        await work.save()
        return work

    async def owner(self, partition: str) -> str:
        found = await self.group.get(partition)
        assert found is not None
        return found.owner


async def work_on(work: Work) -> None:
    """Notes that it was there, and waits."""
    async with work:
        offset = work.handoff.next_offset
        work.note(last_offset=offset, state=b"%d" % offset, processed_at=1_700_000_000.0)
        await work.ending()


@pytest.fixture
async def store() -> AsyncIterator[MemoryStore]:
    async with MemoryStore() as store:
        yield store


@pytest.fixture
async def plant(store: MemoryStore) -> AsyncIterator[Plant]:
    async with asyncio.timeout(WAIT_S_MAX), AsyncExitStack() as stack:
        plant = Plant(store, stack)
        await plant.group.configure(join_delay=0.0)
        yield plant


def named(*names: str, **more: object) -> list[Partition]:
    return [Partition(name=name, **more) for name in names]  # type: ignore[arg-type]


# ---- what there is to do ------------------------------------------------------------------------------


async def test_what_was_defined_is_read_as_it_was_and_can_be_defined_anew(store: MemoryStore) -> None:
    group = Assignments(store, "g")
    first = Partition(name="p0", weight=3, role="press", zone="east", resources=("b", "a", "b"))
    await group.define(first, *named("p1"))
    assert await group.partitions() == {"p0": first, "p1": Partition(name="p1")}
    assert (await group.partitions())["p0"].resources == ("a", "b")
    await group.define(replace(first, weight=1))
    assert (await group.partitions())["p0"].weight == 1
    await group.undefine("p0", "never")
    assert list(await group.partitions()) == ["p1"]


async def test_more_partitions_than_one_transaction_holds_are_defined(store: MemoryStore) -> None:
    group = Assignments(store, "g")
    await group.define(*named(*(f"p{number}" for number in range(300))))
    assert len(await group.partitions()) == 300
    assert await all_groups(store) == {"g": 300}


async def test_a_definition_that_nobody_can_read_is_left_out(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    group = Assignments(store, "g")
    await group.define(*named("p0"))
    await store.put(Keys().partition("g", "p1"), b"nonsense")
    assert list(await group.partitions()) == ["p0"]
    assert "p1" in caplog.text
    with pytest.raises(BadRecord):
        await group.pin("p1", "a")


async def test_groups_are_found_by_their_partitions_and_their_settings(store: MemoryStore) -> None:
    await Assignments(store, "orders").define(*named("p0", "p1"))
    await Assignments(store, "set").configure(moves_at_once=1)
    await Assignments(store, "else", cluster="other").define(*named("p0"))
    assert await all_groups(store) == {"orders": 2, "set": 0}
    assert await all_groups(store, cluster="other") == {"else": 1}


async def test_settings_are_what_was_configured_last_and_all_others_as_before(store: MemoryStore) -> None:
    group = Assignments(store, "g")
    assert await group.settings() == GroupSettings()
    await group.configure(rebalance_interval=7.0)
    await group.drain("a", "b")
    changed = await group.configure(moves_at_once=3)
    assert changed == await group.settings()
    assert changed.rebalance_interval == 7.0
    assert changed.moves_at_once == 3
    assert changed.draining == {"a", "b"}
    await group.undrain("a", "never")
    assert (await group.settings()).draining == {"b"}
    with pytest.raises(BadArgument, match="moves_at_once 0"):
        await group.configure(moves_at_once=0)


async def test_two_who_change_settings_at_once_lose_nothing(store: MemoryStore) -> None:
    groups = [Assignments(store, "g") for _ in range(3)]
    await asyncio.gather(*(group.drain(f"n{number}") for number, group in enumerate(groups)))
    assert (await groups[0].settings()).draining == {"n0", "n1", "n2"}


# ---- who has what -------------------------------------------------------------------------------------


@pytest.mark.spec("ASG-01")
async def test_an_assignment_says_who_has_it_with_which_resources_and_what_was_left(plant: Plant) -> None:
    await plant.group.define(*named("p0", resources=("press-1",)))
    before = await plant.group.get("p0")
    assert before is not None
    assert (before.owner, before.last_offset, before.handoff) == ("", -1, None)
    await plant.joins("a")
    await plant.shares(a=1)
    work = await plant.saves("a", "p0")
    found = await plant.group.get("p0")
    assert found is not None
    assert (found.group, found.partition, found.owner) == ("g", "p0", "a")
    assert found.epoch == work.epoch > before.epoch
    assert found.resources == ("press-1",)
    assert found.handoff is not None
    assert (found.handoff.state, found.last_offset, found.processed_at) == (b"0", 0, 1_700_000_000.0)
    assert found.version > before.version
    assert 0.0 < found.since <= found.updated_at
    assert found.reason
    assert (await plant.group.all())["p0"] == replace(found, handoff=None)
    assert await plant.group.get("p9") is None


@pytest.mark.spec("ASG-07")
async def test_the_standby_of_a_partition_are_those_that_could_have_it(plant: Plant) -> None:
    await plant.group.define(Partition(name="p0", role="press"))
    await plant.joins("a", roles=frozenset({"press"}))
    await plant.shares(a=1)
    await plant.joins("b", "c", roles=frozenset({"press", "lathe"}))
    await plant.joins("d", roles=frozenset({"lathe"}))
    assert sorted(await plant.group.workers()) == ["a", "b", "c", "d"]
    assert (await plant.group.all())["p0"].standby == ("b", "c")
    async with plant.group.view() as view:
        assert view.all()["p0"].standby == ("b", "c")
        await plant.group.drain("b")
        await view.until(lambda _: view.all()["p0"].standby == ("c",), timeout=WAIT_S_MAX)
        assert view.workers["b"].is_draining
    assert (await plant.group.all())["p0"].standby == ("c",)


# ---- plans and moves ----------------------------------------------------------------------------------


@pytest.mark.spec("ASG-09")
async def test_a_plan_is_asked_for_without_anything_being_done_and_says_why(plant: Plant) -> None:
    await plant.group.define(*named("p0", "p1"), Partition(name="p2", pinned="z"))
    nobody = await plant.group.plan()
    assert nobody.moves == ()
    assert set(nobody.unplaced) == {"p0", "p1", "p2"}
    assert all(nobody.unplaced.values())
    # It does not move for the sake of balance in the time of this test.
    await plant.group.configure(join_delay=1_000.0)
    await plant.joins("a")
    await plant.shares(a=2)
    await plant.joins("b")
    before = (await plant.group.all(), await plant.store.get("any"))
    plan = await plant.group.plan()
    (move,) = plan.moves
    assert (move.source, move.target) == ("a", "b")
    assert move.reason
    assert "z" in plan.unplaced["p2"]
    assert plan.owners[move.partition] == "b"
    assert await plant.group.plan() == plan
    assert (await plant.group.all(), await plant.store.get("any")) == before
    await plant.group.drain("a")
    assert {each.source for each in (await plant.group.plan()).moves} == {"a"}


async def test_what_the_leader_planned_last_can_be_read(plant: Plant) -> None:
    assert await plant.group.last_plan() is None
    await plant.group.define(*named("p0"))
    await plant.joins("a")
    await plant.shares(a=1)
    plan = await plant.group.last_plan()
    assert plan is not None
    (move,) = plan.moves
    assert move == Move(partition="p0", source="", target="a", reason=move.reason)


async def test_a_partition_is_moved_by_hand_with_what_was_done(plant: Plant) -> None:
    await plant.group.define(*named("p0", "p1"))
    await plant.joins("a", "b")
    await plant.shares(a=1, b=1)
    source = await plant.owner("p0")
    target = "b" if source == "a" else "a"
    record = await plant.group.move("p0", target, reason="a new kernel", by="ops")
    assert (record.step, record.source, record.target) == (HandoverStep.DONE, source, target)
    assert (record.reason, record.asked_by) == ("a new kernel", "ops")
    found = await plant.group.get("p0")
    assert found is not None
    assert (found.owner, found.epoch, found.reason) == (target, record.next_epoch, "a new kernel")
    assert found.handoff is not None
    assert found.handoff.state == b"0"


async def test_a_move_that_cannot_end_well_is_refused_in_the_words_of_the_group(plant: Plant) -> None:
    await plant.group.define(Partition(name="p0", role="press"), Partition(name="p1", pinned="away"))
    await plant.joins("a", roles=frozenset({"press"}))
    await plant.joins("b")
    await plant.joins("c", "d", roles=frozenset({"press"}))
    async with plant.group.view() as view:
        await view.until(lambda found: bool(found["p0"].owner), timeout=WAIT_S_MAX)
    owner = await plant.owner("p0")
    other, draining = sorted({"a", "c", "d"} - {owner})
    with pytest.raises(NotThere, match="'p9' of 'g' is not defined"):
        await plant.group.move("p9", "a")
    with pytest.raises(NoOwner, match="nobody has partition 'p1'"):
        await plant.group.move("p1", "a")
    with pytest.raises(NoSuccessor, match="already"):
        await plant.group.move("p0", owner)
    with pytest.raises(NoSuccessor, match="'b' may not have it"):
        await plant.group.move("p0", "b")
    with pytest.raises(NoSuccessor, match=rf"does not work for the group; .*: {other}, {draining}$"):
        await plant.group.move("p0", "nobody")
    await plant.group.drain(draining)
    with pytest.raises(NoSuccessor, match=rf"is draining; .*: {other}$"):
        await plant.group.move("p0", draining)
    assert await plant.owner("p0") == owner
    assert await Handovers(plant.store).get("assignment:g", "p0") is None


async def test_a_move_that_nobody_answers_is_withdrawn_when_its_time_is_over(plant: Plant) -> None:
    await plant.group.define(*named("p0"))
    await plant.joins("a")
    await plant.shares(a=1)
    # A member that says that it works for the group, and does nothing.
    keeper = SessionKeeper(plant.store, ttl=20.0, node="b")
    metadata = {"works-for/g": "{}"}
    async with keeper, Members(plant.store, NodeInfo(id="b", metadata=metadata), session=keeper):
        record = await plant.group.move("p0", "b", timeout=0.2)
    assert record.step is HandoverStep.WITHDRAWN
    assert record.trouble
    assert await plant.owner("p0") == "a"


async def test_a_move_of_what_is_on_its_way_already_is_refused(plant: Plant) -> None:
    await plant.group.define(*named("p0"))
    await plant.joins("a")
    await plant.shares(a=1)
    keeper = SessionKeeper(plant.store, ttl=20.0, node="b")
    metadata = {"works-for/g": "{}"}
    async with keeper, Members(plant.store, NodeInfo(id="b", metadata=metadata), session=keeper):
        moving = asyncio.ensure_future(plant.group.move("p0", "b"))
        while await Handovers(plant.store).get("assignment:g", "p0") is None:
            await asyncio.sleep(0.001)
        with pytest.raises(Conflict, match=r"partition 'p0' of 'g' is on its way already.*to 'b' is open"):
            await plant.group.move("p0", "b")
        moving.cancel()
        await asyncio.wait([moving])


async def test_a_move_that_is_cancelled_is_taken_back(plant: Plant) -> None:
    await plant.group.define(*named("p0"))
    await plant.joins("a")
    await plant.shares(a=1)
    keeper = SessionKeeper(plant.store, ttl=20.0, node="b")
    metadata = {"works-for/g": "{}"}
    async with keeper, Members(plant.store, NodeInfo(id="b", metadata=metadata), session=keeper):
        moving = asyncio.ensure_future(plant.group.move("p0", "b", by="ops"))
        handovers = Handovers(plant.store)
        while await handovers.get("assignment:g", "p0") is None:
            await asyncio.sleep(0.001)
        moving.cancel()
        await asyncio.wait([moving])
        record = await handovers.get("assignment:g", "p0")
    assert record is not None
    assert (record.step, record.trouble) == (HandoverStep.WITHDRAWN, "ops took it back")


async def test_a_pinned_partition_goes_to_its_node_and_waits_for_it_while_it_is_away(plant: Plant) -> None:
    await plant.group.define(*named("p0", "p1"))
    await plant.joins("a", "b")
    await plant.shares(a=1, b=1)
    source = await plant.owner("p0")
    target = "b" if source == "a" else "a"
    await plant.group.pin("p0", target)
    async with plant.group.view() as view:
        await view.until(lambda found: found["p0"].owner == target, timeout=WAIT_S_MAX)
        assert view.all()["p0"].standby == ()
        await plant.leaves(target)
        await view.until(lambda found: found["p0"].owner == "", timeout=WAIT_S_MAX)
        await view.until(lambda found: found["p1"].owner == source, timeout=WAIT_S_MAX)
        await plant.group.pin("p0", "")
        await view.until(lambda found: found["p0"].owner == source, timeout=WAIT_S_MAX)
    with pytest.raises(NotThere, match="define it first"):
        await plant.group.pin("p9", "a")


async def test_a_drained_worker_gives_all_up_and_gets_its_share_again(plant: Plant) -> None:
    await plant.group.define(*named("p0", "p1", "p2", "p3"))
    await plant.joins("a", "b")
    await plant.shares(a=2, b=2)
    before = plant.workers["a"].stats.revoked_count
    await plant.group.drain("a")
    await plant.shares(b=4)
    assert plant.workers["a"].stats.lost_count == 0
    assert plant.workers["a"].stats.revoked_count == before + 2
    await plant.group.undrain("a")
    await plant.shares(a=2, b=2)


# ---- single resources ---------------------------------------------------------------------------------


@pytest.mark.spec("ASG-11")
async def test_single_resources_are_assigned_looked_up_and_unassigned(plant: Plant) -> None:
    await plant.group.define(*named("p0", "p1"), Partition(name="big", weight=4, resource_group="east"))
    by_hand = await plant.group.assign("press-1", "p1")
    assert (by_hand.partition, by_hand.resources) == ("p1", ("press-1",))
    # By itself: where there are the fewest for the weight, of those that are bound to the group asked for.
    assert (await plant.group.assign("press-2")).partition == "p0"
    assert (await plant.group.assign("press-3", resource_group="east")).partition == "big"
    # Once more: where it is.
    assert (await plant.group.assign("press-1")).partition == "p1"
    assert (await plant.group.assign("press-1", "p1")).resources == ("press-1",)
    await plant.joins("a")
    found = await plant.group.look_up("press-2")
    assert found is not None
    assert found.partition == "p0"
    moved = await plant.group.assign("press-1", "p0")
    assert (moved.partition, moved.resources) == ("p0", ("press-1", "press-2"))
    assert (await plant.group.partitions())["p1"].resources == ()
    assert await plant.group.unassign("press-1")
    assert not await plant.group.unassign("press-1")
    assert await plant.group.look_up("press-1") is None
    with pytest.raises(NotThere, match="no partition 'p9' for resource 'press-4'"):
        await plant.group.assign("press-4", "p9")
    with pytest.raises(NotThere, match="of resource group 'west'"):
        await plant.group.assign("press-4", resource_group="west")


@pytest.mark.spec("ASG-11")
async def test_two_who_assign_one_resource_at_once_leave_it_in_one_partition(store: MemoryStore) -> None:
    here, there = Assignments(store, "g"), Assignments(store, "g")
    await here.define(*named("p0", "p1", "p2", "p3"))
    for number in range(20):
        resource = f"press-{number}"
        found = await asyncio.gather(
            here.assign(resource, "p0"),
            there.assign(resource, "p1"),
            here.assign(resource),
            there.unassign(resource),
            return_exceptions=True,
        )
        assert not [each for each in found if isinstance(each, Exception) and not isinstance(each, Conflict)]
        having = [name for name, each in (await here.partitions()).items() if resource in each.resources]
        known = await here.look_up(resource)
        assert having == ([] if known is None else [known.partition])


@pytest.mark.spec("ASG-11")
async def test_many_resources_without_a_place_of_their_own_are_spread_evenly(store: MemoryStore) -> None:
    group = Assignments(store, "g")
    await group.define(*named("p0", "p1"), Partition(name="p2", weight=2))
    for number in range(20):
        await group.assign(f"press-{number:02}")
    counts = {name: len(each.resources) for name, each in (await group.partitions()).items()}
    assert counts == {"p0": 5, "p1": 5, "p2": 10}


async def test_what_a_definition_says_counts_whatever_was_assigned_before(store: MemoryStore) -> None:
    group = Assignments(store, "g")
    await group.define(*named("p0", "p1"))
    await group.assign("press-1", "p0")
    # Somebody defines all anew, without it; then with it elsewhere.
    await group.define(*named("p0", "p1"))
    assert await group.look_up("press-1") is None
    assert (await group.assign("press-1", "p0")).resources == ("press-1",)
    await group.define(Partition(name="p0"), Partition(name="p1", resources=("press-1",)))
    found = await group.look_up("press-1")
    assert found is not None
    assert found.partition == "p1"
    assert (await group.assign("press-1", "p0")).partition == "p0"
    assert (await group.partitions())["p1"].resources == ()


async def test_a_worker_is_told_at_once_of_a_resource_that_comes(plant: Plant) -> None:
    await plant.group.define(*named("p0"))
    await plant.joins("a")
    await plant.shares(a=1)
    await plant.workers["a"].until(lambda names: "p0" in names)
    events = plant.workers["a"].events()
    await plant.group.assign("press-1", "p0")
    event = await anext(events)
    assert isinstance(event, PartitionUpdated)
    assert event.resources == plant.workers["a"].works["p0"].resources == ("press-1",)


# ---- views --------------------------------------------------------------------------------------------


async def until_told(events: EventStream[TopologyEvent], *kinds: type[TopologyEvent]) -> list[TopologyEvent]:
    """The next events of these kinds, one of each, in this order; others between them are passed over."""
    found: list[TopologyEvent] = []
    async for event in events:
        if isinstance(event, kinds[len(found)]):
            found.append(event)
            if len(found) == len(kinds):
                break
    return found


@pytest.mark.spec("ASG-01")
async def test_a_view_tells_of_each_change_with_resources_and_handoff(plant: Plant) -> None:
    await plant.group.define(*named("p0", resources=("press-1",)))
    async with plant.group.view() as view:
        events = view.events()
        await plant.joins("a")
        (assigned,) = await until_told(events, PartitionAssigned)
        assert (assigned.node, assigned.resources, assigned.handoff) == ("a", ("press-1",), None)
        await plant.saves("a", "p0")
        (updated,) = await until_told(events, PartitionUpdated)
        assert (updated.node, updated.reason, updated.resources) == ("a", "handoff", ("press-1",))
        assert updated.handoff is not None
        assert updated.handoff.state == b"0"
        await plant.joins("b")
        await plant.group.move("p0", "b")
        revoked, taken = await until_told(events, PartitionRevoked, PartitionAssigned)
        assert (revoked.node, taken.node) == ("a", "b")
        for event in (revoked, taken):
            assert event.resources == ("press-1",)
            assert event.handoff is not None
            assert event.handoff.last_offset == 0
        assert revoked.epoch < taken.epoch
        # Without a word: what is told is what it saved before.
        await plant.saves("b", "p0")
        await plant.loses_its_session("b")
        (lost,) = await until_told(events, PartitionLost)
        assert (lost.node, lost.resources) == ("b", ("press-1",))
        assert lost.handoff is not None
        assert lost.handoff.state == b"1"


async def test_a_follower_knows_up_to_where_it_has_applied(plant: Plant) -> None:
    await plant.group.define(*named("p0"))
    async with plant.group.view() as view:
        first = view.last_applied_index
        assert first > 0
        await plant.group.define(*named("p1"))
        await view.until(lambda found: "p1" in found, timeout=WAIT_S_MAX)
        item = await plant.store.get(Keys().partition("g", "p1"))
        assert item is not None
        assert view.last_applied_index == item.mod_revision > first
        again = await plant.store.commit([], [Put(Keys().partition("g", "p0"), b"nonsense")])
        await plant.group.define(*named("p2"))
        await view.until(lambda found: "p2" in found, timeout=WAIT_S_MAX)
        assert view.last_applied_index > again.revision


async def test_waiting_for_what_does_not_come_ends_in_time(plant: Plant) -> None:
    async with plant.group.view() as view:
        with pytest.raises(TimedOut, match="the view of group g"):
            await view.until(lambda found: bool(found), timeout=0.01)
