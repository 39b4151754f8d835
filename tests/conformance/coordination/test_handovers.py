"""Locks and leaderships that are handed over, on every store: who dies, what is lost, which epochs come."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hansa.coordination import Election, Handover, Handovers, HandoverStep, Lock, Session
from hansa.coordination.held import Held
from hansa.coordination.line import in_order
from hansa.errors import BadArgument, Conflict, HandoverWithdrawn, LockLost, NoOwner, NoSuccessor, NotHeld
from hansa.keys import Keys
from hansa.limits import BLOB_BYTES_MAX, HANDOVER_S
from hansa.store.blobs import Blobs
from hansa.store.store import Store
from tests.support.gated_store import GatedStore

WAIT_S_MAX = 60.0
NAME = "dock"
LARGE = bytes(range(256)) * 4_096
OFFERED, PREPARED, SEALED, TAKEN, DONE, WITHDRAWN = HandoverStep


class Cast:
    """Nodes with a session each, of which some own and some wait; and their tasks."""

    def __init__(self, stack: AsyncExitStack, stores: Sequence[Store], kind: str = "lock") -> None:
        self._stack = stack
        self._stores = stores
        self.kind = kind
        self.sessions: dict[str, Session] = {}
        self.gates: dict[str, GatedStore] = {}
        self.prefix = Keys().line(kind, NAME)
        self.handovers = Handovers(stores[-1], name="somebody")

    async def join(self, name: str, *, node: str | None = None) -> Session:
        """A node of this name, or one that has another, or none."""
        gate = self.gates[name] = GatedStore(self._stores[len(self.sessions) % len(self._stores)])
        session = Session(gate, ttl=30.0, node=name if node is None else node)
        self.sessions[name] = await self._stack.enter_async_context(session)
        return session

    async def acquire(self, name: str, *, node: str | None = None) -> Any:
        """Own, or stand in the line until then."""
        session = self.sessions.get(name) or await self.join(name, node=node)
        if self.kind == "lock":
            return await Lock(session, NAME).acquire()
        return await Election(session, NAME).win()

    async def wait(self, name: str, *, node: str | None = None) -> asyncio.Task[Any]:
        """A task that stands in the line, and gives what it owns in the end."""
        session = await self.join(name, node=node)
        task = asyncio.ensure_future(self.acquire(name))
        self._stack.callback(task.cancel)
        while not any(item.lease == session.lease for item in await self.line()):
            await asyncio.sleep(0.005)
        return task

    async def line(self) -> list[Any]:
        return in_order((await self._stores[0].scan(self.prefix)).items)

    async def dies(self, *names: str) -> None:
        """As one that is killed, when its lease is over: the store has nothing of it any more."""
        for name in names:
            await self._stores[-1].revoke(self.sessions[name].lease)

    async def reached(self, gate: str, step: HandoverStep, giving: asyncio.Future[Handover]) -> None:
        """Wait until this one asks for this step; if the hand-over ends before, say why."""
        reached = asyncio.ensure_future(self.gates[gate].reached(step))
        self._stack.callback(reached.cancel)
        either: list[asyncio.Future[Any]] = [reached, giving]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not reached.done():
            # For its owner it ends when it is taken; what fails before is raised here.
            await giving
            await reached

    async def record(self, *steps: HandoverStep) -> Handover:
        """The record, when it is at one of these steps."""
        while (found := await self.handovers.get(self.kind, NAME)) is None or found.step not in steps:
            await asyncio.sleep(0.005)
        return found


def epoch(held: Held[Any]) -> int:
    return held._claim.epoch


def stands(held: Held[Any]) -> bool:
    return held._claim.is_standing


@pytest.fixture
async def cast(store: Store, other_store: Store) -> AsyncIterator[Cast]:
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S_MAX):
        yield Cast(stack, (store, other_store))


@pytest.fixture(params=["lock", "leader"])
async def either_cast(
    request: pytest.FixtureRequest, store: Store, other_store: Store
) -> AsyncIterator[Cast]:
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S_MAX):
        yield Cast(stack, (store, other_store), request.param)


# ---- the good way


@pytest.mark.spec("OWN-04")
async def test_what_is_handed_over_goes_to_the_named_one_ahead_of_all_others(either_cast: Cast) -> None:
    cast = either_cast
    first = await cast.acquire("first")
    # One that has no name hears of no record, and one that is older than the named one.
    nameless = await cast.wait("nameless", node="")
    older = await cast.wait("older")
    named = await cast.wait("named")
    younger = await cast.wait("younger")
    called: list[bool] = []

    async def state() -> bytes:
        called.append(stands(first))
        return b"so far\0\xff"

    record = await first.hand_over("named", state=state, reason="it is full here")
    assert called == [True]
    assert not stands(first)
    with pytest.raises(NotHeld):
        first.check()
    second = await named
    assert (second.state, stands(second)) == (b"so far\0\xff", True)
    assert epoch(second) == record.next_epoch > epoch(first)
    assert not older.done()
    done = await cast.record(DONE)
    assert list(done.times) == [OFFERED, PREPARED, SEALED, TAKEN, DONE]
    assert sorted(done.times.values()) == list(done.times.values())
    assert (done.source, done.target, done.reason, done.taken_by) == (
        "first",
        "named",
        "it is full here",
        "named",
    )
    assert (done.epoch, done.next_epoch, done.size, done.state) == (epoch(first), epoch(second), 8, b"")
    # Whoever comes after, in the order of coming, has a higher epoch than all before.
    epochs = [epoch(first), epoch(second)]
    leaving = second
    for waiting in (nameless, older, younger):
        others = [each for each in (nameless, older, younger) if not each.done()]
        assert waiting in others
        await leaving._claim.release()
        leaving = await waiting
        assert leaving.state == b""
        epochs.append(epoch(leaving))
    late = await cast.wait("late")
    await leaving._claim.release()
    last = await late
    epochs.append(epoch(last))
    await last._claim.release()
    again = await cast.acquire("again")
    epochs.append(epoch(again))
    assert epochs == sorted(set(epochs))
    # What others are told of it is what the owners know.
    if cast.kind == "lock":
        holder = await Lock(cast.sessions["late"], NAME).holder()
        assert holder is not None
        assert holder.fence == epochs[-1]
    else:
        leader = await Election(cast.sessions["late"], NAME).leader()
        assert leader is not None
        assert leader.term == epochs[-1]


async def test_a_state_of_a_mebibyte_goes_along_and_leaves_nothing_in_the_store(either_cast: Cast) -> None:
    cast = either_cast
    first = await cast.acquire("first")
    named = await cast.wait("named")
    with pytest.raises(BadArgument, match="a state of 16777217 bytes: at most 16777216"):
        await first.hand_over("named", state=bytes(BLOB_BYTES_MAX + 1))
    assert await cast.handovers.get(cast.kind, NAME) is None
    cast.gates["named"].hold(DONE)
    await first.hand_over("named", state=LARGE)
    blobs = Blobs(cast._stores[0], space="handed")
    assert [blob.name for blob in await blobs.all()] == [(await cast.record(TAKEN)).blob]
    cast.gates["named"].open(DONE)
    assert (await named).state == LARGE
    done = await cast.record(DONE)
    assert (done.size, done.blob, done.state) == (len(LARGE), "", b"")
    assert await blobs.all() == ()


@pytest.mark.spec("OWN-05")
async def test_a_state_of_a_mebibyte_goes_to_an_heir_and_is_deleted_when_it_is_withdrawn(cast: Cast) -> None:
    first = await cast.acquire("first")
    other = await cast.wait("other")
    await cast.wait("named")
    cast.gates["named"].hold(TAKEN)
    with pytest.raises(HandoverWithdrawn, match="did not take it"):
        await first.hand_over("named", state=LARGE, timeout=3.0)
    assert stands(first)
    blobs = Blobs(cast._stores[0], space="handed")
    assert await blobs.all() == ()
    # What it asked for comes too late; the next time it waits again.
    cast.gates["named"].open(TAKEN)
    cast.gates["named"].hold(TAKEN)
    giving = asyncio.ensure_future(first.hand_over("named", state=LARGE))
    await cast.record(SEALED)
    cast.gates["first"].hold(WITHDRAWN)
    await cast.dies("first", "named")
    assert (await other).state == LARGE
    assert await blobs.all() == ()
    giving.cancel()


async def test_it_goes_on_from_hand_to_hand_and_the_record_remembers(cast: Cast) -> None:
    hold = await cast.acquire("a")
    epochs = [epoch(hold)]
    for number, name in enumerate(("b", "c", "d"), 1):
        waiting = await cast.wait(name)
        record = await hold.hand_over(name, state=b"%d" % number)
        hold = await waiting
        assert (record.number, hold.state) == (number, b"%d" % number)
        epochs.append(epoch(hold))
    assert epochs == sorted(set(epochs))
    record = await cast.record(DONE)
    assert [(past.number, past.source, past.step) for past in record.past] == [(2, "b", DONE), (1, "a", DONE)]
    assert [past.next_epoch for past in record.past] == [epochs[2], epochs[1]]


async def test_observers_see_the_named_one_follow_at_once(store: Store, other_store: Store) -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S_MAX):
        cast = Cast(stack, (store, other_store), "leader")
        first = await cast.acquire("first")
        older, named = await cast.wait("older"), await cast.wait("named")
        news = Election(cast.sessions["older"], NAME).observe()
        seen = [await anext(news)]
        await first.hand_over("named")
        second = await named
        seen.append(await anext(news))
        assert [(each.term, each.node) for each in seen if each is not None] == [
            (first.term, "first"),
            (second.term, "named"),
        ]
        await second.resign()
        third = await older
        leader = await anext(news)
        while leader is None:
            leader = await anext(news)
        assert (leader.term, leader.node) == (third.term, "older")
        await news.aclose()


async def test_a_head_is_swept_when_nobody_is_older(cast: Cast) -> None:
    first = await cast.acquire("first")
    older, named = await cast.wait("older"), await cast.wait("named")
    await first.hand_over("named")
    second = await named
    await cast.record(DONE)
    assert await cast.handovers.sweep(older_than=-1.0) == 0
    await second.release()
    third = await older
    late = await cast.wait("late")
    assert await cast.handovers.sweep(older_than=-1.0) == 0
    await third.release()
    last = await late
    assert epoch(last) > epoch(third)
    await last.release()
    assert await cast.handovers.sweep(older_than=60.0) == 0
    assert await cast.handovers.sweep(older_than=-1.0) == 1
    assert (await cast._stores[0].scan(cast.prefix)).items == ()
    assert await cast.handovers.all() == []
    again = await cast.acquire("again")
    assert epoch(again) > epoch(last)


# ---- somebody dies


@pytest.mark.parametrize("step", [OFFERED, PREPARED, SEALED, TAKEN])
async def test_a_successor_that_dies_at_any_step_leaves_one_owner_and_no_state_is_lost(
    cast: Cast, step: HandoverStep
) -> None:
    first = await cast.acquire("first")
    other = await cast.wait("other")
    named = await cast.wait("named")
    # What comes after the step in which it dies.
    gate, held = {
        OFFERED: ("named", PREPARED),
        PREPARED: ("first", SEALED),
        SEALED: ("named", TAKEN),
        TAKEN: ("named", DONE),
    }[step]
    cast.gates[gate].hold(held)
    # No busy machine is so slow: only the first of them is to end by its deadline.
    timeout = 1.0 if step is OFFERED else HANDOVER_S
    giving = asyncio.ensure_future(first.hand_over("named", state=b"sealed", timeout=timeout))
    await cast.reached(gate, held, giving)
    await cast.record(step)
    assert stands(first) is (step is OFFERED)
    await cast.dies("named")
    with pytest.raises(LockLost):
        await named
    if gate == "first":
        cast.gates[gate].open(held)
    if step is TAKEN:
        await giving
        after = await other
        assert after.state == b"sealed"
        assert epoch(after) > (await cast.record(DONE)).epoch
        assert (await cast.record(DONE)).taken_by == "other"
        return
    with pytest.raises(HandoverWithdrawn) as withdrawn:
        await giving
    assert withdrawn.value.step == step.value
    assert withdrawn.value.reason in str(withdrawn.value)
    assert (await cast.record(WITHDRAWN)).state == b""
    assert stands(first)
    assert not other.done()
    # It owns as before, and so long.
    claim = first._claim
    assert (await cast.gates["first"].commit(claim.guards, then=[])).is_success
    holder = await Lock(cast.sessions["first"], NAME).holder()
    assert holder is not None
    assert holder.fence == epoch(first)
    await first.release()
    assert epoch(await other) > epoch(first)


@pytest.mark.parametrize("step", [OFFERED, PREPARED, SEALED, TAKEN])
async def test_an_owner_that_dies_at_any_step_leaves_one_owner_and_no_state_is_lost(
    cast: Cast, step: HandoverStep
) -> None:
    first = await cast.acquire("first")
    other = await cast.wait("other")
    named = await cast.wait("named")
    gate, held = {
        OFFERED: ("named", PREPARED),
        PREPARED: ("first", SEALED),
        SEALED: ("named", TAKEN),
        TAKEN: ("named", DONE),
    }[step]
    cast.gates[gate].hold(held)
    giving = asyncio.ensure_future(first.hand_over("named", state=b"sealed"))
    await cast.reached(gate, held, giving)
    await cast.record(step)
    await cast.dies("first")
    if step in (OFFERED, PREPARED):
        # As after any crash: who waited first comes first, and the offer is closed.
        with pytest.raises(LockLost):
            cast.gates[gate].open(held) if gate == "first" else None
            await giving
        after = await other
        assert after.state == b""
        # By whoever saw it first: the old owner itself, or the next one.
        trouble = (await cast.record(WITHDRAWN)).trouble
        assert "the old owner is gone" in trouble or "is lost" in trouble
        if gate == "named":
            cast.gates[gate].open(held)
        assert not named.done()
    else:
        cast.gates[gate].open(held)
        after = await named
        assert after.state == b"sealed"
        assert not other.done()
        await giving
    assert epoch(after) > epoch(first)
    assert not stands(first)


@pytest.mark.parametrize("order", [("named", "first"), ("first", "named")])
async def test_when_both_die_after_the_seal_the_next_one_is_given_the_state(
    cast: Cast, order: tuple[str, str]
) -> None:
    first = await cast.acquire("first")
    other = await cast.wait("other", node="")
    named = await cast.wait("named")
    cast.gates["named"].hold(TAKEN)
    cast.gates["first"].hold(WITHDRAWN)
    giving = asyncio.ensure_future(first.hand_over("named", state=b"sealed"))
    await cast.reached("named", TAKEN, giving)
    await cast.dies(*order)
    after = await other
    assert (after.state, epoch(after) > epoch(first)) == (b"sealed", True)
    record = await cast.record(DONE)
    assert record.next_epoch == epoch(after)
    if "first" in cast.gates and WITHDRAWN in cast.gates["first"].asked:
        cast.gates["first"].open(WITHDRAWN)
    await giving
    for task in (giving, named):
        task.cancel()


async def test_who_comes_when_all_are_gone_is_given_what_was_sealed(cast: Cast) -> None:
    first = await cast.acquire("first")
    await cast.wait("named")
    cast.gates["named"].hold(TAKEN)
    cast.gates["first"].hold(WITHDRAWN)
    giving = asyncio.ensure_future(first.hand_over("named", state=b"sealed"))
    await cast.reached("named", TAKEN, giving)
    await cast.dies("first", "named")
    session = await cast.join("late")
    late = await Lock(session, NAME).try_acquire()
    assert late is not None
    assert (late.state, epoch(late) > epoch(first)) == (b"sealed", True)
    # Once: the next one is given nothing.
    await late.release()
    assert (await cast.acquire("later")).state == b""
    giving.cancel()


# ---- it is not to be


async def test_an_offer_that_nobody_answers_ends_at_its_deadline_and_blocks_no_other(cast: Cast) -> None:
    first = await cast.acquire("first")
    await cast.wait("mute")
    cast.gates["mute"].hold(PREPARED)
    named = await cast.wait("named")
    with pytest.raises(HandoverWithdrawn, match=r"not there within 0\.2 s") as withdrawn:
        await first.hand_over("mute", timeout=0.2)
    assert withdrawn.value.step == "offered"
    assert stands(first)
    await first.hand_over("named", state=b"x")
    assert (await named).state == b"x"
    assert [(past.target, past.step) for past in (await cast.record(DONE)).past] == [("mute", WITHDRAWN)]


async def test_who_does_not_wait_cannot_be_given_anything(cast: Cast) -> None:
    first = await cast.acquire("first")
    with pytest.raises(NoSuccessor, match="'nobody' does not wait"):
        await first.hand_over("nobody")
    assert stands(first)
    assert "does not wait" in (await cast.record(WITHDRAWN)).trouble


async def test_a_second_offer_is_refused_while_one_is_open(cast: Cast) -> None:
    first = await cast.acquire("first")
    await cast.wait("named")
    await cast.wait("other")
    await cast.handovers.offer("lock", NAME, "named")
    await cast.record(PREPARED)
    with pytest.raises(Conflict, match=r"'named' is open \(prepared\)"):
        await cast.handovers.offer("lock", NAME, "other")
    with pytest.raises(Conflict, match=r"'named' is open \(prepared\)"):
        await first.hand_over("other")
    assert stands(first)
    record = await cast.handovers.withdraw("lock", NAME, reason="not today")
    assert record is not None
    assert (record.step, record.trouble, record.reached) == (WITHDRAWN, "not today", PREPARED)
    await first.hand_over("other")


# ---- asked from outside


@pytest.mark.spec("OWN-04")
async def test_it_is_moved_from_outside_when_its_owner_agrees(either_cast: Cast) -> None:
    cast = either_cast
    first = await cast.acquire("first")
    await cast.wait("older")
    named = await cast.wait("named")
    moving = asyncio.ensure_future(cast.handovers.move(cast.kind, NAME, "named", reason="maintenance"))
    wanted = await first.wanted()
    assert (wanted.target, wanted.reason, wanted.asked_by) == ("named", "maintenance", "somebody")
    assert stands(first)
    await first.hand_over(wanted.target, state=b"moved")
    record = await moving
    second = await named
    assert (second.state, record.step) == (b"moved", DONE)
    assert (record.number, record.epoch, record.next_epoch) == (1, epoch(first), epoch(second))


async def test_an_owner_that_does_not_answer_keeps_it(cast: Cast) -> None:
    first = await cast.acquire("first")
    await cast.wait("named")
    record = await cast.handovers.move("lock", NAME, "named", timeout=0.3)
    assert (record.step, record.reached) == (WITHDRAWN, PREPARED)
    assert "did not give it within 0.3 s" in record.trouble
    assert stands(first)


async def test_what_nobody_has_or_waits_for_cannot_be_moved(cast: Cast) -> None:
    with pytest.raises(NoOwner, match="nobody has lock 'dock'"):
        await cast.handovers.move("lock", NAME, "named")
    await cast.acquire("first")
    for node in ("first", "nobody"):
        with pytest.raises(NoSuccessor):
            await cast.handovers.move("lock", NAME, node)


# ---- answers and requests get lost


@pytest.mark.parametrize("what", ["lost_answers", "lost_requests"])
@pytest.mark.parametrize("step", [OFFERED, PREPARED, SEALED, TAKEN, DONE, WITHDRAWN])
async def test_each_step_may_be_lost_on_its_way(cast: Cast, step: HandoverStep, what: str) -> None:
    first = await cast.acquire("first")
    await cast.wait("older")
    named = await cast.wait("named")
    who = "named" if step in (PREPARED, TAKEN, DONE) else "first"
    getattr(cast.gates[who], what).add(step)
    if step is WITHDRAWN:
        cast.gates["named"].hold(TAKEN)
        with pytest.raises(HandoverWithdrawn, match="did not take it"):
            # Enough for a busy machine to come as far as the seal.
            await first.hand_over("named", timeout=1.0)
        assert stands(first)
        cast.gates["named"].open(TAKEN)
        await asyncio.sleep(0)
        assert not named.done()
        await first.hand_over("named", state=b"x")
    else:
        await first.hand_over("named", state=b"x")
    second = await named
    assert (second.state, stands(second), stands(first)) == (b"x", True, False)
    assert epoch(second) > epoch(first)
    record = await cast.record(DONE)
    assert record.next_epoch == epoch(second)
    # The news of a step may come before anybody asks again.
    assert cast.gates[who].asked.count(step) >= (2 if what == "lost_requests" else 1)
    assert not getattr(cast.gates[who], what)


@pytest.mark.parametrize("what", ["lost_answers", "lost_requests"])
async def test_an_heir_s_turn_may_be_lost_on_its_way(
    cast: Cast, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    first = await cast.acquire("first")
    other = await cast.wait("other")
    named = await cast.wait("named")
    cast.gates["named"].hold(DONE)
    getattr(cast.gates["other"], what).add(TAKEN)
    await first.hand_over("named", state=b"x")
    await cast.dies("named")
    after = await other
    assert (after.state, epoch(after)) == (b"x", (await cast.record(DONE)).next_epoch)
    named.cancel()
