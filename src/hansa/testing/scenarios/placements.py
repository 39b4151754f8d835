"""Entries that a leader places on the nodes that are there, and nodes that act for their entries.

Three to five nodes, each with one keeper of sessions, on which all of the node's parts hang: its record, its
candidacy, and its entries. The leader gives every entry whose lease is not that of its node's record to a
node that is there, and now and then moves an entry from its owner to another node: at once, or by a
hand-over, for which the owner seals a state. Owners write under the guards of their claims. Nodes are paused,
cut off, killed and started again, and clocks run up to a hundredth fast or slow; in some runs the store goes
back in time.

Always: a node that writes for an entry is its owner at that instant, by the entry and by the record; the
epoch of an entry grows with each owner; a claim is on the session that its entry names; the next owner reads
what was sealed, unless the store went back, and no placement bypasses it; a node that has sealed an entry
does not own it; and all parts of a keeper are told in turn: first each part of the loss, when each claim
knows it, and then each of the next session.

When the faults are over: each entry has an owner that is there and writes, and no other node believes to own
it.

`PlacedHandovers` has three of these nodes, and a store that never goes back. Each seed has a strike of its
own, at a step of a hand-over (`strikes`): 240 seeds in a row have all of them. In some runs there is trouble
at random besides. There, too, the steps of a record follow each other, and each is written by the right node;
no node believes that it owns an entry that is sealed; the sealed state goes to the next owner, once and
unchanged, or the old owner keeps the entry; the record says what happened; and in the end no hand-over is
open.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import ClassVar, Final

from hansa.chance import Chance
from hansa.coordination import (
    Election,
    Members,
    NodeInfo,
    PlacedClaim,
    PlacedClaims,
    PlacedMoves,
    Placement,
    Placer,
    Session,
    SessionKeeper,
)
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.session import Hanging
from hansa.errors import (
    Conflict,
    Fenced,
    HandoverWithdrawn,
    NoSuccessor,
    NotHeld,
    SessionLost,
    StoreUnavailable,
    TimedOut,
)
from hansa.keys import Keys
from hansa.store.values import EventKind, KeyValue, Put, WatchBatch
from hansa.testing.faults import FaultPlan, draw_rewinds, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.life import Life, LifeState
from hansa.testing.scenarios.handover_truth import FOLLOWERS
from hansa.testing.scenarios.strikes import StruckStore, Victim, cells, draw_strike
from hansa.testing.simulation import Scenario
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World
from hansa.transport.environment import Environment

__all__ = ["CELLS", "PlacedHandovers", "Placements"]

KEYS = Keys()
PREFIX = b"entries/"
ACTS = b"acts/"
ENTRIES = tuple(PREFIX + name for name in (b"amber", b"cloth", b"herring", b"salt"))
INTERVAL_S = 0.5
TIMEOUT_S = 1.5
LOOK_S = 0.3
KIND = "entry"
RECORDS = KEYS.handovers_of(KIND)

OFFICE: Final = KEYS.leader("placer")
CELLS: Final = cells(Victim.OLD, Victim.NEW, Victim.LEADER, Victim.STORE)


class Part(Hanging):
    """Something that hangs on a keeper, and notes what it is told."""

    def __init__(self, told: PartsLog, number: int) -> None:
        self.number = number
        self._told = told

    def session_lost(self, lost: SessionLost) -> None:
        self._told.hear(self.number, None)

    def session_opened(self, session: Session) -> None:
        self._told.hear(self.number, session)


class PartsLog:
    """What the parts of one keeper were told, in order."""

    COUNT = 3

    def __init__(self, host: Host, claims: PlacedClaims) -> None:
        self._host = host
        self._claims = claims
        self._events: list[tuple[int, Session | None]] = []
        self.parts = [Part(self, number) for number in range(self.COUNT)]

    def hear(self, number: int, session: Session | None) -> None:
        events = self._events
        events.append((number, session))
        world, life = self._host.world, self._host.life
        if [part for part, _ in events] != [at % self.COUNT for at in range(len(events))]:
            world.fail("all are told, once and in order", f"{life}: {events}")
        rounds = [session is None for part, session in events if not part]
        if any(was is now for was, now in pairwise(rounds)):
            world.fail("a loss is told before what follows it", f"{life}: {events}")
        if any((session is None) is not rounds[at // self.COUNT] for at, (_, session) in enumerate(events)):
            world.fail("a loss is told to all before what follows it", f"{life}: {events}")
        if session is None and self._claims.claims:
            world.fail("a loss is told when all claims know it", f"{life}: {self._claims.claims}")


class Placements(Scenario):
    """Entries placed by a leader: only the owner acts, and each entry comes to have one."""

    name: ClassVar[str] = "placements"
    chaos_s: ClassVar[float] = 14.0
    quiet_s: ClassVar[float] = 40.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("placements")
        self.store = StoreHost(world, witness=self._witness, rewound=self._rewound)
        self.names = [f"n{number}" for number in range(1, 4 + chance.below(3))]
        self.acts_count = 0
        self.handed_count = 0
        # The state that was sealed for an entry, by the epoch of the owner that must read it.
        self._sealed: dict[tuple[bytes, int], bytes] = {}
        self._has_gone_back = False
        self._is_calm = False
        # The newest epoch of each entry, over all that a store has forgotten.
        self._epochs: dict[bytes, int] = {}
        # By entry, the epoch in which an owner has acted since the faults were over.
        self._acted: dict[bytes, int] = {}
        self._claims: dict[str, tuple[Life, PlacedClaims]] = {}

    def begin(self) -> None:
        for name in self.names:
            self.world.host(name, self._live).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        ttl_s = 2 * TIMEOUT_S
        return (
            *draw_store_plan(chance, self.names, self.store.name, chaos_s=self.chaos_s, ttl_s=ttl_s),
            *draw_rewinds(chance.fork("rewinds"), self.store.name, chaos_s=self.chaos_s, ttl_s=ttl_s),
        )

    def calm(self) -> None:
        self._is_calm = True
        self._acted.clear()

    def unsettled(self) -> str:
        for entry in ENTRIES:
            placement = self._placement(entry)
            if placement is None or self._record_lease(placement.node) != placement.lease:
                return f"{entry!r} has no owner that is there: {placement}"
            if self._acted.get(entry) != placement.epoch:
                return f"{placement} of {entry!r} does not act"
            believers = [name for name, (_, claims) in self._claims.items() if entry in claims.claims]
            if believers != [placement.node]:
                return f"{believers} believe to own {entry!r}, of {placement}"
        return ""

    # What runs on the hosts.

    def _link(self, host: Host) -> StoreLink:
        return StoreLink(host, self.store)

    async def _live(self, host: Host) -> None:
        chance = host.chance.fork("node")
        self._claims.pop(host.name, None)
        async with self._link(host) as link:
            while True:
                try:
                    await self._be_node(host, link, chance)
                except* (StoreUnavailable, TimedOut, Fenced) as errors:
                    host.record(f"begins anew: {errors.exceptions[0]!r:.60}")
                await asyncio.sleep(chance.uniform(0.1, 0.8))

    async def _be_node(self, host: Host, link: StoreLink, chance: Chance) -> None:
        environment = Environment(chance=chance.fork("keeper"))
        keeper = SessionKeeper(link, ttl=2 * TIMEOUT_S, node=host.name, environment=environment)
        async with keeper, asyncio.TaskGroup() as tasks:

            def own(claim: PlacedClaim) -> None:
                host.record(f"owns {claim.key.decode()} {claim.epoch}")
                if claim.placement.lease != claim.session.lease:
                    self.world.fail("a claim is on the session that its entry names", f"{host.life}: {claim}")
                tasks.create_task(self._own(host, link, moves, claim, chance), name=f"acts for {claim.key!r}")

            def give(claim: PlacedClaim, record: Handover) -> None:
                tasks.create_task(self._give(host, moves, claim, chance), name=f"gives {claim.key!r}")

            claims = PlacedClaims(keeper, host.name, PREFIX, on_claim=own)
            moves = PlacedMoves(keeper, host.name, claims, kind=KIND, on_wanted=give)
            self._claims[host.name] = host.life, claims
            told = PartsLog(host, claims)
            for part in told.parts:
                keeper.hang_on(part)
            tasks.create_task(claims.run(), name="following entries")
            tasks.create_task(moves.run(), name="following hand-overs")
            tasks.create_task(self._campaign(host, link, keeper, chance), name="campaigning")
            async with Members(
                link,
                NodeInfo(id=host.name),
                heartbeat_interval=INTERVAL_S,
                heartbeat_timeout=TIMEOUT_S,
                session=keeper,
                environment=Environment(chance=chance.fork("members")),
            ):
                await asyncio.Event().wait()

    async def _own(
        self, host: Host, link: StoreLink, moves: PlacedMoves, claim: PlacedClaim, chance: Chance
    ) -> None:
        """Read what was handed on, and write for the entry, as long as it is owned, and once more."""
        try:
            state = await moves.handed_state(claim)
        except (Fenced, NotHeld):
            host.record(f"has lost {claim.key.decode()} before it began")
            return
        sealed = self._sealed.get((claim.key, claim.epoch))
        if sealed is not None and state != sealed and not self._has_gone_back:
            self.world.fail(
                "what was sealed is what is read", f"{host.life}: {state!r} and not {sealed!r} of {claim}"
            )
        if state:
            self.handed_count += 1
            host.record(f"is handed {state!r}")
        with suppress(Fenced, NotHeld):
            await moves.finish(claim)
        await self._act(link, host, claim, chance)

    async def _give(self, host: Host, moves: PlacedMoves, claim: PlacedClaim, chance: Chance) -> None:
        await asyncio.sleep(chance.uniform(0.0, 0.5))
        try:
            await moves.seal(claim, b"%s of %d" % (claim.key, claim.epoch))
            if claim.is_standing:
                self.world.fail("nothing is owned by who has sealed it", f"{host.life}: {claim}")
            host.record(f"gave {claim.key.decode()}")
        except (HandoverWithdrawn, Fenced, NotHeld) as error:
            host.record(f"did not give {claim.key.decode()}: {error.code}")

    async def _act(self, link: StoreLink, host: Host, claim: PlacedClaim, chance: Chance) -> None:
        while claim.is_standing or claim.is_sealed or chance.flip(0.2):
            await asyncio.sleep(chance.uniform(0.0, 0.5))
            if claim.is_sealed:
                continue
            value = b"%s %d %d" % (host.name.encode(), claim.session.lease, claim.epoch)
            try:
                await link.commit(claim.guards, [Put(ACTS + claim.key, value)], timeout=TIMEOUT_S / 2)
            except (StoreUnavailable, TimedOut):
                continue

    async def _campaign(self, host: Host, link: StoreLink, keeper: SessionKeeper, chance: Chance) -> None:
        election = Election(keeper, "placer")
        while True:
            try:
                async with election.campaign() as leadership:
                    placer = Placer(link, PREFIX, kind=KIND, guard=leadership.guard, node=host.name)
                    while True:
                        await self._place(link, placer, chance)
                        await asyncio.sleep(LOOK_S)
            except (StoreUnavailable, TimedOut, Fenced) as error:
                host.record(f"does not lead: {error.code}")
                await asyncio.sleep(chance.uniform(0.1, 0.5))

    async def _place(self, link: StoreLink, placer: Placer, chance: Chance) -> None:
        """Drive open hand-overs; then look at all entries, and give owners to those without one."""
        nodes = await placer.nodes()
        names = sorted(nodes)
        await placer.drive(lambda record: chance.choose(names) if names else None)
        found = {item.key: item for item in (await link.scan(PREFIX)).items}
        for key in ENTRIES:
            before = Placement.decode(found[key].value) if key in found else None
            is_owned = before is not None and nodes.get(before.node) == before.lease
            if not names or (is_owned and (self._is_calm or chance.flip(0.8))):
                continue
            name = chance.choose(names)
            if before is not None and is_owned and name != before.node and chance.flip(0.8):
                with suppress(Conflict, NoSuccessor):
                    await placer.offer(key, name, timeout=chance.uniform(0.5, 4.0), reason="for a change")
                continue
            await placer.place(key, name)

    # The judge.

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        for event in batch.events:
            key = event.item.key
            if event.kind is not EventKind.PUT:
                continue
            if key.startswith(PREFIX):
                self._check_placed(key, Placement.decode(event.item.value))
            elif key.startswith(ACTS):
                self._check_act(key.removeprefix(ACTS), event.item.value)
            elif key.startswith(RECORDS):
                record = Handover.decode(event.item.value, revision=event.item.mod_revision)
                if record.step is HandoverStep.TAKEN:
                    self._sealed[PREFIX + record.name.encode(), record.next_epoch] = record.state

    def _rewound(self, items: Sequence[KeyValue], revision: int) -> None:
        self._has_gone_back = True

    def _check_placed(self, key: bytes, placement: Placement) -> None:
        if placement.epoch <= self._epochs.get(key, 0):
            self.world.fail("epochs grow", f"{key!r}: {placement} after {self._epochs[key]}")
        self._epochs[key] = placement.epoch
        item = self.store.item(RECORDS + key.removeprefix(PREFIX))
        if item is not None and Handover.decode(item.value).step is HandoverStep.SEALED:
            self.world.fail("nothing is placed past what is sealed", f"{key!r}: {placement}")

    def _check_act(self, key: bytes, value: bytes) -> None:
        node, lease, epoch = value.decode().split()
        placement = self._placement(key)
        acting = Placement(node=node, lease=int(lease), epoch=int(epoch))
        if placement != acting or self._record_lease(node) != acting.lease:
            self.world.fail("only the owner acts", f"{acting} acted for {key!r}, of {placement}")
        self.acts_count += 1
        if self._is_calm:
            self._acted[key] = acting.epoch

    def _placement(self, key: bytes) -> Placement | None:
        item = self.store.item(key)
        return None if item is None else Placement.decode(item.value)

    def _record_lease(self, node: str) -> int:
        item = self.store.item(KEYS.node(node))
        return 0 if item is None else item.lease


class PlacedHandovers(Placements):
    """Entries that a leader moves: one owner, and nothing sealed is lost, whoever dies whenever."""

    name: ClassVar[str] = "placed_handovers"
    chaos_s: ClassVar[float] = 8.0

    store: StruckStore

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # One node is left when both participants are gone.
        self.names = self.names[:3]
        self.cell = CELLS[world.seed % len(CELLS)]
        self.store = StruckStore(world, witness=self._witness, hosts_of=self._hosts_of)
        self.steps: Counter[HandoverStep] = Counter()
        """How often each step was taken."""
        self._records: dict[bytes, Handover] = {}
        self._candidates: dict[bytes, KeyValue] = {}
        # States that were sealed and not read, by the entry.
        self._unread: dict[bytes, bytes] = {}

    def plan(self, chance: Chance) -> FaultPlan:
        strike = draw_strike(chance.fork("strike"), self.cell, self.store.name)
        if chance.flip(0.6):
            return (strike,)
        ttl_s = 2 * TIMEOUT_S
        trouble = draw_store_plan(chance, self.names, self.store.name, chaos_s=self.chaos_s, ttl_s=ttl_s)
        return (strike, *trouble)

    def calm(self) -> None:
        self.store.calm()
        super().calm()

    def unsettled(self) -> str:
        for record in self._records.values():
            if record.is_open:
                return f"a hand-over is open: {record}"
        return super().unsettled()

    def _link(self, host: Host) -> StoreLink:
        return self.store.link(host)

    # The judge, and the aim.

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        super()._witness(batch, origin)
        for event in batch.events:
            if event.item.key.startswith(OFFICE) and event.kind is EventKind.PUT:
                self._candidates[event.item.key] = event.item
            else:
                self._candidates.pop(event.item.key, None)
        placed = {event.item.key for event in batch.events if event.item.key.startswith(PREFIX)}
        for event in batch.events:
            if event.kind is EventKind.PUT and event.item.key.startswith(RECORDS):
                entry = PREFIX + event.item.key.removeprefix(RECORDS)
                now = Handover.decode(event.item.value, revision=event.item.mod_revision)
                self._check_step(entry, now, origin)
                if now.step is HandoverStep.TAKEN:
                    placed.discard(entry)
        for entry in placed:
            if entry in self._unread:
                self.world.fail("no sealed state is lost", f"{self._placement(entry)} of {entry!r}")
        for entry in ENTRIES:
            self._check_believers(entry)

    def _check_step(self, entry: bytes, now: Handover, origin: str) -> None:
        before = self._records.get(entry)
        self._records[entry] = now
        self.steps[now.step] += 1
        if before is None or before.number != now.number:
            follows = now.step is HandoverStep.OFFERED and (before is None or not before.is_open)
        else:
            follows = now.step in FOLLOWERS.get(before.step, ())
        if not follows:
            self.world.fail("steps follow each other", f"{now} after {before}")
        placement = self._placement(entry)
        owner = "" if placement is None else str(placement.lease)
        epoch = 0 if placement is None else placement.epoch
        is_true, writer = (owner, epoch) == (now.owner_key, now.epoch), origin
        match now.step:
            case HandoverStep.PREPARED:
                is_true, writer = True, now.target
            case HandoverStep.SEALED:
                writer = now.source
                self._unread[entry] = now.state
            case HandoverStep.TAKEN:
                is_true = (owner, epoch) == (now.target_key, now.next_epoch)
                if self._unread.get(entry) != now.state:
                    self.world.fail("no sealed state is lost", f"{now}: {self._unread.get(entry)!r}")
            case HandoverStep.DONE:
                is_true, writer = (owner, epoch) == (now.target_key, now.next_epoch), now.taken_by
                del self._unread[entry]
            case HandoverStep.WITHDRAWN:
                # The owner may have changed before it was sealed: that is why.
                is_true = is_true or entry not in self._unread
                self._unread.pop(entry, None)
        if not is_true:
            self.world.fail("the record says what happened", f"{now}, and it is {placement}")
        if writer != origin:
            self.world.fail("each step is written by whose it is", f"{origin} wrote {now}")

    def _check_believers(self, entry: bytes) -> None:
        """The holder of an older claim may not have heard yet of the new owner: its guards say so."""
        record = self._records.get(entry)
        if record is None or record.step is not HandoverStep.SEALED:
            return
        for name, (life, claims) in self._claims.items():
            claim = claims.claims.get(entry)
            if claim is not None and claim.epoch == record.epoch and life.state is not LifeState.DEAD:
                self.world.fail("an owner that has sealed no longer acts", f"{name} owns {entry!r}: {record}")

    def _hosts_of(self, victim: Victim, record: Handover) -> Sequence[str]:
        match victim:
            case Victim.OLD:
                name = record.source
            case Victim.NEW:
                name = record.target
            case Victim.STORE:
                name = self.store.name
            case _:
                name = self._leader()
        return [name] if name in self.world.hosts else []

    def _leader(self) -> str:
        """The leader's host, by the store."""
        if not self._candidates:
            return ""
        first = min(self._candidates.values(), key=lambda item: item.create_revision)
        return self.store.lease_hosts[first.lease]
