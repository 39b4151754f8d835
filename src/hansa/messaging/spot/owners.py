"""Who claims which topic, by each peer's own word, and who of them owns it.

Each peer's claims are what it said last, over one connection, in order. Two peers may claim the same topic,
for a while or for as long as they do not hear each other: the lower id owns it for everybody who hears both.
The other claim is kept, because its peer may turn out to be the only one left.
"""

from __future__ import annotations

from collections.abc import Iterable

from hansa.ids import precedence
from hansa.wire.spot import topic_digest


class Owners:
    """The claims of all connected peers. Topics are frames."""

    def __init__(self) -> None:
        self.claims_count = 0
        """Of all peers together."""
        self._owner: dict[bytes, bytes] = {}
        # Only of topics with more than one claim: those that lost, in order.
        self._rivals: dict[bytes, list[bytes]] = {}
        self._claims: dict[bytes, dict[bytes, None]] = {}
        self._digests: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._owner)

    def __contains__(self, topic: object) -> bool:
        return topic in self._owner

    @property
    def all(self) -> dict[bytes, bytes]:
        """Owners by topic. Read it before the next change."""
        return self._owner

    def owner(self, topic: bytes) -> bytes | None:
        return self._owner.get(topic)

    def claims(self, peer: bytes) -> Iterable[bytes]:
        """What this peer claims. Read it before the next change."""
        return self._claims.get(peer, {}).keys()

    def is_claimed_by(self, topic: bytes, peer: bytes) -> bool:
        return topic in self._claims.get(peer, ())

    def count(self, peer: bytes) -> int:
        return len(self._claims.get(peer, ()))

    def digest(self, peer: bytes) -> int:
        """Of all claims of this peer, as the peer can say it of what it owns."""
        return self._digests.get(peer, 0)

    def claim(self, topic: bytes, peer: bytes) -> None:
        """This peer says that the topic is its own; saying it again changes nothing."""
        claims = self._claims.setdefault(peer, {})
        if topic in claims:
            return
        claims[topic] = None
        self.claims_count += 1
        self._digests[peer] = self._digests.get(peer, 0) ^ topic_digest(topic)
        owner = self._owner.get(topic)
        if owner is None:
            self._owner[topic] = peer
            return
        rivals = self._rivals.setdefault(topic, [])
        rivals += (owner, peer)
        rivals.sort(key=precedence)
        self._owner[topic] = rivals.pop(0)

    def disclaim(self, topic: bytes, peer: bytes) -> None:
        """This peer claims the topic no more."""
        claims = self._claims.get(peer)
        if claims is None or topic not in claims:
            return
        del claims[topic]
        self.claims_count -= 1
        self._digests[peer] ^= topic_digest(topic)
        if not claims:
            del self._claims[peer]
            del self._digests[peer]
        rivals = self._rivals.get(topic)
        if self._owner[topic] != peer:
            assert rivals is not None
            rivals.remove(peer)
        elif rivals:
            self._owner[topic] = rivals.pop(0)
        else:
            del self._owner[topic]
        if rivals is not None and not rivals:
            del self._rivals[topic]
