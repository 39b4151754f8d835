"""A peer that says exactly the bytes a test wants, and reads what came back frame by frame."""

import asyncio
from typing import cast

from tests.support import zmtp_bytes as zmtp


class RawPeer(asyncio.Protocol):
    """One end of a connection, without any ZMTP behaviour of its own."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.made: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.received_bytes = 0
        self.answers_pings = False
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    # The callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self._buffer += data
        self._changed.set()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
        self._changed.set()

    # What a test says.

    @property
    def transport(self) -> asyncio.Transport:
        """The transport below; only after the connection is made."""
        assert self._transport is not None
        return self._transport

    def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        self.transport.write(data)

    async def send_bytewise(self, data: bytes) -> None:
        """Write one byte at a time, and let the other side read in between."""
        for value in data:
            self.transport.write(bytes((value,)))
            await asyncio.sleep(0)

    def stop_reading(self) -> None:
        """Read nothing more until `go_on_reading`: what is sent piles up at the sender."""
        self.transport.pause_reading()

    def go_on_reading(self) -> None:
        """Undo `stop_reading`."""
        self.transport.resume_reading()

    def abort(self) -> None:
        """Vanish without a goodbye."""
        self.transport.abort()

    async def close(self) -> None:
        """End the connection in order, and see its end."""
        if self._transport is not None:
            self._transport.close()
            await self.lost

    # What a test hears.

    async def read(self, size: int) -> bytes:
        """Exactly `size` bytes; ConnectionError when the other side ended before."""
        while len(self._buffer) < size:
            if self.lost.done():
                raise ConnectionError(f"ended with {len(self._buffer)} bytes of {size}")
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    async def read_frame(self) -> zmtp.Frame:
        """The next frame, whatever it is."""
        flags, size = await self.read(2)
        if flags & zmtp.LONG:
            size = int.from_bytes(bytes((size,)) + await self.read(7), "big")
        return zmtp.Frame(flags=flags, body=await self.read(size))

    async def read_command(self) -> tuple[bytes, bytes]:
        """Name and data of the next command; messages before it are passed over."""
        while True:
            got = await self.read_frame()
            if got.is_command:
                return got.command_name, got.command_data

    async def read_message(self) -> list[bytes]:
        """The next message; commands before it are passed over, PINGs answered if so wished."""
        parts: list[bytes] = []
        while True:
            got = await self.read_frame()
            if got.is_command:
                if self.answers_pings and got.command_name == b"PING":
                    self.send(zmtp.pong(got.command_data[2:]))
                continue
            parts.append(got.body)
            if not got.more:
                return parts

    async def greet(self, *, minor: int = 1) -> bytes:
        """Exchange greetings; the other side's 64 bytes."""
        self.send(zmtp.greeting(minor=minor))
        return await self.read(64)

    async def shake_hands(
        self, socket_type: bytes, identity: bytes = b"", *, minor: int = 1
    ) -> dict[str, bytes]:
        """Greeting and READY on both sides; the other side's properties."""
        self.send(zmtp.greeting(minor=minor) + zmtp.ready(socket_type, identity))
        await self.read(64)
        name, data = await self.read_command()
        assert name == b"READY", f"the other side said {name!r} {data!r}"
        return zmtp.properties(data)
