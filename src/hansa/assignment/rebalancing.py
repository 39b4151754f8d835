"""What the leader of a group does next, from all that it knows: the machine. Pure.

The machine knows the group's settings and partitions, the workers that are there with their leases, the
entries that name the owners, the open hand-overs, and the last plan. From that it gives commands; its driver
(`assigner`) carries out each of them in one guarded step:

- A partition whose owner is gone is placed at once: where the plan says; or at the same node, if only the
  session of its owner is another one.
- A change of workers, partitions or limits calls for a plan: at once for partitions without an owner, for the
  rest when no worker has joined for a while. A plan is written before any of its moves begins.
- A partition whose owner works is offered to its new owner, a few at a time. The hand-over goes on by itself,
  and the leader writes those of its steps that are the leader's to write.
- A move that is withdrawn is offered again a few times. A hand-over that somebody asked for by hand goes on
  beside the plan.

So a new leader knows as much as the one before: it reads the plan, goes on with it if the plan was made for
what is so now, and makes another plan if not. Nothing moves while nothing changes.

The driver must: tell the machine all it has read before the first `decide`; carry out each command once, and
say how it went (`done`, `refused`); and call `decide` after each news, and at `deadline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

from hansa.assignment.partition import GroupSettings, Partition
from hansa.assignment.plan import Plan, PlanState, digest_of
from hansa.assignment.planner import Candidate, Move, Sharing, may_have, share_out
from hansa.coordination.handover import Actor, Facts, Handover, HandoverStep, decide
from hansa.coordination.placed import Placement
from hansa.limits import (
    ASSIGNMENT_LOOK_S,
    ASSIGNMENT_MOVE_RETRY_S,
    ASSIGNMENT_MOVE_TRIES_COUNT,
    ASSIGNMENT_STEPS_AT_ONCE,
    HANDOVER_GRACE_S,
    STORE_TIMEOUT_S,
)

# How many of the changes that a plan was made for it names.
_CHANGES_TOLD_COUNT: Final = 5


# ---- commands -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacePartition:
    """Give a partition to a node now; `is_handed` if the last owner has left it in good order.

    `over` is the epoch of the owner before, 0 if there was none; `is_vacant` if that owner's session is over.
    """

    partition: str
    node: str
    reason: str
    over: int
    is_vacant: bool = False
    is_handed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPartition:
    """Ask the owner of a partition to hand it over to a node, as long as the plan behind it counts."""

    partition: str
    node: str
    reason: str
    timeout: float
    plan_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawOffer:
    """End a hand-over that cannot go on, or need not."""

    partition: str
    record: Handover
    trouble: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearPartition:
    """Say that nobody owns a partition, because no worker may."""

    partition: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePartition:
    """Delete the entry of a partition that is no longer defined."""

    partition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Write a plan, after the one before; none of its moves begins until that is done."""

    plan: Plan
    before: Plan | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPlan:
    """Write that a plan was carried out."""

    plan: Plan
    before: Plan


Step: TypeAlias = PlacePartition | OfferPartition | WithdrawOffer | ClearPartition | RemovePartition
Command: TypeAlias = Step | WritePlan | EndPlan


@dataclass(slots=True)
class RebalancingStats:
    """Counts since this process last began to lead the group. Times are in seconds; `_max` is the longest."""

    plans_count: int = 0
    moves_planned_count: int = 0
    moves_failed_count: int = 0
    """Moves that were given up after all their tries, until the next check."""
    placed_count: int = 0
    """Partitions that were given to a node without a hand-over."""
    offered_count: int = 0
    withdrawn_count: int = 0
    checks_count: int = 0
    """How often the machine checked whether all is as planned, although nothing had changed."""
    commit_delay_s: float = 0.0
    """From the last change until its plan was written."""
    commit_delay_s_max: float = 0.0
    rebalance_s: float = 0.0
    """From when the last plan was written until it ended."""
    join_to_rebalance_s: float = 0.0
    """From the last join until the first partition was on its way to that worker."""
    join_to_rebalance_s_max: float = 0.0


@dataclass(slots=True)
class _Offers:
    """The tries of one move."""

    tries_count: int = 0
    not_before_s: float = 0.0


@dataclass(slots=True)
class _Busy:
    """A step that is under way, or that is done at a revision whose news has not all come yet."""

    step: Step | None
    revision: int | None = None
    until_s: float = inf


class Rebalancing:
    """The leader's decisions for one group, during one term. `node` is the leader."""

    def __init__(self, group: str, node: str) -> None:
        self._node = node
        self.asks_as = asked_by(group)
        self.settings = GroupSettings()
        self.partitions: dict[str, Partition] = {}
        self.workers: dict[str, Candidate] = {}
        self._leases: dict[str, int] = {}
        self.entries: dict[str, Placement] = {}
        self._records: dict[str, Handover] = {}
        self.plan: Plan | None = None
        self.stats = RebalancingStats()
        # The plan's moves that are not done; and of these the partitions whose owners work, in their order.
        self._targets: dict[str, Move] = {}
        self._moving: dict[str, _Offers] = {}
        self._failed: dict[str, None] = {}
        # Partitions for which a step may be due, and those for which one is under way.
        self._urgent: dict[str, None] = {}
        self._busy: dict[str, _Busy] = {}
        # The revisions of the last news of entries and of records: two watches bring them.
        self._entries_heard: dict[str, int] = {}
        self._records_heard: dict[str, int] = {}
        self._open: dict[str, float] = {}
        self._unplaced: Mapping[str, str] = {}
        # Their owners when the plan was made: a worker that is not ready keeps what it has, and gets nothing.
        self._unplaced_from: dict[str, str] = {}
        # The owner of each partition in the end, as the planner said last.
        self._shared: dict[str, str] = {}
        self._news_of: dict[str, None] = {}
        self._is_writing = False
        self._planned_inputs = ""
        self._placed_inputs = ""
        self._inputs = ""
        self._is_changed = True
        self._changes: list[str] = []
        self._changed_at_s: float | None = None
        self._balance_at_s = 0.0
        self._check_at_s = inf
        self._joined_at_s: dict[str, float] = {}
        self._plan_began_s = 0.0
        self._number_max = 0

    # -- what is so

    def hear_settings(self, settings: GroupSettings, *, now: float) -> None:
        self.settings = settings
        self._change("the settings", now)

    def hear_partition(self, name: str, partition: Partition | None, *, now: float) -> None:
        """This is the definition of a partition now; None: it was deleted."""
        if partition is None:
            self.partitions.pop(name, None)
            self._targets.pop(name, None)
            self._moving.pop(name, None)
        else:
            self.partitions[name] = partition
        self._change(f"partition {name}", now)
        self._urgent[name] = None

    def hear_workers(
        self, workers: Mapping[str, Candidate], leases: Mapping[str, int], *, now: float
    ) -> None:
        """These workers are there, with the leases of their records."""
        before = self.workers
        is_first = self._check_at_s == inf
        if workers != before:
            for node in sorted(workers.keys() - before.keys()):
                self._change(f"{node} is there", now)
                if not is_first:
                    self._balance_at_s = now + self.settings.join_delay
                    self._joined_at_s[node] = now
            for node in sorted(before.keys() - workers.keys()):
                self._change(f"{node} is gone", now)
                self._joined_at_s.pop(node, None)
            for node in sorted(workers.keys() & before.keys()):
                if workers[node] != before[node]:
                    self._change(f"{node} says something else of itself", now)
        elif leases == self._leases:
            return
        gone = {
            node for node in self._leases.keys() | leases.keys() if self._leases.get(node) != leases.get(node)
        }
        gone |= before.keys() ^ workers.keys()
        self.workers, self._leases = dict(workers), dict(leases)
        for name, entry in self.entries.items():
            if entry.node in gone:
                self._urgent[name] = None
        for name in self._open:
            self._urgent[name] = None

    def hear_entry(self, name: str, entry: Placement | None, *, revision: int) -> None:
        """This is the entry of a partition now; None: it was deleted."""
        if entry is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = entry
        self._entries_heard[name] = revision
        self._news(name)

    def hear_handover(self, name: str, record: Handover | None, *, revision: int, now: float) -> None:
        """This is the record of a partition's hand-overs now; None: it was deleted."""
        before = self._records.get(name)
        if record is None:
            self._records.pop(name, None)
        else:
            self._records[name] = record
        if record is None or not record.is_open:
            self._open.pop(name, None)
        elif before is None or before.number != record.number or name not in self._open:
            self._open[name] = now + record.timeout + HANDOVER_GRACE_S
        is_withdrawn = record is not None and record.step is HandoverStep.WITHDRAWN
        was_open = before is not None and record is not None and before.number == record.number
        if is_withdrawn and name in self._moving and was_open and before is not None and before.is_open:
            self.stats.withdrawn_count += 1
            self._try_again(name, now)
        self._records_heard[name] = revision
        self._news(name)

    def begin(self, plan: Plan | None, *, now: float) -> None:
        """The machine has heard all that the store has; `plan` is the last one. Called once."""
        self.plan = plan
        self._check_at_s = now + self.settings.rebalance_interval
        self._balance_at_s = now if plan is not None else now + self.settings.join_delay
        self._urgent |= dict.fromkeys(sorted(self.partitions.keys() | self.entries.keys()))
        if plan is not None and plan.inputs == self._digest():
            self._planned_inputs = self._placed_inputs = plan.inputs
            self._unplaced = plan.unplaced
            # The plan is made anew if one of these has an owner by now.
            self._unplaced_from = dict.fromkeys(plan.unplaced, "")
            self._failed = dict.fromkeys(plan.failed)
            self._is_changed = False
            if plan.state is PlanState.OPEN:
                self._take_up(plan.moves)
                for name, revision in self._entries_heard.items():
                    if revision > plan.revision and name not in self._targets and not self._is_by_hand(name):
                        self._strays(name, now)

    # -- what to do

    def decide(self, *, now: float, wall: float) -> list[Command]:
        """What to do now. Each command is given once, and is under way until the driver says how it went."""
        for name in [name for name, busy in self._busy.items() if busy.until_s <= now]:
            del self._busy[name]
            self._urgent[name] = None
        if self._is_writing:
            return []
        news, self._news_of = self._news_of, {}
        for name in news:
            self._look_for_stray(name, now)
        plan = self._due_plan(now, wall)
        if plan is not None:
            self._is_writing = True
            return [WritePlan(plan=plan, before=self.plan)]
        for name, due_s in self._open.items():
            if now >= due_s:
                self._urgent[name] = None
        steps: list[Command] = []
        for name in list(self._urgent):
            if len(self._busy) >= ASSIGNMENT_STEPS_AT_ONCE:
                break
            if name in self._busy:
                continue
            del self._urgent[name]
            self._begin(self._step(name, now), steps)
        self._offer(steps, now)
        if not steps and (ended := self._ended_plan(wall)) is not None:
            self._is_writing = True
            return [ended]
        return steps

    def deadline(self, *, now: float) -> float:
        """When to decide again after a decision, if nothing happens before; infinite: never."""
        times = [self._check_at_s, *(busy.until_s for busy in self._busy.values()), *self._open.values()]
        times += [offers.not_before_s for offers in self._moving.values() if offers.tries_count]
        if self._is_changed:
            times.append(self._balance_at_s)
        # What is due and was not done waits for something else, and news of that will come.
        return min((at_s for at_s in times if at_s > now), default=inf)

    # -- how it went

    def done(self, step: Step, revision: int, *, now: float) -> None:
        """A step was carried out, at this revision; 0: something had changed meanwhile."""
        if not revision:
            self._busy[step.partition] = _Busy(step=None, until_s=now + ASSIGNMENT_LOOK_S)
            return
        until_s = now + STORE_TIMEOUT_S
        self._busy[step.partition] = _Busy(step=step, revision=revision, until_s=until_s)
        self._count(step, now)
        self._news(step.partition)

    def refused(self, step: Step, *, now: float) -> None:
        """The store did not answer, or refused the step: decide again, after a pause."""
        self._busy[step.partition] = _Busy(step=None, until_s=now + ASSIGNMENT_LOOK_S)
        if isinstance(step, OfferPartition):
            self._try_again(step.partition, now)

    def written(self, command: WritePlan | EndPlan, found: Plan | None, *, now: float) -> None:
        """This is the store's plan after the command, whether or not the command wrote it."""
        self._is_writing = False
        self.plan = found
        if found is None or (found.number, found.state) != (command.plan.number, command.plan.state):
            self._planned_inputs = self._placed_inputs = ""
            self._is_changed = True
        elif isinstance(command, EndPlan):
            self.stats.rebalance_s = now - self._plan_began_s
        else:
            self._began(found, now)

    # -- plans

    def _due_plan(self, now: float, wall: float) -> Plan | None:
        is_new = self._is_changed and self._digest() != self._planned_inputs
        if self._is_changed and not is_new:
            self._is_changed = False
        is_check = now >= self._check_at_s
        if is_check:
            self._check_at_s = now + self.settings.rebalance_interval
            self.stats.checks_count += 1
        if is_new and now >= self._balance_at_s:
            return self._made(wall, now, is_whole=True)
        if is_new and self._digest() != self._placed_inputs and self._is_any_unowned():
            return self._made(wall, now, is_whole=False)
        if is_check and not self._targets and self._is_anything_amiss():
            return self._made(wall, now, is_whole=True)
        return None

    def _made(self, wall: float, now: float, *, is_whole: bool) -> Plan | None:
        """A plan for what is so now; None if there is nothing to do. If not `is_whole`, it only places."""
        sharing = self.share_out()
        inputs = self._digest()
        moves = sharing.moves
        if is_whole:
            self._planned_inputs, self._is_changed = inputs, False
        else:
            moves = tuple(move for move in moves if not self._is_owned(move.partition))
        self._placed_inputs = inputs
        self._unplaced, self._shared = sharing.unplaced, dict(sharing.owners)
        self._unplaced_from = {name: self._owner(name) for name in sharing.unplaced}
        for name in sharing.unplaced:
            self._urgent[name] = None
        changes, self._changes = self._changes, []
        told = {} if self.plan is None else self.plan.unplaced
        if not moves and not self._targets and sharing.unplaced.keys() == told.keys():
            self._failed.clear()
            self._changed_at_s = None
            return None
        # Also higher than the number of a plan that could not be written: some of it may be stored later.
        self._number_max = 1 + max(self._number_max, 0 if self.plan is None else self.plan.number)
        return Plan(
            number=self._number_max,
            leader=self._node,
            inputs=inputs if is_whole else "",
            reason=_told(changes) or "a check found partitions that are not where they should be",
            moves=moves,
            unplaced=sharing.unplaced,
            created_at=wall,
        )

    def share_out(self) -> Sharing:
        """The planner's answer for the present state."""
        return share_out(
            self.workers.values(),
            self.partitions.values(),
            {name: owner for name in self.partitions if (owner := self._owner(name))},
            per_node_max=self.settings.per_node_max,
        )

    def _began(self, plan: Plan, now: float) -> None:
        self._plan_began_s = now
        self.stats.plans_count += 1
        self.stats.moves_planned_count += len(plan.moves)
        if self._changed_at_s is not None:
            self.stats.commit_delay_s = now - self._changed_at_s
            self.stats.commit_delay_s_max = max(self.stats.commit_delay_s_max, self.stats.commit_delay_s)
            self._changed_at_s = None
        self._take_up(plan.moves)

    def _take_up(self, moves: Iterable[Move]) -> None:
        """These are the moves from now on; earlier ones no longer count."""
        self._failed.clear()
        self._targets = {move.partition: move for move in moves}
        self._moving = {}
        for name in (*self._targets, *self._open):
            self._urgent[name] = None

    def _ended_plan(self, wall: float) -> EndPlan | None:
        plan = self.plan
        if plan is None or plan.state is not PlanState.OPEN or self._targets or self._busy or self._urgent:
            return None
        return EndPlan(plan=plan.ended(PlanState.DONE, at=wall, failed=self._failed), before=plan)

    # -- steps

    def _step(self, name: str, now: float) -> Step | None:
        """What is due for one partition, except offers."""
        entry, record = self.entries.get(name), self._records.get(name)
        move = self._targets.get(name)
        if record is not None and record.is_open:
            return self._go_on(name, record, move, now)
        if name not in self.partitions:
            return None if entry is None else RemovePartition(partition=name)
        if self._is_owned(name) and entry is not None:
            if move is not None and move.target == entry.node:
                del self._targets[name]
                self._moving.pop(name, None)
            elif move is not None:
                self._moving.setdefault(name, _Offers())
            elif name in self._unplaced and entry.node == self._unplaced_from[name]:
                return ClearPartition(partition=name, reason=self._unplaced[name])
            return None
        self._moving.pop(name, None)
        if move is None and entry is not None and entry.node and name in self._unplaced:
            return ClearPartition(partition=name, reason=self._unplaced[name])
        return self._replacing(name, move)

    def _placing(
        self, name: str, node: str, reason: str, *, is_handed: bool = False
    ) -> PlacePartition | None:
        if node not in self._leases:
            return None
        entry = self.entries.get(name)
        is_vacant = entry is not None and self._leases.get(entry.node) != entry.lease and not is_handed
        return PlacePartition(
            partition=name,
            node=node,
            reason=reason,
            over=0 if entry is None else entry.epoch,
            is_vacant=is_vacant,
            is_handed=is_handed,
        )

    def _go_on(self, name: str, record: Handover, move: Move | None, now: float) -> Step | None:
        """What the leader must write of a hand-over."""
        is_taken = record.step is HandoverStep.TAKEN
        is_offered = record.step is HandoverStep.OFFERED
        target_lease = str(self._leases.get(record.taken_by if is_taken else record.target, 0))
        is_ours = record.asked_by == self.asks_as
        # If our plan asked for it, and the present plan does not have it, that plan was replaced.
        is_planned = move is not None and move.target == record.target
        is_meant = name in self.partitions and (is_planned or not is_ours)
        facts = Facts(
            is_owner_here=str(self._leases.get(record.source, 0)) == record.owner_key,
            is_target_here=target_lease != "0" and (is_offered or target_lease == record.target_key),
            is_over_time=now >= self._open.get(name, inf),
            refusal="" if is_meant else "the plan has changed",
        )
        decision = decide(record, Actor.LEADER, facts)
        if decision is None:
            return None
        if decision.step is HandoverStep.WITHDRAWN:
            return WithdrawOffer(partition=name, record=record, trouble=decision.trouble)
        reason = record.reason
        if facts.is_target_here and not is_taken:
            return self._placing(name, record.target, reason, is_handed=True)
        # The nodes that took part are gone, or have other sessions.
        return self._replacing(name, move)

    def _replacing(self, name: str, move: Move | None) -> Step | None:
        """What is due for a partition whose owner is gone, or has another session."""
        if move is not None:
            return self._placing(name, move.target, move.reason)
        entry = self.entries.get(name)
        is_wanted = name in self.partitions and name not in self._unplaced
        if is_wanted and entry is not None and entry.node in self.workers:
            return self._placing(name, entry.node, f"{entry.node} has another session")
        return None

    def _look_for_stray(self, name: str, now: float) -> None:
        """A move that was under way when the plan was made may end elsewhere than the plan expects."""
        owner, is_settled = self._owner(name), name in self._targets or name in self._failed
        if name in self._unplaced:
            if owner not in ("", self._unplaced_from[name]):
                self._strays(name, now)
            return
        if not self._shared or not owner or is_settled or self._shared.get(name) == owner:
            return
        if self._is_by_hand(name):
            self._shared[name] = owner
        elif name in self.partitions:
            self._strays(name, now)

    def _strays(self, name: str, now: float) -> None:
        self._planned_inputs = ""
        self._change(f"{name} went elsewhere", now)

    def _is_by_hand(self, name: str) -> bool:
        """Whether somebody outside asked for the partition to be where it is, or where it is going."""
        record, entry = self._records.get(name), self.entries.get(name)
        if record is None or record.asked_by == self.asks_as:
            return False
        return record.is_open or (entry is not None and record.next_epoch == entry.epoch)

    def _offer(self, steps: list[Command], now: float) -> None:
        """Offer partitions that are to move and whose owners work, as many at a time as the settings say."""
        offering = {name for name, busy in self._busy.items() if isinstance(busy.step, OfferPartition)}
        under_way = len(offering | self._open.keys())
        for name, offers in list(self._moving.items()):
            if under_way >= self.settings.moves_at_once or len(self._busy) >= ASSIGNMENT_STEPS_AT_ONCE:
                break
            move = self._targets.get(name)
            if name in self._busy or name in self._open or offers.not_before_s > now or move is None:
                continue
            if move.target not in self._leases or not self._is_owned(name):
                continue
            offers.tries_count += 1
            under_way += 1
            timeout = self.settings.handover_timeout
            offer = OfferPartition(
                partition=name,
                node=move.target,
                reason=move.reason,
                timeout=timeout,
                plan_revision=0 if self.plan is None else self.plan.revision,
            )
            self._begin(offer, steps)

    def _try_again(self, name: str, now: float) -> None:
        offers = self._moving.get(name)
        if offers is None:
            return
        if offers.tries_count >= ASSIGNMENT_MOVE_TRIES_COUNT:
            del self._moving[name]
            self._targets.pop(name, None)
            self._failed[name] = None
            self.stats.moves_failed_count += 1
        else:
            offers.not_before_s = now + ASSIGNMENT_MOVE_RETRY_S * 2 ** (offers.tries_count - 1)

    def _begin(self, step: Step | None, steps: list[Command]) -> None:
        if step is not None:
            self._busy[step.partition] = _Busy(step=step)
            steps.append(step)

    def _count(self, step: Step, now: float) -> None:
        if isinstance(step, PlacePartition | OfferPartition):
            self.stats.placed_count += isinstance(step, PlacePartition) and not step.is_handed
            self.stats.offered_count += isinstance(step, OfferPartition)
            if (joined_s := self._joined_at_s.pop(step.node, None)) is not None:
                self.stats.join_to_rebalance_s = now - joined_s
                longest = max(self.stats.join_to_rebalance_s_max, now - joined_s)
                self.stats.join_to_rebalance_s_max = longest

    # -- small things

    def _change(self, what: str, now: float) -> None:
        self._is_changed = True
        self._inputs = ""
        self._changes.append(what)
        if self._changed_at_s is None:
            self._changed_at_s = now

    def _digest(self) -> str:
        self._inputs = self._inputs or digest_of(
            self.workers.values(), self.partitions.values(), self.settings
        )
        return self._inputs

    def _news(self, name: str) -> None:
        busy = self._busy.get(name)
        if busy is not None and self._is_told(name, busy):
            del self._busy[name]
        self._urgent[name] = self._news_of[name] = None

    def _is_told(self, name: str, busy: _Busy) -> bool:
        """Whether all that a step wrote was heard of: if only half was, the step would seem due again."""
        if busy.revision is None:
            return False
        if isinstance(busy.step, OfferPartition | WithdrawOffer):
            return self._records_heard.get(name, 0) >= busy.revision
        record = self._records.get(name)
        is_record_old = record is not None and record.is_open and record.revision < busy.revision
        return self._entries_heard.get(name, 0) >= busy.revision and not is_record_old

    def _is_owned(self, name: str) -> bool:
        """Whether the owner in the entry works, on the session that the entry names."""
        entry = self.entries.get(name)
        return entry is not None and entry.node in self.workers and self._leases[entry.node] == entry.lease

    def _is_anything_amiss(self) -> bool:
        return bool(self._failed) or self._is_any_unowned() or self._is_any_misplaced()

    def _is_any_misplaced(self) -> bool:
        """Whether a worker has what it may not have: it was moved by hand while it was pinned elsewhere."""
        return any(
            name in self.partitions
            and name not in self._unplaced
            and entry.node in self.workers
            and not may_have(self.workers[entry.node], self.partitions[name])
            for name, entry in self.entries.items()
        )

    def _is_any_unowned(self) -> bool:
        return any(
            not self._is_owned(name) and name not in self._targets and not self._owner_again(name)
            for name in self.partitions
        )

    def _owner_again(self, name: str) -> bool:
        entry = self.entries.get(name)
        return entry is not None and entry.node in self.workers

    def _owner(self, name: str) -> str:
        """The partition's owner, for the planner: if a hand-over is sealed, the new owner.

        When the new owner has just taken it, the news of the entry may not have come yet.
        """
        record, entry = self._records.get(name), self.entries.get(name)
        if record is not None and record.is_open and not record.step.is_early:
            target = record.taken_by or record.target
            if target in self.workers:
                return target
        return "" if entry is None else entry.node


def asked_by(group: str) -> str:
    """The name under which the plan of a group asks for hand-overs, in their records."""
    return f"the plan of group {group!r}"


def _told(changes: list[str]) -> str:
    """Some changes in words, those of workers first: there may be thousands of partitions."""
    seen = sorted(dict.fromkeys(changes), key=lambda change: change.startswith("partition "))
    more = f" and {len(seen) - _CHANGES_TOLD_COUNT} more" if len(seen) > _CHANGES_TOLD_COUNT else ""
    return ", ".join(seen[:_CHANGES_TOLD_COUNT]) + more
