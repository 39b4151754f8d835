"""The driver that leads a group: it carries out what `Rebalancing` decides. One worker of a group leads.

`Assigner` must: campaign on the sessions of its process, and again whenever it no longer leads. `Term` must:
tell the machine all that the store has before it asks for a decision, and all news after that; compare its
leadership in every step; have at most one step of a partition under way; tell the machine how each step went;
and, when it is in doubt whether a plan was written, read which plan is there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Final

from hansa.assignment.handoff import Handoffs
from hansa.assignment.partition import GroupSettings, Partition
from hansa.assignment.plan import Plans
from hansa.assignment.rebalancing import (
    ClearPartition,
    EndPlan,
    OfferPartition,
    PlacePartition,
    Rebalancing,
    RebalancingStats,
    RemovePartition,
    Step,
    WithdrawOffer,
    WritePlan,
    asked_by,
)
from hansa.assignment.topology import EntryNote, candidate_of, election_of, handovers_of
from hansa.coordination.election import Election
from hansa.coordination.following import TROUBLE, Following, Snapshot, changes, patient_backoff, patiently
from hansa.coordination.handover import Handover
from hansa.coordination.handovers import Handovers
from hansa.coordination.members import Members
from hansa.coordination.placed import Placement
from hansa.coordination.placing import Placer
from hansa.errors import BadRecord, Conflict, Fenced, HansaError, NoOwner, NoSuccessor
from hansa.keys import Keys, unquoted
from hansa.limits import ASSIGNMENT_SWEEP_S, HANDOFF_LIFETIME_S
from hansa.runtime.mailboxes import Waiters
from hansa.store.values import Compare, KeyValue
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

_WAIT_S_MIN: Final = 0.001


class Assigner:
    """Leads a group whenever it is this process's turn. `members` must have a node.

    Handoffs that nobody has saved for `handoff_lifetime` seconds are deleted, except those of defined
    partitions; None keeps all.
    """

    def __init__(
        self,
        members: Members,
        group: str,
        *,
        handoff_lifetime: float | None = HANDOFF_LIFETIME_S,
        environment: Environment | None = None,
    ) -> None:
        self._members = members
        self._group = group
        self._lifetime_s = handoff_lifetime
        self._environment = environment if environment is not None else Environment()
        self._election = Election(members.sessions, election_of(group))
        self._term: Term | None = None
        self.terms_count = 0
        """How often this process became the leader of the group."""
        self.troubles_count = 0
        """Steps that the store did not answer, or refused."""

    @property
    def is_leading(self) -> bool:
        return self._term is not None

    @property
    def stats(self) -> RebalancingStats:
        """The counts of this process's term while it leads; otherwise zeros."""
        return RebalancingStats() if self._term is None else self._term.machine.stats

    async def run(self) -> None:
        """Campaign, and lead when elected, until cancelled. Raises `AlreadyClosed`."""
        backoff = patient_backoff(self._environment.chance)
        while True:
            try:
                async with self._election.campaign() as leadership:
                    self.terms_count += 1
                    self._term = Term(
                        self._members,
                        self._group,
                        guard=leadership.guard,
                        handoff_lifetime=self._lifetime_s,
                        environment=self._environment.fork(f"term {leadership.term}"),
                        on_trouble=self._in_trouble,
                    )
                    await self._term.run()
            except* (*TROUBLE, Fenced, Conflict) as errors:
                logger.info(
                    "group %r is no longer led by this process: %s", self._group, errors.exceptions[0]
                )
            finally:
                self._term = None
            await asyncio.sleep(backoff.next_s())

    def _in_trouble(self, error: HansaError) -> None:
        self.troubles_count += 1
        logger.info("group %r: a step is tried again: %s", self._group, error)


class Term:
    """One term of a group's leader. The `guard` holds as long as it leads."""

    def __init__(
        self,
        members: Members,
        group: str,
        *,
        guard: Compare,
        handoff_lifetime: float | None,
        environment: Environment,
        on_trouble: Callable[[HansaError], None],
    ) -> None:
        self._members = members
        self._store = members.store
        self._group = group
        self._guard = guard
        self._lifetime_s = handoff_lifetime
        self._environment = environment
        self._on_trouble = on_trouble
        self._keys = Keys(members.cluster)
        self._entries = self._keys.assignments(group)
        self.machine = Rebalancing(group, members.me.id)
        self._plans = Plans(self._store, group, cluster=members.cluster)
        self._placer = Placer(
            self._store,
            self._entries,
            kind=handovers_of(group),
            guard=guard,
            node=asked_by(group),
            cluster=members.cluster,
        )
        self._news = Waiters()
        self._changes_count = 0
        self._reads_count = 0
        self._is_view_new = True
        self.bad_records_count = 0

    async def run(self) -> None:
        """Lead until cancelled. Raises `Fenced` when it no longer leads, and `AlreadyClosed`."""
        keys, group = self._keys, self._group
        followed: tuple[tuple[bytes, Callable[[KeyValue, bool], None]], ...] = (
            (keys.group(group), self._hear_settings),
            (keys.partitions(group), self._hear_partition),
            (self._entries, self._hear_entry),
            (keys.handovers_of(handovers_of(group)), self._hear_handover),
        )
        async with asyncio.TaskGroup() as tasks:
            for key, hear in followed:
                tasks.create_task(self._follow(key, hear), name=f"leads {group}: follows {key!r}")
            tasks.create_task(self._follow_members(), name=f"leads {group}: follows members")
            tasks.create_task(self._sweep(), name=f"leads {group}: sweeps")
            while self._reads_count < len(followed):
                await self._news.wait()
            plan = await patiently(self._plans.load, self._environment.chance)
            self._look_at_members()
            self.machine.begin(plan, now=self._now())
            while True:
                await self._wait(self._decide(tasks))

    def _decide(self, tasks: asyncio.TaskGroup) -> tuple[int, float]:
        """Begin what is due now; returns the count of news it is based on, and when to decide again."""
        now = self._now()
        if self._is_view_new:
            self._look_at_members()
        for command in self.machine.decide(now=now, wall=self._store.clock.wall()):
            if isinstance(command, WritePlan | EndPlan):
                tasks.create_task(self._write(command), name=f"leads {self._group}: writes a plan")
            else:
                tasks.create_task(self._make(command), name=f"leads {self._group}: {command.partition}")
        return self._changes_count, self.machine.deadline(now=now)

    async def _wait(self, since: tuple[int, float]) -> None:
        count, deadline_s = since
        # At least a moment: a loop that goes by another clock would come back too early, again and again.
        left_s = None if deadline_s == inf else max(deadline_s - self._now(), _WAIT_S_MIN)
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                while self._changes_count == count:
                    await self._news.wait()

    # -- steps

    async def _make(self, step: Step) -> None:
        try:
            revision = await self._make_guarded(step)
        except (*TROUBLE, Conflict, NoOwner, NoSuccessor, BadRecord) as error:
            self._on_trouble(error)
            self.machine.refused(step, now=self._now())
        else:
            self.machine.done(step, revision, now=self._now())
        self._changed()

    async def _make_guarded(self, step: Step) -> int:
        entry = self._keys.assignment(self._group, step.partition)
        match step:
            case PlacePartition():
                note = self._note(step.partition, step.reason, is_handed=step.is_handed)
                definition = self.machine.partitions.get(step.partition)
                key = self._keys.partition(self._group, step.partition)
                # A placement that comes late must not place what was deleted meanwhile, or defined anew.
                same = [] if definition is None else [Compare.revision(key, "=", definition.revision)]
                return await self._placer.place(
                    entry,
                    step.node,
                    body=note,
                    over=step.over,
                    is_handed=step.is_handed,
                    is_vacant=step.is_vacant,
                    besides=same,
                )
            case OfferPartition():
                # An offer that arrives late must not ask for a move that a newer plan does not want.
                planned = self._plans.same(step.plan_revision)
                offer = await self._placer.offer(
                    entry, step.node, timeout=step.timeout, reason=step.reason, besides=[planned]
                )
                return offer.revision
            case WithdrawOffer():
                return await self._placer.withdraw(step.record, step.trouble)
            case ClearPartition():
                return await self._placer.clear(entry, body=self._note(step.partition, step.reason))
            case RemovePartition():
                return await self._placer.remove(entry)

    def _note(self, partition: str, reason: str, *, is_handed: bool = False) -> bytes:
        before = self.machine.entries.get(partition)
        previous = "" if before is None else before.node
        wall = self._store.clock.wall()
        return EntryNote(reason=reason, since=wall, previous=previous, is_handed=is_handed).encode()

    async def _write(self, command: WritePlan | EndPlan) -> None:
        try:
            if isinstance(command, WritePlan):
                found = await self._plans.write(command.plan, self._guard, before=command.before)
            else:
                found = await self._plans.end(command.plan, self._guard, before=command.before)
        except (*TROUBLE, Conflict) as error:
            # The plan may have been written all the same.
            self._on_trouble(error)
            read = await patiently(self._plans.load, self._environment.chance)
            self.machine.written(command, read, now=self._now())
        else:
            self.machine.written(command, found, now=self._now())
        self._changed()

    async def _sweep(self) -> None:
        """Delete now and then what nobody needs any more: handoffs, and the records of hand-overs."""
        cluster, environment = self._members.cluster, self._environment
        handoffs = Handoffs(self._store, self._group, cluster=cluster, environment=environment.fork("sweep"))
        handovers = Handovers(self._store, cluster=cluster, environment=environment.fork("handovers"))
        while True:
            await asyncio.sleep(environment.chance.uniform(0.5, 1.5) * ASSIGNMENT_SWEEP_S)
            try:
                if self._lifetime_s is not None:
                    await handoffs.sweep(lifetime=self._lifetime_s, kept=self.machine.partitions.keys())
                await handovers.sweep()
            except (*TROUBLE, BadRecord) as error:
                self._on_trouble(error)

    # -- news

    async def _follow(self, key: bytes, hear: Callable[[KeyValue, bool], None]) -> None:
        """Pass each change of the key, or below it, to `hear`: the item, and whether it is there."""
        environment = self._environment.fork(key.decode())
        # Only prefixes end with a slash.
        following = Following(self._store, key, exact=not key.endswith(b"/"), environment=environment)
        try:
            async for news in following:
                puts, deletes = changes(news)
                for item in deletes:
                    hear(replace(item, mod_revision=news.revision), False)
                for item in puts:
                    hear(item, True)
                self._reads_count += isinstance(news, Snapshot)
                self._changed()
        finally:
            following.close()

    async def _follow_members(self) -> None:
        events = self._members.events()
        try:
            async for _ in events:
                self._is_view_new = True
                self._changed()
        finally:
            events.close()

    def _look_at_members(self) -> None:
        """Look once for all news of members since the last decision: a thousand may join together."""
        self._is_view_new = False
        draining = self.machine.settings.draining
        here = [member for member in self._members.view.values() if member.is_here]
        found = ((member, candidate_of(member, self._group, draining=draining)) for member in here)
        workers = {member.id: worker for member, worker in found if worker is not None}
        leases = {member.id: member.lease for member in here}
        self.machine.hear_workers(workers, leases, now=self._now())

    def _hear_settings(self, item: KeyValue, is_there: bool) -> None:
        settings = GroupSettings()
        if is_there:
            try:
                settings = GroupSettings.decode(item.value)
            except BadRecord as error:
                self._bad(item, error)
                return
        self.machine.hear_settings(settings, now=self._now())
        self._is_view_new = True

    def _hear_partition(self, item: KeyValue, is_there: bool) -> None:
        name = item.key.removeprefix(self._keys.partitions(self._group)).decode()
        partition = None
        if is_there:
            try:
                partition = Partition.decode(item.value, revision=item.mod_revision)
            except BadRecord as error:
                self._bad(item, error)
                return
        self.machine.hear_partition(name, partition, now=self._now())

    def _hear_entry(self, item: KeyValue, is_there: bool) -> None:
        name = item.key.removeprefix(self._entries).decode()
        entry = None
        if is_there:
            try:
                entry = Placement.decode(item.value)
            except BadRecord as error:
                # Whoever wrote it: the partition counts as one without an owner, and is placed again.
                self._bad(item, error)
        self.machine.hear_entry(name, entry, revision=item.mod_revision)

    def _hear_handover(self, item: KeyValue, is_there: bool) -> None:
        prefix = self._keys.handovers_of(handovers_of(self._group))
        name = unquoted(item.key.removeprefix(prefix).decode())
        record = None
        if is_there:
            try:
                record = Handover.decode(item.value, revision=item.mod_revision)
            except BadRecord as error:
                self._bad(item, error)
        self.machine.hear_handover(name, record, revision=item.mod_revision, now=self._now())

    def _bad(self, item: KeyValue, error: BadRecord) -> None:
        self.bad_records_count += 1
        logger.warning("group %r: %r cannot be read: %s", self._group, item.key, error)

    def _changed(self) -> None:
        self._changes_count += 1
        self._news.wake_all()

    def _now(self) -> float:
        return self._store.clock.monotonic()
