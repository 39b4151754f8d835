"""The system's own networks: TCP, TLS, Unix sockets, and names inside this process."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import stat
from collections.abc import Callable
from typing import cast
from weakref import WeakKeyDictionary

from hansa.endpoint import Endpoint
from hansa.errors import AddressInUse, BadArgument, BadEndpoint, Unavailable
from hansa.limits import CLOSE_S_MAX, HANDSHAKE_S_MAX
from hansa.transport.network import Listener, Network
from hansa.transport.options import Tls
from hansa.transport.over_asyncio import Turnstile
from hansa.transport.over_memory import MemoryNetwork
from hansa.transport.over_tasks import TaskScope

Factory = Callable[[], asyncio.Protocol]

_inproc: WeakKeyDictionary[asyncio.AbstractEventLoop, MemoryNetwork] = WeakKeyDictionary()


class SystemNetwork:
    """Listens and dials by an endpoint's scheme. TLS needs credentials."""

    def __init__(self, tls: Tls | None = None) -> None:
        self._tls = tls

    async def listen(self, endpoint: Endpoint, factory: Factory) -> Listener:
        try:
            match endpoint.scheme:
                case "tcp":
                    return await _listen_tcp(endpoint, factory)
                case "tls":
                    gate = _TlsGate(_context(self._tls, endpoint, server=True), factory)
                    return await _listen_tcp(endpoint, gate.admit, gate)
                case "ipc":
                    return await _listen_unix(endpoint, factory)
                case _:
                    return await _memory().listen(endpoint, factory)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(f"{endpoint} is in use; is another process bound to it?") from error
            raise BadEndpoint(f"cannot listen on {endpoint}: {error.strerror or error}") from error

    async def dial(self, endpoint: Endpoint, factory: Factory) -> None:
        loop = asyncio.get_running_loop()
        try:
            match endpoint.scheme:
                case "tcp":
                    await loop.create_connection(factory, endpoint.host, endpoint.port)
                case "tls":
                    context = _context(self._tls, endpoint, server=False)
                    await loop.create_connection(
                        factory,
                        endpoint.host,
                        endpoint.port,
                        ssl=context,
                        ssl_handshake_timeout=HANDSHAKE_S_MAX,
                    )
                case "ipc":
                    await loop.create_unix_connection(factory, endpoint.path)
                case _:
                    await _memory().dial(endpoint, factory)
        except OSError as error:  # Also what ssl and name look-up raise.
            raise Unavailable(f"cannot reach {endpoint}: {error.strerror or error}") from error


class _StreamListener:
    def __init__(
        self, endpoint: Endpoint, server: asyncio.Server, gate: _TlsGate | None, unlink: str
    ) -> None:
        self.endpoint = endpoint
        self._server = server
        self._gate = gate
        self._unlink = unlink

    async def close(self) -> None:
        # Not wait_closed: since Python 3.12 it waits for the accepted connections too, and those live on.
        self._server.close()
        if self._gate is not None:
            await self._gate.close()
        if self._unlink:
            _unlink_socket(self._unlink)


class _TlsGate:
    """Accepts raw connections and lets those through that finish the TLS handshake.

    asyncio's own TLS server tells the protocol nothing before the handshake is over and nothing at all when
    it fails, so unauthenticated connections could not be counted.
    """

    def __init__(self, context: ssl.SSLContext, factory: Factory) -> None:
        self._context = context
        self._factory = factory
        self._tasks = TaskScope("tls", self._failed)

    def admit(self) -> asyncio.Protocol:
        inner = self._factory()
        return inner if isinstance(inner, Turnstile) else _Held(self, inner)

    def shake(self, raw: asyncio.Transport, held: _Held) -> None:
        self._tasks.spawn(self._shake(raw, held), "handshake")

    async def close(self) -> None:
        await self._tasks.close()

    async def _shake(self, raw: asyncio.Transport, held: _Held) -> None:
        transport: asyncio.Transport | None = None
        problem = "the peer left during the TLS handshake"
        try:
            transport = await asyncio.get_running_loop().start_tls(
                raw,
                held,
                self._context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S_MAX,
                ssl_shutdown_timeout=CLOSE_S_MAX,
            )
        except OSError as error:  # Also what ssl raises.
            problem = f"TLS handshake failed: {error}"
        finally:
            held.release(raw, transport, problem)

    def _failed(self, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": "a TLS handshake failed in an unforeseen way", "exception": error}
        )


class _Held(asyncio.Protocol):
    """Stands in for a protocol until the TLS handshake is over, and keeps what arrives meanwhile.

    The first bytes of the peer can arrive together with the end of its handshake, before the task that waits
    for that has run.
    """

    def __init__(self, gate: _TlsGate, inner: asyncio.Protocol) -> None:
        self._gate = gate
        self._inner = inner
        self._chunks: list[bytes] = []
        self._lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        stream = cast(asyncio.Transport, transport)
        stream.pause_reading()
        self._gate.shake(stream, self)

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True

    def release(self, raw: asyncio.Transport, transport: asyncio.Transport | None, problem: str) -> None:
        """Hand everything to the protocol that was meant, or tell it that there will be nothing."""
        if transport is None or self._lost:
            raw.abort()
            self._inner.connection_lost(ConnectionError(problem))
            return
        transport.set_protocol(self._inner)
        self._inner.connection_made(transport)
        for chunk in self._chunks:
            self._inner.data_received(chunk)


async def _listen_tcp(endpoint: Endpoint, factory: Factory, gate: _TlsGate | None = None) -> Listener:
    host = "0.0.0.0" if endpoint.host == "*" else endpoint.host
    server = await asyncio.get_running_loop().create_server(factory, host, endpoint.port, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    return _StreamListener(endpoint.with_port(port), server, gate, unlink="")


async def _listen_unix(endpoint: Endpoint, factory: Factory) -> Listener:
    loop = asyncio.get_running_loop()
    if os.path.exists(endpoint.path):
        # A file that a dead process left behind is in the way; a living listener is not to be robbed.
        try:
            transport, _ = await loop.create_unix_connection(asyncio.Protocol, endpoint.path)
        except ConnectionRefusedError:
            _unlink_socket(endpoint.path)
        except OSError as error:
            raise BadEndpoint(f"{endpoint} exists and is no socket of ours: {error.strerror}") from error
        else:
            transport.abort()
            raise AddressInUse(f"{endpoint} is in use; is another process bound to it?")
    server = await loop.create_unix_server(factory, endpoint.path, backlog=1024)
    return _StreamListener(endpoint, server, None, unlink=endpoint.path)


def _unlink_socket(path: str) -> None:
    try:
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass


def _context(tls: Tls | None, endpoint: Endpoint, *, server: bool) -> ssl.SSLContext:
    if tls is None:
        raise BadArgument(f"{endpoint} needs credentials: give the socket tls=Tls(cert=..., key=..., ca=...)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(tls.cert, tls.key)
        context.load_verify_locations(tls.ca)
    except (OSError, ssl.SSLError) as error:
        raise BadArgument(f"cannot use the credentials {tls}: {error}") from error
    return context


def _memory() -> Network:
    """Names of inproc endpoints are known within one event loop."""
    loop = asyncio.get_running_loop()
    network = _inproc.get(loop)
    if network is None:
        network = _inproc[loop] = MemoryNetwork()
    return network
