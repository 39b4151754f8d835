"""Blobs on every engine: what comes out is what went in, and what nobody refers to goes in the end."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from hansa.errors import Conflict, LimitExceeded, NotThere
from hansa.keys import Keys
from hansa.limits import BLOB_BYTES_MAX, BLOB_PIECE_BYTES
from hansa.store.blobs import Blobs
from hansa.store.store import Store
from hansa.store.values import Put
from tests.conformance.store.engines import StoreEngine
from tests.support.halting_store import HaltingStore

WAIT_S_MAX = 30.0
# In tests that end this time themselves.
LIFETIME_S = 1_000.0
DATA = bytes(range(256)) * (3 * BLOB_PIECE_BYTES // 256) + b"and a bit"


async def end_lifetime(store: Store) -> None:
    """As if the time of the sweep that began it were over: its lease ends."""
    note = await store.get(Keys().blob_sweep("default"))
    assert note is not None
    await store.revoke(json.loads(note.value)["lease"])


async def sweep(store: Store) -> int:
    """A sweep after the lifetime of all that was there when the one before it began."""
    await end_lifetime(store)
    return await Blobs(store).sweep(older_than=LIFETIME_S)


def before(number: int, act: Callable[[], Awaitable[object]]) -> Callable[[int], Awaitable[None]]:
    """Act once, ahead of this call."""

    async def halt(count: int) -> None:
        if count == number:
            await act()

    return halt


@pytest.mark.parametrize("size", [0, 1, BLOB_PIECE_BYTES, BLOB_PIECE_BYTES + 1, len(DATA)])
async def test_what_was_put_is_got(store: Store, size: int) -> None:
    blobs = Blobs(store)
    name = await blobs.put(DATA[:size])
    assert await blobs.get(name) == DATA[:size]
    (found,) = await blobs.all()
    assert (found.name, found.size, found.is_whole) == (name, size, True)
    assert len(found.revisions) == max(1, -(-size // BLOB_PIECE_BYTES))


async def test_the_largest_blob_is_taken_and_a_larger_one_refused(store: Store) -> None:
    blobs, data = Blobs(store), bytes(range(251)) * (BLOB_BYTES_MAX // 251 + 1)
    with pytest.raises(LimitExceeded, match=f"{BLOB_BYTES_MAX + 1} bytes"):
        await blobs.put(data[: BLOB_BYTES_MAX + 1])
    assert await blobs.all() == ()
    name = await blobs.put(data[:BLOB_BYTES_MAX], timeout=WAIT_S_MAX)
    assert await blobs.get(name, timeout=WAIT_S_MAX) == data[:BLOB_BYTES_MAX]


async def test_two_references_to_the_same_data_never_share_a_blob(store: Store) -> None:
    blobs = Blobs(store)
    one, other = await blobs.put(DATA), await blobs.put(DATA)
    assert one != other
    assert await blobs.delete(one)
    assert not await blobs.delete(one)
    with pytest.raises(NotThere, match=one):
        await blobs.get(one)
    assert await blobs.get(other) == DATA


async def test_clusters_do_not_see_each_others_blobs(store: Store) -> None:
    name = await Blobs(store).put(DATA)
    assert await Blobs(store, cluster="other").all() == ()
    with pytest.raises(NotThere):
        await Blobs(store, cluster="other").get(name)


async def test_a_sweep_leaves_the_blobs_of_other_spaces(store: Store) -> None:
    mine, other = Blobs(store), Blobs(store, space="other")
    await mine.put(b"mine")
    name = await other.put(DATA)
    await mine.sweep(older_than=LIFETIME_S)
    assert await sweep(store) == 1
    assert await mine.all() == ()
    assert await other.get(name) == DATA


async def test_a_blob_goes_with_the_reference_that_replaces_it(store: Store) -> None:
    blobs = Blobs(store)
    old, new = await blobs.put(b"old"), await blobs.put(DATA)
    outcome = await store.commit([blobs.guard(new)], [Put("state", new.encode()), blobs.deletion(old)])
    assert outcome.is_success
    assert [blob.name for blob in await blobs.all()] == [new]
    await blobs.delete(new)
    assert not (await store.commit([blobs.guard(new)], [Put("state", new.encode())])).is_success


async def test_a_blob_that_is_deleted_while_it_is_read_is_not_there(store: Store) -> None:
    blobs = Blobs(store)
    name = await blobs.put(DATA * 2)
    deleting = HaltingStore.of(store, scan=before(1, lambda: blobs.delete(name)))
    with pytest.raises(NotThere):
        await Blobs(deleting).get(name)


async def test_a_sweep_takes_what_is_older_and_leaves_what_is_younger(
    store: Store, engine: StoreEngine
) -> None:
    blobs, older_than = Blobs(store), engine.ttl_s_min
    old = await blobs.put(DATA)
    began_s = store.clock.monotonic()
    assert await blobs.sweep(older_than=older_than) == 0
    young = await blobs.put(DATA)
    async with asyncio.timeout(WAIT_S_MAX):
        while (swept_count := await blobs.sweep(older_than=older_than)) == 0:
            await asyncio.sleep(older_than / 20)
    assert store.clock.monotonic() - began_s >= older_than
    assert swept_count == 1
    with pytest.raises(NotThere):
        await blobs.get(old)
    assert await blobs.get(young) == DATA


async def test_a_put_that_is_cancelled_half_way_leaves_only_what_a_sweep_takes(store: Store) -> None:
    put: asyncio.Task[str]

    async def cancel() -> None:
        put.cancel()
        await asyncio.sleep(0)

    put = asyncio.create_task(Blobs(HaltingStore.of(store, commit=before(2, cancel))).put(DATA))
    with pytest.raises(asyncio.CancelledError):
        await put
    blobs = Blobs(store)
    (left,) = await blobs.all()
    assert not left.is_whole
    assert not (await store.commit([blobs.guard(left.name)], [])).is_success
    assert await blobs.sweep(older_than=LIFETIME_S) == 0
    assert await sweep(store) == 1
    assert await store.scan(Keys().blobs("default"), keys_only=True) == await store.scan(
        "nothing", keys_only=True
    )


@pytest.mark.parametrize("pieces_count", [1, 2, 3])
async def test_a_put_that_is_swept_half_way_is_refused(store: Store, pieces_count: int) -> None:
    async def outlive() -> None:
        await Blobs(store).sweep(older_than=LIFETIME_S)
        assert await sweep(store) == 1

    with pytest.raises(Conflict, match="put it again"):
        await Blobs(HaltingStore.of(store, commit=before(pieces_count, outlive))).put(DATA)
    # What came after the sweep goes with another one, and nobody can take it for a blob.
    assert [blob.is_whole for blob in await Blobs(store).all()] == [False] * (pieces_count < 3)


@pytest.mark.parametrize("sweep_halts_at", [1, 2])
async def test_a_blob_that_becomes_whole_beside_a_sweep_stays(store: Store, sweep_halts_at: int) -> None:
    """Its first pieces are old, and its last one comes just before the sweep looks, or deletes."""
    go_on, is_halfway, put = asyncio.Event(), asyncio.Event(), None

    async def wait() -> None:
        is_halfway.set()
        await go_on.wait()

    async def finish() -> None:
        go_on.set()
        assert put is not None
        await put

    put = asyncio.create_task(Blobs(HaltingStore.of(store, commit=before(3, wait))).put(DATA))
    await is_halfway.wait()
    await Blobs(store).sweep(older_than=LIFETIME_S)
    await end_lifetime(store)
    at = {1: {"scan": before(0, finish)}, 2: {"commit": before(1, finish)}}[sweep_halts_at]
    assert await Blobs(HaltingStore.of(store, **at)).sweep(older_than=LIFETIME_S) == 0
    assert await Blobs(store).get(await put) == DATA
