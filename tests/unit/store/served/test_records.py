"""A snapshot is read whole, or not at all."""

import pytest

from hansa.errors import StoreCorrupt
from hansa.store.served.records import decode_snapshot, encode_snapshot
from hansa.store.values import Delete, Put
from tests.support.store_views import Played, replayed, view


def filled() -> Played:
    played = Played()
    store = played.store
    store.grant(10.0, 11, now=0.0)
    store.perform((Put("old", b"1"), Put("hung", b"2", 11)))
    store.perform((Put("old", b"3"), Put("gone", b"4")))
    store.compact(3)
    store.perform((Delete("gone"), Put("new", b"5" * 1_048_576)))
    return played


def test_a_store_comes_back_with_its_past_since_the_compaction_and_its_leases() -> None:
    store = filled().store
    chunks = list(encode_snapshot(store.image(), 9))
    assert len(chunks) > 1
    restored = replayed([])
    restored.begin(decode_snapshot(b"".join(chunks), "a file"), now=0.0)
    assert view(restored) == view(store)
    assert restored.get(b"gone", revision=3) is not None
    info = restored.lease_info(11, now=4.0)
    assert info is not None
    assert (info.ttl_s, info.keys) == (6.0, (b"hung",))


def test_an_image_does_not_change_with_its_store() -> None:
    store = filled().store
    before = view(store)
    image = store.image()
    store.perform((Put("old", b"later"), Delete("hung")))
    store.revoke(11)
    restored = replayed([])
    restored.begin(decode_snapshot(b"".join(encode_snapshot(image, 9)), "a file"), now=0.0)
    assert view(restored) == before


def test_a_cut_or_changed_snapshot_is_refused() -> None:
    played = Played()
    played.store.perform((Put("old", b"1"),))
    played.store.grant(10.0, 11, now=0.0)
    data = b"".join(encode_snapshot(played.store.image(), 9))
    for size in range(len(data)):
        with pytest.raises(StoreCorrupt, match="a file"):
            decode_snapshot(data[:size], "a file")
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(StoreCorrupt, match="a file"):
            decode_snapshot(bytes(changed), "a file")
