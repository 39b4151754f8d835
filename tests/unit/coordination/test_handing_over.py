"""Handing over as owners and waiters see it: what is refused, what a cancellation does, what it costs."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from hansa.cli.store_options import swept
from hansa.coordination import (
    Election,
    HandoverAdvanced,
    Handovers,
    HandoverStep,
    HandoverStuck,
    Hold,
    Lock,
    Semaphore,
    Session,
)
from hansa.coordination.claim import Line, TakenClaim
from hansa.coordination.handover import Handover, advanced
from hansa.coordination.line import head_key
from hansa.coordination.succession import Movable, record_of
from hansa.errors import (
    BadArgument,
    BadRecord,
    Conflict,
    Fenced,
    HandoverWithdrawn,
    LockLost,
    NotHeld,
    UsageError,
)
from hansa.keys import Keys, topic_name
from hansa.limits import (
    BLOB_BYTES_MAX,
    HANDOVER_GRACE_S,
    HANDOVER_INLINE_BYTES_MAX,
    HANDOVER_KEPT_S,
    HANDOVER_S_MAX,
    HANDOVER_SWEEP_INTERVAL_S,
)
from hansa.topics import SpotNode
from hansa.transport import Environment
from tests.support.gated_store import GatedStore
from tests.support.virtual_store import TroubledStore, virtual

KEY = Keys().handover("lock", "dock")
OFFERED, PREPARED, SEALED, TAKEN, DONE, WITHDRAWN = HandoverStep


class Stage:
    """One who owns and one who waits, each with a gate before the store."""

    def __init__(self, stack: AsyncExitStack, store: TroubledStore) -> None:
        self._stack = stack
        self._store = store
        self.owner, self.waiter = GatedStore(store), GatedStore(store)
        self.hold: Hold
        self.waiting: asyncio.Task[Hold]

    async def begin(self) -> None:
        first = await self._stack.enter_async_context(Session(self.owner, 60.0, node="cog"))
        second = await self._stack.enter_async_context(Session(self.waiter, 60.0, node="hulk"))
        self.hold = await Lock(first, "dock").acquire()
        self.waiting = asyncio.ensure_future(Lock(second, "dock").acquire())
        await asyncio.sleep(0.5)

    async def record(self) -> Handover:
        found = await Handovers(self._store).get("lock", "dock")
        assert found is not None
        return found


async def staged(stack: AsyncExitStack, store: TroubledStore) -> Stage:
    stage = Stage(stack, store)
    await stage.begin()
    return stage


# ---- what it costs who does not use it


@virtual
async def test_a_lock_of_a_node_costs_two_transactions_and_nothing_else(store: TroubledStore) -> None:
    async with Session(store, node="cog") as session:
        lock, tasks = Lock(session, "dock"), asyncio.all_tasks()
        store.counts.clear()
        for _ in range(100):
            hold = await lock.acquire()
            assert asyncio.all_tasks() == tasks
            await hold.release()
        assert store.counts == {"commit": 200}
        # One that is held for long is watched itself, and its record is not.
        async with lock:
            await asyncio.sleep(10.0)
        assert store.counts == {"commit": 202, "watch exact": 1}
        assert not session.listeners


@virtual
async def test_a_line_in_which_something_was_handed_over_costs_no_more_when_all_is_over(
    store: TroubledStore,
) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        await stage.hold.hand_over("hulk")
        await (await stage.waiting).release()
        async with Session(store, node="late") as session:
            lock = Lock(session, "dock")
            store.counts.clear()
            for _ in range(10):
                await (await lock.acquire()).release()
            assert store.counts == {"commit": 20}


@virtual
async def test_waiters_of_one_session_follow_a_record_together(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        session = stage.waiting.get_coro().cr_frame.f_locals["self"]._line.sessions  # type: ignore[union-attr]
        others = [asyncio.ensure_future(Lock(session, "dock").acquire()) for _ in range(20)]
        await asyncio.sleep(1.0)
        (listeners,) = session.listeners.values()
        assert len(listeners.records) == 21
        stage.waiter.asked.clear()
        await stage.hold.hand_over("hulk", state=b"x")
        done, _ = await asyncio.wait([stage.waiting, *others], return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(5.0)
        # One of them was given it, and the others wait on.
        (taken,) = [each for each in (stage.waiting, *others) if each.done()]
        assert done == {taken}
        assert taken.result().state == b"x"
        for each in others:
            each.cancel()
        stage.waiting.cancel()
        await asyncio.sleep(1.0)
        if taken is not stage.waiting:
            await taken.result().release()
        assert not session.listeners


# ---- what is refused


@virtual
async def test_what_cannot_be_handed_over_so_is_refused_before_anything_is_written(
    store: TroubledStore,
) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        for arguments in (
            {"to": ""},
            {"to": "a/b"},
            {"to": "hulk", "timeout": 0.0},
            {"to": "hulk", "timeout": HANDOVER_S_MAX + 1},
            {"to": "hulk", "reason": "x" * 501},
            {"to": "hulk", "state": "text"},
            {"to": "hulk", "state": bytes(BLOB_BYTES_MAX + 1)},
        ):
            with pytest.raises(BadArgument):
                await stage.hold.hand_over(**arguments)
        assert await store.get(KEY) is None
        async with Session(store, node="cog") as session:
            place = await Semaphore(session, "berths", 2).acquire()
            with pytest.raises(UsageError, match="semaphore 'berths' cannot be handed over"):
                await place.hand_over("hulk")
            with pytest.raises(UsageError, match="cannot be handed over"):
                await place.wanted()
        await stage.hold.release()
        with pytest.raises(NotHeld):
            await stage.hold.hand_over("hulk")


@virtual
async def test_a_state_that_is_too_large_or_fails_to_come_keeps_it(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)

        async def large() -> bytes:
            return bytes(BLOB_BYTES_MAX + 1)

        async def failing() -> bytes:
            raise ValueError("not now")

        with pytest.raises(BadArgument, match="at most 16777216 are handed on"):
            await stage.hold.hand_over("hulk", state=large)
        assert (await stage.record()).step is WITHDRAWN
        with pytest.raises(ValueError, match="not now"):
            await stage.hold.hand_over("hulk", state=failing)
        assert "not now" in (await stage.record()).trouble
        assert stage.hold.is_held
        await stage.hold.hand_over("hulk", state=bytes(HANDOVER_INLINE_BYTES_MAX))
        assert len((await stage.waiting).state) == HANDOVER_INLINE_BYTES_MAX


@virtual
async def test_one_owner_hands_over_once_at_a_time(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        stage.waiter.hold(PREPARED)
        giving = asyncio.ensure_future(stage.hold.hand_over("hulk"))
        await stage.waiter.reached(PREPARED)
        with pytest.raises(Conflict, match="handed over to 'hulk' already"):
            await stage.hold.hand_over("hulk")
        stage.waiter.open(PREPARED)
        await giving
        assert (await stage.waiting).is_held


@virtual
async def test_news_that_overtake_the_answer_to_a_step_are_not_forgotten(store: TroubledStore) -> None:
    """The new owner was prepared before the old one had read that its offer was written."""
    for step in (OFFERED, SEALED):
        async with AsyncExitStack() as stack:
            stage = await staged(stack, store)
            stage.owner.slow_answers[step] = 1.0
            await stage.hold.hand_over("hulk", state=b"x", timeout=20.0)
            hold = await stage.waiting
            assert hold.state == b"x"
            await hold.release()


@virtual
async def test_an_owner_that_hears_nothing_until_the_next_hand_over_knows_what_became_of_its_own(
    store: TroubledStore,
) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        claim = stage.hold._claim
        giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=b"x", timeout=20.0))
        await stage.owner.reached(SEALED)
        record = record_of(claim)
        record.hear = lambda item: None  # type: ignore[method-assign]
        hold = await stage.waiting
        waiting = asyncio.ensure_future(Lock(claim.session, "dock").acquire())
        await asyncio.sleep(0.5)
        onward = asyncio.ensure_future(hold.hand_over("cog", timeout=20.0))
        while (await stage.record()).number == 1:
            await asyncio.sleep(0.01)
        await record.read()
        given = await giving
        assert (given.number, given.target, given.step, given.next_epoch) == (1, "hulk", DONE, hold.fence)
        assert (given.state, claim.loss.error, stage.hold.is_held) == (b"", None, False)
        await onward
        assert (await waiting).is_held


# ---- cancellation and loss


@virtual
async def test_cancelling_before_the_seal_withdraws(store: TroubledStore) -> None:
    for step in (PREPARED, None):
        async with AsyncExitStack() as stack:
            stage = await staged(stack, store)
            called = asyncio.Event()

            async def state(called: asyncio.Event = called) -> bytes:
                called.set()
                await asyncio.Event().wait()
                return b""

            if step is PREPARED:
                stage.waiter.hold(PREPARED)
            giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=state))
            await (stage.waiter.reached(PREPARED) if step is PREPARED else called.wait())
            giving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await giving
            assert stage.hold.is_held
            await asyncio.sleep(1.0)
            record = await stage.record()
            assert (record.step, record.reached) == (WITHDRAWN, OFFERED if step is PREPARED else PREPARED)
            assert "gave up" in record.trouble
            if step is PREPARED:
                stage.waiter.open(PREPARED)
            # It can be tried again, at once.
            assert (await stage.hold.hand_over("hulk")).step in (TAKEN, DONE)
            await (await stage.waiting).release()


@pytest.mark.parametrize("takes", [True, False])
def test_cancelling_after_the_seal_lets_it_come_to_its_end(takes: bool) -> None:
    async def live(store: TroubledStore) -> None:
        async with AsyncExitStack() as stack:
            stage = await staged(stack, store)
            stage.waiter.hold(TAKEN)
            giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=b"x", timeout=5.0))
            await stage.waiter.reached(TAKEN)
            giving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await giving
            assert not stage.hold.is_held
            with pytest.raises(NotHeld, match="being handed over"):
                stage.hold.check()
            if takes:
                stage.waiter.open(TAKEN)
                assert (await stage.waiting).state == b"x"
                await asyncio.sleep(1.0)
                assert not stage.hold.is_held
                with pytest.raises(NotHeld, match="given back"):
                    stage.hold.check()
            else:
                await asyncio.sleep(6.0)
                assert stage.hold.is_held
                stage.hold.check()
                assert (await stage.record()).step is WITHDRAWN
                stage.waiting.cancel()

    virtual(live)()


@virtual
async def test_an_owner_does_not_act_from_before_the_seal_is_sent(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        stage.owner.hold(SEALED)
        giving = asyncio.ensure_future(stage.hold.hand_over("hulk"))
        await stage.owner.reached(SEALED)
        assert (await stage.record()).step is PREPARED
        assert not stage.hold.is_held
        assert "being handed over" in repr(stage.hold)
        # The new owner never comes to it: the old one owns on, when the store has said so.
        stage.waiting.cancel()
        await asyncio.sleep(1.0)
        stage.owner.open(SEALED)
        with pytest.raises(HandoverWithdrawn, match="the new owner is gone"):
            await giving
        assert stage.hold.is_held


@virtual
async def test_a_session_that_is_lost_on_the_way_is_told_as_a_loss(store: TroubledStore) -> None:
    for step in (PREPARED, TAKEN):
        async with AsyncExitStack() as stack:
            stage = await staged(stack, store)
            stage.waiter.hold(step)
            giving = asyncio.ensure_future(stage.hold.hand_over("hulk"))
            await stage.waiter.reached(step)
            stage.hold._claim.session.end_lost("for the test")
            with pytest.raises(LockLost, match="for the test"):
                await giving
            stage.waiting.cancel()
            await asyncio.sleep(0)
        await store.delete_prefix("")


@virtual
async def test_a_block_whose_body_hands_over_ends_well(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        async with stage.hold:
            await stage.hold.hand_over("hulk")
        assert not await stage.hold.release()
        assert (await stage.waiting).is_held
        # It was not lost.
        assert stage.hold._claim.loss.error is None


@virtual
async def test_an_owner_that_leaves_while_it_is_sealed_lets_the_new_one_take_it(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        stage.waiter.hold(TAKEN)
        giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=b"x"))
        await stage.waiter.reached(TAKEN)
        await stage.hold.release()
        stage.waiter.open(TAKEN)
        assert (await stage.waiting).state == b"x"
        with pytest.raises(NotHeld, match="given back while"):
            await giving


@virtual
async def test_a_waiter_that_gives_up_after_it_took_leaves_the_state_to_the_next(
    store: TroubledStore,
) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        stage.waiter.hold(DONE)
        await stage.hold.hand_over("hulk", state=b"x")
        await stage.waiter.reached(DONE)
        stage.waiting.cancel()
        async with Session(store) as session:
            hold = await Lock(session, "dock").acquire()
            assert hold.state == b"x"
            assert (await stage.record()).step is DONE


# ---- what somebody spoils by hand


@virtual
async def test_a_record_that_somebody_deletes_costs_the_state_and_nothing_else(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        stage.waiter.hold(TAKEN)
        giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=b"x"))
        await stage.waiter.reached(TAKEN)
        await store.delete(KEY)
        with pytest.raises(HandoverWithdrawn, match="record was deleted"):
            await giving
        assert stage.hold.is_held
        stage.waiter.open(TAKEN)
        await asyncio.sleep(1.0)
        assert not stage.waiting.done()
        await stage.hold.release()
        assert (await stage.waiting).state == b""


@virtual
async def test_a_sealed_state_whose_record_is_gone_is_missed_and_the_next_one_owns(
    store: TroubledStore,
) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        stage.waiter.hold(DONE)
        await stage.hold.hand_over("hulk", state=b"x")
        await stage.waiter.reached(DONE)
        await store.delete(KEY)
        stage.waiting.cancel()
        async with Session(store) as session:
            hold = await Lock(session, "dock").acquire()
            assert (hold.state, hold.is_held) == (b"", True)
            assert hold.fence > stage.hold.fence


@virtual
async def test_a_record_that_nobody_can_read_is_written_over(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        await store.put(KEY, b"no record")
        handovers = Handovers(store)
        assert await handovers.all() == []
        with pytest.raises(BadRecord):
            await handovers.get("lock", "dock")
        await stage.hold.hand_over("hulk")
        assert (await stage.waiting).is_held


@virtual
async def test_a_head_that_nobody_can_read_is_said(store: TroubledStore) -> None:
    await store.put(head_key(Keys().lock("dock")), b"no head")
    async with Session(store) as session:
        with pytest.raises(BadRecord, match="who stands first"):
            await Lock(session, "dock").acquire(timeout=1.0)


# ---- what comes when it is named


@virtual
async def test_what_is_not_plain_is_prepared_by_who_comes_and_done_by_who_says_so(
    store: TroubledStore,
) -> None:
    name = topic_name("mesh", "zone/1")
    record_key = Keys().handover("topic", name)

    def line(session: Session) -> Line[Fenced]:
        movable = Movable(kind="topic", name=name, is_plain=False)
        prefix = session.keys.topic("mesh", "zone/1")
        return Line(session, prefix, what="topic 'zone/1'", error=Fenced, movable=movable)

    handovers = Handovers(store)
    async with Session(store, node="cog") as first, Session(store, node="hulk") as second:
        owner = await line(first).acquire(None)
        # Nobody waits yet: the offer is what brings the new owner.
        await handovers.offer("topic", name, "hulk")
        wanted = await owner.wanted()
        coming = asyncio.ensure_future(line(second).acquire(None))
        await owner.hand_over(wanted.target, state=b"x")
        claim = await coming
        assert (await claim.handed_state(), claim.is_standing, owner.is_standing) == (b"x", True, False)
        record = await handovers.get("topic", name)
        assert record is not None
        assert record.step is TAKEN
        # Not before it is done: what was handed on would be lost.
        for asked_by in ("outside", ""):
            await store.put(record_key, replace(record, asked_by=asked_by).encode())
            with pytest.raises(Conflict, match="taken"):
                await claim.hand_over("cog")
            assert claim.is_standing
        await claim.finish_handover()
        record = await handovers.get("topic", name)
        assert record is not None
        assert (record.step, record.next_epoch) == (DONE, claim.epoch)
        # Saying so twice does no harm.
        await claim.finish_handover()
        assert claim.state == b"x"


@virtual
async def test_who_has_taken_it_knows_by_which_hand_over_though_the_next_one_was_offered_meanwhile(
    store: TroubledStore,
) -> None:
    gate = GatedStore(store)
    name = topic_name("mesh", "zone/1")

    def line(session: Session) -> Line[Fenced]:
        movable = Movable(kind="topic", name=name, is_plain=False)
        prefix = session.keys.topic("mesh", "zone/1")
        return Line(session, prefix, what="topic 'zone/1'", error=Fenced, movable=movable)

    async with Session(store, node="cog") as first, Session(gate, node="hulk") as second:
        owner = await line(first).acquire(None)
        coming = asyncio.ensure_future(line(second).acquire(None))
        while len(await line(first).standing()) < 2:
            await asyncio.sleep(0.01)
        await owner.hand_over("hulk", state=b"x")
        claim = await coming
        listening = asyncio.ensure_future(claim.wanted())
        gate.slow_answers[DONE] = 1.0
        finishing = asyncio.ensure_future(claim.finish_handover())
        await asyncio.sleep(0.5)
        await Handovers(store).offer("topic", name, "cog")
        assert (await listening).number == 2
        await finishing
        assert claim.handover is not None
        assert (claim.handover.number, claim.state) == (1, b"x")


# ---- those outside


@virtual
async def test_all_steps_are_told_and_those_found_later_say_so(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        told: list[HandoverAdvanced] = []

        async def follow() -> None:
            async for news in Handovers(store).follow():
                told.append(news)

        following = asyncio.ensure_future(follow())
        await asyncio.sleep(0.1)
        await stage.hold.hand_over("hulk", reason="r")
        await stage.waiting
        await asyncio.sleep(0.1)
        assert [each.handover.step for each in told] == [OFFERED, PREPARED, SEALED, TAKEN, DONE]
        assert not any(each.is_after_gap for each in told)
        following.cancel()
        late = Handovers(store).follow()
        first = await anext(late)
        assert (first.handover.step, first.is_after_gap) == (DONE, True)
        await late.aclose()


@virtual
async def test_who_asks_and_is_cancelled_takes_it_back(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        moving = asyncio.ensure_future(Handovers(store, name="me").move("lock", "dock", "hulk"))
        await asyncio.sleep(1.0)
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        record = await stage.record()
        assert (record.step, record.trouble) == (WITHDRAWN, "me took it back")
        assert stage.hold.is_held
        stage.waiting.cancel()


@virtual
async def test_an_offer_whose_answer_is_lost_is_found_again(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        for lost in ("lost_answers", "lost_requests"):
            gate = GatedStore(store)
            getattr(gate, lost).add(OFFERED)
            record = await Handovers(gate, name="me").offer("lock", "dock", "hulk")
            assert (record.asked_by, record.revision > 0) == ("me", True)
            assert gate.asked.count(OFFERED) == (1 if lost == "lost_answers" else 2)
            await Handovers(store).withdraw("lock", "dock")
        stage.waiting.cancel()


@virtual
async def test_an_owner_is_asked_and_the_time_counts_from_when_it_heard_of_it(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        wanted = asyncio.ensure_future(stage.hold.wanted())
        await asyncio.sleep(1.0)
        assert not wanted.done()
        await Handovers(store).offer("lock", "dock", "hulk", timeout=10.0, reason="r")
        record = await wanted
        assert (record.target, record.timeout, record.reason) == ("hulk", 10.0, "r")
        # Whoever takes too long to stop its work keeps it.
        await asyncio.sleep(11.0)
        with pytest.raises(HandoverWithdrawn):
            await stage.hold.hand_over("hulk") if (await stage.record()).is_open else await _withdrawn(stage)
        assert stage.hold.is_held
        stage.waiting.cancel()


async def _withdrawn(stage: Stage) -> None:
    record = await stage.record()
    raise HandoverWithdrawn(record.trouble)


@virtual
async def test_what_nobody_ends_is_ended_and_what_nobody_may_end_is_told(store: TroubledStore) -> None:
    async with AsyncExitStack() as stack:
        stage = await staged(stack, store)
        stuck: list[HandoverStuck] = []
        watchdog = Handovers(store)
        looking = asyncio.ensure_future(watchdog.look_after(stuck.append))
        # Nobody who takes part lives on: neither has said so.
        offer = await Handovers(store, name="me").offer("lock", "dock", "hulk", timeout=5.0)
        dead = Keys().handover("lock", "other")
        lost = advanced(
            advanced(offer, PREPARED, at=1.0, target_key="k"), SEALED, at=1.0, state=b"x", trouble=""
        )
        await store.put(dead, Handover.encode(lost).replace(b'"dock"', b'"other"'))
        alone = Keys().handover("leader", "x")
        await store.put(alone, offer.encode().replace(b'"dock"', b'"x"').replace(b'"lock"', b'"leader"'))
        await asyncio.sleep(4.0)
        assert (stuck, watchdog.stats.open_count, watchdog.stats.offered_count) == ([], 3, 3)
        await asyncio.sleep(5.0 + HANDOVER_GRACE_S)
        (one,) = stuck
        assert (one.handover.name, one.handover.step) == ("other", SEALED)
        assert "whoever claims it next" in one.reason
        stats = watchdog.stats
        assert (stats.open_count, stats.withdrawn_count, stats.overdue_count, stats.stuck_count) == (
            1,
            2,
            1,
            1,
        )
        found = {(each.kind, each.name): each.step for each in await watchdog.all()}
        assert found == {("lock", "dock"): WITHDRAWN, ("lock", "other"): SEALED, ("leader", "x"): WITHDRAWN}
        # It goes on to count.
        await stage.hold.hand_over("hulk")
        await stage.waiting
        await asyncio.sleep(1.0)
        assert watchdog.stats.done_count == 1
        looking.cancel()


@virtual
async def test_only_what_ended_long_ago_is_swept_and_so_many_at_once(store: TroubledStore) -> None:
    handovers = Handovers(store)
    async with Session(store, node="cog") as first, Session(store, node="hulk") as second:
        for number in range(5):
            name = f"x{number}"
            leadership = await Election(first, name).win()
            waiting = asyncio.ensure_future(Election(second, name).win())
            await asyncio.sleep(0.5)
            if number < 4:
                await leadership.hand_over("hulk")
                await (await waiting).resign()
            else:
                await handovers.offer("leader", name, "hulk", timeout=3_600.0)
                waiting.cancel()
        assert await handovers.sweep(older_than=100.0) == 0
        await asyncio.sleep(101.0)
        assert await handovers.sweep(older_than=100.0, count_max=3) == 3
        assert await handovers.sweep(older_than=100.0, count_max=3) == 1
        (left,) = await handovers.all()
        assert (left.name, left.is_open) == ("x4", True)
        assert [key for key in await store.keys() if key.endswith(b"/handover")] == []


@virtual
async def test_what_has_to_stay_keeps_no_others_from_being_swept(store: TroubledStore) -> None:
    handovers = Handovers(store)
    async with Session(store, node="cog") as first, Session(store, node="hulk") as second:
        for name in ("a", "b", "c"):
            leadership = await Election(first, name).win()
            waiting = asyncio.ensure_future(Election(second, name).win())
            await asyncio.sleep(0.5)
            await leadership.hand_over("hulk")
            leads_on = await waiting
        await leads_on.resign()
        await asyncio.sleep(101.0)
        # Who leads by a hand-over has its epoch from what was left behind.
        swept = [await handovers.sweep(older_than=100.0, count_max=1) for _ in range(4)]
        assert swept == [0, 0, 1, 0]
        assert [one.name for one in await handovers.all()] == ["a", "b"]


@virtual
async def test_old_hand_overs_are_swept_now_and_then_also_after_the_store_was_away(
    store: TroubledStore,
) -> None:
    handovers = Handovers(store)
    keeping = asyncio.ensure_future(handovers.keep_swept())
    await hand_over_once(store)
    await asyncio.sleep(HANDOVER_KEPT_S - HANDOVER_SWEEP_INTERVAL_S)
    assert len(await handovers.all()) == 1
    store.lost_requests_count = 2
    await asyncio.sleep((1.0 + 3 * 1.5) * HANDOVER_SWEEP_INTERVAL_S)
    assert (store.lost_requests_count, await handovers.all()) == (0, [])
    await store.close()
    async with asyncio.timeout(2 * HANDOVER_SWEEP_INTERVAL_S):
        await keeping


@virtual
async def test_nodes_that_take_topics_and_commands_that_own_sweep_as_long_as_they_live(
    store: TroubledStore,
) -> None:
    for sweeper in (
        SpotNode("inproc://node", store=store, environment=Environment(clock=store.clock)),
        swept(store, "default"),
    ):
        await hand_over_once(store)
        await asyncio.sleep(HANDOVER_KEPT_S)
        tasks = asyncio.all_tasks()
        async with sweeper:
            await asyncio.sleep(0.1)
            assert len(await Handovers(store).all()) == 1
            await asyncio.sleep(1.5 * HANDOVER_SWEEP_INTERVAL_S)
            assert await Handovers(store).all() == []
        assert asyncio.all_tasks() == tasks


async def hand_over_once(store: TroubledStore) -> None:
    async with Session(store, node="cog") as first, Session(store, node="hulk") as second:
        leadership = await Election(first, "x").win()
        waiting = asyncio.ensure_future(Election(second, "x").win())
        await asyncio.sleep(0.5)
        await leadership.hand_over("hulk")
        await (await waiting).resign()


def test_a_claim_that_is_sealed_is_not_owned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds for every kind of claim: the machine of the seal is one place."""
    claim: Any = TakenClaim.__new__(TakenClaim)
    claim.epoch, claim.has_left, claim.is_sealed = 1, False, True
    assert not claim.is_standing
