"""The system's own networks: TCP, TLS, Unix sockets, and names inside this process."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import stat
from collections.abc import Callable
from weakref import WeakKeyDictionary

from hansa.endpoint import Endpoint
from hansa.errors import AddressInUse, BadArgument, BadEndpoint, Unavailable
from hansa.limits import ACCEPT_BACKLOG_MAX, CLOSE_S_MAX, HANDSHAKE_S_MAX
from hansa.transport.network import Listener, Network
from hansa.transport.options import Tls
from hansa.transport.over_memory import MemoryNetwork
from hansa.transport.over_tls import TlsListener

Factory = Callable[[], asyncio.Protocol]

_inproc: WeakKeyDictionary[asyncio.AbstractEventLoop, MemoryNetwork] = WeakKeyDictionary()


class SystemNetwork:
    """Listens and dials by an endpoint's scheme. TLS needs credentials."""

    def __init__(self, tls: Tls | None = None, *, handshake_s_max: float = HANDSHAKE_S_MAX) -> None:
        self._tls = tls
        self._handshake_s_max = handshake_s_max

    async def listen(self, endpoint: Endpoint, factory: Factory) -> Listener:
        try:
            match endpoint.scheme:
                case "tcp":
                    return await _listen_tcp(endpoint, factory)
                case "tls":
                    return await TlsListener.open(
                        endpoint,
                        factory,
                        context=_context(self._tls, endpoint, server=True),
                        handshake_s_max=self._handshake_s_max,
                    )
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
                        ssl_handshake_timeout=self._handshake_s_max,
                        ssl_shutdown_timeout=CLOSE_S_MAX,
                    )
                case "ipc":
                    await loop.create_unix_connection(factory, endpoint.path)
                case _:
                    await _memory().dial(endpoint, factory)
        except OSError as error:  # Also what ssl and name look-up raise.
            raise Unavailable(f"cannot reach {endpoint}: {error.strerror or error}") from error


class _StreamListener:
    def __init__(self, endpoint: Endpoint, server: asyncio.Server, unlink: str = "") -> None:
        self.endpoint = endpoint
        self._server = server
        self._unlink = unlink

    async def close(self) -> None:
        # Not wait_closed: since Python 3.12 it waits for the accepted connections too, and those live on.
        self._server.close()
        if self._unlink:
            _unlink_socket(self._unlink)


async def _listen_tcp(endpoint: Endpoint, factory: Factory) -> Listener:
    host = "0.0.0.0" if endpoint.host == "*" else endpoint.host
    server = await asyncio.get_running_loop().create_server(
        factory, host, endpoint.port, backlog=ACCEPT_BACKLOG_MAX
    )
    port = server.sockets[0].getsockname()[1]
    return _StreamListener(endpoint.with_port(port), server)


async def _listen_unix(endpoint: Endpoint, factory: Factory) -> Listener:
    loop = asyncio.get_running_loop()
    # A file that a dead process left behind is in the way; a living listener is not to be robbed.
    try:
        transport, _ = await loop.create_unix_connection(asyncio.Protocol, endpoint.path)
    except FileNotFoundError:
        pass
    except ConnectionRefusedError:
        _unlink_socket(endpoint.path)
    else:
        transport.abort()
        raise AddressInUse(f"{endpoint} is in use; is another process bound to it?")
    server = await loop.create_unix_server(factory, endpoint.path, backlog=ACCEPT_BACKLOG_MAX)
    return _StreamListener(endpoint, server, unlink=endpoint.path)


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
