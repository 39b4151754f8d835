"""What all sockets share: endpoints, admission of peers, events, the inbox, and a clean end.

The four kinds (in `router_dealer` and `pub_sub`) are subclasses of `ZmtpSocket`. `Message` is what they
receive, `SocketStats` what they have counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar, NamedTuple, Self, TypedDict, Unpack

from hansa.endpoint import Endpoint
from hansa.errors import AlreadyClosed, BadArgument, BadEndpoint
from hansa.limits import CLOSE_S_MAX, ROUTING_ID_BYTES_MAX
from hansa.runtime.backoff import Backoff
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import Mailbox
from hansa.runtime.tasks import Closing, TaskScope
from hansa.transport.admission import Admission, Door, NotAdmitted
from hansa.transport.connection import Connection, Lane, Turnstile
from hansa.transport.environment import Environment
from hansa.transport.events import (
    CloseReason,
    Connected,
    Disconnected,
    HandshakeFailed,
    MessagesLost,
    SocketEvent,
)
from hansa.transport.network import Listener, StreamProtocol
from hansa.transport.outbound_socket import Outbound
from hansa.transport.system_network import SystemNetwork

OnMessages = Callable[[bytes, list[list[bytes]]], None]
OnEvent = Callable[[SocketEvent], None]


class Message(NamedTuple):
    """The parts that a peer sent together, and the peer's id. A tuple, because one is made per message.

    This is ZMTP's message. The topic command of the same name (`wire.topics`) travels inside one.
    """

    peer: bytes
    parts: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketStats:
    """A snapshot. `ended` counts connections by the reason of their end, refused ones included.

    `sent_count` messages were accepted for sending; of these `unsent_count` were lost in our buffer and
    `in_doubt_count` were handed to a connection that broke before they were confirmed. `dropped_count` were
    not accepted because a buffer was full. `ignored_count` arrived where no message may (at a PUB), or after
    its subscription was cancelled (at a SUB).
    """

    sent_count: int
    received_count: int
    dropped_count: int
    unsent_count: int
    in_doubt_count: int
    ignored_count: int
    connections_count: int
    handshaking_count: int
    inbox_count: int
    events_dropped_count: int
    ended: dict[str, int]


@dataclass(slots=True, kw_only=True)
class SocketTally:
    """Counts of ended connections and closed lanes, which can no longer be asked."""

    sent_count: int = 0
    received_count: int = 0
    dropped_count: int = 0
    unsent_count: int = 0
    in_doubt_count: int = 0
    ignored_count: int = 0
    events_dropped_count: int = 0
    ended: Counter[str] = field(default_factory=Counter)


class SocketSettings(TypedDict, total=False):
    """The arguments that every socket takes."""

    environment: Environment | None
    on_messages: OnMessages | None
    on_event: OnEvent | None
    name: str


class ZmtpSocket:
    """One socket of any type. It belongs to the event loop in which it was entered.

    `on_messages(peer, messages)` is called with all messages of one chunk instead of filling the inbox; it
    must not block. `on_event` likewise. Leaving the `async with` block ends every connection, task and timer.
    """

    socket_type: ClassVar[str]
    peers_have_names: ClassVar[bool] = True

    def __init__(self, routing_id: bytes = b"", **settings: Unpack[SocketSettings]) -> None:
        if unknown := sorted(settings.keys() - SocketSettings.__annotations__.keys()):
            raise TypeError(f"{type(self).__name__}() got unexpected keyword arguments {unknown}")
        if len(routing_id) > ROUTING_ID_BYTES_MAX:
            raise BadArgument(f"a routing id has at most {ROUTING_ID_BYTES_MAX} bytes, not {len(routing_id)}")
        self.routing_id = routing_id
        self.name = settings.get("name") or self.socket_type.lower()
        environment = settings.get("environment") or Environment()
        self.options = environment.options
        self._network = environment.network
        self._chance = environment.chance
        self._admission = Admission(takeover=self.options.takeover, chance=self._chance)
        self._on_messages = settings.get("on_messages")
        self._on_event = settings.get("on_event")
        self._inbox: Mailbox[Message] = Mailbox(f"the inbox of {self.name}")
        self._inbox_bytes = 0
        self._not_read: dict[Connection, None] = {}
        self._events: Mailbox[SocketEvent] = Mailbox(f"the events of {self.name}")
        self._listeners: dict[Endpoint, Listener] = {}
        self._doors: dict[Connection, Door] = {}
        self._outbounds: dict[Outbound, None] = {}
        self._dialled: dict[Connection, Outbound] = {}
        self._connections: dict[Connection, None] = {}
        self._connected: dict[bytes, Connection] = {}
        self._tally = SocketTally()
        self._tasks = TaskScope(self.name, self._task_failed)
        self._closing = False
        self._one_close = Closing()
        self._home: Home | None = None

    # -- life

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def bind(self, endpoint: str | Endpoint) -> Endpoint:
        """Listen at an endpoint; returns it with its real port. Raises BadEndpoint, AddressInUse."""
        self._check_open()
        where = Endpoint.parse(endpoint) if isinstance(endpoint, str) else endpoint
        door = Door(
            connections_max=self.options.connections_max, handshaking_max=self.options.handshaking_max
        )
        listener = await self._network.listen(where, lambda: self._accept(door))
        self._listeners[listener.endpoint] = listener
        return listener.endpoint

    async def unbind(self, endpoint: str | Endpoint) -> None:
        """Stop listening there. Peers that came in stay connected."""
        where = Endpoint.parse(endpoint) if isinstance(endpoint, str) else endpoint
        listener = self._listeners.pop(where, None)
        if listener is None:
            raise BadArgument(f"{self.name} is not bound to {where}")
        await listener.close()

    def connect(self, endpoint: str | Endpoint) -> Outbound:
        """Keep a connection to this endpoint from now on. Returns at once; `await outbound.up()` to wait."""
        self._check_open()
        where = Endpoint.parse(endpoint) if isinstance(endpoint, str) else endpoint
        if not where.is_dialable:
            raise BadEndpoint(f"{where} says where to listen, not where to dial: give a host and a port")
        if isinstance(self._network, SystemNetwork):
            self._network.check(where)
        options = self.options
        outbound = Outbound(
            where,
            network=self._network,
            backoff=Backoff(
                s_min=options.reconnect_s_min,
                s_max=options.reconnect_s_max,
                jitter=options.reconnect_jitter,
                chance=self._chance,
            ),
            dial_s_max=options.handshake_s_max,
            linger_s=options.linger,
            make_connection=self._dial,
            on_unreachable=self._unreachable,
            on_closed=self._outbound_closed,
        )
        self._outbounds[outbound] = None
        outbound.started(self._tasks.spawn(outbound.keep_up(), f"connection to {where}"))
        return outbound

    async def close(self, *, linger: float | None = None) -> None:
        """End everything: linger for posted messages, close, and abort what does not close in time.

        It lingers as long as its options say, or for `linger` seconds.
        """
        if self._home is not None:
            self._home.check()
        await self._one_close.once(lambda: self._close(self.options.linger if linger is None else linger))

    async def _close(self, linger_s: float) -> None:
        self._closing = True
        while self._listeners:
            await self._listeners.popitem()[1].close()
        try:
            if linger_s:
                async with asyncio.timeout(linger_s):
                    await self._linger()
                    while any(lane.connection and lane.outbox.held_count for lane in self._lanes_all()):
                        # Posted while this waited, in reply to messages that still came: peers rely on them.
                        await self._linger()
                    self._close_connections()
                    await self._all_closed()
        except TimeoutError:
            pass  # The rest is aborted below, and reported as lost or in doubt.
        finally:
            await self._end()

    # -- receiving

    async def recv(self) -> Message:
        """The next message. Raises AlreadyClosed after the end; cancelling it loses nothing."""
        return self._taken(await self._inbox.get())

    def recv_nowait(self) -> Message:
        """The next message if one is there. Raises WouldBlock, AlreadyClosed."""
        return self._taken(self._inbox.get_nowait())

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            try:
                message = await self.recv()
            except AlreadyClosed:
                return
            yield message

    async def events(self) -> AsyncIterator[SocketEvent]:
        """All events of the connections, from the first on; the oldest are dropped when nobody reads."""
        while True:
            try:
                event = await self._events.get()
            except AlreadyClosed:
                return
            yield event

    def rest(self, peer: bytes) -> None:
        """Read from this peer again only when all ready tasks have run: for `on_messages` with readers.

        A stream that is always readable would otherwise be read many times before a task gets its turn.
        """
        connection = self._connected.get(peer)
        if connection is not None:
            connection.pause_reading()
            asyncio.get_running_loop().call_soon(connection.resume_reading)

    @property
    def peers(self) -> tuple[bytes, ...]:
        """Ids of the peers connected now."""
        return tuple(self._connected)

    @property
    def stats(self) -> SocketStats:
        lanes, tally = self._lanes_all(), self._tally
        return SocketStats(
            sent_count=tally.sent_count + sum(lane.outbox.taken_count for lane in lanes),
            received_count=tally.received_count + sum(c.link.parser.count for c in self._connections),
            dropped_count=tally.dropped_count + sum(lane.outbox.dropped_count for lane in lanes),
            unsent_count=tally.unsent_count,
            in_doubt_count=tally.in_doubt_count,
            ignored_count=tally.ignored_count,
            connections_count=len(self._connected),
            handshaking_count=len(self._connections) - len(self._connected),
            inbox_count=len(self._inbox),
            events_dropped_count=tally.events_dropped_count,
            ended=dict(tally.ended),
        )

    @property
    def ended(self) -> dict[str, int]:
        """The ended connections by reason, as in `stats`, without looking at every connected peer."""
        return dict(self._tally.ended)

    # -- what each type of socket decides

    def _lanes_all(self) -> list[Lane]:
        """Every open lane, connected or not."""
        raise NotImplementedError

    def _join(self, connection: Connection, outbound: Outbound | None, former: Lane | None) -> Lane:
        """The lane of a peer that has just been admitted, perhaps in place of one whose lane was `former`."""
        raise NotImplementedError

    def _leave(self, connection: Connection, lane: Lane, outbound: Outbound | None) -> int:
        """A peer is gone; returns how many of its messages are lost with it."""
        raise NotImplementedError

    def connection_received(self, connection: Connection, messages: list[list[bytes]]) -> None:
        if self._on_messages is not None:
            try:
                self._on_messages(connection.peer, messages)
            # The callback is the user's code; the connection has done nothing wrong.
            except Exception as error:
                self._report(error, f"on_messages of {self.name} failed; messages of that chunk may be lost")
            return
        peer = connection.peer
        self._inbox.put_all([Message(peer, parts) for parts in messages])
        self._inbox_bytes += sum(len(part) for parts in messages for part in parts)
        options = self.options
        if len(self._inbox) >= options.incoming_count_max or self._inbox_bytes >= options.incoming_bytes_max:
            connection.pause_reading()
            self._not_read[connection] = None

    def connection_subscribed(self, connection: Connection, prefix: bytes, *, wanted: bool) -> None:
        raise NotImplementedError  # A link reports subscriptions to a PUB only.

    # -- connections come and go

    def connection_established(self, connection: Connection, identity: bytes) -> None:
        verdict = self._admission.admit(
            identity if self.peers_have_names else b"", node=connection.node, taken=self._connected
        )
        if isinstance(verdict, NotAdmitted):
            connection.peer = identity
            connection.refuse(verdict.reason, verdict.detail)
            return
        if (door := self._doors.get(connection)) is not None:
            door.admitted()
        outbound = self._dialled.get(connection)
        former = self._connected.pop(verdict.peer, None)
        connection.peer = verdict.peer
        connection.welcome()
        if former is not None and former.lane is not None:
            former.lane.stop()
            former.close(CloseReason.TAKEN_OVER, f"by {connection.address}")
            # Before the event of its successor: the events must end with the peer connected.
            self._emit_disconnected(former, unsent_count=0)
        lane = self._join(connection, outbound, former.lane if former is not None else None)
        connection.lane = lane
        self._connected[verdict.peer] = connection
        if outbound is not None:
            outbound.established(verdict.peer)
        self._emit(Connected(peer=verdict.peer, address=connection.address, outbound=outbound is not None))
        lane.start(connection)

    def connection_ended(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._not_read.pop(connection, None)
        outbound = self._dialled.pop(connection, None)
        if (door := self._doors.pop(connection, None)) is not None:
            door.left(was_admitted=connection.admitted)
        tally = self._tally
        tally.ended[connection.reason] += 1
        tally.received_count += connection.link.parser.count
        tally.in_doubt_count += connection.link.in_doubt_count
        if not connection.admitted:
            address = connection.address or (str(outbound.endpoint) if outbound else "")
            self._emit_failed(connection.peer, address, connection.reason, connection.detail)
            return
        if self._connected.get(connection.peer) is not connection or connection.lane is None:
            return  # It was taken over: its end has been told, and its lane belongs to another connection.
        del self._connected[connection.peer]
        connection.lane.stop()
        unsent_count = self._leave(connection, connection.lane, outbound)
        tally.unsent_count += unsent_count
        self._emit_disconnected(connection, unsent_count=unsent_count)

    def _accept(self, door: Door) -> StreamProtocol:
        if self._closing:
            return Turnstile(lambda address: None)
        reason = door.enter()
        if reason is not None:
            return Turnstile(lambda address: self._turned_away(reason, address))
        connection = self._new_connection(outbound=False)
        self._doors[connection] = door
        return connection

    def _turned_away(self, reason: CloseReason, address: str) -> None:
        self._tally.ended[reason] += 1
        self._emit_failed(b"", address, reason, "")

    def _dial(self, outbound: Outbound) -> Connection:
        connection = self._new_connection(outbound=True)
        self._dialled[connection] = outbound
        return connection

    def _new_connection(self, *, outbound: bool) -> Connection:
        connection = Connection(
            self,
            socket_type=self.socket_type,
            identity=self.routing_id,
            options=self.options,
            outbound=outbound,
        )
        self._connections[connection] = None
        return connection

    def _unreachable(self, outbound: Outbound, connection: Connection, problem: str) -> None:
        self._connections.pop(connection, None)
        self._dialled.pop(connection, None)
        if not outbound.is_closed:
            self._tally.ended[CloseReason.CONNECT_FAILED] += 1
            self._emit_failed(b"", str(outbound.endpoint), CloseReason.CONNECT_FAILED, problem)

    def _outbound_closed(self, outbound: Outbound) -> None:
        self._outbounds.pop(outbound, None)
        if outbound.lane is not None:
            self._give_up(outbound.lane, str(outbound.endpoint))
            outbound.lane = None

    # -- the end

    async def _linger(self) -> None:
        """Wait until the peers have read all accepted messages, as far as they can say so."""
        for lane in self._lanes_all():
            # Messages for no particular peer can only leave if a peer is being dialled.
            if lane.connection is not None or self._outbounds:
                await lane.drained()
        for connection in list(self._connections):
            connection.ask()
        for connection in list(self._connections):
            await connection.confirmed()

    def _close_connections(self) -> None:
        for outbound in list(self._outbounds):
            outbound.give_up()
        for connection in list(self._connections):
            connection.close(CloseReason.CLOSED_BY_US)

    async def _all_closed(self) -> None:
        # A connection that was accepted just now is still to be made, and then ends at once; one that is
        # being dialled ends with its task.
        closed = [c.closed for c in self._connections if c.is_made or c in self._doors]
        if closed:
            await asyncio.wait(closed, timeout=CLOSE_S_MAX)

    async def _end(self) -> None:
        self._close_connections()
        for connection in list(self._connections):
            connection.abort()
        await self._tasks.close()
        await self._all_closed()
        for lane in self._lanes_all():
            self._give_up(lane, "")
        self._inbox.close()
        self._events.close()

    def _give_up(self, lane: Lane, address: str) -> None:
        """Nothing leaves through this lane any more; report how many messages that loses."""
        count = self._close_lane(lane)
        if count:
            self._tally.unsent_count += count
            self._emit(MessagesLost(peer=lane.peer, address=address, count=count))

    def _close_lane(self, lane: Lane) -> int:
        """Keep a lane's counts and close it; returns how many messages that loses."""
        sent_count, dropped_count = lane.outbox.take_counts()
        self._tally.sent_count += sent_count
        self._tally.dropped_count += dropped_count
        return lane.close()

    # -- small things

    def _taken(self, message: Message) -> Message:
        self._inbox_bytes -= sum(map(len, message.parts))
        if self._not_read:
            options = self.options
            if (
                len(self._inbox) <= options.incoming_count_max // 2
                and self._inbox_bytes <= options.incoming_bytes_max // 2
            ):
                not_read, self._not_read = self._not_read, {}
                for connection in not_read:
                    connection.resume_reading()
        return message

    def _emit(self, event: SocketEvent) -> None:
        if self._on_event is not None:
            try:
                self._on_event(event)
            except Exception as error:
                self._report(error, f"on_event of {self.name} failed")
            return
        if len(self._events) >= self.options.events_count_max:
            self._events.drop_oldest()
            self._tally.events_dropped_count += 1
        self._events.put(event)

    def _emit_disconnected(self, connection: Connection, *, unsent_count: int) -> None:
        self._emit(
            Disconnected(
                peer=connection.peer,
                address=connection.address,
                reason=connection.reason,
                detail=connection.detail,
                unsent_count=unsent_count,
                in_doubt_count=connection.link.in_doubt_count,
            )
        )

    def _emit_failed(self, peer: bytes, address: str, reason: CloseReason, detail: str) -> None:
        if not self._closing:
            self._emit(HandshakeFailed(peer=peer, address=address, reason=reason, detail=detail))

    def _task_failed(self, error: BaseException) -> None:
        self._report(error, f"a task of {self.name} failed; please report this")

    @staticmethod
    def _report(error: BaseException, message: str) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    def _check_open(self) -> None:
        if self._home is None:
            self._home = Home(self.name, "make one here")
        self._home.check()
        if self._closing:
            raise AlreadyClosed(f"{self.name} is closed")
