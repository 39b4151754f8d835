"""PUB: every message to all who subscribed to a prefix of its first part."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from hansa.limits import WRITE_JOIN_BYTES, WRITE_TURN_BYTES
from hansa.transport.events import CloseReason
from hansa.transport.outbound_socket import Outbound
from hansa.transport.over_asyncio import Connection
from hansa.transport.over_lane import Lane
from hansa.transport.subscriptions import Subscriptions
from hansa.transport.zmtp_socket import SocketSettings, ZmtpSocket
from hansa.wire.frames import encode


class Pub(ZmtpSocket):
    """Publishes. A subscriber that does not keep up loses messages, counted; the others do not notice.

    Overflow and Away do not apply: a publisher neither waits for a subscriber nor keeps for an absent one.
    """

    socket_type = "PUB"

    def __init__(self, **settings: Unpack[SocketSettings]) -> None:
        super().__init__(**settings)
        self._subscriptions: Subscriptions[Lane] = Subscriptions()
        self._lanes: dict[Lane, None] = {}
        self._turn_bytes = 0

    def post(self, parts: Sequence[bytes]) -> int:
        """Publish without waiting; to how many subscribers it is on its way. Raises BadArgument."""
        self._check_open()
        pieces: list[bytes] = []
        size_bytes = encode(parts if type(parts) is list else list(parts), pieces)
        if size_bytes < WRITE_JOIN_BYTES:
            pieces = [b"".join(pieces)]  # Once for all subscribers.
        count = 0
        for lane in self._subscriptions.matching(parts[0]):
            if lane.post_encoded(pieces, size_bytes):
                count += 1
        self._turn_bytes += size_bytes
        return count

    async def send(self, parts: Sequence[bytes]) -> int:
        """As `post`, and now and then lets the loop run, so that a busy publisher does not drop by itself."""
        count = self.post(parts)
        if self._turn_bytes >= WRITE_TURN_BYTES:
            self._turn_bytes = 0
            await asyncio.sleep(0)
        return count

    def connection_subscribed(self, connection: Connection, prefix: bytes, *, wanted: bool) -> None:
        lane = connection.lane
        if lane is None:
            return
        if not wanted:
            self._subscriptions.remove(lane, prefix)
        elif self._subscriptions.count(lane) >= self.options.subscriptions_max:
            connection.refuse(
                CloseReason.TOO_MANY_SUBSCRIPTIONS, f"{self.options.subscriptions_max} is the most per peer"
            )
        else:
            self._subscriptions.add(lane, prefix)

    def connection_received(self, connection: Connection, messages: list[list[bytes]]) -> None:
        """A 3.0 peer subscribes with a message: 1 or 0, then the prefix."""
        for parts in messages:
            if len(parts) == 1 and parts[0][:1] in (b"\x00", b"\x01"):
                self.connection_subscribed(connection, parts[0][1:], wanted=parts[0][0] == 1)
            else:
                self._tally.ignored_count += 1

    def _lanes_all(self) -> list[Lane]:
        return list(self._lanes)

    def _join(self, connection: Connection, outbound: Outbound | None) -> Lane:
        lane = Lane(connection.peer, self.options)
        self._lanes[lane] = None
        return lane

    def _leave(self, connection: Connection, lane: Lane, outbound: Outbound | None) -> int:
        self._subscriptions.drop(lane)
        del self._lanes[lane]
        return self._close_lane(lane)
