"""Members of a cluster, and an observer, under every fault; and the books of what really became of them.

Three to twelve members join, say that they drain and that they are up again, change what they say of
themselves, leave and come back. They stutter: they are paused and cut off for less than their lease lasts,
and for longer; they crash and return under the same id.

Always: each event follows from the one before it, none comes twice, and each has a cause; a member is down
only if it lost its record, and left only if it said so; a member whose stutter stays within bounds keeps its
record.

Where the store goes back in time it has older records, and members that know better join again.

When the faults are over: all views are equal, and equal to what the store has; each member's last
acknowledged statement is what all views show of it. How many members were suspected, and how many of them
although they were well, is recorded.

`RosterTruth` knows the records as the store has them, and when their hosts were well. A member stutters
within bounds when, in each period as long as its lease, it and the store could do their work and reach each
other for a while. Then its heartbeats get through, and its record must not expire. A record that came back
with an older state of the store may expire: its member has given up the lease that the record is on.
`RosterView` judges what one `Members` tells.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from hansa.chance import Chance
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
    NodeInfo,
    NodeRecord,
    Rejoined,
)
from hansa.coordination.members import Members
from hansa.coordination.roster import Suspicion
from hansa.errors import Conflict, StoreUnavailable, TimedOut
from hansa.keys import Keys
from hansa.store.values import EventKind, KeyValue, WatchBatch
from hansa.testing.faults import FaultPlan, draw_rewinds, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.simulation import Scenario
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World
from hansa.transport.environment import Environment

__all__ = ["RosterScenario", "RosterTruth"]

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

INTERVAL_S = 0.8
TIMEOUT_S = 2.4
# A member that is well for this long gets several heartbeats through, on the worst of the networks.
SPELL_S_MIN = 3.2
LOOKER = "looker"


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


class RosterScenario(Scenario):
    """Members that stutter, crash and return: nobody is down without a cause, all views converge."""

    name: ClassVar[str] = "roster"
    chaos_s: ClassVar[float] = 14.0
    quiet_s: ClassVar[float] = 40.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("roster")
        self.store = StoreHost(world, witness=self._witness, rewound=self._rewound)
        self.truth = RosterTruth(
            world, self.store.name, interval_s=INTERVAL_S, timeout_s=TIMEOUT_S, spell_s_min=SPELL_S_MIN
        )
        self.names = [f"m{number:02}" for number in range(1, 1 + chance.choose((3, 3, 3, 4, 4, 5, 6, 12)))]
        self.is_calm = False
        self._is_summed_up = False
        self._views: dict[str, RosterView] = {}
        # The last thing that each was told that it has said, as far as that is known.
        self._said: dict[str, dict[str, object]] = {}

    def begin(self) -> None:
        for name in (*self.names, LOOKER):
            self.world.host(name, self._live).start()
        self.store.start()
        self.truth.look()

    def plan(self, chance: Chance) -> FaultPlan:
        hosts, store, ttl_s = [*self.names, LOOKER], self.store.name, 2 * TIMEOUT_S
        return (
            *draw_store_plan(chance, hosts, store, chaos_s=self.chaos_s, ttl_s=ttl_s),
            *draw_rewinds(chance.fork("rewinds"), store, chaos_s=self.chaos_s, ttl_s=ttl_s),
        )

    def check(self) -> None:
        self.truth.look()

    def calm(self) -> None:
        self.is_calm = True
        self.truth.look()

    def unsettled(self) -> str:
        for name in (*self.names, LOOKER):
            view = self._views.get(name)
            if view is None:
                return f"{name} has no view"
            if name != LOOKER and not view.members.is_member:
                return f"{name} is no member"
            if missing := view.difference(self.names):
                return missing
        for name, said in self._said.items():
            info = self.truth.records[name].info
            if any(getattr(info, field) != value for field, value in said.items()):
                self.world.fail("what was acknowledged is said", f"{name} said {said}, not {info}")
        if not self._is_summed_up:
            self._is_summed_up = True
            self.world.history.record("", str(self.truth))
        return ""

    # What runs on the hosts.

    async def _live(self, host: Host) -> None:
        chance = host.chance.fork("member")
        # A life that crashed had no time to say so.
        self.truth.stays(host.name, is_staying=False)
        self._views.pop(host.name, None)
        async with StoreLink(host, self.store) as link:
            while True:
                try:
                    await self._stay(host, link, chance)
                except (StoreUnavailable, TimedOut) as error:
                    host.record(f"cannot join: {error.code}")
                await asyncio.sleep(chance.uniform(0.0, 2.0))

    async def _stay(self, host: Host, link: StoreLink, chance: Chance) -> None:
        node = None
        if host.name != LOOKER:
            node = NodeInfo(id=host.name, host=host.name, port=7000, metadata={"life": str(host.life)})
            self._said[host.name] = {"status": node.status, "metadata": node.metadata}
        async with Members(
            link,
            node,
            heartbeat_interval=INTERVAL_S,
            heartbeat_timeout=TIMEOUT_S,
            environment=Environment(chance=chance.fork("members")),
        ) as members:
            view = self._views[host.name] = RosterView(host, members, self.truth)
            self.truth.stays(host.name, is_staying=True)
            try:
                async with asyncio.TaskGroup() as tasks:
                    listening = tasks.create_task(self._listen(view), name="listening")
                    await self._act(host, members, chance)
                    listening.cancel()
            finally:
                del self._views[host.name]
                self.truth.stays(host.name, is_staying=False)
            host.record("leaves")

    async def _listen(self, view: RosterView) -> None:
        async for event in view.events:
            view.hear(event)

    async def _act(self, host: Host, members: Members, chance: Chance) -> None:
        """Say this and that, until it is time to leave; when all is calm, stay."""
        for number in range(chance.choose((1, 4, 40))):
            await asyncio.sleep(chance.uniform(0.0, 3.0))
            if self.is_calm:
                break
            if host.name != LOOKER and chance.flip(0.5):
                # One thing, or two at once: neither may undo the other.
                fields = chance.choose((("status",), ("metadata",), ("status", "metadata")))
                async with asyncio.TaskGroup() as tasks:
                    for field in fields:
                        tasks.create_task(self._say(host, members, chance, field, number), name=field)
        if self.is_calm:
            await asyncio.Event().wait()

    async def _say(self, host: Host, members: Members, chance: Chance, field: str, number: int) -> None:
        said = self._said[host.name]
        value: object = chance.choose((MemberStatus.UP, MemberStatus.DRAINING))
        if field == "metadata":
            value = {"life": str(host.life), "number": str(number)}
        before = said.pop(field, None)
        try:
            if isinstance(value, MemberStatus):
                await members.set_status(value)
            elif isinstance(value, dict):
                await members.update(metadata=value)
        except (Conflict, StoreUnavailable):
            if before is not None:
                said[field] = before
        except TimedOut:
            host.record(f"does not know whether its {field} is {value}")
        else:
            said[field] = value

    def _rewound(self, items: Sequence[KeyValue], revision: int) -> None:
        self.truth.rewound(items)

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        self.truth.follow(batch, origin)
