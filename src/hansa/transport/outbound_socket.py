"""An outbound connection of a socket: dialled, and dialled again whenever it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hansa.endpoint import Endpoint
from hansa.errors import AlreadyClosed, Unavailable
from hansa.runtime.backoff import Backoff
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import Closing
from hansa.transport.connection import Connection, Lane
from hansa.transport.events import CloseReason
from hansa.transport.network import Network


class Outbound:
    """The handle that `connect` returns."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        network: Network,
        backoff: Backoff,
        dial_s_max: float,
        linger_s: float,
        make_connection: Callable[[Outbound], Connection],
        on_unreachable: Callable[[Outbound, Connection, str], None],
        on_closed: Callable[[Outbound], None],
    ) -> None:
        self.endpoint = endpoint
        self.peer = b""
        """The peer's id as last seen; empty before the first handshake."""
        self.trouble = ""
        """Why the last try to connect failed; empty while connected, and before the first try."""
        self.lane: Lane | None = None
        self.connection: Connection | None = None
        self._network = network
        self._backoff = backoff
        self._dial_s_max = dial_s_max
        self._linger_s = linger_s
        self._make_connection = make_connection
        self._on_unreachable = on_unreachable
        self._on_closed = on_closed
        self._task: asyncio.Task[None] | None = None
        self._waiters = Waiters()
        self._closing = Closing()
        self._closed = False

    @property
    def is_up(self) -> bool:
        return self.connection is not None and self.connection.is_ready

    @property
    def is_closed(self) -> bool:
        return self._closed

    async def up(self) -> bytes:
        """Wait for the handshake; returns the peer's id. Raises AlreadyClosed."""
        while not self.is_up:
            if self._closed:
                raise AlreadyClosed(f"the connection to {self.endpoint} is closed")
            await self._waiters.wait()
        return self.peer

    async def close(self) -> None:
        """Let the peer read what it was sent, as long as the socket lingers; then stop for good.

        Messages that still wait then are reported as lost.
        """
        await self._closing.once(self._close)

    async def _close(self) -> None:
        if self._closed:
            return  # The whole socket was closed before.
        self._closed = True
        self._waiters.wake_all()
        try:
            async with asyncio.timeout(self._linger_s):
                if self.connection is not None and self.connection.lane is not None:
                    await self.connection.lane.drained()
                    self.connection.ask()
                    await self.connection.confirmed()
        except (TimeoutError, AlreadyClosed):
            pass  # It took too long, or the connection ended meanwhile: the events say what was lost.
        finally:
            await self._end()

    async def _end(self) -> None:
        self.give_up()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self.connection is not None:
            await asyncio.wait((self.connection.closed,))
        self._on_closed(self)

    # -- for the socket

    def started(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def give_up(self) -> None:
        """Close the current connection, if there is one, and stop dialling."""
        self._closed = True
        self._waiters.wake_all()
        if self.connection is not None:
            self.connection.close(CloseReason.CLOSED_BY_US)

    def established(self, peer: bytes) -> None:
        self.peer = peer
        self.trouble = ""
        self._backoff.reset()
        asyncio.get_running_loop().call_soon(self._waiters.wake_all)

    async def keep_up(self) -> None:
        """Dial, wait for the end, wait a little, dial again."""
        while True:
            await self._dial_once()
            await asyncio.sleep(self._backoff.next_s())

    async def _dial_once(self) -> None:
        connection = self._make_connection(self)
        problem = "dialling was given up"
        try:
            async with asyncio.timeout(self._dial_s_max):
                await self._network.dial(self.endpoint, lambda: connection)
            problem = ""
        except Unavailable as error:
            problem = str(error)
        except TimeoutError:
            problem = f"{self.endpoint} did not answer within {self._dial_s_max} s"
        finally:
            if problem:
                self.trouble = problem
                self._on_unreachable(self, connection, problem)
        if not problem:
            self.connection = connection
            await asyncio.wait((connection.closed,))
            self.connection = None
            self.trouble = ": ".join(filter(None, (connection.reason, connection.detail)))
