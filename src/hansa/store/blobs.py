"""Blobs: byte strings too large for one value of a store, in pieces, checked by their hash, on every engine.

A blob's name is the hash of its data, its size and a random nonce: two puts of the same data are two blobs,
and deleting one does not break references to the other. Pieces of `BLOB_PIECE_BYTES` are below the name, one
key each, on no lease. They are written one after the other, the last one in a transaction that compares that
all others are there. So the last piece stands for the whole blob: `guard` compares it, in the transaction
that writes a reference.

A process that puts a blob may die before anybody refers to it, and a process that deletes a reference may die
before it deletes the blob. So `sweep` deletes blobs that are older than a lifetime, except those that its
caller keeps. The store says what is older (`ages`), and no machine's clock. A blob is as old as its newest
piece, and is deleted in a transaction that compares all its pieces, also the missing ones. So a put that is
under way ends either before the sweep, which then leaves the blob alone, or after it, and is refused.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from hansa.errors import (
    BadArgument,
    Conflict,
    LimitExceeded,
    NotThere,
    StoreCorrupt,
    StoreUnavailable,
    StoreWentBack,
    TimedOut,
)
from hansa.keys import Keys
from hansa.limits import (
    BLOB_BYTES_MAX,
    BLOB_LIFETIME_S,
    BLOB_PIECE_BYTES,
    BLOB_READ_COUNT,
    BLOB_TIMEOUT_S,
    BLOBS_SWEPT_COUNT_MAX,
    STORE_RETRY_JITTER,
    STORE_RETRY_S_MAX,
    STORE_RETRY_S_MIN,
    STORE_SCAN_PART_COUNT,
    STORE_TIMEOUT_S,
)
from hansa.runtime.backoff import Backoff
from hansa.store.ages import Ages
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, Put, prefix_range
from hansa.transport.environment import Environment

_NONCE_BYTES: Final = 8
_NAME: Final = re.compile(r"(?P<digest>[0-9a-f]{64})-(?P<size>0|[1-9][0-9]{0,9})-[0-9a-f]{16}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A blob in the store. `revisions` are those of its pieces, 0 for a missing piece."""

    name: str
    size: int
    revisions: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all pieces are there. If not, its put is still under way, or was broken off."""
        return 0 not in self.revisions

    @property
    def revision(self) -> int:
        """The revision of its newest piece."""
        return max(self.revisions)


class Blobs:
    """The blobs of a cluster in one of its spaces: byte strings of up to 16 MiB, which are on no lease.

    A program that keeps references to blobs uses a `space` of its own for them, because a sweep deletes all
    blobs of its space that it is not told to keep; hansa's own are in the space "handed". Every call ends by
    its deadline, as those of a `Store` do. Names are those that `put` returned; others raise `BadArgument`.
    """

    def __init__(
        self,
        store: Store,
        *,
        cluster: str = "default",
        space: str = "default",
        environment: Environment | None = None,
    ) -> None:
        self._store = store
        keys = Keys(cluster)
        self._prefix = keys.blobs(space)
        self._ages = Ages(store, keys.blob_sweep(space))
        self._key_of = partial(keys.blob, space)
        self._environment = environment or Environment()

    async def put(self, data: bytes, *, timeout: float | None = BLOB_TIMEOUT_S) -> str:
        """Store the data; returns the name of the new blob, which stays until it is deleted or swept.

        A piece whose answer was lost is written again. Raises `LimitExceeded` for more than 16 MiB;
        `TimedOut`; `Conflict` when it took longer than a blob lives, and was swept. After an error, and when
        it is cancelled, nobody knows the name, and `sweep` deletes the pieces that are there.
        """
        if not isinstance(data, bytes):
            raise BadArgument(f"a blob is bytes, not {type(data).__name__}")
        if len(data) > BLOB_BYTES_MAX:
            raise LimitExceeded(f"a blob of {len(data)} bytes: it has at most {BLOB_BYTES_MAX}")
        deadline_s = self._deadline_s(timeout)
        hashed = sha256()
        for piece in _pieces(data):
            hashed.update(piece)
            # Hashing all of it at once would stop the event loop for some ten milliseconds.
            await asyncio.sleep(0)
        nonce = self._environment.chance.token(_NONCE_BYTES)
        name = f"{hashed.hexdigest()}-{len(data)}-{nonce.hex()}"
        *others, last = self._piece_keys(name)
        for key, piece in zip((*others, last), _pieces(data), strict=True):
            before = [Compare.exists(other) for other in others] if key == last else []
            if not await self._write(before, Put(key, piece), name, deadline_s):
                raise Conflict(f"blob {name} was swept before it was whole; put it again")
        return name

    async def get(self, name: str, *, timeout: float | None = BLOB_TIMEOUT_S) -> bytes:
        """The data. Raises `NotThere` when it was deleted or swept, `StoreCorrupt` when it is damaged."""
        deadline_s = self._deadline_s(timeout)
        digest, size = _parsed(name)
        start, end = prefix_range(self._key_of(name))
        hashed, pieces, found_bytes, more = sha256(), list[bytes](), 0, True
        # Read no more than the blob can have, whatever else is there.
        while more and found_bytes <= size:
            part = await self._store.scan(start, end, limit=BLOB_READ_COUNT, timeout=self._left_s(deadline_s))
            for item in part.items:
                hashed.update(item.value)
                pieces.append(item.value)
                found_bytes += len(item.value)
                start = item.key + b"\0"
            more = part.more
        if found_bytes == size and hashed.hexdigest() == digest:
            return b"".join(pieces)
        # It may have been deleted between two of the reads.
        start, end = prefix_range(self._key_of(name))
        left = await self._store.scan(start, end, limit=1, keys_only=True, timeout=self._left_s(deadline_s))
        if not left.items:
            raise NotThere(f"blob {name} is not there: it was deleted, or swept at the end of its lifetime")
        raise StoreCorrupt(
            f"blob {name} is damaged: {found_bytes} bytes of {size} are there, and their hash is"
            f" {hashed.hexdigest()}; delete it, and what refers to it"
        )

    async def delete(self, name: str, *, timeout: float | None = STORE_TIMEOUT_S) -> bool:
        """Delete a blob, whole, in one revision; returns whether any of it was there."""
        _parsed(name)
        return await self._store.delete_prefix(self._key_of(name), timeout=timeout) > 0

    def deletion(self, name: str) -> Delete:
        """The same as an operation, for the transaction that replaces or deletes the reference."""
        _parsed(name)
        return Delete(*prefix_range(self._key_of(name)))

    def guard(self, name: str) -> Compare:
        """A compare that the blob is there, whole: for the transaction that writes a reference to it."""
        return Compare.exists(self._piece_keys(name)[-1])

    async def all(self, *, timeout: float | None = BLOB_TIMEOUT_S) -> tuple[Blob, ...]:
        """All blobs, in the order of their names, also those that are not whole."""
        deadline_s = self._deadline_s(timeout)
        start, end = prefix_range(self._prefix)
        found: dict[str, dict[bytes, int]] = {}
        more = True
        while more:
            part = await self._store.scan(
                start, end, limit=STORE_SCAN_PART_COUNT, keys_only=True, timeout=self._left_s(deadline_s)
            )
            for item in part.items:
                name = item.key[len(self._prefix) :].partition(b"/")[0].decode("utf-8", "replace")
                found.setdefault(name, {})[item.key] = item.mod_revision
                start = item.key + b"\0"
            more = part.more
        return tuple(blob for name, there in found.items() if (blob := self._blob(name, there)) is not None)

    async def sweep(
        self,
        *,
        older_than: float = BLOB_LIFETIME_S,
        kept: Collection[str] = (),
        timeout: float | None = BLOB_TIMEOUT_S,
    ) -> int:
        """Delete blobs that are older, and not in `kept`; returns how many. Call it now and then.

        A program that refers to blobs for long must name them in `kept`: nobody else knows.

        The first call only begins to measure the time; so a blob is deleted when it is between once and twice
        as old. If callers give different times, the longest one counts. A call deletes a bounded number of
        blobs, the next calls delete the rest. Any number of processes may sweep. Raises `BadRecord` for a
        note that hansa did not write.
        """
        deadline_s = self._deadline_s(timeout)
        age = await self._ages.look(older_than, timeout=self._left_s(deadline_s))
        if age.is_running:
            return 0
        swept_count = 0
        if age.old_revision:
            old = [
                blob
                for blob in await self.all(timeout=self._left_s(deadline_s))
                if blob.revision <= age.old_revision and blob.name not in kept
            ]
            for blob in old[:BLOBS_SWEPT_COUNT_MAX]:
                swept_count += await self._sweep(blob, deadline_s)
            if len(old) > BLOBS_SWEPT_COUNT_MAX:
                return swept_count
        await self._ages.begin(age, older_than, timeout=self._left_s(deadline_s))
        return swept_count

    async def _sweep(self, blob: Blob, deadline_s: float) -> bool:
        as_found = [
            Compare.revision(key, "=", revision)
            for key, revision in zip(self._piece_keys(blob.name), blob.revisions, strict=True)
        ]
        outcome = await self._store.commit(
            as_found, [self.deletion(blob.name)], timeout=self._left_s(deadline_s)
        )
        return outcome.is_success

    async def _write(self, before: list[Compare], put: Put, name: str, deadline_s: float) -> bool:
        """Write a piece, again after a lost answer: writing it twice does no harm. False: refused."""
        backoff = Backoff(
            s_min=STORE_RETRY_S_MIN,
            s_max=STORE_RETRY_S_MAX,
            jitter=STORE_RETRY_JITTER,
            chance=self._environment.chance,
        )
        while True:
            try:
                left_s = max(0.0, deadline_s - self._environment.clock.monotonic())
                outcome = await self._store.commit(before, [put], timeout=min(left_s, STORE_TIMEOUT_S))
                return outcome.is_success
            except StoreWentBack:
                raise
            except (StoreUnavailable, TimedOut) as error:
                pause_s = backoff.next_s()
                if self._environment.clock.monotonic() + pause_s >= deadline_s:
                    raise TimedOut(f"blob {name} is not whole, and nobody knows it: {error}") from error
                await asyncio.sleep(pause_s)

    def _blob(self, name: str, there: Mapping[bytes, int]) -> Blob | None:
        """The blob in these keys; None if they are no blob's."""
        try:
            keys, (_, size) = self._piece_keys(name), _parsed(name)
        except BadArgument:
            return None
        revisions = tuple(there.get(key, 0) for key in keys)
        return Blob(name=name, size=size, revisions=revisions) if any(revisions) else None

    def _piece_keys(self, name: str) -> list[bytes]:
        count = max(1, -(-_parsed(name)[1] // BLOB_PIECE_BYTES))
        prefix = self._key_of(name)
        return [prefix + b"%04d" % index for index in range(count)]

    def _deadline_s(self, timeout: float | None) -> float:
        return math.inf if timeout is None else self._environment.clock.monotonic() + timeout

    def _left_s(self, deadline_s: float) -> float | None:
        return None if deadline_s == math.inf else max(0.0, deadline_s - self._environment.clock.monotonic())


def _pieces(data: bytes) -> Iterator[bytes]:
    """At least one piece, so that an empty blob is there too."""
    for start in range(0, max(1, len(data)), BLOB_PIECE_BYTES):
        yield data[start : start + BLOB_PIECE_BYTES]


def _parsed(name: str) -> tuple[str, int]:
    """The hash and the size in a name. Raises `BadArgument`."""
    found = _NAME.fullmatch(name) if isinstance(name, str) else None
    if found is None or int(found["size"]) > BLOB_BYTES_MAX:
        raise BadArgument(f"blob {name!r:.100}: give a name that put() gave")
    return found["digest"], int(found["size"])
