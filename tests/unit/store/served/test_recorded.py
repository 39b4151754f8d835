"""A store that is started begins beyond all that it can ever have issued, and knows what is its own past."""

import struct
from pathlib import Path
from zlib import crc32

import pytest

from hansa.chance import Chance
from hansa.clock import ManualClock
from hansa.errors import Compacted, FutureRevision, StoreCorrupt, StoreUnavailable
from hansa.limits import STORE_LEAPS_MAX, STORE_REVISIONS_PER_S_MAX
from hansa.store.mvcc import FIRST_REVISION
from hansa.store.served import folder as store_folder
from hansa.store.served.recorded import RecordedStore, RestorableKeys
from hansa.store.served.records import (
    FIRST_SNAPSHOT_MAGIC,
    Begun,
    Committed,
    decode_record,
    decode_snapshot,
    encode_record,
    encode_snapshot,
)
from hansa.store.served.served_store import ServedStore
from hansa.store.values import Get, Put, WatchBatch
from hansa.store.watching import WatcherStage, WatchInterest
from hansa.transport import Environment

pytestmark = pytest.mark.spec("CRD-17")


def started(*, wall_s: float) -> RecordedStore:
    store = RecordedStore(Chance.seeded(1))
    store.begin_run(wall_s=wall_s)
    return store


def put(store: RecordedStore, key: str) -> int:
    return store.perform([Put(key, b"")])[0].revision


def again(store: RecordedStore) -> RecordedStore:
    """What comes back from a snapshot of it."""
    found = RecordedStore(Chance.seeded(2))
    data = b"".join(encode_snapshot(store.image(), 7))
    found.begin(decode_snapshot(data, "it"), now=0.0)
    return found


def starts(store: RecordedStore, upto: int) -> list[int]:
    """From where a watcher may go on."""
    return [start for start in range(1, upto) if store.can_resume(start)]


def test_a_start_begins_at_the_date_and_the_next_one_beyond_it() -> None:
    store = started(wall_s=1_700_000_000.25)
    assert store.revision == 1_700_000_000 * STORE_REVISIONS_PER_S_MAX + STORE_REVISIONS_PER_S_MAX // 4
    first = put(store, "k")
    store.begin_run(wall_s=1_700_000_000.5)
    assert store.revision == 1_700_000_000 * STORE_REVISIONS_PER_S_MAX + STORE_REVISIONS_PER_S_MAX // 2
    assert put(store, "k") > first


def test_a_start_whose_date_is_behind_goes_on_where_the_last_run_ended() -> None:
    store = started(wall_s=1_700_000_000)
    last = put(store, "k")
    store.begin_run(wall_s=0.0)
    assert store.revision == last + 1
    assert put(store, "k") == last + 2


def test_a_new_store_without_a_date_begins_at_the_first_revision() -> None:
    store = started(wall_s=0.0)
    assert store.revision == FIRST_REVISION
    assert store.taken() == []


def test_every_number_fits_what_other_programs_hold_exactly() -> None:
    # The numbers of JSON and of many languages have 53 bits: until the year 2242.
    assert started(wall_s=8_589_934_000.0).revision < 2**53


def test_a_watcher_goes_on_from_where_this_history_was_and_from_nowhere_else() -> None:
    store = started(wall_s=0.0)
    put(store, "a")
    put(store, "a")
    # The history: 1 to 3, 20 to 21, 40 and so on.
    store._keys.begin_run(20)
    put(store, "a")
    store._keys.begin_run(40)
    put(store, "a")
    expected = [1, 2, 3, 4, 20, 21, 22, 40, 41, 42]
    assert starts(store, 60) == expected
    assert starts(again(store), 60) == expected
    store.compact(21)
    assert [start for start in starts(store, 60) if start >= 21] == [21, 22, 40, 41, 42]
    assert starts(again(store), 60) == starts(store, 60)


def test_a_revision_of_another_history_is_never_read_or_compacted() -> None:
    store = started(wall_s=0.0)
    put(store, "a")
    store._keys.begin_run(20)
    put(store, "b")
    for revision in (3, 10, 19, 22):
        with pytest.raises(FutureRevision):
            store.get(b"a", revision=revision)
        with pytest.raises(FutureRevision):
            store.scan(Get(b"a"), revision=revision)
        with pytest.raises(FutureRevision):
            store.compact(revision)
    assert [bool(store.get(b"b", revision=revision)) for revision in (1, 2, 20, 21)] == [False] * 3 + [True]


def test_a_revision_of_another_history_is_known_as_such_after_a_compaction_too() -> None:
    """Whoever saw it must hear that the store went back, and not that it has a short memory."""
    store = started(wall_s=0.0)
    put(store, "a")
    store._keys.begin_run(20)
    put(store, "a")
    store._keys.begin_run(40)
    put(store, "a")
    put(store, "a")
    store.compact(42)
    for found in (store, again(store), again(again(store))):
        for revision in (3, 19, 22, 39):
            with pytest.raises(FutureRevision):
                found.get(b"a", revision=revision)
        for revision in (1, 2, 20, 21, 40, 41):
            with pytest.raises(Compacted):
                found.get(b"a", revision=revision)
        assert found.get(b"a", revision=42) is not None


def test_of_very_many_starts_the_first_are_forgotten() -> None:
    keys = RestorableKeys()
    for number in range(2, STORE_LEAPS_MAX + 4):
        keys.begin_run(10 * number)
    keys.compact(keys.revision)
    with pytest.raises(Compacted):
        keys.get(b"k", revision=15)
    with pytest.raises(FutureRevision):
        keys.get(b"k", revision=45)


def test_a_snapshot_of_the_first_form_is_read() -> None:
    """It knew nothing of leaps: whatever stands before its log is only forgotten."""
    store = started(wall_s=0.0)
    put(store, "a")
    store._keys.begin_run(20)
    put(store, "a")
    data = b"".join(encode_snapshot(store.image(), 7))
    head = FIRST_SNAPSHOT_MAGIC + data[8 : 8 + 7 * 8]
    body = head + data[8 + 8 * 8 : -12]
    old = body + struct.pack("<QI", len(body), crc32(body))
    found = RecordedStore(Chance.seeded(2))
    found.begin(decode_snapshot(old, "it"), now=0.0)
    assert found.image() == store.image()


def test_a_run_comes_back_from_its_records_and_from_a_snapshot_of_them() -> None:
    store = started(wall_s=50.0)
    put(store, "a")
    store.begin_run(wall_s=60.0)
    records = [decode_record(encode_record(change.record)) for change in store.taken()]
    assert [type(record) for record in records] == [Begun, Committed, Begun]
    found = RecordedStore(Chance.seeded(3))
    for record in records:
        found.replay(record, now=0.0)
    assert found.image() == store.image() == again(store).image()
    with pytest.raises(StoreCorrupt):
        found.replay(records[-1], now=0.0)


def test_starts_without_any_change_are_forgotten_like_changes() -> None:
    keys = RestorableKeys(history_count_max=8)
    for revision in range(10, 1_000, 10):
        keys.begin_run(revision)
    assert len(keys.whole_log()) <= 8
    with pytest.raises(Compacted):
        keys.get(b"k", revision=10)
    assert keys.get(b"k", revision=990) is None


async def test_a_watcher_reads_over_a_start_without_gap_or_repeat(tmp_path: Path) -> None:
    clock = ManualClock()
    async with ServedStore(tmp_path, fsync=False, environment=Environment(clock=clock)) as served:
        last = await served.act(lambda store, _: put(store, "k"))
    clock.advance(3.0)
    async with ServedStore(tmp_path, fsync=False, environment=Environment(clock=clock)) as served:
        assert served.run_revision == served.safe_revision > last + STORE_REVISIONS_PER_S_MAX
        watcher = served.watch(WatchInterest(b"k"), last, lambda: None)
        next_revision = await served.act(lambda store, _: put(store, "k"))
        told: list[WatchBatch] = []
        while len(told) < 2:
            batch = served.take(watcher)
            told += [batch] if batch is not None else []
        assert [batch.revision for batch in told] == [last, next_revision]
        assert served.take(watcher) is None
        assert watcher.stage is WatcherStage.IN_STEP
        for start in (last + 2, served.run_revision - 1, next_revision + 2):
            with pytest.raises(Compacted) as caught:
                served.watch(WatchInterest(b"k"), start, lambda: None)
            # Whoever begins where it was sent to is not sent away again.
            served.watch(WatchInterest(b"k"), caught.value.compacted_revision, lambda: None)


async def test_a_start_that_the_disk_does_not_take_still_reads_what_was_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Flushed and marked, so that a start has nothing to write anew before it serves.
    async with ServedStore(tmp_path) as served:
        last = await served.act(lambda store, _: put(store, "k"))

    def full(file: int, data: bytes) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(store_folder, "write", full)
    async with ServedStore(tmp_path) as served:
        assert served.safe_revision == last
        assert await served.read(lambda store, revision: store.get(b"k", revision=revision)) is not None
        with pytest.raises(StoreUnavailable):
            await served.act(lambda store, _: put(store, "k"))
