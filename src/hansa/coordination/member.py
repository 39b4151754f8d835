"""The values of membership: a node, what it says of itself, how others see it, and events. Pure.

A node describes itself by a `NodeInfo`, which is in the store as a `NodeRecord`. A process that looks sees it
as a `Member`, and is told of each change by an event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from hansa.errors import BadArgument, BadRecord
from hansa.keys import as_name
from hansa.limits import NODE_RECORD_BYTES_MAX
from hansa.store.values import KeyValue

_PORT_MAX: Final = 65_535


class MemberStatus(StrEnum):
    """The status of a member. A node itself writes JOINING, UP, LEFT and DRAINING; others see the rest."""

    JOINING = "JOINING"
    """It is there, and not yet ready for work."""
    UP = "UP"
    """It is there and ready."""
    SUSPECT = "SUSPECT"
    """Its heartbeats are overdue. They may come again."""
    DOWN = "DOWN"
    """Its lease ended, or a newer stay follows; or it was gone when a view read the store after a gap."""
    LEFT = "LEFT"
    """It said that it leaves, or was deregistered."""
    DRAINING = "DRAINING"
    """It is there, finishes its work, and wants no more."""

    @property
    def is_here(self) -> bool:
        """Whether such a member takes part: neither down nor left."""
        return self not in (MemberStatus.DOWN, MemberStatus.LEFT)


# What a node may say of itself next, for each thing that it said last.
SAID: Final[Mapping[MemberStatus, frozenset[MemberStatus]]] = MappingProxyType(
    {
        MemberStatus.JOINING: frozenset({MemberStatus.UP, MemberStatus.DRAINING}),
        MemberStatus.UP: frozenset({MemberStatus.DRAINING}),
        MemberStatus.DRAINING: frozenset({MemberStatus.UP}),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """A node: who it is, where it listens, what it does. Raises `BadArgument` for unusable values."""

    id: str
    host: str = ""
    port: int = 0
    roles: frozenset[str] = frozenset()
    zone: str = ""
    version: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)
    status: MemberStatus = MemberStatus.UP

    def __post_init__(self) -> None:
        as_name(self.id, "a node")
        if isinstance(self.roles, str):
            raise BadArgument(f"roles is a set of names: write {{{self.roles!r}}}")
        object.__setattr__(self, "roles", frozenset(self.roles))
        object.__setattr__(self, "metadata", MappingProxyType(dict(self.metadata)))
        object.__setattr__(self, "status", MemberStatus(self.status))
        texts: Iterable[object] = (
            *(self.host, self.zone, self.version),
            *self.roles,
            *(part for pair in self.metadata.items() for part in pair),
        )
        for text in texts:
            if not isinstance(text, str):
                raise BadArgument(f"node {self.id}: {text!r} is no text")
        if not isinstance(self.port, int) or isinstance(self.port, bool) or not 0 <= self.port <= _PORT_MAX:
            raise BadArgument(f"node {self.id}: port {self.port!r} is none; give 0 to {_PORT_MAX}")

    @property
    def address(self) -> str:
        """`host:port`, with brackets around an IPv6 host; empty without a host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.host else ""

    def to_object(self) -> dict[str, Any]:
        """The node as a JSON object."""
        return {
            "id": self.id,
            "host": self.host,
            "port": self.port,
            "roles": sorted(self.roles),
            "zone": self.zone,
            "version": self.version,
            "metadata": dict(sorted(self.metadata.items())),
            "status": self.status.value,
        }

    def encode(self) -> bytes:
        """The bytes for the store. Raises `BadArgument` when they are too many."""
        return as_json(self.to_object(), f"node {self.id}")

    @classmethod
    def from_object(cls, found: Mapping[str, Any]) -> NodeInfo:
        """The node in a JSON object. Ignores unknown fields, which newer versions may write.

        Raises `BadRecord`.
        """
        if not isinstance(found.get("roles", []), list) or not isinstance(found.get("metadata", {}), dict):
            raise BadRecord(f"a node's roles are a list and its metadata an object: {found!r:.200}")
        try:
            return cls(**{name: found[name] for name in cls.__slots__ if name in found})
        except (BadArgument, TypeError, ValueError) as error:
            raise BadRecord(f"no record of a node: {error!r:.200}") from error

    @classmethod
    def decode(cls, value: bytes) -> NodeInfo:
        """Raises `BadRecord`."""
        return cls.from_object(from_json(value, "a node"))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """What the store knows of a node.

    `incarnation` is the store's revision when the node joined: a later stay under the same id has a higher
    one, and each session is a stay of its own. `joined_at` is the wall time of joining, for display. `reason`
    says why the status is what it is.
    """

    info: NodeInfo
    incarnation: int = 0
    joined_at: float = 0.0
    reason: str = ""

    def encode(self) -> bytes:
        """Raises `BadArgument` when it is too large."""
        whole = self.info.to_object() | {
            "incarnation": self.incarnation,
            "joinedAt": self.joined_at,
            "reason": self.reason,
        }
        return as_json(whole, f"node {self.info.id}")

    @classmethod
    def decode(cls, value: bytes) -> NodeRecord:
        """Raises `BadRecord`."""
        found = from_json(value, "a node")
        info = NodeInfo.from_object(found)
        if info.status in (MemberStatus.SUSPECT, MemberStatus.DOWN):
            raise BadRecord(f"node {info.id} says of itself that it is {info.status}")
        match found.get("incarnation", 0), found.get("joinedAt", 0.0), found.get("reason", ""):
            case int(incarnation), int(joined_at) | float(joined_at), str(reason) if isfinite(joined_at):
                return cls(info=info, incarnation=incarnation, joined_at=float(joined_at), reason=reason)
        raise BadRecord(f"no record of a node: {found!r:.200}")

    def saying(self, status: MemberStatus, reason: str) -> NodeRecord:
        """The same node with another status."""
        return replace(self, info=replace(self.info, status=status), reason=reason)


def decoded_record(item: KeyValue) -> NodeRecord | None:
    """The record in a key; None if nobody can read it: a node that joins overwrites such a record."""
    try:
        return NodeRecord.decode(item.value)
    except BadRecord:
        return None


def as_json(found: Mapping[str, Any], what: str) -> bytes:
    """Compact JSON in UTF-8. Raises `BadArgument` when it is longer than a record may be."""
    try:
        value = json.dumps(found, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")
    except (UnicodeEncodeError, ValueError) as error:
        raise BadArgument(f"{what} cannot be written as JSON: {error}") from error
    if len(value) > NODE_RECORD_BYTES_MAX:
        raise BadArgument(f"{what} takes {len(value)} bytes; a record has at most {NODE_RECORD_BYTES_MAX}")
    return value


def from_json(value: bytes, what: str) -> dict[str, Any]:
    """The JSON object in a value. Raises `BadRecord` for anything else."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"the record of {what} is no JSON: {value[:100]!r}") from error
    if not isinstance(found, dict):
        raise BadRecord(f"the record of {what} is no JSON object: {value[:100]!r}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node, its status, and since when it has it.

    `info` is what it says of itself; `status` is what is seen of it, and `reason` why. `incarnation` tells
    one stay from the next. `since` is the wall time of the last change of status, for display. `lease` is the
    lease of its record.
    """

    info: NodeInfo
    status: MemberStatus
    incarnation: int
    reason: str = ""
    since: float = 0.0
    lease: int = 0

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def address(self) -> str:
        """`host:port`; empty without a host."""
        return self.info.address

    @property
    def roles(self) -> frozenset[str]:
        return self.info.roles

    @property
    def zone(self) -> str:
        return self.info.zone

    @property
    def version(self) -> str:
        return self.info.version

    @property
    def metadata(self) -> Mapping[str, str]:
        return self.info.metadata

    @property
    def is_here(self) -> bool:
        """Neither down nor left."""
        return self.status.is_here

    def to_object(self) -> dict[str, Any]:
        """The member as a JSON object."""
        return self.info.to_object() | {
            "status": self.status.value,
            "incarnation": self.incarnation,
            "reason": self.reason,
            "since": self.since,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfMember:
    """`member` is the member after the event. `revision` is the store's, at which the change was written."""

    member: Member
    reason: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoined(_OfMember):
    """The member is there: for the first time, or again with a higher incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUpdated(_OfMember):
    """The member says something else of itself: another status (JOINING, UP, DRAINING), other metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSuspected(_OfMember):
    """The member's heartbeats are overdue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRefuted(_OfMember):
    """The member was suspected, and its heartbeats come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDown(_OfMember):
    """The member's lease ended, or a newer stay follows: of a newer process, or its own on another session.

    Also when the member was gone after a view had lost its watch and read the store again: it may have left.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeft(_OfMember):
    """The member said that it leaves, or was deregistered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoined:
    """This process's own record or session was lost, and it has joined again, with a higher incarnation."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expelled:
    """This process is no longer a member, and does not join again: it was replaced, or deregistered."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLagged:
    """This process's event loop was this late. Heartbeats go on meanwhile, up to the heartbeat timeout."""

    lag_s: float
    reason: str


MemberEvent: TypeAlias = (
    MemberJoined | MemberUpdated | MemberSuspected | MemberRefuted | MemberDown | MemberLeft
)
MembersEvent: TypeAlias = MemberEvent | Rejoined | Expelled | LoopLagged


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersStats:
    """Counts since the view was opened, and current values."""

    here_count: int
    """Members that are neither down nor left."""
    up_count: int
    suspect_count: int
    heartbeat_age_s: float
    """How long ago this process's own lease was renewed, and the longest such time so far."""
    heartbeat_age_s_max: float
    store_latency_s: float
    """How long the store took to answer the last look, and the longest so far."""
    store_latency_s_max: float
    suspicions_count: int
    """Members that this process was the first to suspect."""
    false_suspicions_count: int
    """Suspicions, by anybody, that a heartbeat refuted."""
    downs_count: int
    rejoins_count: int
    """How often this process had to join again."""
    store_errors_count: int
    loop_lag_s: float
    loop_lag_s_max: float
    bad_records_count: int
    forgotten_count: int
    """Members that left the roster because they were gone for long, or too many were gone."""
    events_dropped_count: int
    """Events that were dropped because readers of `events` were too slow."""
