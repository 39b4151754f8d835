"""What a store on disk writes down: every change as a record, and records as bytes. Pure.

A record says what happened, not what was asked: replaying it needs no clock and decides nothing. Each carries
the store's revision after it, so that a replay that goes another way is noticed at once. Renewals of leases
are not written: a start gives every lease its whole time again.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from hansa.errors import StoreCorrupt
from hansa.store.values import Event, EventKind, WatchBatch


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
    """A lease was revoked or expired, and the keys on it went with it, in the same revision."""

    revision: int
    lease: int
    is_expired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedAt:
    """What no read at `oldest` or later sees was forgotten."""

    revision: int
    oldest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The store was started, and goes on from this revision, at which nothing changed."""

    revision: int


Record = Committed | LeaseGranted | LeaseEnded | CompactedAt | Begun

_HEAD: Final = struct.Struct("<BQ")  # kind, revision
_COUNT: Final = struct.Struct("<I")
_CHANGE: Final = struct.Struct("<Iiq")  # bytes of the key, bytes of the value or -1 for deleted, lease
_GRANT: Final = struct.Struct("<qd")
_LEASE: Final = struct.Struct("<q")
_DELETED: Final = -1


def record_of(batch: WatchBatch) -> Committed | Begun:
    """The record of a revision's changes; without any, a run began there."""
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
    """The record that these bytes are, all of them. Raises `StoreCorrupt`."""
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
