"""Blobs: damage, lost answers, deadlines, sweeps. That engines agree is in tests/conformance."""

import asyncio
import json

import pytest

from hansa.chance import Chance
from hansa.errors import BadArgument, BadRecord, NotThere, StoreCorrupt, StoreWentBack, TimedOut
from hansa.keys import Keys
from hansa.limits import BLOB_PIECE_BYTES, BLOBS_SWEPT_COUNT_MAX, STORE_TIMEOUT_S
from hansa.store.blobs import Blobs
from hansa.store.memory import MemoryStore
from hansa.transport import Environment
from tests.support.virtual_store import TroubledStore, virtual

DATA = b"cog" * BLOB_PIECE_BYTES
DAY_S = 86_400.0


def blobs_in(store: TroubledStore) -> Blobs:
    """In the store's time."""
    return Blobs(store, environment=Environment(clock=store.clock, chance=Chance.seeded(store.seed)))


async def piece_keys(store: MemoryStore) -> list[bytes]:
    return [item.key for item in (await store.scan(Keys().blobs("default"))).items]


# ---- damage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_a_piece_that_was_changed_is_found(index: int) -> None:
    async with MemoryStore() as store:
        name = await Blobs(store).put(DATA)
        key = (await piece_keys(store))[index]
        await store.put(key, b"h" + DATA[1:BLOB_PIECE_BYTES])
        with pytest.raises(StoreCorrupt, match=f"blob {name} is damaged: {len(DATA)} bytes of {len(DATA)}"):
            await Blobs(store).get(name)


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_a_piece_that_is_missing_is_found(index: int) -> None:
    async with MemoryStore() as store:
        name = await Blobs(store).put(DATA)
        await store.delete((await piece_keys(store))[index])
        with pytest.raises(StoreCorrupt, match=f"{2 * BLOB_PIECE_BYTES} bytes of {len(DATA)}"):
            await Blobs(store).get(name)


async def test_no_more_is_read_than_a_blob_can_have() -> None:
    async with MemoryStore() as store:
        name = await Blobs(store).put(b"cog")
        for number in range(100):
            await store.put(Keys().blob("default", name) + b"x%04d" % number, bytes(1_000))
        with pytest.raises(StoreCorrupt, match=r"blob .* is damaged: 3003 bytes of 3 "):
            await Blobs(store).get(name)
        assert [blob.name for blob in await Blobs(store).all()] == [name]


async def test_keys_that_are_no_blobs_are_neither_listed_nor_swept() -> None:
    async with MemoryStore() as store:
        blobs = Blobs(store)
        name = await blobs.put(b"cog")
        for foreign in (
            "hulk",
            "hulk/0000",
            "f" * 64 + "-1-2/0000",
            name.replace("-3-", "-99999999-") + "/0000",
        ):
            await store.put(Keys().blobs("default") + foreign.encode(), b"")
        await store.put(Keys().blob("default", name.replace("-3-", "-2-")) + b"other", b"")
        await store.put(Keys().blobs("default") + b"\xff/0000", b"")
        assert [blob.name for blob in await blobs.all()] == [name]
        await blobs.sweep(older_than=DAY_S)
        await end_lease(store)
        assert await blobs.sweep(older_than=DAY_S) == 1
        assert len(await piece_keys(store)) == 6


@pytest.mark.parametrize("name", ["", "hulk", "f" * 64 + "-1-" + "0" * 15, "f" * 64 + "-01-" + "0" * 16, 7])
async def test_what_is_no_name_is_refused(name: str) -> None:
    async with MemoryStore() as store:
        blobs = Blobs(store)
        for call in (blobs.get, blobs.delete):
            with pytest.raises(BadArgument, match="give a name that put"):
                await call(name)
        for make in (blobs.guard, blobs.deletion):
            with pytest.raises(BadArgument, match="give a name that put"):
                make(name)


async def test_a_name_with_a_size_that_no_blob_has_is_refused() -> None:
    async with MemoryStore() as store:
        with pytest.raises(BadArgument, match="give a name that put"):
            await Blobs(store).get("f" * 64 + "-9999999999-" + "0" * 16)


async def test_only_bytes_are_put() -> None:
    async with MemoryStore() as store:
        with pytest.raises(BadArgument, match="a blob is bytes, not bytearray"):
            await Blobs(store).put(bytearray(b"cog"))  # type: ignore[arg-type]


# ---- lost answers, deadlines -----------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["lost_answers_count", "lost_requests_count"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_piece_whose_answer_is_lost_is_written_again(lost: str, at: int) -> None:
    @virtual
    async def test(store: TroubledStore) -> None:
        original, commits_count = store.commit, 0

        async def commit(*what: object, **options: object) -> object:
            nonlocal commits_count
            commits_count += 1
            if commits_count == at + 1:
                setattr(store, lost, 2)
            return await original(*what, **options)  # type: ignore[arg-type]

        store.commit = commit  # type: ignore[method-assign,assignment]
        blobs = blobs_in(store)
        name = await blobs.put(DATA)
        assert commits_count == 3 + 2
        assert await blobs.get(name) == DATA

    test()


@virtual
async def test_a_put_ends_by_its_deadline_and_says_that_the_blob_is_not_whole(store: TroubledStore) -> None:
    blobs, began_s = blobs_in(store), store.now
    store.lost_answers_count = 10**9
    with pytest.raises(TimedOut, match="is not whole, and nobody knows it: the answer was lost"):
        await blobs.put(DATA, timeout=7.0)
    assert 5.0 < store.now - began_s <= 7.0
    (left,) = await blobs.all()
    assert not left.is_whole


@virtual
async def test_a_store_that_is_silent_for_a_while_delays_a_put_that_has_time(store: TroubledStore) -> None:
    blobs, began_s = blobs_in(store), store.now
    store.pause()
    asyncio.get_running_loop().call_later(2 * STORE_TIMEOUT_S, store.resume)
    name = await blobs.put(DATA, timeout=None)
    assert store.now - began_s >= 2 * STORE_TIMEOUT_S
    assert await blobs.get(name) == DATA


@virtual
async def test_a_store_that_went_back_is_not_asked_again(store: TroubledStore) -> None:
    async def commit(*_: object, **__: object) -> object:
        store.counts["commit"] += 1
        raise StoreWentBack("restored")

    store.commit = commit  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreWentBack):
        await blobs_in(store).put(DATA)
    assert store.counts["commit"] == 1


@virtual
async def test_every_call_ends_by_its_deadline(store: TroubledStore) -> None:
    blobs = blobs_in(store)
    name = await blobs.put(DATA)
    store.pause()
    for call in (
        blobs.put(DATA, timeout=3.0),
        blobs.get(name, timeout=3.0),
        blobs.delete(name, timeout=3.0),
        blobs.all(timeout=3.0),
        blobs.sweep(timeout=3.0),
    ):
        began_s = store.now
        with pytest.raises(TimedOut):
            await call
        assert store.now - began_s <= 3.0


# ---- sweeping --------------------------------------------------------------------------------------------


async def end_lease(store: MemoryStore) -> None:
    """The store says that the time of the sweep that began it is over."""
    note = await store.get(Keys().blob_sweep("default"))
    assert note is not None
    await store.revoke(json.loads(note.value)["lease"])


@virtual
async def test_a_blob_lives_once_to_twice_its_lifetime_by_the_stores_own_time(store: TroubledStore) -> None:
    blobs, ages_s = blobs_in(store), []
    for _ in range(40):
        name, born_s = await blobs.put(b"cog"), store.now
        while await blobs.all():
            await asyncio.sleep(DAY_S / 7)
            await blobs.sweep(older_than=DAY_S)
        ages_s.append(store.now - born_s)
        with pytest.raises(NotThere):
            await blobs.get(name)
    assert min(ages_s) >= DAY_S
    assert max(ages_s) <= 2 * DAY_S + 2 * DAY_S / 7


@virtual
async def test_another_process_goes_on_where_the_one_that_swept_has_ended(store: TroubledStore) -> None:
    await blobs_in(store).put(b"cog")
    for swept_count in (0, 0, 1):
        assert await blobs_in(store).sweep(older_than=DAY_S) == swept_count
        await asyncio.sleep(0.6 * DAY_S)


@virtual
async def test_a_sweep_with_a_longer_time_begins_anew_and_a_shorter_one_waits_for_it(
    store: TroubledStore,
) -> None:
    blobs = blobs_in(store)
    await blobs.put(b"cog")
    assert await blobs.sweep(older_than=60.0) == 0
    await asyncio.sleep(61.0)
    assert await blobs.sweep(older_than=DAY_S) == 0
    await asyncio.sleep(DAY_S - 1.0)
    assert await blobs.sweep(older_than=60.0) == 0
    await asyncio.sleep(2.0)
    assert await blobs.sweep(older_than=60.0) == 1


async def test_a_sweep_deletes_a_bounded_number_and_the_next_one_goes_on() -> None:
    async with MemoryStore() as store:
        blobs = Blobs(store)
        for _ in range(BLOBS_SWEPT_COUNT_MAX + 1):
            await blobs.put(b"cog")
        await blobs.sweep(older_than=DAY_S)
        await end_lease(store)
        assert await blobs.sweep(older_than=DAY_S) == BLOBS_SWEPT_COUNT_MAX
        assert await blobs.sweep(older_than=DAY_S) == 1


async def test_of_two_sweeps_at_once_one_begins_the_time_and_no_lease_is_left_over() -> None:
    async with MemoryStore() as store:
        blobs = Blobs(store)
        await blobs.put(b"cog")
        leases: set[int] = set()
        grant = store.grant

        async def noting(ttl: float, **options: float | None) -> int:
            leases.add(lease := await grant(ttl, **options))
            return lease

        store.grant = noting  # type: ignore[method-assign]
        await asyncio.gather(blobs.sweep(older_than=DAY_S), blobs.sweep(older_than=DAY_S))
        assert len(leases) == 2
        alive = [lease for lease in leases if await store.lease_info(lease) is not None]
        assert len(alive) == 1
        await end_lease(store)
        counts = await asyncio.gather(blobs.sweep(older_than=DAY_S), blobs.sweep(older_than=DAY_S))
        assert sorted(counts) == [0, 1]


@pytest.mark.parametrize(
    "note",
    [
        b"",
        b"[]",
        b"{}",
        b'{"lease":-1,"revision":1,"olderThanS":1}',
        b'{"lease":1,"revision":"x","olderThanS":1}',
    ],
)
async def test_a_note_that_hansa_did_not_write_is_named(note: bytes) -> None:
    async with MemoryStore() as store:
        await store.put(Keys().blob_sweep("default"), note)
        with pytest.raises(BadRecord, match=r"blob-sweep.* is no note of a sweep"):
            await Blobs(store).sweep()
