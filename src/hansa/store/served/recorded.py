"""The store as a machine that returns every change as a record, and is restored by replaying them. Pure.

Calls act at once and leave records behind. The driver takes them (`taken`) and writes them down; before they
are safe it tells nobody what a call did or saw. So watchers are not part of this machine: they read what is
safe, and the driver says how far that is.

    state = replay of all records, in order = image + replay of the records behind it

`RestorableKeys` and `RestorableLeases` are the keys and leases of every store, which can also be written down
and set up again as they were.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hansa.chance import Chance
from hansa.errors import BadArgument, HansaError, LeaseLost, StoreCorrupt, StoreUnavailable
from hansa.limits import STORE_LEAPS_MAX, STORE_LIVE_BYTES_MAX, STORE_REVISIONS_PER_S_MAX, STORE_STALL_S
from hansa.store.leases import Leases
from hansa.store.mvcc import FIRST_REVISION, OVERHEAD_BYTES, Mvcc
from hansa.store.served.records import (
    Begun,
    Change,
    Committed,
    CompactedAt,
    Image,
    LeaseEnded,
    LeaseGranted,
    Record,
    StoredSnapshot,
    record_of,
)
from hansa.store.values import (
    Event,
    EventKind,
    Get,
    KeyValue,
    LeaseInfo,
    Operation,
    Outcome,
    Put,
    Scan,
    WatchBatch,
)


@dataclass(frozen=True, slots=True)
class Told:
    """A change: its record, and the batch for watchers, if there is one."""

    record: Record
    batch: WatchBatch | None = None


class RestorableKeys(Mvcc):
    """`Mvcc`, whose past can be written down."""

    @property
    def first_logged_revision(self) -> int:
        """The revision of the first change that is remembered, or of the next one to come."""
        return self._log[0].revision if self._log else self._revision + 1

    def live_items(self) -> list[KeyValue]:
        """All keys as they are now. One copy, in no order: quick enough for an event loop."""
        return list(self._live.values())

    def whole_log(self) -> Sequence[WatchBatch]:
        """A copy of all changes that are remembered."""
        return tuple(self._log)

    def old_leaps(self) -> tuple[tuple[int, int], ...]:
        """The leaps from before the log begins: later ones are found in the log."""
        return tuple(leap for leap in self._leaps if leap[1] <= self.first_logged_revision)

    def restore(
        self, items: Iterable[KeyValue], revision: int, leaps: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Begin with these keys, as of a revision, and no past. Raises `StoreCorrupt`."""
        if self._revision != FIRST_REVISION or self._live or revision < FIRST_REVISION:
            raise StoreCorrupt(f"a snapshot cannot begin at revision {revision}")
        self._live = {item.key: item for item in items}
        self._past = {key: [item] for key, item in self._live.items()}
        for key in sorted(self._live):
            self._live_keys.add(key)
            self._past_keys.add(key)
        self._revision = revision
        self._leaps = list(leaps)

    def replay(self, record: Committed) -> WatchBatch:
        """Make the changes of a revision again. Raises `StoreCorrupt` if they do not fit."""
        if record.revision != self._revision + 1 or not record.changes:
            raise StoreCorrupt(f"revision {record.revision} was written behind {self._revision}")
        events: list[Event] = []
        for change in record.changes:
            self._replay_change(change, events)
        batch = self._close_revision(events)
        assert batch is not None
        return batch

    def begin_run(self, revision: int) -> None:
        """Leap to a revision, at which nothing changes. Raises `StoreCorrupt` unless it is ahead."""
        if revision <= self._revision:
            raise StoreCorrupt(f"a run began at revision {revision}, behind {self._revision}")
        if revision > self._revision + 1:
            self._leaps.append((self._revision + 1, revision))
            del self._leaps[:-STORE_LEAPS_MAX]
        self._revision = revision
        self._append(WatchBatch(revision=revision, events=()))

    def restore_compaction(self, oldest: int) -> None:
        """Forget again what was forgotten, unless that has happened by itself. Raises `StoreCorrupt`."""
        if oldest > self._revision:
            raise StoreCorrupt(f"revision {self._revision} was written as compacted at {oldest}")
        if oldest > self._compacted_revision:
            self.compact(oldest)

    def _replay_change(self, change: Change, events: list[Event]) -> None:
        if change.value is not None:
            self._put(Put(change.key, change.value, change.lease), events)
        elif change.key in self._live:
            self._delete(change.key, events)
        else:
            raise StoreCorrupt(f"{change.key!r} was deleted, and was not there")


class RestorableLeases(Leases):
    """`Leases`, whose numbers and times can be written down."""

    def due(self, *, now: float) -> int | None:
        """The lease whose time is over, the first to end first; None while none is."""
        deadline_s = self.deadline()
        return self._line[0][2] if deadline_s is not None and deadline_s <= now else None

    def granted(self) -> list[tuple[int, float]]:
        """Every lease, and what it was granted for, the oldest first."""
        return [(lease, found.ttl_s) for lease, found in self._leases.items()]

    def hang(self, items: Iterable[KeyValue]) -> None:
        """Attach the keys to their leases, all of which must exist. Raises `StoreCorrupt`."""
        on_leases = [item for item in items if item.lease]
        for item in on_leases:
            if item.lease not in self._leases:
                raise StoreCorrupt(f"{item.key!r} hangs on lease {item.lease:x}, which is not there")
        self.follow(
            WatchBatch(revision=0, events=tuple(Event(kind=EventKind.PUT, item=item) for item in on_leases))
        )


def image_of(keys: RestorableKeys, leases: RestorableLeases) -> Image:
    """A copy of both as they are now."""
    return Image(
        revision=keys.revision,
        compacted_revision=keys.compacted_revision,
        first_logged_revision=keys.first_logged_revision,
        leaps=keys.old_leaps(),
        items=keys.live_items(),
        log=keys.whole_log(),
        leases=leases.granted(),
    )


def set_up(keys: RestorableKeys, leases: RestorableLeases, snapshot: StoredSnapshot, *, now: float) -> None:
    """Restore both from nothing. Leases have their whole time. Raises `StoreCorrupt`."""
    keys.restore(snapshot.base, snapshot.base_revision, snapshot.leaps)
    for record in snapshot.log:
        if isinstance(record, Begun):
            keys.begin_run(record.revision)
        else:
            keys.replay(record)
    if snapshot.compacted_revision:
        keys.restore_compaction(snapshot.compacted_revision)
    for lease, ttl_s in snapshot.leases:
        leases.grant(lease, ttl_s, now=now)
    leases.hang(keys.live_items())


class RecordedStore:
    """Keys and leases, and the record of every change."""

    def __init__(self, chance: Chance, *, live_bytes_max: int = STORE_LIVE_BYTES_MAX) -> None:
        self._chance = chance
        self._live_bytes_max = live_bytes_max
        self.live_bytes = 0
        """The size of the current keys and values, with the memory around them."""
        self.stalls_count = 0
        """How often the store stood still for longer than a lease."""
        self._keys = RestorableKeys()
        self._leases = RestorableLeases()
        self._told: list[Told] = []

    @property
    def revision(self) -> int:
        return self._keys.revision

    @property
    def compacted_revision(self) -> int:
        return self._keys.compacted_revision

    @property
    def keys_count(self) -> int:
        return len(self._keys)

    def __contains__(self, lease: int) -> bool:
        return lease in self._leases

    def taken(self) -> list[Told]:
        """The changes since the last call, in order."""
        told, self._told = self._told, []
        return told

    def deadline(self) -> float | None:
        """When the next lease expires; None without one."""
        return self._leases.deadline()

    def tick(self, *, now: float) -> None:
        """End the leases whose time is over, each with all its keys in one revision.

        If that was long ago, the store stood still and heard no renewal: then all leases get their whole time
        again, as after a restart.
        """
        deadline_s = self._leases.deadline()
        if deadline_s is not None and now - deadline_s > STORE_STALL_S:
            self.stalls_count += 1
            self._leases.renew_all(now=now)
        while (lease := self._leases.due(now=now)) is not None:
            self._end(lease, is_expired=True)

    # Reading. Expired leases are gone before; callers tick first.

    def get(self, key: bytes, *, revision: int = 0) -> KeyValue | None:
        """See `Mvcc.get`."""
        return self._keys.get(key, revision=revision)

    def scan(self, what: Get, *, revision: int = 0) -> Scan:
        """See `Mvcc.scan`."""
        return self._keys.scan(what, revision=revision)

    def log(self, start_revision: int, count_max: int) -> Sequence[WatchBatch]:
        """See `Mvcc.log`."""
        return self._keys.log(start_revision, count_max)

    def can_resume(self, start_revision: int) -> bool:
        """See `Mvcc.can_resume`."""
        return self._keys.can_resume(start_revision)

    def lease_info(self, lease: int, *, now: float) -> LeaseInfo | None:
        """See `Leases.info`."""
        return self._leases.info(lease, now=now)

    def leases(self) -> list[int]:
        """The numbers of all leases, the oldest first."""
        return [lease for lease, _ in self._leases.granted()]

    # Changing.

    def perform(self, operations: Sequence[Operation]) -> tuple[Outcome, WatchBatch | None]:
        """Carry out all operations in one revision.

        Raises `BadArgument`, `LeaseLost`, `StoreUnavailable` (full).
        """
        wanted = sum(map(_item_bytes, (op for op in operations if isinstance(op, Put))))
        if wanted and self.live_bytes + wanted > self._live_bytes_max:
            raise StoreUnavailable(f"the store holds {self.live_bytes} bytes and takes no more: delete some")
        outcome, batch = self._keys.commit((), operations, (), self._leases)
        if batch is not None:
            self._follow(batch)
            self._told.append(Told(record_of(batch), batch))
        return outcome, batch

    def compact(self, revision: int) -> None:
        """See `Mvcc.compact`."""
        self._keys.compact(revision)
        self._told.append(Told(CompactedAt(revision=self.revision, oldest=revision)))

    def grant(self, ttl_s: float, lease: int = 0, *, now: float) -> int:
        """A new lease, under this number or one that nobody can guess.

        Raises `BadArgument` (also for a number that is taken), `StoreUnavailable`.
        """
        number = lease or self._leases.free_number(self._chance)
        if number in self._leases:
            raise BadArgument(f"lease {number} is granted already")
        self._leases.grant(number, ttl_s, now=now)
        self._told.append(Told(LeaseGranted(revision=self.revision, lease=number, ttl_s=ttl_s)))
        return number

    def renew(self, lease: int, *, now: float) -> float:
        """See `Leases.renew`."""
        return self._leases.renew(lease, now=now)

    def revoke(self, lease: int) -> None:
        """End a lease with all its keys, in one revision. Raises `LeaseLost`."""
        self._end(lease, is_expired=False)

    # Writing down and restoring.

    def begin_run(self, *, wall_s: float) -> None:
        """A start: continue from a revision that no run before it can have issued.

        Also no run whose changes are lost: the start may be from an older copy of the folder, or from memory
        alone. So revisions, and the fences that are made of them, grow over every restore, as long as the
        machine's date does not go back behind a run that was lost.
        """
        beyond = self.revision + (self.revision > FIRST_REVISION)
        revision = max(beyond, int(wall_s * STORE_REVISIONS_PER_S_MAX))
        if revision > self.revision:
            self._keys.begin_run(revision)
            self._told.append(Told(Begun(revision=revision)))

    def image(self) -> Image:
        """The whole store as it is now."""
        return image_of(self._keys, self._leases)

    def begin(self, snapshot: StoredSnapshot, *, now: float) -> None:
        """Restore an empty store. Leases get their whole time again. Raises `StoreCorrupt`."""
        set_up(self._keys, self._leases, snapshot, now=now)
        self.live_bytes = sum(map(_item_bytes, self._keys.live_items()))
        if self.revision != snapshot.revision:
            raise StoreCorrupt(f"a snapshot of revision {snapshot.revision} led to {self.revision}")

    def replay(self, record: Record, *, now: float) -> None:
        """Make a change again. Raises `StoreCorrupt` if it does not fit what was before it."""
        try:
            self._replay(record, now)
        except StoreCorrupt:
            raise
        except (HansaError, KeyError) as error:
            raise StoreCorrupt(f"a change cannot be made again: {error}") from error
        if self.revision != record.revision:
            raise StoreCorrupt(f"a change led to revision {self.revision}, and once to {record.revision}")

    def _replay(self, record: Record, now: float) -> None:
        if isinstance(record, Committed):
            self._follow(self._keys.replay(record))
        elif isinstance(record, LeaseGranted):
            if record.lease in self._leases:
                raise StoreCorrupt(f"lease {record.lease:x} was granted twice")
            self._leases.grant(record.lease, record.ttl_s, now=now)
        elif isinstance(record, LeaseEnded):
            batch = self._keys.remove(self._leases.revoke(record.lease))
            if batch is not None:
                self._follow(batch)
        elif isinstance(record, Begun):
            self._keys.begin_run(record.revision)
        else:
            self._keys.restore_compaction(record.oldest)

    def _end(self, lease: int, *, is_expired: bool) -> None:
        if lease not in self._leases:
            raise LeaseLost(f"there is no lease {lease}: it expired, was revoked, or never was")
        batch = self._keys.remove(self._leases.revoke(lease))
        if batch is not None:
            self._follow(batch)
        record = LeaseEnded(revision=self.revision, lease=lease, is_expired=is_expired)
        self._told.append(Told(record, batch))

    def _follow(self, batch: WatchBatch) -> None:
        self._leases.follow(batch)
        for event in batch.events:
            if event.before is not None:
                self.live_bytes -= _item_bytes(event.before)
            if event.kind is EventKind.PUT:
                self.live_bytes += _item_bytes(event.item)


def _item_bytes(item: KeyValue | Put) -> int:
    return OVERHEAD_BYTES + len(item.key) + len(item.value)
