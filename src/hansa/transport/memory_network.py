"""A network inside one process: the twin of TCP, for `inproc://` and for the simulator.

A `MemoryNetwork` finds listeners by their endpoint. A dial makes a connection: two transports joined by two
wires, one for each direction. Bytes that are written go into the transport's buffer; the wire takes them from
there while its window has room, and hands them to the reader from the event loop, never from inside `write`.
So a reader that pauses fills the window, then the writer's buffer, and then the writer's protocol is paused:
back-pressure as over TCP. The reader gets the very bytes object that was written.

A `Wire` decides how and when bytes arrive. The default one hands them over in the next turn of the loop; the
simulator's network is a subclass whose wires delay, cut up and hold back, and which takes its time to reach a
listener. Nothing else differs between the two.

Every callback of a protocol runs in the context in which its side called `listen` or `dial`, as with the
transports of asyncio.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Any

from hansa.endpoint import Endpoint
from hansa.errors import AddressInUse, BadArgument, InvariantBroken, Unavailable, invariant
from hansa.transport.network import ChunkReader, StreamProtocol

__all__ = ["END_OF_STREAM", "MemoryListener", "MemoryNetwork", "MemoryTransport", "Wire"]

Factory = Callable[[], StreamProtocol]
# The kind of address or its whole text, the host or nothing, the port or 0.
Place = tuple[str, str, int]

# What the kernels of both sides would buffer of a TCP stream that nobody reads.
WINDOW_BYTES = 256 * 1024
# A busy stream lets others run after this much, as a socket read of bounded size does.
READ_TURN_BYTES = 256 * 1024
# asyncio's own defaults, so that code tuned on TCP behaves the same here.
WRITE_HIGH_BYTES = 64 * 1024

END_OF_STREAM = b""
ANY_HOST = "*"
# Where the operating systems begin with free ports.
FREE_PORT_MIN = 49_152
FREE_PORT_MAX = 65_535


class MemoryNetwork:
    """Carries streams between endpoints of any scheme, all of them inside this object.

    Keeps order and loses nothing, until a side closes or aborts. Listener and dialler share one event loop.
    """

    def __init__(self) -> None:
        self._listeners: dict[Place, MemoryListener] = {}
        self._dialled_count = 0
        self._next_port = FREE_PORT_MIN

    async def listen(self, endpoint: Endpoint, factory: Factory) -> MemoryListener:
        """Listen at an endpoint. Raises `AddressInUse`; a port of 0 (or `*`) finds a free one."""
        if endpoint.scheme in ("tcp", "tls") and not endpoint.port:
            endpoint = endpoint.with_port(self._free_port(endpoint))
        place = self.place_of(endpoint)
        if self._is_taken(place):
            raise AddressInUse(f"somebody already listens on {endpoint} in this process")
        listener = MemoryListener(self, place, endpoint, factory)
        self._listeners[place] = listener
        return listener

    async def dial(self, endpoint: Endpoint, factory: Factory) -> None:
        """Connect. Raises `Unavailable` when nobody listens there. Cancelling leaves nothing behind."""
        listener = await self.reach(endpoint)
        if listener is None or not listener.is_open:
            raise Unavailable(f"connection refused: nobody listens on {endpoint} in this process")
        loop = asyncio.get_running_loop()
        if listener.loop is not loop:
            raise Unavailable(f"{endpoint} is served by another event loop; in memory, both must share one")
        protocol = factory()
        self._dialled_count += 1
        near_name = self.name_of_dialler(endpoint, self._dialled_count)
        far_name = str(listener.endpoint)
        near = MemoryTransport(loop, copy_context(), sockname=near_name, peername=far_name)
        far = MemoryTransport(loop, listener.context, sockname=far_name, peername=near_name)
        there, back = self.join(near, far, listener)
        near.join(incoming=back, outgoing=there)
        far.join(incoming=there, outgoing=back)
        # Accepting happens in the listener's own turn, as the kernel accepts before the program does.
        loop.call_soon(listener.accept, far, context=listener.context)
        try:
            near.open(protocol)
        except BaseException:
            near.abort()
            raise

    # Where the simulator differs.

    def place_of(self, endpoint: Endpoint) -> Place:
        """Two endpoints with the same place are the same address."""
        if endpoint.scheme in ("tcp", "tls"):
            # One port space for both: TLS is a way to talk, not another address.
            return ("port", ANY_HOST if endpoint.is_wildcard else endpoint.host, endpoint.port)
        return (str(endpoint), "", 0)

    async def reach(self, endpoint: Endpoint) -> MemoryListener | None:
        """Find the listener, after the time it takes to get there. None is a refused connection."""
        await asyncio.sleep(0)
        kind, _, port = place = self.place_of(endpoint)
        return self._living(place) or self._living((kind, ANY_HOST, port))

    def join(
        self, near: MemoryTransport, far: MemoryTransport, listener: MemoryListener
    ) -> tuple[Wire, Wire]:
        """The wires from the near end to the far one, and back."""
        return Wire(near, far), Wire(far, near)

    def name_of_dialler(self, endpoint: Endpoint, number: int) -> str:
        """The dialler's name, as the listening side prints it."""
        return f"{endpoint}#{number}"

    def forget(self, listener: MemoryListener) -> None:
        """The listener closed: its address is free."""
        if self._listeners.get(listener.place) is listener:
            del self._listeners[listener.place]

    def _living(self, place: Place) -> MemoryListener | None:
        listener = self._listeners.get(place)
        if listener is not None and listener.loop.is_closed():
            # Its loop ended without closing it; no connection can ever be accepted there.
            self.forget(listener)
            return None
        return listener

    def _is_taken(self, place: Place) -> bool:
        kind, host, port = place
        if host == ANY_HOST:
            return any(
                kind == taken[0] and port == taken[2] and self._living(taken)
                for taken in list(self._listeners)
            )
        return self._living(place) is not None or self._living((kind, ANY_HOST, port)) is not None

    def _free_port(self, endpoint: Endpoint) -> int:
        # Going round, so that the port of a listener that just closed is not given to another one.
        for _ in range(FREE_PORT_MIN, FREE_PORT_MAX + 1):
            port = self._next_port
            self._next_port = port + 1 if port < FREE_PORT_MAX else FREE_PORT_MIN
            if not self._is_taken(self.place_of(endpoint.with_port(port))):
                return port
        raise AddressInUse(f"no free port is left for {endpoint}")


class MemoryListener:
    """An open door in a `MemoryNetwork`. Protocols are made in the context of the listening side."""

    def __init__(self, network: MemoryNetwork, place: Place, endpoint: Endpoint, factory: Factory) -> None:
        self._network = network
        self._factory = factory
        self.place = place
        self.endpoint = endpoint
        self.loop = asyncio.get_running_loop()
        self.context = copy_context()
        self.is_open = True

    async def close(self) -> None:
        """Stop accepting and free the address. Connections that were accepted live on."""
        self.is_open = False
        self._network.forget(self)

    def accept(self, transport: MemoryTransport) -> None:
        """Runs in the listener's context, in its own turn of the loop."""
        if transport.is_lost:
            return
        if not self.is_open:
            transport.abort()
            return
        try:
            transport.open(self._factory())
        except Exception as error:
            self.loop.call_exception_handler(
                {
                    "message": f"accepting at {self.endpoint} failed",
                    "exception": error,
                    "transport": transport,
                }
            )
            transport.abort()


class MemoryTransport(asyncio.Transport):
    """One end of a connection. `write` never blocks and never calls the other side."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, context: Context, *, sockname: str, peername: str
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.loop = loop
        self.context = context
        self._protocol: StreamProtocol | None = None
        self._buffer: deque[bytes] = deque()
        self._buffer_bytes = 0
        self._high_bytes = WRITE_HIGH_BYTES
        self._low_bytes = WRITE_HIGH_BYTES // 4
        self._wire_in: Wire | None = None
        self._wire_out: Wire | None = None
        self._closing = False
        self._ended = False
        self._end_taken = False
        self._end_read = False
        self._lost = False
        self._reading_paused = False
        self._writing_paused = False

    def __repr__(self) -> str:
        state = "lost" if self._lost else "closing" if self._closing else "open"
        names = f"{self.get_extra_info('sockname')} to {self.get_extra_info('peername')}"
        return f"<MemoryTransport {names} {state}>"

    # Called by the owner of this end.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Queue bytes. After `close`, `abort` or a lost connection they are dropped, as over TCP."""
        if self._ended and not self._closing:
            raise RuntimeError("cannot write after write_eof()")
        if self._closing or not data:
            return
        whole = data if type(data) is bytes else bytes(data)
        self._buffer.append(whole)
        self._buffer_bytes += len(whole)
        self._out.wake()
        if self._buffer_bytes > self._high_bytes and not self._writing_paused:
            self._writing_paused = True
            self._guarded(self._made_protocol.pause_writing)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        """Queue several pieces without joining them."""
        for data in list_of_data:
            self.write(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Close the outgoing half, after what was written; reading goes on."""
        if not self._ended:
            self._ended = True
            self._out.wake()

    def close(self) -> None:
        """Stop reading, flush what was written, then end the stream: both sides lose it without an error."""
        if self._closing:
            return
        self._closing = True
        self._ended = True
        self._in.discard()
        self._out.wake()
        if self._end_taken:
            # The outgoing half had ended before, and nothing is left to flush.
            self._lose_soon(None)

    def abort(self) -> None:
        """Drop what was not delivered; the other side sees `ConnectionResetError`."""
        if not self._lost:
            self.lose(None)
            self._out.reset()

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._reading_paused and not self._closing

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._in.wake_reader()

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_bytes, self._high_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = WRITE_HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise BadArgument(f"write buffer limits: want high >= low >= 0, not high {high}, low {low}")
        self._high_bytes = high
        self._low_bytes = low

    def get_protocol(self) -> StreamProtocol:
        return self._made_protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        if not isinstance(protocol, asyncio.Protocol | ChunkReader):
            raise InvariantBroken("a stream needs a protocol that takes chunks")
        self._protocol = protocol

    # Called by the network and the wires.

    def join(self, *, incoming: Wire, outgoing: Wire) -> None:
        self._wire_in = incoming
        self._wire_out = outgoing

    def open(self, protocol: StreamProtocol) -> None:
        """Hand the connection to its protocol; bytes follow in later turns of the loop."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._in.wake_reader()

    @property
    def is_lost(self) -> bool:
        return self._lost

    @property
    def has_read_end(self) -> bool:
        """Whether the other side's end of stream was received."""
        return self._end_read

    @property
    def can_read(self) -> bool:
        """Whether bytes may be handed over now."""
        return self._protocol is not None and not self._closing and not self._reading_paused

    def take(self) -> bytes | None:
        """The next piece for the wire, `END_OF_STREAM` once after the last one, or None."""
        if self._buffer:
            data = self._buffer.popleft()
            self._buffer_bytes -= len(data)
        elif self._ended and not self._end_taken:
            self._end_taken = True
            data = END_OF_STREAM
        else:
            return None
        if self._writing_paused and self._buffer_bytes <= self._low_bytes:
            self.loop.call_soon(self._resume_writing, context=self.context)
        if self._closing and self._end_taken:
            self._lose_soon(None)
        return data

    def read(self, data: bytes) -> None:
        """Hand bytes, or the end of the stream, to the protocol."""
        protocol = self._made_protocol
        if data:
            self._guarded(protocol.data_received, data)
            return
        self._end_read = True
        if not self._guarded(protocol.eof_received):
            self.close()

    def lose(self, error: Exception | None) -> None:
        """The connection is gone for this end: nothing more is read or sent, the protocol is told once."""
        self._closing = True
        self._ended = True
        self._end_taken = True
        self._buffer.clear()
        self._buffer_bytes = 0
        self._in.drop_arrived()
        self._lose_soon(error)

    def _lose_soon(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self.loop.call_soon(self._tell_lost, error, context=self.context)

    def _tell_lost(self, error: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _resume_writing(self) -> None:
        # Checked again: more may have been written since this was scheduled.
        if self._writing_paused and not self._lost and self._buffer_bytes <= self._low_bytes:
            self._writing_paused = False
            self._guarded(self._made_protocol.resume_writing)

    def _guarded(self, callback: Callable[..., Any], *args: Any) -> Any:
        """As asyncio does: a protocol that raises loses its connection, and the loop is told why."""
        try:
            return callback(*args)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.loop.call_exception_handler(
                {
                    "message": f"{callback} failed; its connection is aborted",
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )
            if not self._lost:
                self.lose(error if isinstance(error, Exception) else None)
                self._out.reset()
            return None

    @property
    def _made_protocol(self) -> StreamProtocol:
        invariant(self._protocol is not None, "the transport was used before connection_made")
        return self._protocol  # type: ignore[return-value]

    @property
    def _in(self) -> Wire:
        return self._wire_in  # type: ignore[return-value]

    @property
    def _out(self) -> Wire:
        return self._wire_out  # type: ignore[return-value]


class Wire:
    """One direction of a connection. Subclasses change how and when bytes get across, never their order.

    `wake` takes from the source while there is room and brings it to `arrive`; `arrive` queues for the
    reader; `deliver` runs in the reader's context.
    """

    window_bytes = WINDOW_BYTES

    def __init__(self, source: MemoryTransport, target: MemoryTransport) -> None:
        self.source = source
        self.target = target
        self._arrived: deque[bytes] = deque()
        self._carried_bytes = 0
        self._reader_woken = False

    def wake(self) -> None:
        """The source has something to carry."""
        while (data := self.take()) is not None:
            self.arrive(data)

    def take(self) -> bytes | None:
        """The next piece, while the window has room."""
        if self._carried_bytes >= self.window_bytes:
            return None
        data = self.source.take()
        if data is not None:
            self._carried_bytes += len(data)
        return data

    def arrive(self, data: bytes) -> None:
        """Bytes are at the reader's door."""
        if self.target.is_closing():
            self._carried_bytes -= len(data)
            if data and self.source.has_read_end:
                # The reader closed and is gone for good; TCP answers such bytes with a reset.
                self.source.loop.call_soon(self.break_source, context=self.source.context)
            return
        self._arrived.append(data)
        self.wake_reader()

    def wake_reader(self) -> None:
        """The reader can read again, or something arrived for it."""
        if self._arrived and not self._reader_woken and self.target.can_read:
            self._reader_woken = True
            self.target.loop.call_soon(self._deliver, context=self.target.context)

    def discard(self) -> None:
        """The reader is gone: drop the bytes on their way, and never hold the source back again."""
        self.drop_arrived()
        self.wake()

    def drop_arrived(self) -> None:
        """The same when the source is about to be told of a reset: it writes nothing more, as over TCP."""
        for data in self._arrived:
            self._carried_bytes -= len(data)
        self._arrived.clear()

    def reset(self) -> None:
        """Break the stream: the reader loses what was not delivered."""
        self._arrived.clear()
        self._carried_bytes = 0
        if not self.target.is_lost:
            self.target.loop.call_soon(self.break_target, context=self.target.context)

    def break_source(self) -> None:
        if not self.source.is_lost:
            self.source.lose(ConnectionResetError("the other side is gone"))

    def break_target(self) -> None:
        if not self.target.is_lost:
            self.target.lose(ConnectionResetError("the other side reset the connection"))

    def _deliver(self) -> None:
        self._reader_woken = False
        turn_bytes = 0
        while self._arrived and self.target.can_read and turn_bytes < READ_TURN_BYTES:
            data = self._arrived.popleft()
            turn_bytes += len(data)
            self.delivered(data)
            self.target.read(data)
        self.wake_reader()
        self.wake()

    def delivered(self, data: bytes) -> None:
        """The reader is given these bytes now: their place in the window is free."""
        self._carried_bytes -= len(data)
