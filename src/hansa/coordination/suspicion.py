"""When a member is suspected, how that is written in the store, and who looks after whom. Pure.

Heartbeats are renewals of a lease, which leave no trace but the lease's remaining time. A lease is granted
for twice the heartbeat timeout: a member that has used up more than half of it has been silent for the
timeout, by its own measure, whatever timeout the observer was given.

A suspicion hangs on the suspect's own lease, holds for the record on that lease, and ends with it. A
refutation is written over it and not deleted: keys that vanish with a lease vanish from two watches, whose
order nobody knows, and a vanished suspicion must not look like a heartbeat.

Each member looks after the next few in a ring, so that looking after all costs little.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from hansa.coordination.node_info import as_json, from_json
from hansa.errors import BadRecord
from hansa.store.values import LeaseInfo

__all__ = ["Suspicion", "is_overdue", "overdue_in_s", "silence_s", "successors"]

_DIGEST_BYTES = 8


def successors(ids: Iterable[str], me: str, count: int) -> tuple[str, ...]:
    """The next `count` after me, or all others when there are no more. `me` need not be among them.

    The ring is in the order of digests: members of one machine often have names that follow each other, and
    fall together.
    """
    mine = _place(me)
    places = sorted(_place(one) for one in set(ids) if one != me)
    after = [place for place in places if place > mine]
    before = [place for place in places if place < mine]
    return tuple(one for _, one in [*after, *before][:count])


def _place(one: str) -> tuple[bytes, str]:
    return blake2b(one.encode("utf-8"), digest_size=_DIGEST_BYTES).digest(), one


_WHOLE_SECOND_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A member's heartbeats are overdue, or came again: who saw that, and how long it was silent then."""

    incarnation: int
    is_suspect: bool
    by: str
    silence_s: float

    @property
    def reason(self) -> str:
        if self.is_suspect:
            return f"no heartbeat for {self.silence_s:.1f} s, seen by {self.by}"
        return f"a heartbeat {self.silence_s:.1f} s ago, seen by {self.by}"

    def encode(self) -> bytes:
        found = {
            "incarnation": self.incarnation,
            "isSuspect": self.is_suspect,
            "by": self.by,
            "silenceS": round(self.silence_s, 3),
        }
        return as_json(found, "a suspicion")

    @classmethod
    def decode(cls, value: bytes) -> Suspicion:
        """Raises `BadRecord`."""
        found = from_json(value, "a suspicion")
        incarnation, is_suspect, by, silence = (
            found.get(name) for name in ("incarnation", "isSuspect", "by", "silenceS")
        )
        if not isinstance(incarnation, int) or not isinstance(is_suspect, bool):
            raise BadRecord(f"no suspicion: {found!r:.200}")
        if not isinstance(by, str) or not isinstance(silence, int | float):
            raise BadRecord(f"no suspicion: {found!r:.200}")
        return cls(incarnation=incarnation, is_suspect=is_suspect, by=by, silence_s=float(silence))


def silence_s(lease: LeaseInfo) -> float:
    """How long ago the lease was renewed, at least.

    A store that only knows whole seconds cuts the rest off: what it tells may be almost one second too
    little.
    """
    left_s = lease.ttl_s
    if left_s.is_integer() and lease.granted_ttl_s.is_integer():
        left_s += _WHOLE_SECOND_S
    return max(lease.granted_ttl_s - left_s, 0.0)


def is_overdue(lease: LeaseInfo) -> bool:
    """Whether its holder was silent for the heartbeat timeout."""
    return silence_s(lease) >= lease.granted_ttl_s / 2


def overdue_in_s(lease: LeaseInfo) -> float:
    """How long its holder cannot be overdue, at least; nobody needs to ask for it again before."""
    return max(lease.ttl_s - lease.granted_ttl_s / 2, 0.0)
