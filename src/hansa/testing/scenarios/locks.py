"""Contenders for locks and for a semaphore, and counters that the holders write, under every fault.

Three to six contenders acquire two locks and a semaphore of two, with patience and without, hold them for a
while, release them, more than once, and write to a counter in the store for as long as they believe to hold,
and sometimes for longer. They are paused between reading and writing. Their clocks run up to a hundredth fast
or slow.

Always: at every instant at most one believes to hold a lock, and two the semaphore, and a contender that
believes to hold does hold in the store, unless the store went back in time behind it; fences grow, over that
too; first come, first served; only its owner releases; a refused write is not written, and no acknowledged
write is lost except by a store that went back.

When the faults are over: every contender gets everything once more.

Each write under a lock carries a mark of its own, and all marks stay in the value. So a lost update is a mark
that is missing in the end, by name, and not a number that is too small. If a store that goes back in time
forgets an update, no other writer has lost it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import ClassVar

from hansa.chance import Chance
from hansa.coordination import FencedKey, Hold, Lock, Semaphore, Session, SessionKeeper
from hansa.coordination.session import Sessions
from hansa.errors import Conflict, Fenced, LockLost, SessionLost, StaleFence, StoreUnavailable, TimedOut
from hansa.keys import Keys
from hansa.store.values import KeyValue, WatchBatch
from hansa.testing.faults import FaultPlan, draw_rewinds, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.scenarios.claims import Claims, draw_owner_pauses
from hansa.testing.simulation import Scenario
from hansa.testing.store_host import StoreHost
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World
from hansa.transport.environment import Environment

__all__ = ["GuardedCounters", "Locks", "Mark"]

Mark = str


class _Fate(Enum):
    """What the writer was told about a write."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


class GuardedCounters:
    """The books of all counters of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fates: dict[str, dict[Mark, _Fate]] = defaultdict(dict)
        # Writes that began before a store went back and that it does not have.
        self._forgotten: set[tuple[str, Mark]] = set()

    def count(self, name: str) -> int:
        """How many writes of a counter were acknowledged."""
        return sum(fate is _Fate.ACKNOWLEDGED for fate in self._fates[name].values())

    def read(self, name: str, value: bytes | None) -> list[Mark]:
        """A holder has read this value. No refused mark may be in it, and no mark twice."""
        marks = value.decode().split() if value else []
        for mark in marks:
            if self._fates[name].get(mark, _Fate.REFUSED) is _Fate.REFUSED:
                self._world.fail("what was refused is not written", f"{name} has {mark}: {marks}")
        if len(set(marks)) != len(marks):
            self._world.fail("nothing is written twice", f"{name}: {marks}")
        return marks

    def check(self, name: str, value: bytes | None) -> None:
        """The current value has all marks that were ever acknowledged, and none that was refused."""
        marks = self.read(name, value)
        acknowledged = [mark for mark, fate in self._fates[name].items() if fate is _Fate.ACKNOWLEDGED]
        if missing := sorted(set(acknowledged).difference(marks)):
            self._world.fail("no acknowledged update is lost", f"{name}: {missing} are missing in {marks}")

    def rewound(self, name: str, value: bytes | None) -> None:
        """The store went back: nobody is to blame for marks that it lacks now, acknowledged or not yet."""
        marks = self.read(name, value)
        for mark, fate in self._fates[name].items():
            if fate is not _Fate.REFUSED and mark not in marks:
                self._fates[name][mark] = _Fate.UNKNOWN
                self._forgotten.add((name, mark))

    def begin(self, name: str, who: str) -> Mark:
        """A write is about to be sent; until its fate is told, it may have been carried out or not."""
        mark = f"{who}.{len(self._fates[name])}"
        self._fates[name][mark] = _Fate.UNKNOWN
        return mark

    def acknowledged(self, name: str, mark: Mark) -> None:
        if (name, mark) not in self._forgotten:
            self._fates[name][mark] = _Fate.ACKNOWLEDGED

    def refused(self, name: str, mark: Mark) -> None:
        self._fates[name][mark] = _Fate.REFUSED


LOCKS = ("east", "west")
POOL = "pool"
POOL_LIMIT = 2
KEYS = Keys()
COUNTERS = {f"counters/{name}".encode(): name for name in LOCKS}


class Locks(Scenario):
    """Locks, a semaphore and fenced counters: no two hold the same, no update is lost."""

    name: ClassVar[str] = "locks"
    chaos_s: ClassVar[float] = 18.0
    quiet_s: ClassVar[float] = 40.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("locks")
        self.store = StoreHost(world, witness=self._witness, rewound=self._rewound)
        self.claims = Claims(self.store)
        for name in LOCKS:
            self.claims.add_line(KEYS.lock(name))
        self.claims.add_line(KEYS.semaphore(POOL), limit=POOL_LIMIT)
        self.counters = GuardedCounters(world)
        self.ttl_s = chance.choose((1.5, 3.0))
        self.contenders = [f"c{number}" for number in range(1, 4 + chance.choose((0, 0, 1, 3)))]
        self.is_calm = False
        self._unserved: dict[str, set[str]] = {}

    def begin(self) -> None:
        for name in self.contenders:
            self.world.host(name, self._contend).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        locks = [KEYS.lock(name) for name in LOCKS]
        return (
            *draw_store_plan(
                chance, self.contenders, self.store.name, chaos_s=self.chaos_s, ttl_s=self.ttl_s
            ),
            *draw_owner_pauses(chance.fork("owners"), locks, chaos_s=self.chaos_s, ttl_s=self.ttl_s),
            *draw_rewinds(chance.fork("rewinds"), self.store.name, chaos_s=self.chaos_s, ttl_s=self.ttl_s),
        )

    def calm(self) -> None:
        self.is_calm = True
        self._unserved = {name: {*LOCKS, POOL} for name in self.contenders}

    def unsettled(self) -> str:
        return ", ".join(
            f"{name} waits for {sorted(missing)}" for name, missing in self._unserved.items() if missing
        )

    def check(self) -> None:
        for key, name in COUNTERS.items():
            item = self.store.item(key)
            self.counters.check(name, None if item is None else item.value)

    # What runs on the hosts.

    async def _contend(self, host: Host) -> None:
        chance = host.chance.fork("contender")
        async with StoreLink(host, self.store) as link:
            while True:
                try:
                    async with self._sessions(host, link, chance) as sessions:
                        while True:
                            await self._turn(host, sessions, chance)
                except (StoreUnavailable, TimedOut, Fenced) as error:
                    host.record(f"gives up: {error.code}")
                    await asyncio.sleep(chance.uniform(0.1, 0.8))

    def _sessions(self, host: Host, link: StoreLink, chance: Chance) -> Session | SessionKeeper:
        """One session, which ends with a loss, or a keeper of one after the other."""
        kind: type[Session] | type[SessionKeeper] = chance.choose((Session, SessionKeeper))
        environment = Environment(chance=chance.fork("session"))
        return kind(link, ttl=self.ttl_s, node=host.name, name=str(host.life), environment=environment)

    async def _turn(self, host: Host, session: Sessions, chance: Chance) -> None:
        """Acquire something, and use it."""
        unserved = self._unserved.get(host.name)
        if unserved is not None and not unserved:
            await asyncio.Event().wait()
        name = chance.choose(sorted(unserved) if unserved else (*LOCKS, *LOCKS, POOL))
        lock = Semaphore(session, POOL, POOL_LIMIT) if name == POOL else Lock(session, name)
        try:
            match chance.below(4):
                case 0:
                    hold = await lock.try_acquire()
                    if hold is not None:
                        await self._hold(host, session, name, hold, chance)
                case 1:
                    hold = await lock.acquire(timeout=chance.uniform(0.1, 3.0))
                    await self._hold(host, session, name, hold, chance)
                case 2:
                    async with await lock.acquire() as hold:
                        await self._use(host, session, name, hold, chance)
                case _:
                    async with lock as hold:
                        await self._use(host, session, name, hold, chance)
        except TimedOut:
            host.record(f"has no patience for {name}")
        except (LockLost, StaleFence) as error:
            host.record(f"loses {name}: {error.code}")
        except SessionLost:
            if isinstance(session, Session):
                raise
            host.record("goes on with another session")
        await asyncio.sleep(chance.uniform(0.0, 0.6))

    async def _hold(self, host: Host, session: Sessions, name: str, hold: Hold, chance: Chance) -> None:
        """Use a hold without a guard around: the contender checks itself that it still holds, or does not."""
        try:
            await self._use(host, session, name, hold, chance)
        finally:
            # A loss that is raised here would hide why the block is left, a cancellation for example.
            with suppress(LockLost):
                await hold.release()
            if hold.is_held:
                self.world.fail("who released does not hold", f"{host.life} {name} {hold.fence}")
        if chance.flip(0.3):
            # Write once more, when another may hold it already.
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            with suppress(LockLost):
                await hold.release()

    async def _use(self, host: Host, session: Sessions, name: str, hold: Hold, chance: Chance) -> None:
        self.claims.begin(
            host,
            KEYS.semaphore(POOL) if name == POOL else KEYS.lock(name),
            token=hold.fence,
            guard=hold.guard,
            is_held=lambda: hold.is_held,
        )
        was_calm = self.is_calm
        if name == POOL:
            await asyncio.sleep(chance.uniform(0.0, 0.8))
        else:
            await self._count(host, session, name, hold, chance)
        if was_calm and hold.is_held:
            self._unserved[host.name].discard(name)

    async def _count(self, host: Host, session: Sessions, name: str, hold: Hold, chance: Chance) -> None:
        counter = FencedKey(session.store, f"counters/{name}")
        for _ in range(chance.choose((1, 2, 3, 8))):
            marks = self.counters.read(name, await counter.take(hold.fence))
            await asyncio.sleep(chance.uniform(0.0, 0.3))
            if chance.flip(0.3):
                hold.check()
            if chance.flip(0.1):
                await hold.refresh()
            mark = self.counters.begin(name, str(host.life))
            try:
                await counter.write(hold.fence, " ".join([*marks, mark]).encode(), timeout=self.ttl_s / 4)
            except (StaleFence, StoreUnavailable):
                self.counters.refused(name, mark)
                raise
            except Conflict:
                # A write that was given up came in between.
                self.counters.refused(name, mark)
                continue
            except TimedOut:
                # It may have been written, or may be written later; reading again first does no harm.
                continue
            self.counters.acknowledged(name, mark)
            host.record(f"writes {mark} to {name}")

    def _rewound(self, items: Sequence[KeyValue], revision: int) -> None:
        self.claims.rewound(items, revision)
        values = {item.key: item.value for item in items}
        for key, name in COUNTERS.items():
            self.counters.rewound(name, values.get(key))

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        self.claims.follow(batch, origin)
        for event in batch.events:
            if event.item.key in COUNTERS:
                self.counters.check(COUNTERS[event.item.key], event.item.value)
