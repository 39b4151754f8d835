"""A TCP proxy that a test can make bad: silent, slow, or breaking what it carries."""

import asyncio
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65_536
_ACCEPT_TURNS = 5


class TcpProxy:
    """Forwards every connection to one target. It binds when entered, and leaving ends every connection.

    `hold` stops the traffic without ending a connection, as a cut cable does: what was sent waits.
    `hold_answers` stops only what comes from the target. `refuse` breaks what is connected and whoever comes.
    `delay_s` is how long each piece is under way.
    """

    def __init__(self, target: str) -> None:
        self._host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._port = int(port)
        self.delay_s = 0.0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._answering = asyncio.Event()
        self._answering.set()
        self._is_refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        # What has just come is known to `_carry` some turns of the loop later. A server that closes before
        # that forgets it, and nobody would end it.
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        self._break()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def endpoint(self) -> str:
        assert self._server is not None, "the proxy is not bound"
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def hold(self) -> None:
        self._flowing.clear()

    def hold_answers(self) -> None:
        self._answering.clear()

    def refuse(self) -> None:
        self._is_refusing = True
        self._break()

    def forward(self) -> None:
        """Undo `hold`, `hold_answers` and `refuse`; what was held goes on, if it was not broken meanwhile."""
        self._is_refusing = False
        self._flowing.set()
        self._answering.set()

    def _break(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._flowing.wait()
            if self._is_refusing:
                return
            back, onward = await asyncio.open_connection(self._host, self._port)
            self._writers.add(onward)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, onward, self._flowing), name="proxy: there")
                group.create_task(
                    self._pump(back, writer, self._flowing, self._answering), name="proxy: back"
                )
        except OSError:
            pass  # The target is not there: the caller sees its connection end, as it would without a proxy.
        finally:
            for end in (writer, onward):
                if end is not None:
                    end.transport.abort()
                    self._writers.discard(end)
            self._tasks.discard(task)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *gates: asyncio.Event
    ) -> None:
        try:
            while data := await reader.read(_CHUNK_BYTES):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                for gate in gates:
                    await gate.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.transport.abort()
