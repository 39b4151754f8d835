"""Who works for a group, who has which partition, and what happens to that: the values. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeAlias

from hansa.assignment.handoff import Handoff
from hansa.assignment.planner import Candidate
from hansa.coordination.member import Member, MemberStatus, from_json
from hansa.errors import BadArgument, BadRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a member says of itself that works for a group: in its metadata, under `key_of` the group.

    `weight` is how much it can carry beside the others. It belongs to the `resource_groups`. One that
    `is_draining` is to be given nothing more, and gives up what it has. Raises `BadArgument`.
    """

    weight: int = 1
    resource_groups: frozenset[str] = frozenset()
    is_draining: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.resource_groups, str):
            raise BadArgument(f"resource_groups is a set of names: write {{{self.resource_groups!r}}}")
        object.__setattr__(self, "resource_groups", frozenset(self.resource_groups))
        if not isinstance(self.weight, int) or isinstance(self.weight, bool) or self.weight < 1:
            raise BadArgument(f"a worker with weight {self.weight!r}: give a number from 1 on")

    @staticmethod
    def key_of(group: str) -> str:
        """Where a member's metadata says that it works for a group."""
        return f"works-for/{group}"

    def encode(self) -> str:
        found = {
            "weight": self.weight,
            "resourceGroups": sorted(self.resource_groups),
            "isDraining": self.is_draining,
        }
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> WorkerInfo:
        """Raises `BadRecord`."""
        found = from_json(text.encode(), "a worker")
        try:
            return cls(
                weight=found.get("weight", 1),
                resource_groups=frozenset(found.get("resourceGroups", ())),
                is_draining=bool(found.get("isDraining", False)),
            )
        except (BadArgument, TypeError) as error:
            raise BadRecord(f"no worker: {error!r:.200}") from error

    @classmethod
    def of(cls, member: Member, group: str) -> WorkerInfo | None:
        """None for a member that does not work for the group, or says so in words that nobody can read."""
        text = member.metadata.get(cls.key_of(group))
        if text is None or not member.is_here:
            return None
        try:
            return cls.decode(text)
        except BadRecord:
            return None


def candidate_of(member: Member, group: str, *, draining: frozenset[str] = frozenset()) -> Candidate | None:
    """A member as the planner sees it; None if it does not work for the group.

    One that is suspected, or not ready, keeps what it has.
    """
    worker = WorkerInfo.of(member, group)
    if worker is None:
        return None
    return Candidate(
        node=member.id,
        weight=worker.weight,
        zone=member.zone,
        roles=member.roles,
        resource_groups=worker.resource_groups,
        is_draining=worker.is_draining or member.status is MemberStatus.DRAINING or member.id in draining,
        takes_more=member.status is MemberStatus.UP,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryNote:
    """What stands in an entry besides its owner: how it came to it, and since when.

    `is_handed` says that the owner before, `previous`, left it in good order. `since` is a wall time, for
    display. `generation` and `member` are those of a Kafka group.
    """

    reason: str = ""
    since: float = 0.0
    previous: str = ""
    is_handed: bool = False
    generation: int = 0
    member: str = ""

    def encode(self) -> bytes:
        found = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(found, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes) -> EntryNote:
        """Unknown fields are ignored, and an entry without a note has an empty one. Raises `BadRecord`."""
        if not body:
            return cls()
        found = from_json(body, "an entry's note")
        try:
            return cls(
                reason=str(found.get("reason", "")),
                since=float(found.get("since", 0.0)),
                previous=str(found.get("previous", "")),
                is_handed=bool(found.get("is_handed", False)),
                generation=int(found.get("generation", 0)),
                member=str(found.get("member", "")),
            )
        except (TypeError, ValueError) as error:
            raise BadRecord(f"no note of an entry: {error!r:.200}") from error


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
