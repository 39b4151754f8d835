"""Entries that a leader places on the nodes that are there, and nodes that act for what is placed on them.

Three to five nodes, each with one keeper of sessions, on which all of it hangs: the node's record, its
candidacy, and what is placed on it. Whoever leads gives every entry whose lease is not that of its node's
record to a node that is there, and now and then one that has an owner to another. Owners write under the
guards of their claims. Nodes are paused, cut off, killed and started again, and clocks run up to a hundredth
fast or slow; in some runs the store goes back in time.

Always: whoever writes for an entry is its owner at that instant, by the entry and by the record; the epoch of
an entry grows with each owner; a claim is on the session that its entry names; and of a keeper's sessions all
parts are told in turn: first each part of the loss, when each claim knows it, and then each of the next one.

When the faults are over: each entry has an owner that is there, which writes, and nobody else believes to.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import ClassVar

from hansa.chance import Chance
from hansa.coordination import (
    Election,
    Leadership,
    Members,
    NodeInfo,
    PlacedClaim,
    PlacedClaims,
    Placement,
    Session,
    SessionKeeper,
)
from hansa.coordination.session import Hanging
from hansa.errors import Fenced, SessionLost, StoreUnavailable, TimedOut
from hansa.keys import Keys
from hansa.store.values import Compare, EventKind, Put, WatchBatch
from hansa.testing.faults import FaultPlan
from hansa.testing.host import Host
from hansa.testing.life import Life
from hansa.testing.scenario import Scenario
from hansa.testing.store_faults import draw_rewinds, draw_store_plan
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World
from hansa.transport.environment import Environment

__all__ = ["Placements"]

KEYS = Keys()
PREFIX = b"entries/"
ACTS = b"acts/"
ENTRIES = tuple(PREFIX + name for name in (b"amber", b"cloth", b"herring", b"salt"))
INTERVAL_S = 0.5
TIMEOUT_S = 1.5
LOOK_S = 0.3


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
        self.store = StoreHost(world, witness=self._witness)
        self.names = [f"n{number}" for number in range(1, 4 + chance.below(3))]
        self.acts_count = 0
        self._is_calm = False
        # The newest epoch of each entry, over all that a store has forgotten.
        self._epochs: dict[bytes, int] = {}
        # By entry, the epoch in which somebody has acted since the faults were over.
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

    async def _live(self, host: Host) -> None:
        chance = host.chance.fork("node")
        self._claims.pop(host.name, None)
        async with StoreLink(host, self.store) as link:
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
                tasks.create_task(self._act(host, link, claim, chance), name=f"acts for {claim.key!r}")

            claims = PlacedClaims(keeper, host.name, PREFIX, on_claim=own)
            self._claims[host.name] = host.life, claims
            told = PartsLog(host, claims)
            for part in told.parts:
                keeper.hang_on(part)
            tasks.create_task(claims.run(), name="following entries")
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

    async def _act(self, host: Host, link: StoreLink, claim: PlacedClaim, chance: Chance) -> None:
        """Write for an entry, as long as it is owned, and once more."""
        while claim.is_standing or chance.flip(0.2):
            await asyncio.sleep(chance.uniform(0.0, 0.5))
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
                    while True:
                        await self._place(host, link, leadership, chance)
                        await asyncio.sleep(LOOK_S)
            except (StoreUnavailable, TimedOut, Fenced) as error:
                host.record(f"does not lead: {error.code}")
                await asyncio.sleep(chance.uniform(0.1, 0.5))

    async def _place(self, host: Host, link: StoreLink, leadership: Leadership, chance: Chance) -> None:
        """Look at all entries, and give an owner to those that have none."""
        nodes = {item.key.removeprefix(KEYS.nodes): item for item in (await link.scan(KEYS.nodes)).items}
        scan = await link.scan(PREFIX)
        found = {item.key: item for item in scan.items}
        for key in ENTRIES:
            before = Placement.decode(found[key].value) if key in found else None
            node = nodes.get(before.node.encode()) if before is not None else None
            is_owned = before is not None and node is not None and node.lease == before.lease
            if not nodes or (is_owned and (self._is_calm or chance.flip(0.9))):
                continue
            name = chance.choose(sorted(nodes))
            placement = Placement(node=name.decode(), lease=nodes[name].lease, epoch=scan.revision + 1)
            revision = found[key].mod_revision if key in found else 0
            await link.commit(
                [leadership.guard, Compare.revision(key, "=", revision)], [Put(key, placement.encode())]
            )

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

    def _check_placed(self, key: bytes, placement: Placement) -> None:
        if placement.epoch <= self._epochs.get(key, 0):
            self.world.fail("epochs grow", f"{key!r}: {placement} after {self._epochs[key]}")
        self._epochs[key] = placement.epoch

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
