"""Accepts connections of TCP, TLS and Unix sockets, and counts its guests before it knows them.

asyncio's own server will not do. Its TLS tells a protocol nothing before the handshake is over, and nothing
at all when it fails, so connections that are not authenticated yet could be neither counted nor bounded; and
a connection that is accepted while it closes stays open with nobody behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Callable

from hansa.endpoint import Endpoint
from hansa.limits import ACCEPT_BACKLOG_MAX, ACCEPT_RETRY_S, ACCEPT_TURN_COUNT_MAX, CLOSE_S_MAX
from hansa.transport.over_asyncio import Turnstile
from hansa.transport.over_chunks import StreamProtocol
from hansa.transport.over_tasks import TaskScope

Factory = Callable[[], StreamProtocol]


class SocketListener:
    """A bound socket. Each connection gets a task until it stands, and with TLS is authenticated."""

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
        """Stop accepting. Connections that stand live on; handshakes under way are broken off."""
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
                # Out of file descriptors: what is in the backlog waits a little.
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(ACCEPT_RETRY_S, self._listen)
                return
            accepted.setblocking(False)
            if accepted.family != socket.AF_UNIX:
                # As asyncio does for what it dials: the second of two small writes would wait 40 ms.
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
        except OSError as error:  # Also what ssl raises.
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
    """A listening socket, and where it is. Raises OSError."""
    host = "0.0.0.0" if endpoint.host == "*" else endpoint.host
    found = await asyncio.get_running_loop().getaddrinfo(
        host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, address = found[0]
    listening = socket.create_server(address, family=family, backlog=ACCEPT_BACKLOG_MAX)
    return listening, endpoint.with_port(listening.getsockname()[1])


async def bind_unix(endpoint: Endpoint) -> socket.socket:
    """A listening socket. Raises OSError, with EADDRINUSE when somebody listens there."""
    # A file that a dead process left behind is in the way; a living listener is not to be robbed.
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
    """Remove a socket's file, and nothing that is not one."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.stat(path).st_mode):
            os.unlink(path)
