"""A store in a folder: started again it is what it was; what cannot be is refused with nothing changed."""

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.errors import BadArgument, StoreCorrupt, StoreUnavailable
from hansa.store.journal import encode_block, segment_name
from hansa.store.journal_records import encode_record
from hansa.store.on_folder import Recovery, StoreFolder
from hansa.store.recorded import RecordedStore
from hansa.store.snapshot import snapshot_name
from hansa.store.values import Put
from tests.support.store_views import view


class Kept:
    """A store whose records go into a folder, a block each, without a thread."""

    def __init__(self, path: Path) -> None:
        self.folder = StoreFolder.open(path, Chance.seeded(3))
        self.store = RecordedStore(Chance.seeded(4))
        try:
            self.recovery: Recovery = self.folder.recover(self.store, now=0.0)
        except BaseException:
            self.folder.close()
            raise
        self.sequence = self.folder.next_sequence - 1

    def put(self, key: str, value: bytes = b"v") -> None:
        self.store.perform((Put(key, value),))
        self.flush()

    def flush(self) -> None:
        records = [encode_record(told.record) for told in self.store.taken()]
        self.folder.append(encode_block(self.sequence + 1, records))
        self.sequence += len(records)

    def rotate(self) -> None:
        self.folder.begin_segment(self.sequence + 1)

    def snapshot(self) -> None:
        self.folder.write_snapshot(self.store.image(), self.sequence)

    def close(self) -> tuple[Any, ...]:
        self.folder.close()
        return view(self.store)


def files(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def recovered(path: Path) -> tuple[Any, ...]:
    return Kept(path).close()


def test_a_store_is_what_it_was_over_many_starts(tmp_path: Path) -> None:
    before = recovered(tmp_path)
    for number in range(3):
        kept = Kept(tmp_path)
        assert view(kept.store) == before
        kept.store.grant(5.0, 20 + number, now=0.0)
        kept.store.perform((Put(f"hung/{number}", b"v", 20 + number),))
        kept.put(f"key/{number}")
        before = kept.close()
    assert recovered(tmp_path) == before


def test_a_start_reads_the_snapshot_and_the_journal_behind_it_and_deletes_the_rest(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    kept.rotate()
    kept.snapshot()
    kept.put("b")
    before = kept.close()
    assert sorted(files(tmp_path)) == ["identity.json", segment_name(2), "lock", snapshot_name(1)]
    kept = Kept(tmp_path)
    assert kept.recovery == Recovery(revision=3, snapshot_revision=2, records_count=1, torn_bytes=0)
    assert kept.close() == before


def test_a_snapshot_that_was_not_finished_is_as_if_it_was_never_begun(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    kept.rotate()
    kept.put("b")
    before = kept.close()
    (tmp_path / "snapshot-00000000000000000001.tmp").write_bytes(b"half")
    assert recovered(tmp_path) == before
    assert sorted(files(tmp_path)) == ["identity.json", segment_name(1), segment_name(2), "lock"]


def test_files_that_a_snapshot_makes_needless_are_deleted_at_the_next_start(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    old = files(tmp_path)[segment_name(1)]
    kept.rotate()
    kept.snapshot()
    before = kept.close()
    (tmp_path / segment_name(1)).write_bytes(old)
    assert recovered(tmp_path) == before
    assert segment_name(1) not in files(tmp_path)


def test_a_torn_end_is_cut_off_and_the_store_goes_on_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    before = kept.close()
    path = tmp_path / segment_name(1)
    whole = path.read_bytes()
    path.write_bytes(whole + encode_block(2, [b"x" * 100])[:50])
    kept = Kept(tmp_path)
    assert kept.recovery.torn_bytes == 50
    assert "the last 50 bytes were being written when the store ended" in caplog.text
    assert view(kept.store) == before
    assert path.read_bytes() == whole
    kept.put("b")
    before = kept.close()
    assert recovered(tmp_path) == before


def test_a_segment_that_was_being_made_is_made_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    kept.rotate()
    kept.close()
    path = tmp_path / segment_name(2)
    path.write_bytes(path.read_bytes()[:5])
    kept = Kept(tmp_path)
    kept.put("b")
    before = kept.close()
    assert recovered(tmp_path) == before


@pytest.mark.parametrize("name", [segment_name(1), segment_name(2), "identity.json"])
def test_damage_is_refused_by_name_and_nothing_is_changed(tmp_path: Path, name: str) -> None:
    kept = Kept(tmp_path)
    kept.put("a", b"x" * 1_000)
    kept.rotate()
    kept.put("b")
    kept.put("c")
    kept.close()
    data = bytearray((tmp_path / name).read_bytes())
    data[40] ^= 0xFF
    (tmp_path / name).write_bytes(data)
    (tmp_path / "left.tmp").write_bytes(b"")
    before = files(tmp_path)
    with pytest.raises(StoreCorrupt, match=name):
        Kept(tmp_path)
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", [segment_name(1), segment_name(2), "identity.json"])
def test_a_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    kept = Kept(tmp_path)
    for key in ("a", "b", "c"):
        kept.put(key)
        kept.rotate()
    kept.close()
    (tmp_path / name).unlink()
    before = files(tmp_path)
    with pytest.raises(StoreCorrupt, match=f"{name} is missing"):
        Kept(tmp_path)
    assert files(tmp_path) == before


def test_a_damaged_snapshot_is_passed_over_only_while_the_journal_before_it_is_there(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    kept.rotate()
    old = files(tmp_path)[segment_name(1)]
    kept.snapshot()
    kept.put("b")
    before = kept.close()
    snapshot = tmp_path / snapshot_name(1)
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    with pytest.raises(StoreCorrupt, match=snapshot_name(1)):
        Kept(tmp_path)
    (tmp_path / segment_name(1)).write_bytes(old)
    assert recovered(tmp_path) == before


def test_a_folder_belongs_to_one_at_a_time(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "new" / "folder")
    with pytest.raises(StoreUnavailable, match="in use by another process"):
        Kept(tmp_path / "new" / "folder")
    kept.close()
    again = Kept(tmp_path / "new" / "folder")
    assert again.folder.identity == kept.folder.identity
    again.close()


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadArgument, match=r"holds something else \(thesis.txt\)"):
        Kept(tmp_path)
    with pytest.raises(BadArgument, match="no store can be kept in"):
        Kept(tmp_path / "thesis.txt")
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_the_lock_goes_with_the_process_and_not_with_the_file(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    lock = os.open(tmp_path / "lock", os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    kept.close()
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(lock)
