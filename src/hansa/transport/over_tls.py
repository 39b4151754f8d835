"""A TLS listener that counts its guests before it knows them.

asyncio's own TLS server tells a protocol nothing before the handshake is over, and nothing at all when it
fails, so connections that are not authenticated yet could be neither counted nor bounded. Here the raw
connection is accepted first, the factory decides whether it may try, and whoever fails is reported.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from hansa.endpoint import Endpoint
from hansa.limits import ACCEPT_BACKLOG_MAX, ACCEPT_RETRY_S, CLOSE_S_MAX
from hansa.transport.over_asyncio import Turnstile
from hansa.transport.over_tasks import TaskScope


class TlsListener:
    """Accepts, shakes hands in a task per connection, and hands over what is authenticated."""

    def __init__(
        self,
        endpoint: Endpoint,
        listening: socket.socket,
        factory: Callable[[], asyncio.Protocol],
        *,
        context: ssl.SSLContext,
        handshake_s_max: float,
    ) -> None:
        self.endpoint = endpoint
        self._socket = listening
        self._factory = factory
        self._context = context
        self._handshake_s_max = handshake_s_max
        self._tasks = TaskScope(f"tls listener {endpoint}", self._failed)
        self._tasks.spawn(self._accept(), "accept")

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        factory: Callable[[], asyncio.Protocol],
        *,
        context: ssl.SSLContext,
        handshake_s_max: float,
    ) -> TlsListener:
        """Raises OSError."""
        host = "0.0.0.0" if endpoint.host == "*" else endpoint.host
        found = await asyncio.get_running_loop().getaddrinfo(
            host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, _, _, _, address = found[0]
        listening = socket.create_server(address, family=family, backlog=ACCEPT_BACKLOG_MAX)
        listening.setblocking(False)
        return cls(
            endpoint.with_port(listening.getsockname()[1]),
            listening,
            factory,
            context=context,
            handshake_s_max=handshake_s_max,
        )

    async def close(self) -> None:
        """Stop accepting. Handshakes under way are broken off; finished connections live on."""
        await self._tasks.close()
        self._socket.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except OSError:
                # Out of file descriptors, or the peer left already: what is in the backlog waits.
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            accepted.setblocking(False)
            inner = self._factory()
            if isinstance(inner, Turnstile):
                inner.turn_away(accepted)
            else:
                self._tasks.spawn(self._shake(accepted, inner), "handshake")

    async def _shake(self, accepted: socket.socket, inner: asyncio.Protocol) -> None:
        problem = "the TLS handshake was broken off"
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: inner,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_s_max,
                ssl_shutdown_timeout=CLOSE_S_MAX,
            )
            problem = ""
        except OSError as error:  # Also what ssl raises.
            problem = f"the TLS handshake failed: {error}"
        finally:
            if problem:
                accepted.close()
                inner.connection_lost(ConnectionError(problem))

    def _failed(self, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"{self.endpoint} no longer accepts; please report this", "exception": error}
        )
