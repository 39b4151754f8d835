"""What really became of members: their records as the store has them, and how well their hosts were.

A member stutters within bounds when, in each stretch as long as its lease, it and the store could do their
work and reach each other for a while. Then its heartbeats get through, and its record must not expire. A
record that came back with an older state of the store may: its member has given up the lease that it is on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from hansa.coordination.keys import Keys
from hansa.coordination.node_info import MemberStatus, NodeRecord
from hansa.coordination.suspicion import Suspicion
from hansa.store.values import EventKind, KeyValue, WatchBatch
from hansa.testing.world import World

__all__ = ["RosterTruth"]

KEYS = Keys()


@dataclass(slots=True)
class _Health:
    """The latest spells in which a host was well, the last one open while it is."""

    spells: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=64))
    well_since_s: float | None = None

    def longest_s(self, start_s: float, end_s: float) -> float:
        """The longest spell within a stretch of time."""
        spells = list(self.spells)
        if self.well_since_s is not None:
            spells.append((self.well_since_s, end_s))
        return max((min(end, end_s) - max(start, start_s) for start, end in spells), default=0.0)


class RosterTruth:
    """Follows the store from inside, and fails the world when a record expires without a cause."""

    def __init__(
        self, world: World, store: str, *, interval_s: float, timeout_s: float, spell_s_min: float
    ) -> None:
        self._world = world
        self._store = store
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._spell_s_min = spell_s_min
        self._health: dict[str, _Health] = {}
        self._staying: set[str] = set()
        self.records: dict[str, NodeRecord] = {}
        self._left: set[tuple[str, int]] = set()
        self._gone: set[tuple[str, int]] = set()
        self._suspected: set[tuple[str, int]] = set()
        # Those that a store had when it went back in time, by their creation.
        self._restored: set[tuple[str, int]] = set()
        self.downs_count = 0
        self.suspicions_count = 0
        self.false_suspicions_count = 0

    def __str__(self) -> str:
        return (
            f"{self.downs_count} members went down, {self.suspicions_count} were suspected,"
            f" {self.false_suspicions_count} of them while they were well"
        )

    def has_left(self, member_id: str, incarnation: int) -> bool:
        """Whether it said that it leaves."""
        return (member_id, incarnation) in self._left

    def is_gone(self, member_id: str, incarnation: int) -> bool:
        """Whether its record is gone, or another one stands in its place."""
        return (member_id, incarnation) in self._gone

    def was_restored(self, member_id: str, incarnation: int) -> bool:
        """Whether a store that went back in time had it: then an older one may follow a newer one."""
        return (member_id, incarnation) in self._restored

    def was_suspected(self, member_id: str, incarnation: int) -> bool:
        return (member_id, incarnation) in self._suspected

    def stays(self, name: str, *, is_staying: bool) -> None:
        """A program has joined, or is about to leave: the latter is not heard while the store is away."""
        if is_staying:
            self._staying.add(name)
        else:
            self._staying.discard(name)
        self.look()

    def look(self) -> None:
        """Something changed in the world: who is well now?"""
        now = self._world.elapsed_s()
        for name in self._world.hosts:
            health = self._health.setdefault(name, _Health())
            is_well = self._is_well(name)
            if is_well and health.well_since_s is None:
                health.well_since_s = now
            elif not is_well and health.well_since_s is not None:
                health.spells.append((health.well_since_s, now))
                health.well_since_s = None

    def follow(self, batch: WatchBatch, origin: str) -> None:
        """The store has changed."""
        for event in batch.events:
            key = event.item.key
            if key.startswith(KEYS.nodes):
                name = key.removeprefix(KEYS.nodes).decode()
                if event.kind is EventKind.PUT:
                    self._put(name, event.item)
                else:
                    self._deleted(name, origin)
            elif key.startswith(KEYS.suspects) and event.kind is EventKind.PUT:
                self._suspect(key.removeprefix(KEYS.suspects).decode(), Suspicion.decode(event.item.value))

    def rewound(self, items: Iterable[KeyValue]) -> None:
        """The store went back: these are all its keys now."""
        before, self.records = self.records, {}
        for item in items:
            if item.key.startswith(KEYS.nodes):
                name = item.key.removeprefix(KEYS.nodes).decode()
                self.records[name] = record = NodeRecord.decode(item.value)
                self._restored.add((name, record.incarnation))
        for name, record in before.items():
            now = self.records.get(name)
            if now is None or now.incarnation != record.incarnation:
                self._gone.add((name, record.incarnation))

    def _put(self, name: str, item: KeyValue) -> None:
        record, before = NodeRecord.decode(item.value), self.records.get(name)
        if before is not None and record.incarnation != before.incarnation:
            self._gone.add((name, before.incarnation))
        if record.info.status is MemberStatus.LEFT:
            self._left.add((name, record.incarnation))
        self.records[name] = record

    def _deleted(self, name: str, origin: str) -> None:
        record = self.records.pop(name)
        self._gone.add((name, record.incarnation))
        if origin or record.info.status is MemberStatus.LEFT or (name, record.incarnation) in self._restored:
            return
        self.downs_count += 1
        now = self._world.elapsed_s()
        # A little less than the lease: the store's clock may be fast.
        spell_s = self._health[name].longest_s(now - 1.96 * self._timeout_s, now)
        if spell_s >= self._spell_s_min:
            self._world.fail(
                "who stutters within bounds is not down",
                f"{name} was well for {spell_s:.2f} s of its lease's last {2 * self._timeout_s:g} s",
            )

    def _suspect(self, name: str, suspicion: Suspicion) -> None:
        if not suspicion.is_suspect:
            return
        self._suspected.add((name, suspicion.incarnation))
        self.suspicions_count += 1
        now = self._world.elapsed_s()
        spell_s = self._health[name].longest_s(now - self._timeout_s, now)
        self.false_suspicions_count += spell_s >= self._timeout_s - self._interval_s

    def _is_well(self, name: str) -> bool:
        network, store = self._world.network, self._store
        return (
            name in self._staying
            and all(
                self._world.hosts[one].is_up and not self._world.hosts[one].is_paused for one in (name, store)
            )
            and not network.is_cut(name, store)
            and not network.is_cut(store, name)
            and network.rate(name, store) is None
            and network.rate(store, name) is None
            and not network.is_refusing(store)
        )
