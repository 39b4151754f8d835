"""Keys, revisions, the past and compaction, on every engine."""

import pytest

from hansa.errors import BadArgument, Compacted, FutureRevision
from hansa.limits import STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX
from hansa.store.store import Store
from hansa.store.values import Scan
from tests.conformance.store.engines import ours

pytestmark = pytest.mark.spec("CRD-01")


def keys(found: Scan) -> list[bytes]:
    return [item.key for item in ours(found.items)]


async def test_a_key_that_was_put_is_there_and_one_that_was_not_is_none(store: Store) -> None:
    assert await store.get("k") is None
    revision = await store.put("k", b"v")
    item = await store.get(b"k")
    assert item is not None
    assert (item.key, item.value, item.lease) == (b"k", b"v", 0)
    assert (item.create_revision, item.mod_revision, item.version) == (revision, revision, 1)


async def test_each_change_has_the_next_revision(store: Store) -> None:
    first = await store.put("a", b"")
    assert await store.put("b", b"") == first + 1
    assert await store.delete("a")
    assert not await store.delete("a")
    assert await store.put("a", b"") == first + 3
    assert (await store.status()).revision == first + 3


async def test_versions_count_and_begin_anew_after_a_deletion(store: Store) -> None:
    first = await store.put("k", b"1")
    await store.put("k", b"2")
    item = await store.get("k")
    assert item is not None
    assert (item.create_revision, item.mod_revision, item.version) == (first, first + 1, 2)
    await store.delete("k")
    await store.put("k", b"3")
    item = await store.get("k")
    assert item is not None
    assert (item.create_revision, item.mod_revision, item.version) == (first + 3, first + 3, 1)


async def test_a_scan_takes_a_prefix_or_a_range_in_the_order_of_keys(store: Store) -> None:
    for key in ("b", "a/2", "a/1", "a", "a0"):
        await store.put(key, key.encode())
    assert keys(await store.scan("a/")) == [b"a/1", b"a/2"]
    assert keys(await store.scan("")) == [b"a", b"a/1", b"a/2", b"a0", b"b"]
    assert keys(await store.scan("a/2", "b")) == [b"a/2", b"a0"]
    assert keys(await store.scan("a0", b"\0")) == [b"a0", b"b"]
    assert keys(await store.scan("a", b"")) == [b"a"]
    assert keys(await store.scan("b", "a")) == []
    limited = await store.scan("a", limit=2, keys_only=True)
    assert (keys(limited), limited.count, limited.more) == ([b"a", b"a/1"], 4, True)
    assert [item.value for item in limited.items] == [b"", b""]
    whole = await store.scan("a", limit=4)
    assert (len(whole.items), whole.count, whole.more) == (4, 4, False)


async def test_keys_of_the_highest_bytes_are_found_by_prefix(store: Store) -> None:
    for key in (b"\xfe", b"\xff", b"\xff\xff", b"\xffa"):
        await store.put(key, b"")
    assert keys(await store.scan(b"\xff")) == [b"\xff", b"\xffa", b"\xff\xff"]
    assert await store.delete_prefix(b"\xff") == 3
    assert keys(await store.scan(b"")) == [b"\xfe"]


async def test_a_prefix_is_deleted_in_one_revision(store: Store) -> None:
    for key in ("a/1", "a/2", "b"):
        await store.put(key, b"")
    before = (await store.status()).revision
    assert await store.delete_prefix("a/") == 2
    assert (await store.status()).revision == before + 1
    assert await store.delete_prefix("a/") == 0
    assert (await store.status()).revision == before + 1


async def test_the_empty_prefix_is_every_key(store: Store) -> None:
    for key in (b"\0", b"a", b"\xff"):
        await store.put(key, b"")
    found = await store.scan("")
    assert keys(found) == [b"\0", b"a", b"\xff"]
    assert await store.delete_prefix("") == found.count
    assert keys(await store.scan("")) == []
    # One revision for all.
    assert [await store.get(key, revision=found.revision + 1) for key in (b"\0", b"a", b"\xff")] == [None] * 3


async def test_the_past_can_be_read(store: Store) -> None:
    first = await store.put("k", b"1")
    await store.put("k", b"2")
    await store.delete("k")
    await store.put("k", b"4")
    found = [await store.get("k", revision=first + number) for number in range(4)]
    assert [item and item.value for item in found] == [b"1", b"2", None, b"4"]
    past = await store.scan("k", revision=first)
    assert [item.value for item in past.items] == [b"1"]
    assert past.revision == first + 3


async def test_the_future_cannot_be_read(store: Store) -> None:
    revision = await store.put("k", b"")
    for call in (store.get("k", revision=revision + 1), store.scan("k", revision=revision + 1)):
        with pytest.raises(FutureRevision):
            await call
    with pytest.raises(FutureRevision):
        await store.compact(revision + 1)


async def test_compaction_forgets_the_past_and_keeps_its_revision(store: Store) -> None:
    first = await store.put("k", b"1")
    await store.put("k", b"2")
    await store.put("k", b"3")
    await store.compact(first + 1)
    with pytest.raises(Compacted):
        await store.get("k", revision=first)
    with pytest.raises(Compacted):
        await store.scan("k", revision=first)
    with pytest.raises(Compacted):
        await store.compact(first + 1)
    item = await store.get("k", revision=first + 1)
    assert item is not None
    assert item.value == b"2"


async def test_large_keys_and_values_come_back_whole(store: Store) -> None:
    value = bytes(range(256)) * (STORE_VALUE_BYTES_MAX // 256)
    await store.put(b"k" * STORE_KEY_BYTES_MAX, value)
    item = await store.get(b"k" * STORE_KEY_BYTES_MAX)
    assert item is not None
    assert item.value == value


async def test_what_cannot_be_is_refused_and_changes_nothing(store: Store) -> None:
    revision = await store.put("k", b"")
    for call in (
        store.put("", b""),
        store.put(b"x" * (STORE_KEY_BYTES_MAX + 1), b""),
        store.put("k", bytes(STORE_VALUE_BYTES_MAX + 1)),
        store.get(""),
        store.get("k", revision=-1),
        store.get("k", revision=2**63),
        store.scan("k", revision=2**63),
        store.scan("k", limit=-1),
        store.scan("k", limit=2**63),
        store.delete(""),
        store.grant(0.0),
        store.compact(0),
        store.compact(2**63),
        store.keep_alive(-1),
    ):
        with pytest.raises(BadArgument):
            await call
    assert (await store.status()).revision == revision
