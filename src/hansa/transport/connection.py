"""The way to one peer, and the streams that it leads through: messages out, bytes in, one timer.

A `Lane` is the way, whether the peer is connected or not: a bounded buffer, and the writes that empty it.
What is posted in one turn of the loop leaves in one write at its end; a burst of more than `WRITE_TURN_BYTES`
leaves at once, because a larger joined buffer only costs page faults. While the connection cannot take more,
or there is none, the lane is stalled and messages wait in its outbox.

A `Connection` drives one link over an asyncio transport: it passes the incoming bytes to the link, performs
the link's effects in order, and writes the batches of its lane.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, cast

from hansa.errors import AlreadyClosed, Backlogged
from hansa.ids import format_id
from hansa.limits import CLOSE_S_MAX, WRITE_TURN_BYTES
from hansa.runtime.mailboxes import Waiters
from hansa.transport.environment import Overflow, SocketOptions
from hansa.transport.events import CloseReason
from hansa.transport.link import (
    Established,
    Link,
    LinkEnded,
    LinkState,
    SubscriptionAdded,
    SubscriptionCancelled,
    WriteBytes,
)
from hansa.transport.network import ChunkReader
from hansa.transport.outbox import BURST, FULL, QUIET, ROUSE, Batch, Outbox


class Lane:
    """The outgoing messages of one peer. Order is kept from `post` and `send` to the wire."""

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
        """Do what the outbox asked for; returns whether it took the message."""
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
            self.outbox.drop()
            return False
        return True

    async def send(self, parts: list[bytes]) -> bool:
        """As `post`, but under Overflow.BLOCK it waits for room. Cancelling it takes nothing.

        Raises AlreadyClosed when the lane is closed meanwhile, with nothing taken.
        """
        if self.is_pressed:
            await self.ready()
        return self.post(parts)

    @property
    def is_pressed(self) -> bool:
        """Whether a sender that can wait has something to wait for."""
        outbox = self.outbox
        return self._breathe or outbox.stalled or not outbox.has_room() or bool(self._senders)

    async def ready(self) -> None:
        """Wait as `send` does before it takes a message, for callers that must decide only then.

        Raises AlreadyClosed.
        """
        if self._breathe or self.outbox.stalled:
            # A turn's worth has just been written, or the peer is slow: let other tasks run. This comes
            # before the message is taken, because a task can be cancelled here.
            self._breathe = False
            await asyncio.sleep(0)
        if self._overflow is Overflow.BLOCK:
            await self._room()
        self._check_open()

    async def drained(self) -> None:
        """Wait until no message is held here."""
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
        self.outbox.stall()

    def pause(self) -> None:
        self.outbox.stall()

    def resume(self) -> None:
        self.outbox.flow()
        self.flush()

    def close(self) -> int:
        """Give up the waiting messages; returns how many there were. Waiting senders get AlreadyClosed."""
        self._closed = True
        self.stop()
        lost_count = self.outbox.clear()
        self._senders.wake_all()
        self._drainers.wake_all()
        return lost_count

    def flush(self) -> None:
        """Write all that the connection takes now."""
        outbox = self.outbox
        outbox.begin_flush()
        connection = self.connection
        # Messages that a broken connection cannot take stay here, and are known to be unsent.
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
        """Wait for room, behind earlier waiters. Each sender that goes on wakes the next."""
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


class ConnectionOwner(Protocol):
    """The socket, as its connections see it."""

    def connection_established(self, connection: Connection, identity: bytes) -> None: ...
    def connection_received(self, connection: Connection, messages: list[list[bytes]]) -> None: ...
    def connection_subscribed(self, connection: Connection, prefix: bytes, *, wanted: bool) -> None: ...
    def connection_ended(self, connection: Connection) -> None: ...


class Turnstile(ChunkReader):
    """The protocol of a connection over a limit: it is ended at once."""

    def __init__(self, on_refused: Callable[[str], None]) -> None:
        super().__init__()
        self._on_refused = on_refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        self._on_refused(_address(stream.get_extra_info("peername")))
        stream.abort()

    def turn_away(self, accepted: socket.socket) -> None:
        """End a connection that no transport was made for."""
        try:
            self._on_refused(_address(accepted.getpeername()))
        except OSError:
            self._on_refused("")  # It has left already.
        finally:
            accepted.close()


class Connection(ChunkReader):
    """One stream to one peer. Its owner is told of its end exactly once, after `connection_lost`."""

    def __init__(
        self,
        owner: ConnectionOwner,
        *,
        socket_type: str,
        identity: bytes,
        options: SocketOptions,
        outbound: bool,
    ) -> None:
        super().__init__()
        self.outbound = outbound
        self.peer = b""
        self.address = ""
        self.node = ""
        self.reason = CloseReason.CONNECTION_LOST
        self.detail = ""
        self.lane: Lane | None = None
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.link = Link(
            socket_type=socket_type,
            identity=identity,
            accepting=not outbound,
            options=options,
            now=self._loop.time(),
        )
        self._transport: asyncio.Transport | None = None
        self._linger_s = max(options.linger, CLOSE_S_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._reading_paused = False
        self._writing_paused = False
        self._held: dict[str, bytes] = {}
        self._confirmers = Waiters()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @property
    def admitted(self) -> bool:
        """Whether the owner has admitted this peer, now or earlier."""
        return self.lane is not None

    @property
    def is_ready(self) -> bool:
        return self.lane is not None and self.link.state is LinkState.READY

    @property
    def is_made(self) -> bool:
        return self._transport is not None

    # -- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not isinstance: uvloop's transports are no subclasses of asyncio's.
        stream = self._transport = cast(asyncio.Transport, transport)
        if self.link.is_closed:  # It was given up before it was made.
            stream.abort()
            return
        stream.set_write_buffer_limits(high=WRITE_TURN_BYTES)
        # A client of a Unix socket has no name; the path that it connected to says more than nothing.
        self.address = _address(stream.get_extra_info("peername") or stream.get_extra_info("sockname"))
        self.node = _node(stream)
        if self.outbound and _is_itself(stream):
            # Nobody listens there, and the kernel happened to dial from that very port. Keeping this open
            # would keep the port from the program that is to listen there.
            self._ending(
                CloseReason.CONNECT_FAILED, "the connection came back to itself: nobody listens there"
            )
            stream.abort()
            return
        self._perform()
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        # The hot path of receiving (`make bench`, rr and pub): one parse, one call to the owner per chunk.
        link = self.link
        link.heard = True
        messages = link.receive(data)
        if messages:
            self._owner.connection_received(self, messages)
        if link.parser.stopped or link.effects:
            self._proceed()

    def eof_received(self) -> None:
        self._ending(CloseReason.CLOSED_BY_PEER, "")

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending(CloseReason.CONNECTION_LOST, str(exc or "the connection ended"))
        self.link.end(self.reason, self.detail)
        self.link.effects.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._confirmers.wake_all()
        if not self.closed.done():
            self.closed.set_result(None)
            self._owner.connection_ended(self)

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._pause_lane()

    def resume_writing(self) -> None:
        self._writing_paused = False
        for kind in list(self._held):
            self.write(self._held.pop(kind))
        if self.lane is not None and self.lane.connection is self and self.link.state is LinkState.READY:
            self.lane.resume()

    # -- what the owner asks for

    def write_batch(self, batch: Batch) -> None:
        """Hand whole messages to the stream; from here on they are in doubt until confirmed."""
        self.link.handed(batch.count)
        for buffer in batch.buffers():
            self.write(buffer)

    @property
    def is_writable(self) -> bool:
        """False once the stream is closing: a broken one is known a turn before `connection_lost` comes."""
        return self._transport is not None and not self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        self._reading_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._reading_paused = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def welcome(self) -> None:
        """Tell the peer that it is admitted, before anything else is written."""
        self.link.welcome()
        self._perform()

    def refuse(self, reason: CloseReason, detail: str) -> None:
        """Tell the peer why, and close."""
        self.link.refuse(reason, detail)
        self._perform()

    def close(self, reason: CloseReason, detail: str = "") -> None:
        """Write what was handed over, then close."""
        self._ending(reason, detail)
        self.link.end(reason, detail)
        self._perform()

    def abort(self) -> None:
        """Close now, whatever is left."""
        if self._transport is not None:
            self._transport.abort()

    def ask(self) -> None:
        """Ask the peer to confirm all that was handed over."""
        if self._can_confirm():
            self.link.ping(self._loop.time())
            self._perform()

    async def confirmed(self) -> None:
        """After `ask`: wait until the peer has read all of it, or the connection is gone."""
        while self._can_confirm():
            await self._confirmers.wait()

    def _can_confirm(self) -> bool:
        link = self.link
        return link.in_doubt_count > 0 and link.knows_commands and link.state is LinkState.READY

    # -- the machine's effects

    def _proceed(self) -> None:
        link = self.link
        self._perform()
        while link.parser.stopped and link.state is not LinkState.CLOSED:
            messages = link.proceed(self._loop.time())
            self._perform()
            if messages and self.is_ready:
                self._owner.connection_received(self, messages)
        self._set_timer()
        if not link.in_doubt_count:
            self._confirmers.wake_all()

    def _perform(self) -> None:
        """Perform the link's effects in order, including those that performing them adds."""
        effects = self.link.effects
        while effects:
            match effects.pop(0):
                case WriteBytes(data=data, kind=kind):
                    if kind and self._writing_paused:
                        self._held[kind] = data
                    else:
                        self.write(data)
                case Established(identity=identity):
                    self._owner.connection_established(self, identity)
                    self._set_timer()
                case SubscriptionAdded(prefix=prefix):
                    self._owner.connection_subscribed(self, prefix, wanted=True)
                case SubscriptionCancelled(prefix=prefix):
                    self._owner.connection_subscribed(self, prefix, wanted=False)
                case LinkEnded(reason=reason, detail=detail):
                    self._ending(reason, detail)
                    self._pause_lane()
                    self._close_transport()

    def _close_transport(self) -> None:
        """Let the peer read what was written, but not for ever."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.close()
            self._timer = self._loop.call_later(self._linger_s, self._transport.abort)

    def _pause_lane(self) -> None:
        # A lane that another connection has taken over no longer belongs to this one.
        if self.lane is not None and self.lane.connection is self:
            self.lane.pause()

    def _ending(self, reason: CloseReason, detail: str) -> None:
        """Note the first reason, which is the true one; later ones are its consequences."""
        if self.reason is CloseReason.CONNECTION_LOST and not self.detail:
            self.reason, self.detail = reason, detail

    def _set_timer(self) -> None:
        if self.link.is_closed:
            return  # The timer that bounds closing runs.
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.link.deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        if self._reading_paused:
            self.link.heard = True  # It is this side that does not listen; that says nothing about the peer.
        self.link.tick(self._loop.time())
        self._perform()
        self._set_timer()


def _address(peername: object) -> str:
    if isinstance(peername, tuple) and len(peername) >= 2:
        host = f"[{peername[0]}]" if ":" in str(peername[0]) else peername[0]
        return f"{host}:{peername[1]}"
    return peername.decode("utf-8", "replace") if isinstance(peername, bytes) else str(peername or "")


def _node(transport: asyncio.Transport) -> str:
    """The peer's name in its certificate: its subject and alternative names. Empty without TLS."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return ""
    names = sorted(f"{kind}:{value}" for kind, value in certificate.get("subjectAltName", ()))
    subject = [f"{key}={value}" for rdn in certificate.get("subject", ()) for key, value in rdn]
    return ",".join(subject + names) or "an unnamed certificate"


def _is_itself(stream: asyncio.Transport) -> bool:
    """Whether both ends of a TCP connection are the same one."""
    peer = stream.get_extra_info("peername")
    return isinstance(peer, tuple) and peer == stream.get_extra_info("sockname")
