"""Who has which partition, and what happens to that: the values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hansa.assignment.handoff import Handoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A partition of a group, and who has it.

    `owner` is a node, empty for nobody. `epoch` grows from owner to owner, `version` with each change of any
    of this. `handoff` is the last one that was saved, None if there is none. `since` and `updated_at` are wall
    times, for display. `standby` are the other workers that could have it.
    """

    group: str
    partition: str
    owner: str = ""
    epoch: int = 0
    generation: int = 0
    resources: tuple[str, ...] = ()
    handoff: Handoff | None = None
    last_offset: int = -1
    version: int = 0
    since: float = 0.0
    updated_at: float = 0.0
    reason: str = ""
    standby: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfPartition:
    """`node` is who it is about, in `epoch`; `resources` and `handoff` are the partition's as they are then."""

    group: str
    partition: str
    node: str
    epoch: int
    resources: tuple[str, ...] = ()
    handoff: Handoff | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssigned(_OfPartition):
    """The node has it from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRevoked(_OfPartition):
    """The node has given it up in good order; `handoff` is what it left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionUpdated(_OfPartition):
    """Its resources have changed, or its handoff; the owner is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLost(_OfPartition):
    """The node has it no more, and could leave nothing: its session ended, or somebody else has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffFailed(_OfPartition):
    """What the node wanted to leave could not be saved, after all tries: an alert. `reason` says why."""


TopologyEvent: TypeAlias = (
    PartitionAssigned | PartitionRevoked | PartitionUpdated | PartitionLost | HandoffFailed
)
