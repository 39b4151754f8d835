"""What a store writes to disk: changes as records, the whole store as a snapshot, both as bytes. Pure.

A record says what happened, not what was requested: replaying it needs no clock and decides nothing. Each
carries the store's revision after it, so that a replay with a different result is noticed at once. Renewals
of leases are not written: a start gives every lease its whole time again.

A start begins with a snapshot, so that the journal before it can be deleted:

    head      magic, sequence, revision, compacted revision, revision before the log, four counts
    leaps     revisions that starts leapt over before the log: the first, and the one that was leapt to
    leases    number, granted seconds
    keys      as they were before the log's first change
    log       every revision that is remembered, as the journal writes it
    tail      bytes before it, crc of them

The log is in it because watchers resume from it: a start must not forget what the store remembered.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Final
from zlib import crc32

from hansa.errors import HansaError, StoreCorrupt
from hansa.store.values import Event, EventKind, KeyValue, WatchBatch


class RecordKind(IntEnum):
    """The first byte of a record. Numbers are never used again for something else."""

    COMMITTED = 1
    LEASE_GRANTED = 2
    LEASE_REVOKED = 3
    LEASE_EXPIRED = 4
    COMPACTED = 5
    BEGUN = 6


@dataclass(frozen=True, slots=True)
class Change:
    """A key was put, or deleted (`value` is None)."""

    key: bytes
    value: bytes | None
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """All changes of one revision, in their order."""

    revision: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseGranted:
    """A new lease."""

    revision: int
    lease: int
    ttl_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnded:
    """A lease was revoked or expired, and its keys were deleted in the same revision."""

    revision: int
    lease: int
    is_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedAt:
    """The history that no read at `oldest` or later sees was forgotten."""

    revision: int
    oldest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The store was started, and continues from this revision, at which nothing changed."""

    revision: int


Record = Committed | LeaseGranted | LeaseEnded | CompactedAt | Begun

_HEAD: Final = struct.Struct("<BQ")  # kind, revision
_COUNT: Final = struct.Struct("<I")
_CHANGE: Final = struct.Struct("<Iiq")  # bytes of the key, bytes of the value or -1 for deleted, lease
_GRANT: Final = struct.Struct("<qd")
_LEASE: Final = struct.Struct("<q")
_DELETED: Final = -1


def record_of(batch: WatchBatch) -> Committed | Begun:
    """The record of a revision's changes; without changes, a run began there."""
    if not batch.events:
        return Begun(revision=batch.revision)
    return Committed(revision=batch.revision, changes=tuple(_change_of(event) for event in batch.events))


def encode_record(record: Record) -> bytes:
    """A record as bytes, without any frame around it."""
    if isinstance(record, Committed):
        parts = [_HEAD.pack(RecordKind.COMMITTED, record.revision), _COUNT.pack(len(record.changes))]
        for change in record.changes:
            size = _DELETED if change.value is None else len(change.value)
            parts += (_CHANGE.pack(len(change.key), size, change.lease), change.key, change.value or b"")
        return b"".join(parts)
    if isinstance(record, LeaseGranted):
        return _HEAD.pack(RecordKind.LEASE_GRANTED, record.revision) + _GRANT.pack(record.lease, record.ttl_s)
    if isinstance(record, LeaseEnded):
        kind = RecordKind.LEASE_EXPIRED if record.is_expired else RecordKind.LEASE_REVOKED
        return _HEAD.pack(kind, record.revision) + _LEASE.pack(record.lease)
    if isinstance(record, Begun):
        return _HEAD.pack(RecordKind.BEGUN, record.revision)
    return _HEAD.pack(RecordKind.COMPACTED, record.revision) + _LEASE.pack(record.oldest)


def decode_record(data: bytes) -> Record:
    """The record in these bytes, all of them. Raises `StoreCorrupt`."""
    try:
        number, revision = _HEAD.unpack_from(data)
        kind = RecordKind(number)
        if kind is RecordKind.COMMITTED:
            return Committed(revision=revision, changes=_changes_from(data, _HEAD.size))
        if kind is RecordKind.LEASE_GRANTED:
            _check_size(data, _HEAD.size + _GRANT.size)
            lease, ttl_s = _GRANT.unpack_from(data, _HEAD.size)
            return LeaseGranted(revision=revision, lease=lease, ttl_s=ttl_s)
        if kind is RecordKind.BEGUN:
            _check_size(data, _HEAD.size)
            return Begun(revision=revision)
        _check_size(data, _HEAD.size + _LEASE.size)
        (operand,) = _LEASE.unpack_from(data, _HEAD.size)
    except (struct.error, ValueError) as error:
        raise StoreCorrupt(f"a record of {len(data)} bytes cannot be read: {error}") from error
    if kind is RecordKind.COMPACTED:
        return CompactedAt(revision=revision, oldest=operand)
    return LeaseEnded(revision=revision, lease=operand, is_expired=kind is RecordKind.LEASE_EXPIRED)


def _change_of(event: Event) -> Change:
    if event.kind is EventKind.DELETE:
        return Change(event.item.key, None)
    return Change(event.item.key, event.item.value, event.item.lease)


def _changes_from(data: bytes, place: int) -> tuple[Change, ...]:
    (count,) = _COUNT.unpack_from(data, place)
    place += _COUNT.size
    changes = []
    for _ in range(count):
        key_size, value_size, lease = _CHANGE.unpack_from(data, place)
        place += _CHANGE.size
        key = data[place : place + key_size]
        place += key_size
        value = None
        if value_size != _DELETED:
            value = data[place : place + value_size]
            place += value_size
        changes.append(Change(key, value, lease))
    _check_size(data, place)
    return tuple(changes)


def _check_size(data: bytes, size: int) -> None:
    if len(data) != size:
        raise ValueError(f"it should have {size} bytes")


# ---- the whole store as a snapshot ---------------------------------------------------------------

SNAPSHOT_MAGIC: Final = b"HANSAS2\n"
# The format before it, which is only read: it has no leaps.
FIRST_SNAPSHOT_MAGIC: Final = b"HANSAS1\n"

_SNAPSHOT_HEAD: Final = struct.Struct("<8sQQQQQQQQ")
_FIRST_HEAD: Final = struct.Struct("<8sQQQQQQQ")
_LEAP: Final = struct.Struct("<QQ")
_ITEM: Final = struct.Struct("<IIQQQq")  # bytes of key and value, created, modified, version, lease
_LENGTH: Final = struct.Struct("<I")
_TAIL: Final = struct.Struct("<QI")
# Small pieces are joined before they are returned: one write for each would cost more than the rest.
_CHUNK_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The whole store at one moment. What it refers to does not change any longer: a thread may read it.

    `items` are all current keys. Earlier states of keys that the log changed are found in the log.
    """

    revision: int
    compacted_revision: int
    first_logged_revision: int
    leaps: Sequence[tuple[int, int]]
    items: Sequence[KeyValue]
    log: Sequence[WatchBatch]
    leases: Sequence[tuple[int, float]]

    def stored(self, sequence: int) -> StoredSnapshot:
        """What a snapshot of it holds: everything up to the journal's record `sequence`."""
        return StoredSnapshot(
            sequence=sequence,
            revision=self.revision,
            compacted_revision=self.compacted_revision,
            base_revision=self.first_logged_revision - 1,
            leaps=tuple(self.leaps),
            leases=tuple(self.leases),
            base=tuple(self.base()),
            log=tuple(map(record_of, self.log)),
        )

    def base(self) -> list[KeyValue]:
        """The keys as they were before the first change of the log, in order."""
        found: dict[bytes, KeyValue | None] = {}
        for batch in self.log:
            for event in batch.events:
                found.setdefault(event.item.key, event.before)
        untouched = (item for item in self.items if item.key not in found)
        before = (item for item in found.values() if item is not None)
        return sorted(chain(untouched, before), key=lambda item: item.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """A snapshot as it was read: everything up to the journal's record `sequence` is in it."""

    sequence: int
    revision: int
    compacted_revision: int
    base_revision: int
    leaps: tuple[tuple[int, int], ...]
    leases: tuple[tuple[int, float], ...]
    base: tuple[KeyValue, ...]
    log: tuple[Committed | Begun, ...]


def snapshot_name(sequence: int) -> str:
    """The file name of the snapshot that has everything up to this record; names are in order."""
    return f"snapshot-{sequence:020d}.snap"


def encode_snapshot(image: Image, sequence: int) -> Iterator[bytes]:
    """The file's bytes, in chunks. It takes long: call it in a thread."""
    size, checksum = 0, 0
    chunk: list[bytes] = []
    chunk_bytes = 0
    for piece in _pieces(image, sequence):
        chunk.append(piece)
        chunk_bytes += len(piece)
        if chunk_bytes >= _CHUNK_BYTES:
            data = b"".join(chunk)
            size, checksum = size + len(data), crc32(data, checksum)
            yield data
            chunk, chunk_bytes = [], 0
    data = b"".join(chunk)
    size, checksum = size + len(data), crc32(data, checksum)
    yield data + _TAIL.pack(size, checksum)


def decode_snapshot(data: bytes, name: str) -> StoredSnapshot:
    """The snapshot that a file holds. Raises `StoreCorrupt`, which names the file."""
    size = len(data) - _TAIL.size
    if size < _FIRST_HEAD.size or not data.startswith((SNAPSHOT_MAGIC, FIRST_SNAPSHOT_MAGIC)):
        raise StoreCorrupt(f"{name} is no whole snapshot: {len(data)} bytes")
    if _TAIL.unpack_from(data, size) != (size, crc32(memoryview(data)[:size])):
        raise StoreCorrupt(f"{name} is damaged: its {size} bytes are not those that were written")
    try:
        return _decode(data, size)
    except (struct.error, ValueError, HansaError) as error:
        raise StoreCorrupt(f"{name} cannot be read: {error}") from error


def _pieces(image: Image, sequence: int) -> Iterator[bytes]:
    base = image.base()
    yield _SNAPSHOT_HEAD.pack(
        SNAPSHOT_MAGIC,
        sequence,
        image.revision,
        image.compacted_revision,
        image.first_logged_revision - 1,
        len(image.leases),
        len(base),
        len(image.log),
        len(image.leaps),
    )
    for leap in image.leaps:
        yield _LEAP.pack(*leap)
    for lease, ttl_s in image.leases:
        yield _GRANT.pack(lease, ttl_s)
    for item in base:
        sizes = len(item.key), len(item.value)
        yield _ITEM.pack(*sizes, item.create_revision, item.mod_revision, item.version, item.lease)
        yield item.key
        yield item.value
    for batch in image.log:
        record = encode_record(record_of(batch))
        yield _LENGTH.pack(len(record))
        yield record


def _decode(data: bytes, end: int) -> StoredSnapshot:
    head = _FIRST_HEAD if data.startswith(FIRST_SNAPSHOT_MAGIC) else _SNAPSHOT_HEAD
    _, sequence, revision, compacted, base_revision, leases, items, batches, *leapt = head.unpack_from(data)
    place = head.size
    leaps: list[tuple[int, int]] = []
    for _ in range(leapt[0] if leapt else 0):
        leaps.append(_LEAP.unpack_from(data, place))
        place += _LEAP.size
    granted: list[tuple[int, float]] = []
    for _ in range(leases):
        granted.append(_GRANT.unpack_from(data, place))
        place += _GRANT.size
    base: list[KeyValue] = []
    for _ in range(items):
        key_size, value_size, created, modified, version, lease = _ITEM.unpack_from(data, place)
        start = place + _ITEM.size
        place = start + key_size + value_size
        base.append(
            KeyValue(
                key=data[start : start + key_size],
                value=data[start + key_size : place],
                create_revision=created,
                mod_revision=modified,
                version=version,
                lease=lease,
            )
        )
    log: list[Committed | Begun] = []
    for _ in range(batches):
        (size,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size + size
        record = decode_record(data[place - size : place])
        if not isinstance(record, Committed | Begun):
            raise ValueError("something else than changes is in its log")
        log.append(record)
    if place != end:
        raise ValueError(f"it has {end - place} bytes too many")
    return StoredSnapshot(
        sequence=sequence,
        revision=revision,
        compacted_revision=compacted,
        base_revision=base_revision,
        leaps=tuple(leaps),
        leases=tuple(granted),
        base=tuple(base),
        log=tuple(log),
    )
