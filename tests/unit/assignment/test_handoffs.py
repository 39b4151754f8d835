"""Handoffs in a store: who may save, what is found, and how much room it takes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hansa.assignment.handoff import Handoff, HandoffHead, Handoffs, HandoffSave, SavedHandoff, checked
from hansa.coordination.placed import PlacedClaim, Placement
from hansa.coordination.session import Session
from hansa.errors import BadArgument, BadRecord, Fenced, LimitExceeded, StoreCorrupt, TimedOut
from hansa.keys import Keys
from hansa.limits import BLOB_BYTES_MAX, HANDOFF_INLINE_BYTES_MAX, HANDOFF_SAVE_S, STORE_TXN_COUNT_MAX
from hansa.store.values import Compare, Get, KeyValue, Put
from tests.support.virtual_store import TroubledStore, virtual

KEYS = Keys()
GROUP = "g"


def noise(size: int) -> bytes:
    """Bytes that cannot be compressed."""
    state, found = 1, bytearray()
    while len(found) < size:
        state = state * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407 & (1 << 64) - 1
        found += state.to_bytes(8, "little")
    return bytes(found[:size])


class Blind(PlacedClaim):
    """A claim whose owner never looks whether it owns: what is refused is refused by the store."""

    def check(self) -> None: ...


class Owners:
    """Nodes that own partition `p`, one after the other."""

    def __init__(self, store: TroubledStore) -> None:
        self._store = store
        self.handoffs = Handoffs(store, GROUP)

    @asynccontextmanager
    async def session(self, node: str) -> AsyncIterator[Session]:
        async with Session(self._store, 10.0, node=node) as session:
            await self._store.put(KEYS.node(node), b"", lease=session.lease)
            yield session

    async def place(self, session: Session, kind: type[PlacedClaim] = PlacedClaim) -> PlacedClaim:
        """Have the session own the partition, whoever had it."""
        entry = KEYS.assignment(GROUP, "p")
        revision = (await self._store.commit([], [Get(entry)])).revision
        placement = Placement(node=session.node, lease=session.lease, epoch=revision + 1)
        await self._store.put(entry, placement.encode())
        item = await self._store.get(entry)
        assert item is not None
        return kind(session, item, placement)

    async def blobs_count(self) -> int:
        return len(await self._store.keys("/hansa/default/blobs/handoffs/"))


@virtual
async def test_what_was_saved_last_is_taken_by_the_next_owner(store: TroubledStore) -> None:
    owners = Owners(store)
    async with owners.session("a") as a, owners.session("b") as b:
        claim = await owners.place(a)
        assert await owners.handoffs.take(claim, "p") == (None, None)
        assert await owners.handoffs.load("p") is None
        whole = Handoff(
            checkpoint="c-7", state=b"\x00\nstate", last_offset=41, processed_at=5.5, resources=("x", "y")
        )
        saved = await owners.handoffs.save(claim, "p", whole, before=None, generation=3)
        again = await owners.handoffs.save(claim, "p", whole, before=saved)
        assert (saved.number, again.number) == (1, 2)
        after = await owners.place(b)
        found, _ = await owners.handoffs.take(after, "p")
        assert found == again
        assert found is not None
        assert (found.handoff, found.node, found.epoch) == (whole, "a", claim.epoch)
        assert found.handoff.next_offset == 42
        assert found == await owners.handoffs.load("p")
        first = await owners.handoffs.save(after, "p", whole, before=found)
        assert (first.node, first.number) == ("b", 1)


@pytest.mark.spec("ASG-05")
@pytest.mark.parametrize("how", ["placed", "gone"])
def test_a_zombies_late_save_is_refused_by_the_store_with_its_operations(how: str) -> None:
    @virtual
    async def test(store: TroubledStore) -> None:
        owners = Owners(store)
        async with owners.session("a") as a, owners.session("b") as b:
            claim = await owners.place(a, Blind)
            saved = await owners.handoffs.save(claim, "p", Handoff(last_offset=1), before=None)
            if how == "placed":
                await owners.place(b)
            else:
                await store.delete(KEYS.node("a"))
            # Who is still placed there, and has no record, may be about to write it: it would be told soon.
            with pytest.raises(Fenced if how == "placed" else TimedOut):
                await owners.handoffs.save(
                    claim, "p", Handoff(), before=saved, operations=[Put("row", b"")], timeout=3.0
                )
            assert await owners.handoffs.load("p") == saved
            assert await store.get("row") is None

    test()


@pytest.mark.spec("ASG-05")
@virtual
async def test_a_zombie_is_refused_also_where_only_the_handoff_tells(store: TroubledStore) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        old = await owners.place(a, Blind)
        saved = await owners.handoffs.save(old, "p", Handoff(last_offset=1), before=None)
        new = await owners.place(a)
        await owners.handoffs.save(new, "p", Handoff(last_offset=2), before=saved)
        # As if the entry were its own again: a store that went back.
        old.hear(await _entry(store), old.placement)
        with pytest.raises(Fenced, match="comes after epoch"):
            await owners.handoffs.save(old, "p", Handoff(last_offset=9), before=saved)


@pytest.mark.spec("ASG-05")
@virtual
async def test_an_entry_that_nobody_can_read_is_somebody_else_s(store: TroubledStore) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        claim = await owners.place(a, Blind)
        await store.put(KEYS.assignment(GROUP, "p"), b"nonsense")
        with pytest.raises(Fenced, match="belongs to what nobody can read"):
            await owners.handoffs.save(claim, "p", Handoff(last_offset=1), before=None)
        with pytest.raises(Fenced):
            await owners.handoffs.take(claim, "p")


async def _entry(store: TroubledStore) -> KeyValue:
    item = await store.get(KEYS.assignment(GROUP, "p"))
    assert item is not None
    return item


@pytest.mark.spec("ASG-06")
@virtual
async def test_a_save_whose_answer_is_lost_is_sent_again_and_done_once(store: TroubledStore) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        claim = await owners.place(a)
        saved = None
        for lost_answers, lost_requests in ((0, 3), (1, 0), (1, 2), (2, 1)):
            store.lost_answers_count, store.lost_requests_count = lost_answers, lost_requests
            before_count = owners.handoffs.retries_count
            saved = await owners.handoffs.save(
                claim, "p", Handoff(last_offset=lost_requests), before=saved, operations=[Put("row", b"")]
            )
            assert owners.handoffs.retries_count == before_count + lost_answers + lost_requests
            found = await owners.handoffs.load("p")
            assert found is not None
            assert (found, found.revision) == (saved, saved.revision)
        row = await store.get("row")
        assert row is not None
        assert row.version == 4


@pytest.mark.spec("ASG-06")
@virtual
async def test_a_store_that_never_answers_is_given_up_in_time(store: TroubledStore) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        claim = await owners.place(a)
        store.lost_requests_count = 1_000
        began_s = store.now
        with pytest.raises(TimedOut):
            await owners.handoffs.save(claim, "p", Handoff(), before=None, timeout=7.0)
        assert 3.5 < store.now - began_s <= 7.0
        assert owners.handoffs.retries_count >= 5
    assert HANDOFF_SAVE_S > 7.0


@virtual
async def test_a_save_that_was_given_up_and_came_all_the_same_is_not_taken_for_the_next_one(
    store: TroubledStore,
) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        claim = await owners.place(a)
        store.lost_answers_count = 1_000
        with pytest.raises(TimedOut):
            await owners.handoffs.save(claim, "p", Handoff(last_offset=1), before=None, timeout=2.0)
        store.lost_answers_count = 0
        saved = await owners.handoffs.save(claim, "p", Handoff(last_offset=2), before=None)
        assert await owners.handoffs.load("p") == saved
        assert saved.handoff.last_offset == 2


@pytest.mark.spec("ASG-06", "ASG-14")
@virtual
async def test_a_large_handoff_stands_aside_and_goes_with_the_one_that_replaces_it(
    store: TroubledStore,
) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        claim = await owners.place(a)
        large = Handoff(state=noise(HANDOFF_INLINE_BYTES_MAX + 1), last_offset=5)
        saved = await owners.handoffs.save(claim, "p", large, before=None)
        assert saved.blob
        assert saved.size > HANDOFF_INLINE_BYTES_MAX
        record = await store.get(KEYS.handoff(GROUP, "p"))
        assert record is not None
        assert len(record.value) < 1_000
        found = await owners.handoffs.load("p")
        assert found == saved
        other = await owners.handoffs.save(claim, "p", Handoff(state=noise(50_000)[7:]), before=saved)
        assert other.blob != saved.blob
        blobs_count = await owners.blobs_count()
        small = await owners.handoffs.save(claim, "p", Handoff(state=b"small"), before=other)
        assert small.blob == ""
        assert await owners.blobs_count() < blobs_count
        assert await owners.blobs_count() == 0


@pytest.mark.spec("ASG-14")
@virtual
async def test_many_resources_and_repeating_states_are_compressed(store: TroubledStore) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        claim = await owners.place(a)
        ids = tuple(f"press-{number:05}" for number in range(2_000))
        many = Handoff(state=b"again " * 4_000, resources=ids)
        saved = await owners.handoffs.save(claim, "p", many, before=None)
        assert saved.blob == ""
        assert saved.size < HANDOFF_INLINE_BYTES_MAX
        found = await owners.handoffs.load("p")
        assert found is not None
        assert found.handoff == many
        # What does not get smaller stays as it is.
        odd = Handoff(state=noise(4_000))
        assert (await owners.handoffs.save(claim, "p", odd, before=saved)).size >= 4_000
        found = await owners.handoffs.load("p")
        assert found is not None
        assert found.handoff == odd


@virtual
async def test_what_is_damaged_or_lost_is_told_and_the_owner_may_write_over_it(store: TroubledStore) -> None:
    owners = Owners(store)
    key = KEYS.handoff(GROUP, "p")
    async with owners.session("a") as a:
        claim = await owners.place(a)

        async def save(state: bytes, before: SavedHandoff | None) -> SavedHandoff:
            return await owners.handoffs.save(claim, "p", Handoff(state=state), before=before)

        saved = await save(b"again " * 1_000, None)
        record = await store.get(key)
        assert record is not None
        for value in (record.value[:-5], record.value + b"more", record.value[:-5] + b"other"):
            await store.put(key, value)
            with pytest.raises(StoreCorrupt, match="saved by 'a' in epoch"):
                await owners.handoffs.load("p")
            with pytest.raises(StoreCorrupt):
                await owners.handoffs.take(claim, "p")
        for value in (b"", b"nonsense", b"{}\n", record.value.replace(b'"epoch":', b'"epoch":"x'), b"[]"):
            await store.put(key, value)
            with pytest.raises(BadRecord):
                await owners.handoffs.load("p")
            # Whoever begins with a way out knows of no handoff before.
            saved = await save(b"small", None)
            assert await owners.handoffs.load("p") == saved
        saved = await save(noise(20_000), saved)
        for blob in await store.keys("/hansa/default/blobs/"):
            await store.delete(blob)
        with pytest.raises(StoreCorrupt, match="is lost"):
            await owners.handoffs.load("p")
        assert (await save(b"small", None)).blob == ""


@pytest.mark.spec("ASG-04")
@virtual
async def test_a_save_without_an_answer_is_carried_out_later_once_and_never_comes_after_the_next(
    store: TroubledStore,
) -> None:
    owners = Owners(store)
    async with owners.session("a") as a, owners.session("b") as b:
        claim, key = await owners.place(a), owners.handoffs.key("p")

        async def carry_out(save: HandoffSave) -> SavedHandoff:
            return await owners.handoffs.carry_out(claim, "p", save, timeout=0.001)

        async def version() -> int:
            row = await store.get("row")
            return 0 if row is None else row.version

        saved: SavedHandoff | None = None
        for number, (lost_answers, lost_requests) in enumerate([(1, 0), (0, 1)], 1):
            row = Put("row", b"%d" % number)
            save = owners.handoffs.prepared(
                claim, Handoff(last_offset=number), before=saved, operations=[row]
            )
            assert not save.is_sent
            store.lost_answers_count, store.lost_requests_count = lost_answers, lost_requests
            with pytest.raises(TimedOut):
                await carry_out(save)
            assert save.is_sent
            # Any time later.
            before_revision = save.known_revision
            saved = await carry_out(save)
            assert (await owners.handoffs.load("p"), saved.number) == (saved, number)
            assert await version() == number
            # As what was under way all the time.
            late = [*claim.guards, Compare.revision(key, "=", before_revision)]
            assert not (await store.commit(late, [Put(key, b"late")])).is_success
        # Of another save of this owner, which was carried out after all, it is not taken for the answer.
        save = owners.handoffs.prepared(
            claim, Handoff(last_offset=9), before=saved, operations=[Put("row", b"9")]
        )
        await owners.handoffs.save(claim, "p", Handoff(last_offset=8), before=saved)
        saved = await carry_out(save)
        assert (saved.number, saved.handoff.last_offset, await version()) == (4, 9, 3)
        await owners.place(b)
        late_save = owners.handoffs.prepared(claim, Handoff(), before=saved)
        with pytest.raises(Fenced):
            await carry_out(late_save)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_save_whose_blob_was_swept_meanwhile_puts_it_once_more(is_first: bool) -> None:
    @virtual
    async def test(store: TroubledStore) -> None:
        owners = Owners(store)
        async with owners.session("a") as a:
            claim = await owners.place(a)
            handoffs = owners.handoffs
            before = (
                None if is_first else await handoffs.save(claim, "p", Handoff(last_offset=1), before=None)
            )
            handoff = Handoff(state=noise(20_000), last_offset=2)
            put, puts_count = handoffs._blobs.put, 0

            async def put_and_sweep(data: bytes, **options: Any) -> str:
                nonlocal puts_count
                puts_count += 1
                name = await put(data, **options)
                if puts_count == 1:
                    await handoffs._blobs.delete(name)
                return name

            handoffs._blobs.put = put_and_sweep  # type: ignore[method-assign]
            saved = await handoffs.save(claim, "p", handoff, before=before, timeout=3.0)
            assert (await handoffs.load("p"), saved.handoff, puts_count) == (saved, handoff, 2)

    test()


@virtual
async def test_a_request_that_the_store_does_not_take_is_not_in_doubt(store: TroubledStore) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        claim = await owners.place(a)
        rows = [Put(f"rows/{number}", b"") for number in range(STORE_TXN_COUNT_MAX + 1)]
        save = owners.handoffs.prepared(claim, Handoff(), before=None, operations=rows)
        with pytest.raises((LimitExceeded, BadArgument)):
            await owners.handoffs.carry_out(claim, "p", save, timeout=3.0)
        assert not save.is_sent


def test_what_cannot_be_saved_is_refused_when_it_is_noted() -> None:
    for bad in (
        Handoff(state="text"),  # type: ignore[arg-type]
        Handoff(last_offset=-2),
        Handoff(last_offset=1.5),  # type: ignore[arg-type]
        Handoff(state=bytes(BLOB_BYTES_MAX)),
    ):
        with pytest.raises(BadArgument):
            checked(bad)
    assert checked(Handoff(state=b"x")) == Handoff(state=b"x")


@pytest.mark.spec("ASG-06")
@virtual
async def test_a_sweep_deletes_what_nobody_has_saved_for_long_but_for_partitions_that_are_defined(
    store: TroubledStore,
) -> None:
    owners = Owners(store)
    handoffs = owners.handoffs
    async with owners.session("a") as a:
        claim = await owners.place(a)
        for name in ("p", "kept", "old"):
            await handoffs.save(claim, name, Handoff(state=noise(20_000)), before=None)
        assert await handoffs.sweep(lifetime=100.0, kept=["kept"]) == 0
        await asyncio.sleep(60.0)
        saved = await handoffs.load("p")
        await handoffs.save(claim, "p", Handoff(), before=saved)
        await asyncio.sleep(60.0)
        assert await handoffs.sweep(lifetime=100.0, kept=["kept"]) == 1
        assert await handoffs.load("old") is None
        for name in ("p", "kept"):
            assert await handoffs.load(name) is not None
        # And its blob after a day.
        before_count = await owners.blobs_count()
        for _ in range(3):
            await asyncio.sleep(86_500.0)
            await handoffs.sweep(lifetime=1e7, kept=["kept"])
        assert 0 < await owners.blobs_count() < before_count


@virtual
async def test_a_head_says_what_stands_there_without_reading_it(store: TroubledStore) -> None:
    owners = Owners(store)
    async with owners.session("a") as a:
        claim = await owners.place(a)
        handoff = Handoff(state=noise(20_000), last_offset=7, processed_at=2.5)
        saved = await owners.handoffs.save(claim, "p", handoff, before=None, generation=4)
        item = await store.get(owners.handoffs.key("p"))
        assert item is not None
        head = HandoffHead.of(item)
        assert (head.node, head.epoch, head.number, head.generation) == ("a", claim.epoch, 1, 4)
        assert (head.last_offset, head.processed_at, head.size) == (7, 2.5, saved.size)
        assert (head.blob, head.revision) == (saved.blob, saved.revision)
