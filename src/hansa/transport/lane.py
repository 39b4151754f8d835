"""The way to one peer, whether it is connected or not: a bounded buffer, and the writes that empty it.

What is posted in one turn of the loop leaves in one write at its end; a burst of more than
`WRITE_TURN_BYTES` leaves at once, because a larger joined buffer only costs page faults. While the
connection cannot take more, or there is none, the lane is stalled and messages wait in its outbox.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hansa.errors import AlreadyClosed, Backlogged
from hansa.ids import format_id
from hansa.runtime.mailboxes import Waiters
from hansa.transport.options import Overflow, SocketOptions
from hansa.transport.outbox import BURST, FULL, QUIET, ROUSE, Outbox

if TYPE_CHECKING:
    from hansa.transport.connection import Connection


class Lane:
    """Outgoing messages of one peer. Order is kept from `post` and `send` to the wire."""

    def __init__(self, peer: bytes, options: SocketOptions) -> None:
        self.peer = peer
        self.outbox = Outbox(
            bytes_max=options.outgoing_bytes_max,
            count_max=options.outgoing_count_max,
            burst_count=options.burst_count,
        )
        self.connection: Connection | None = None
        self._overflow = options.overflow
        self._loop = asyncio.get_running_loop()
        self._senders = Waiters()
        self._drainers = Waiters()
        self._breathe = False
        self._closed = False

    def post(self, parts: list[bytes]) -> bool:
        """Take a message without waiting; False when it was dropped. Raises Backlogged, BadArgument."""
        due = self.outbox.put(parts)
        return True if due == QUIET else self.act(due)

    def act(self, due: int) -> bool:
        """Do what the outbox asked for; whether it took the message."""
        if due == ROUSE:
            self._loop.call_soon(self.flush)
        elif due == BURST:
            self._breathe = True
            self.flush()
        elif due == FULL:
            if self._overflow is not Overflow.DROP:
                raise Backlogged(
                    f"{self.outbox.held_count} messages ({self.outbox.held_bytes} bytes) already wait for "
                    f"{format_id(self.peer) if self.peer else 'a peer'}; use send() to wait, or raise "
                    "SocketOptions.outgoing_count_max and outgoing_bytes_max"
                )
            self.outbox.dropped_count += 1
            return False
        return True

    async def send(self, parts: list[bytes]) -> bool:
        """As `post`, but under Overflow.BLOCK it waits for room. Cancelling it takes nothing.

        Raises AlreadyClosed when the lane is closed meanwhile, with nothing taken.
        """
        if self._breathe or self.outbox.stalled:
            # A turn's worth has just been written, or the peer is slow: let the others run. This comes before
            # the message is taken, because a task can be cancelled here.
            self._breathe = False
            await asyncio.sleep(0)
        if self._overflow is Overflow.BLOCK:
            await self._room()
        self._check_open()
        return self.post(parts)

    async def drained(self) -> None:
        """Wait until nothing is held here any more."""
        while self.outbox.held_count:
            self._check_open()
            await self._drainers.wait()

    def start(self, connection: Connection) -> None:
        """From now on messages leave through this connection."""
        self.connection = connection
        self.resume()

    def stop(self) -> None:
        """The connection is gone; messages wait."""
        self.connection = None
        self.outbox.stalled = True

    def pause(self) -> None:
        self.outbox.stalled = True

    def resume(self) -> None:
        self.outbox.stalled = False
        self.flush()

    def close(self) -> int:
        """Give up on what waits; how many messages that were. Senders that wait get AlreadyClosed."""
        self._closed = True
        self.stop()
        lost_count = self.outbox.clear()
        self._senders.wake_all()
        self._drainers.wake_all()
        return lost_count

    def flush(self) -> None:
        """Write all that the connection takes now."""
        outbox = self.outbox
        outbox.due = False
        connection = self.connection
        # What a broken connection cannot take stays here, and is known to be unsent.
        while not outbox.stalled and connection is not None and connection.is_writable:
            batch = outbox.take()
            if batch is None:
                break
            connection.write_batch(batch)
        if self._senders:
            self._wake_next()
        if self._drainers and not outbox.held_count:
            self._drainers.wake_all()

    async def _room(self) -> None:
        """Wait for room, behind those who wait already. Each sender that goes on wakes the next."""
        waited = False
        while not self.outbox.has_room() or (self._senders and not waited):
            self._check_open()
            waited = True
            await self._senders.wait()
        if waited and self._senders:
            self._loop.call_soon(self._wake_next)

    def _wake_next(self) -> None:
        if self.outbox.has_room():
            self._senders.wake(1)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed(
                f"the socket no longer sends to {format_id(self.peer) if self.peer else 'anyone'}"
            )
