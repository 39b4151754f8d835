"""Leases and the keys on them, on every engine."""

import asyncio

import pytest

from hansa.errors import LeaseLost
from hansa.store.store import Store
from hansa.store.values import EventKind, Put
from tests.conformance.store.engines import StoreEngine, ours

pytestmark = pytest.mark.spec("CRD-01")


async def test_a_lease_that_is_not_kept_alive_takes_its_keys_in_one_revision(
    store: Store, engine: StoreEngine
) -> None:
    lease = await store.grant(engine.ttl_s_min)
    revision = (await store.commit((), [Put("a", b"", lease), Put("b", b"", lease), Put("c", b"")])).revision
    watch = store.watch("")
    await watch.ready()
    batch = await anext(watch)
    watch.close()
    assert batch.revision == revision + 1
    assert [(event.kind, event.item.key) for event in batch.events] == [
        (EventKind.DELETE, b"a"),
        (EventKind.DELETE, b"b"),
    ]
    assert [item.key for item in ours((await store.scan("")).items)] == [b"c"]
    assert await store.lease_info(lease) is None
    for call in (store.keep_alive(lease), store.revoke(lease), store.put("a", b"", lease=lease)):
        with pytest.raises(LeaseLost):
            await call


async def test_a_lease_that_is_kept_alive_lives_and_ends_after_another(
    store: Store, engine: StoreEngine
) -> None:
    # Not the shortest: between two renewals a busy machine may stand still for a while.
    kept_s = max(2 * engine.ttl_s_min, 0.5)
    kept, left = await store.grant(kept_s), await store.grant(1.5 * kept_s)
    await store.put("kept", b"", lease=kept)
    await store.put("left", b"", lease=left)
    watch = store.watch("left", exact=True)
    await watch.ready()

    async def keep() -> None:
        while True:
            remaining_s = await store.keep_alive(kept)
            assert remaining_s > 0
            await asyncio.sleep(remaining_s / 5)

    keeper = asyncio.ensure_future(keep())
    await anext(watch)
    assert await store.get("kept") is not None
    keeper.cancel()
    gone = store.watch("kept", start_revision=(await store.status()).revision + 1)
    assert (await anext(gone)).events[0].kind is EventKind.DELETE
    for each in (watch, gone):
        each.close()


async def test_a_revoked_lease_takes_its_keys_at_once(store: Store) -> None:
    lease = await store.grant(60.0)
    revision = (await store.commit((), [Put("a", b"", lease), Put("b", b"", lease)])).revision
    await store.revoke(lease)
    assert ours((await store.scan("")).items) == []
    assert (await store.status()).revision == revision + 1
    with pytest.raises(LeaseLost):
        await store.revoke(lease)


async def test_a_lease_knows_its_time_and_its_keys(store: Store) -> None:
    lease = await store.grant(60.0)
    await store.commit((), [Put(key, b"", lease) for key in ("c", "a", "b", "d")])
    await store.put("c", b"")
    await store.delete("d")
    info = await store.lease_info(lease)
    assert info is not None
    assert (info.lease, info.granted_ttl_s, info.keys) == (lease, 60.0, (b"a", b"b"))
    assert 0 < info.ttl_s <= 60.0
    assert await store.keep_alive(lease) == 60.0
    await store.revoke(lease)
    assert [item.key for item in ours((await store.scan("")).items)] == [b"c"]


async def test_an_item_names_its_lease(store: Store) -> None:
    lease = await store.grant(60.0)
    await store.put("k", b"", lease=lease)
    item = await store.get("k")
    assert item is not None
    assert item.lease == lease
    await store.revoke(lease)
