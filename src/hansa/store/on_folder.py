"""The folder in which a store keeps itself: its identity, the journal's segments, and snapshots.

Everything here blocks, and belongs to one thread at a time. The folder is locked while it is open: a second
process that wants it is refused. Damage is found before anything is changed.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, BadArgument, StoreCorrupt, StoreUnavailable
from hansa.store.journal import SEGMENT_HEAD_BYTES, encode_segment_head, read_segment, segment_name
from hansa.store.journal_records import decode_record
from hansa.store.recorded import Image, RecordedStore
from hansa.store.snapshot import Snapshot, decode_snapshot, encode_snapshot, snapshot_name

logger = logging.getLogger(__name__)

_LOCK: Final = "lock"
_IDENTITY: Final = "identity.json"
_FORMAT: Final = 1
_HALF_MADE: Final = ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The numbers under which a store is known, the same for as long as its folder is."""

    cluster_id: int
    member_id: int

    @classmethod
    def draw(cls, chance: Chance) -> Identity:
        return cls(cluster_id=chance.uint64(), member_id=chance.uint64())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a start found: `torn_bytes` were being written when the last run ended, and are cut off."""

    revision: int
    snapshot_revision: int
    records_count: int
    torn_bytes: int


class StoreFolder:
    """An open data folder. `open` it, `recover` once, then `append`."""

    def __init__(self, path: Path, lock: int, identity: Identity, *, fsync: bool) -> None:
        self.path = path
        self.identity = identity
        self._lock = lock
        self._fsync = fsync
        self._segment: int | None = None
        self._closed = False

    @classmethod
    def open(cls, path: str | Path, chance: Chance, *, fsync: bool = True) -> StoreFolder:
        """Lock a folder, which is made if it is not there.

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

    def recover(self, store: RecordedStore, *, now: float) -> Recovery:
        """Bring an empty store to where it was, and be ready for more.

        Raises `StoreCorrupt`, with nothing changed; `BadArgument` when the files cannot be read or written.
        """
        try:
            return self._recover(store, now)
        except OSError as error:
            raise BadArgument(f"the store in {self.path} cannot be read: {error}") from error

    @property
    def next_sequence(self) -> int:
        """The number of the record that is appended next, as of `recover`."""
        return self._next_sequence

    @property
    def journal_bytes(self) -> int:
        """What was read of the journal: a start after a crash takes a snapshot soon."""
        return self._journal_bytes

    def append(self, block: bytes) -> None:
        """Write a block behind the others, and flush it. Raises `OSError`; then nothing more may follow."""
        if self._closed or self._segment is None:
            raise AlreadyClosed(f"the store in {self.path} is closed")
        _write(self._segment, block)
        if self._fsync:
            _flush(self._segment)

    def begin_segment(self, first_sequence: int) -> None:
        """Write what comes from here on into a new file. Raises `OSError`."""
        path = self.path / segment_name(first_sequence)
        segment = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            _write(segment, encode_segment_head(first_sequence))
            if self._fsync:
                os.fsync(segment)
                _flush_folder(self.path)
        except BaseException:
            os.close(segment)
            raise
        if self._segment is not None:
            os.close(self._segment)
        self._segment = segment

    def write_snapshot(self, image: Image, sequence: int) -> int:
        """Keep an image that has everything up to this record, whole or not at all; gives its bytes.

        What it makes needless is deleted then. Raises `OSError`; the store is as safe as before.
        """
        path = self.path / snapshot_name(sequence)
        half_made = path.with_suffix(_HALF_MADE)
        size = 0
        try:
            file = os.open(half_made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                for chunk in encode_snapshot(image, sequence):
                    _write(file, chunk)
                    size += len(chunk)
                if self._fsync:
                    os.fsync(file)
            finally:
                os.close(file)
            half_made.rename(path)
        except OSError:
            with suppress(OSError):
                half_made.unlink(missing_ok=True)
            raise
        if self._fsync:
            _flush_folder(self.path)
        self._clean(sequence)
        return size

    def close(self) -> None:
        """Give the folder up. Closing twice is once."""
        if self._closed:
            return
        self._closed = True
        if self._segment is not None:
            os.close(self._segment)
        os.close(self._lock)

    def _recover(self, store: RecordedStore, now: float) -> Recovery:
        segments = sorted(self.path.glob("journal-*.log"))
        snapshot = self._newest_snapshot([path.name for path in segments])
        sequence, revision = 1, 0
        if snapshot is not None:
            snapshot.begin(store, now=now)
            sequence, revision = snapshot.sequence + 1, snapshot.revision
        elif not segments:
            self._next_sequence, self._journal_bytes = 1, 0
            self.begin_segment(1)
            return Recovery(revision=store.revision, snapshot_revision=0, records_count=0, torn_bytes=0)
        first = sequence
        needed = [path for path in segments if path.name >= segment_name(sequence)]
        if not needed:
            raise StoreCorrupt(f"{self.path / segment_name(sequence)} is missing. Nothing was changed")
        good_bytes = torn_bytes = self._journal_bytes = 0
        for path in needed:
            expected = self.path / segment_name(sequence)
            if path != expected:
                raise StoreCorrupt(f"{expected} is missing: {path.name} comes next. Nothing was changed")
            found = read_segment(path.read_bytes(), str(path), sequence, is_last=path == needed[-1])
            for number, record in enumerate(found.records, sequence):
                try:
                    store.replay(decode_record(record), now=now)
                except StoreCorrupt as error:
                    raise StoreCorrupt(f"{path}, record {number}: {error}. Nothing was changed") from error
            sequence, good_bytes, torn_bytes = found.next_sequence, found.good_bytes, found.torn_bytes
            self._journal_bytes += good_bytes
        self._next_sequence = sequence
        self._go_on(needed[-1], found.first_sequence, good_bytes, torn_bytes)
        self._clean(first - 1)
        return Recovery(
            revision=store.revision,
            snapshot_revision=revision,
            records_count=sequence - first,
            torn_bytes=torn_bytes,
        )

    def _go_on(self, path: Path, first_sequence: int, good_bytes: int, torn_bytes: int) -> None:
        """Append to the last segment, behind what is good of it."""
        if torn_bytes:
            logger.warning(
                "%s: the last %d bytes were being written when the store ended, and nobody was told of them;"
                " they are cut off at byte %d",
                *(path, torn_bytes, good_bytes),
            )
        if good_bytes < SEGMENT_HEAD_BYTES:
            self.begin_segment(first_sequence)
            return
        self._segment = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if torn_bytes:
            os.ftruncate(self._segment, good_bytes)
        if self._fsync:
            # Also what the last run wrote and did not flush: it is read now, and must not vanish later.
            os.fsync(self._segment)

    def _newest_snapshot(self, segments: list[str]) -> Snapshot | None:
        """The newest that can be read; an older one only if the journal behind it is still there."""
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

    def _clean(self, sequence: int) -> None:
        """Delete what the snapshot of this record makes needless, and what was never finished."""
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
        if any(name.endswith((".log", ".snap")) for name in others):
            raise StoreCorrupt(f"{path} is missing beside {others[0]}. Nothing was changed")
        if [name for name in others if not name.endswith(_HALF_MADE)]:
            raise BadArgument(f"{folder} holds something else ({others[0]}): give an empty folder")
        identity = Identity.draw(chance)
        _write_identity(path, identity, fsync=fsync)
    except OSError as error:
        raise BadArgument(f"no store can be kept in {folder}: {error}") from error
    return identity


def _read_identity(path: Path) -> Identity:
    try:
        facts = json.loads(path.read_bytes())
        if facts["format"] != _FORMAT:
            raise BadArgument(f"{path}: the folder has format {facts['format']}; this hansa reads {_FORMAT}")
        return Identity(cluster_id=int(facts["cluster_id"], 16), member_id=int(facts["member_id"], 16))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreCorrupt(f"{path} cannot be read: {error}. Nothing was changed") from error


def _write_identity(path: Path, identity: Identity, *, fsync: bool) -> None:
    facts = {
        "format": _FORMAT,
        "cluster_id": f"{identity.cluster_id:x}",
        "member_id": f"{identity.member_id:x}",
    }
    half_made = path.with_suffix(_HALF_MADE)
    with half_made.open("wb") as file:
        file.write(json.dumps(facts).encode())
        file.flush()
        if fsync:
            os.fsync(file.fileno())
    half_made.rename(path)
    if fsync:
        _flush_folder(path.parent)


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _flush(file: int) -> None:
    # The file's length is flushed with its data; its times need not be. macOS has only the other one.
    getattr(os, "fdatasync", os.fsync)(file)


def _flush_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
