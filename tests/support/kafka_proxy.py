"""A proxy before a Kafka broker that loses answers of the broker, as a slow broker does for its client.

It speaks as much of Kafka's protocol as it needs for that: frames, the kinds of requests, and whether an
answer to a heartbeat of the new protocol (KIP-848) names partitions. Where the broker tells of itself, the
proxy puts its own port.
"""

from __future__ import annotations

import asyncio
import struct
from types import TracebackType
from typing import Final, Self

_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER = 3, 10, 60
_TELLS_ADDRESS: Final = (_METADATA, _FIND_COORDINATOR, _DESCRIBE_CLUSTER)
_HEARTBEAT: Final = 68


class KafkaProxy:
    """`async with KafkaProxy(kafka.address) as proxy`: clients connect to `proxy.address`."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._to_lose_count = 0
        self.lost_count = 0
        """Answers that were lost."""

    def lose_assignment(self) -> None:
        """Lose the next answer to a heartbeat that names partitions as assigned."""
        self._to_lose_count += 1

    @property
    def address(self) -> str:
        return f"{self._host}:{self._own_port}"

    @property
    def _own_port(self) -> int:
        assert self._server is not None, "the proxy is not bound"
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, self._host, 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        onward: asyncio.StreamWriter | None = None
        try:
            back, onward = await asyncio.open_connection(self._host, self._port)
            asked: dict[bytes, int] = {}
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask(reader, onward, asked), name="Kafka proxy: requests")
                group.create_task(self._answer(back, writer, asked), name="Kafka proxy: answers")
        except* (OSError, EOFError):
            pass  # One of the two has ended its connection: so does the other one.
        finally:
            for end in (writer, onward):
                if end is not None:
                    end.transport.abort()
            self._tasks.discard(task)

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[bytes, int]
    ) -> None:
        while True:
            frame = await _frame(reader)
            # A request's kind, its version, and the number that its answer begins with.
            asked[frame[4:8]] = int.from_bytes(frame[:2])
            await _send(writer, frame)

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[bytes, int]
    ) -> None:
        while True:
            frame = await _frame(reader)
            kind = asked.pop(frame[:4])
            if kind == _HEARTBEAT and self._to_lose_count and _names_partitions(frame):
                self._to_lose_count -= 1
                self.lost_count += 1
                continue
            if kind in _TELLS_ADDRESS:
                host = self._host.encode()
                frame = frame.replace(
                    host + struct.pack(">i", self._port), host + struct.pack(">i", self._own_port)
                )
            await _send(writer, frame)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))


async def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(len(frame).to_bytes(4) + frame)
    await writer.drain()


def _names_partitions(frame: bytes) -> bool:
    """Of an answer to a heartbeat, versions 0 and 1: number, tags, throttle time, error and its text (none),
    the member's id as a compact string, its epoch, the interval; then 1 and the count of topics plus one, or
    -1 where nothing is said of its assignment."""
    if int.from_bytes(frame[9:11]):
        return False
    id_end = 12 + frame[12]
    return frame[id_end + 8] == 1 and frame[id_end + 9] > 1
