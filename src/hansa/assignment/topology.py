"""The workers of a group, the owner of each partition, and the events that report changes: values. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from hansa.assignment.handoff import Handoff, HandoffHead
from hansa.assignment.partition import Partition
from hansa.assignment.planner import Candidate, may_have
from hansa.coordination.member import Member, MemberStatus, from_json
from hansa.coordination.placed import Placement
from hansa.errors import BadArgument, BadRecord


def handovers_of(group: str) -> str:
    """The `kind` of a group's partitions in the records of their hand-overs."""
    return f"assignment:{group}"


def election_of(group: str) -> str:
    """The election whose winner leads a group."""
    return f"assignment:{group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerInfo:
    """What a member that works for a group says of itself: in its metadata, under `key_of` the group.

    `weight` is how much it can carry, compared with the others. It belongs to the `resource_groups`. A worker
    that `is_draining` is given nothing more, and gives up what it has. `mode` says how the workers share the
    work out: `StoreMode` or `KafkaMode`. Raises `BadArgument`.
    """

    weight: int = 1
    resource_groups: frozenset[str] = frozenset()
    is_draining: bool = False
    mode: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.resource_groups, str):
            raise BadArgument(f"resource_groups is a set of names: write {{{self.resource_groups!r}}}")
        object.__setattr__(self, "resource_groups", frozenset(self.resource_groups))
        if not isinstance(self.weight, int) or isinstance(self.weight, bool) or self.weight < 1:
            raise BadArgument(f"a worker with weight {self.weight!r}: give a number from 1 on")

    @staticmethod
    def key_of(group: str) -> str:
        """The key in a member's metadata that says that the member works for a group."""
        return f"works-for/{group}"

    def encode(self) -> str:
        found = {
            "weight": self.weight,
            "resourceGroups": sorted(self.resource_groups),
            "isDraining": self.is_draining,
            "mode": self.mode,
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
                mode=str(found.get("mode", "")),
            )
        except (BadArgument, TypeError) as error:
            raise BadRecord(f"no worker: {error!r:.200}") from error

    @classmethod
    def of(cls, member: Member, group: str) -> WorkerInfo | None:
        """What a member says; None if it does not work for the group, or if that cannot be read."""
        text = member.metadata.get(cls.key_of(group))
        if text is None or not member.is_here:
            return None
        try:
            return cls.decode(text)
        except BadRecord:
            return None


def candidate_of(member: Member, group: str, *, draining: frozenset[str] = frozenset()) -> Candidate | None:
    """A member as the planner sees it; None if it does not work for the group.

    A member that is suspected, or not ready, keeps what it has and is given nothing more.
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
    """What an entry says besides its owner: how the partition came to that owner, and since when.

    `is_handed` says that the previous owner, `previous`, left it in good order. `since` is a wall time, for
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
    """A partition of a group, and its owner.

    `owner` is a node, empty for nobody. `epoch` grows from owner to owner, `version` with each change of any
    of this. `handoff` is the last saved one: None if there is none, and in answers about many partitions.
    `last_offset`, `processed_at` and `handoff_size` describe it in every answer. `since`, `updated_at` and
    `processed_at` are wall times, for display. `standby` are the other workers that could have the partition.
    """

    group: str
    partition: str
    owner: str = ""
    epoch: int = 0
    generation: int = 0
    resources: tuple[str, ...] = ()
    handoff: Handoff | None = None
    last_offset: int = -1
    processed_at: float = 0.0
    handoff_size: int = 0
    version: int = 0
    since: float = 0.0
    updated_at: float = 0.0
    reason: str = ""
    standby: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfPartition:
    """`node` is the node concerned, in `epoch`; `resources` and `handoff` are what the partition has now.

    `version` is the store's revision of the change if the event was read from the store; otherwise 0.
    """

    group: str
    partition: str
    node: str
    epoch: int
    resources: tuple[str, ...] = ()
    handoff: Handoff | None = None
    reason: str = ""
    version: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAssigned(_OfPartition):
    """The node has the partition from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRevoked(_OfPartition):
    """The node has given the partition up in good order; `handoff` is what it left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionUpdated(_OfPartition):
    """The partition's resources have changed, or its handoff; the owner is the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLost(_OfPartition):
    """The node lost the partition, and could save nothing more: its session ended, or another node has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffFailed(_OfPartition):
    """A handoff could not be saved, or read, after all tries: an alert. `reason` says why."""


TopologyEvent: TypeAlias = (
    PartitionAssigned | PartitionRevoked | PartitionUpdated | PartitionLost | HandoffFailed
)


KINDS: Final[dict[str, type[TopologyEvent]]] = {
    "assigned": PartitionAssigned,
    "revoked": PartitionRevoked,
    "updated": PartitionUpdated,
    "lost": PartitionLost,
    "handoff-failed": HandoffFailed,
}
"""The name of each kind of event, where events are written down."""


def standby_of(partition: Partition, owner: str, candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """The other workers that could have a partition, in the order of their names."""
    return tuple(
        sorted(
            each.node
            for each in candidates
            if each.node != owner and not each.is_draining and may_have(each, partition)
        )
    )


class TopologyBook:
    """Which node has which partition of a group, by the store's records; it says what each change means.

    The methods return events without handoffs: the caller reads those.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.assignments: dict[str, Assignment] = {}
        self._defined: set[str] = set()

    def hear_entry(self, name: str, entry: Placement | None, *, revision: int) -> list[TopologyEvent]:
        """The entry of a partition is this now; None: it was deleted. Raises `BadRecord`."""
        before = self._found(name)
        is_over = entry is None and name not in self._defined
        entry = entry or Placement(node="", lease=0, epoch=before.epoch)
        note = EntryNote.decode(entry.body)
        now = self.assignments[name] = replace(
            before,
            owner=entry.node,
            epoch=entry.epoch,
            generation=note.generation,
            reason=note.reason,
            since=note.since,
            version=max(before.version, revision),
            updated_at=max(before.updated_at, note.since),
        )
        if is_over:
            del self.assignments[name]
        if (before.owner, before.epoch) == (now.owner, now.epoch):
            return []
        events: list[TopologyEvent] = []
        if before.owner:
            gone = PartitionRevoked if note.is_handed else PartitionLost
            events.append(self._event(gone, before, reason=note.reason, version=revision))
        if now.owner:
            events.append(self._event(PartitionAssigned, now, reason=note.reason, version=revision))
        return events

    def hear_definition(
        self, name: str, partition: Partition | None, *, revision: int
    ) -> list[TopologyEvent]:
        """The definition of a partition is this now; None: it was deleted."""
        before = self._found(name)
        if partition is None:
            # The owner is about to lose it, with the resources that it had.
            self._defined.discard(name)
            if not before.owner:
                self.assignments.pop(name, None)
            return []
        self._defined.add(name)
        now = self.assignments[name] = replace(
            before, resources=partition.resources, version=max(before.version, revision)
        )
        if before.resources == now.resources or not now.owner:
            return []
        return [self._event(PartitionUpdated, now, reason="resources", version=revision)]

    def hear_handoff(self, name: str, head: HandoffHead | None, *, revision: int) -> list[TopologyEvent]:
        """The last saved handoff of a partition is this now; None: it was deleted."""
        before = self._found(name)
        if head is None:
            if name in self.assignments:
                self.assignments[name] = replace(before, last_offset=-1, handoff_size=0)
            return []
        now = self.assignments[name] = replace(
            before,
            last_offset=head.last_offset,
            processed_at=head.processed_at,
            handoff_size=head.size,
            version=max(before.version, revision),
            updated_at=max(before.updated_at, head.saved_at),
        )
        if not now.owner or head.epoch != now.epoch:
            return []
        return [self._event(PartitionUpdated, now, reason="handoff", version=revision)]

    def _found(self, name: str) -> Assignment:
        return self.assignments.get(name) or Assignment(group=self.group, partition=name)

    def _event(
        self, kind: type[TopologyEvent], of: Assignment, *, reason: str, version: int
    ) -> TopologyEvent:
        return kind(
            group=self.group,
            partition=of.partition,
            node=of.owner,
            epoch=of.epoch,
            resources=of.resources,
            reason=reason,
            version=version,
        )
