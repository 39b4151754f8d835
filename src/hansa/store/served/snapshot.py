"""A whole store as one file: what a start begins with, so that the journal before it can go. Pure.

    head      magic, sequence, revision, compacted revision, revision before the log, four counts
    leaps     revisions that starts leapt over before the log: the first, and the one that was leapt to
    leases    number, granted seconds
    keys      as they were before the log's first change
    log       every revision that is remembered, as the journal writes it
    tail      bytes before it, crc of them

The log is in it because watchers resume from it: a start must not forget what the store remembered.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from hansa.errors import HansaError, StoreCorrupt
from hansa.store.served.recorded import Image, RecordedStore
from hansa.store.served.records import Begun, Committed, decode_record, encode_record, record_of
from hansa.store.values import KeyValue

MAGIC: Final = b"HANSAS2\n"
# The form before it, which is only read: it has no leaps.
FIRST_MAGIC: Final = b"HANSAS1\n"

_HEAD: Final = struct.Struct("<8sQQQQQQQQ")
_FIRST_HEAD: Final = struct.Struct("<8sQQQQQQQ")
_LEAP: Final = struct.Struct("<QQ")
_LEASE: Final = struct.Struct("<qd")
_ITEM: Final = struct.Struct("<IIQQQq")  # bytes of key and value, created, modified, version, lease
_LENGTH: Final = struct.Struct("<I")
_TAIL: Final = struct.Struct("<QI")
# Small pieces are joined before they are given out: a write each would cost more than the rest.
_CHUNK_BYTES: Final = 1024 * 1024


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

    def begin(self, store: RecordedStore, *, now: float) -> None:
        """Set an empty store up as it was. Raises `StoreCorrupt`."""
        store.begin(
            self.base,
            self.log,
            self.leases,
            base_revision=self.base_revision,
            compacted_revision=self.compacted_revision,
            leaps=self.leaps,
            now=now,
        )
        if store.revision != self.revision:
            raise StoreCorrupt(f"a snapshot of revision {self.revision} led to {store.revision}")


def snapshot_name(sequence: int) -> str:
    """The file of the snapshot that has everything up to this record; in the order of names."""
    return f"snapshot-{sequence:020d}.snap"


def encode_snapshot(image: Image, sequence: int) -> Iterator[bytes]:
    """The file's bytes, in chunks. Long: meant for a thread."""
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
    if size < _FIRST_HEAD.size or not data.startswith((MAGIC, FIRST_MAGIC)):
        raise StoreCorrupt(f"{name} is no whole snapshot: {len(data)} bytes")
    if _TAIL.unpack_from(data, size) != (size, crc32(memoryview(data)[:size])):
        raise StoreCorrupt(f"{name} is damaged: its {size} bytes are not those that were written")
    try:
        return _decode(data, size)
    except (struct.error, ValueError, HansaError) as error:
        raise StoreCorrupt(f"{name} cannot be read: {error}") from error


def _pieces(image: Image, sequence: int) -> Iterator[bytes]:
    base = image.base()
    yield _HEAD.pack(
        MAGIC,
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
        yield _LEASE.pack(lease, ttl_s)
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
    head = _FIRST_HEAD if data.startswith(FIRST_MAGIC) else _HEAD
    _, sequence, revision, compacted, base_revision, leases, items, batches, *leapt = head.unpack_from(data)
    place = head.size
    leaps: list[tuple[int, int]] = []
    for _ in range(leapt[0] if leapt else 0):
        leaps.append(_LEAP.unpack_from(data, place))
        place += _LEAP.size
    granted: list[tuple[int, float]] = []
    for _ in range(leases):
        granted.append(_LEASE.unpack_from(data, place))
        place += _LEASE.size
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
