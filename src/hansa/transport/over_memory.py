"""The network inside one process: the twin of TCP, for `inproc://` and for the simulator.

Listeners are found by endpoint; a dial joins two transports of `over_memory_stream` with two wires. The
simulator's network is a subclass that gives other wires and takes its time to reach a listener.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context

from hansa.endpoint import Endpoint
from hansa.errors import AddressInUse, Unavailable
from hansa.transport.over_chunks import StreamProtocol
from hansa.transport.over_memory_stream import MemoryTransport, Wire

__all__ = ["MemoryListener", "MemoryNetwork"]

Factory = Callable[[], StreamProtocol]
# What kind of address or its whole text, the host or nothing, the port or 0.
Place = tuple[str, str, int]

ANY_HOST = "*"
# Where the operating systems begin with ports of nobody in particular.
FREE_PORT_MIN = 49_152
FREE_PORT_MAX = 65_535


class MemoryListener:
    """An open door in a `MemoryNetwork`. Protocols are made in the context of the one who listens."""

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


class MemoryNetwork:
    """Carries streams between endpoints of any scheme, all of them inside this object.

    Keeps order and loses nothing, until a side closes or aborts. Listener and dialler share one event loop.
    """

    def __init__(self) -> None:
        self._listeners: dict[Place, MemoryListener] = {}
        self._dialled_count = 0
        self._next_port = FREE_PORT_MIN

    async def listen(self, endpoint: Endpoint, factory: Factory) -> MemoryListener:
        """Open a door. Raises `AddressInUse`; a port of 0 (or `*`) finds a free one."""
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
        """Find who listens, after what it takes to get there. None is a refused connection."""
        await asyncio.sleep(0)
        kind, _, port = place = self.place_of(endpoint)
        return self._living(place) or self._living((kind, ANY_HOST, port))

    def join(
        self, near: MemoryTransport, far: MemoryTransport, listener: MemoryListener
    ) -> tuple[Wire, Wire]:
        """The wires from the near end to the far one, and back."""
        return Wire(near, far), Wire(far, near)

    def name_of_dialler(self, endpoint: Endpoint, number: int) -> str:
        """What the listening side prints for its peer."""
        return f"{endpoint}#{number}"

    def forget(self, listener: MemoryListener) -> None:
        """The listener closed: its address is free."""
        if self._listeners.get(listener.place) is listener:
            del self._listeners[listener.place]

    def _living(self, place: Place) -> MemoryListener | None:
        listener = self._listeners.get(place)
        if listener is not None and listener.loop.is_closed():
            # Its loop ended without closing it; nobody can ever be accepted there.
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
        # Going round, so that the port of a listener that just closed is not handed to a stranger.
        for _ in range(FREE_PORT_MIN, FREE_PORT_MAX + 1):
            port = self._next_port
            self._next_port = port + 1 if port < FREE_PORT_MAX else FREE_PORT_MIN
            if not self._is_taken(self.place_of(endpoint.with_port(port))):
                return port
        raise AddressInUse(f"no free port is left for {endpoint}")
