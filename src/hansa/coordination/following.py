"""What a prefix of a store holds, kept up to date from reads and watched changes.

Theory: a `Copy` is first given a whole read, then the batches of a watch that begins right after it. When the
watch breaks (the history was compacted, the reader was too slow, the store was away) it is given another
whole read, and tells the difference: nothing twice, and nothing missed that still matters. A key that was
deleted and created again in between shows as a delete and a put, since its `create_revision` differs; a key
that came and went in between never shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hansa.store.values import EventKind, KeyValue, Scan, WatchBatch

__all__ = ["Changed", "Copy", "Snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All keys at a revision: the first thing that a follower is told."""

    revision: int
    items: Mapping[bytes, KeyValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What is different since the last news. Deletes come before puts: a key may be in both.

    `deletes` are the keys as they last were. `is_after_gap` says that a watch was lost and this is the
    difference of two reads, of which `revision` is the second one's.
    """

    revision: int
    puts: tuple[KeyValue, ...] = ()
    deletes: tuple[KeyValue, ...] = ()
    is_after_gap: bool = False


class Copy:
    """The keys as far as they are known here, and the revision that this is true for."""

    def __init__(self) -> None:
        self._items: dict[bytes, KeyValue] = {}
        self._revision: int | None = None

    @property
    def items(self) -> Mapping[bytes, KeyValue]:
        """The keys now: a view, which changes with the copy."""
        return MappingProxyType(self._items)

    @property
    def revision(self) -> int:
        return self._revision or 0

    def read(self, scan: Scan) -> Snapshot | Changed | None:
        """Take a whole read. Gives a `Snapshot` the first time, then the difference, None without one.

        A read older than what is known is believed, too: the store was replaced by one that knows less.
        """
        before = self._items
        is_first = self._revision is None
        self._items = {item.key: item for item in scan.items}
        self._revision = scan.revision
        if is_first:
            return Snapshot(revision=scan.revision, items=dict(self._items))
        gone = [item for key, item in before.items() if not _goes_on(item, self._items.get(key))]
        new = [item for key, item in self._items.items() if item != before.get(key)]
        if not gone and not new:
            return None
        # In the order of their making, as a watch would have told it.
        new.sort(key=lambda item: (item.mod_revision, item.key))
        return Changed(revision=scan.revision, puts=tuple(new), deletes=tuple(gone), is_after_gap=True)

    def apply(self, batch: WatchBatch) -> Changed | None:
        """Take the changes of one revision. Gives None for what is known already."""
        if batch.revision <= self.revision:
            return None
        self._revision = batch.revision
        before: dict[bytes, KeyValue | None] = {}
        for event in batch.events:
            key = event.item.key
            before.setdefault(key, self._items.get(key))
            if event.kind is EventKind.PUT:
                self._items[key] = event.item
            else:
                self._items.pop(key, None)
        deletes = [item for key, item in before.items() if item and not _goes_on(item, self._items.get(key))]
        puts = [self._items[key] for key in before if key in self._items]
        if not deletes and not puts:
            return None
        return Changed(revision=batch.revision, puts=tuple(puts), deletes=tuple(deletes))


def _goes_on(before: KeyValue, now: KeyValue | None) -> bool:
    """Whether it is still the same key, and not one that was deleted and created anew."""
    return now is not None and now.create_revision == before.create_revision
