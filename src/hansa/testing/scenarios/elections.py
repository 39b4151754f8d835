"""Candidates for one office, and watchers of the election, under every fault.

Three to seven candidates campaign, lead for a while, proclaim, resign, fail, crash, are paused and cut off.
Their clocks run up to a hundredth fast or slow. The store crashes and comes back, answers late or not at all,
forgets its history, and goes back in time.

Always: at most one leads, as the leaders themselves believe at every instant; a candidate that believes to
lead does lead in the store, unless the store went back behind it; terms grow; watchers see only true leaders,
in the order of terms.

When the faults are over: somebody leads, and all watchers know who. The leader resigns, and it is so again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum, auto
from typing import ClassVar

from hansa.chance import Chance
from hansa.coordination.election import Election, LeaderInfo, Leadership
from hansa.coordination.line import decode_signed
from hansa.coordination.session import Session
from hansa.errors import Fenced, StoreUnavailable, TimedOut
from hansa.keys import Keys
from hansa.store.values import EventKind, KeyValue, WatchBatch
from hansa.testing.faults import FaultPlan, draw_rewinds, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.scenarios.claims import Belief, Claims, draw_owner_pauses
from hansa.testing.simulation import Scenario
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World
from hansa.transport.environment import Environment

__all__ = ["Elections"]

OFFICE = "chief"
PREFIX = Keys().leader(OFFICE)


class Phase(Enum):
    """The phases of the leaders: do anything; stay; leave the office to another; stay."""

    CHAOS = auto()
    CALM = auto()
    HANDOVER = auto()


class Elections(Scenario):
    """Candidates and watchers: never two leaders, terms grow, in the end one leads and all know."""

    name: ClassVar[str] = "elections"
    chaos_s: ClassVar[float] = 18.0
    quiet_s: ClassVar[float] = 40.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("elections")
        self.store = StoreHost(world, witness=self._witness, rewound=self._rewound)
        self.claims = Claims(self.store)
        self.claims.add_line(PREFIX)
        self.ttl_s = chance.choose((1.5, 3.0))
        self.candidates = [f"c{number}" for number in range(1, 4 + chance.choose((0, 0, 1, 2, 4)))]
        self.watchers = [f"w{number}" for number in range(1, 2 + chance.below(2))]
        self.phase = Phase.CHAOS
        self._retiring: asyncio.Event | None = None
        self._retired_term = 0
        # Each term with each value that it ever had, as it was in the store.
        self._truths: set[tuple[int, bytes]] = set()
        self._seen: dict[str, LeaderInfo | None] = {}

    def begin(self) -> None:
        self._retiring = asyncio.Event()
        for name in self.candidates:
            self.world.host(name, self._stand).start()
        for name in self.watchers:
            self.world.host(name, self._watch).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        hosts = [*self.candidates, *self.watchers]
        return (
            *draw_store_plan(chance, hosts, self.store.name, chaos_s=self.chaos_s, ttl_s=self.ttl_s),
            *draw_owner_pauses(chance.fork("owners"), [PREFIX], chaos_s=self.chaos_s, ttl_s=self.ttl_s),
            *draw_rewinds(chance.fork("rewinds"), self.store.name, chaos_s=self.chaos_s, ttl_s=self.ttl_s),
        )

    def calm(self) -> None:
        self.phase = Phase.CALM

    def unsettled(self) -> str:
        leaders = self.claims.believed(PREFIX)
        standing = self.claims.standing(PREFIX)
        if not leaders:
            return f"{self.phase.name}: nobody leads, {standing} stand"
        term = leaders[0].token
        if standing[:1] != [term]:
            return f"{self.phase.name}: {leaders[0]} leads, and {standing} stand"
        if term == self._retired_term:
            return f"{self.phase.name}: {leaders[0]} does not resign"
        for name in self.watchers:
            seen = self._seen.get(name)
            if seen is None or seen.term != term:
                return f"{self.phase.name}: {name} sees {seen}, and not {leaders[0]}"
        if self.phase is Phase.CALM:
            self.phase = Phase.HANDOVER
            self._retired_term = term
            if self._retiring is not None:
                self._retiring.set()
            return f"{leaders[0]} has not resigned"
        return ""

    # What runs on the hosts.

    async def _stand(self, host: Host) -> None:
        chance = host.chance.fork("candidate")
        async with StoreLink(host, self.store) as link:
            while True:
                try:
                    async with Session(
                        link,
                        self.ttl_s,
                        node=host.name,
                        name=str(host.life),
                        environment=Environment(chance=chance.fork("session")),
                    ) as session:
                        while True:
                            await self._campaign(host, session, chance)
                except (StoreUnavailable, TimedOut, Fenced) as error:
                    host.record(f"gives up: {error.code}")
                    await asyncio.sleep(chance.uniform(0.1, 0.8))

    async def _campaign(self, host: Host, session: Session, chance: Chance) -> None:
        election = Election(session, OFFICE, value=str(host.life).encode())
        patience_s = None if chance.flip(0.7) else chance.uniform(0.2, 4.0)
        try:
            async with election.campaign(timeout=patience_s) as leadership:
                claim = self.claims.begin(
                    host,
                    PREFIX,
                    token=leadership.term,
                    guard=leadership.guard,
                    is_held=lambda: leadership.is_leading,
                )
                await self._lead(host, leadership, claim, chance)
        except TimedOut:
            host.record("campaigns no longer")
        await asyncio.sleep(chance.uniform(0.0, 1.0))

    async def _lead(self, host: Host, leadership: Leadership, claim: Belief, chance: Chance) -> None:
        for number in range(chance.choose((0, 1, 4, 20))):
            await asyncio.sleep(chance.uniform(0.0, 2.0))
            leadership.check()
            if chance.flip(0.3):
                await leadership.proclaim(f"{host.life} says {number}".encode())
            if self.phase is not Phase.CHAOS:
                break
        if self.phase is not Phase.CHAOS:
            await self._stay(leadership)
        if chance.flip(0.3):
            host.record(f"resigns {claim}")
            await leadership.resign()
            if leadership.is_leading:
                self.world.fail("who resigned does not lead", str(claim))

    async def _stay(self, leadership: Leadership) -> None:
        if self._retiring is not None and self._retired_term in (0, leadership.term):
            await self._retiring.wait()
        if leadership.term != self._retired_term:
            await asyncio.Event().wait()

    async def _watch(self, host: Host) -> None:
        chance = host.chance.fork("watcher")
        term_max = 0
        async with StoreLink(host, self.store) as link:
            while True:
                self._seen.pop(host.name, None)
                try:
                    async with Session(
                        link,
                        self.ttl_s,
                        node=host.name,
                        name=str(host.life),
                        environment=Environment(chance=chance.fork("session")),
                    ) as session:
                        async for info in Election(session, OFFICE).observe():
                            self._see(host, info, term_max)
                            term_max = info.term if info is not None else term_max
                except (StoreUnavailable, TimedOut, Fenced) as error:
                    host.record(f"watches no longer: {error.code}")
                    await asyncio.sleep(chance.uniform(0.1, 0.8))

    def _see(self, host: Host, info: LeaderInfo | None, term_max: int) -> None:
        host.record(f"sees {info}")
        self._seen[host.name] = info
        if info is None:
            return
        if (info.term, info.value) not in self._truths:
            self.world.fail("only what was is seen", f"{host.life} sees {info}")
        if info.term < term_max:
            self.world.fail("terms are seen in order", f"{host.life} sees {info} after {term_max}")

    def _rewound(self, items: Sequence[KeyValue], revision: int) -> None:
        self.claims.rewound(items, revision)

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        for event in batch.events:
            if event.kind is EventKind.PUT and event.item.key.startswith(PREFIX):
                self._truths.add((event.item.create_revision, decode_signed(event.item.value).body))
        self.claims.follow(batch, origin)
