"""The planner: which worker should have which partition, and which moves bring that about. Pure.

Partitions of the same weight, role, resource group and zone are of one *kind*. The planner counts how many of
each kind a worker has, and names the partitions that move only at the end, so that as many as possible stay.
A worker that takes more and does not drain is *open*. The others are given nothing; a worker that takes no
more keeps what it has. The steps:

1. Pinned partitions go to their nodes. Workers keep the rest of what they have and may have, at most
   `per_node_max`.
2. Partitions without a worker are placed, the heaviest first; then those of draining workers. If every worker
   that may have one is full, the shortest chain of other moves makes room. A partition that finds no place is
   unplaced, but a draining worker keeps it: better there than nowhere.
3. One at a time, partitions go from a high worker to the lowest that may have them, while that levels. Then
   pairs of equal weight change places if that brings one into its zone. Both repeat until nothing changes.

When does a step level? Let a worker of capacity c with load L cost 2LL/c. Let a partition of weight w cost
w(W - w) when it is not where it was before the plan, and 3w(W - w) outside its zone; W is the largest weight.
A step must lower the sum of these costs, or leave it and bring a partition into its zone. So the steps come
to an end, and there the planner, asked again, finds nothing to do. If all weights are 1, a step is due when
the giver has two more than the taker.

What is guaranteed:

- Hard rules: role, resource group, pinned node, `per_node_max` (after the moves, not between them). No
  partition is unplaced that would have a place if others moved, except pinned ones and those of workers that
  are not open.
- Balance: if a has an unpinned partition that b may have, both are open and b is not full, then the load per
  capacity of a is at most W above that of b; if all weights are 1, a has at most one more. So equally able
  workers are level. Others are level by single moves: where a has what b may have, and b what c may have, but
  a nothing for c, a may have two more than c.
- Few moves: among workers and partitions that are all alike no plan with that balance has fewer. With
  weights, roles or zones each step pays, but their number may not be the smallest.
- Zones: they come after balance, within its W. A partition is outside its zone only if going there does not
  pay, and if nothing of its weight there may change places with it.
- Names decide only between what is alike: workers are ranked by all that the planner goes by, and by name
  after that. So renaming changes neither the loads nor the number of moves.

A *lane* is a heap, lowest first, of the open workers that may have partitions with one demand (role and
resource group), or of those in one zone. A worker that rose is noticed when it comes up, and one that sank is
put in again: so the time grows as partitions times the logarithm of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import TypeAlias

from hansa.assignment.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A worker as the planner sees it.

    `weight` is how much it can carry, compared with the others. A worker that `is_draining` is to give
    everything up. If `takes_more` is false, it keeps what it has and is given nothing more: it is suspected,
    or not ready.
    """

    node: str
    weight: int = 1
    zone: str = ""
    roles: frozenset[str] = frozenset()
    resource_groups: frozenset[str] = frozenset()
    is_draining: bool = False
    takes_more: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition that is to go from one node to another. `source` is empty if no node has had it."""

    partition: str
    source: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What the planner returns: the moves in the order in which to make them, and the owners after them.

    `unplaced` are partitions that no worker may have, each with the reason.
    """

    moves: tuple[Move, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)
    unplaced: Mapping[str, str] = field(default_factory=dict)


def may_have(candidate: Candidate, partition: Partition) -> bool:
    """Whether a partition may go to this worker, by its role, its resource group and its pin."""
    return (
        partition.pinned in ("", candidate.node)
        and (not partition.role or partition.role in candidate.roles)
        and (not partition.resource_group or partition.resource_group in candidate.resource_groups)
    )


def share_out(
    candidates: Iterable[Candidate],
    partitions: Iterable[Partition],
    owners: Mapping[str, str],
    *,
    per_node_max: int | None = None,
) -> Sharing:
    """Which worker should have what, based on `owners` now; the same input always gives the same result.

    The moves begin with partitions without an owner, then those that must leave their owner, then those that
    are moved to level. An owner that is no candidate is gone.
    """
    table = _Table(candidates, partitions, owners, per_node_max)
    table.keep()
    table.open_lanes()
    table.place()
    table.level()
    table.name()
    moves = sorted(table.moves(), key=lambda each: (each[0], each[1].partition))
    return Sharing(moves=tuple(move for _, move in moves), owners=table.targets, unplaced=table.unplaced)


# What a partition asks of a worker: a role and a resource group; either may be empty.
_Demand: TypeAlias = tuple[str, str]
_Lane: TypeAlias = "list[tuple[float, int, _Worker]]"
# By a kind and the demands of the workers that have such partitions: those workers.
_Spare: TypeAlias = "dict[tuple[_Kind, frozenset[_Demand]], list[_Worker]]"
# How far it lowers the costs; whether it leads into the zone (1) or out of it (-1); what goes, and to whom.
_Step: TypeAlias = "tuple[float, int, _Kind, _Worker]"


class _Kind:
    """Partitions that are alike for the planner."""

    __slots__ = ("demand", "homeless", "near", "rank", "slack", "weight", "wide", "zone")

    def __init__(self, rank: int, weight: int, demand: _Demand, zone: str, slack: int) -> None:
        self.rank = rank
        self.weight = weight
        self.demand = demand
        self.zone = zone
        self.slack = slack
        """How much lighter it is than the heaviest: W - w."""
        self.near: _Lane | None = None
        """The workers that may have them in their zone; None if there is none, or if they have no zone."""
        self.wide: _Lane = []
        """The workers that may have them."""
        self.homeless: list[str] = []
        """Those without a worker, or that must leave their worker."""


class _Worker:
    """A candidate, with how many partitions of each kind it has as far as the plan is made."""

    def __init__(self, candidate: Candidate, demands: frozenset[_Demand]) -> None:
        self.node = candidate.node
        self.capacity = candidate.weight
        self.zone = candidate.zone
        self.demands = demands
        self.takes_more = candidate.takes_more
        self.is_draining = candidate.is_draining
        self.is_open = candidate.takes_more and not candidate.is_draining
        self.home: dict[_Kind, list[str]] = {}
        """What it has now and may have, except pinned partitions."""
        self.pinned: list[tuple[bool, int, str]] = []
        """What is pinned to it: whether another worker has it now, the rank of its kind, its name."""
        self.has: dict[_Kind, int] = {}
        self.lanes: list[_Lane] = []
        self.load = self.count = self.load_before = self.count_before = self.rank = 0
        self.height = 0.0

    def signature(self) -> tuple[object, ...]:
        """Everything that the planner goes by.

        Capacity comes first, so that of equally high workers `_lowest` returns the largest. Otherwise the
        ranks would decide what is due, and not only who has what.
        """
        free = [(kind.rank, len(names)) for kind, names in self.home.items()]
        pinned = [each[:2] for each in sorted(self.pinned)]
        flags = (self.is_draining, self.takes_more)
        return (-self.capacity, self.zone, flags, free, pinned, sorted(self.demands))


class _Table:
    """How many of each kind every worker has, while the plan is made."""

    def __init__(
        self,
        candidates: Iterable[Candidate],
        partitions: Iterable[Partition],
        owners: Mapping[str, str],
        count_max: int | None,
    ) -> None:
        self.owners = owners
        self.partitions = {each.name: each for each in sorted(partitions, key=lambda each: each.name)}
        self.count_max = len(self.partitions) if count_max is None else count_max
        self.targets: dict[str, str] = {}
        self.unplaced: dict[str, str] = {}
        names: dict[tuple[int, str, str, str], list[str]] = {}
        for name, each in self.partitions.items():
            names.setdefault((-each.weight, each.role, each.resource_group, each.zone), []).append(name)
        weights = [-key[0] for key in names] or [1]
        self.unit, weight_max = min(weights), max(weights)
        self.is_weighted = self.unit != weight_max
        self.weight_sum = sum(each.weight for each in self.partitions.values())
        self.kinds: dict[_Kind, list[str]] = {}
        for rank, key in enumerate(sorted(names)):
            weight, role, group, zone = -key[0], *key[1:]
            self.kinds[_Kind(rank, weight, (role, group), zone, weight_max - weight)] = names[key]
        self.workers = self._seated(candidates)
        self._find_homes()
        self.ranked = sorted(self.workers.values(), key=lambda each: (*each.signature(), each.node))
        for rank, worker in enumerate(self.ranked):
            worker.rank = rank
        self.open = [worker for worker in self.ranked if worker.is_open]
        self.able: dict[_Demand, list[_Worker]] = {}
        self._lanes: dict[tuple[_Demand, str], _Lane] = {}
        # Demands without room, whatever moves.
        self._full: set[_Demand] = set()

    # -- 1. what stays

    def _seated(self, candidates: Iterable[Candidate]) -> dict[str, _Worker]:
        demands = {kind.demand for kind in self.kinds}
        found: dict[tuple[frozenset[str], frozenset[str]], frozenset[_Demand]] = {}
        workers = {}
        for each in candidates:
            key = (each.roles, each.resource_groups)
            if key not in found:
                roles, groups = each.roles | {""}, each.resource_groups | {""}
                found[key] = frozenset(one for one in demands if one[0] in roles and one[1] in groups)
            workers[each.node] = _Worker(each, found[key])
        return workers

    def _find_homes(self) -> None:
        for kind, names in self.kinds.items():
            for name in names:
                pinned = self.partitions[name].pinned
                worker = self.workers.get(self.owners.get(name, ""))
                if worker is not None:
                    worker.load_before += kind.weight
                    worker.count_before += 1
                if pinned and pinned in self.workers:
                    target = self.workers[pinned]
                    target.pinned.append((worker is not target, kind.rank, name))
                elif pinned:
                    self.unplaced[name] = f"pinned to {pinned}, which is away"
                elif worker is not None and kind.demand in worker.demands:
                    worker.home.setdefault(kind, []).append(name)
                else:
                    kind.homeless.append(name)

    def keep(self) -> None:
        """Decide what stays where it is before anything is placed."""
        kinds = list(self.kinds)
        for worker in self.ranked:
            for is_elsewhere, rank, name in sorted(worker.pinned):
                trouble = self._not_pinned(worker, kinds[rank].demand, is_elsewhere=is_elsewhere)
                if trouble:
                    self.unplaced[name] = f"pinned to {worker.node}, {trouble}"
                else:
                    self.targets[name] = worker.node
                    worker.count += 1
                    worker.load += kinds[rank].weight
            if not worker.is_draining:
                # If the worker has too many, those outside their zone must go first, then the lightest.
                own_zones = ("", worker.zone)
                for kind in sorted(worker.home, key=lambda each: (each.zone not in own_zones, each.rank)):
                    self._stay(worker, kind, len(worker.home[kind]))
            worker.height = (2 * worker.load + self.unit) / worker.capacity

    def _not_pinned(self, worker: _Worker, demand: _Demand, *, is_elsewhere: bool) -> str:
        """Why a worker may not have what is pinned to it; empty if it may."""
        if demand not in worker.demands:
            return "which may not have it"
        if worker.count >= self.count_max:
            return f"which has its {self.count_max} already"
        if is_elsewhere and worker.is_draining:
            return "which is draining"
        return "which is not ready" if is_elsewhere and not worker.takes_more else ""

    def _stay(self, worker: _Worker, kind: _Kind, count: int) -> None:
        """Let this many of a kind stay with a worker, or as many as it may have."""
        count = min(count, self.count_max - worker.count)
        if count > 0:
            worker.has[kind] = count
            worker.count += count
            worker.load += count * kind.weight

    # -- lanes

    def open_lanes(self) -> None:
        """Put every open worker into the lanes of what it may have."""
        for kind in self.kinds:
            demand = kind.demand
            if demand not in self.able:
                self.able[demand] = [worker for worker in self.open if demand in worker.demands]
            kind.wide = self._lane(demand, "")
            if kind.zone:
                kind.near = self._lane(demand, kind.zone) or None

    def _lane(self, demand: _Demand, zone: str) -> _Lane:
        lane = self._lanes.get((demand, zone))
        if lane is None:
            workers = [each for each in self.able[demand] if not zone or each.zone == zone]
            lane = self._lanes[demand, zone] = [(each.height, each.rank, each) for each in workers]
            heapify(lane)
            for worker in workers:
                worker.lanes.append(lane)
        return lane

    def _lowest(self, lane: _Lane) -> _Worker | None:
        """The lowest worker of a lane that has room; None if all are full."""
        while lane:
            height, rank, worker = lane[0]
            if worker.count >= self.count_max:
                heappop(lane)
            elif height == worker.height:
                return worker
            else:
                heapreplace(lane, (worker.height, rank, worker))
        return None

    def _pass(self, kind: _Kind, giver: _Worker | None, taker: _Worker) -> None:
        """Pass one of a kind from a worker, or from nobody, to another worker."""
        self._count(taker, kind, taker.has.get(kind, 0) + 1, kind.weight)
        if giver is not None:
            self._count(giver, kind, giver.has[kind] - 1, -kind.weight)
            for lane in giver.lanes:
                heappush(lane, (giver.height, giver.rank, giver))

    def _count(self, worker: _Worker, kind: _Kind, count: int, load: int) -> None:
        if count:
            worker.has[kind] = count
        else:
            del worker.has[kind]
        worker.count += 1 if load > 0 else -1
        worker.load += load
        worker.height = (2 * worker.load + self.unit) / worker.capacity

    # -- 2. what must be placed

    def place(self) -> None:
        """Place what no worker has, or what is too much for its worker; then what draining workers have."""
        # What few workers may have goes first, then what has a zone, so that there is less to level.
        kinds = sorted(
            self.kinds, key=lambda kind: (-kind.weight, len(self.able[kind.demand]), not kind.zone, kind.rank)
        )
        draining = [worker for worker in self.ranked if worker.is_draining]
        waiting = {kind: len(kind.homeless) for kind in kinds}
        for worker in self.ranked:
            for kind, names in () if worker.is_draining else worker.home.items():
                waiting[kind] += len(names) - worker.has.get(kind, 0)
        for kind in kinds:
            self._placed(kind, waiting[kind])
        for kind in kinds:
            for worker in draining:
                count = len(worker.home.get(kind, ()))
                self._stay(worker, kind, count - self._placed(kind, count))

    def _placed(self, kind: _Kind, count: int) -> int:
        """Place this many of a kind; returns how many could be placed."""
        for number in range(count):
            worker = self._best(kind) or self._make_room(kind.demand)
            if worker is None:
                return number
            self._pass(kind, None, worker)
        return count

    def _best(self, kind: _Kind) -> _Worker | None:
        """The worker where one more costs least."""
        far = self._lowest(kind.wide)
        near = None if kind.near is None else self._lowest(kind.near)
        if near is None or far is None or far is near:
            return far
        cost = (2 * near.load + kind.weight) * far.capacity - (2 * far.load + kind.weight) * near.capacity
        return near if 2 * cost <= 3 * kind.slack * far.capacity * near.capacity else far

    def _make_room(self, demand: _Demand) -> _Worker | None:
        """A worker that may have this, and has room after a chain of others moved on; None if none can."""
        if demand in self._full:
            return None
        # By demand: a worker that has one of such a kind, the kind, and the demand for which it makes room.
        ways: dict[_Demand, tuple[_Worker, _Kind, _Demand]] = {}
        reached, seen = [demand], set()
        for wanted in reached:
            for worker in self.able[wanted]:
                if worker.rank in seen:
                    continue
                seen.add(worker.rank)
                for kind in worker.has:
                    if kind.demand == demand or kind.demand in ways:
                        continue
                    ways[kind.demand] = (worker, kind, wanted)
                    reached.append(kind.demand)
                    taker = self._lowest(kind.wide)
                    if taker is None:
                        continue
                    back = kind.demand
                    while back in ways:
                        giver, kind, back = ways[back]
                        self._pass(kind, giver, taker)
                        taker = giver
                    return taker
        # These workers are full, and what they have may only go to each other: so they stay full.
        self._full.update(reached)
        return None

    # -- 3. what is moved to level

    def level(self) -> None:
        """Level step by step, until no step lowers the costs."""
        has_zones = any(kind.near is not None for kind in self.kinds)
        while self._give_away() or (has_zones and self._change_places()):
            pass

    def _give_away(self) -> bool:
        """Let the highest give first, until none can give anything away; returns whether any could."""
        givers = [(-worker.height, worker.rank, worker) for worker in self.open]
        heapify(givers)
        # What a giver should give next, the best last: looking at all it has for each step takes too long.
        next_kinds: dict[int, list[_Kind]] = {}
        is_changed = False
        while givers:
            height, rank, giver = heappop(givers)
            if height != -giver.height:
                continue
            if kinds := next_kinds.get(rank):
                step = self._step(giver, kinds.pop())
            else:
                steps = [found for kind in giver.has if (found := self._step(giver, kind))]
                if not steps:
                    continue
                *others, step = sorted(steps, key=lambda each: each[:2])
                # Only a quarter: when these are done, many of the rest will no longer be good.
                next_kinds[rank] = [each[2] for each in others[len(others) - len(steps) // 4 :]]
            if step is not None:
                kind, taker = step[2:]
                self._pass(kind, giver, taker)
                heappush(givers, (-taker.height, taker.rank, taker))
                is_changed = True
            heappush(givers, (-giver.height, giver.rank, giver))
        return is_changed

    def _step(self, giver: _Worker, kind: _Kind) -> _Step | None:
        """To which worker to give one of a kind; None if that does not pay, or if the giver has none."""
        best: _Step | None = None
        weight, count = kind.weight, giver.has.get(kind, 0)
        is_away = kind.near is not None and kind.zone != giver.zone
        # Whether it leaves the worker that has it now (1), or comes back there (-1).
        is_home = count <= len(giver.home.get(kind, ()))
        for lane in (kind.near, kind.wide) if count else ():
            taker = None if lane is None else self._lowest(lane)
            if taker is None or taker is giver:
                continue
            gain = is_away - (kind.near is not None and kind.zone != taker.zone)
            if lane is kind.wide and gain > 0:
                continue
            both = giver.capacity * taker.capacity
            fall = 2 * (2 * giver.load - weight) * taker.capacity
            fall -= 2 * (2 * taker.load + weight) * giver.capacity
            if kind.slack:
                loss = is_home - (taker.has.get(kind, 0) < len(taker.home.get(kind, ())))
                fall += (3 * gain - loss) * kind.slack * both
            # Compare exact numbers: a step that does not lower the costs would go on for ever.
            if fall > 0 or (fall == 0 and gain > 0):
                found = (fall * weight / both, gain, kind, taker)
                if best is None or found[:2] > best[:2]:
                    best = found
        return best

    def _change_places(self) -> bool:
        """Swap partitions into their zones for others of the same weight; returns whether any was."""
        seekers = [
            (worker, kind)
            for worker in self.open
            for kind in worker.has
            if kind.near is not None and kind.zone != worker.zone
        ]
        # By zone and weight, and by the zone where it would rather be: what need not be where it is.
        spare: dict[tuple[str, int, str], _Spare] = {}
        for worker in self.open if seekers else ():
            for kind in worker.has:
                if kind.zone != worker.zone:
                    group = spare.setdefault((worker.zone, kind.weight, kind.zone), {})
                    group.setdefault((kind, worker.demands), []).append(worker)
        zones = sorted({kind.zone for kind in self.kinds})
        hopeless: set[tuple[_Kind, frozenset[_Demand], str]] = set()
        is_changed = False
        for worker, kind in seekers:
            alike = (kind, worker.demands, worker.zone)
            while kind in worker.has and alike not in hopeless:
                groups = [spare.get((kind.zone, kind.weight, zone), {}) for zone in (worker.zone, *zones)]
                found = next(filter(None, (_partner(worker, kind, group) for group in groups)), None)
                if found is None:
                    hopeless.add(alike)
                    break
                other, partner = found
                self._pass(kind, worker, partner)
                self._pass(other, partner, worker)
                is_changed = True
        return is_changed

    # -- names and reasons

    def name(self) -> None:
        """Decide which partition each worker gets: of each kind as many as possible stay."""
        leaving: dict[_Kind, list[str]] = {}
        takers: dict[_Kind, list[str]] = {}
        for worker in self.ranked:
            for kind, names in worker.home.items():
                count = worker.has.get(kind, 0)
                self.targets.update(dict.fromkeys(names[:count], worker.node))
                leaving.setdefault(kind, []).extend(names[count:])
            for kind, count in worker.has.items():
                more = count - len(worker.home.get(kind, ()))
                takers.setdefault(kind, []).extend([worker.node] * more)
        for kind in self.kinds:
            # If some find no place, then those that no worker has.
            names, nodes = leaving.get(kind, []) + kind.homeless, takers.get(kind, [])
            self.targets.update(zip(names, nodes, strict=False))
            if len(names) > len(nodes):
                self.unplaced.update(dict.fromkeys(names[len(nodes) :], self._why_unplaced(kind.demand)))

    def _why_unplaced(self, demand: _Demand) -> str:
        able = [worker for worker in self.ranked if demand in worker.demands]
        who = "every worker" if len(able) == len(self.ranked) else f"every worker with {_needs(demand)}"
        if not self.ranked:
            return "there is no worker"
        if not able:
            return f"no worker has {_needs(demand)}"
        if not any(worker.is_open for worker in able):
            return f"{who} is draining or not ready"
        return f"{who} has its {self.count_max} already"

    def moves(self) -> Iterator[tuple[int, Move]]:
        """All partitions that get another owner, each with how urgent that is."""
        kind_of = {name: kind for kind, names in self.kinds.items() for name in names}
        for name, target in self.targets.items():
            source = self.owners.get(name, "")
            if source != target:
                urgency, reason = self._why(self.partitions[name], kind_of[name], source, target)
                yield urgency, Move(partition=name, source=source, target=target, reason=reason)

    def _why(self, partition: Partition, kind: _Kind, source: str, target: str) -> tuple[int, str]:
        giver, taker = self.workers.get(source), self.workers[target]
        if giver is None:
            return 0, f"{source} is gone" if source else "nobody has it"
        if partition.pinned:
            return 1, f"it is pinned to {partition.pinned}"
        if kind.demand not in giver.demands:
            return 1, f"{source} has not {_needs(kind.demand)}"
        if giver.is_draining:
            return 1, f"{source} is draining"
        if giver.count_before > self.count_max:
            return 1, f"{source} has {giver.count_before}, and {self.count_max} is the most"
        if kind.zone and giver.zone != kind.zone == taker.zone:
            return 2, f"zone {kind.zone} is preferred"
        if giver.load_before <= giver.load:
            return 2, f"it makes room on {source} for others"
        verb, unit = ("carries", 1) if self.is_weighted else ("has", self.unit)
        load = f"{giver.load_before // unit} of {self.weight_sum // unit}"
        return 2, f"{source} {verb} {load} and its share is {giver.load // unit}"


def _needs(demand: _Demand) -> str:
    """What a demand asks for, in words."""
    role, group = demand
    words = [f"the role {role!r}"] * bool(role) + [f"the resource group {group!r}"] * bool(group)
    return " and ".join(words)


def _partner(worker: _Worker, kind: _Kind, group: _Spare) -> tuple[_Kind, _Worker] | None:
    """A worker that could take a partition of the kind, and the kind that it gives for it."""
    for (other, demands), partners in group.items():
        if kind.demand in demands and other.demand in worker.demands:
            while partners and other not in partners[-1].has:
                partners.pop()
            if partners:
                return other, partners[-1]
    return None
