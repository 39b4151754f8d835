"""Counts the bad messages of each peer, and says when its connection is to be ended. Pure."""

from __future__ import annotations

from collections import Counter

from hansa.errors import PeerError
from hansa.limits import STRIKES_MAX


class Strikes:
    """Bad messages: by reason for people, by peer to know when to end its connection.

    A peer that connects again starts anew: what it costs is the connection.
    """

    def __init__(self, *, strikes_max: int = STRIKES_MAX) -> None:
        self.by_reason: Counter[str] = Counter()
        self.expelled_count = 0
        self._strikes_max = strikes_max
        self._by_peer: Counter[bytes] = Counter()

    def strike(self, peer: bytes, error: PeerError) -> bool:
        """One more; whether the peer is to be expelled now."""
        self.by_reason[error.reason] += 1
        self._by_peer[peer] += 1
        if self._by_peer[peer] < self._strikes_max:
            return False
        self.expelled_count += 1
        self.forget(peer)
        return True

    def forget(self, peer: bytes) -> None:
        """The peer has left."""
        self._by_peer.pop(peer, None)
