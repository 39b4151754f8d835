"""Owners that hand over a lock or an office, and trouble at each step of it.

Four nodes stand in one line, for a lock or for an office. The owner writes to a counter under its fence, and
then hands over to a node that waits, with a state; because it wants to, or because somebody outside asks. Or
it gives up half-way, gives back instead, or does nothing until the time is over. In some runs the state is a
blob, and in some a node has no name, and nothing can be handed to it. Clocks run up to a hundredth fast or
slow.

Each seed has a strike of its own, at a step of a hand-over (`strikes`): 240 seeds in a row have all of them.
In some runs there is trouble at random besides.

Always: one owns at a time, as the owners themselves believe at every instant, and nobody while something is
sealed; epochs grow, and a counter behind a fence loses nothing; the next owner after a seal reads exactly
what was sealed, once, unless the old owner took it back; and the record says what happened, step by step.

When the faults are over: no hand-over is open, and every node owns once more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import ClassVar, Final

from hansa.chance import Chance
from hansa.coordination import Election, FencedKey, Handovers, Hold, Leadership, Lock, Session
from hansa.coordination.handover import Handover, HandoverStep
from hansa.errors import (
    Conflict,
    Fenced,
    HandoverWithdrawn,
    NoOwner,
    NoSuccessor,
    NotHeld,
    StaleFence,
    StoreUnavailable,
    TimedOut,
)
from hansa.limits import HANDOVER_INLINE_BYTES_MAX
from hansa.runtime.tasks import again
from hansa.store.values import WatchBatch
from hansa.testing.faults import FaultPlan, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.scenarios.handover_truth import LineTruth, OwnerBelief
from hansa.testing.scenarios.locks import GuardedCounters
from hansa.testing.scenarios.strikes import StruckStore, Victim, cells, draw_strike
from hansa.testing.simulation import Scenario
from hansa.testing.world import World
from hansa.transport.environment import Environment

__all__ = ["HandoverScenario"]

NAME: Final = "dock"
COUNTER: Final = b"counters/dock"
ASKER: Final = "asker"
CELLS: Final = cells(Victim.OLD, Victim.NEW, Victim.ASKER, Victim.STORE)
TIMEOUTS_S: Final = (0.5, 2.0, 4.0)
Owned = Hold | Leadership


class HandoverScenario(Scenario):
    """Locks and offices that are handed over: one owner, nothing sealed is lost, whoever dies whenever."""

    name: ClassVar[str] = "handovers"
    chaos_s: ClassVar[float] = 9.0
    quiet_s: ClassVar[float] = 40.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("handovers")
        self.cell = CELLS[world.seed % len(CELLS)]
        self.store = StruckStore(world, witness=self._witness, hosts_of=self._hosts_of)
        self.kind = chance.choose(("lock", "leader"))
        self.truth = LineTruth(self.store, self.kind, NAME)
        self.counters = GuardedCounters(world)
        self.ttl_s = chance.choose((1.5, 3.0))
        self.nodes = [f"n{number}" for number in range(1, 5)]
        self.handed_count = 0
        """How often an owner was told that another node owns its thing now."""
        self._nameless = chance.choose(("", "", self.nodes[-1]))
        # Whether somebody outside asks, and owners listen.
        self._is_asked = self.cell.victim is Victim.ASKER or chance.flip(0.3)
        # The state is larger than the record takes. A stream of its own: other seeds keep their histories.
        self._is_bulky = world.chance.fork("bulk").flip(0.25)
        self._is_calm = False
        self._unserved: set[str] = set()

    @property
    def steps(self) -> Counter[HandoverStep]:
        """How often each step was taken."""
        return self.truth.steps

    def begin(self) -> None:
        for name in self.nodes:
            self.world.host(name, self._live).start()
        self.world.host(ASKER, self._ask).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        strike = draw_strike(chance.fork("strike"), self.cell, self.store.name, skipped_max=1)
        if chance.flip(0.6):
            return (strike,)
        hosts = [name for name in self.world.hosts if name != self.store.name]
        trouble = draw_store_plan(chance, hosts, self.store.name, chaos_s=self.chaos_s, ttl_s=self.ttl_s)
        return (strike, *trouble)

    def calm(self) -> None:
        self.store.calm()
        self._is_calm = True
        self._unserved = set(self.nodes)

    def unsettled(self) -> str:
        if self._unserved:
            return f"{sorted(self._unserved)} have not owned it"
        record = self.truth.record
        if record is not None and record.is_open:
            return f"a hand-over is open: {record}"
        believed = self.truth.believed()
        if len(believed) != 1:
            return f"nobody owns it, {self.truth.owner} in the store"
        return ""

    def check(self) -> None:
        item = self.store.item(COUNTER)
        self.counters.check(NAME, None if item is None else item.value)

    # What runs on the hosts.

    async def _live(self, host: Host) -> None:
        chance = host.chance.fork("node")
        async with self.store.link(host) as link:
            while True:
                try:
                    async with Session(
                        link,
                        self.ttl_s,
                        node="" if host.name == self._nameless else host.name,
                        name=str(host.life),
                        environment=Environment(chance=chance.fork("session")),
                    ) as session:
                        while True:
                            await self._turn(host, session, chance)
                except (StoreUnavailable, TimedOut, Fenced) as error:
                    host.record(f"begins anew: {error.code}")
                    await asyncio.sleep(chance.uniform(0.1, 0.8))

    async def _turn(self, host: Host, session: Session, chance: Chance) -> None:
        """Own it, use it, and hand it over or give it back."""
        patience_s = None if self._is_calm or chance.flip(0.8) else chance.uniform(0.5, 3.0)
        owned: Owned
        try:
            if self.kind == "lock":
                owned = await Lock(session, NAME).acquire(patience_s)
            else:
                owned = await Election(session, NAME).win(timeout=patience_s)
        except TimedOut:
            host.record("has no patience")
            return
        right = Right(owned, session)
        try:
            self.truth.begin(host, right.belief(host), owned.state)
            await self._own(host, session, right, chance)
        except NotHeld:
            host.record("has handed it over")
        except (StaleFence, TimedOut, StoreUnavailable) as error:
            if isinstance(error, StaleFence) and right.is_true(self.truth):
                self.world.fail("epochs grow", f"{host.life}, {right.epoch}: {error}")
            host.record(f"gives it back: {error.code}")
        except Fenced as error:
            if session.is_live and right.was_taken(self.truth) and not self.truth.deletes_count:
                self.world.fail("who handed it over has not lost it", f"{host.life}, {right.epoch}: {error}")
            raise
        finally:
            # A loss that is raised here would hide why the block is left, a cancellation for example.
            with suppress(Fenced):
                await right.give_back()
            if right.is_held:
                self.world.fail("who gave it back does not own", f"{host.life}, {right.epoch}")
        await asyncio.sleep(chance.uniform(0.0, 0.3))

    async def _own(self, host: Host, session: Session, right: Right, chance: Chance) -> None:
        """Use it, until it is handed over, lost, or must be given back."""
        for _ in range(1_000 if self._is_calm else 1 + chance.below(4)):
            await self._count(host, session, right, chance)
            if self._is_calm and right.is_held:
                self._unserved.discard(host.name)
            if self._is_calm and not self._unserved:
                # In the quiet phase somebody must own it.
                raise again(await right.owned.lost())
            if not await self._pass_on(host, right, chance):
                return

    async def _count(self, host: Host, session: Session, right: Right, chance: Chance) -> None:
        """Write a mark under the fence, as in `locks`."""
        counter = FencedKey(session.store, COUNTER)
        marks = self.counters.read(NAME, await counter.take(right.epoch))
        await asyncio.sleep(chance.uniform(0.0, 0.1))
        mark = self.counters.begin(NAME, str(host.life))
        try:
            await counter.write(right.epoch, " ".join([*marks, mark]).encode(), timeout=self.ttl_s / 4)
        except (StaleFence, StoreUnavailable):
            self.counters.refused(NAME, mark)
            raise
        except Conflict:
            # A write that was given up came in between.
            self.counters.refused(NAME, mark)
        except TimedOut:
            # It may have been written, or may be written later.
            pass
        else:
            self.counters.acknowledged(NAME, mark)

    async def _pass_on(self, host: Host, right: Right, chance: Chance) -> bool:
        """Hand it over, or do not; returns whether to go on with it."""
        if not self._is_calm:
            await asyncio.sleep(chance.uniform(0.0, 0.6))
        wanting = [name for name in self.truth.waiting() if not self._is_calm or name in self._unserved]
        named = [name for name in wanting if name != self._nameless]
        match chance.below(10):
            case 0 if not self._is_calm:
                await asyncio.sleep(chance.uniform(0.0, 2.0))
            case 1:
                # A node without a name must be able to have it too.
                return not wanting
            case 2 | 3 | 4 if self._is_asked:
                await self._be_asked(host, right, chance)
            case _ if named:
                await self._give(host, right, chance.choose(named), chance)
            case _ if not self._is_calm:
                await self._give(host, right, chance.choose(self.nodes), chance)
            case _:
                await asyncio.sleep(0.1)
                return not wanting
        return True

    async def _ask(self, host: Host) -> None:
        """Look after the hand-overs of others, and ask for some."""
        chance = host.chance.fork("asker")
        async with self.store.link(host) as link:
            environment = Environment(chance=chance.fork("handovers"))
            handovers = Handovers(link, name=host.name, environment=environment)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(handovers.look_after(), name="looks after hand-overs")
                while True:
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                    try:
                        await self._move(host, handovers, chance)
                    except (
                        Conflict,
                        NoOwner,
                        NoSuccessor,
                        StoreUnavailable,
                        TimedOut,
                        TimeoutError,
                    ) as error:
                        host.record(f"asks in vain: {type(error).__name__}")

    async def _move(self, host: Host, handovers: Handovers, chance: Chance) -> None:
        if chance.flip(0.1):
            swept_count = await handovers.sweep(older_than=0.0)
            host.record(f"forgets {swept_count} hand-overs")
        if not self._is_asked:
            return
        wanting = [name for name in self.truth.waiting() if not self._is_calm or name in self._unserved]
        patience_s = chance.uniform(0.0, 0.5) if not self._is_calm and chance.flip(0.1) else None
        async with asyncio.timeout(patience_s):
            record = await handovers.move(
                self.kind,
                NAME,
                chance.choose(wanting or self.nodes),
                timeout=chance.choose(TIMEOUTS_S),
                reason="somebody wants it there",
            )
        host.record(f"has asked for it: {record.number} is {record.step.value}")
        if record.is_open or (record.step is HandoverStep.DONE and not self.truth.was_taken(record)):
            self.world.fail("the record says what happened", f"{host.life} was told {record}")

    async def _be_asked(self, host: Host, right: Right, chance: Chance) -> None:
        try:
            async with asyncio.timeout(chance.uniform(0.0, 2.0)):
                wanted = await right.owned.wanted()
        except TimeoutError:
            return
        host.record(f"is asked for it by {wanted.asked_by}, for {wanted.target}")
        if chance.flip(0.9):
            await self._give(host, right, wanted.target, chance)

    async def _give(self, host: Host, right: Right, to: str, chance: Chance) -> None:
        """Hand it over. Raises `NotHeld` when another node owns it, or may."""
        text = f"{host.life} {right.epoch} {right.number()} ".encode()
        if self._is_bulky:
            text = text.ljust(HANDOVER_INLINE_BYTES_MAX + 1, b".")

        async def state() -> bytes:
            await asyncio.sleep(chance.uniform(0.0, 0.2))
            return text

        patience_s = chance.uniform(0.0, 0.3) if not self._is_calm and chance.flip(0.1) else None
        try:
            async with asyncio.timeout(patience_s):
                record = await right.owned.hand_over(
                    to,
                    state=text if chance.flip(0.5) else state,
                    timeout=chance.choose(TIMEOUTS_S),
                    reason="it is its turn",
                )
        except (HandoverWithdrawn, NoSuccessor, Conflict, TimedOut, StoreUnavailable) as error:
            host.record(f"keeps it: {error.code}")
            try:
                right.owned.check()
            except NotHeld as lost:
                self.world.fail("who keeps it owns it", f"{host.life}, after {error!r}: {lost}")
            return
        except TimeoutError:
            host.record("waits for the hand-over no longer")
            # Without a seal it is kept; after the seal the hand-over goes on in the background.
            await asyncio.sleep(chance.uniform(0.0, 2.0))
            right.owned.check()
            return
        self._check_given(host, right, record)
        raise NotHeld("it was handed over")

    def _check_given(self, host: Host, right: Right, record: Handover) -> None:
        """The owner was told that somebody else owns it now."""
        host.record(f"handed it over to {record.target}: {record.number} is {record.step.value}")
        self.handed_count += 1
        if right.is_held:
            self.world.fail("who handed it over does not own", f"{host.life}, {right.epoch}")
        if record.step not in (HandoverStep.TAKEN, HandoverStep.DONE) or not self.truth.was_taken(record):
            self.world.fail("the record says what happened", f"{host.life} was told {record}")

    # The judge, and the target of strikes.

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        self.truth.follow(batch, origin)
        for event in batch.events:
            if event.item.key == COUNTER:
                self.counters.check(NAME, event.item.value)

    def _hosts_of(self, victim: Victim, record: Handover) -> Sequence[str]:
        match victim:
            case Victim.OLD:
                name = self.truth.host_of(record.owner_key)
            case Victim.NEW:
                name = record.target
            case Victim.ASKER:
                name = record.asked_by
            case _:
                name = self.store.name
        return [name] if name in self.world.hosts else []


class Right:
    """A hold or a leadership under one name."""

    def __init__(self, owned: Owned, session: Session) -> None:
        self.owned = owned
        self.session = session
        self.epoch = owned.fence if isinstance(owned, Hold) else owned.term
        self.number = partial(next, count(1))
        """Another number each time."""

    @property
    def is_held(self) -> bool:
        return self.owned.is_held if isinstance(self.owned, Hold) else self.owned.is_leading

    async def give_back(self) -> None:
        await (self.owned.release() if isinstance(self.owned, Hold) else self.owned.resign())

    def belief(self, host: Host) -> OwnerBelief:
        guard = self.owned.guard
        return OwnerBelief(
            life=host.life, key=guard.key, epoch=self.epoch, guard=guard, is_held=lambda: self.is_held
        )

    def was_taken(self, truth: LineTruth) -> bool:
        """Whether another node took it by a hand-over."""
        return truth.was_taken_from(self.owned.guard.key)

    def is_true(self, truth: LineTruth) -> bool:
        """Whether it is held, here and in the store."""
        return self.is_held and truth.owner == (self.owned.guard.key, self.epoch)
