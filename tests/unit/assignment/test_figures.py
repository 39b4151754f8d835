"""What can be measured of shared work: each figure is there, and says what has happened."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from hansa.assignment.assignments import Assignments
from hansa.assignment.partition import Partition
from hansa.assignment.store_mode import StoreMode
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo
from hansa.store.memory import MemoryStore


async def sums(work: Work) -> None:
    async with work:
        work.note(state=b"sum", last_offset=3, processed_at=7.5)
        await work.ending()


@pytest.mark.spec("ASG-10", "ASG-13")
async def test_every_figure_of_shared_work_can_be_read() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(30.0):
        store = await stack.enter_async_context(MemoryStore())
        group = Assignments(store, "g")
        settings = await group.configure(join_delay=0.05, rebalance_interval=0.2)
        assert (settings.join_delay, settings.rebalance_interval) == (0.05, 0.2)
        await group.define(*(Partition(name=f"p{number}") for number in range(4)))
        view = await stack.enter_async_context(group.view())

        async def join(name: str) -> Worker:
            members = await stack.enter_async_context(Members(store, NodeInfo(id=name)))
            worker = await stack.enter_async_context(Worker(members, "g"))
            tasks.create_task(worker.run(sums))
            return worker

        async with asyncio.TaskGroup() as tasks:
            a = await join("a")
            await a.until(lambda names: len(names) == 4)
            b = await join("b")
            await view.until(lambda _: view.counts == {"a": 2, "b": 2})
            await a.until(lambda names: len(names) == 2)
            await b.until(lambda names: len(names) == 2)
            assert isinstance(a.mode, StoreMode)
            assert isinstance(b.mode, StoreMode)
            # Handoffs: how long, how large, how often again; and from being assigned to being ready.
            assert a.stats.handoff_s_max > 0.0
            assert a.stats.handoff_bytes_max > 0
            assert a.stats.save_retries_count == 0
            assert b.stats.ready_s_max > 0.0
            # The leader: its changes, its plans, and how long these and the first move after a join took.
            assert a.mode.assigner is not None
            assert b.mode.assigner is not None
            assert a.mode.assigner.terms_count + b.mode.assigner.terms_count == 1
            leading = a.mode.stats if a.mode.assigner.is_leading else b.mode.stats
            assert leading.plans_count >= 2
            assert leading.commit_delay_s_max > 0.0
            assert leading.join_to_rebalance_s_max >= settings.join_delay
            # What is told of each partition, and up to where it was followed.
            moved = [each for each in view.assignments.values() if each.owner == "b"]
            assert {each.processed_at for each in moved} == {7.5}
            assert view.last_applied_index >= max(each.version for each in moved)
            assert a.mode.last_applied_index > 0
            # Members: how late a heartbeat may be seen, on the same session.
            assert 0.0 <= a.members.stats.heartbeat_age_s_max < 10.0
            while leading.checks_count == 0:
                await asyncio.sleep(0.01)
            await a.leave()
            await b.leave()
