"""What happens to members, as values. All carry the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hansa.coordination.member import Member

__all__ = [
    "Expelled",
    "LoopLagged",
    "MemberDown",
    "MemberEvent",
    "MemberJoined",
    "MemberLeft",
    "MemberRefuted",
    "MemberSuspected",
    "MemberUpdated",
    "MembersEvent",
    "Rejoined",
]


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
