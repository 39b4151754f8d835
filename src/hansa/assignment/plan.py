"""A plan: the moves that the leader of a group has decided on, as a record that the next leader finds.

The head says which plan counts; the moves are stored in parts beside it, since a plan may have 10,000. A plan
is written in guarded steps: first its parts, under its number, and then the head, which switches to them. If
the leader is gone in between, the plan never counts. Only the entries of the partitions say which of its
moves are done.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from hansa.assignment.partition import GroupSettings, Partition
from hansa.assignment.planner import Candidate, Move
from hansa.coordination.member import from_json
from hansa.errors import BadRecord, Conflict, Fenced
from hansa.keys import Keys
from hansa.limits import PLAN_PART_MOVES_COUNT, PLAN_UNPLACED_TOLD_COUNT, STORE_TIMEOUT_S
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, Get, Operation, Put, prefix_range

logger = logging.getLogger(__name__)


class PlanState(Enum):
    """How far a plan is."""

    OPEN = "open"
    """It is being carried out."""
    DONE = "done"
    """All its moves are done, except those that failed."""
    REPLACED = "replaced"
    """What it was made for has changed: another plan replaces it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the leader of a group has decided: which moves, why, and for which state of the group.

    `number` grows from plan to plan. `inputs` is the digest of what it was made for (`digest_of`). `unplaced`
    are partitions that nobody may have, each with the reason; only the first ones if there are very many.
    `failed` are moves that could not be made. The times are wall times, for display. `revision` is that of
    its head in the store.
    """

    number: int
    state: PlanState = PlanState.OPEN
    leader: str = ""
    inputs: str = ""
    reason: str = ""
    moves: tuple[Move, ...] = ()
    unplaced: Mapping[str, str] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    created_at: float = 0.0
    ended_at: float = 0.0
    revision: int = field(default=0, compare=False)

    def ended(self, state: PlanState, *, at: float, failed: Iterable[str] = ()) -> Plan:
        """The same plan at its end."""
        return replace(self, state=state, ended_at=at, failed=tuple(failed))

    def to_object(self) -> dict[str, Any]:
        """The object that becomes JSON, for people and for programs."""
        return self._head() | {
            "moves": [
                {"partition": move.partition, "from": move.source, "to": move.target, "reason": move.reason}
                for move in self.moves
            ]
        }

    def _head(self) -> dict[str, Any]:
        unplaced = sorted(self.unplaced.items())[:PLAN_UNPLACED_TOLD_COUNT]
        return {
            "number": self.number,
            "state": self.state.value,
            "leader": self.leader,
            "inputs": self.inputs,
            "reason": self.reason,
            "unplaced": dict(unplaced),
            "failed": list(self.failed[:PLAN_UNPLACED_TOLD_COUNT]),
            "createdAt": self.created_at,
            "endedAt": self.ended_at,
            "movesCount": len(self.moves),
        }

    def encode_head(self) -> bytes:
        return json.dumps(self._head(), separators=(",", ":")).encode()

    def encode_parts(self) -> Iterator[bytes]:
        """The moves, in pieces that each fit into one value."""
        for start in range(0, len(self.moves), PLAN_PART_MOVES_COUNT):
            moves = self.moves[start : start + PLAN_PART_MOVES_COUNT]
            rows = [[move.partition, move.source, move.target, move.reason] for move in moves]
            yield json.dumps(rows, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, head: bytes, parts: Iterable[bytes], *, revision: int = 0) -> Plan:
        """Raises `BadRecord`, also when there are too few moves."""
        found = from_json(head, "a plan")
        try:
            moves = tuple(
                Move(partition=str(name), source=str(source), target=str(target), reason=str(reason))
                for part in parts
                for name, source, target, reason in json.loads(part)
            )
            if len(moves) != found["movesCount"]:
                raise ValueError(f"{len(moves)} moves of {found['movesCount']}")
            return cls(
                number=int(found["number"]),
                state=PlanState(found["state"]),
                leader=str(found["leader"]),
                inputs=str(found["inputs"]),
                reason=str(found["reason"]),
                moves=moves,
                unplaced={str(name): str(why) for name, why in found["unplaced"].items()},
                failed=tuple(str(name) for name in found["failed"]),
                created_at=float(found["createdAt"]),
                ended_at=float(found["endedAt"]),
                revision=revision,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadRecord(f"no plan: {error!r:.200}") from error


def digest_of(
    candidates: Iterable[Candidate], partitions: Iterable[Partition], settings: GroupSettings
) -> str:
    """A digest of all that a plan depends on, except who has what: equal for equal inputs, in any order."""
    words = [
        *sorted(
            repr((each.node, each.weight, each.zone, sorted(each.roles), sorted(each.resource_groups)))
            + repr((each.is_draining, each.takes_more))
            for each in candidates
        ),
        *sorted(
            repr((each.name, each.weight, each.role, each.zone, each.resource_group, each.pinned))
            for each in partitions
        ),
        repr((settings.per_node_max, sorted(settings.draining))),
    ]
    return hashlib.blake2b("\n".join(words).encode(), digest_size=16).hexdigest()


class Plans:
    """A group's plan in the store. Every call raises what the store raises."""

    def __init__(self, store: Store, group: str, *, cluster: str = "default") -> None:
        self._store = store
        self._prefix = Keys(cluster).plans(group)
        self._head = self._prefix + b"head"
        self._group = group

    async def load(self, *, timeout: float | None = STORE_TIMEOUT_S) -> Plan | None:
        """The last plan, None before the first; a plan that cannot be read counts as replaced."""
        scan = await self._store.scan(self._prefix, timeout=timeout)
        found = {item.key: item for item in scan.items}
        head = found.get(self._head)
        if head is None:
            return None
        try:
            number = from_json(head.value, "a plan").get("number")
            prefix = self._parts(number) if isinstance(number, int) else b""
            parts = [item.value for item in scan.items if prefix and item.key.startswith(prefix)]
            return Plan.decode(head.value, parts, revision=head.mod_revision)
        except BadRecord as error:
            logger.warning("group %r: %s", self._group, error)
            # Higher than the number of any plan before, as revisions are.
            return Plan(number=head.mod_revision, state=PlanState.REPLACED, revision=head.mod_revision)

    def same(self, revision: int) -> Compare:
        """Compares that the last plan is still the one of this revision (0: there is none), in its state."""
        return Compare.revision(self._head, "=", revision)

    async def write(self, plan: Plan, guard: Compare, *, before: Plan | None) -> Plan:
        """Write a plan whose moves are not written yet, after the last plan; returns it as it is stored.

        Raises `Fenced` when this leader no longer leads, `Conflict` when another plan is there.
        """
        parts = self._parts(plan.number)
        # A leader that was gone before its plan counted may have left parts under the same number. A leader
        # does not use a number twice: a request that it has given up may be carried out later.
        await self._commit(guard, [], [Delete(*prefix_range(parts))])
        compares: list[Compare] = []
        for number, part in enumerate(plan.encode_parts()):
            key = parts + b"%06d" % number
            written = await self._commit(guard, [], [Put(key, part)])
            # The last part stands for all parts, also in a store that went back meanwhile.
            compares = [Compare.revision(key, "=", written)]
        revision = await self._write_head(plan, guard, before=before, compares=compares)
        # Only while this head is there: in a store that went back, an older plan may count again.
        await self._commit(guard, [self.same(revision)], [Delete(self._parts(0), parts)])
        return replace(plan, revision=revision)

    async def end(self, plan: Plan, guard: Compare, *, before: Plan) -> Plan:
        """Write that a plan has ended; returns it as it is stored. Raises as `write`."""
        return replace(plan, revision=await self._write_head(plan, guard, before=before))

    async def _write_head(
        self, plan: Plan, guard: Compare, *, before: Plan | None, compares: Sequence[Compare] = ()
    ) -> int:
        same = self.same(0 if before is None else before.revision)
        return await self._commit(guard, [same, *compares], [Put(self._head, plan.encode_head())])

    async def _commit(self, guard: Compare, compares: Sequence[Compare], then: Sequence[Operation]) -> int:
        outcome = await self._store.commit(
            [guard, *compares], then, otherwise=[Get(guard.key, keys_only=True)]
        )
        if outcome.is_success:
            return outcome.revision
        if any(guard.holds(item) for item in outcome.items):
            raise Conflict(f"group {self._group!r}: somebody else has written a plan")
        raise Fenced(f"group {self._group!r}: this leader no longer leads")

    def _parts(self, number: int) -> bytes:
        return self._prefix + b"%016d/" % number
