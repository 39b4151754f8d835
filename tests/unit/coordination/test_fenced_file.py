"""Guarded storage in a file: old owners are refused, whatever process they are in, and nothing is torn."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hansa.coordination.fencing import FencedFile, decode_file, encode_file
from hansa.errors import BadArgument, NotHeld, StaleFence, StoreCorrupt, StoreUnavailable, TimedOut

# Every process takes under a fence of its own and counts one up; fences come from a file that counts too.
_COUNTER = """
import sys
from hansa.coordination.fencing import FencedFile
from hansa.errors import StaleFence
file, number, count = FencedFile(sys.argv[1], timeout=60), int(sys.argv[2]), int(sys.argv[3])
acknowledged = refused = 0
for turn in range(count):
    fence = turn * 5 + number + 1
    try:
        value = int(file.take(fence) or b"0")
        file.write(fence, b"%d" % (value + 1))
        acknowledged += 1
    except StaleFence:
        refused += 1
print(acknowledged, refused)
"""


@pytest.mark.spec("CRD-10")
def test_a_stale_owner_cannot_write_or_read_to_write(tmp_path: Path) -> None:
    cargo = FencedFile(tmp_path / "cargo")
    assert cargo.read() is None
    assert cargo.take(7) is None
    cargo.write(7, b"salt")
    assert FencedFile(tmp_path / "cargo").take(9) == b"salt"
    with pytest.raises(StaleFence, match=r"fence 7 is stale, fence 9 was raised"):
        cargo.write(7, b"herring")
    with pytest.raises(StaleFence, match=r"fence 8 is stale, fence 9 was raised"):
        cargo.take(8)
    cargo.write(9, b"")
    assert (cargo.take(9), cargo.read()) == (b"", b"")


def test_a_file_stays_as_hidden_as_it_was_made(tmp_path: Path) -> None:
    cargo = FencedFile(tmp_path / "cargo")
    cargo.take(1)
    cargo.path.chmod(0o600)
    cargo.write(1, b"gold")
    assert cargo.path.stat().st_mode & 0o777 == 0o600


def test_who_never_took_it_cannot_write(tmp_path: Path) -> None:
    cargo = FencedFile(tmp_path / "cargo")
    with pytest.raises(NotHeld):
        cargo.write(1, b"")
    cargo.take(1)
    with pytest.raises(NotHeld):
        cargo.write(2, b"")
    for fence in (0, -1):
        with pytest.raises(BadArgument):
            cargo.take(fence)


@pytest.mark.spec("CRD-10")
def test_five_processes_lose_no_acknowledged_update(tmp_path: Path) -> None:
    path, count = tmp_path / "counter", 60
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _COUNTER, str(path), str(number), str(count)], stdout=subprocess.PIPE
        )
        for number in range(5)
    ]
    acknowledged = refused = 0
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        done, stale = map(int, output.split())
        acknowledged, refused = acknowledged + done, refused + stale
    assert acknowledged + refused == 5 * count
    assert int(FencedFile(path).read() or b"0") == acknowledged
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["counter", "counter.lock"]


def test_threads_exclude_each_other_too(tmp_path: Path) -> None:
    cargo = FencedFile(tmp_path / "cargo")
    cargo.take(1)
    threads = [threading.Thread(target=cargo.write, args=(1, b"%d" % number * 10_000)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    value = cargo.take(1)
    assert value is not None
    assert len(set(value)) == 1


def test_one_that_stays_inside_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    cargo = FencedFile(tmp_path / "cargo", timeout=0.05)
    cargo.take(1)
    with open(tmp_path / "cargo.lock", "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(TimedOut, match="inside"):
            cargo.write(1, b"")
    cargo.write(1, b"free again")


def test_damage_is_told_and_never_read(tmp_path: Path) -> None:
    path = tmp_path / "cargo"
    whole = encode_file(7, b"salt and herring")
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes((whole[place] ^ 1,)) + whole[place + 1 :])
        with pytest.raises(StoreCorrupt, match="cargo"):
            FencedFile(path).take(9)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreCorrupt):
            FencedFile(path).read()
    path.write_bytes(whole)
    assert FencedFile(path).take(9) == b"salt and herring"


def test_a_file_is_read_as_it_was_written() -> None:
    for fence, value in ((1, None), (2, b""), (3, b"\n \0"), (2**62, b"x" * 100_000)):
        assert decode_file(encode_file(fence, value), "it") == (fence, value)


def test_what_an_earlier_process_left_unfinished_is_replaced(tmp_path: Path) -> None:
    cargo = FencedFile(tmp_path / "cargo")
    cargo.take(1)
    cargo.write(1, b"salt")
    (tmp_path / "cargo.new").write_bytes(b"half of it")
    assert cargo.take(2) == b"salt"
    assert not (tmp_path / "cargo.new").exists()


def test_a_disk_that_refuses_is_told_as_such(tmp_path: Path) -> None:
    cargo = FencedFile(tmp_path / "nowhere" / "cargo")
    with pytest.raises(StoreUnavailable, match="No such file"):
        cargo.take(1)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(StoreUnavailable, match="directory"):
        FencedFile(folder).take(1)
    with pytest.raises(StoreUnavailable, match="directory"):
        FencedFile(folder).read()


def test_it_is_on_the_disk_before_it_is_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(number: int) -> None:
        calls.append("fsync")
        real_fsync(number)

    def replace(source: Path, target: Path) -> None:
        calls.append("replace")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    cargo = FencedFile(tmp_path / "cargo")
    cargo.take(1)
    assert calls == ["fsync", "replace", "fsync"]
    cargo.take(1)
    assert len(calls) == 3
