"""Saves of which nobody knows whether they were carried out, and works that cross each other."""

import asyncio
from typing import Any, cast

import pytest

from hansa.assignment.handoff import Handoff, Handoffs
from hansa.assignment.plan import Plan, Plans
from hansa.assignment.planner import Move
from hansa.assignment.work import Work
from hansa.coordination.placed import PlacedClaim, Placement
from hansa.errors import NotHeld
from hansa.keys import Keys
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
        save = a.worker._handoffs.save

        async def slow_save(claim: PlacedClaim, partition: str, handoff: Handoff, **options: Any) -> Any:
            if handoff.last_offset == 0:
                await asyncio.sleep(3.0)
            return await save(claim, partition, handoff, **options)

        a.worker._handoffs.save = slow_save  # type: ignore[method-assign]
        first = await a.works_on("p")
        await asyncio.sleep(1.5)
        with pytest.raises(NotHeld):
            await first.save()
        await stage.leaves(a)
        assert await stage.saved("p") == Handoff(state=b"2", last_offset=2)

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
