"""What a socket stands on: something that listens and dials."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from hansa.endpoint import Endpoint
    from hansa.transport.chunks import StreamProtocol


class Listener(Protocol):
    """An open door. Closing it stops new connections and leaves the accepted ones alone."""

    @property
    def endpoint(self) -> Endpoint:
        """Where it really listens: the port that was found, when a free one was asked for."""
        ...

    async def close(self) -> None:
        """Stop accepting and free the address."""
        ...


class Network(Protocol):
    """Carries byte streams between endpoints.

    A factory is called once per connection, when it is accepted or dialled. A protocol that was
    accepted always gets exactly one `connection_lost`, also when it never got `connection_made`
    (a TLS handshake that failed), so that whoever counts connections counts right.
    """

    async def listen(self, endpoint: Endpoint, factory: Callable[[], StreamProtocol]) -> Listener:
        """Raises AddressInUse, BadEndpoint."""
        ...

    async def dial(self, endpoint: Endpoint, factory: Callable[[], StreamProtocol]) -> None:
        """Returns when the stream stands. Raises Unavailable when nobody answers there."""
        ...
