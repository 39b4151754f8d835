"""Placed entries that are handed over from node to node, on every store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hansa.coordination import (
    Handover,
    Handovers,
    HandoverStep,
    Members,
    NodeInfo,
    PlacedClaim,
    PlacedClaims,
    PlacedMoves,
    Placer,
    SessionKeeper,
)
from hansa.coordination.election import Election
from hansa.errors import (
    BadArgument,
    Conflict,
    Fenced,
    HandoverWithdrawn,
    NoOwner,
    NoSuccessor,
    NotHeld,
    StoreCorrupt,
)
from hansa.keys import Keys
from hansa.limits import BLOB_BYTES_MAX
from hansa.store.blobs import Blobs
from hansa.store.store import Store
from hansa.store.values import Compare, Put
from tests.support.gated_store import GatedStore

WAIT_S_MAX = 30.0
ENTRY = b"entries/a/b"
LARGE = bytes(range(256)) * 4_096
OFFERED, PREPARED, SEALED, TAKEN, DONE, WITHDRAWN = HandoverStep


class Node:
    """A node that owns what is placed on it, and what it was told."""

    def __init__(self, store: Store, name: str) -> None:
        self.name = name
        self.gate = GatedStore(store)
        self.keeper = SessionKeeper(self.gate, ttl=20.0, node=name)
        self.claims: asyncio.Queue[PlacedClaim] = asyncio.Queue()
        self.wanted: asyncio.Queue[tuple[PlacedClaim, Handover]] = asyncio.Queue()
        self.placed = PlacedClaims(self.keeper, name, b"entries/", on_claim=self.claims.put_nowait)
        self.refusal = ""
        self.moves = PlacedMoves(
            self.keeper,
            name,
            self.placed,
            kind="entry",
            on_wanted=lambda claim, record: self.wanted.put_nowait((claim, record)),
            refuse=lambda record: self.refusal,
        )

    async def begin(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self.keeper)
        members = Members(self.gate, NodeInfo(id=self.name), session=self.keeper)
        await stack.enter_async_context(members)
        for work in (self.placed.run(), self.moves.run()):
            stack.callback(asyncio.ensure_future(work).cancel)

    async def dies(self, store: Store) -> None:
        """Its lease is over, and it is not there again."""
        session = await self.keeper.live()
        self.keeper._new_session = None  # type: ignore[assignment]  # It opens none any more.
        await store.revoke(session.lease)


class Stage:
    """A leader, and three nodes."""

    def __init__(self, stack: AsyncExitStack, store: Store, other_store: Store) -> None:
        self._stack = stack
        self.store = store
        self.nodes = [Node(each, name) for each, name in ((store, "a"), (other_store, "b"), (store, "c"))]
        self.handovers = Handovers(store)
        self.placer: Placer

    async def begin(self) -> None:
        for node in self.nodes:
            await node.begin(self._stack)
        leadership = await Election(self.nodes[2].keeper, "placer").win()
        self.placer = Placer(self.store, b"entries/", kind="entry", guard=leadership.guard, node="c")

    async def record(self, *steps: HandoverStep, choose: str | None = None) -> Handover:
        """The record at one of these steps; until then the leader does what it must."""
        while (found := await self.handovers.get("entry", "a%2Fb")) is None or found.step not in steps:
            await self.placer.drive(lambda record: choose)
            await asyncio.sleep(0.01)
        return found


@pytest.fixture
async def stage(store: Store, other_store: Store) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack, asyncio.timeout(WAIT_S_MAX):
        stage = Stage(stack, store, other_store)
        await stage.begin()
        yield stage


async def acts(stage: Stage, claim: PlacedClaim) -> bool:
    return (await stage.store.commit(claim.guards, [Put("acted", b"")])).is_success


async def test_an_entry_is_handed_over_with_its_state_and_a_higher_epoch(stage: Stage) -> None:
    a, b, _ = stage.nodes
    with pytest.raises(NoOwner):
        await stage.placer.offer(ENTRY, "a")
    assert await stage.placer.place(ENTRY, "a", body=b"body")
    first = await a.claims.get()
    assert await a.moves.handed_state(first) == b""
    with pytest.raises(NotHeld, match="nobody is ready"):
        await a.moves.seal(first, b"")
    with pytest.raises(NoSuccessor):
        await stage.placer.offer(ENTRY, "nobody")
    await stage.placer.offer(ENTRY, "b", reason="balance")
    with pytest.raises(Conflict, match="to 'b' is open"):
        await stage.placer.offer(ENTRY, "c")
    claim, wanted = await a.wanted.get()
    assert (claim, wanted.target, wanted.reason, first.is_standing) == (first, "b", "balance", True)
    sealing = asyncio.ensure_future(a.moves.seal(first, b"so far"))
    await stage.record(TAKEN, DONE)
    assert not first.is_standing
    assert not await acts(stage, first)
    second = await b.claims.get()
    assert second.placement.body == b"body"
    assert await b.moves.handed_state(second) == b"so far"
    await b.moves.finish(second)
    assert (await sealing).target == "b"
    # It was given, and not lost.
    assert first.loss.error is None
    done = await stage.record(DONE)
    assert (done.epoch, done.next_epoch, done.source, done.taken_by) == (
        first.epoch,
        second.epoch,
        "a",
        "b",
    )
    assert second.epoch > first.epoch
    assert await acts(stage, second)
    assert await b.moves.handed_state(second) == b""


async def sealed(stage: Stage, state: bytes) -> tuple[PlacedClaim, asyncio.Future[Handover]]:
    """Placed on a, and on its way to b with a state."""
    a = stage.nodes[0]
    await stage.placer.place(ENTRY, "a")
    first = await a.claims.get()
    await stage.placer.offer(ENTRY, "b")
    await a.wanted.get()
    return first, asyncio.ensure_future(a.moves.seal(first, state))


async def test_a_state_of_a_mebibyte_goes_along_and_leaves_nothing_in_the_store(stage: Stage) -> None:
    a, b, _ = stage.nodes
    await stage.placer.place(ENTRY, "a")
    first = await a.claims.get()
    await stage.placer.offer(ENTRY, "b")
    await a.wanted.get()
    with pytest.raises(BadArgument, match="a state of 16777217 bytes"):
        await a.moves.seal(first, bytes(BLOB_BYTES_MAX + 1))
    assert await acts(stage, first)
    sealing = asyncio.ensure_future(a.moves.seal(first, LARGE))
    record = await stage.record(TAKEN)
    await sealing
    blobs = Blobs(stage.store, space="handed")
    assert ([blob.name for blob in await blobs.all()], record.state) == ([record.blob], b"")
    second = await b.claims.get()
    assert await b.moves.handed_state(second) == LARGE
    await b.moves.finish(second)
    done = await stage.record(DONE)
    assert (done.size, done.blob, done.trouble) == (len(LARGE), "", "")
    assert await blobs.all() == ()


@pytest.mark.parametrize("who", ["owner", "leader"])
async def test_a_large_state_is_deleted_when_what_was_sealed_is_withdrawn(stage: Stage, who: str) -> None:
    b = stage.nodes[1]
    first, sealing = await sealed(stage, LARGE)
    while (await stage.handovers.get("entry", "a%2Fb")).step is not SEALED:  # type: ignore[union-attr]
        await asyncio.sleep(0.01)
    assert len(await Blobs(stage.store, space="handed").all()) == 1
    await b.dies(stage.store)
    if who == "leader":
        await stage.record(WITHDRAWN)
    else:
        record = await stage.handovers.get("entry", "a%2Fb")
        assert record is not None
        # As its deadline does.
        stage.nodes[0].moves._seen[Keys().handover("entry", "a%2Fb")] = (record.number, -record.timeout)
        stage.nodes[0].moves._changed()
    with pytest.raises(HandoverWithdrawn):
        await sealing
    assert await Blobs(stage.store, space="handed").all() == ()
    assert await acts(stage, first)


async def test_a_large_state_that_cannot_be_stored_keeps_it(stage: Stage) -> None:
    a = stage.nodes[0]
    commit = a.gate.commit

    async def full(compares: Any, then: Any = (), *rest: Any, **named: Any) -> Any:
        if any(isinstance(each, Put) and b"/blobs/" in each.key for each in then):
            raise StoreCorrupt("the disk is full")
        return await commit(compares, then, *rest, **named)

    a.gate.commit = full  # type: ignore[method-assign]
    first, sealing = await sealed(stage, LARGE)
    with pytest.raises(HandoverWithdrawn, match="could not be stored: the disk is full"):
        await sealing
    assert await acts(stage, first)
    assert "the disk is full" in (await stage.record(WITHDRAWN)).trouble


async def test_a_large_state_that_was_stored_and_not_sealed_is_deleted(stage: Stage) -> None:
    a = stage.nodes[0]
    a.gate.hold(SEALED)
    first, sealing = await sealed(stage, LARGE)
    await a.gate.reached(SEALED)
    blobs = Blobs(stage.store, space="handed")
    assert len(await blobs.all()) == 1
    await stage.handovers.withdraw("entry", "a%2Fb", reason="not today")
    a.gate.open(SEALED)
    with pytest.raises(HandoverWithdrawn, match="not today"):
        await sealing
    assert await acts(stage, first)
    while await blobs.all():
        await asyncio.sleep(0.01)


async def test_a_seal_needs_the_blob(stage: Stage) -> None:
    a = stage.nodes[0]
    a.gate.hold(SEALED)
    first, sealing = await sealed(stage, LARGE)
    await a.gate.reached(SEALED)
    (blob,) = await Blobs(stage.store, space="handed").all()
    await Blobs(stage.store, space="handed").delete(blob.name)
    a.gate.open(SEALED)
    with pytest.raises(HandoverWithdrawn, match="was deleted before it was sealed"):
        await sealing
    assert await acts(stage, first)


async def test_a_large_state_that_is_lost_is_told_and_the_entry_is_owned(stage: Stage) -> None:
    b = stage.nodes[1]
    _, sealing = await sealed(stage, LARGE)
    record = await stage.record(TAKEN)
    await sealing
    await Blobs(stage.store, space="handed").delete(record.blob)
    second = await b.claims.get()
    said = f"what 'a' handed on, {len(LARGE)} bytes, is lost: blob {record.blob} is not there"
    with pytest.raises(StoreCorrupt, match=said):
        await b.moves.handed_state(second)
    await b.moves.finish(second)
    assert said in (await stage.record(DONE)).trouble
    assert await acts(stage, second)


async def test_a_node_that_will_not_take_it_says_why(stage: Stage) -> None:
    a, b, _ = stage.nodes
    b.refusal = "b is full"
    await stage.placer.place(ENTRY, "a")
    first = await a.claims.get()
    await stage.placer.offer(ENTRY, "b")
    assert (await stage.record(WITHDRAWN)).trouble == "b is full"
    assert await acts(stage, first)


async def test_an_owner_that_does_not_give_it_keeps_it(stage: Stage) -> None:
    a, _, _ = stage.nodes
    await stage.placer.place(ENTRY, "a")
    first = await a.claims.get()
    await stage.placer.offer(ENTRY, "b", timeout=0.3)
    record = await stage.record(WITHDRAWN)
    assert "did not give it within 0.3 s" in record.trouble
    assert await acts(stage, first)


async def test_a_new_owner_that_dies_after_the_seal_gives_it_back(stage: Stage) -> None:
    a, b, _ = stage.nodes
    await stage.placer.place(ENTRY, "a")
    first = await a.claims.get()
    await stage.placer.offer(ENTRY, "b")
    await a.wanted.get()
    sealing = asyncio.ensure_future(a.moves.seal(first, b"x"))
    while (await stage.handovers.get("entry", "a%2Fb")).step is not SEALED:  # type: ignore[union-attr]
        await asyncio.sleep(0.01)
    await b.dies(stage.store)
    with pytest.raises(HandoverWithdrawn, match="the new owner is gone"):
        await asyncio.gather(sealing, stage.record(WITHDRAWN))
    assert first.is_standing
    assert await acts(stage, first)


@pytest.mark.parametrize("step", [SEALED, TAKEN])
async def test_when_both_die_the_next_owner_is_given_the_state(stage: Stage, step: HandoverStep) -> None:
    a, b, c = stage.nodes
    await stage.placer.place(ENTRY, "a")
    first = await a.claims.get()
    await stage.placer.offer(ENTRY, "b")
    await a.wanted.get()
    sealing = asyncio.ensure_future(a.moves.seal(first, b"x"))
    while (await stage.handovers.get("entry", "a%2Fb")).step is not SEALED:  # type: ignore[union-attr]
        await asyncio.sleep(0.01)
    if step is TAKEN:
        await stage.record(TAKEN)
    await a.dies(stage.store)
    await b.dies(stage.store)
    placing = asyncio.ensure_future(stage.record(DONE, choose="c"))
    last = await c.claims.get()
    assert await c.moves.handed_state(last) == b"x"
    await c.moves.finish(last)
    assert (await placing).taken_by == "c"
    assert last.epoch > first.epoch
    sealing.cancel()


async def test_what_is_placed_anew_before_the_seal_is_not_handed_over(stage: Stage) -> None:
    a, _, c = stage.nodes
    await stage.placer.place(ENTRY, "a")
    first = await a.claims.get()
    await stage.placer.offer(ENTRY, "b")
    await a.wanted.get()
    assert await stage.placer.place(ENTRY, "c")
    last = await c.claims.get()
    assert "placed on 'c' meanwhile" in (await stage.record(WITHDRAWN)).trouble
    assert await c.moves.handed_state(last) == b""
    with pytest.raises((Fenced, HandoverWithdrawn, NotHeld)):
        await a.moves.seal(first, b"x")


async def test_who_leads_no_more_places_nothing(stage: Stage) -> None:
    guard = stage.placer._guard
    assert guard is not None
    await stage.store.delete(guard.key)
    with pytest.raises(Fenced, match="no longer leads"):
        await stage.placer.place(ENTRY, "a")


async def test_an_entry_is_placed_only_on_what_its_leader_goes_by(stage: Stage) -> None:
    a, b, _ = stage.nodes
    place = stage.placer.place
    assert not await place(ENTRY, "a", over=7)
    assert await place(ENTRY, "a", over=0)
    assert not await place(ENTRY, "a", over=0)
    first = await a.claims.get()
    assert not await place(ENTRY, "b", is_vacant=True)
    assert not await place(ENTRY, "b", is_handed=True)
    assert first.is_standing
    await stage.placer.offer(ENTRY, "b")
    await a.wanted.get()
    assert not await place(ENTRY, "b", over=first.epoch, is_handed=True)
    sealing = asyncio.ensure_future(a.moves.seal(first, b"so far"))
    while not await place(ENTRY, "b", over=first.epoch, is_handed=True):
        await asyncio.sleep(0.01)
    # What is done is not done again, by whoever has not heard of it.
    assert not await place(ENTRY, "b", over=first.epoch, is_handed=True)
    second = await b.claims.get()
    assert not await place(ENTRY, "b", over=second.epoch, is_handed=True)
    assert await b.moves.handed_state(second) == b"so far"
    await b.moves.finish(second)
    await sealing
    await b.dies(stage.store)
    assert await place(ENTRY, "a", over=second.epoch, is_vacant=True)


async def test_who_has_handed_it_over_hears_of_it_also_when_the_next_one_has_begun(stage: Stage) -> None:
    a, b, _ = stage.nodes
    await stage.placer.place(ENTRY, "a")
    first = await a.claims.get()
    await stage.placer.offer(ENTRY, "b")
    await a.wanted.get()
    heard, hear = a.moves._records, a.moves._hear
    a.moves._hear = lambda item: None  # type: ignore[method-assign]  # It hears of nothing for a while.
    sealing = asyncio.ensure_future(a.moves.seal(first, b"so far"))
    await stage.record(TAKEN, DONE)
    second = await b.claims.get()
    await b.moves.finish(second)
    last = await stage.placer.offer(ENTRY, "a")
    a.moves._hear = hear  # type: ignore[method-assign]
    (key,) = heard
    item = await stage.store.get(key)
    assert item is not None
    a.moves._hear(item)
    a.moves._changed()
    ended = await sealing
    assert (ended.number, ended.step, ended.next_epoch) == (1, DONE, second.epoch)
    assert last.number == 2
    assert first.as_lost() is None
    assert not first.is_standing


async def test_an_entry_that_was_deleted_is_not_placed_for_what_was_so_before(stage: Stage) -> None:
    await stage.store.put("definition", b"")
    defined = await stage.store.get("definition")
    assert defined is not None
    same = Compare.revision("definition", "=", defined.mod_revision)
    assert await stage.placer.place(ENTRY, "a", besides=[same])
    await stage.store.delete("definition")
    assert await stage.placer.remove(ENTRY)
    assert await stage.placer.place(ENTRY, "a", besides=[same]) == 0
    assert await stage.store.get(ENTRY) is None
