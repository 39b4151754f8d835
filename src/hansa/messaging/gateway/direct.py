"""A service's socket for callers who choose the provider and the request id themselves."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hansa.limits import REQUEST_TIMEOUT_S

SendTo = Callable[[bytes, int, Sequence[bytes] | bytes, int, float | None], Coroutine[Any, Any, None]]


class DirectRouter:
    """Sends to a provider by its routing id, under a request id of the caller's own.

    The outcomes come to `Gateway.recv` with those ids. Any number of requests may be under way.
    """

    def __init__(self, peers: Callable[[], tuple[bytes, ...]], send_to: SendTo) -> None:
        self._peers = peers
        self._send_to = send_to

    @property
    def peers(self) -> tuple[bytes, ...]:
        """Routing ids of the providers that are connected now."""
        return self._peers()

    async def send(
        self,
        routing_id: bytes,
        request_id: int,
        parts: Sequence[bytes] | bytes,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> None:
        """Send to the provider with this routing id.

        Waits within the timeout until it is known who is there, and beyond the gateway's in-flight limit for
        room. Such a request is never tried again. Raises NoProvider when that provider is not connected,
        BadArgument when the request id is in flight already, TimedOut when nothing was sent in time.
        """
        await self._send_to(routing_id, request_id, parts, msg_id, timeout)
