"""Shares partitions out among workers: who should have what, and which moves bring that about. Pure.

(The interface is fixed; the body is being written.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hansa.assignment.partition import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A worker, as the planner sees it.

    `weight` is how much it can carry beside the others. One that `is_draining` is to give everything up. One
    that `takes_more` is false keeps what it has and is given nothing more: it is suspected, or not ready.
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
    """A partition that is to go from a node to another. `source` is empty if nobody has it."""

    partition: str
    source: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """What the planner gives: the moves in the order in which to make them, and who has what after them.

    `unplaced` are partitions that nobody may have, with the reason why.
    """

    moves: tuple[Move, ...] = ()
    owners: Mapping[str, str] = field(default_factory=dict)
    unplaced: Mapping[str, str] = field(default_factory=dict)


def may_have(candidate: Candidate, partition: Partition) -> bool:
    """Whether a worker is one that a partition may go to, by its role, its group and its pin."""
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
    """Who should have what, from who has what now; the same input always gives the same."""
    raise NotImplementedError
