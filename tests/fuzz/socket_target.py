"""Whole sockets under fuzzed peers: each input is one connection, from its first byte to its end.

The sockets live as long as the process, on the in-memory network, so that what one input leaves behind would
show in the memory and in the counts.
"""

import asyncio
import atexit
from typing import Any

from hansa.endpoint import Endpoint
from hansa.errors import WouldBlock
from hansa.transport import (
    Dealer,
    Disconnected,
    Environment,
    HandshakeFailed,
    Pub,
    Router,
    SocketOptions,
    Sub,
)
from hansa.transport.memory_network import MemoryNetwork
from tests.support.parsing import cut
from tests.support.raw_peer import RawPeer

OPTIONS = SocketOptions(
    frame_bytes_max=1_000,
    message_bytes_max=2_000,
    parts_max=8,
    subscriptions_max=4,
    incoming_count_max=3,
    events_count_max=4,
    linger=0,
)
INPUT_S_MAX = 4.0


class Arena:
    """One socket of each type, bound, and one loop for all of them."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(self._failed)
        self.network = MemoryNetwork()
        self.environment = Environment(options=OPTIONS, network=self.network)
        self.problems: list[dict[str, Any]] = []
        self.ended: asyncio.Future[None] | None = None
        self.sockets: list[Router | Dealer | Pub | Sub] = []
        self.endpoints: list[Endpoint] = []
        self.loop.run_until_complete(self._open())
        atexit.register(self.loop.close)

    async def _open(self) -> None:
        for kind in (Router, Dealer, Pub, Sub):
            socket = kind(environment=self.environment, on_event=self._hear)
            if isinstance(socket, Sub):
                socket.subscribe(b"a")
            self.sockets.append(socket)
            self.endpoints.append(await socket.bind(f"inproc://{kind.__name__}"))

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.problems.append(context)

    def _hear(self, event: object) -> None:
        if isinstance(event, Disconnected | HandshakeFailed) and self.ended is not None:
            assert not self.ended.done(), f"a second end: {event}"
            self.ended.set_result(None)

    async def play(self, choice: int, stream: bytes) -> None:
        """One connection: say all of it, leave, and see that the socket has forgotten us."""
        socket, endpoint = self.sockets[choice % 4], self.endpoints[choice % 4]
        self.ended = self.loop.create_future()
        ended_before = sum(socket.stats.ended.values())
        peer = RawPeer()
        await self.network.dial(endpoint, lambda: peer)
        for piece in cut(stream, range(choice // 4, len(stream), 1 + choice // 2)):
            peer.send(piece)
        peer.transport.close()
        async with asyncio.timeout(INPUT_S_MAX):
            while not self.ended.done():
                drain(socket)  # a full inbox would stop the socket from reading our goodbye
                await asyncio.sleep(0)
            await peer.lost
        drain(socket)
        stats = socket.stats
        assert (stats.connections_count, stats.handshaking_count, stats.inbox_count) == (0, 0, 0), stats
        assert sum(stats.ended.values()) == ended_before + 1, stats
        assert not self.problems, self.problems


def drain(socket: Router | Dealer | Pub | Sub) -> None:
    """Take all that has arrived."""
    try:
        while True:
            socket.recv_nowait()
    except WouldBlock:
        pass


_arena: list[Arena] = []


def check_socket(data: bytes) -> None:
    """Any connection ends, once, and leaves nothing behind."""
    if not data:
        return
    if not _arena:
        _arena.append(Arena())
    arena = _arena[0]
    try:
        arena.loop.run_until_complete(arena.play(data[0], data[1:]))
    except BaseException:
        _arena.clear()  # What comes next must not suffer from it.
        arena.loop.close()
        raise
