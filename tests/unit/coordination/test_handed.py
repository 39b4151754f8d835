"""States that are too large for a record: each way in which their blobs may fail, and what is left."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from hansa.coordination import Handovers, HandoverStep, Hold, Lock, Session
from hansa.coordination.handed import dropped
from hansa.coordination.handover import Handover, advanced
from hansa.errors import HandoverWithdrawn, LockLost, StoreCorrupt, StoreUnavailable
from hansa.keys import Keys
from hansa.limits import BLOB_LIFETIME_S, BLOB_PIECE_BYTES, HANDOVER_INLINE_BYTES_MAX
from hansa.store.blobs import Blobs
from hansa.store.values import Put
from tests.support.gated_store import GatedStore
from tests.support.virtual_store import TroubledStore, virtual

OFFERED, PREPARED, SEALED, TAKEN, DONE, WITHDRAWN = HandoverStep
STATE = b"cog" * BLOB_PIECE_BYTES


class Pieces:
    """Stands before the pieces of blobs that one store is asked to put: called for each of them."""

    def __init__(self, gate: GatedStore, before: Callable[[], Awaitable[None]]) -> None:
        self.asked_count = 0
        commit = gate.commit

        async def asked(compares: Any, then: Any = (), *rest: Any, **named: Any) -> Any:
            if any(isinstance(each, Put) and b"/blobs/" in each.key for each in then):
                self.asked_count += 1
                await before()
            return await commit(compares, then, *rest, **named)

        gate.commit = asked  # type: ignore[method-assign]


class Stage:
    """One who owns and some who wait, each with a gate before the store."""

    def __init__(self, stack: AsyncExitStack, store: TroubledStore) -> None:
        self._stack = stack
        self.store = store
        self.gates: dict[str, GatedStore] = {}
        self.sessions: dict[str, Session] = {}
        self.handovers = Handovers(store)
        self.hold: Hold

    async def begin(self) -> None:
        self.hold = await (await self.lock("cog")).acquire()

    async def lock(self, node: str) -> Lock:
        gate = self.gates[node] = GatedStore(self.store)
        session = Session(gate, 60.0, node=node)
        self.sessions[node] = await self._stack.enter_async_context(session)
        return Lock(session, "dock")

    async def waiter(self, node: str) -> asyncio.Task[Hold]:
        waiting = asyncio.ensure_future((await self.lock(node)).acquire())
        self._stack.callback(waiting.cancel)
        await asyncio.sleep(0.5)
        return waiting

    async def dies(self, node: str) -> None:
        await self.store.revoke(self.sessions[node].lease)

    async def record(self) -> Handover:
        found = await self.handovers.get("lock", "dock")
        assert found is not None
        return found

    async def blobs(self) -> list[str]:
        return [blob.name for blob in await Blobs(self.store, space="handed").all()]


def staged(test: Callable[[Stage], Awaitable[None]]) -> Callable[[], None]:
    """The test in virtual time, with somebody who owns."""

    async def live(store: TroubledStore) -> None:
        async with AsyncExitStack() as stack:
            stage = Stage(stack, store)
            await stage.begin()
            await test(stage)

    live.__name__ = live.__qualname__ = test.__name__
    return virtual(live)


@staged
async def test_a_large_state_is_a_blob_until_it_was_read(stage: Stage) -> None:
    waiting = await stage.waiter("hulk")
    stage.gates["hulk"].hold(DONE)
    await stage.hold.hand_over("hulk", state=STATE)
    record = await stage.record()
    assert (record.step, record.state, record.size) == (TAKEN, b"", len(STATE))
    assert await stage.blobs() == [record.blob]
    # It is in the same transaction that the record names it no more.
    stage.gates["hulk"].open(DONE)
    assert (await waiting).state == STATE
    record = await stage.record()
    assert (record.step, record.blob, record.size, record.trouble) == (DONE, "", len(STATE), "")
    assert await stage.blobs() == []


@staged
async def test_a_state_that_fits_into_the_record_is_no_blob(stage: Stage) -> None:
    waiting = await stage.waiter("hulk")
    pieces = Pieces(stage.gates["cog"], lambda: asyncio.sleep(0.0))
    await stage.hold.hand_over("hulk", state=bytes(HANDOVER_INLINE_BYTES_MAX))
    second = await waiting
    assert (len(second.state), pieces.asked_count) == (HANDOVER_INLINE_BYTES_MAX, 0)
    await stage.waiter("knarr")
    pieces = Pieces(stage.gates["hulk"], lambda: asyncio.sleep(0.0))
    await second.hand_over("knarr", state=bytes(HANDOVER_INLINE_BYTES_MAX + 1))
    assert pieces.asked_count == 1


# ---- it cannot be stored


@staged
async def test_a_put_that_is_too_slow_for_the_hand_over_ends_with_it(stage: Stage) -> None:
    await stage.waiter("hulk")
    acted: list[bool] = []

    async def slowly() -> None:
        acted.append(stage.hold.is_held)
        await asyncio.sleep(2.0)

    pieces = Pieces(stage.gates["cog"], slowly)
    began_s = stage.store.now
    with pytest.raises(HandoverWithdrawn, match="within 3 s") as withdrawn:
        await stage.hold.hand_over("hulk", state=STATE, timeout=3.0)
    assert withdrawn.value.step == "prepared"
    assert stage.store.now - began_s == pytest.approx(3.0, abs=0.1)
    # Nobody acts while the state is stored, and the old owner does again.
    assert (acted, stage.hold.is_held) == ([False, False], True)
    await asyncio.sleep(10.0)
    assert pieces.asked_count == 2
    assert (await stage.record()).step is WITHDRAWN


@staged
async def test_a_store_that_takes_no_piece_is_told(stage: Stage) -> None:
    await stage.waiter("hulk")

    async def refuse() -> None:
        raise StoreUnavailable("the disk is full")

    Pieces(stage.gates["cog"], refuse)
    said = rf"the {len(STATE)} bytes that it hands on could not be stored: .* the disk is full"
    with pytest.raises(HandoverWithdrawn, match=said):
        await stage.hold.hand_over("hulk", state=STATE, timeout=3.0)
    assert stage.hold.is_held
    assert "the disk is full" in (await stage.record()).trouble
    assert await stage.blobs() == []


@staged
async def test_a_successor_that_dies_while_the_state_is_stored_stops_that(stage: Stage) -> None:
    await stage.waiter("hulk")
    asked = asyncio.Event()

    async def hang() -> None:
        asked.set()
        await asyncio.Event().wait()

    Pieces(stage.gates["cog"], hang)
    giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=STATE))
    await asked.wait()
    began_s = stage.store.now
    await stage.dies("hulk")
    with pytest.raises(HandoverWithdrawn, match="the new owner is gone"):
        await giving
    assert stage.store.now - began_s < 1.0
    assert stage.hold.is_held
    await asyncio.sleep(0.0)
    assert not [task for task in asyncio.all_tasks() if "puts what is handed on" in task.get_name()]


@staged
async def test_cancelling_while_the_state_is_stored_lets_it_come_to_its_end(stage: Stage) -> None:
    waiting = await stage.waiter("hulk")
    asked = asyncio.Event()

    async def slowly() -> None:
        asked.set()
        await asyncio.sleep(0.5)

    Pieces(stage.gates["cog"], slowly)
    giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=STATE))
    await asked.wait()
    giving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await giving
    assert (await waiting).state == STATE


# ---- it was stored, and is not sealed


@staged
async def test_what_was_stored_and_not_sealed_is_deleted(stage: Stage) -> None:
    await stage.waiter("hulk")
    stage.gates["cog"].hold(SEALED)
    giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=STATE))
    await stage.gates["cog"].reached(SEALED)
    assert len(await stage.blobs()) == 1
    await stage.dies("hulk")
    stage.gates["cog"].open(SEALED)
    with pytest.raises(HandoverWithdrawn, match="the new owner is gone"):
        await giving
    await asyncio.sleep(1.0)
    assert await stage.blobs() == []


@staged
async def test_what_was_sealed_and_is_withdrawn_is_deleted_with_it(stage: Stage) -> None:
    await stage.waiter("hulk")
    stage.gates["hulk"].hold(TAKEN)
    giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=STATE, timeout=5.0))
    await stage.gates["hulk"].reached(TAKEN)
    assert await stage.blobs() == [(await stage.record()).blob]
    watch = stage.store.watch(Keys().prefix)
    with pytest.raises(HandoverWithdrawn, match="did not take it"):
        await giving
    together = [batch async for batch in _until(watch, WITHDRAWN)][-1]
    assert any(b"/blobs/" in event.item.key for event in together.events)
    assert await stage.blobs() == []
    assert stage.hold.is_held


async def _until(watch: Any, step: HandoverStep) -> Any:
    async for batch in watch:
        yield batch
        for event in batch.events:
            if b"/handovers/" in event.item.key and Handover.decode(event.item.value).step is step:
                watch.close()
                return


@staged
async def test_a_seal_needs_the_blob(stage: Stage) -> None:
    await stage.waiter("hulk")
    stage.gates["cog"].hold(SEALED)
    giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=STATE))
    await stage.gates["cog"].reached(SEALED)
    (blob,) = await stage.blobs()
    await Blobs(stage.store, space="handed").delete(blob)
    stage.gates["cog"].open(SEALED)
    with pytest.raises(HandoverWithdrawn, match="was deleted before it was sealed"):
        await giving
    assert stage.hold.is_held
    assert stage.gates["cog"].asked.count(SEALED) == 1


@staged
async def test_what_was_sealed_stays_although_its_owner_is_lost_and_never_heard_of_it(stage: Stage) -> None:
    waiting = await stage.waiter("hulk")
    stage.gates["hulk"].hold(TAKEN)
    stage.gates["cog"].lost_answers.add(SEALED)
    giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=STATE))
    await stage.gates["cog"].reached(SEALED)
    await stage.store.delete(stage.hold._claim.key)
    stage.hold._claim._lose("for the test")
    with pytest.raises(LockLost):
        await giving
    await asyncio.sleep(5.0)
    stage.gates["hulk"].open(TAKEN)
    assert (await waiting).state == STATE


@pytest.mark.parametrize("step", [SEALED, TAKEN, DONE])
@pytest.mark.parametrize("what", ["lost_answers", "lost_requests"])
def test_each_step_of_a_large_state_may_be_lost_on_its_way(step: HandoverStep, what: str) -> None:
    async def live(stage: Stage) -> None:
        waiting = await stage.waiter("hulk")
        getattr(stage.gates["cog" if step is SEALED else "hulk"], what).add(step)
        await stage.hold.hand_over("hulk", state=STATE)
        assert (await waiting).state == STATE
        assert (await stage.record()).step is DONE
        assert await stage.blobs() == []

    staged(live)()


# ---- it was sealed, and is gone


@pytest.mark.parametrize("way", ["deleted", "damaged"])
def test_a_state_that_is_lost_is_told_and_what_was_handed_over_is_owned(way: str) -> None:
    async def live(stage: Stage) -> None:
        waiting, next_waiting = await stage.waiter("hulk"), await stage.waiter("knarr")
        stage.gates["hulk"].hold(TAKEN)
        news = stage.handovers.follow()
        looking = asyncio.ensure_future(stage.handovers.look_after())
        giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=STATE))
        await stage.gates["hulk"].reached(TAKEN)
        blob = (await stage.record()).blob
        if way == "deleted":
            await Blobs(stage.store, space="handed").delete(blob)
        else:
            await stage.store.put(Keys().blob("handed", blob) + b"0001", b"hulk")
        stage.gates["hulk"].open(TAKEN)
        await giving
        second = await waiting
        assert second.is_held
        said = f"lock 'dock': what 'cog' handed on, {len(STATE)} bytes, is lost: blob {blob} is"
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match=said):
                assert second.state
        with pytest.raises(StoreCorrupt, match=said):
            await second._claim.handed_state()
        record = await stage.record()
        assert record.step is DONE
        assert record.trouble.startswith(said)
        assert await stage.blobs() == []
        while (told := await anext(news)).handover.step is not DONE:
            pass
        assert told.handover.trouble == record.trouble
        await news.aclose()
        await asyncio.sleep(1.0)
        stats = stage.handovers.stats
        assert (stats.done_count, stats.lost_states_count) == (1, 1)
        looking.cancel()
        # Only that one: who comes next is handed nothing, and misses nothing.
        await second.release()
        assert (await next_waiting).state == b""

    staged(live)()


@staged
async def test_reading_waits_for_a_store_that_is_away(stage: Stage) -> None:
    waiting = await stage.waiter("hulk")
    gate, tries = stage.gates["hulk"], 3

    async def scan(start: Any, *rest: Any, **named: Any) -> Any:
        nonlocal tries
        if b"/blobs/" in bytes(start) and tries:
            tries -= 1
            raise StoreUnavailable("nobody is there")
        return await stage.store.scan(start, *rest, **named)

    gate.scan = scan  # type: ignore[attr-defined]
    await stage.hold.hand_over("hulk", state=STATE)
    assert (await waiting).state == STATE
    assert tries == 0
    assert (await stage.record()).trouble == ""


@staged
async def test_a_blob_that_its_heir_reads_is_there_until_then(stage: Stage) -> None:
    await stage.waiter("hulk")
    stage.gates["hulk"].hold(DONE)
    await stage.hold.hand_over("hulk", state=STATE)
    await stage.gates["hulk"].reached(DONE)
    waiting = await stage.waiter("knarr")
    await stage.dies("hulk")
    assert (await waiting).state == STATE
    assert await stage.blobs() == []


# ---- what nobody deletes


@staged
async def test_what_nobody_sealed_is_swept_and_what_is_sealed_is_not(stage: Stage) -> None:
    await stage.waiter("hulk")
    stage.gates["hulk"].hold(TAKEN)
    stage.gates["cog"].hold(WITHDRAWN)
    giving = asyncio.ensure_future(stage.hold.hand_over("hulk", state=STATE))
    await stage.gates["hulk"].reached(TAKEN)
    left = await Blobs(stage.store, space="handed").put(STATE)
    # All who took part are gone, and nobody claims it for days.
    await stage.dies("cog")
    await stage.dies("hulk")
    giving.cancel()
    record = await stage.record()
    assert sorted(await stage.blobs()) == sorted([left, record.blob])
    for _ in range(3):
        await stage.handovers.sweep()
        await asyncio.sleep(BLOB_LIFETIME_S + 1.0)
    assert await stage.blobs() == [record.blob]
    assert (await (await stage.waiter("knarr"))).state == STATE


def test_only_what_is_named_no_more_is_dropped() -> None:
    async def live(store: TroubledStore) -> None:
        blobs = Blobs(store, space="handed")
        name = await blobs.put(STATE)
        sealed = Handover(
            kind="lock",
            name="dock",
            number=1,
            step=SEALED,
            source="a",
            target="b",
            epoch=1,
            owner_key="k",
            timeout=1.0,
            blob=name,
        )
        ended = advanced(sealed, WITHDRAWN, at=1.0)
        assert ended.blob == ""
        assert dropped(blobs, sealed, ended) == dropped(blobs, sealed, None) == [blobs.deletion(name)]
        assert dropped(blobs, None, sealed) == dropped(blobs, ended, sealed) == []
        assert dropped(blobs, sealed, advanced(sealed, TAKEN, at=1.0)) == []
        # A name that hansa did not write deletes nothing, and stops nothing.
        assert dropped(blobs, advanced(sealed, TAKEN, at=1.0, blob="../.."), None) == []

    virtual(live)()
