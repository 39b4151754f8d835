"""One lane is one transport with what a test needs to use it: endpoints, sockets, raw peers."""

import asyncio
import itertools
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hansa.endpoint import Endpoint
from hansa.transport import Dealer, Environment, Pub, Router, SocketOptions, Sub, Tls
from hansa.transport.memory_network import MemoryNetwork
from tests.support.raw_peer import RawPeer

# Reconnects and patience as short as a loaded machine bears, so that the suite stays quick. Raw peers confirm
# nothing, so a socket that wrote to one lingers for as long as it may.
QUICK = {"reconnect_s_min": 0.01, "reconnect_s_max": 0.05, "linger": 0.1}

# What an environment is made of.
WORLD = ("tls", "options", "network", "clock", "chance")

_serial = itertools.count(1)


def quick(**changes: Any) -> SocketOptions:
    """Options with quick reconnects and little patience at the end, and the given changes."""
    return SocketOptions(**{**QUICK, **changes})


def gathered(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same arguments, but those of an environment as one."""
    world = {name: arguments[name] for name in WORLD if name in arguments}
    others = {name: value for name, value in arguments.items() if name not in WORLD}
    return {"environment": Environment(**world), **others}


class RawListener:
    """Accepts raw peers one after another."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.accepted: list[RawPeer] = []
        self.close: Callable[[], Awaitable[None]]
        self._queue: asyncio.Queue[RawPeer] = asyncio.Queue()

    def build(self) -> RawPeer:
        """The protocol of the next connection."""
        peer = RawPeer()
        self.accepted.append(peer)
        self._queue.put_nowait(peer)
        return peer

    async def accept(self) -> RawPeer:
        """The next connection, made."""
        peer = await self._queue.get()
        await peer.made
        return peer


def closer(server: asyncio.Server) -> Callable[[], Awaitable[None]]:
    """Ends a server's listening, and leaves its connections alone."""

    async def close() -> None:
        server.close()

    return close


@dataclass(kw_only=True)
class Lane:
    """A transport under test. Sockets made here are not entered yet: use `async with`."""

    name: str
    folder: Path
    tls: Tls | None = None
    memory: MemoryNetwork | None = None
    raw: list[RawPeer] = field(default_factory=list)
    listeners: list[RawListener] = field(default_factory=list)

    def endpoint(self) -> str:
        """An endpoint nobody listens on yet; its port, if it has one, is chosen when it is bound."""
        match self.name:
            case "tcp" | "tls":
                return f"{self.name}://127.0.0.1:0"
            case "ipc":
                return f"ipc://{self.folder}/{next(_serial)}.sock"
            case _:
                return f"inproc://lane-{next(_serial)}"

    def router(self, routing_id: bytes = b"", **arguments: Any) -> Router:
        return Router(routing_id, **self._filled(arguments))

    def dealer(self, routing_id: bytes = b"", **arguments: Any) -> Dealer:
        return Dealer(routing_id, **self._filled(arguments))

    def pub(self, **arguments: Any) -> Pub:
        return Pub(**self._filled(arguments))

    def sub(self, **arguments: Any) -> Sub:
        return Sub(**self._filled(arguments))

    def _filled(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return gathered({"options": quick(), "tls": self.tls, "network": self.memory, **arguments})

    async def dial_raw(self, endpoint: Endpoint | str) -> RawPeer:
        """A raw peer that has reached a bound socket of hansa; one that TLS kept out is lost already."""
        peer = RawPeer()
        try:
            await self._dial(Endpoint.parse(str(endpoint)), peer)
        except ConnectionError:
            if self.tls is None:
                raise
            peer.connection_lost(None)
            return peer
        await peer.made
        self.raw.append(peer)
        return peer

    async def _dial(self, target: Endpoint, peer: RawPeer) -> None:
        loop = asyncio.get_running_loop()
        if self.memory is not None:
            await self.memory.dial(target, lambda: peer)
        elif target.scheme == "ipc":
            await loop.create_unix_connection(lambda: peer, target.path)
        else:
            await loop.create_connection(
                lambda: peer, target.host, target.port, ssl=self._context(ssl.Purpose.SERVER_AUTH)
            )

    async def listen_raw(self, endpoint: str | None = None) -> RawListener:
        """A raw listener, for a socket of hansa to connect to."""
        loop = asyncio.get_running_loop()
        wanted = Endpoint.parse(endpoint or self.endpoint())
        listener = RawListener(str(wanted))
        if self.memory is not None:
            listener.close = (await self.memory.listen(wanted, listener.build)).close
        elif wanted.scheme == "ipc":
            listener.close = closer(await loop.create_unix_server(listener.build, wanted.path))
        else:
            server = await loop.create_server(
                listener.build, wanted.host, wanted.port, ssl=self._context(ssl.Purpose.CLIENT_AUTH)
            )
            port = server.sockets[0].getsockname()[1]
            listener.endpoint = str(wanted.with_port(port))
            listener.close = closer(server)
        self.listeners.append(listener)
        return listener

    async def end(self) -> None:
        """End what raw peers are left."""
        for listener in self.listeners:
            await listener.close()
            self.raw += listener.accepted
        for peer in self.raw:
            if peer.made.done():
                peer.abort()
                await peer.lost

    def _context(self, purpose: ssl.Purpose) -> ssl.SSLContext | None:
        if self.tls is None:
            return None
        context = ssl.create_default_context(purpose, cafile=self.tls.ca)
        context.load_cert_chain(self.tls.cert, self.tls.key)
        if purpose is ssl.Purpose.CLIENT_AUTH:
            context.verify_mode = ssl.CERT_REQUIRED
        else:
            context.check_hostname = False
        return context
