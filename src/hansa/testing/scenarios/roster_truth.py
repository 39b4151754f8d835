"""The books of members: what really became of them, and whether a view tells it.

`RosterTruth` knows the records as the store has them, and when their hosts were well. A member stutters
within bounds when, in each period as long as its lease, it and the store could do their work and reach each
other for a while. Then its heartbeats get through, and its record must not expire. A record that came back
with an older state of the store may expire: its member has given up the lease that the record is on.

`RosterView` judges what one `Members` tells: each event must follow from the one before, and have a cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hansa.coordination.member import (
    Expelled,
    Member,
    MemberDown,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MembersEvent,
    MemberStatus,
    MemberSuspected,
    MemberUpdated,
    NodeRecord,
    Rejoined,
)
from hansa.coordination.members import Members
from hansa.coordination.roster import Suspicion
from hansa.keys import Keys
from hansa.store.values import EventKind, KeyValue, WatchBatch
from hansa.testing.host import Host
from hansa.testing.world import World

KEYS = Keys()

_ABSENT = frozenset({None, MemberStatus.DOWN, MemberStatus.LEFT})
_SAID = frozenset({MemberStatus.JOINING, MemberStatus.UP, MemberStatus.DRAINING})
_SUSPECT = frozenset({MemberStatus.SUSPECT})
_HERE = _SAID | _SUSPECT
# The statuses before each event and its status after it.
STEPS: dict[type[MemberEvent], tuple[frozenset[MemberStatus | None], frozenset[MemberStatus]]] = {
    MemberJoined: (_ABSENT, _HERE),
    MemberUpdated: (frozenset(_HERE), _HERE),
    MemberSuspected: (frozenset(_SAID), _SUSPECT),
    MemberRefuted: (frozenset(_SUSPECT), _SAID),
    MemberDown: (frozenset(_HERE), frozenset({MemberStatus.DOWN})),
    MemberLeft: (frozenset(_HERE | {None, MemberStatus.DOWN}), frozenset({MemberStatus.LEFT})),
}


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
        # Members by their id and incarnation: those that said that they leave; those whose record is gone or
        # replaced; those that were suspected; those that a store had when it went back in time.
        self.left: set[tuple[str, int]] = set()
        self.gone: set[tuple[str, int]] = set()
        self.suspected: set[tuple[str, int]] = set()
        self.restored: set[tuple[str, int]] = set()
        # The lease on which each of them was put first.
        self._leases: dict[tuple[str, int], int] = {}
        self.downs_count = 0
        self.suspicions_count = 0
        self.false_suspicions_count = 0

    def __str__(self) -> str:
        return (
            f"{self.downs_count} members went down, {self.suspicions_count} were suspected,"
            f" {self.false_suspicions_count} of them while they were well"
        )

    def stays(self, name: str, *, is_staying: bool) -> None:
        """A program has joined, or is about to leave: the store does not hear of that while it is away."""
        if is_staying:
            self._staying.add(name)
        else:
            self._staying.discard(name)
        self.look()

    def look(self) -> None:
        """Something changed in the world: note which hosts are well now."""
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
                self.restored.add((name, record.incarnation))
        for name, record in before.items():
            now = self.records.get(name)
            if now is None or now.incarnation != record.incarnation:
                self.gone.add((name, record.incarnation))

    def _put(self, name: str, item: KeyValue) -> None:
        record, before = NodeRecord.decode(item.value), self.records.get(name)
        if self._leases.setdefault((name, record.incarnation), item.lease) != item.lease:
            self._world.fail(
                "each session has an incarnation of its own",
                f"{name} has put its record on another lease with the incarnation {record.incarnation}",
            )
        if before is not None and record.incarnation != before.incarnation:
            self.gone.add((name, before.incarnation))
        if record.info.status is MemberStatus.LEFT:
            self.left.add((name, record.incarnation))
        self.records[name] = record

    def _deleted(self, name: str, origin: str) -> None:
        record = self.records.pop(name)
        self.gone.add((name, record.incarnation))
        if origin or record.info.status is MemberStatus.LEFT or (name, record.incarnation) in self.restored:
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
        self.suspected.add((name, suspicion.incarnation))
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


@dataclass(slots=True)
class _Health:
    """The latest spells in which a host was well; the last one is open while it still is."""

    spells: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=64))
    well_since_s: float | None = None

    def longest_s(self, start_s: float, end_s: float) -> float:
        """The longest spell within a period."""
        spells = list(self.spells)
        if self.well_since_s is not None:
            spells.append((self.well_since_s, end_s))
        return max((min(end, end_s) - max(start, start_s) for start, end in spells), default=0.0)


class RosterView:
    """Watches one `Members` from its opening on."""

    def __init__(self, host: Host, members: Members, truth: RosterTruth) -> None:
        self.members = members
        self.label = str(host.life)
        self._host = host
        self._truth = truth
        # Without an await between: what the view has is not told as events, and everything else is.
        self.events = members.events()
        self._known: dict[str, Member] = dict(members.view)

    def hear(self, event: MembersEvent) -> None:
        """Check an event, and remember what it says."""
        if isinstance(event, Expelled):
            self._fail("nobody is expelled who has no rival", event)
        if isinstance(event, Rejoined):
            self._host.record(f"joined again: {event.reason}")
        if not isinstance(event, MemberEvent):
            return
        member, before = event.member, self._known.get(event.member.id)
        self._host.record(
            f"{type(event).__name__} {member.id} {member.status} {member.incarnation}: {event.reason}"
        )
        self._check_step(event, before, member)
        self._check_cause(event, member)
        self._known[member.id] = member

    def _check_step(self, event: MemberEvent, before: Member | None, member: Member) -> None:
        sources, targets = STEPS[type(event)]
        if (None if before is None else before.status) not in sources or member.status not in targets:
            self._fail("statuses follow the table", event, before)
        if before is None:
            return
        if (member.id, member.incarnation) in self._truth.restored:
            pass  # Then an older incarnation may follow a newer one.
        elif isinstance(event, MemberJoined):
            if member.incarnation <= before.incarnation:
                self._fail("incarnations grow", event, before)
        elif member.incarnation < before.incarnation:
            self._fail("incarnations do not go back", event, before)
        if replace(member, lease=before.lease) == before:
            self._fail("no event comes twice", event, before)

    def _check_cause(self, event: MemberEvent, member: Member) -> None:
        truth, stay = self._truth, (member.id, member.incarnation)
        if isinstance(event, MemberDown) and stay not in truth.gone:
            self._fail("who is down has lost its record", event)
        if isinstance(event, MemberLeft) and stay not in truth.left:
            self._fail("who has left said so", event)
        if isinstance(event, MemberSuspected) and stay not in truth.suspected:
            self._fail("who is suspected is so in the store", event)

    def _fail(self, invariant: str, event: MembersEvent, before: Member | None = None) -> None:
        known = "" if before is None else f", where {before.status} {before.incarnation} was known"
        self._host.world.fail(invariant, f"{self.label} tells {event}{known}")

    def difference(self, names: list[str]) -> str:
        """What differs from the store, or the empty string."""
        view, records = self.members.view, self._truth.records
        here = [member.id for member in view.here()]
        if here != names:
            return f"{self.label} sees {here}"
        for name in names:
            member, record = view[name], records.get(name)
            if record is None or member.info != record.info or member.incarnation != record.incarnation:
                return f"{self.label} sees {member}, the store has {record}"
            if member.status is not record.info.status:
                return f"{self.label} sees {name} as {member.status}"
            # A new lease alone makes no event.
            if replace(self._known[name], lease=member.lease) != member:
                return f"{self.label} was told of {self._known[name]}, and not of {member}"
        return ""
