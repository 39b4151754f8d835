"""The network under a socket: it listens and dials, and its streams are read in chunks.

A stream is read through one buffer per event loop. A loop that makes a new bytes object for every read makes
it for the largest possible read, 256 KiB, and frees what was not needed: a busy receiver then works on memory
that is never in the cache. Measured with topics of 64 bytes (`make bench`, case topic), receiving costs a
third less through a lasting buffer of 64 KiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from hansa.limits import READ_BYTES

if TYPE_CHECKING:
    from hansa.endpoint import Endpoint


class Listener(Protocol):
    """An open door. Closing it stops new connections and leaves the accepted ones alone."""

    @property
    def endpoint(self) -> Endpoint:
        """The real address: with the port that was found, if a free one was requested."""
        ...

    async def close(self) -> None:
        """Stop accepting and free the address."""
        ...


class Network(Protocol):
    """Carries byte streams between endpoints.

    A factory is called once per connection, when it is accepted or dialled. A protocol that was accepted
    always gets exactly one `connection_lost`, also when it never got `connection_made` (a TLS handshake that
    failed), so that the owner can count connections.
    """

    async def listen(self, endpoint: Endpoint, factory: Callable[[], StreamProtocol]) -> Listener:
        """Raises AddressInUse, BadEndpoint."""
        ...

    async def dial(self, endpoint: Endpoint, factory: Callable[[], StreamProtocol]) -> None:
        """Returns when the stream is connected. Raises Unavailable when nobody answers there."""
        ...


_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, memoryview] = WeakKeyDictionary()


class ChunkReader(asyncio.BufferedProtocol):
    """Gets its bytes in chunks of their own, as an `asyncio.Protocol` does.

    The loop takes the buffer, fills it and reports that within one step, so one buffer is enough for all
    connections of a loop. (Loops that fill buffers in the background, as on Windows, would need one each.)
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        buffer = _buffers.get(loop)
        if buffer is None:
            buffer = _buffers[loop] = memoryview(bytearray(READ_BYTES))
        self._read_buffer = buffer

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._read_buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        raise NotImplementedError


StreamProtocol: TypeAlias = asyncio.Protocol | ChunkReader
