"""Keys and leases that can be taken down and set up again as they were."""

from collections.abc import Iterable, Sequence

from hansa.errors import StoreCorrupt
from hansa.store.journal_records import Begun, Change, Committed
from hansa.store.leases import Leases
from hansa.store.mvcc import FIRST_REVISION, Mvcc
from hansa.store.values import Event, EventKind, KeyValue, Put, WatchBatch


class RestorableKeys(Mvcc):
    """`Mvcc`, and its past as something to write down."""

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

    def restore(self, items: Iterable[KeyValue], revision: int) -> None:
        """Begin with these keys, as of a revision, and no past. Raises `StoreCorrupt`."""
        if self._revision != FIRST_REVISION or self._live or revision < FIRST_REVISION:
            raise StoreCorrupt(f"a snapshot cannot begin at revision {revision}")
        self._live = {item.key: item for item in items}
        self._past = {key: [item] for key, item in self._live.items()}
        for key in sorted(self._live):
            self._live_keys.add(key)
            self._past_keys.add(key)
        self._revision = revision

    def replay(self, record: Committed) -> WatchBatch:
        """Make the changes of a revision once more. Raises `StoreCorrupt` if they do not fit."""
        if record.revision != self._revision + 1 or not record.changes:
            raise StoreCorrupt(f"revision {record.revision} was written behind {self._revision}")
        events: list[Event] = []
        for change in record.changes:
            self._replay_change(change, events)
        batch = self._close_revision(events)
        assert batch is not None
        return batch

    def begin_run(self, revision: int) -> None:
        """Leap to a revision, at which nothing changes. Raises `StoreCorrupt` for a leap that is none."""
        if revision <= self._revision:
            raise StoreCorrupt(f"a run began at revision {revision}, behind {self._revision}")
        self._revision = revision
        self._append(WatchBatch(revision=revision, events=()))

    def restore_compaction(self, oldest: int) -> None:
        """Forget what was forgotten, unless that has happened by itself. Raises `StoreCorrupt`."""
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
    """`Leases`, with their numbers."""

    def due(self, *, now: float) -> int | None:
        """The lease whose time is over, the first to end first; None while none is."""
        deadline_s = self.deadline()
        return self._line[0][2] if deadline_s is not None and deadline_s <= now else None

    def granted(self) -> list[tuple[int, float]]:
        """Every lease, and what it was granted for, the oldest first."""
        return [(lease, found.ttl_s) for lease, found in self._leases.items()]

    def hang(self, items: Iterable[KeyValue]) -> None:
        """Hang the keys on their leases, all of which must be there. Raises `StoreCorrupt`."""
        on_leases = [item for item in items if item.lease]
        for item in on_leases:
            if item.lease not in self._leases:
                raise StoreCorrupt(f"{item.key!r} hangs on lease {item.lease:x}, which is not there")
        self.follow(
            WatchBatch(revision=0, events=tuple(Event(kind=EventKind.PUT, item=item) for item in on_leases))
        )


def set_up(
    keys: RestorableKeys,
    leases: RestorableLeases,
    base: Iterable[KeyValue],
    log: Iterable[Committed | Begun],
    granted: Iterable[tuple[int, float]],
    *,
    base_revision: int,
    compacted_revision: int,
    now: float,
) -> None:
    """Bring both from nothing to where they were. Leases have their whole time. Raises `StoreCorrupt`."""
    keys.restore(base, base_revision)
    for record in log:
        if isinstance(record, Begun):
            keys.begin_run(record.revision)
        else:
            keys.replay(record)
    if compacted_revision:
        keys.restore_compaction(compacted_revision)
    for lease, ttl_s in granted:
        leases.grant(lease, ttl_s, now=now)
    leases.hang(keys.live_items())
