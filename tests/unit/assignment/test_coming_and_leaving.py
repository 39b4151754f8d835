"""How a worker begins and ends: one mode a group, and an end in time, whatever happens meanwhile."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from hansa.assignment.store_mode import StoreMode
from hansa.assignment.topology import WorkerInfo
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination.member import NodeInfo, NodeRecord
from hansa.coordination.members import Members
from hansa.errors import MixedModes, TimedOut
from hansa.keys import Keys
from hansa.limits import HANDOFF_SAVE_S, WORK_AGAIN_S_MAX, WORK_AGAIN_S_MIN
from hansa.store.memory import MemoryStore
from tests.support.worker_stage import GROUP, WorkerStage, stay


class OtherMode(StoreMode):
    """One that shares the work out in another way, as far as others can see."""


async def takes_nothing(_key: bytes, _record: Any) -> None:
    """In place of what a node does for an offer."""


async def says(store: MemoryStore, name: str) -> str | None:
    """What a node's metadata says of its work for the group."""
    item = await store.get(Keys().node(name))
    assert item is not None
    return NodeRecord.decode(item.value).info.metadata.get(WorkerInfo.key_of(GROUP))


@pytest.mark.spec("ASG-03")
def test_workers_of_two_modes_in_one_group_are_refused_and_harm_nobody() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a", stay)
        await a.has("p", "q")
        with pytest.raises(
            MixedModes, match=r"of g has the mode OtherMode, and 'a' .* has the mode StoreMode"
        ):
            await stage.work("b", stay, mode=OtherMode())
        await asyncio.sleep(5.0)
        assert set(a.worker.works) == {"p", "q"}
        await stage.leaves(a)
        c = await stage.work("c", stay, mode=OtherMode())
        await c.has("p", "q")
        await stage.leaves(c)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-03")
def test_of_two_modes_that_come_at_the_same_time_one_at_least_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Worker._check_modes

    async def scene(stage: WorkerStage) -> None:
        looks_count, gate = 0, asyncio.Event()

        async def together(self: Worker) -> None:
            """The first look of both finds nobody."""
            nonlocal looks_count
            await original(self)
            looks_count += 1
            if looks_count == 2:
                gate.set()
            await gate.wait()

        monkeypatch.setattr(Worker, "_check_modes", together)
        coming = stage.work("a", stay), stage.work("b", stay, mode=OtherMode())
        found = await asyncio.gather(*coming, return_exceptions=True)
        assert any(isinstance(error, MixedModes) for error in found), found
        for one in found:
            if not isinstance(one, BaseException):
                await stage.leaves(one)

    WorkerStage.play(scene)


class UnheardMembers(Members):
    """What is noted of a worker that begins has no answer."""

    async def note(self, key: str, value: str | None) -> None:
        await super().note(key, value)
        if value is not None:
            raise TimedOut("for the test")


def test_who_cannot_begin_does_not_count_as_a_worker() -> None:
    async def scene(stage: WorkerStage) -> None:
        async with UnheardMembers(stage.store, NodeInfo(id="a")) as members:
            with pytest.raises(TimedOut):
                async with Worker(members, GROUP):
                    raise AssertionError("it was not entered")
            assert await says(stage.store, "a") is None

    WorkerStage.play(scene)


@pytest.mark.parametrize("is_failing", [False, True])
def test_who_is_cancelled_or_fails_does_not_count_as_a_worker_any_more(is_failing: bool) -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p")
        async with Members(stage.store, NodeInfo(id="a")) as members:
            entered = asyncio.Event()

            async def live() -> None:
                async with Worker(members, GROUP) as worker:
                    await worker.until(lambda names: "p" in names)
                    entered.set()
                    if is_failing:
                        raise ValueError("of the user's own")
                    await asyncio.Event().wait()

            main = asyncio.ensure_future(live())
            await entered.wait()
            if not is_failing:
                b = await stage.work("b")
                b.worker.mode._moves._heed = takes_nothing  # type: ignore[attr-defined]
                main.cancel()
                # It leaves, and waits for others: and whoever cancels it again has no time for that.
                await asyncio.sleep(1.0)
                assert not main.done()
                main.cancel()
            await asyncio.wait([main])
            assert await says(stage.store, "a") is None

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-04")
@pytest.mark.parametrize("timeout", [4.0, 40.0])
@pytest.mark.parametrize("is_stuck", [False, True])
def test_leaving_ends_by_its_timeout_though_nobody_takes_what_is_left(timeout: float, is_stuck: bool) -> None:
    async def scene(stage: WorkerStage) -> None:
        async def work_on(work: Work) -> None:
            async with work:
                work.note(last_offset=7)
                await (asyncio.Event().wait() if is_stuck else work.ending())

        await stage.define("p")
        a = await stage.work("a", work_on, save_interval=1_000.0)
        work = await a.works_on("p")
        b = await stage.work("b")
        b.worker.mode._moves._heed = takes_nothing  # type: ignore[attr-defined]
        began_s = stage.loop.time()
        await a.worker.leave(timeout)
        took_s = stage.loop.time() - began_s
        # Others have their time first, and then it is saved.
        assert timeout - min(timeout / 2, HANDOFF_SAVE_S) - 2.0 <= took_s <= timeout
        assert (await stage.saved("p") is not None) is not is_stuck
        assert await says(stage.store, "a") is None
        assert work.is_ending
        await stage.leaves(a)
        await stage.leaves(b)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-06")
def test_what_cannot_be_saved_while_leaving_is_told_before_the_time_is_over() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p")
        a = await stage.work("a", stay, save_interval=1_000.0)
        await a.works_on("p")
        a.store.trouble = TimedOut("for the test")
        began_s = stage.loop.time()
        await a.worker.leave(4.0)
        assert stage.loop.time() - began_s <= 4.0
        assert (await a.failure()).partition == "p"
        await stage.leaves(a)

    WorkerStage.play(scene)


def test_a_leave_that_is_cancelled_is_gone_on_with_by_the_next_one_and_two_wait_for_each_other() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p")
        a = await stage.work("a", stay)
        await a.works_on("p")
        b = await stage.work("b")
        b.worker.mode._moves._heed = takes_nothing  # type: ignore[attr-defined]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await a.worker.leave(20.0)
        assert set(a.worker.works) == {"p"}
        # It is gone on with in good order: until then it is one that gives up what it has.
        assert WorkerInfo.decode(await says(stage.store, "a") or "").is_draining
        began_s = stage.loop.time()
        first = asyncio.ensure_future(a.worker.leave(6.0))
        await asyncio.sleep(0.1)
        await a.worker.leave(100.0)
        assert first.done()
        assert stage.loop.time() - began_s <= 6.0
        assert not a.worker.works
        await stage.leaves(a)
        await stage.leaves(b)

    WorkerStage.play(scene)


def test_what_was_asked_for_and_lost_before_it_was_given_is_forgotten() -> None:
    async def scene(stage: WorkerStage) -> None:
        a = await stage.work("a", stay)
        take, gate, taking = a.worker._handoffs.take, asyncio.Event(), asyncio.Event()

        async def slow_take(claim: Any, partition: str) -> Any:
            taking.set()
            found = await take(claim, partition)
            await gate.wait()
            return found

        a.worker._handoffs.take = slow_take  # type: ignore[method-assign]
        await stage.define("p")
        await taking.wait()
        mode = a.worker.mode
        assert isinstance(mode, StoreMode)
        (claim,) = mode._claims.claims.values()
        a.worker.ask(claim, "p", "b is to have it")
        await stage.lose_session(a)
        while claim.is_standing:
            await asyncio.sleep(0.01)
        a.worker._handoffs.take = take  # type: ignore[method-assign]
        gate.set()
        await a.works_on("p")
        assert (a.worker._asked, a.worker._asked_at_s) == ({}, {})
        await stage.leaves(a)

    WorkerStage.play(scene)


def test_the_pauses_of_a_work_that_fails_begin_anew_when_it_went_well_for_long() -> None:
    async def scene(stage: WorkerStage) -> None:
        given_s: list[float] = []

        async def fails(work: Work) -> None:
            async with work:
                given_s.append(stage.loop.time())
                # It fails at once, again and again; then once after a good while, and again at once.
                await asyncio.sleep(0.0 if len(given_s) != 10 else 5 * WORK_AGAIN_S_MAX)
                raise ValueError("of the user's own")

        await stage.define("p")
        a = await stage.work("a", fails)
        await a.works_on("p", count=12)
        pauses_s = [after - before for before, after in pairwise(given_s)]
        assert max(pauses_s[:9]) > 5 * WORK_AGAIN_S_MIN
        assert pauses_s[9] - 5 * WORK_AGAIN_S_MAX <= 2 * WORK_AGAIN_S_MIN
        await stage.leaves(a)

    WorkerStage.play(scene)
