"""The age of a store's keys, measured by the store's leases alone and by no machine's clock.

A look notes the store's revision, and then asks the store for a lease as long as a lifetime. Once that lease
has ended, everything written up to that revision is older than the lifetime, whoever looks then. A store that
went back in time has taken the note back with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from hansa.errors import BadArgument, BadRecord
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.store import Store
from hansa.store.values import Compare, Get, KeyValue, Put, as_lease, as_revision


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The result of a look: all up to `old_revision` is older; 0 while the time still runs.

    `now_revision` is the store's at the look, `note_revision` that of the note, for `Ages.begin`.
    """

    old_revision: int
    is_running: bool
    now_revision: int
    note_revision: int


class Ages:
    """Finds what is older than a lifetime, by a note in one key. Any number of processes may share a note."""

    def __init__(self, store: Store, key: bytes) -> None:
        self._store = store
        self._key = key

    async def look(self, older_than: float, *, timeout: float | None = STORE_TIMEOUT_S) -> Age:
        """What is older than this many seconds. If callers give different times, the longest one counts.

        Raises `BadRecord` for a note that hansa did not write, and as the store does.
        """
        read = await self._store.commit((), [Get(self._key)], timeout=timeout)
        item = next(iter(read.items), None)
        note_revision = 0 if item is None else item.mod_revision
        old_revision, is_running = 0, False
        if item is not None and (note := _Note.decode(item)).older_than_s >= older_than:
            is_running = await self._store.lease_info(note.lease, timeout=timeout) is not None
            old_revision = 0 if is_running else note.revision
        return Age(
            old_revision=old_revision,
            is_running=is_running,
            now_revision=read.revision,
            note_revision=note_revision,
        )

    async def begin(self, age: Age, older_than: float, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """Begin to measure the time again, unless another caller did meanwhile."""
        # Granted after the revision was read: when the lease ends, all up to that revision is older.
        lease = await self._store.grant(older_than, timeout=timeout)
        begun = _Note(lease=lease, revision=age.now_revision, older_than_s=older_than)
        same = Compare.revision(self._key, "=", age.note_revision)
        outcome = await self._store.commit([same], [Put(self._key, begun.encode())], timeout=timeout)
        if not outcome.is_success:
            await self._store.revoke(lease, timeout=timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    lease: int
    revision: int
    older_than_s: float

    def encode(self) -> bytes:
        found = {"lease": self.lease, "revision": self.revision, "olderThanS": self.older_than_s}
        return json.dumps(found, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, item: KeyValue) -> _Note:
        """Raises `BadRecord`."""
        try:
            found = json.loads(item.value)
            return cls(
                lease=as_lease(found["lease"]),
                revision=as_revision(found["revision"]),
                older_than_s=float(found["olderThanS"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError, BadArgument) as error:
            raise BadRecord(
                f"{item.key!r} is no note of a sweep: {item.value[:100]!r}; delete it, and sweeps begin anew"
            ) from error
