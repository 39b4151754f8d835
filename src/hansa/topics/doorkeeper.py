"""Decides which nodes this one stays connected with: listed nodes that speak as nodes do. Pure.

Theory of operation. The discovery says which nodes are listed. It already waits for registries that restart
or fall silent, so the doorkeeper believes it. But news travels at different speeds, and a working mesh must
not be torn down in a hurry.

- A connected node that is no longer listed is let go when it has said nothing for `PARTING_S`, or after
  `PARTING_S_MAX`. A node that closes has said its last words by then, and one that is listed again within
  that time was never missed.
- A node that dialled this one and is not listed yet has `UNLISTED_S_MAX` to appear; in that time every
  registry has published its whole list. While no registry is heard there is no list to judge by, and the
  node stays.
- A node that was let go because it is not listed is not let in again until it is listed.
- A peer that has said nothing `STRANGER_S` after it connected is no node: a node asks at once. It is let go,
  and tried again after `STRANGER_REST_S`.
- A node that has unregistered is *apart*: it lets go of all others as if they were not listed, and lets no
  node in, until it registers again.

Which side dials, and what nodes say, is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hansa.limits import (
    LET_GO_MAX,
    PARTING_S,
    PARTING_S_MAX,
    STRANGER_REST_S,
    STRANGER_S,
    UNLISTED_S_MAX,
)
from hansa.topics.effects import MeshTally

T = TypeVar("T")

# Read on both sides: in the events of this node, and at the other node as the reason of the refusal.
_UNLISTED = "not listed as a node of this mesh"
_APART = "this node has unregistered"
_STRANGE = "said nothing that a node says"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """End this peer's connection."""

    peer: bytes
    reason: str


@dataclass(slots=True, kw_only=True)
class _Farewell:
    """How often a peer that must go was heard so far, and how long it may stay at most."""

    heard_count: int
    until: float


class Doorkeeper:
    """Decides for one node. `heard_count` returns how often a connected peer was heard; 0: never."""

    def __init__(self, tally: MeshTally, heard_count: Callable[[bytes], int]) -> None:
        self._tally = tally
        self._heard_count = heard_count
        self.is_apart = False
        """Whether this node has unregistered."""
        self._listed: dict[bytes, None] = {}
        self._connected: dict[bytes, None] = {}
        # By peer: when it is due. All of one kind wait equally long, so the first one is due first.
        self._parting: dict[bytes, float] = {}
        self._farewells: dict[bytes, _Farewell] = {}
        self._unlisted: dict[bytes, float] = {}
        self._unproved: dict[bytes, float] = {}
        # Peers that were let go: until they are listed, or until they have rested. Of too many the oldest is
        # forgotten, and then let in like a new one.
        self._unwelcome: dict[bytes, None] = {}
        self._resting: dict[bytes, float] = {}

    def welcomes(self, peer: bytes) -> bool:
        """Whether the peer may connect, and be dialled."""
        return not self.is_apart and peer not in self._unwelcome and peer not in self._resting

    def turn_away(self, peer: bytes) -> str:
        """Why a peer that has connected is not welcome."""
        if peer in self._resting:
            self._tally.strangers_count += 1
            return _STRANGE
        self._tally.unlisted_count += 1
        return _APART if self.is_apart else _UNLISTED

    # -- what the discovery says

    def list_peer(self, peer: bytes) -> None:
        """A node that registers again gets another chance, whatever it was let go for."""
        self._listed[peer] = None
        for waiting in (self._unlisted, self._unwelcome, self._resting):
            waiting.pop(peer, None)
        if not self.is_apart:
            self._parting.pop(peer, None)
            self._farewells.pop(peer, None)

    def unlist_peer(self, peer: bytes, *, now: float) -> None:
        self._listed.pop(peer, None)
        self._resting.pop(peer, None)
        if peer in self._connected:
            self._see_off(peer, now)

    # -- what this node does

    def part(self, *, now: float) -> None:
        """This node has unregistered."""
        self.is_apart = True
        for peer in self._connected:
            self._see_off(peer, now)

    def rejoin(self) -> None:
        """This node is registered again."""
        self.is_apart = False
        for peer in [peer for peer in self._parting if peer in self._listed]:
            del self._parting[peer], self._farewells[peer]

    # -- connections

    def connected(self, peer: bytes, *, now: float) -> None:
        """A welcome peer has connected."""
        self._connected[peer] = None
        self._unproved[peer] = now + STRANGER_S
        if peer not in self._listed:
            self._unlisted[peer] = now + UNLISTED_S_MAX

    def disconnected(self, peer: bytes) -> None:
        for waiting in (self._connected, self._parting, self._farewells, self._unlisted, self._unproved):
            waiting.pop(peer, None)

    # -- time

    def tick(self, *, now: float, hears_registry: bool) -> list[LetGo]:
        """The peers to let go now."""
        gone = []
        for peer in _due(self._parting, now):
            farewell, count = self._farewells[peer], self._heard_count(peer)
            if farewell.heard_count < count and farewell.until > now:
                farewell.heard_count = count
                self._parting[peer] = now + PARTING_S
                continue
            gone.append(self._refuse(peer, _APART if self.is_apart else _UNLISTED))
        for peer in _due(self._unlisted, now):
            if hears_registry:
                gone.append(self._refuse(peer, _UNLISTED))
            else:
                self._unlisted[peer] = now + UNLISTED_S_MAX
        for peer in _due(self._unproved, now):
            if peer in self._connected and not self._heard_count(peer):
                self._tally.strangers_count += 1
                _remember(self._resting, peer, now + STRANGER_REST_S)
                gone.append(LetGo(peer=peer, reason=_STRANGE))
        return gone

    def rested(self, *, now: float) -> list[bytes]:
        """Strangers that are welcome again from now on."""
        return _due(self._resting, now)

    def deadline(self) -> float | None:
        kinds = (self._parting, self._unlisted, self._unproved, self._resting)
        return min([next(iter(waiting.values())) for waiting in kinds if waiting], default=None)

    def _see_off(self, peer: bytes, now: float) -> None:
        if peer not in self._parting:
            self._parting[peer] = now + PARTING_S
            self._farewells[peer] = _Farewell(heard_count=self._heard_count(peer), until=now + PARTING_S_MAX)

    def _refuse(self, peer: bytes, reason: str) -> LetGo:
        self._tally.unlisted_count += 1
        if not self.is_apart:
            _remember(self._unwelcome, peer, None)
        self.disconnected(peer)
        return LetGo(peer=peer, reason=reason)


def _due(waiting: dict[bytes, float], now: float) -> list[bytes]:
    """Take out the peers whose time has come."""
    due = []
    for peer, at in waiting.items():
        if at > now:
            break
        due.append(peer)
    for peer in due:
        del waiting[peer]
    return due


def _remember(peers: dict[bytes, T], peer: bytes, value: T) -> None:
    peers[peer] = value
    if len(peers) > LET_GO_MAX:
        del peers[next(iter(peers))]
