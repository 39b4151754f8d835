"""Saves of which nobody knows whether they were carried out, and works that cross each other."""

import asyncio
from typing import Any, cast

import pytest

from hansa.assignment.handoff import FailedHandoff, Handoff, Handoffs, HandoffSave
from hansa.assignment.plan import Plan, Plans, PlanState
from hansa.assignment.planner import Move
from hansa.assignment.topology import handovers_of
from hansa.assignment.work import Work
from hansa.coordination.placed import PlacedClaim, Placement
from hansa.coordination.placing import Placer
from hansa.errors import Conflict, NotHeld, TimedOut
from hansa.keys import Keys
from hansa.limits import HANDOFF_SAVE_S
from hansa.store.memory import MemoryStore
from hansa.store.values import Compare, Put
from tests.support.worker_stage import WorkerStage


class Owner:
    """A claim that stands, as far as a save looks at it."""

    key = b"entry"
    epoch = 5
    placement = Placement(node="a", lease=1, epoch=5)
    guards = ()

    def check(self) -> None:
        return


@pytest.mark.spec("ASG-04")
async def test_a_save_after_one_that_was_given_up_and_carried_out_is_no_repetition_of_it() -> None:
    claim = cast(PlacedClaim, Owner())
    async with MemoryStore() as store:
        handoffs = Handoffs(store, "g")
        # Its owner did not hear of it.
        await handoffs.save(claim, "p", Handoff(state=b"1", last_offset=1), before=None)
        saved = await handoffs.save(claim, "p", Handoff(state=b"2", last_offset=2), before=None)
        assert saved.number == 2
        found = await handoffs.load("p")
        assert found is not None
        assert (found.number, found.handoff.state) == (2, b"2")


@pytest.mark.spec("ASG-04")
def test_a_save_that_was_under_way_when_the_work_ended_does_not_come_after_the_next_ones() -> None:
    async def scene(stage: WorkerStage) -> None:
        async def count(work: Work) -> None:
            async with work:
                last_offset = work.handoff.last_offset + 1
                work.note(state=b"%d" % last_offset, last_offset=last_offset)
                if last_offset == 0:
                    # The worker has begun to save it when the work goes on, and ends.
                    await asyncio.sleep(1.0)
                    work.note(state=b"1", last_offset=1)
                else:
                    await work.ending()

        await stage.define("p")
        a = await stage.work("a", count, save_interval=0.5)
        carry_out = a.worker._handoffs.carry_out

        async def slowly(claim: PlacedClaim, partition: str, save: HandoffSave, **options: Any) -> Any:
            if save.saved.handoff.last_offset == 0:
                await asyncio.sleep(3.0)
            return await carry_out(claim, partition, save, **options)

        a.worker._handoffs.carry_out = slowly  # type: ignore[method-assign]
        first = await a.works_on("p")
        await asyncio.sleep(1.5)
        with pytest.raises(NotHeld):
            await first.save()
        await a.works_on("p", count=2)
        await stage.leaves(a)
        assert await stage.saved("p") == Handoff(state=b"2", last_offset=2)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-04")
@pytest.mark.parametrize("are_done", [False, True])
def test_what_was_noted_after_a_save_without_an_answer_is_handed_on(are_done: bool) -> None:
    async def scene(stage: WorkerStage) -> None:
        async def count(work: Work) -> None:
            async with work:
                if work.handoff.last_offset < 0:
                    # Not answered either, and of an earlier state.
                    a.store.trouble, a.store.are_done = TimedOut("for the test"), True
                    with pytest.raises(TimedOut):
                        await work.save(Handoff(last_offset=0))
                    a.store.are_done = are_done
                    with pytest.raises(TimedOut):
                        await work.save(Handoff(last_offset=1), operations=[Put("row", b"1")])
                    work.note(last_offset=2)
                    a.store.trouble = None
                await work.ending()

        await stage.define("p")
        a = await stage.work("a", count, save_interval=1_000.0)
        work = await a.works_on("p")
        await asyncio.sleep(3 * HANDOFF_SAVE_S)
        assert (work.handoff.last_offset, work.is_in_doubt) == (2, True)
        b = await stage.work("b", count)
        await stage.leaves(a)
        assert (await b.works_on("p")).handoff.last_offset == 2
        row = await stage.store.get("row")
        assert row is not None
        assert row.version == 1
        assert a.worker.stats.failed_count == 0
        await stage.leaves(b)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-06")
def test_a_work_in_doubt_whose_save_fails_to_the_end_is_told_with_what_was_noted_last() -> None:
    found: list[FailedHandoff] = []

    async def recover(failed: FailedHandoff) -> Handoff | None:
        found.append(failed)
        return Handoff(checkpoint="elsewhere")

    async def scene(stage: WorkerStage) -> None:
        async def count(work: Work) -> None:
            async with work:
                if work.handoff.last_offset < 0:
                    a.store.trouble = TimedOut("for the test")
                    with pytest.raises(TimedOut):
                        await work.save(Handoff(last_offset=1), operations=[Put("row", b"1")])
                    work.note(last_offset=2)
                await work.ending()

        await stage.define("p")
        a = await stage.work("a", count, recover=recover, save_interval=1_000.0)
        await a.works_on("p")
        await asyncio.sleep(2 * HANDOFF_SAVE_S)
        b = await stage.work("b", count)
        began_s = stage.loop.time()
        await stage.leaves(a)
        # One save, with the one before it that has no answer, and one more after the way out.
        assert stage.loop.time() - began_s < 2 * HANDOFF_SAVE_S + 5.0
        assert [(failed.handoff.last_offset, failed.is_reading) for failed in found] == [(2, False)]
        await stage.leaves(b)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-05")
def test_a_work_that_is_lost_before_it_is_given_does_not_take_the_place_of_the_next_one() -> None:
    async def scene(stage: WorkerStage) -> None:
        async def stay(work: Work) -> None:
            async with work:
                await work.ending()

        a = await stage.work("a", stay)
        take, gate = a.worker._handoffs.take, asyncio.Event()
        takes_count = 0

        async def slow_take(claim: PlacedClaim, partition: str) -> Any:
            nonlocal takes_count
            takes_count += 1
            is_first = takes_count == 1
            found = await take(claim, partition)
            if is_first:
                await gate.wait()
            return found

        a.worker._handoffs.take = slow_take  # type: ignore[method-assign]
        await stage.define("p")
        while not takes_count:
            await asyncio.sleep(0.01)
        await stage.lose_session(a)
        work = await a.works_on("p")
        gate.set()
        await asyncio.sleep(1.0)
        assert a.worker.works["p"] is work
        assert (a.works, a.worker.stats.lost_count) == ([work], 1)
        await stage.leaves(a)

    WorkerStage.play(scene)


def test_a_worker_that_leaves_waits_for_whoever_is_to_have_its_partition() -> None:
    """It tried to let it go again and again, without any pause."""

    async def scene(stage: WorkerStage) -> None:
        async def restless(work: Work) -> None:
            async with work:
                work.note(last_offset=work.handoff.last_offset + 1)
                await asyncio.sleep(0.01)

        await stage.define("p")
        a = await stage.work("a", restless)
        await a.has("p")
        # There is another one that could have it, and that takes nothing in time.
        b = await stage.work("b")
        b.worker.mode._moves._heed = lambda key, record: asyncio.sleep(0)  # type: ignore[attr-defined]
        await asyncio.sleep(1.0)
        withdrawn_count = a.worker.stats.withdrawn_count
        a.leaving.set()
        await asyncio.sleep(2.0)
        assert a.worker.stats.withdrawn_count - withdrawn_count < 5
        async with asyncio.timeout(100.0):
            await a.main
        await stage.leaves(b)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-08")
async def test_a_late_offer_of_a_plan_that_was_replaced_or_has_ended_is_refused() -> None:
    async with MemoryStore() as store:
        keys, plans, guard = Keys(), Plans(store, "g"), Compare.exists(b"I lead")
        await store.put("I lead", b"")
        entry = keys.assignment("g", "p")
        await store.put(entry, Placement(node="a", lease=1, epoch=1).encode())
        lease = await store.grant(10.0)
        await store.put(keys.node("b"), b"", lease=lease)
        placer = Placer(store, keys.assignments("g"), kind=handovers_of("g"), guard=guard)
        first = await plans.write(Plan(number=1), guard, before=None)
        second = await plans.write(Plan(number=2), guard, before=first)
        with pytest.raises(Conflict, match="changed meanwhile"):
            await placer.offer(entry, "b", besides=[plans.same(first.revision)])
        ended = await plans.end(second.ended(PlanState.DONE, at=0.0, failed=()), guard, before=second)
        with pytest.raises(Conflict, match="changed meanwhile"):
            await placer.offer(entry, "b", besides=[plans.same(second.revision)])
        assert (await placer.offer(entry, "b", besides=[plans.same(ended.revision)])).target == "b"


@pytest.mark.spec("ASG-08")
async def test_what_is_left_of_plans_that_do_not_count_goes_with_the_next_one() -> None:
    async with MemoryStore() as store:
        plans, prefix = Plans(store, "g"), Keys().plans("g")
        guard = Compare.absent(b"nobody leads but me")
        moves = (Move(partition="p", source="", target="a", reason="nobody has it"),)
        first = await plans.write(Plan(number=1, moves=moves), guard, before=None)
        # Some of a second one came to the store, and its head did not.
        await store.commit([], [Put(prefix + b"%016d/000000" % 2, b"[]")])
        third = await plans.write(Plan(number=3, moves=moves), guard, before=first)
        assert await plans.load() == third
        names = [item.key.removeprefix(prefix) for item in (await store.scan(prefix)).items]
        assert names == [b"%016d/000000" % 3, b"head"]
