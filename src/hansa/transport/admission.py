"""Admission of peers to a socket: which may come in, under which id, and which must go. Pure.

A `Door` bounds the connections of one bound endpoint: all of them, and those that have not shaken hands yet.
`Admission` decides about the routing id of a peer that has: accepted, made up for a peer that gave none,
taken over from an older connection, or refused. `Strikes` counts the bad messages of admitted peers.

Under TLS an id belongs to the node whose certificate first used it, for as long as the socket lives. The name
in the certificate decides, not its bytes, so that a renewed certificate keeps its ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass

from hansa.chance import Chance
from hansa.errors import PeerError
from hansa.ids import anonymous_id, format_id
from hansa.limits import ID_BINDINGS_MAX, STRIKES_MAX
from hansa.transport.events import CloseReason


class Door:
    """Counts the connections of one listener against its bounds."""

    def __init__(self, *, connections_max: int, handshaking_max: int) -> None:
        self._connections_max = connections_max
        self._handshaking_max = handshaking_max
        self._inside_count = 0
        self._handshaking_count = 0

    def enter(self) -> CloseReason | None:
        """Count one more connection, or return why it must stay out."""
        if self._inside_count >= self._connections_max:
            return CloseReason.TOO_MANY_CONNECTIONS
        if self._handshaking_count >= self._handshaking_max:
            return CloseReason.TOO_MANY_HANDSHAKING
        self._inside_count += 1
        self._handshaking_count += 1
        return None

    def admitted(self) -> None:
        self._handshaking_count -= 1

    def left(self, *, was_admitted: bool) -> None:
        self._inside_count -= 1
        if not was_admitted:
            self._handshaking_count -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The peer is `peer` from now on; an older connection under that id must end."""

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NotAdmitted:
    reason: CloseReason
    detail: str


class Admission:
    """Decides about the ids that peers claim at one socket."""

    def __init__(self, *, takeover: bool, chance: Chance) -> None:
        self._takeover = takeover
        self._chance = chance
        self._bound: dict[bytes, str] = {}

    def admit(self, identity: bytes, *, node: str, taken: Container[bytes]) -> Admitted | NotAdmitted:
        """`node` is the name in the peer's certificate, empty without TLS; `taken` the ids connected now."""
        if not identity:
            return Admitted(peer=anonymous_id(self._chance, taken))
        owner = self._bound.get(identity, node)
        if node != owner:
            return NotAdmitted(
                reason=CloseReason.ID_NOT_ALLOWED,
                detail=f"id {format_id(identity)} belongs to {owner}, and {node or 'nobody'} claims it",
            )
        if identity in taken and not self._takeover:
            return NotAdmitted(
                reason=CloseReason.ID_IN_USE, detail=f"id {format_id(identity)} is connected already"
            )
        if node:
            self._bind(identity, node, taken)
        return Admitted(peer=identity)

    def _bind(self, identity: bytes, node: str, taken: Container[bytes]) -> None:
        # Re-inserted, so that the table is in order of last use.
        self._bound.pop(identity, None)
        if len(self._bound) >= ID_BINDINGS_MAX:
            # Connected ids are never forgotten; there are fewer connections than bindings.
            del self._bound[next(i for i in self._bound if i not in taken)]
        self._bound[identity] = node


class Strikes:
    """Bad messages: by reason for people, by peer to know when to end its connection.

    A peer that connects again starts at zero: the price is the connection.
    """

    def __init__(self, *, strikes_max: int = STRIKES_MAX) -> None:
        self.by_reason: Counter[str] = Counter()
        self.expelled_count = 0
        self._strikes_max = strikes_max
        self._by_peer: Counter[bytes] = Counter()

    def strike(self, peer: bytes, error: PeerError) -> bool:
        """Count a bad message; returns whether the peer must be expelled now."""
        self.by_reason[error.reason] += 1
        self._by_peer[peer] += 1
        if self._by_peer[peer] < self._strikes_max:
            return False
        self.expelled_count += 1
        self.forget(peer)
        return True

    def note(self, reason: str) -> None:
        """Count a bad message of a peer that keeps its connection, because the user chose it."""
        self.by_reason[reason] += 1

    def forget(self, peer: bytes) -> None:
        """The peer has left."""
        self._by_peer.pop(peer, None)
