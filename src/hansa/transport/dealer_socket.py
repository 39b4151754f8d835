"""DEALER: messages shared out over the connected peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from hansa.errors import AlreadyClosed, PeerAway
from hansa.transport.connection import Connection
from hansa.transport.lane import Lane
from hansa.transport.options import Away
from hansa.transport.outbound_socket import Outbound
from hansa.transport.zmtp_socket import SocketSettings, ZmtpSocket


class Dealer(ZmtpSocket):
    """Sends to its peers in turn, passing over those whose buffers are full; receives from all.

    Under Away.WAIT messages wait while no peer is connected, and so do those that a lost peer had not been
    handed; whichever peer is connected next gets them. Order is kept per peer.
    """

    socket_type = "DEALER"

    def __init__(self, routing_id: bytes = b"", **settings: Unpack[SocketSettings]) -> None:
        super().__init__(routing_id=routing_id, **settings)
        self._ring: list[Lane] = []
        self._turn = 0
        self._waiting: Lane | None = None

    def post(self, parts: Sequence[bytes]) -> bool:
        """Send without waiting; False when a full buffer dropped it (Overflow.DROP).

        Raises PeerAway (nobody is connected, Away.FAIL), Backlogged (a full buffer otherwise), BadArgument.
        """
        return self._next_lane().post(parts if type(parts) is list else list(parts))

    async def send(self, parts: Sequence[bytes]) -> bool:
        """As `post`, but waits for room under Overflow.BLOCK. Cancelling it sends nothing."""
        message = parts if type(parts) is list else list(parts)
        while True:
            try:
                return await self._next_lane().send(message)
            except AlreadyClosed:  # That peer left while we waited for room: take the next.
                self._check_open()

    def _next_lane(self) -> Lane:
        ring = self._ring
        for _ in ring:
            self._turn = (self._turn + 1) % len(ring)
            if ring[self._turn].outbox.has_room():
                return ring[self._turn]
        if ring:
            return ring[self._turn]
        self._check_open()
        if self.options.away is Away.FAIL:
            raise PeerAway(f"nobody is connected to {self.name}")
        return self._waiting_lane()

    def _waiting_lane(self) -> Lane:
        if self._waiting is None:
            self._waiting = Lane(b"", self.options)
        return self._waiting

    def _lanes_all(self) -> list[Lane]:
        return [*self._ring, self._waiting] if self._waiting is not None else list(self._ring)

    def _join(self, connection: Connection, outbound: Outbound | None, former: Lane | None) -> Lane:
        if former is not None:
            return former
        lane = Lane(connection.peer, self.options)
        if self._waiting is not None:
            lane.outbox.absorb(self._waiting.outbox)
            self._close_lane(self._waiting)  # Senders that waited for room there look for it here.
            self._waiting = None
        self._ring.append(lane)
        return lane

    def _leave(self, connection: Connection, lane: Lane, outbound: Outbound | None) -> int:
        self._ring.remove(lane)
        if self.options.away is Away.WAIT and not self._closing:
            heir = self._ring[0] if self._ring else self._waiting_lane()
            heir.outbox.absorb(lane.outbox)
            heir.flush()
        return self._close_lane(lane)
