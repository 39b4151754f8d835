"""The data folder of a store: its identity, the journal's segments and mark, and snapshots.

Everything here blocks, and belongs to one thread at a time. The folder is locked while it is open: a second
process that wants it is refused. Damage is found before anything is changed.

Every file but the mark and the last segment is made beside its place, flushed, and moved there: it is whole,
or it is not there. The mark, and the files' names, say which files must be there.

Another flush does not repair a flush that failed. The system reports the failure once, may drop what it could
not write, and shows it to every reader until then; a new process would read it, flush again without an error,
and build on something that the disk never had. So a start believes only what the mark says was flushed. Every
segment that has anything behind that is written again, into a new file, flushed, and put in the place of the
old one, before anybody is told of what is in it. If that fails, the start fails.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, BadArgument, StoreCorrupt, StoreUnavailable
from hansa.store.served.journal import (
    MARKS_BYTES,
    FlushMark,
    Segment,
    encode_mark,
    encode_segment_head,
    is_first_form,
    read_marks,
    read_segment,
    renewed,
    segment_name,
)
from hansa.store.served.recorded import RecordedStore
from hansa.store.served.records import (
    Image,
    StoredSnapshot,
    decode_record,
    decode_snapshot,
    encode_snapshot,
    snapshot_name,
)

logger = logging.getLogger(__name__)

_LOCK: Final = "lock"
_IDENTITY: Final = "identity.json"
_MARKS: Final = "journal.mark"
# The first format had no mark, and other segments.
_FIRST_FORMAT: Final = 1
_FORMAT: Final = 2
_GIVEN_UP: Final = ".damaged"
_HALF_MADE: Final = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The numbers under which a store is known; they stay the same as long as its folder."""

    cluster_id: int
    member_id: int
    format: int = _FORMAT
    """The format of its folder."""

    @classmethod
    def draw(cls, chance: Chance) -> Identity:
        return cls(cluster_id=chance.uint64(), member_id=chance.uint64())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The result of a start.

    `torn_bytes` were being written when the last run ended, and are cut off. `given_up` says what was
    damaged, and is cut off because the caller asked for it. `renewed_bytes` were perhaps not on the disk, and
    were written again. `is_after_failure`: the disk refused the last run a write or a flush.
    """

    revision: int
    snapshot_revision: int = 0
    records_count: int = 0
    torn_bytes: int = 0
    given_up: str | None = None
    renewed_bytes: int = 0
    is_after_failure: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _SegmentFile:
    """A segment as it was read: its file, and the bytes that it should have."""

    path: Path
    segment: Segment
    good: bytes
    is_renewed: bool


class StoreFolder:
    """An open data folder. `open` it, `recover` once, then `append`."""

    def __init__(self, path: Path, lock: int, identity: Identity, *, fsync: bool) -> None:
        self.path = path
        self.identity = identity
        self._lock = lock
        self._fsync = fsync
        self._mark = FlushMark()
        self._marks: int | None = None
        self._segment: int | None = None
        self._closed = False
        self.next_sequence = 1
        """The number of the record that is appended next; set by `recover`."""
        self.journal_bytes = 0
        """The size of the journal that was read: a start after a crash takes a snapshot soon."""

    @classmethod
    def open(cls, path: str | Path, chance: Chance, *, fsync: bool = True) -> StoreFolder:
        """Lock a folder, and make it if it is not there.

        Raises `StoreUnavailable` (another process has it), `BadArgument` (something else is in it, or it
        cannot be used), `StoreCorrupt`.
        """
        folder = Path(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadArgument(f"no store can be kept in {folder}: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return cls(folder, lock, _identity(folder, chance, fsync=fsync), fsync=fsync)
        except BlockingIOError as error:
            os.close(lock)
            raise StoreUnavailable(f"{folder} is in use by another process") from error
        except BaseException:
            os.close(lock)
            raise

    def recover(self, store: RecordedStore, *, now: float, give_up_damage: bool = False) -> Recovery:
        """Bring an empty store to its last state, and be ready for more.

        With `give_up_damage` the end of the journal that cannot be read is moved to a file beside it and cut
        off, whoever was told of its contents. Raises `StoreCorrupt` and `BadArgument` (the files cannot be
        read), with nothing changed; `StoreUnavailable` if what must be written at a start cannot be.
        """
        try:
            self._mark = self._read_mark()
            snapshot, files = self._read(store, now, give_up_damage=give_up_damage)
        except OSError as error:
            raise BadArgument(f"the store in {self.path} cannot be read: {error}") from error
        last = files[-1].segment if files else None
        self.next_sequence = 1 if last is None else last.next_sequence
        self.journal_bytes = sum(len(file.good) for file in files)
        is_after_failure = self._mark.is_failed
        try:
            self._settle(files, snapshot)
        except OSError as error:
            raise StoreUnavailable(
                f"the store in {self.path} cannot start: what it read must be written anew, and the disk"
                f" refuses it ({error})"
            ) from error
        return Recovery(
            revision=store.revision,
            snapshot_revision=0 if snapshot is None else snapshot.revision,
            records_count=sum(len(file.segment.records) for file in files),
            torn_bytes=last.cut_bytes if last is not None and last.damage is None else 0,
            given_up=None if last is None else last.damage,
            renewed_bytes=sum(len(file.good) for file in files if file.is_renewed),
            is_after_failure=is_after_failure,
        )

    def append(self, block: bytes) -> None:
        """Append a block, and flush it. Raises `OSError`; then nothing more may be appended."""
        if self._closed or self._segment is None:
            raise AlreadyClosed(f"the store in {self.path} is closed")
        write(self._segment, block)
        if self._fsync:
            flush(self._segment)

    def mark_flushed(self, sequence: int) -> None:
        """Write that all records up to this one are flushed. Raises `OSError`, as `append` does."""
        self._write_mark(replace(self._mark, sequence=sequence))

    def mark_failed(self) -> None:
        """Write that the disk failed, if it still can: so that the next start says so."""
        with suppress(OSError):
            self._write_mark(replace(self._mark, is_failed=True))

    def begin_segment(self, first_sequence: int) -> None:
        """Write later records into a new file. All before it is flushed. Raises `OSError`."""
        path = self.path / segment_name(first_sequence)
        make(path, [encode_segment_head(first_sequence)], fsync=self._fsync)
        self._go_on(path)
        flushed = first_sequence - 1 if self._fsync else self._mark.sequence
        self._write_mark(replace(self._mark, segment=first_sequence, sequence=flushed))

    def write_snapshot(self, image: Image, sequence: int) -> int:
        """Keep an image that has everything up to this record, whole or not at all; returns its size.

        Files that it makes needless are deleted then, so it is flushed in any case. Raises `OSError`; the
        store is as safe as before.
        """
        size = make(self.path / snapshot_name(sequence), encode_snapshot(image, sequence), fsync=True)
        self._clean(sequence)
        return size

    def close(self) -> None:
        """Unlock the folder. Closing twice is once."""
        if self._closed:
            return
        self._closed = True
        for file in (self._segment, self._marks, self._lock):
            if file is not None:
                os.close(file)

    # ---- what a start reads: nothing is changed here

    def _read_mark(self) -> FlushMark:
        path = self.path / _MARKS
        if path.exists():
            return read_marks(path.read_bytes(), str(path))
        if self.identity.format != _FIRST_FORMAT:
            raise _missing(path)
        return FlushMark()

    def _read(
        self, store: RecordedStore, now: float, *, give_up_damage: bool
    ) -> tuple[StoredSnapshot | None, list[_SegmentFile]]:
        segments = sorted(self.path.glob("journal-*.log"))
        snapshot = self._newest_snapshot([path.name for path in segments])
        is_new = self._mark.segment == 0 and self.identity.format == _FORMAT
        if is_new and snapshot is None and not segments:
            return None, []
        sequence = 1
        if snapshot is not None:
            store.begin(snapshot, now=now)
            sequence = snapshot.sequence + 1
        needed = [path for path in segments if path.name >= segment_name(sequence)]
        newest = segment_name(max(sequence, self._mark.segment))
        if not needed or needed[-1].name < newest:
            raise _missing(self.path / newest)
        files: list[_SegmentFile] = []
        for path in needed:
            expected = self.path / segment_name(sequence)
            if path != expected:
                instead = "" if files or snapshot else ", and so is a snapshot to begin with"
                raise _missing(expected, f"{instead}: {path.name} comes next")
            file = self._read_segment(path, sequence, is_last=path == needed[-1])
            damage = file.segment.damage
            if damage is not None and not give_up_damage:
                raise StoreCorrupt(
                    f"{damage}. Nothing was changed; restore the folder from a copy, or give up what is there"
                    " with --give-up-damage"
                )
            for number, record in enumerate(file.segment.records, sequence):
                try:
                    store.replay(decode_record(record), now=now)
                except StoreCorrupt as error:
                    raise StoreCorrupt(f"{path}, record {number}: {error}. Nothing was changed") from error
            files.append(file)
            sequence = file.segment.next_sequence
        return snapshot, files

    def _read_segment(self, path: Path, sequence: int, *, is_last: bool) -> _SegmentFile:
        data = path.read_bytes()
        torn_bytes = 0
        is_old = self.identity.format == _FIRST_FORMAT and is_first_form(data)
        if is_old:
            data, torn_bytes = renewed(data, str(path), sequence, is_last=is_last)
        segment = read_segment(data, str(path), sequence, is_last=is_last, flushed=self._mark.sequence)
        is_doubtful = self._fsync and segment.next_sequence - 1 > self._mark.sequence
        return _SegmentFile(
            path=path,
            segment=replace(segment, cut_bytes=segment.cut_bytes + torn_bytes),
            good=data[: segment.good_bytes],
            is_renewed=is_old or is_doubtful or segment.cut_bytes > 0,
        )

    def _newest_snapshot(self, segments: list[str]) -> StoredSnapshot | None:
        """The newest readable snapshot; an older one only if the journal after it is still there."""
        damage: StoreCorrupt | None = None
        for path in sorted(self.path.glob("snapshot-*.snap"), reverse=True):
            try:
                found = decode_snapshot(path.read_bytes(), str(path))
                if snapshot_name(found.sequence) != path.name:
                    raise StoreCorrupt(f"{path} is the snapshot of record {found.sequence}")
            except StoreCorrupt as error:
                logger.error("%s", error)
                damage = damage or error
                continue
            if damage is None or segment_name(found.sequence + 1) in segments:
                return found
        if damage is not None and segment_name(1) not in segments:
            raise StoreCorrupt(f"{damage}. Nothing was changed; restore the folder from a copy") from damage
        return None

    # ---- what a start writes, before anybody is told of anything

    def _settle(self, files: list[_SegmentFile], snapshot: StoredSnapshot | None) -> None:
        """Make sure that what was read is on the disk, and be ready to append after it."""
        for file in files:
            self._tell_cut(file)
            if file.segment.damage is not None:
                make(file.path.with_suffix(_GIVEN_UP), [file.path.read_bytes()], fsync=self._fsync)
            if file.is_renewed:
                make(file.path, [file.good], fsync=self._fsync)
        if not files:
            self._open_marks()
            self.begin_segment(1)
            return
        if self._fsync:
            # Names too: what is deleted below must be needless on the disk, not only here.
            flush_folder(self.path)
        last = files[-1].segment
        self._go_on(files[-1].path)
        self._open_marks()
        flushed = last.next_sequence - 1
        if not self._fsync:
            flushed = min(flushed, self._mark.sequence)
        self._write_mark(replace(self._mark, segment=last.first_sequence, sequence=flushed, is_failed=False))
        if self.identity.format != _FORMAT:
            self.identity = replace(self.identity, format=_FORMAT)
            _write_identity(self.path / _IDENTITY, self.identity, fsync=self._fsync)
            logger.warning("%s was written by an older hansa, and is in today's form now", self.path)
        self._clean(0 if snapshot is None else snapshot.sequence)

    def _tell_cut(self, file: _SegmentFile) -> None:
        segment = file.segment
        if segment.damage is not None:
            logger.error(
                "%s: the last %d bytes are given up, from byte %d and record %d on, as was asked for;"
                " they are kept in %s. %s",
                *(file.path, segment.cut_bytes, segment.good_bytes, segment.next_sequence),
                *(file.path.with_suffix(_GIVEN_UP).name, segment.damage),
            )
        elif segment.cut_bytes:
            logger.warning(
                "%s: the last %d bytes were being written when the store ended, and nobody was told of them;"
                " they are cut off at byte %d",
                *(file.path, segment.cut_bytes, segment.good_bytes),
            )

    # ---- files

    def _go_on(self, path: Path) -> None:
        """Append to this segment from now on."""
        segment = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if self._segment is not None:
            os.close(self._segment)
        self._segment = segment

    def _open_marks(self) -> None:
        path = self.path / _MARKS
        if not path.exists():
            _make_marks(path, fsync=self._fsync)
        self._marks = os.open(path, os.O_WRONLY | os.O_CLOEXEC)

    def _write_mark(self, mark: FlushMark) -> None:
        if self._closed or self._marks is None:
            raise AlreadyClosed(f"the store in {self.path} is closed")
        mark = replace(mark, number=self._mark.number + 1)
        place, data = encode_mark(mark)
        write_at(self._marks, data, place)
        if self._fsync:
            flush_mark(self._marks)
        # Not before: the next mark must not overwrite the last one that is certain.
        self._mark = mark

    def _clean(self, sequence: int) -> None:
        """Delete the files that the snapshot of this record makes needless, and unfinished ones."""
        for path in self.path.iterdir():
            is_old_segment = path.match("journal-*.log") and path.name < segment_name(sequence + 1)
            is_old_snapshot = path.match("snapshot-*.snap") and path.name < snapshot_name(sequence)
            if is_old_segment or is_old_snapshot or path.suffix == _HALF_MADE:
                path.unlink(missing_ok=True)


def _identity(folder: Path, chance: Chance, *, fsync: bool) -> Identity:
    path = folder / _IDENTITY
    try:
        if path.exists():
            return _read_identity(path)
        others = sorted(other.name for other in folder.iterdir() if other.name != _LOCK)
        marks = folder / _MARKS
        was_used = marks.exists() and read_marks(marks.read_bytes(), str(marks)).segment
        if was_used or any(name.endswith((".log", ".snap")) for name in others):
            raise _missing(path, f" beside {others[0]}")
        strangers = [name for name in others if name != _MARKS and not name.endswith(_HALF_MADE)]
        if strangers:
            raise BadArgument(f"{folder} holds something else ({strangers[0]}): give an empty folder")
        identity = Identity.draw(chance)
        # The mark first: a folder with an identity has a mark, so a lost journal is always noticed.
        _make_marks(marks, fsync=fsync)
        _write_identity(path, identity, fsync=fsync)
    except OSError as error:
        raise BadArgument(f"no store can be kept in {folder}: {error}") from error
    return identity


def _read_identity(path: Path) -> Identity:
    try:
        facts = json.loads(path.read_bytes())
        if facts["format"] not in (_FIRST_FORMAT, _FORMAT):
            raise BadArgument(f"{path}: the folder has format {facts['format']}; this hansa reads {_FORMAT}")
        return Identity(
            cluster_id=int(facts["cluster_id"], 16),
            member_id=int(facts["member_id"], 16),
            format=facts["format"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{path} cannot be read: {error}. Nothing was changed") from error


def _write_identity(path: Path, identity: Identity, *, fsync: bool) -> None:
    facts = {
        "format": identity.format,
        "cluster_id": f"{identity.cluster_id:x}",
        "member_id": f"{identity.member_id:x}",
    }
    make(path, [json.dumps(facts).encode()], fsync=fsync)


def _make_marks(path: Path, *, fsync: bool) -> None:
    place, data = encode_mark(FlushMark())
    make(path, [bytes(place), data, bytes(MARKS_BYTES - place - len(data))], fsync=fsync)


def _missing(path: Path, what: str = "") -> StoreCorrupt:
    return StoreCorrupt(
        f"{path} is missing{what}. Nothing was changed; put it back, or restore the folder from a copy"
    )


# ---- how a file is written: a new one is whole or not there, and flushed before anybody relies on it


def make(path: Path, parts: Iterable[bytes], *, fsync: bool) -> int:
    """Make a file, or replace one, whole or not at all; returns its size. Raises `OSError`."""
    half_made = path.with_suffix(_HALF_MADE)
    size = 0
    try:
        file = create(half_made)
        try:
            for part in parts:
                write(file, part)
                size += len(part)
            if fsync:
                flush_new(file)
        finally:
            os.close(file)
        half_made.replace(path)
    except OSError:
        with suppress(OSError):
            half_made.unlink(missing_ok=True)
        raise
    if fsync:
        flush_folder(path.parent)
    return size


def create(path: Path) -> int:
    """Make a new and empty file to write to."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)


def write(file: int, data: bytes) -> None:
    """Append all of the data."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def write_at(file: int, data: bytes, place: int) -> None:
    """Overwrite less than a sector: a disk writes it whole or not at all."""
    os.pwrite(file, data, place)


def flush(file: int) -> None:
    """Flush what was appended."""
    # The file's length is flushed with its data; its times need not be. macOS has only fsync.
    getattr(os, "fdatasync", os.fsync)(file)


def flush_mark(file: int) -> None:
    """Flush what was overwritten."""
    getattr(os, "fdatasync", os.fsync)(file)


def flush_new(file: int) -> None:
    """Flush a whole new file."""
    os.fsync(file)


def flush_folder(path: Path) -> None:
    """Flush the names in a folder."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
