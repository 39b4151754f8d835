"""A group of workers that share work out on a store, and trouble at each step of that.

Four nodes, which are not alike, are members and work for a group of eight partitions. Some of these may only
go to some of the nodes; one has large handoffs. A worker computes the running sum of each partition's
messages, notes how far it is, saves now and then, and acts under its guards. Workers leave and come again, on
the same lease or on another one. One of them leads the group. An operator changes partitions, limits and
drained nodes, and moves partitions by hand. Clocks run up to a hundredth fast or slow.

Each seed has a strike of its own (`strikes`), at a step of a hand-over, or at one of the leader's other
writes: a plan's moves, its head, its end, and an owner for a partition that nobody has. 360 seeds in a row
have all strikes. In some runs there is trouble at random as well, and in some, instead of the strike, a store
that goes back in time.

Always: a partition has one owner an epoch, and epochs grow; only the owner acts or saves, and a worker that
has sealed a partition no longer works on it; an owner is given what was saved last, and each saved state
includes each message once, in order, and never without the act that it was to be saved with; what is given up
was saved; a plan is whole before any of its moves begins; a partition moves only where the plan says, or
where somebody asked for by hand, no more at once than the settings allow, from a worker that gives it or is
gone to a worker that may have it; a worker that leaves is given nothing more.

When the faults are over: each partition that some worker may have is owned by a worker that may have it, and
that works on it; all is shared out as the planner says, no hand-over is open, the plan has ended; and from
then on nothing moves while nothing changes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar, Final

from hansa.assignment.handoff import FailedHandoff, Handoff
from hansa.assignment.partition import GroupSettings, Partition
from hansa.assignment.plan import PlanState
from hansa.assignment.planner import share_out
from hansa.assignment.topology import handovers_of
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.chance import Chance
from hansa.coordination import Members, NodeInfo, Placer
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.placed import Placement
from hansa.errors import (
    AlreadyClosed,
    BadRecord,
    Conflict,
    Fenced,
    NoOwner,
    NoSuccessor,
    NotHeld,
    StoreUnavailable,
    TimedOut,
)
from hansa.keys import Keys
from hansa.limits import STORE_TIMEOUT_S, STORE_TXN_COUNT_MAX
from hansa.store.values import Compare, KeyValue, Operation, Outcome, Put, WatchBatch
from hansa.testing.faults import FaultPlan, draw_rewinds, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.scenarios.assignment_facts import RunningSums
from hansa.testing.scenarios.assignment_truth import ACTS, AssignmentTruth, PlanStep
from hansa.testing.scenarios.strikes import (
    HARMS,
    STEPS,
    Cell,
    Moment,
    Sight,
    StruckLink,
    StruckStore,
    Victim,
    Written,
    draw_strike,
)
from hansa.testing.simulation import Scenario
from hansa.testing.world import World
from hansa.transport.environment import Environment

__all__ = ["CELLS", "AssignmentScenario"]

KEYS: Final = Keys()
GROUP: Final = "mill"
ENTRIES: Final = KEYS.assignments(GROUP)
RECORDS: Final = KEYS.handovers_of(handovers_of(GROUP))
PLANS: Final = KEYS.plans(GROUP)
OPERATOR: Final = "operator"
INTERVAL_S: Final = 0.5
TIMEOUT_S: Final = 1.5
REBALANCE_S: Final = 2.0
LEAVE_S: Final = 2.0
MESSAGE_S_MAX: Final = 1.2
# A worker that waits no longer than this for a save mostly leaves it in doubt.
IMPATIENT_S: Final = 0.04
# How long nothing may move in the end: longer than it takes the leader to look again.
STILL_S: Final = 1.5 * REBALANCE_S

# What each node is: its zone, roles and resource groups, and how much it can carry.
NODES: Final = {
    "n1": ("east", frozenset({"press"}), frozenset({"north"}), 1),
    "n2": ("east", frozenset({"press", "saw"}), frozenset[str](), 1),
    "n3": ("west", frozenset({"saw"}), frozenset({"north", "south"}), 1),
    "n4": ("west", frozenset[str](), frozenset[str](), 2),
}
PARTITIONS: Final = {
    each.name: each
    for each in (
        Partition(name="p1"),
        Partition(name="p2", weight=2, resources=("m1", "m2")),
        Partition(name="p3", weight=3),
        Partition(name="p4", pinned="n2"),
        Partition(name="p5", role="press"),
        Partition(name="p6", role="saw", zone="west"),
        Partition(name="p7", resource_group="north"),
        Partition(name="p8", zone="east"),
    )
}
LARGE: Final = "p8"
# No partition has it before the end: so the last change is one to all leaders.
LAST_WEIGHT: Final = 4

_AIMS: Final = (
    *((Victim.LEADER, step) for step in (*PlanStep, *STEPS, HandoverStep.WITHDRAWN)),
    *((Victim.NEW, step) for step in (PlanStep.PLACED, *STEPS)),
    *((Victim.OLD, step) for step in STEPS),
    *((Victim.STORE, step) for step in (*PlanStep, *STEPS)),
)
CELLS: Final = tuple(
    Cell(step=step, victim=victim, harm=harm, moment=moment)
    for moment in Moment
    for harm in HARMS
    for victim, step in _AIMS
)
# It has no divisor in common with the number of cells: a few seeds in a row have some of everything.
CELLS_STRIDE: Final = 101


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """The nodes that take part in a step, by name; empty for nobody."""

    source: str = ""
    target: str = ""


def sight_of(written: Sequence[Written]) -> Sight | None:
    """The step that a transaction takes, for a strike."""
    records = [each for each in written if each.key.startswith(RECORDS)]
    entries = [each for each in written if each.key.startswith(ENTRIES)]
    if records and not (entries and Handover.decode(records[0].value).step is HandoverStep.WITHDRAWN):
        record = Handover.decode(records[0].value, revision=records[0].revision)
        words = f"{record.what} {record.number}, {record.step.value}"
        target = record.taken_by or record.target
        return Sight(step=record.step, words=words, subject=Taking(source=record.source, target=target))
    if entries:
        placement = Placement.decode(entries[0].value)
        taking = Taking(target=placement.node)
        return Sight(step=PlanStep.PLACED, words=f"{placement} of {entries[0].key!r}", subject=taking)
    for each in written:
        if each.key.startswith(PLANS):
            step = PlanStep.PART
            if each.key.endswith(b"head"):
                is_open = json.loads(each.value)["state"] == PlanState.OPEN.value
                step = PlanStep.HEAD if is_open else PlanStep.ENDED
            return Sight(step=step, words=step.value, subject=Taking())
    return None


class AssignmentLink(StruckLink):
    """A link that checks the size of each transaction, and reports the offers that are in doubt."""

    def __init__(self, host: Host, store: StruckStore, truth: AssignmentTruth) -> None:
        super().__init__(host, store)
        self._world = host.world
        self._truth = truth

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        if max(len(compares), len(then), len(otherwise)) > STORE_TXN_COUNT_MAX:
            self._world.fail("transactions are small", f"{len(compares)}, {len(then)} and {len(otherwise)}")
        try:
            return await super().commit(compares, then, otherwise, timeout=timeout)
        except BaseException:
            for put in then:
                if isinstance(put, Put) and put.key.startswith(KEYS.handovers):
                    record = Handover.decode(put.value)
                    if record.step is HandoverStep.OFFERED:
                        self._truth.doubt(record)
            raise


class AssignmentScenario(Scenario):
    """Work that is shared out: one owner each, nothing lost or done twice, and rest when all is well."""

    name: ClassVar[str] = "assignments"
    chaos_s: ClassVar[float] = 9.0
    quiet_s: ClassVar[float] = 60.0

    def __init__(self, world: World) -> None:
        super().__init__(world)
        chance = world.chance.fork("assignments")
        self.cell = CELLS[world.seed * CELLS_STRIDE % len(CELLS)]
        self.sums = RunningSums((LARGE,))
        self.store = StruckStore(
            world,
            witness=self._witness,
            hosts_of=self._hosts_of,
            sight_of=sight_of,
            rewound=self._rewound,
        )
        self.truth = AssignmentTruth(self.store, GROUP, self.sums)
        self.begun_count = 0
        """How often a worker was given a partition."""
        self.handed_count = 0
        """How often a worker was given a partition that another worker had given up."""
        self._settings = GroupSettings(
            moves_at_once=chance.choose((1, 2, 3)),
            per_node_max=chance.choose((None, None, 4)),
            join_delay=chance.choose((0.0, 0.5, 1.0)),
            rebalance_interval=REBALANCE_S,
            handover_timeout=chance.choose((1.0, 2.0, 4.0)),
        )
        self._last_settings = replace(
            self._settings, draining=frozenset(chance.choose(((), (), ("n3",), ("n4",))))
        )
        self._last_pin = chance.choose(("", "", "n1", "n4"))
        self._calmed = asyncio.Event()
        self._is_operated = False
        self._is_over = False
        self._still_since_s = 0.0

    def begin(self) -> None:
        for name in NODES:
            self.world.host(name, self._live).start()
        self.world.host(OPERATOR, self._operate).start()
        self.store.start()

    def plan(self, chance: Chance) -> FaultPlan:
        ttl_s = 2 * TIMEOUT_S
        hosts = [name for name in self.world.hosts if name != self.store.name]
        store = self.store.name
        if chance.flip(0.15):
            rewinds: FaultPlan = ()
            for number in count():
                rewinds = draw_rewinds(
                    chance.fork(f"rewinds {number}"), store, chaos_s=self.chaos_s, ttl_s=ttl_s
                )
                if rewinds:
                    break
            return (*draw_store_plan(chance, hosts, store, chaos_s=self.chaos_s, ttl_s=ttl_s), *rewinds)
        strike = draw_strike(chance.fork("strike"), self.cell, store, skipped_max=1)
        if chance.flip(0.6):
            return (strike,)
        return (strike, *draw_store_plan(chance, hosts, store, chaos_s=self.chaos_s, ttl_s=ttl_s))

    def calm(self) -> None:
        self.store.calm()
        self.truth.worked.clear()
        self._calmed.set()

    def unsettled(self) -> str:
        missing = self._missing()
        now_s = self.world.elapsed_s()
        if missing:
            if self._still_since_s:
                self.world.fail("what is well stays well", missing)
            return missing
        self._still_since_s = self._still_since_s or now_s
        if self.truth.changed_s > self._still_since_s:
            self.world.fail("nothing moves when nothing changes", f"{now_s - self.truth.changed_s:.1f} s ago")
        if now_s < self._still_since_s + STILL_S:
            return "all is well, and nothing moves yet"
        self._is_over = True
        return ""

    def _missing(self) -> str:
        truth = self.truth
        if not self._is_operated:
            return "the operator is not done"
        draining = truth.settings.draining
        away = NODES.keys() - {
            each.node for each in truth.candidates() if not each.is_draining or each.node in draining
        }
        if away:
            return f"{sorted(away)} do not work for the group"
        for name in PARTITIONS:
            if missing := self._missing_of(name):
                return missing
        if truth.plan is not None and truth.plan.state is PlanState.OPEN:
            return f"a plan is open: {truth.plan}"
        owners = {name: entry.node for name, entry in truth.entries.items() if entry.node}
        settings = truth.settings
        sharing = share_out(
            truth.candidates(), truth.partitions.values(), owners, per_node_max=settings.per_node_max
        )
        if truth.is_by_hand and self.world.elapsed_s() < max(truth.changed_s, truth.learned_s) + STILL_S:
            return "something was moved by hand, and a plan may be due"
        if sharing.moves and not truth.is_by_hand:
            return f"{owners} are not as the planner says: {sharing.moves}"
        for node in NODES:
            owned = [name for name, owner in owners.items() if owner == node]
            if settings.per_node_max is not None and len(owned) > settings.per_node_max:
                return f"{node} has too many: {owned}"
        return ""

    def _missing_of(self, name: str) -> str:
        truth = self.truth
        entry, record = truth.entries.get(name), truth.records.get(name)
        able = truth.who_may_have(name)
        node = "" if entry is None else entry.node
        if not able:
            # A change that the operator has given up may still be carried out, and take the partition away.
            unplaced = {} if truth.plan is None else truth.plan.unplaced
            is_told = name in unplaced or name not in truth.partitions
            if record is not None and record.is_open and not record.step.is_early:
                # The sealed state waits for the next owner: until there is one, the entry stays as it is.
                is_heirless = entry is not None and entry.lease != truth.lease_of(node)
                return "" if is_told and is_heirless else f"a hand-over is open: {record}"
            is_well = truth.may_keep(name, node) if node else is_told
            return "" if is_well else f"{name} is owned by {node!r}, and nobody may have it"
        if record is not None and record.is_open:
            return f"a hand-over is open: {record}"
        if entry is None or node not in able:
            return f"{name} is owned by {node!r}, and not by one of {able}"
        if entry.lease != truth.lease_of(node):
            return f"the owner of {name} is not there: {entry}"
        if truth.worked.get(name) != entry.epoch:
            return f"nobody works on {name}, which is owned: {entry}"
        believers = truth.believers(name)
        return "" if len(believers) == 1 else f"{believers} work on {name}, of {entry}"

    @property
    def _is_calm(self) -> bool:
        return self._calmed.is_set()

    # What runs on the hosts.

    async def _live(self, host: Host) -> None:
        chance = host.chance.fork("node")
        async with AssignmentLink(host, self.store, self.truth) as link:
            while True:
                try:
                    await self._be_member(host, link, chance)
                except* (StoreUnavailable, TimedOut, Fenced, Conflict, AlreadyClosed) as errors:
                    host.record(f"begins anew: {errors.exceptions[0]!r:.60}")
                await asyncio.sleep(chance.uniform(0.1, 0.8))

    async def _be_member(self, host: Host, link: StruckLink, chance: Chance) -> None:
        zone, roles, _, _ = NODES[host.name]
        async with Members(
            link,
            NodeInfo(id=host.name, zone=zone, roles=roles),
            heartbeat_interval=INTERVAL_S,
            heartbeat_timeout=TIMEOUT_S,
            environment=Environment(chance=chance.fork("members")),
        ) as members:
            while True:
                await self._be_worker(host, members, chance)
                await asyncio.sleep(chance.uniform(0.0, 1.5))
                if not self._is_calm and chance.flip(0.3):
                    return

    async def _be_worker(self, host: Host, members: Members, chance: Chance) -> None:
        _, _, groups, weight = NODES[host.name]
        chance = chance.fork(f"worker {self.world.elapsed_s()!r}")

        async def recover(failed: FailedHandoff) -> Handoff | None:
            host.record(f"cannot save {failed.partition}: {failed.error.code}")
            self.truth.failed(failed)
            return None

        worker = Worker(
            members,
            GROUP,
            weight=weight,
            resource_groups=groups,
            save_interval=chance.choose((0.7, 5.0)),
            leave_timeout=LEAVE_S,
            source=lambda work: self._messages(work, chance),
            recover=recover,
            environment=Environment(chance=chance.fork("worker")),
        )
        self.truth.leaving_s.pop(host.name, None)
        async with worker:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(worker.run(lambda work: self._work(host, work, chance)), name="works")
                    await self._stay(chance)
                    host.record("leaves")
                    self.truth.leaves(host)
                    await worker.leave()
            finally:
                # A worker that is cancelled leaves with the block.
                self.truth.leaves(host)
        self.truth.has_left(host)

    async def _stay(self, chance: Chance) -> None:
        """Stay for a while; once all is calm, for good."""
        patience_s = chance.choose((4.0, 20.0, 20.0)) * chance.uniform(0.3, 1.0)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._calmed.wait()
        if self._is_calm:
            await asyncio.Event().wait()

    async def _messages(self, work: Work, chance: Chance) -> AsyncIterator[int]:
        for offset in count(work.handoff.next_offset):
            await asyncio.sleep(chance.uniform(0.2, MESSAGE_S_MAX))
            yield offset

    async def _work(self, host: Host, work: Work, chance: Chance) -> None:
        self.begun_count += 1
        self.handed_count += work.handoff.last_offset >= 0
        self.truth.given(host, work)
        async with work:
            with self.truth.working(host, work):
                try:
                    await self._do_all(host, work, chance)
                finally:
                    # A worker that is asked for the partition, or has lost it, puts things away first.
                    await asyncio.sleep(chance.uniform(0.0, 0.3))

    async def _do_all(self, host: Host, work: Work, chance: Chance) -> None:
        lease = work.claim.placement.lease
        async for offset in work:
            handoff = replace(
                work.handoff,
                state=self.sums.step(work.partition, work.handoff.state, offset),
                last_offset=offset,
            )
            told = f"{host.name} {lease} {work.epoch} {offset}"
            act = Put(ACTS + work.partition.encode(), told.encode())
            with suppress(StoreUnavailable, TimedOut, TimeoutError):
                await self._act(work, handoff, act, chance)
            if work.handoff.last_offset != offset:
                # It was not noted: so nothing of it was done, and the message is to come once more.
                host.record(f"could not save {work.partition} up to {offset}")
                return
            if not self._is_calm and chance.flip(0.03):
                host.record(f"has enough of {work.partition}")
                return

    async def _act(self, work: Work, handoff: Handoff, act: Put, chance: Chance) -> None:
        way, offset = chance.below(10), handoff.last_offset
        is_noted_with_act = way == 2 and offset % 2 == 0
        if not is_noted_with_act:
            work.note(handoff)
            self.truth.noted(work)
        match way:
            case 0:
                await work.save()
            case 1:
                # The save may be carried out all the same, later.
                async with asyncio.timeout(chance.uniform(0.0, 0.5)):
                    await work.save()
            case 2:
                is_impatient = offset % 3 == 0 and not self._is_calm
                with self.truth.saving(work, offset, is_noted_with_act=is_noted_with_act):
                    async with asyncio.timeout(IMPATIENT_S if is_impatient else None):
                        await work.save(handoff if is_noted_with_act else None, operations=[act])
            case 3 | 4:
                await work.claim.session.store.commit(work.guards, [act], timeout=TIMEOUT_S)
            case _:
                pass

    # The operator.

    async def _operate(self, host: Host) -> None:
        chance = host.chance.fork("operator")
        async with AssignmentLink(host, self.store, self.truth) as link:
            await self._put_all(link, self._settings, PARTITIONS.values())
            while not self._is_calm:
                await asyncio.sleep(chance.uniform(0.3, 2.5))
                if self._is_calm:
                    break
                with suppress(StoreUnavailable, TimedOut, Conflict, NoOwner, NoSuccessor, BadRecord, NotHeld):
                    await self._change(host, link, chance)
            last = [*PARTITIONS.values()]
            last[0] = replace(last[0], weight=LAST_WEIGHT, pinned=self._last_pin)
            await self._put_all(link, self._last_settings, last)
            host.record("is done")
            self._is_operated = True
            await asyncio.Event().wait()

    async def _put_all(
        self, link: StruckLink, settings: GroupSettings, partitions: Iterable[Partition]
    ) -> None:
        puts = [Put(KEYS.partition(GROUP, each.name), each.encode()) for each in partitions]
        while True:
            try:
                await link.commit([], [Put(KEYS.group(GROUP), settings.encode()), *puts], timeout=TIMEOUT_S)
                return
            except (StoreUnavailable, TimedOut):
                await asyncio.sleep(0.3)

    async def _change(self, host: Host, link: StruckLink, chance: Chance) -> None:
        each = PARTITIONS[chance.choose(sorted(PARTITIONS))]
        key = KEYS.partition(GROUP, each.name)
        changes: tuple[Callable[[], Partition], ...] = (
            lambda: each,
            lambda: replace(each, weight=1 + chance.below(3)),
            lambda: replace(each, pinned=chance.choose(("", *NODES))),
            lambda: replace(each, role=chance.choose(("", "press", "saw", "nobody's"))),
            lambda: replace(each, resource_group=chance.choose(("", "north", "south"))),
            lambda: replace(each, resources=(*each.resources, "m9")),
        )
        match chance.below(9):
            case 0:
                await link.delete(key, timeout=TIMEOUT_S)
            case 1 | 2:
                settings = replace(
                    self._settings,
                    moves_at_once=chance.choose((1, 2, 3)),
                    draining=frozenset(chance.choose(((), ("n1",), ("n2",), ("n3", "n4")))),
                )
                await link.put(KEYS.group(GROUP), settings.encode(), timeout=TIMEOUT_S)
            case 3 | 4:
                await self._move(host, link, each.name, chance)
            case _:
                await link.put(key, chance.choose(changes)().encode(), timeout=TIMEOUT_S)

    async def _move(self, host: Host, link: StruckLink, name: str, chance: Chance) -> None:
        """Move a partition by hand to a node that may have it, also to one that leaves."""
        able = [node for node in NODES if self.truth.may_keep(name, node)]
        if not able:
            return
        placer = Placer(link, ENTRIES, kind=handovers_of(GROUP), guard=None, node=host.name)
        entry = KEYS.assignment(GROUP, name)
        await placer.offer(entry, chance.choose(able), timeout=chance.choose((1.0, 4.0)), reason="by hand")

    # The judge, and the aim.

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        self.truth.follow(batch, origin)
        if self._still_since_s and not self._is_over and self.truth.changed_s == self.world.elapsed_s():
            self.world.fail("nothing moves when nothing changes", f"{batch.events} by {origin}")

    def _rewound(self, items: Sequence[KeyValue], revision: int) -> None:
        self.truth.rewound(items, revision)

    def _hosts_of(self, victim: Victim, taking: Taking) -> Sequence[str]:
        match victim:
            case Victim.OLD:
                name = taking.source
            case Victim.NEW:
                name = taking.target
            case Victim.STORE:
                name = self.store.name
            case _:
                name = self.truth.leader()
        return [name] if name in self.world.hosts else []
