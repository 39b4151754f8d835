"""The limit: what a Python program can do on the loop's own transports, with nothing around it.

Frames are [u32 length][u64 number][payload] over TCP. What is posted in one turn of the loop leaves in one
write; a chunk is parsed in one pass; callers wait on futures found by number. There are no routing ids, no
multipart messages, no bounds and no errors. The publisher waits while a transport is above its high-water
mark. The parser is plain Python, so where parsing is all the work a compiled one may pass this limit.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import cast

from bench.job import Job
from bench.link import Link
from bench.load import keep_in_flight, keep_publishing

HEADER_BYTES = 12
TURN_BYTES = 64 * 1024
_header = struct.Struct("<IQ")


class Frames(asyncio.Protocol):
    """One connection; `on_frame(connection, number, payload)` for each frame."""

    def __init__(self, on_frame: Callable[["Frames", int, bytes], None]) -> None:
        self._on_frame = on_frame
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._outgoing: list[bytes] = []
        self.writable = asyncio.Event()
        self.writable.set()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        position, end, unpack, on_frame = 0, len(data), _header.unpack_from, self._on_frame
        while end - position >= HEADER_BYTES:
            length, number = unpack(data, position)
            start = position + HEADER_BYTES
            stop = start + length
            if stop > end:
                break
            on_frame(self, number, data[start:stop])
            position = stop
        self._rest = data[position:]

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def post(self, number: int, payload: bytes) -> None:
        """Send one frame at the end of this turn of the loop."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing += (_header.pack(len(payload), number), payload)

    def _flush(self) -> None:
        self.transport.write(b"".join(self._outgoing))
        self._outgoing.clear()


async def serve(job: Job, link: Link) -> None:
    """Echo every frame."""
    host, port = job.address.split(":")
    await asyncio.get_running_loop().create_server(lambda: Frames(Frames.post), host, int(port))
    link.ready()
    await asyncio.Event().wait()


async def call(job: Job, link: Link) -> None:
    """Numbered requests, each with a future."""
    host, port = job.address.split(":")
    loop = asyncio.get_running_loop()
    waiting: dict[int, asyncio.Future[bytes]] = {}
    number = 0

    def settle(_connection: Frames, number: int, payload: bytes) -> None:
        waiting.pop(number).set_result(payload)

    def request(payload: bytes) -> asyncio.Future[bytes]:
        nonlocal number
        number += 1
        future = waiting[number] = loop.create_future()
        connection.post(number, payload)
        return future

    _, connection = await loop.create_connection(lambda: Frames(settle), host, int(port))
    link.ready()
    await keep_in_flight(request, job, link)


async def publish(job: Job, link: Link) -> None:
    """Every frame to every connection, TURN_BYTES a turn of the loop."""
    host, port = job.address.split(":")
    connections: list[Frames] = []
    payload, turn_bytes = job.payload, 0

    def accept() -> Frames:
        connection = Frames(lambda *_: None)
        connections.append(connection)
        return connection

    async def send_many(count: int) -> None:
        nonlocal turn_bytes
        for _ in range(count):
            for connection in connections:
                if not connection.writable.is_set():
                    await connection.writable.wait()
                connection.post(0, payload)
            turn_bytes += len(payload)
            if turn_bytes >= TURN_BYTES:
                turn_bytes = 0
                await asyncio.sleep(0)

    await asyncio.get_running_loop().create_server(accept, host, int(port))
    link.ready()
    await keep_publishing(send_many, link)


async def receive(job: Job, link: Link) -> None:
    """Count frames."""
    host, port = job.address.split(":")

    def count(_connection: Frames, _number: int, payload: bytes) -> None:
        link.last = payload
        link.count += 1

    await asyncio.get_running_loop().create_connection(lambda: Frames(count), host, int(port))
    link.ready()
    await asyncio.Event().wait()
