"""A worker on a store, in virtual time: how works come, go, end by themselves, and are lost."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from hansa.assignment.handoff import FailedHandoff, Handoff
from hansa.assignment.topology import PartitionAssigned, PartitionRevoked, WorkerInfo
from hansa.assignment.work import Work, WorkState
from hansa.assignment.worker import Worker
from hansa.chance import Chance
from hansa.coordination.members import Members
from hansa.errors import (
    AlreadyClosed,
    Fenced,
    LimitExceeded,
    StoreCorrupt,
    StoreUnavailable,
    TimedOut,
    UsageError,
)
from hansa.keys import Keys
from hansa.limits import HANDOFF_SAVE_S, HANDOVER_S, MEMBER_HEARTBEAT_TIMEOUT_S, WORK_AGAIN_S_MIN
from hansa.store.values import Put
from tests.support.worker_stage import GROUP, WorkerStage, stay

KEYS = Keys()


async def never_end(work: Work) -> None:
    async with work:
        await asyncio.Event().wait()


# -- how works go


@pytest.mark.spec("ASG-04")
def test_a_work_that_is_asked_for_ends_is_saved_and_goes_on_elsewhere() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a", stay)
        await a.has("p", "q")
        assert a.brief() == [("PartitionAssigned", "p"), ("PartitionAssigned", "q")] or len(a.works) == 2
        b = await stage.work("b", stay)
        await b.worker.until(lambda names: len(names) == 1)
        (moved,) = b.worker.works
        work = await b.works_on(moved)
        assert work.handoff == Handoff(state=b"2", last_offset=2)
        (revoked,) = a.told()
        assert isinstance(revoked, PartitionRevoked)
        assert (revoked.partition, revoked.handoff) == (moved, Handoff(state=b"1", last_offset=1))
        assert "share" in revoked.reason
        (assigned,) = b.told()
        assert isinstance(assigned, PartitionAssigned)
        assert assigned.handoff == Handoff(state=b"1", last_offset=1)
        assert assigned.epoch > revoked.epoch
        assert (a.worker.stats.revoked_count, a.worker.stats.lost_count) == (1, 0)
        assert b.worker.stats.assigned_count == 1
        # In virtual time nothing but waiting takes any: nobody waited for a timer.
        assert a.worker.stats.handoff_s_max < 0.1
        assert b.worker.stats.ready_s_max < 0.1
        for one in (a, b):
            await stage.leaves(one)

    WorkerStage.play(scene)


def test_a_work_that_nobody_has_begun_is_let_go_at_once() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a")
        await a.has("p", "q")
        b = await stage.work("b", stay)
        await b.worker.until(lambda names: len(names) == 1)
        assert a.worker.stats.handoff_s_max < 0.1
        await stage.leaves(a)
        await b.has("p", "q")
        await stage.leaves(b)
        assert await stage.saved("p") == await stage.saved("q") == Handoff(state=b"1", last_offset=1)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-04")
def test_who_leaves_with_nobody_else_there_saves_and_lets_go_at_once() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a", stay)
        await a.works_on("p")
        await a.works_on("q")
        began_s = stage.loop.time()
        await stage.leaves(a)
        assert stage.loop.time() - began_s < 1.0
        assert await stage.saved("p") == await stage.saved("q") == Handoff(state=b"1", last_offset=1)
        b = await stage.work("b", stay)
        assert (await b.works_on("p")).handoff.state == b"2"
        await stage.leaves(b)

    WorkerStage.play(scene)


def test_a_worker_whose_user_is_cancelled_saves_what_was_noted_when_it_leaves() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p")
        a = await stage.work("a", stay)
        await a.works_on("p")
        await asyncio.sleep(0.1)
        assert a.running is not None
        a.running.cancel()
        await stage.leaves(a)
        assert await stage.saved("p") == Handoff(state=b"1", last_offset=1)

    WorkerStage.play(scene)


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.01, 0.05, 0.2, 1.0])
def test_who_is_cancelled_while_it_leaves_leaves_all_the_same(after_s: float) -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q", "r")
        a = await stage.work("a", slow_to_end)
        b = await stage.work("b", stay)
        await a.worker.until(lambda names: len(names) in (1, 2))
        await asyncio.sleep(1.0)
        a.leaving.set()
        await asyncio.sleep(after_s)
        a.main.cancel()
        async with asyncio.timeout(HANDOVER_S / 2):
            await asyncio.wait([a.main])
            assert a.running is not None
            await asyncio.wait([a.running])
        assert not a.worker.works or all(work.state is not WorkState.RUNNING for work in a.works)
        await b.has("p", "q", "r")
        await stage.leaves(b)

    async def slow_to_end(work: Work) -> None:
        async with work:
            work.note(last_offset=1)
            await work.ending()
            await asyncio.sleep(0.1)

    WorkerStage.play(scene)


def test_a_work_that_does_not_end_holds_its_worker_up_for_the_time_to_leave_and_no_longer() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p")
        a = await stage.work("a", never_end, leave_timeout=5.0)
        await a.works_on("p")
        began_s = stage.loop.time()
        await stage.leaves(a)
        assert stage.loop.time() - began_s <= 2 * 5.0 + 1.0
        assert a.works[0].state is WorkState.ENDED

    WorkerStage.play(scene)


# -- how works are lost


@pytest.mark.spec("ASG-05")
def test_a_block_is_cancelled_at_the_loss_and_raises_it() -> None:
    async def scene(stage: WorkerStage) -> None:
        found: list[BaseException] = []

        async def handler(work: Work) -> None:
            try:
                await never_end(work)
            except Fenced as lost:
                with pytest.raises(Fenced):
                    work.check()
                with pytest.raises(Fenced):
                    await work.save(Handoff(state=b"late"))
                found.append(lost)
                raise

        await stage.define("p")
        a = await stage.work("a", handler)
        await a.works_on("p")
        a.told()
        await stage.lose_session(a)
        # It has another session at once, and begins anew.
        await a.works_on("p", count=2)
        assert len(found) == 1
        assert a.brief() == [("PartitionLost", "p"), ("PartitionAssigned", "p")]
        assert a.works[1].epoch > a.works[0].epoch
        assert (a.worker.stats.lost_count, a.worker.stats.again_count) == (1, 0)
        await stage.leaves(a)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-05")
def test_a_zombie_finds_all_its_saves_refused() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a", stay, mode=None)
        await a.works_on("p")
        zombies = {name: await a.works_on(name) for name in ("p", "q")}
        b = await stage.work("b", stay)
        stage.stop(a)
        await b.has("p", "q")
        for name in ("p", "q"):
            await b.works_on(name)
        stage.go_on(a)
        for work in zombies.values():
            with pytest.raises(Fenced):
                await work.save(Handoff(state=b"late", last_offset=99))
        # It comes back, and is given its share.
        await a.worker.until(lambda names: len(names) == 1)
        await b.worker.until(lambda names: len(names) == 1)
        for one in (a, b):
            await stage.leaves(one)
        for name in ("p", "q"):
            saved = await stage.saved(name)
            assert saved is not None
            assert saved.state != b"late"

    WorkerStage.play(scene)


def test_two_works_of_one_partition_are_never_under_way_at_once() -> None:
    async def scene(stage: WorkerStage) -> None:
        inside: list[str] = []

        async def handler(work: Work) -> None:
            async with work:
                assert work.partition not in inside
                inside.append(work.partition)
                try:
                    await work.ending()
                finally:
                    # Who cleans up for long, though it is cancelled.
                    await asyncio.sleep(7.0)
                    inside.remove(work.partition)

        await stage.define("p")
        a = await stage.work("a", handler)
        await a.works_on("p")
        await stage.lose_session(a)
        began_s = stage.loop.time()
        await a.works_on("p", count=2)
        assert stage.loop.time() - began_s >= 7.0
        await asyncio.sleep(0.1)
        assert inside == ["p"]
        # Lost twice while it still cleans up: only the last of them counts.
        await stage.lose_session(a)
        await asyncio.sleep(2.0)
        await stage.lose_session(a)
        await a.works_on("p", count=3)
        await asyncio.sleep(1.0)
        assert inside == ["p"]
        await stage.leaves(a)

    WorkerStage.play(scene)


def test_a_partition_that_is_defined_no_more_is_lost() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a", stay)
        await a.works_on("p")
        await a.works_on("q")
        a.told()
        await stage.outside.undefine("p")
        await a.has("q")
        assert a.brief() == [("PartitionLost", "p")]
        await stage.leaves(a)

    WorkerStage.play(scene)


# -- works that end by themselves


def test_a_work_that_ended_by_itself_is_given_again_with_what_was_noted() -> None:
    async def scene(stage: WorkerStage) -> None:
        begun_s: list[float] = []

        async def handler(work: Work) -> None:
            async with work:
                begun_s.append(stage.loop.time())
                work.note(last_offset=work.handoff.last_offset + 1)
                if len(begun_s) < 5:
                    return
                await work.ending()

        await stage.define("p")
        a = await stage.work("a", handler)
        work = await a.works_on("p", count=5)
        assert work.handoff.last_offset == 4
        pauses_s = [later - earlier for earlier, later in pairwise(begun_s)]
        assert pauses_s[0] >= WORK_AGAIN_S_MIN / 2
        assert pauses_s[-1] > 3 * pauses_s[0]
        assert a.worker.stats.again_count == 4
        assert len({each.epoch for each in a.works}) == 1
        # It was assigned once.
        assert a.brief() == [("PartitionAssigned", "p")]
        await stage.leaves(a)
        assert await stage.saved("p") == Handoff(last_offset=4)

    WorkerStage.play(scene)


def test_a_handler_that_raises_is_given_the_work_again_and_the_others_go_on() -> None:
    async def scene(stage: WorkerStage) -> None:
        async def handler(work: Work) -> None:
            async with work:
                work.note(last_offset=work.handoff.last_offset + 1)
                if work.partition == "p" and work.handoff.last_offset < 2:
                    raise ValueError("of the user's own")
                await work.ending()

        await stage.define("p", "q")
        a = await stage.work("a", handler)
        work = await a.works_on("p", count=3)
        assert work.handoff.last_offset == 2
        assert len([each for each in a.works if each.partition == "q"]) == 1
        await stage.leaves(a)

    WorkerStage.play(scene)


def test_a_handler_that_does_not_enter_the_block_is_given_the_work_again() -> None:
    async def scene(stage: WorkerStage) -> None:
        async def handler(work: Work) -> None:
            if len(a.works) > 2:
                await stay(work)

        await stage.define("p")
        a = await stage.work("a", handler)
        await a.works_on("p", count=3)
        await stage.leaves(a)

    WorkerStage.play(scene)


@pytest.mark.parametrize("pauses", ["between", "inside"])
def test_a_work_that_waits_to_be_given_again_can_be_asked_for(pauses: str) -> None:
    async def scene(stage: WorkerStage) -> None:
        async def handler(work: Work) -> None:
            async with work:
                work.note(last_offset=work.handoff.last_offset + 1)
                if pauses == "inside":
                    await asyncio.sleep(0.3)

        await stage.define("p", "q")
        a = await stage.work("a", handler)
        await a.works_on("p", count=6)
        b = await stage.work("b", stay)
        began_s = stage.loop.time()
        await b.worker.until(lambda names: len(names) == 1)
        assert stage.loop.time() - began_s < 2.0
        await stage.leaves(a)
        await b.has("p", "q")
        await stage.leaves(b)

    WorkerStage.play(scene)


# -- handoffs that fail


@pytest.mark.spec("ASG-06", "ASG-14")
def test_a_save_that_fails_is_tried_again_then_told_and_the_user_may_have_a_way_out() -> None:
    async def scene(stage: WorkerStage) -> None:
        asked: list[FailedHandoff] = []

        async def recover(failed: FailedHandoff) -> Handoff:
            asked.append(failed)
            a.store.trouble = None
            return Handoff(checkpoint="elsewhere", last_offset=failed.handoff.last_offset)

        await stage.define("p")
        a = await stage.work("a", stay, recover=recover)
        await a.works_on("p")
        a.told()
        a.store.trouble = StoreUnavailable("for the test")
        leaving = asyncio.ensure_future(stage.leaves(a))
        began_s = stage.loop.time()
        failed = await a.failure()
        assert HANDOFF_SAVE_S / 2 < stage.loop.time() - began_s <= HANDOFF_SAVE_S
        assert failed.handoff == Handoff(state=b"1", last_offset=1)
        assert "for the test" in failed.reason
        await leaving
        (one,) = asked
        assert (one.partition, one.is_reading, one.epoch) == ("p", False, a.works[0].epoch)
        assert one.handoff == Handoff(state=b"1", last_offset=1)
        assert isinstance(one.error, StoreUnavailable)
        assert a.store.tries_count >= 5
        stats = a.worker.stats
        assert stats.save_retries_count >= 3
        assert (stats.failed_count, stats.recovered_count) == (1, 1)
        assert await stage.saved("p") == Handoff(checkpoint="elsewhere", last_offset=1)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-06", "ASG-14")
def test_a_handoff_that_cannot_be_saved_goes_on_from_the_last_one_that_could_when_there_is_no_way_out() -> (
    None
):
    async def scene(stage: WorkerStage) -> None:
        async def recover(failed: FailedHandoff) -> Handoff:
            raise ValueError("of the user's own")

        await stage.define("p")
        a = await stage.work("a", stay, recover=recover)
        work = await a.works_on("p")
        await work.save(Handoff(state=b"7", last_offset=7))
        work.note(state=b"8", last_offset=8)
        a.store.trouble = LimitExceeded("for the test")
        b = await stage.work("b", stay)
        leaving = asyncio.ensure_future(stage.leaves(a))
        await a.failure()
        # What it had noted is done again.
        assert (await b.works_on("p")).handoff.last_offset == 8
        await leaving
        assert (a.worker.stats.failed_count, a.worker.stats.recovered_count) == (1, 0)
        await stage.leaves(b)

    WorkerStage.play(scene)


async def damage(stage: WorkerStage, partition: str, value: bytes) -> None:
    await stage.store.put(KEYS.handoff(GROUP, partition), value)


async def damaged(stage: WorkerStage, partition: str) -> bytes:
    """A handoff that says of itself that it is compressed, and is not."""
    saved = await stage.store.get(KEYS.handoff(GROUP, partition))
    assert saved is not None
    return saved.value.replace(b'"isCompressed":false', b'"isCompressed":true')


@pytest.mark.parametrize("is_record", [True, False])
@pytest.mark.spec("ASG-14")
def test_who_finds_a_damaged_handoff_begins_with_what_the_user_finds_elsewhere(is_record: bool) -> None:
    async def scene(stage: WorkerStage) -> None:
        asked: list[FailedHandoff] = []

        async def recover(failed: FailedHandoff) -> Handoff | None:
            asked.append(failed)
            if len(asked) == 1:
                raise ValueError("of the user's own")
            return Handoff(state=b"40", last_offset=40) if len(asked) == 3 else None

        await stage.define("p")
        a = await stage.work("a", stay)
        await a.works_on("p")
        await stage.leaves(a)
        await damage(stage, "p", await damaged(stage, "p") if is_record else b"nonsense")
        b = await stage.work("b", stay, recover=recover)
        work = await b.works_on("p")
        assert work.handoff == Handoff(state=b"41", last_offset=41)
        assert [(one.partition, one.is_reading, one.handoff) for one in asked] == [("p", True, Handoff())] * 3
        assert isinstance(asked[0].error, StoreCorrupt) is is_record
        assert b.brief() == [("HandoffFailed", "p")] * 3 + [("PartitionAssigned", "p")]
        assert (b.worker.stats.failed_count, b.worker.stats.recovered_count) == (3, 1)
        # And it can be saved over what is damaged.
        await work.save()
        work.note(state=b"42", last_offset=42)
        await stage.leaves(b)
        assert await stage.saved("p") == Handoff(state=b"42", last_offset=42)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-14")
def test_nobody_begins_from_nothing_with_a_damaged_handoff_and_who_mends_it_is_waited_for() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a", stay)
        await a.works_on("p")
        await a.works_on("q")
        await stage.leaves(a)
        whole = await stage.store.get(KEYS.handoff(GROUP, "p"))
        assert whole is not None
        await damage(stage, "p", await damaged(stage, "p"))
        b = await stage.work("b", stay)
        await b.works_on("q")
        await asyncio.sleep(60.0)
        assert [work.partition for work in b.works] == ["q"]
        assert b.worker.stats.failed_count >= 3
        await damage(stage, "p", whole.value)
        assert (await b.works_on("p")).handoff.state == b"2"
        await stage.leaves(b)

    WorkerStage.play(scene)


def test_what_a_user_finds_when_the_partition_is_lost_meanwhile_is_not_begun_with() -> None:
    async def scene(stage: WorkerStage) -> None:
        begins = asyncio.Event()

        async def recover(failed: FailedHandoff) -> Handoff:
            epochs.append(failed.epoch)
            if len(epochs) == 1:
                await begins.wait()
            return Handoff(last_offset=len(epochs))

        epochs: list[int] = []
        await stage.define("p")
        await damage(stage, "p", b"nonsense")
        b = await stage.work("b", stay, recover=recover)
        while not epochs:
            await asyncio.sleep(0.01)
        await stage.lose_session(b)
        work = await b.works_on("p")
        assert work.epoch == epochs[1]
        begins.set()
        await asyncio.sleep(1.0)
        assert b.works == [work]
        assert b.worker.works == {"p": work}
        assert work.state is WorkState.RUNNING
        await stage.leaves(b)

    WorkerStage.play(scene)


@pytest.mark.spec("ASG-06")
def test_what_was_noted_is_saved_now_and_then_and_a_failure_of_that_is_no_end() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p")
        a = await stage.work("a", stay, save_interval=2.0)
        work = await a.works_on("p")
        await asyncio.sleep(2.5)
        assert await stage.saved("p") == Handoff(state=b"1", last_offset=1)
        a.store.trouble = TimedOut("for the test")
        work.note(last_offset=5)
        await asyncio.sleep(2 * HANDOFF_SAVE_S)
        a.store.trouble = None
        await asyncio.sleep(HANDOFF_SAVE_S)
        assert await stage.saved("p") == Handoff(state=b"1", last_offset=5)
        assert a.brief() == [("PartitionAssigned", "p")]
        await stage.leaves(a)

    WorkerStage.play(scene)


@pytest.mark.parametrize("are_done", [False, True])
@pytest.mark.parametrize("is_asked", [False, True])
def test_operations_of_a_save_that_failed_are_not_parted_from_their_handoff(
    are_done: bool, is_asked: bool
) -> None:
    """Each turn counts one, in the handoff and beside it, in one transaction: both always say the same."""

    async def scene(stage: WorkerStage) -> None:
        async def handler(work: Work) -> None:
            async with work:
                while True:
                    count = work.handoff.last_offset + 1
                    row = Put(b"rows/%d" % count, b"%d" % count)
                    await work.save(Handoff(last_offset=count), operations=[row])
                    if count == 3:
                        a.store.trouble, a.store.are_done = TimedOut("for the test"), are_done
                    if count == 9:
                        await work.ending()
                        return

        await stage.define("p")
        a = await stage.work("a", handler, save_interval=1.0)
        await a.works_on("p")
        while a.store.trouble is None:
            await asyncio.sleep(0.01)
        await asyncio.sleep(HANDOFF_SAVE_S + 0.05)
        if is_asked:
            b = await stage.work("b", handler)
            leaving = asyncio.ensure_future(stage.leaves(a))
            await asyncio.sleep(0.5)
            a.store.trouble = None
            await leaving
            last = b
        else:
            a.store.trouble = None
            last = a
        async with asyncio.timeout(100.0):
            while (saved := await stage.saved("p")) is None or saved.last_offset < 9:
                await asyncio.sleep(0.1)
        await stage.leaves(last)
        rows = (await stage.store.scan(b"rows/")).items
        assert [item.key for item in rows] == [b"rows/%d" % number for number in range(10)]
        assert {item.version for item in rows} == {1}

    WorkerStage.play(scene)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_saves_that_are_cancelled_at_any_moment_and_come_late_are_done_once_or_not_at_all(seed: int) -> None:
    async def scene(stage: WorkerStage) -> None:
        chance = Chance.seeded(f"cancels {seed}")

        async def handler(work: Work) -> None:
            async with work:
                while (count := work.handoff.last_offset + 1) < 50:
                    row = Put(b"rows/%02d" % count, b"")
                    async with asyncio.timeout(chance.uniform(0.0, 0.3)):
                        await work.save(Handoff(last_offset=count), operations=[row])
                    if chance.uniform(0.0, 1.0) < 0.2:
                        work.note(checkpoint="of no weight")
                await work.ending()

        await stage.define("p")
        a = await stage.work("a", handler, save_interval=0.3)
        a.store.takes_s = lambda: chance.uniform(0.0, 0.2)
        async with asyncio.timeout(1_000.0):
            while (saved := await stage.saved("p")) is None or saved.last_offset < 49:
                await asyncio.sleep(0.5)
        rows = (await stage.store.scan(b"rows/")).items
        assert [item.key for item in rows] == [b"rows/%02d" % number for number in range(50)]
        assert {item.version for item in rows} == {1}
        assert a.worker.stats.again_count > 10
        await stage.leaves(a)

    WorkerStage.play(scene, seed=seed)


@pytest.mark.parametrize("with_others", [False, True])
def test_who_leaves_while_the_store_is_away_waits_for_it_no_longer_than_its_session_lasts(
    with_others: bool,
) -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a", stay, leave_timeout=5.0)
        if with_others:
            await stage.work("b", stay)
        await asyncio.sleep(3.0)
        stage.store.pause()
        began_s = stage.loop.time()
        await stage.leaves(a)
        assert stage.loop.time() - began_s <= 2 * MEMBER_HEARTBEAT_TIMEOUT_S
        assert all(work.state is WorkState.ENDED for work in a.works)
        stage.store.resume()
        if with_others:
            await stage.workers["b"].has("p", "q")

    WorkerStage.play(scene)


# -- the worker itself


def test_iterating_gives_each_work_once_and_ends_when_the_worker_leaves() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p", "q")
        a = await stage.work("a")
        found = [await anext(a.worker), await anext(a.worker)]
        assert sorted(work.partition for work in found) == ["p", "q"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await anext(a.worker)
        # A work that was lost before anybody asked for it is not given.
        await stage.lose_session(a)
        again = [await anext(a.worker), await anext(a.worker)]
        assert {work.epoch for work in again}.isdisjoint({work.epoch for work in found})
        with pytest.raises(Fenced):
            async with found[0]:
                raise AssertionError("it is lost")
        waiting = asyncio.ensure_future(anext(a.worker))
        await stage.leaves(a)
        with pytest.raises(StopAsyncIteration):
            await waiting

    WorkerStage.play(scene)


def test_a_worker_needs_a_node_is_entered_once_and_says_that_it_works_for_the_group() -> None:
    async def scene(stage: WorkerStage) -> None:
        async with Members(stage.store) as looks:
            with pytest.raises(UsageError):
                Worker(looks, GROUP)
            await stage.define("p")
            a = await stage.work("a", stay, weight=3, resource_groups=("presses",))
            view = await looks.until(lambda view: "a" in view and WorkerInfo.of(view["a"], GROUP) is not None)
            info = WorkerInfo(weight=3, resource_groups=frozenset({"presses"}), mode="StoreMode")
            assert WorkerInfo.of(view["a"], GROUP) == info
            with pytest.raises(UsageError, match="once"):
                await a.worker.__aenter__()
            await stage.leaves(a)
            await looks.until(lambda view: not view["a"].is_here)
            with pytest.raises(UsageError):
                Worker(a.members, GROUP).events()

    WorkerStage.play(scene)


def test_a_worker_whose_store_is_closed_tells_its_user() -> None:
    async def scene(stage: WorkerStage) -> None:
        await stage.define("p")
        a = await stage.work("a", never_end)
        await a.works_on("p")
        await stage.store.close()
        assert a.running is not None
        await asyncio.wait([a.running])
        error: Any = a.running.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert isinstance(error, AlreadyClosed | Fenced)

    WorkerStage.play(scene)
