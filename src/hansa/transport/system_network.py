"""The system's own networks: TCP, TLS, Unix sockets, and names inside this process.

`SystemNetwork` listens and dials by an endpoint's scheme. `SocketListener` accepts connections, and counts
them before they are authenticated. asyncio's own server cannot do that: its TLS tells a protocol nothing
before the handshake is over, and nothing at all when it fails, so connections that are not authenticated yet
could be neither counted nor bounded; and a connection that is accepted while the server closes would stay
open without an owner. `default_route_host` finds the address that a socket bound to a wildcard advertises.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import stat
from collections.abc import Callable
from ipaddress import ip_address
from weakref import WeakKeyDictionary

from hansa.endpoint import Endpoint, IpVersion
from hansa.errors import AddressInUse, BadArgument, BadEndpoint, Unavailable
from hansa.limits import (
    ACCEPT_BACKLOG_MAX,
    ACCEPT_RETRY_S,
    ACCEPT_TURN_COUNT_MAX,
    CLOSE_S_MAX,
    HANDSHAKE_S_MAX,
)
from hansa.runtime.tasks import TaskScope
from hansa.transport.connection import Turnstile
from hansa.transport.environment import Tls
from hansa.transport.memory_network import MemoryNetwork
from hansa.transport.network import Listener, Network, StreamProtocol

Factory = Callable[[], StreamProtocol]
Probe = Callable[[IpVersion], str]

# Addresses reserved for documentation: no host has them, so the default route leads to them.
_FAR_AWAY: dict[IpVersion, str] = {4: "203.0.113.1", 6: "2001:db8::1"}
_DISCARD_PORT = 9
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
                f"{endpoint} needs credentials: give an Environment(tls=Tls(cert=..., key=..., ca=...))"
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
        except OSError as error:  # ssl and name look-up raise this too.
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
    """The network of inproc endpoints, whose names are known within one event loop."""
    loop = asyncio.get_running_loop()
    network = _inproc.get(loop)
    if network is None:
        network = _inproc[loop] = MemoryNetwork()
    return network


class SocketListener:
    """A bound socket. Each connection gets a task until it is open, and with TLS is authenticated."""

    def __init__(
        self,
        endpoint: Endpoint,
        listening: socket.socket,
        factory: Factory,
        *,
        context: ssl.SSLContext | None = None,
        handshake_s_max: float | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._socket = listening
        self._factory = factory
        self._context = context
        self._handshake_s_max = handshake_s_max if context is not None else None
        self._shutdown_s_max = CLOSE_S_MAX if context is not None else None
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskScope(f"listener {endpoint}", self._failed)
        self._opening: dict[socket.socket, None] = {}
        self._retry: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._listen()

    async def close(self) -> None:
        """Stop accepting. Open connections live on; handshakes under way are broken off."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        if self.endpoint.scheme == "ipc":
            unlink_socket(self.endpoint.path)
        if self._context is not None:
            for accepted in self._opening:
                # So that a handshake fails by itself: asyncio leaves a timer behind when it is cancelled.
                with contextlib.suppress(OSError):
                    accepted.shutdown(socket.SHUT_RDWR)
        await self._tasks.close(grace_s=CLOSE_S_MAX)

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_TURN_COUNT_MAX):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Out of file descriptors: the backlog waits a little.
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(ACCEPT_RETRY_S, self._listen)
                return
            accepted.setblocking(False)
            if accepted.family != socket.AF_UNIX:
                # As asyncio does for outgoing connections: the second of two small writes would wait 40 ms.
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            inner = self._factory()
            if isinstance(inner, Turnstile):
                inner.turn_away(accepted)
            else:
                self._tasks.spawn(self._open(accepted, inner), "opening a connection")

    async def _open(self, accepted: socket.socket, inner: StreamProtocol) -> None:
        problem = "the connection was broken off"
        self._opening[accepted] = None
        try:
            await self._loop.connect_accepted_socket(
                lambda: inner,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_s_max,
                ssl_shutdown_timeout=self._shutdown_s_max,
            )
            problem = ""
        except OSError as error:  # ssl raises this too.
            problem = f"the TLS handshake failed: {error}"
        finally:
            del self._opening[accepted]
            if problem:
                accepted.close()
                inner.connection_lost(ConnectionError(problem))

    def _failed(self, error: BaseException) -> None:
        self._loop.call_exception_handler(
            {
                "message": f"{self.endpoint} could not open a connection; please report this",
                "exception": error,
            }
        )


async def bind_tcp(endpoint: Endpoint) -> tuple[socket.socket, Endpoint]:
    """A listening socket, and its endpoint. Raises OSError."""
    host = "0.0.0.0" if endpoint.host == "*" else endpoint.host
    found = await asyncio.get_running_loop().getaddrinfo(
        host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, address = found[0]
    listening = socket.create_server(address, family=family, backlog=ACCEPT_BACKLOG_MAX)
    return listening, endpoint.with_port(listening.getsockname()[1])


async def bind_unix(endpoint: Endpoint) -> socket.socket:
    """A listening socket. Raises OSError, with EADDRINUSE when somebody listens there."""
    # A file that a dead process left behind is in the way; a living listener must not be replaced.
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        with contextlib.suppress(OSError):
            try:
                probe.connect(endpoint.path)
            except ConnectionRefusedError:
                unlink_socket(endpoint.path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(endpoint.path)
        listening.listen(ACCEPT_BACKLOG_MAX)
    except OSError:
        listening.close()
        raise
    return listening


def unlink_socket(path: str) -> None:
    """Remove a socket's file; a file of any other kind stays."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)


def probe_route(version: IpVersion) -> str:
    """The local address that a packet to the outside would carry. Raises `OSError` when there is no route.

    Connecting a datagram socket only asks the kernel's routing table: no packet is sent, and nothing waits.
    """
    family = socket.AF_INET if version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probing:
        probing.connect((_FAR_AWAY[version], _DISCARD_PORT))
        host: str = probing.getsockname()[0]
        return host


def default_route_host(version: IpVersion | None = None, *, probe: Probe = probe_route) -> str:
    """This machine's address on its default route: of the given IP version, or of IPv4 before IPv6.

    Raises `Unavailable` when no route leads outside or only through an address that others cannot dial.
    """
    versions: tuple[IpVersion, ...] = (4, 6) if version is None else (version,)
    found: list[str] = []
    cause: OSError | None = None
    for each in versions:
        try:
            host = probe(each)
        except OSError as failed:
            found.append(f"IPv{each}: {failed.strerror or failed}")
            cause = failed
            continue
        if _can_be_dialed(host):
            return host
        found.append(f"IPv{each}: only {host}, which others cannot dial")
    raise Unavailable(
        f"cannot find this machine's address on its default route ({'; '.join(found)}): "
        "give the endpoint to advertise, or bind to an address instead of a wildcard"
    ) from cause


def _can_be_dialed(host: str) -> bool:
    address = ip_address(host)
    # A link-local IPv6 address means something else on every interface, so others cannot use it.
    zoned = address.version == 6 and address.is_link_local
    return not (zoned or address.is_unspecified or address.is_loopback)
