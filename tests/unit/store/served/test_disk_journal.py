"""Nobody is told of what is not flushed; what waits is flushed together; a disk that fails ends it."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansa.errors import AlreadyClosed, FutureRevision, StoreUnavailable
from hansa.store.etcd import api_pb2 as api
from hansa.store.served import disk_journal
from hansa.store.served import folder as store_folder
from hansa.store.served.answers import RequestRefused, answer_put, answer_range
from hansa.store.served.journal import FlushMark, read_marks
from hansa.store.served.recorded import RecordedStore
from hansa.store.served.served_store import ServedStore
from hansa.store.values import Get, Put, prefix_range
from hansa.store.watching import WatchInterest

pytestmark = pytest.mark.usefixtures("undated")


class Disk:
    """The flush of the folder's files, which waits, or fails, as told."""

    def __init__(self) -> None:
        self.flushes_count = 0
        self.errno = 0
        self._is_once = False
        self._may_go = threading.Event()
        self._may_go.set()
        self.began = threading.Event()

    def hold(self) -> None:
        self.began.clear()
        self._may_go.clear()

    def go(self, *, once: bool = False) -> None:
        self._is_once = once
        self._may_go.set()

    def flush(self, file: int) -> None:
        self.flushes_count += 1
        self.began.set()
        self._may_go.wait(30)
        if self._is_once:
            self._may_go.clear()
        if self.errno:
            raise OSError(self.errno, "the disk says no")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    monkeypatch.setattr(store_folder, "flush", disk.flush)
    yield disk
    disk.go()


def put(key: str, value: bytes = b"v") -> api.PutRequest:
    return api.PutRequest(key=key.encode(), value=value)


async def write(served: ServedStore, key: str, value: bytes = b"v") -> None:
    await served.act(lambda store, _: answer_put(store, put(key, value)))


async def count(served: ServedStore, revision: int = 0) -> int:
    def read(store: RecordedStore, at: int) -> int:
        return store.scan(Get(*prefix_range("")), revision=at).count

    return await served.read(read, revision)


async def begun(disk: Disk) -> None:
    while not disk.began.is_set():
        await asyncio.sleep(0.001)


async def test_what_is_not_flushed_is_not_told_to_writers_readers_and_watchers(
    tmp_path: Path, disk: Disk
) -> None:
    async with ServedStore(tmp_path) as served, asyncio.TaskGroup() as group:
        await write(served, "a")
        news: list[str] = []
        watcher = served.watch(WatchInterest(b""), 0, lambda: news.append("news"))
        past = served.watch(WatchInterest(b""), 1, lambda: None)
        disk.hold()
        writing = group.create_task(write(served, "b"))
        await begun(disk)
        seeing = group.create_task(served.act(lambda store, _: store.revision))
        await asyncio.sleep(0)
        assert await count(served) == 1
        assert served.safe_revision == 2
        with pytest.raises(FutureRevision):
            await count(served, 3)
        told = served.take(past)
        assert told is not None
        assert told.revision == 2
        assert served.take(past) is None
        assert not news
        assert served.take(watcher) is None
        assert not writing.done()
        assert not seeing.done()
        disk.go()
        await writing
        assert await seeing == 3
        assert news == ["news"]
        assert await count(served) == 2
        told = served.take(past)
        assert told is not None
        assert told.revision == 3


async def test_all_that_comes_during_a_flush_is_flushed_with_the_next_one(tmp_path: Path, disk: Disk) -> None:
    async with ServedStore(tmp_path) as served, asyncio.TaskGroup() as group:
        disk.hold()
        group.create_task(write(served, "first"))
        await begun(disk)
        writers = [group.create_task(write(served, f"key/{number}")) for number in range(100)]
        await asyncio.sleep(0)
        disk.go()
        await asyncio.wait(writers)
        assert disk.flushes_count == 2
        stats = served.journal_stats
        assert stats is not None
        assert (stats.records_count, stats.flushes_count) == (101, 2)


async def test_changes_are_refused_while_too_much_waits_for_the_disk(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_journal, "STORE_UNFLUSHED_BYTES_MAX", 1_000)
    async with ServedStore(tmp_path) as served, asyncio.TaskGroup() as group:
        disk.hold()
        writing = group.create_task(write(served, "a", bytes(1_000)))
        await begun(disk)
        with pytest.raises(RequestRefused, match="too many requests"):
            await write(served, "b")
        assert await count(served) == 0
        disk.go()
        await writing
        await write(served, "c")
        assert await count(served) == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
async def test_a_disk_that_fails_ends_the_writing_and_not_the_reading(
    tmp_path: Path, disk: Disk, number: int
) -> None:
    async with ServedStore(tmp_path) as served:
        await write(served, "a")
        disk.errno = number
        with pytest.raises(RequestRefused, match=r"request timed out: the journal in .* cannot be") as caught:
            await write(served, "b")
        assert caught.value.status == "UNAVAILABLE"
        disk.errno = 0
        with pytest.raises(StoreUnavailable, match="changes are refused until the store is started again"):
            await write(served, "c")
        assert await count(served) == 1
        assert served.safe_revision == 2
        assert served.failure is not None


def mark_of(folder: Path) -> FlushMark:
    return read_marks((folder / "journal.mark").read_bytes(), "the mark")


async def test_how_far_everything_is_flushed_is_marked_a_moment_later_and_when_it_is_closed(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_journal, "STORE_MARK_S", 0.01)
    async with ServedStore(tmp_path) as served:
        await write(served, "a")
        async with asyncio.timeout(10):
            while mark_of(tmp_path).sequence < 1:
                await asyncio.sleep(0.001)
        monkeypatch.setattr(disk_journal, "STORE_MARK_S", 1_000.0)
        await write(served, "b")
        await write(served, "c")
        assert mark_of(tmp_path).sequence < 3
    assert mark_of(tmp_path).sequence == 3
    async with ServedStore(tmp_path) as served:
        assert served.recovery.renewed_bytes == 0


async def test_a_mark_that_cannot_be_written_ends_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(file: int) -> None:
        raise OSError(errno.EIO, "the disk says no")

    async with ServedStore(tmp_path) as served:
        monkeypatch.setattr(store_folder, "flush_mark", no)
        monkeypatch.setattr(disk_journal, "STORE_MARK_S", 0.0)
        await write(served, "a")
        async with asyncio.timeout(10):
            while served.failure is None:
                await asyncio.sleep(0.001)
        assert await count(served) == 1


@pytest.mark.spec("CRD-18")
async def test_the_start_after_a_disk_that_failed_says_so_and_the_next_one_does_not(
    tmp_path: Path, disk: Disk
) -> None:
    async with ServedStore(tmp_path) as served:
        await write(served, "a")
        disk.errno = errno.EIO
        with pytest.raises(RequestRefused):
            await write(served, "b")
    assert mark_of(tmp_path) == FlushMark(number=mark_of(tmp_path).number, segment=1, is_failed=True)
    disk.errno = 0
    async with ServedStore(tmp_path) as served:
        assert served.recovery.is_after_failure
        assert served.recovery.renewed_bytes > 0
    async with ServedStore(tmp_path) as served:
        assert not served.recovery.is_after_failure


async def test_a_change_that_waits_for_the_disk_is_written_though_its_caller_gave_up(
    tmp_path: Path, disk: Disk
) -> None:
    async with ServedStore(tmp_path) as served:
        disk.hold()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await write(served, "a")
        disk.go()
        await write(served, "b")
        assert await count(served) == 2
    async with ServedStore(tmp_path) as served:
        assert await count(served) == 2
    with pytest.raises(AlreadyClosed):
        await count(served)


async def test_snapshots_are_taken_by_themselves_and_the_store_starts_from_them(tmp_path: Path) -> None:
    async with ServedStore(tmp_path, fsync=False, snapshot_bytes=10_000) as served:
        for number in range(300):
            await write(served, f"key/{number % 7}", b"x" * 100)
        await served.snapshot()
        stats = served.journal_stats
        assert stats is not None
        assert stats.snapshots_count >= 2
        await write(served, "last")
        before = await served.read(lambda store, _: store.log(0, 1_000))
    names = sorted(name.partition("-")[0] for name in os.listdir(tmp_path))
    assert names == ["identity.json", "journal", "journal.mark", "lock", "snapshot"]
    async with ServedStore(tmp_path, fsync=False) as served:
        assert served.recovery.records_count == 1
        assert served.safe_revision == 303
        # And behind it, without any change, the start itself.
        assert await served.read(lambda store, _: store.log(0, 1_000)[:-1]) == before


async def test_a_snapshot_in_the_middle_of_writes_has_each_of_them_once(tmp_path: Path, disk: Disk) -> None:
    async with ServedStore(tmp_path) as served, asyncio.TaskGroup() as group:
        for round_number in range(3):
            disk.hold()
            group.create_task(write(served, f"before/{round_number}"))
            await begun(disk)
            snapshot = group.create_task(served.snapshot())
            group.create_task(write(served, f"with/{round_number}"))
            await asyncio.sleep(0)
            disk.began.clear()
            disk.go(once=True)
            # Now the block that the snapshot follows is flushed. What comes meanwhile is not in it.
            await begun(disk)
            writers = [group.create_task(write(served, f"behind/{number}")) for number in range(20)]
            await asyncio.sleep(0)
            disk.go()
            await asyncio.wait([snapshot, *writers])
        before = await served.read(lambda store, _: store.log(0, 1_000))
    async with ServedStore(tmp_path) as served:
        assert served.recovery.snapshot_revision > 1
        assert await served.read(lambda store, _: store.log(0, 1_000)[:-1]) == before
        assert served.safe_revision == 1 + 3 * 22 + 1


async def test_a_snapshot_that_cannot_be_written_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, "no space")

    async with ServedStore(tmp_path, fsync=False) as served:
        await write(served, "a")
        with monkeypatch.context() as patch:
            patch.setattr(store_folder, "encode_snapshot", no)
            with pytest.raises(StoreUnavailable, match="no snapshot could be written"):
                await served.snapshot()
        await write(served, "b")
        assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]
    async with ServedStore(tmp_path, fsync=False) as served:
        assert await count(served) == 2
        await served.snapshot()
    async with ServedStore(tmp_path, fsync=False) as served:
        assert await count(served) == 2


async def test_a_snapshot_that_fails_for_any_reason_is_not_told_as_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Iterator[bytes]:
        raise RuntimeError("a fault of ours")

    async with ServedStore(tmp_path, fsync=False) as served:
        await write(served, "a")
        monkeypatch.setattr(store_folder, "encode_snapshot", broken)
        with pytest.raises(StoreUnavailable, match="no snapshot was made"):
            await served.snapshot()
    assert "a fault of ours" in str(served.failure)
    monkeypatch.undo()
    async with ServedStore(tmp_path, fsync=False) as served:
        assert await count(served) == 1


async def test_leases_have_their_whole_time_again_after_a_start(tmp_path: Path) -> None:
    async with ServedStore(tmp_path, fsync=False) as served:
        await served.act(lambda store, now: store.grant(100.0, 7, now=now - 99.0))
        await served.act(lambda store, _: store.perform((Put("hung", b"", 7),)))
    async with ServedStore(tmp_path, fsync=False) as served:
        info = await served.act(lambda store, now: store.lease_info(7, now=now))
        assert info is not None
        assert info.ttl_s > 90.0
        assert info.keys == (b"hung",)


async def test_a_lease_ends_by_itself_and_stays_ended(tmp_path: Path) -> None:
    async with ServedStore(tmp_path, fsync=False) as served:
        await served.act(lambda store, now: store.grant(0.05, 7, now=now))
        await served.act(lambda store, _: store.perform((Put("hung", b"", 7),)))
        gone = asyncio.Event()
        served.watch(WatchInterest(b"hung", True), 0, gone.set)
        await asyncio.wait_for(gone.wait(), 10)
        assert await count(served) == 0
    async with ServedStore(tmp_path, fsync=False) as served:
        assert await count(served) == 0
        assert 7 not in served.state


async def test_a_read_waits_for_a_compaction_beyond_the_safe_revision(tmp_path: Path, disk: Disk) -> None:
    async with ServedStore(tmp_path) as served, asyncio.TaskGroup() as group:
        await write(served, "a")
        disk.hold()
        group.create_task(write(served, "b"))
        group.create_task(served.act(lambda store, _: store.compact(store.revision)))
        await begun(disk)
        await asyncio.sleep(0)
        reading = group.create_task(
            served.read(
                lambda store, at: answer_range(store, api.RangeRequest(key=b"a", range_end=b"z"), revision=at)
            )
        )
        await asyncio.sleep(0)
        assert not reading.done()
        disk.go()
        assert (await reading).count == 2
