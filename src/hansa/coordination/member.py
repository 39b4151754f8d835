"""A member of a cluster as one process sees it, what happens to members, and the numbers of that view."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hansa.coordination.node_info import MemberStatus, NodeInfo

__all__ = [
    "Expelled",
    "LoopLagged",
    "Member",
    "MemberDown",
    "MemberEvent",
    "MemberJoined",
    "MemberLeft",
    "MemberRefuted",
    "MemberSuspected",
    "MemberUpdated",
    "MembersEvent",
    "MembersStats",
    "Rejoined",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A node, how it is, and since when.

    `info` is what it says of itself; `status` is what is seen of it, and `reason` why. `incarnation` tells
    one stay from the next. `since` is the wall time of the last change of status, for display. `lease` is
    what its record hangs on.
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
        """As JSON is made of it."""
        return self.info.to_object() | {
            "status": self.status.value,
            "incarnation": self.incarnation,
            "reason": self.reason,
            "since": self.since,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfMember:
    """`member` is as it is after the event. `revision` is the store's, at which it was written."""

    member: Member
    reason: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberJoined(_OfMember):
    """It is there: for the first time, or again with a higher incarnation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUpdated(_OfMember):
    """It says something else of itself: another status (JOINING, UP, DRAINING), other metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSuspected(_OfMember):
    """Its heartbeats are overdue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRefuted(_OfMember):
    """It was suspected, and its heartbeats come again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDown(_OfMember):
    """Its lease ended, or a newer process took its id.

    Also of one that was gone when a view had lost its watch and read the store anew: it may have left.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeft(_OfMember):
    """It went by its own word, or was deregistered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoined:
    """This process's own record or lease was gone, and it has joined again, with a higher incarnation."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expelled:
    """This process is a member no more, and does not join again: it was replaced, or deregistered."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLagged:
    """This process's event loop was so late. Heartbeats go on meanwhile, up to the heartbeat timeout."""

    lag_s: float
    reason: str


MemberEvent: TypeAlias = (
    MemberJoined | MemberUpdated | MemberSuspected | MemberRefuted | MemberDown | MemberLeft
)
MembersEvent: TypeAlias = MemberEvent | Rejoined | Expelled | LoopLagged


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersStats:
    """Counts since the view was opened, and what is so now."""

    here_count: int
    """Members that are neither down nor left."""
    up_count: int
    suspect_count: int
    heartbeat_age_s: float
    """How long ago this process's own lease was renewed, and the longest that this ever was."""
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
    """Members that were gone for long, or too many, and are in the roster no more."""
    events_dropped_count: int
    """Events that readers of `events` were too slow for."""
