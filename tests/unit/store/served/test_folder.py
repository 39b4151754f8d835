"""A store in a folder: started again it is what it was; what cannot be is refused with nothing changed."""

import fcntl
import json
import os
import struct
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from hansa.chance import Chance
from hansa.errors import BadArgument, StoreCorrupt, StoreUnavailable
from hansa.store.served.folder import Recovery, StoreFolder
from hansa.store.served.journal import CELL_BYTES, encode_block, read_segment, segment_name
from hansa.store.served.records import snapshot_name
from hansa.store.values import Put
from tests.support.kept_store import Kept
from tests.support.store_views import view


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
    assert sorted(files(tmp_path)) == [
        "identity.json",
        segment_name(2),
        "journal.mark",
        "lock",
        snapshot_name(1),
    ]
    kept = Kept(tmp_path)
    assert kept.recovery == Recovery(
        revision=3, snapshot_revision=2, records_count=1, renewed_bytes=2 * CELL_BYTES
    )
    assert kept.close() == before


def test_a_snapshot_that_was_not_finished_is_as_if_it_was_never_begun(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    kept.rotate()
    kept.put("b")
    before = kept.close()
    (tmp_path / "snapshot-00000000000000000001.tmp").write_bytes(b"half")
    assert recovered(tmp_path) == before
    assert sorted(files(tmp_path)) == [
        "identity.json",
        segment_name(1),
        segment_name(2),
        "journal.mark",
        "lock",
    ]


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
    kept.close()
    (tmp_path / segment_name(2)).with_suffix(".tmp").write_bytes(b"half")
    kept = Kept(tmp_path)
    kept.rotate()
    kept.put("b")
    before = kept.close()
    assert recovered(tmp_path) == before
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("left", [[], ["journal.mark"], ["journal.mark", "identity.json"]])
def test_a_folder_whose_making_was_interrupted_is_made_again(tmp_path: Path, left: list[str]) -> None:
    (made := tmp_path / "made").mkdir()
    StoreFolder.open(made, Chance.seeded(3)).close()
    (folder := tmp_path / "folder").mkdir()
    for name in left:
        (folder / name).write_bytes((made / name).read_bytes())
    kept = Kept(folder)
    kept.put("a")
    before = kept.close()
    assert recovered(folder) == before


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


MISSING = [segment_name(1), segment_name(2), segment_name(4), "identity.json", "journal.mark"]


@pytest.mark.spec("CRD-18")
@pytest.mark.parametrize("name", MISSING)
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


@pytest.mark.spec("CRD-18")
@pytest.mark.parametrize("fsync", [True, False])
@pytest.mark.parametrize("is_snapshot_made", [True, False])
def test_the_loss_of_the_whole_journal_is_refused(
    tmp_path: Path, is_snapshot_made: bool, fsync: bool
) -> None:
    kept = Kept(tmp_path, fsync=fsync)
    kept.put("a")
    if is_snapshot_made:
        kept.rotate()
        kept.snapshot()
    kept.close()
    (segment,) = tmp_path.glob("journal-*.log")
    segment.unlink()
    before = files(tmp_path)
    with pytest.raises(StoreCorrupt, match=f"{segment} is missing"):
        Kept(tmp_path, fsync=fsync)
    assert files(tmp_path) == before


@pytest.mark.spec("CRD-18")
def test_the_loss_of_the_snapshot_is_refused(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    kept.rotate()
    kept.snapshot()
    kept.put("b")
    kept.close()
    (tmp_path / snapshot_name(1)).unlink()
    with pytest.raises(StoreCorrupt, match=f"{segment_name(1)} is missing, and so is a snapshot"):
        Kept(tmp_path)


@pytest.mark.spec("CRD-18")
def test_a_journal_that_lost_its_end_is_refused_once_it_was_marked_as_flushed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    path = tmp_path / segment_name(1)
    short = path.read_bytes()
    kept.put("b")
    kept.mark()
    kept.close()
    path.write_bytes(short)
    with pytest.raises(StoreCorrupt, match="record 2 is gone, and all up to 2 were flushed"):
        Kept(tmp_path)
    kept = Kept(tmp_path, give_up_damage=True)
    assert "record 2 is gone" in (kept.recovery.given_up or "")
    before = kept.close()
    assert recovered(tmp_path) == before


def test_damage_at_the_end_is_given_up_only_when_asked_for_and_kept_beside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    before = view(kept.store)
    kept.put("b")
    kept.mark()
    kept.close()
    path = tmp_path / segment_name(1)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreCorrupt, match="--give-up-damage"):
        Kept(tmp_path)
    kept = Kept(tmp_path, give_up_damage=True)
    assert kept.recovery.given_up is not None
    assert "record 2 cannot be read" in kept.recovery.given_up
    assert kept.recovery.torn_bytes == 0
    assert f"the last {CELL_BYTES} bytes are given up" in caplog.text
    assert path.with_suffix(".damaged").read_bytes() == data
    assert view(kept.store) == before
    kept.put("c")
    before = kept.close()
    assert recovered(tmp_path) == before


def test_only_what_is_not_marked_as_flushed_is_written_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    kept.rotate()
    kept.put("b")
    kept.mark()
    kept.close()
    inodes = {path.name: path.stat().st_ino for path in tmp_path.iterdir()}
    kept = Kept(tmp_path)
    assert kept.recovery.renewed_bytes == 0
    kept.put("c")
    kept.close()
    assert {path.name: path.stat().st_ino for path in tmp_path.iterdir()} == inodes
    kept = Kept(tmp_path)
    assert kept.recovery.renewed_bytes == 3 * CELL_BYTES
    kept.close()
    changed = {path.name for path in tmp_path.iterdir() if path.stat().st_ino != inodes[path.name]}
    assert changed == {segment_name(2)}


def test_what_a_run_without_flushes_wrote_is_written_anew_by_one_with_them(tmp_path: Path) -> None:
    kept = Kept(tmp_path, fsync=False)
    kept.put("a")
    kept.rotate()
    kept.put("b")
    before = kept.close()
    assert recovered(tmp_path) == before
    kept = Kept(tmp_path, fsync=False)
    assert kept.recovery.renewed_bytes == 0
    kept.close()


def test_a_folder_of_the_first_form_is_read_and_brought_into_todays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept(tmp_path)
    kept.put("a")
    before = kept.close()
    made = files(tmp_path)
    facts = json.loads(made["identity.json"])
    record = read_segment(made[segment_name(1)], "", 1, is_last=True).records[0]
    (tmp_path / "journal.mark").unlink()
    (tmp_path / "identity.json").write_text(json.dumps(facts | {"format": 1}))
    (tmp_path / segment_name(1)).write_bytes(first_form(record))
    kept = Kept(tmp_path)
    assert kept.folder.identity.cluster_id == int(facts["cluster_id"], 16)
    assert "was written by an older hansa" in caplog.text
    assert kept.close() == before
    assert files(tmp_path).keys() == made.keys()
    assert files(tmp_path)["identity.json"] == made["identity.json"]
    assert files(tmp_path)[segment_name(1)] == made[segment_name(1)]
    # One that lost its journal is no new one.
    (tmp_path / "journal.mark").unlink()
    (tmp_path / "identity.json").write_text(json.dumps(facts | {"format": 1}))
    (tmp_path / segment_name(1)).unlink()
    with pytest.raises(StoreCorrupt, match=f"{segment_name(1)} is missing"):
        Kept(tmp_path)


def first_form(record: bytes) -> bytes:
    """A segment with one record, as the first hansa wrote it."""
    body = struct.pack("<I", len(record)) + record
    parts = (
        struct.pack("<8sQ", b"HANSAJ1\n", 1),
        struct.pack("<4sQIII", b"\xa7BLK", 1, 1, len(body), crc32(body)),
    )
    return b"".join(part + struct.pack("<I", crc32(part)) for part in parts) + body


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
