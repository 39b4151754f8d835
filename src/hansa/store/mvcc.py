"""Keys with their past, under one counter of revisions. Pure.

Every transaction that changes something takes the next revision, and all its changes carry it. An empty store
stands at 1, so the first change is 2. Three views of the same truth are kept: the keys as they are now, the
past of each key, and the log, which has the changes of every revision in order. Watchers read the log; reads
at an old revision look into the past of each key in the range. `KeyIndex` keeps keys sorted, so that a range
is found without looking at other keys.

Revisions only grow, but they may leap: a store that is started again begins beyond all that it can ever have
issued (`RecordedStore.begin_run`). Where a run begins the log has a batch without changes, so it has exactly
the revisions at which this store stood; the leaps are remembered beyond a compaction. A caller that names any
other revision has it from a history that was lost, and is told so.

Compaction at a revision C forgets what no read at C or later can see: values overwritten at C or before, and
deletions at C or before. Reads at C still work, and so do watchers that begin at C. Beyond a bound the
machine compacts itself. The cost of a compaction grows with the changes that it forgets, not with the number
of keys.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Final

from hansa.errors import BadArgument, Compacted, FutureRevision, LeaseLost
from hansa.limits import STORE_HISTORY_BYTES_MAX, STORE_HISTORY_COUNT_MAX
from hansa.store.values import (
    FROM_KEY,
    Compare,
    Delete,
    DeleteResult,
    Event,
    EventKind,
    Get,
    GetResult,
    KeyValue,
    Operation,
    Outcome,
    Put,
    PutResult,
    Result,
    Scan,
    WatchBatch,
    check_commit,
)

FIRST_REVISION: Final = 1
# Python's overhead for one key, or one change of it, besides their own bytes: 220 to 370 were measured.
OVERHEAD_BYTES: Final = 300
_revision: Final = attrgetter("revision")
_mod_revision: Final = attrgetter("mod_revision")


class KeyIndex:
    """A sorted set of keys. A change moves the pointers behind it: below 1 ms for a million keys."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: list[bytes] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: bytes) -> None:
        """The key must not be in it yet."""
        insort(self._keys, key)

    def remove(self, key: bytes) -> None:
        """The key must be in it."""
        del self._keys[bisect_left(self._keys, key)]

    def bounds(self, start: bytes, range_end: bytes) -> tuple[int, int]:
        """The places in the index at which the keys of a range begin and end."""
        first = bisect_left(self._keys, start)
        if not range_end:
            found = first < len(self._keys) and self._keys[first] == start
            return first, first + found
        if range_end == FROM_KEY:
            return first, len(self._keys)
        # An end before the start is an empty range, not a negative one.
        return first, max(first, bisect_left(self._keys, range_end))

    def between(self, first: int, last: int) -> list[bytes]:
        """The keys at these places, the last not included."""
        return self._keys[first:last]


class Mvcc:
    """A store's keys at every revision since the last compaction."""

    def __init__(
        self,
        *,
        history_count_max: int = STORE_HISTORY_COUNT_MAX,
        history_bytes_max: int = STORE_HISTORY_BYTES_MAX,
    ) -> None:
        self._history_count_max = history_count_max
        self._history_bytes_max = history_bytes_max
        self._revision = FIRST_REVISION
        self._compacted_revision = 0
        self._live: dict[bytes, KeyValue] = {}
        self._live_keys = KeyIndex()
        # For each key every state since the compaction, oldest first; a deletion is a state too.
        self._past: dict[bytes, list[KeyValue]] = {}
        self._past_keys = KeyIndex()
        self._log: list[WatchBatch] = []
        self._log_bytes = 0
        # Revisions that were never given out: the first of each leap, and the revision that it led to.
        self._leaps: list[tuple[int, int]] = []

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        return self._revision

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be read; 0 while all can."""
        return self._compacted_revision

    def __len__(self) -> int:
        """How many keys there are now."""
        return len(self._live)

    # Reading.

    def get(self, key: bytes, *, revision: int = 0) -> KeyValue | None:
        """A key now, or as it was. Raises `Compacted`, `FutureRevision`, `BadArgument`."""
        self._check_revision(revision)
        if not revision:
            return self._live.get(key)
        return self._state(key, revision)

    def scan(self, what: Get, *, revision: int = 0) -> Scan:
        """A range now, or as it was. Raises `Compacted`, `FutureRevision`, `BadArgument`."""
        self._check_revision(revision)
        if not revision or revision == self._revision:
            found = self._scan_now(what)
        else:
            found = self._scan_then(what, revision)
        return Scan(revision=self._revision, items=found.items, count=found.count, more=found.more)

    def log(self, start_revision: int, count_max: int) -> Sequence[WatchBatch]:
        """The changes of at most `count_max` revisions from this one on. Raises `Compacted`."""
        if start_revision < self._compacted_revision:
            raise self._compacted(start_revision)
        first = bisect_left(self._log, start_revision, key=_revision)
        return self._log[first : first + count_max]

    def can_resume(self, start_revision: int) -> bool:
        """Whether a watcher may begin here: whether all that it has seen before belongs to this history.

        Also at the beginning of a run, and at the revision of a compaction: watchers are told to begin there.
        """
        return self._has_had(start_revision - 1) or self._has_had(start_revision)

    # Writing.

    def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        otherwise: Sequence[Operation],
        leases: Container[int] = (),
    ) -> tuple[Outcome, WatchBatch | None]:
        """Carry out `then` if all compares hold, else `otherwise`; also returns the changes, if any.

        Raises `BadArgument` and `LeaseLost` (a put names a lease that is not in `leases`): nothing was
        changed.
        """
        check_commit(compares, then, otherwise)
        is_success = all(compare.holds(self._live.get(compare.key)) for compare in compares)
        branch = then if is_success else otherwise
        for operation in branch:
            if isinstance(operation, Put) and operation.lease and operation.lease not in leases:
                raise LeaseLost(f"put {operation.key!r}: there is no lease {operation.lease}")
        # From here on nothing fails: a transaction happens whole or not at all.
        events: list[Event] = []
        results = tuple(self._perform(operation, events) for operation in branch)
        batch = self._close_revision(events)
        return Outcome(is_success=is_success, revision=self._revision, results=results), batch

    def remove(self, keys: Iterable[bytes]) -> WatchBatch | None:
        """Delete these keys in one revision, however many they are; missing ones are ignored."""
        events: list[Event] = []
        for key in keys:
            if key in self._live:
                self._delete(key, events)
        return self._close_revision(events)

    def compact(self, revision: int) -> None:
        """Forget what no read at this revision or later can see.

        Raises `Compacted` when that has happened already, `FutureRevision`, `BadArgument`.
        """
        if revision < 1:
            raise BadArgument(f"compact({revision}): give the oldest revision to keep, at least 1")
        if revision <= self._compacted_revision:
            raise self._compacted(revision)
        self._check_revision(revision)
        touched: dict[bytes, None] = {}
        # The changes of the revision itself stay in the log for watchers, and overwrite older states too.
        for batch in self._log[: bisect_right(self._log, revision, key=_revision)]:
            touched.update((event.item.key, None) for event in batch.events)
        forgotten = self._log[: bisect_left(self._log, revision, key=_revision)]
        self._log_bytes -= sum(map(_batch_bytes, forgotten))
        del self._log[: len(forgotten)]
        self._compacted_revision = revision
        for key in touched:
            self._forget(key, revision)

    def _has_had(self, revision: int) -> bool:
        """Whether the store stood at this revision, as far as it remembers."""
        # Every store begins empty, at the first revision, even if it leaps right after that.
        if revision <= FIRST_REVISION or revision == self._revision:
            return True
        place = bisect_left(self._log, revision, key=_revision)
        return place < len(self._log) and self._log[place].revision == revision

    def _check_revision(self, revision: int) -> None:
        if revision < 0:
            raise BadArgument(f"revision {revision}: give a revision that the store had, or 0 for now")
        if revision > self._revision:
            raise FutureRevision(f"revision {revision}: the store is at {self._revision}")
        is_compacted = 0 < revision < self._compacted_revision
        if is_compacted and not self._is_leapt_over(revision):
            raise self._compacted(revision)
        if is_compacted or not self._has_had(revision):
            raise FutureRevision(f"revision {revision}: this store, now at {self._revision}, never had it")

    def _is_leapt_over(self, revision: int) -> bool:
        place = bisect_right(self._leaps, revision, key=itemgetter(0))
        return place > 0 and revision < self._leaps[place - 1][1]

    def _compacted(self, revision: int) -> Compacted:
        return Compacted(
            f"revision {revision} is forgotten: the store remembers from {self._compacted_revision} on",
            self._compacted_revision,
        )

    def _state(self, key: bytes, revision: int) -> KeyValue | None:
        states = self._past.get(key, ())
        place = bisect_right(states, revision, key=_mod_revision)
        if not place or states[place - 1].is_deleted:
            return None
        return states[place - 1]

    def _scan_now(self, what: Get) -> GetResult:
        first, last = self._live_keys.bounds(what.key, what.range_end)
        end = min(last, first + what.limit) if what.limit else last
        items = (self._live[key] for key in self._live_keys.between(first, end))
        return _got(items, what, last - first)

    def _scan_then(self, what: Get, revision: int) -> GetResult:
        keys = self._past_keys.between(*self._past_keys.bounds(what.key, what.range_end))
        items = [item for key in keys if (item := self._state(key, revision)) is not None]
        return _got(items[: what.limit] if what.limit else items, what, len(items))

    def _perform(self, operation: Operation, events: list[Event]) -> Result:
        if isinstance(operation, Put):
            self._put(operation, events)
            return PutResult(revision=self._revision + 1)
        if isinstance(operation, Delete):
            bounds = self._live_keys.bounds(operation.key, operation.range_end)
            keys = self._live_keys.between(*bounds)
            for key in keys:
                self._delete(key, events)
            return DeleteResult(count=len(keys))
        return self._scan_now(operation)

    def _put(self, put: Put, events: list[Event]) -> None:
        before = self._live.get(put.key)
        revision = self._revision + 1
        item = KeyValue(
            key=put.key,
            value=put.value,
            create_revision=revision if before is None else before.create_revision,
            mod_revision=revision,
            version=1 if before is None else before.version + 1,
            lease=put.lease,
        )
        if before is None:
            self._live_keys.add(put.key)
        self._live[put.key] = item
        self._remember(Event(kind=EventKind.PUT, item=item, before=before), events)

    def _delete(self, key: bytes, events: list[Event]) -> None:
        before = self._live.pop(key)
        self._live_keys.remove(key)
        item = KeyValue(key=key, value=b"", create_revision=0, mod_revision=self._revision + 1, version=0)
        self._remember(Event(kind=EventKind.DELETE, item=item, before=before), events)

    def _remember(self, event: Event, events: list[Event]) -> None:
        events.append(event)
        states = self._past.get(event.item.key)
        if states is None:
            self._past[event.item.key] = [event.item]
            self._past_keys.add(event.item.key)
        else:
            states.append(event.item)

    def _close_revision(self, events: list[Event]) -> WatchBatch | None:
        if not events:
            return None
        self._revision += 1
        return self._append(WatchBatch(revision=self._revision, events=tuple(events)))

    def _append(self, batch: WatchBatch) -> WatchBatch:
        self._log.append(batch)
        self._log_bytes += _batch_bytes(batch)
        if len(self._log) > self._history_count_max or self._log_bytes > self._history_bytes_max:
            self._forget_older_half()
        return batch

    def _forget_older_half(self) -> None:
        count, bytes_count = len(self._log), self._log_bytes
        for batch in self._log[:-1]:
            if count <= self._history_count_max // 2 and bytes_count <= self._history_bytes_max // 2:
                break
            count -= 1
            bytes_count -= _batch_bytes(batch)
        oldest = self._log[-count].revision
        if oldest > self._compacted_revision:
            self.compact(oldest)

    def _forget(self, key: bytes, revision: int) -> None:
        states = self._past.get(key)
        if states is None:
            return
        place = bisect_right(states, revision, key=_mod_revision)
        if place and not states[place - 1].is_deleted:
            place -= 1
        del states[:place]
        if not states:
            del self._past[key]
            self._past_keys.remove(key)


def _got(items: Iterable[KeyValue], what: Get, count: int) -> GetResult:
    found = tuple(replace(item, value=b"") if what.keys_only else item for item in items)
    return GetResult(items=found, count=count, more=len(found) < count)


def _batch_bytes(batch: WatchBatch) -> int:
    """What is kept only for the past: the state before each change. The state after it is needed now."""
    return sum(
        OVERHEAD_BYTES + len(event.item.key) + (0 if event.before is None else len(event.before.value))
        for event in batch.events
    )
