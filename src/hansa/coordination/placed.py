"""Entries that a leader places on nodes: an entry names its owner, and the owner's node has a claim to it.

An entry names a node, the lease of the node's session and an epoch. The owner's guards compare the entry, and
the lease of the node's record. So a node with 10,000 entries has one lease and one leased key, and loses all
its entries at one moment. A leader places an entry again if its lease is not the lease of the node's record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hansa.coordination.claim import Claim
from hansa.coordination.following import Following, changes
from hansa.coordination.session import Hanging, Session, SessionKeeper
from hansa.errors import BadRecord, Fenced, SessionLost
from hansa.store.values import Compare, KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The value of an entry: who owns it, on which lease, in which epoch. The body is the user's own.

    A leader compares what it has read and its own leadership when it writes, and chooses an epoch that is
    higher than the revision it has read: so epochs grow from owner to owner, also when a store goes back.
    """

    node: str
    lease: int
    epoch: int
    body: bytes = b""

    def encode(self) -> bytes:
        """A line of JSON, then the body."""
        head = {"node": self.node, "lease": self.lease, "epoch": self.epoch}
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def decode(cls, value: bytes) -> Placement:
        """Raises `BadRecord`."""
        head, _, body = value.partition(b"\n")
        with suppress(ValueError, RecursionError):
            match json.loads(head):
                case {"node": str(node), "lease": int(lease), "epoch": int(epoch)}:
                    return cls(node=node, lease=lease, epoch=epoch, body=body)
        raise BadRecord(f"an entry that a leader placed cannot be {value[:40]!r}")


class PlacedClaim(Claim[Fenced]):
    """An entry that a leader has placed on a session of this node. Made by `PlacedClaims`."""

    def __init__(self, session: Session, item: KeyValue, placement: Placement) -> None:
        super().__init__(session, what=f"entry {item.key!r}", error=Fenced)
        self.key = item.key
        self.placement = placement
        self.state_trouble = ""
        """For `PlacedMoves`: why the state that was handed on could not be read."""
        self._revision = item.mod_revision
        self._record = Compare.lease(session.keys.node(placement.node), "=", session.lease)
        self._begin(placement.epoch)

    @property
    def guards(self) -> tuple[Compare, ...]:
        return self._record, Compare.revision(self.key, "=", self._revision)

    def hear(self, item: KeyValue, placement: Placement) -> None:
        """The leader has put the entry again, for the same owner in the same epoch."""
        self.placement, self._revision = placement, item.mod_revision

    def drop(self, reason: str) -> None:
        """The entry was deleted or names another owner: lost, unless it was given back or handed over."""
        if self.is_sealed:
            self.handed_over()
        elif not self.has_left:
            self._lose(reason)
            self.session.loss.forget(self._session_lost)

    def handed_over(self) -> None:
        """For `PlacedMoves`: somebody else owns it now."""
        self._end()

    async def _give_back(self, timeout_s: float) -> None:
        """Stop owning it. Only the leader writes the entry: tell the leader."""
        self._end()


class PlacedClaims(Hanging):
    """What leaders place below a prefix on one node's current session. `on_claim` is given each claim.

    An entry that names another lease does not belong to this session, even if it names this node. When the
    session is lost, all claims are lost at once.
    """

    def __init__(
        self, keeper: SessionKeeper, node: str, prefix: bytes, *, on_claim: Callable[[PlacedClaim], None]
    ) -> None:
        self._keeper = keeper
        self.prefix = prefix
        self._node = node
        self._on_claim = on_claim
        self._following = Following(keeper.store, prefix, environment=keeper.environment)
        self._claims: dict[bytes, PlacedClaim] = {}
        self.bad_records_count = 0

    @property
    def claims(self) -> Mapping[bytes, PlacedClaim]:
        """The claims that are owned now, by the entry's key."""
        return {key: claim for key, claim in self._claims.items() if claim.is_standing}

    def get(self, key: bytes) -> PlacedClaim | None:
        """The claim to an entry that is owned now."""
        claim = self._claims.get(key)
        return claim if claim is not None and claim.is_standing else None

    @property
    def revision(self) -> int:
        """The store's revision up to which the entries were followed."""
        return self._following.revision

    async def run(self) -> None:
        """Follow the entries until cancelled: then nothing is owned any longer. Raises `AlreadyClosed`."""
        self._keeper.hang_on(self)
        try:
            async for news in self._following:
                puts, deletes = changes(news)
                for item in deletes:
                    self._drop(item.key, "its entry was deleted")
                for item in puts:
                    self._hear(item)
        finally:
            self._keeper.let_go(self)
            self._following.close()
            for key in list(self._claims):
                self._drop(key, "nobody follows its entry any more")

    def session_lost(self, lost: SessionLost) -> None:
        """The claims have heard of it by themselves. A leader must place the entries on the next session."""
        self._claims.clear()

    def _hear(self, item: KeyValue) -> None:
        """Take in an entry that was put."""
        session, claim = self._keeper.session, self._claims.get(item.key)
        try:
            placement = Placement.decode(item.value)
        except BadRecord:
            self.bad_records_count += 1
            self._drop(item.key, "its entry cannot be read")
            return
        is_mine = session is not None and (placement.node, placement.lease) == (self._node, session.lease)
        is_alive = claim is not None and (claim.is_standing or claim.is_sealed)
        if claim is not None and is_alive and is_mine and claim.epoch == placement.epoch:
            claim.hear(item, placement)
            return
        self._drop(item.key, f"its entry was placed on {placement.node!r} in epoch {placement.epoch}")
        if session is not None and is_mine:
            claim = self._claims[item.key] = PlacedClaim(session, item, placement)
            self._on_claim(claim)

    def _drop(self, key: bytes, reason: str) -> None:
        if (claim := self._claims.pop(key, None)) is not None:
            claim.drop(reason)
