"""The system's own networks: TCP, TLS, Unix sockets, and names inside this process."""

from __future__ import annotations

import asyncio
import errno
import ssl
from weakref import WeakKeyDictionary

from hansa.endpoint import Endpoint
from hansa.errors import AddressInUse, BadArgument, BadEndpoint, Unavailable
from hansa.limits import CLOSE_S_MAX, HANDSHAKE_S_MAX
from hansa.transport.network import Listener, Network
from hansa.transport.options import Tls
from hansa.transport.over_accept import Factory, SocketListener, bind_tcp, bind_unix
from hansa.transport.over_memory import MemoryNetwork

_inproc: WeakKeyDictionary[asyncio.AbstractEventLoop, MemoryNetwork] = WeakKeyDictionary()


class SystemNetwork:
    """Listens and dials by an endpoint's scheme. TLS needs credentials."""

    def __init__(self, tls: Tls | None = None, *, handshake_s_max: float = HANDSHAKE_S_MAX) -> None:
        # Read at once, so that a wrong file is an error here and not in the middle of a connection.
        self._server_context = None if tls is None else _context(tls, server=True)
        self._client_context = None if tls is None else _context(tls, server=False)
        self._handshake_s_max = handshake_s_max

    def check(self, endpoint: Endpoint) -> None:
        """Raises BadArgument for an endpoint that this network has no credentials for."""
        if endpoint.scheme == "tls" and self._client_context is None:
            raise BadArgument(
                f"{endpoint} needs credentials: give the socket tls=Tls(cert=..., key=..., ca=...)"
            )

    async def listen(self, endpoint: Endpoint, factory: Factory) -> Listener:
        try:
            match endpoint.scheme:
                case "tcp":
                    listening, where = await bind_tcp(endpoint)
                    return SocketListener(where, listening, factory)
                case "tls":
                    self.check(endpoint)
                    listening, where = await bind_tcp(endpoint)
                    return SocketListener(
                        where,
                        listening,
                        factory,
                        context=self._server_context,
                        handshake_s_max=self._handshake_s_max,
                    )
                case "ipc":
                    return SocketListener(endpoint, await bind_unix(endpoint), factory)
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
                    self.check(endpoint)
                    await loop.create_connection(
                        factory,
                        endpoint.host,
                        endpoint.port,
                        ssl=self._client_context,
                        ssl_handshake_timeout=self._handshake_s_max,
                        ssl_shutdown_timeout=CLOSE_S_MAX,
                    )
                case "ipc":
                    await loop.create_unix_connection(factory, endpoint.path)
                case _:
                    await _memory().dial(endpoint, factory)
        except OSError as error:  # Also what ssl and name look-up raise.
            raise Unavailable(f"cannot reach {endpoint}: {error.strerror or error}") from error


def _context(tls: Tls, *, server: bool) -> ssl.SSLContext:
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
