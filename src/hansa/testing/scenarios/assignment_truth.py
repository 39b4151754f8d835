"""The books of a group that shares work out: the owners, what was saved, and which moves a plan allows.

Everything is computed from the store's keys, at each revision, by rules of its own; the code that is judged
has no part in it (`assignment_facts`).

A leader decides by what it has heard, and its requests may come late. So a write of the leader is right if it
was right at some moment of the last `GRACE_S` seconds (`Lately`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hansa.assignment.handoff import FailedHandoff, Handoff
from hansa.assignment.partition import GroupSettings, Partition
from hansa.assignment.plan import Plan, PlanState
from hansa.assignment.planner import Candidate
from hansa.assignment.rebalancing import asked_by
from hansa.assignment.topology import WorkerInfo, election_of, handovers_of
from hansa.assignment.work import Work
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.member import NodeRecord
from hansa.coordination.placed import PlacedClaim, Placement
from hansa.errors import BadRecord
from hansa.keys import Keys, unquoted
from hansa.store.values import Event, EventKind, KeyValue, WatchBatch
from hansa.testing.host import Host
from hansa.testing.life import Life, LifeState
from hansa.testing.scenarios.assignment_facts import KnownNode, Lately, RunningSums, SavedHead, saved_state
from hansa.testing.scenarios.handover_truth import FOLLOWERS
from hansa.testing.store_host import StoreHost

__all__ = ["ACTS", "AssignmentTruth", "PlanStep"]

KEYS: Final = Keys()
ACTS: Final = b"acts/"
# Once the faults are over, a leader has heard of everything after this time.
HEARD_S: Final = 2.0

EPOCHS: Final = "epochs grow"
ONLY_OWNER: Final = "only the owner acts"
SEALED: Final = "an owner that has sealed no longer acts"
LOST: Final = "no handoff is lost, or goes back"
ONCE: Final = "each message counts once, in order"
GIVEN: Final = "a new owner is given what was saved last"
TWICE: Final = "nobody works where another does"
BOUNDED: Final = "only what a plan says is moved"
AT_ONCE: Final = "not more moves at once than there may be"
ALLOWED: Final = "a node gets only what it may have"
PLANS: Final = "plans follow each other, and are whole"
STEPS: Final = "steps follow each other"
WRITER: Final = "each step is written by whose it is"
UNTRUE: Final = "the record says what happened"
UNSAVED: Final = "who gives up has saved what it noted"
APART: Final = "what is saved with an act is not there without it"
LEAVING: Final = "who leaves takes nothing more"


class PlanStep(Enum):
    """What a leader writes besides the steps of hand-overs."""

    PART = "moves of a plan"
    HEAD = "the head of a plan"
    PLACED = "an owner, without any hand-over"
    ENDED = "the end of a plan"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Body:
    """A worker's body that works on a partition."""

    life: Life
    partition: str
    claim: PlacedClaim

    @property
    def acts(self) -> bool:
        return self.life.state is not LifeState.DEAD and self.claim.is_standing

    def __str__(self) -> str:
        return f"{self.partition} {self.claim.epoch} of {self.life}"


class AssignmentTruth:
    """The judge of one group: it fails the world at once when something is not as it must be."""

    def __init__(self, store: StoreHost, group: str, sums: RunningSums) -> None:
        self._store = store
        self._world = store.world
        self._group = group
        self._sums = sums
        self._entry_prefix = KEYS.assignments(group)
        self._record_prefix = KEYS.handovers_of(handovers_of(group))
        self._handoff_prefix = KEYS.handoffs(group)
        self._partition_prefix = KEYS.partitions(group)
        self._plan_prefix = KEYS.plans(group)
        self._office = KEYS.leader(election_of(group))
        self.entries: dict[str, Placement] = {}
        self.records: dict[str, Handover] = {}
        self.plan: Plan | None = None
        self.steps: Counter[Enum] = Counter()
        """How often each step was taken."""
        self.acts_count = 0
        self.doubts_count = 0
        """How often a worker did not hear whether a state was saved with its act."""
        self.changed_s = 0.0
        """When an entry, a plan or a record changed last."""
        self.learned_s = 0.0
        """When a node, a partition or the settings changed last."""
        self.worked: dict[str, int] = {}
        """By partition, the last epoch in which a worker has worked on it since this was cleared."""
        self._epochs: dict[str, int] = {}
        self._saved: dict[str, SavedHead] = {}
        self._parts: dict[bytes, bytes] = {}
        self._candidates: dict[bytes, KeyValue] = {}
        self._known: dict[str, Lately[KnownNode]] = {}
        self._defined: dict[str, Lately[Partition | None]] = {}
        self._settings = Lately(GroupSettings())
        self._targets: Lately[dict[str, str]] = Lately({})
        self._numbers_max = 0
        self._offered_s: dict[str, float] = {}
        # When a partition was moved by hand; the plan may not know of it.
        self._by_hand_s: dict[str, float] = {}
        # Offers whose senders got no answer; the store may carry them out all the same.
        self._doubtful: set[tuple[str, float]] = set()
        self.leaving_s: dict[str, tuple[Life, float]] = {}
        self._bodies: dict[_Body, None] = {}
        self._begun: set[tuple[str, str, int]] = set()
        # By partition and epoch: how far its owner noted that it is, and the owner's claim.
        self._noted: dict[tuple[str, int], tuple[int, PlacedClaim]] = {}
        self._failed: set[tuple[str, int]] = set()
        # By partition and epoch: the messages whose state is to be saved with an act, and those that were.
        self._with_act: dict[tuple[str, int], set[int]] = {}
        self._acted: dict[tuple[str, int], set[int]] = {}
        # By partition and epoch: what was taken from an owner that may not have heard of it.
        self._revoked: set[tuple[str, int]] = set()
        self._rewound_revision = 0

    # The present state.

    @property
    def settings(self) -> GroupSettings:
        return self._settings.now

    @property
    def is_by_hand(self) -> bool:
        """Whether a partition was moved by hand since the plan was made: it stays there."""
        return bool(self._by_hand_s)

    @property
    def partitions(self) -> dict[str, Partition]:
        """The partitions that are defined."""
        return {name: each.now for name, each in self._defined.items() if each.now is not None}

    def candidates(self) -> list[Candidate]:
        """The workers of the group, as a planner is told."""
        found = []
        for node, known in self._known.items():
            info, worker = known.now.info, known.now.worker
            if info is not None and worker is not None:
                is_draining = worker.is_draining or node in self.settings.draining
                found.append(
                    Candidate(
                        node=node,
                        weight=worker.weight,
                        zone=info.zone,
                        roles=info.roles,
                        resource_groups=worker.resource_groups,
                        is_draining=is_draining,
                    )
                )
        return found

    def who_may_have(self, name: str) -> list[str]:
        """The nodes that may be given a partition now, whatever else they have."""
        return [
            each.node
            for each in self.candidates()
            if not each.is_draining and self._known[each.node].now.may_own(self._defined[name].now)
        ]

    def may_keep(self, name: str, node: str) -> bool:
        """Whether a node may have a partition as long as no other node may: also one that drains."""
        known, defined = self._known.get(node), self._defined.get(name)
        return known is not None and defined is not None and known.now.may_own(defined.now)

    def lease_of(self, node: str) -> int:
        """The lease of a node's record, 0 if there is no record."""
        return self._known[node].now.lease if node in self._known else 0

    def leader(self) -> str:
        """The host that leads, by the store's keys."""
        if not self._candidates:
            return ""
        first = min(self._candidates.values(), key=lambda item: item.create_revision)
        return self._store.lease_hosts[first.lease]

    def _leads(self, host: str) -> bool:
        """Whether a host may write as a leader: also a leader that a store forgot, and that does not know."""
        forgotten = (
            self._store.lease_hosts[item.lease]
            for item in self._candidates.values()
            if item.create_revision < self._rewound_revision
        )
        return host == self.leader() or host in forgotten

    def believers(self, name: str) -> list[str]:
        """The lives that work on a partition and believe that they own it."""
        return [str(body.life) for body in self._bodies if body.partition == name and body.acts]

    # What programs report.

    def given(self, host: Host, work: Work) -> None:
        """A worker was given a partition to work on."""
        host.record(f"is given {work.partition} {work.epoch} from {work.handoff.last_offset}")
        handoff = work.handoff
        if handoff.state != self._sums.after(work.partition, handoff.last_offset):
            self._world.fail(ONCE, f"{host.life} is given {work!r}, with {_shown(handoff)}")
        key = str(host.life), work.partition, work.epoch
        if key in self._begun or work.epoch < self._rewound_revision:
            return
        self._begun.add(key)
        if not all(guard.holds(self._store.item(guard.key)) for guard in work.guards):
            return
        item = self._store.item(self._handoff_prefix + work.partition.encode())
        revision = 0 if item is None else item.mod_revision
        known, begins = (0, Handoff()) if work.saved is None else (work.saved.revision, work.saved.handoff)
        if known != revision or handoff != begins:
            shown = f"{_shown(handoff)} of {known}, and not of {revision}"
            self._world.fail(GIVEN, f"{host.life} is given {work!r}: {shown}")

    @contextmanager
    def working(self, host: Host, work: Work) -> Iterator[None]:
        """A worker is in a work's block."""
        body = _Body(life=host.life, partition=work.partition, claim=work.claim)
        for other in self._bodies:
            if other.partition != body.partition or other.life.state is LifeState.DEAD:
                continue
            is_taken = (other.partition, other.claim.epoch) in self._revoked
            is_forgotten = is_taken or other.claim.epoch < self._rewound_revision
            if other.life is body.life or (other.acts and body.acts and not is_forgotten):
                self._world.fail(TWICE, f"{body}, and {other}")
        self._bodies[body] = None
        try:
            yield
        finally:
            self._bodies.pop(body, None)

    def noted(self, work: Work) -> None:
        """A worker has noted how far it is."""
        self._noted[work.partition, work.epoch] = work.handoff.last_offset, work.claim
        self.worked[work.partition] = work.epoch

    @contextmanager
    def saving(self, work: Work, offset: int, *, is_noted_with_act: bool) -> Iterator[None]:
        """A worker saves the state up to a message with an act, in one transaction.

        What was noted with its act is never saved without it. What was noted before may have been, until the
        save with the act is in doubt.
        """
        with_act = self._with_act.setdefault((work.partition, work.epoch), set())
        was_in_doubt = work.is_in_doubt
        if is_noted_with_act:
            with_act.add(offset)
        try:
            yield
        except BaseException:
            is_new_doubt = work.is_in_doubt and not was_in_doubt
            is_noted = work.handoff.last_offset == offset
            with_act.discard(offset)
            if is_noted if is_noted_with_act else is_new_doubt:
                with_act.add(offset)
            self.doubts_count += is_new_doubt
            raise
        finally:
            if work.handoff.last_offset == offset:
                self.noted(work)

    def failed(self, failed: FailedHandoff) -> None:
        """A worker was told that a handoff could not be saved."""
        if not failed.is_reading:
            self._failed.add((failed.partition, failed.epoch))

    def leaves(self, host: Host) -> None:
        """A worker is about to leave: it takes nothing more, until the next worker of its host begins."""
        self.leaving_s[host.name] = host.life, self._world.elapsed_s()

    def has_left(self, host: Host) -> None:
        """A worker has left in good order."""
        del self.leaving_s[host.name]
        for name, entry in self.entries.items():
            is_known = entry.epoch >= self._rewound_revision and entry.lease == self.lease_of(host.name)
            if entry.node == host.name and is_known:
                self._check_saved(name, entry.epoch, f"{host.life} has left, and has {entry}")

    def doubt(self, record: Handover) -> None:
        """The program that made this offer does not know whether the store carried it out."""
        self._doubtful.add((record.name, record.times[HandoverStep.OFFERED]))

    # What the store reports.

    def rewound(self, items: Sequence[KeyValue], revision: int) -> None:
        """The store went back: these are its keys now."""
        self._rewound_revision = revision
        at_s = self._world.elapsed_s()
        for books in (self.entries, self.records, self._saved, self._parts, self._candidates):
            books.clear()
        self.plan = None
        self._numbers_max = 0
        for known in self._known.values():
            known.set(KnownNode(), at_s=at_s)
        for defined in self._defined.values():
            defined.set(None, at_s=at_s)
        for item in items:
            self._learn(item, is_there=True)
            key = item.key
            if key.startswith(self._entry_prefix):
                self.entries[_name(key, self._entry_prefix)] = Placement.decode(item.value)
            elif key.startswith(self._record_prefix):
                name = unquoted(_name(key, self._record_prefix))
                self.records[name] = Handover.decode(item.value, revision=item.mod_revision)
            elif key.startswith(self._handoff_prefix):
                self._saved[_name(key, self._handoff_prefix)] = SavedHead.of(item)
        head = next((item for item in items if item.key == self._plan_prefix + b"head"), None)
        if head is not None:
            self.plan = self._decoded_plan(head)
            self._numbers_max = self.plan.number
            self._aim_at(self.plan)

    def follow(self, batch: WatchBatch, origin: str) -> None:
        """The store has changed."""
        for event in batch.events:
            self._learn(event.item, is_there=event.kind is EventKind.PUT)
        before = dict(self.records)
        told: dict[str, Handover] = {}
        for event in batch.events:
            if event.item.key.startswith(self._record_prefix):
                self._hear_record(event, told)
        for event in batch.events:
            key = event.item.key
            if key.startswith(self._entry_prefix):
                self._hear_entry(event, before, told, origin)
            elif key.startswith(self._handoff_prefix):
                self._hear_handoff(event)
            elif key.startswith(ACTS) and event.kind is EventKind.PUT:
                self._hear_act(event.item)
            elif key.startswith(self._plan_prefix):
                self._hear_plan(event, origin)
        for event in batch.events:
            if event.item.key.startswith(self._handoff_prefix):
                self._check_acts(_name(event.item.key, self._handoff_prefix))
        for name, record in told.items():
            self._check_step(name, before.get(name), record, origin)

    # Facts that are not judged.

    def _learn(self, item: KeyValue, *, is_there: bool) -> None:
        key, at_s = item.key, self._world.elapsed_s()
        if key.startswith((KEYS.nodes, self._partition_prefix, KEYS.group(self._group))):
            self.learned_s = at_s
        if key.startswith(self._office):
            if is_there:
                self._candidates[key] = item
            else:
                self._candidates.pop(key, None)
        elif key.startswith(KEYS.nodes):
            known = KnownNode()
            if is_there:
                info = NodeRecord.decode(item.value).info
                text = info.metadata.get(WorkerInfo.key_of(self._group))
                is_here = info.status.is_here and text is not None
                worker = WorkerInfo.decode(text) if is_here and text is not None else None
                known = KnownNode(lease=item.lease, info=info, worker=worker)
            self._known.setdefault(_name(key, KEYS.nodes), Lately(KnownNode())).set(known, at_s=at_s)
        elif key.startswith(self._partition_prefix):
            defined = Partition.decode(item.value, revision=item.mod_revision) if is_there else None
            self._defined.setdefault(_name(key, self._partition_prefix), Lately(None)).set(defined, at_s=at_s)
        elif key == KEYS.group(self._group):
            settings = GroupSettings.decode(item.value) if is_there else GroupSettings()
            self._settings.set(settings, at_s=at_s)
        elif key.startswith(self._plan_prefix) and not key.endswith(b"head"):
            self._learn_part(item, is_there=is_there)

    def _learn_part(self, item: KeyValue, *, is_there: bool) -> None:
        plan = self.plan
        if (
            plan is not None
            and plan.state is PlanState.OPEN
            and item.key.startswith(self._parts_of(plan.number))
        ):
            self._world.fail(PLANS, f"{item.key!r} is of the plan that counts, {plan.number}")
        if is_there:
            self._parts[item.key] = item.value
        else:
            self._parts.pop(item.key, None)

    # Entries.

    def _hear_entry(
        self, event: Event, records: dict[str, Handover], told: dict[str, Handover], origin: str
    ) -> None:
        self.changed_s = self._world.elapsed_s()
        name = _name(event.item.key, self._entry_prefix)
        before, record = self.entries.get(name), records.get(name)
        is_handed = name in told and told[name].step is HandoverStep.TAKEN
        if not self._leads(origin):
            self._world.fail(WRITER, f"{origin} has written who has {name}")
        if record is not None and record.step is HandoverStep.SEALED and not is_handed:
            self._world.fail(LOST, f"{name} is placed past {record}")
        if event.kind is EventKind.DELETE:
            if not any(each is None for each in self._were_defined(name)):
                self._world.fail(BOUNDED, f"the entry of {name} is gone, which is defined")
            del self.entries[name]
            self._revoke(name, before)
            return
        entry = self.entries[name] = Placement.decode(event.item.value)
        if entry.epoch <= self._epochs.get(name, 0):
            self._world.fail(EPOCHS, f"{name}: {entry} after {self._epochs[name]}")
        self._epochs[name] = entry.epoch
        if not entry.node:
            self._check_cleared(name, before)
            self._revoke(name, before)
            return
        if entry.lease != self.lease_of(entry.node):
            self._world.fail(UNTRUE, f"{name} is placed on {entry}, whose lease is another one")
        if not is_handed:
            self.steps[PlanStep.PLACED] += 1
            self._check_placed(name, before, entry)

    def _check_placed(self, name: str, before: Placement | None, entry: Placement) -> None:
        """Without a hand-over a partition goes only where the plan says, and from a node that is gone."""
        if before is not None and before.node:
            all_known = self._were_known(before.node)
            if all(known.lease == before.lease and known.worker is not None for known in all_known):
                self._world.fail(BOUNDED, f"{name} is taken from {before}, who works")
            self._revoke(name, before)
        is_same = before is not None and before.node == entry.node
        if not is_same and entry.node not in self._aims(name):
            self._world.fail(BOUNDED, f"{name} is placed on {entry}, and the plan says {self._aims(name)}")
        if not is_same:
            self._check_allowed(name, entry.node)

    def _check_cleared(self, name: str, before: Placement | None) -> None:
        """An entry names nobody only if nobody may have the partition, or its last owner may not."""
        node = "" if before is None else before.node
        for settings in self._settings.all(at_s=self._world.elapsed_s()):
            if node in settings.draining or settings.per_node_max is not None:
                return
        pairs = [(each, known) for each in self._were_defined(name) for known in self._were_known(node)]
        if all(known.may_own(each) and known.is_willing for each, known in pairs):
            self._world.fail(BOUNDED, f"{name} is taken from {before}, who works and may have it")

    def _revoke(self, name: str, before: Placement | None) -> None:
        """The owner may not have heard of it, unless its lease is over: then it must know."""
        if before is None:
            return
        is_over = before.lease not in self._store.living_leases()
        for body in self._bodies:
            is_its = body.partition == name and body.claim.epoch == before.epoch
            if is_its and is_over and body.acts and body.claim.epoch >= self._rewound_revision:
                self._world.fail(TWICE, f"{body} goes on without a lease")
        self._revoked.add((name, before.epoch))

    def _check_allowed(self, name: str, node: str) -> None:
        """Judge whether the node may have it; a leader may have heard late that it may not."""
        at_s = self._world.elapsed_s()
        is_drained = all(node in settings.draining for settings in self._settings.all(at_s=at_s))
        fits = any(
            known.may_own(each) and known.is_willing
            for each in self._were_defined(name)
            for known in self._were_known(node)
        )
        if is_drained or not fits:
            self._world.fail(ALLOWED, f"{name} is given to {node}: {self._defined[name].now}")

    def _aims(self, name: str) -> set[str]:
        """Where the plan says that the partition is to go."""
        found = self._targets.all(at_s=self._world.elapsed_s())
        return {targets[name] for targets in found if name in targets}

    def _were_known(self, node: str) -> Iterable[KnownNode]:
        known = self._known.get(node)
        return (KnownNode(),) if known is None else known.all(at_s=self._world.elapsed_s())

    def _were_defined(self, name: str) -> list[Partition | None]:
        defined = self._defined.get(name)
        return [None] if defined is None else list(defined.all(at_s=self._world.elapsed_s()))

    # What was saved, and acted on.

    def _hear_handoff(self, event: Event) -> None:
        name = _name(event.item.key, self._handoff_prefix)
        if event.kind is EventKind.DELETE:
            self._world.fail(LOST, f"the handoff of {name} was deleted")
        before, now = self._saved.get(name, SavedHead()), SavedHead.of(event.item)
        self._saved[name] = now
        node, state = saved_state(event.item)
        self._check_owner(name, node, now.epoch, LOST)
        if (now.epoch, now.number) <= (before.epoch, before.number) or now.last_offset < before.last_offset:
            self._world.fail(LOST, f"{name}: {now} after {before}")
        if state is not None and state != self._sums.after(name, now.last_offset):
            self._world.fail(ONCE, f"{name}: {now} with {state[:60]!r}")

    def _hear_act(self, item: KeyValue) -> None:
        node, lease, epoch, offset = item.value.decode().split()
        name = _name(item.key, ACTS)
        self._check_owner(name, node, int(epoch), ONLY_OWNER)
        if self.entries[name].lease != int(lease):
            self._world.fail(ONLY_OWNER, f"{item.value!r} acted for {name}, of {self.entries[name]}")
        self.acts_count += 1
        self._acted.setdefault((name, int(epoch)), set()).add(int(offset))

    def _check_acts(self, name: str) -> None:
        saved = self._saved[name]
        with_act = self._with_act.get((name, saved.epoch), set())
        missing = with_act - self._acted.get((name, saved.epoch), set())
        if any(offset <= saved.last_offset for offset in missing):
            self._world.fail(APART, f"{name}: {saved}, without the acts of {sorted(missing)}")

    def _check_owner(self, name: str, node: str, epoch: int, invariant: str) -> None:
        entry = self.entries.get(name)
        is_owner = entry is not None and (entry.node, entry.epoch) == (node, epoch)
        if entry is None or not is_owner or self.lease_of(node) != entry.lease:
            self._world.fail(invariant, f"{node} in epoch {epoch} wrote for {name}, of {entry}")

    def _check_saved(self, name: str, epoch: int, what: str) -> None:
        noted, claim = self._noted.get((name, epoch), (-1, None))
        # A worker that has lost the partition cannot save any more, and need not.
        saved = self._saved.get(name, SavedHead()).last_offset
        is_excused = (claim is not None and claim.as_lost() is not None) or (name, epoch) in self._failed
        if noted > saved and not is_excused:
            self._world.fail(UNSAVED, f"{what}: up to {noted} was noted, and up to {saved} saved")

    # Plans.

    def _hear_plan(self, event: Event, origin: str) -> None:
        if not self._leads(origin):
            self._world.fail(WRITER, f"{origin} has written a plan")
        if not event.item.key.endswith(b"head"):
            # Parts of plans that do not count, or no longer do: they may come late, and change nothing.
            self.steps[PlanStep.PART] += event.kind is EventKind.PUT
            return
        self.changed_s = self._world.elapsed_s()
        if event.kind is EventKind.DELETE:
            self._world.fail(PLANS, "there is no plan any more")
        before, now = self.plan, self._decoded_plan(event.item)
        self.plan = now
        if now.state is not PlanState.OPEN:
            self.steps[PlanStep.ENDED] += 1
            if before is None or (before.number, before.moves) != (now.number, now.moves):
                self._world.fail(PLANS, f"{now} is ended, after {before}")
            self._targets.set({}, at_s=self._world.elapsed_s())
            return
        self.steps[PlanStep.HEAD] += 1
        if now.number <= self._numbers_max:
            self._world.fail(PLANS, f"{now} after {self._numbers_max}")
        self._numbers_max = now.number
        if len({move.partition for move in now.moves}) < len(now.moves):
            self._world.fail(PLANS, f"{now} moves something twice")
        at_s = self._world.elapsed_s()
        self._by_hand_s = {name: s for name, s in self._by_hand_s.items() if s >= at_s - HEARD_S}
        self._aim_at(now)

    def _aim_at(self, plan: Plan) -> None:
        is_open = plan.state is PlanState.OPEN
        targets = {move.partition: move.target for move in plan.moves} if is_open else {}
        self._targets.set(targets, at_s=self._world.elapsed_s())

    def _decoded_plan(self, head: KeyValue) -> Plan:
        prefix = self._parts_of(json.loads(head.value)["number"])
        parts = [value for key, value in sorted(self._parts.items()) if key.startswith(prefix)]
        try:
            return Plan.decode(head.value, parts, revision=head.mod_revision)
        except BadRecord as error:
            self._world.fail(PLANS, f"{head.value!r}: {error}")

    def _parts_of(self, number: int) -> bytes:
        return self._plan_prefix + b"%016d/" % number

    # Hand-overs.

    def _hear_record(self, event: Event, told: dict[str, Handover]) -> None:
        name = unquoted(_name(event.item.key, self._record_prefix))
        if event.kind is EventKind.DELETE:
            if self.records[name].is_open:
                self._world.fail(STEPS, f"an open record is gone: {self.records[name]}")
            del self.records[name]
        else:
            told[name] = Handover.decode(event.item.value, revision=event.item.mod_revision)
            self.records[name] = told[name]
            if (name, told[name].times[HandoverStep.OFFERED]) not in self._doubtful:
                self.changed_s = self._world.elapsed_s()

    def _check_step(self, name: str, before: Handover | None, now: Handover, origin: str) -> None:
        self.steps[now.step] += 1
        if before is None or before.number != now.number:
            follows = now.step is HandoverStep.OFFERED and (before is None or not before.is_open)
        else:
            follows = now.step in FOLLOWERS.get(before.step, ())
        if not follows:
            self._world.fail(STEPS, f"{now} after {before}")
        entry = self.entries.get(name)
        owner = ("", 0) if entry is None else (str(entry.lease), entry.epoch)
        is_owned_as_before = owner == (now.owner_key, now.epoch)
        is_true = True
        writers: tuple[str, ...] = (origin,)
        match now.step:
            case HandoverStep.OFFERED:
                is_true = is_owned_as_before
                self._check_offer(name, now, origin)
            case HandoverStep.PREPARED:
                writers = (now.target,)
                self._check_willing(name, now)
            case HandoverStep.SEALED:
                is_true, writers = is_owned_as_before, (now.source,)
                self._check_sealed(name, now)
            case HandoverStep.TAKEN:
                is_true, writers = owner == (now.target_key, now.next_epoch), ()
                if now.asked_by != asked_by(self._group):
                    self._by_hand_s[name] = self._world.elapsed_s()
                self._check_heir(before, now)
            case HandoverStep.DONE:
                is_true, writers = owner == (now.target_key, now.next_epoch), (now.taken_by,)
            case HandoverStep.WITHDRAWN if before is not None and before.step is HandoverStep.SEALED:
                is_true, writers = is_owned_as_before, (now.source,)
            case HandoverStep.WITHDRAWN:
                writers = (now.source, now.target)
        if not is_true:
            self._world.fail(UNTRUE, f"{now}, and it is {entry}")
        is_leaders = now.step in (HandoverStep.TAKEN, HandoverStep.WITHDRAWN) and self._leads(origin)
        if origin not in writers and not is_leaders:
            self._world.fail(WRITER, f"{origin} wrote {now}")

    def _check_offer(self, name: str, now: Handover, origin: str) -> None:
        self._offered_s[name] = self._world.elapsed_s()
        if now.asked_by != asked_by(self._group):
            return
        if not self._leads(origin):
            self._world.fail(WRITER, f"{origin} wrote {now}")
        if now.target not in self._aims(name):
            self._world.fail(BOUNDED, f"{now}, and the plan says {self._aims(name)}")
        self._check_allowed(name, now.target)
        at_s = self._world.elapsed_s()
        most = max(settings.moves_at_once for settings in self._settings.all(at_s=at_s))
        under_way = [
            record.name
            for record in self.records.values()
            if record.is_open
            and record.asked_by == now.asked_by
            and (record.name, record.times[HandoverStep.OFFERED]) not in self._doubtful
        ]
        if len(under_way) > most:
            self._world.fail(AT_ONCE, f"{under_way} are {len(under_way)} and not {most}")

    def _check_heir(self, before: Handover | None, now: Handover) -> None:
        """What one node has taken, another node takes only if the first one is gone."""
        if before is None or before.step is not HandoverStep.TAKEN:
            return
        if all(str(known.lease) == before.target_key for known in self._were_known(before.taken_by)):
            self._world.fail(BOUNDED, f"{now} after {before}")

    def _check_willing(self, name: str, now: Handover) -> None:
        place = self.leaving_s.get(now.target)
        if place is None or place[0].state is LifeState.DEAD:
            return
        if place[1] < self._offered_s[name]:
            self._world.fail(LEAVING, f"{now}: {now.target} was leaving when it was offered")

    def _check_sealed(self, name: str, now: Handover) -> None:
        for body in self._bodies:
            is_its = (body.partition, body.claim.epoch) == (name, now.epoch)
            if is_its and body.life.state is not LifeState.DEAD:
                self._world.fail(SEALED, f"{body} is at work: {now}")
        self._check_saved(name, now.epoch, f"{now}")


def _name(key: bytes, prefix: bytes) -> str:
    return key.removeprefix(prefix).decode()


def _shown(handoff: Handoff) -> str:
    return f"{handoff.state[:40]!r} up to {handoff.last_offset}"
