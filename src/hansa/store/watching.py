"""Watchers: which of them is told of which changes, without gaps and without repeats. Pure.

A watcher is in one of three stages. Catching up: it began in the past and reads the log at its own pace, so
it holds nothing and can fall behind a compaction. In step: it has read all there was and is in the index, and
changes are put into its backlog. Ended: it fell behind, and is told so after everything that it was given.

The index goes from a key to its watchers, never the other way: it looks up the exact key, and every beginning
of the key that is as long as the prefix of some watcher. Watchers with the same interest share batches.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from hansa.errors import Compacted, HansaError, StoreUnavailable, WatchOverrun
from hansa.limits import (
    STORE_WATCH_BYTES_MAX,
    STORE_WATCH_COUNT_MAX,
    STORE_WATCH_TURN_COUNT,
    STORE_WATCHERS_MAX,
)
from hansa.store.values import Event, WatchBatch


class Log(Protocol):
    """The past that watchers read; `Mvcc` has it."""

    @property
    def revision(self) -> int: ...

    @property
    def compacted_revision(self) -> int: ...

    def log(self, start_revision: int, count_max: int) -> Sequence[WatchBatch]: ...

    def can_resume(self, start_revision: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class WatchInterest:
    """What a watcher wants: the changes of one key or of all keys with a prefix, maybe with former values."""

    key: bytes
    exact: bool = False
    before: bool = False

    def wants(self, key: bytes) -> bool:
        return key == self.key if self.exact else key.startswith(self.key)

    def cut(self, batch: WatchBatch) -> WatchBatch | None:
        """The part of a revision's changes that is wanted; None when nothing is."""
        events = tuple(self.shown(event) for event in batch.events if self.wants(event.item.key))
        return WatchBatch(revision=batch.revision, events=events) if events else None

    def shown(self, event: Event) -> Event:
        if self.before or event.before is None:
            return event
        return Event(kind=event.kind, item=event.item)


class WatcherStage(Enum):
    """How far a watcher is."""

    CATCHING_UP = "catching-up"
    IN_STEP = "in-step"
    ENDED = "ended"


class Watcher:
    """One watcher's position. `Watchers` makes and moves it; its reader calls `Watchers.take`."""

    __slots__ = ("backlog", "backlog_bytes", "backlog_count", "error", "interest", "next_revision", "stage")

    def __init__(self, interest: WatchInterest, next_revision: int) -> None:
        self.interest = interest
        self.next_revision = next_revision
        self.stage = WatcherStage.CATCHING_UP
        self.error: HansaError | None = None
        self.backlog: deque[WatchBatch] = deque()
        self.backlog_count = 0
        self.backlog_bytes = 0


class Watchers:
    """All watchers of a store."""

    def __init__(
        self,
        log: Log,
        *,
        watchers_max: int = STORE_WATCHERS_MAX,
        count_max: int = STORE_WATCH_COUNT_MAX,
        bytes_max: int = STORE_WATCH_BYTES_MAX,
    ) -> None:
        self._log = log
        self._watchers_max = watchers_max
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._watchers: dict[Watcher, None] = {}
        # The watchers in step, by interest. A dict as a set that keeps its order: one seed, one history.
        self._in_step: dict[WatchInterest, dict[Watcher, None]] = {}
        self._prefix_lengths: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, interest: WatchInterest, start_revision: int = 0) -> Watcher:
        """Add a watcher of all changes from this revision on; 0 for changes that come after now.

        Raises `Compacted` when the store has forgotten some of them, or never had the revision at which the
        watcher left off: that was in a history that was lost. Raises `StoreUnavailable` when there are too
        many watchers.
        """
        if len(self._watchers) >= self._watchers_max:
            raise StoreUnavailable(f"the store has {self._watchers_max} watchers and takes no more")
        watcher = Watcher(interest, start_revision or self._log.revision + 1)
        if watcher.next_revision < self._log.compacted_revision:
            raise self._compacted(watcher)
        if start_revision and not self._log.can_resume(start_revision):
            raise Compacted(
                f"no watcher from revision {start_revision}: the store, now at {self._log.revision}, never"
                " was there; what it had then is lost",
                self._log.revision,
            )
        self._watchers[watcher] = None
        if watcher.next_revision > self._log.revision:
            self._keep_in_step(watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """Forget a watcher. Removing twice is once."""
        self._leave_step(watcher)
        self._watchers.pop(watcher, None)
        watcher.stage = WatcherStage.ENDED
        watcher.backlog.clear()

    def publish(self, batch: WatchBatch) -> list[Watcher]:
        """Give a new revision's changes to the watchers in step; returns those that had no news before."""
        wanted: dict[WatchInterest, list[Event]] = {}
        for event in batch.events:
            for interest in self._interests(event.item.key):
                wanted.setdefault(interest, []).append(interest.shown(event))
        woken: list[Watcher] = []
        for interest, events in wanted.items():
            part = WatchBatch(revision=batch.revision, events=tuple(events))
            part_bytes = _batch_bytes(part)
            for watcher in tuple(self._in_step[interest]):
                if batch.revision < watcher.next_revision:
                    continue
                if not watcher.backlog:
                    woken.append(watcher)
                self._append(watcher, part, part_bytes)
        return woken

    def take(self, watcher: Watcher) -> WatchBatch | None:
        """The next changes for this watcher; None when there are none yet, or it is still catching up.

        Raises `WatchOverrun` or `Compacted` once all possible changes were returned, and at every later call.
        """
        if watcher.stage is WatcherStage.CATCHING_UP:
            return self._catch_up(watcher)
        if watcher.backlog:
            batch = watcher.backlog.popleft()
            watcher.backlog_count -= len(batch.events)
            watcher.backlog_bytes -= _batch_bytes(batch)
            return batch
        if watcher.error is not None:
            raise watcher.error
        return None

    def _catch_up(self, watcher: Watcher) -> WatchBatch | None:
        try:
            batches = self._log.log(watcher.next_revision, STORE_WATCH_TURN_COUNT)
        except Compacted as error:
            self._end(watcher, error)
            raise
        for batch in batches:
            watcher.next_revision = batch.revision + 1
            part = watcher.interest.cut(batch)
            if part is not None:
                return part
        if len(batches) < STORE_WATCH_TURN_COUNT:
            # By the log's end, not by its last revision: the first revision of all has no changes.
            watcher.next_revision = self._log.revision + 1
            self._keep_in_step(watcher)
        return None

    def _append(self, watcher: Watcher, part: WatchBatch, part_bytes: int) -> None:
        count = watcher.backlog_count + len(part.events)
        bytes_count = watcher.backlog_bytes + part_bytes
        # A watcher with an empty backlog takes a revision of any size: a revision cannot be read in parts.
        if watcher.backlog and (count > self._count_max or bytes_count > self._bytes_max):
            self._end(
                watcher,
                WatchOverrun(
                    f"a watcher of {watcher.interest.key!r} let {watcher.backlog_count} events wait and was"
                    f" ended; watch again from revision {part.revision}",
                    part.revision,
                ),
            )
            return
        watcher.backlog.append(part)
        watcher.backlog_count = count
        watcher.backlog_bytes = bytes_count

    def _end(self, watcher: Watcher, error: HansaError) -> None:
        self._leave_step(watcher)
        self._watchers.pop(watcher, None)
        watcher.stage = WatcherStage.ENDED
        watcher.error = error

    def _keep_in_step(self, watcher: Watcher) -> None:
        watcher.stage = WatcherStage.IN_STEP
        interest = watcher.interest
        watchers = self._in_step.get(interest)
        if watchers is None:
            watchers = self._in_step[interest] = {}
            if not interest.exact:
                self._prefix_lengths[len(interest.key)] += 1
        watchers[watcher] = None

    def _leave_step(self, watcher: Watcher) -> None:
        interest = watcher.interest
        watchers = self._in_step.get(interest, {})
        if watcher not in watchers:
            return
        del watchers[watcher]
        if watchers:
            return
        del self._in_step[interest]
        if not interest.exact:
            self._prefix_lengths[len(interest.key)] -= 1
            if not self._prefix_lengths[len(interest.key)]:
                del self._prefix_lengths[len(interest.key)]

    def _interests(self, key: bytes) -> Iterator[WatchInterest]:
        for before in (False, True):
            exact = WatchInterest(key, True, before)
            if exact in self._in_step:
                yield exact
            for length in self._prefix_lengths:
                if length <= len(key):
                    prefix = WatchInterest(key[:length], False, before)
                    if prefix in self._in_step:
                        yield prefix

    def _compacted(self, watcher: Watcher) -> Compacted:
        oldest = self._log.compacted_revision
        return Compacted(
            f"no watcher from revision {watcher.next_revision}: the store remembers from {oldest} on", oldest
        )


def event_bytes(event: Event) -> int:
    """The size of an event that waits for a reader: both values, if both are told."""
    before = 0 if event.before is None else len(event.before.value)
    return len(event.item.key) + len(event.item.value) + before


def _batch_bytes(batch: WatchBatch) -> int:
    return sum(map(event_bytes, batch.events))
