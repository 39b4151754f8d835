"""ROUTER: messages to and from peers by their ids. DEALER: messages shared out over the connected peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from hansa.errors import AlreadyClosed, Backlogged, PeerAway, UnknownPeer
from hansa.ids import format_id
from hansa.limits import CONTROL_BYTES_MAX, CONTROL_COUNT_MAX
from hansa.transport.connection import Connection, Lane
from hansa.transport.environment import Away
from hansa.transport.events import CloseReason
from hansa.transport.outbound_socket import Outbound
from hansa.transport.outbox import FULL, QUIET
from hansa.transport.zmtp_socket import SocketSettings, ZmtpSocket


class Router(ZmtpSocket):
    """Addresses each message to a peer's id. An id that is not connected is an error, not a silent loss.

    Under Away.WAIT messages for a peer that this socket dialled wait while it is away, and leave when it
    returns under the same id; if it returns as another, they are reported as lost.
    """

    socket_type = "ROUTER"

    def __init__(self, routing_id: bytes = b"", **settings: Unpack[SocketSettings]) -> None:
        super().__init__(routing_id=routing_id, **settings)
        self.lanes: dict[bytes, Lane] = {}
        """The lanes by peer, for drivers that write to them directly; they must not change the dict."""

    def post(self, peer: bytes, parts: Sequence[bytes]) -> bool:
        """Send without waiting; False when a full buffer dropped it (Overflow.DROP).

        Raises UnknownPeer, PeerAway (Away.FAIL), Backlogged (a full buffer otherwise), BadArgument.
        """
        lane = self.lanes.get(peer)
        if lane is None:
            raise self._missing(peer)
        # Not lane.post: the hot path of sending saves a call (`make bench`, case rr).
        due = lane.outbox.put(parts if type(parts) is list else list(parts))
        return True if due == QUIET else lane.act(due)

    async def send(self, peer: bytes, parts: Sequence[bytes]) -> bool:
        """As `post`, but waits for room under Overflow.BLOCK. Cancelling it sends nothing."""
        lane = self.lanes.get(peer)
        if lane is None:
            raise self._missing(peer)
        try:
            return await lane.send(parts if type(parts) is list else list(parts))
        except AlreadyClosed as error:
            raise self._missing(peer) from error

    def post_control(self, peer: bytes, parts: Sequence[bytes]) -> None:
        """As `post`, also when the buffer is full, within the reserve that limits.py keeps for such messages.

        Raises Backlogged when even that is used up, whatever the policy; UnknownPeer, PeerAway, BadArgument.
        """
        lane = self.lanes.get(peer)
        if lane is None:
            raise self._missing(peer)
        due = lane.outbox.put_beyond(list(parts), CONTROL_COUNT_MAX, CONTROL_BYTES_MAX)
        if due == FULL:
            raise Backlogged(
                f"{lane.outbox.held_count} messages wait for {format_id(peer)}, which reads none"
            )
        lane.act(due)

    def lane(self, peer: bytes) -> Lane:
        """The lane of a connected peer, for callers with a fan-out of their own.

        Raises UnknownPeer, PeerAway.
        """
        lane = self.lanes.get(peer)
        if lane is None:
            raise self._missing(peer)
        return lane

    def expel(
        self, peer: bytes, detail: str, *, reason: CloseReason = CloseReason.PROTOCOL_VIOLATION
    ) -> bool:
        """End the connection of a peer, mostly because its messages make no sense.

        `reason` and `detail` tell the peer and the events why.

        It may connect again. False when it is not connected, or its connection is ending already.
        """
        connection = self._connected.get(peer)
        if connection is None or connection.link.is_closed:
            return False
        connection.refuse(reason, detail)
        return True

    def _missing(self, peer: bytes) -> Exception:
        self._check_open()
        if any(outbound.peer == peer for outbound in self._outbounds):
            return PeerAway(f"peer {format_id(peer)} is away; it is being dialled again")
        return UnknownPeer(f"no peer {format_id(peer)} is connected to {self.name}")

    def _lanes_all(self) -> list[Lane]:
        return list(self.lanes.values())

    def _join(self, connection: Connection, outbound: Outbound | None, former: Lane | None) -> Lane:
        lane = self.lanes.get(connection.peer)
        if lane is None:
            lane = self.lanes[connection.peer] = Lane(connection.peer, self.options)
        if former is not None:
            # Taken over: the outbound that dialled the former connection no longer owns the peer's lane.
            for other in self._outbounds:
                if other is not outbound and other.lane is former:
                    other.lane = None
        if outbound is not None:
            if outbound.lane is not None and outbound.lane is not lane:
                # The peer has come back under another id: the waiting messages were for the one before.
                self._forget_lane(outbound.lane)
                self._give_up(outbound.lane, str(outbound.endpoint))
            outbound.lane = lane
        return lane

    def _leave(self, connection: Connection, lane: Lane, outbound: Outbound | None) -> int:
        dialled_again = outbound is not None and not outbound.is_closed and not self._closing
        if dialled_again and self.options.away is Away.WAIT:
            return 0
        self.lanes.pop(lane.peer, None)
        if outbound is not None:
            outbound.lane = None
        return self._close_lane(lane)

    def _outbound_closed(self, outbound: Outbound) -> None:
        if outbound.lane is not None:
            self._forget_lane(outbound.lane)
        super()._outbound_closed(outbound)

    def _forget_lane(self, lane: Lane) -> None:
        """Forget a lane, unless the peer has another one by now."""
        if self.lanes.get(lane.peer) is lane:
            del self.lanes[lane.peer]


class Dealer(ZmtpSocket):
    """Sends to its peers in turn, skipping those whose buffers are full; receives from all.

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
            except AlreadyClosed:  # That peer left while this waited for room: take the next one.
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
