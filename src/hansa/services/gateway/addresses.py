"""The providers that a gateway knows: from a discovery, or from addresses that the program gives.

A gateway needs little of a `Discovery`, and `ProviderSource` says what. `Addresses` offers the same without
registries, for programs that know the endpoints: from a configuration, or from a table of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from hansa.endpoint import Endpoint
from hansa.errors import BadArgument, BadEndpoint
from hansa.presence.provider_info import ProviderInfo
from hansa.services.discovery.events import DiscoveryEvent, Listeners, events_between


class ProviderSource(Protocol):
    """A gateway's source of providers. A provider with an empty routing id may answer under any id."""

    @property
    def services(self) -> Mapping[str, tuple[ProviderInfo, ...]]:
        """The services that have providers, with their providers."""
        ...

    @property
    def awaits_first_list(self) -> bool:
        """Whether the providers are not known yet; `wait_heard` returns when they are."""
        ...

    @property
    def situation(self) -> str:
        """Why a provider may be unknown, for the text of an error."""
        ...

    def follows(self, service: str) -> bool:
        """Whether providers of this service would be shown."""
        ...

    def provider_count(self, service: str) -> int:
        """How many providers the service has."""
        ...

    def listen(self, callback: Callable[[DiscoveryEvent], None]) -> Callable[[], None]:
        """Call `callback` with every change from now on, at once; call the result to stop."""
        ...

    async def wait_heard(self) -> None:
        """Return as soon as the providers are known. Raises AlreadyClosed when they will never be."""


class Addresses:
    """Services and the endpoints of their providers, for a gateway without a discovery and a registry.

        async with hansa.Gateway(Addresses({"orders": ["tcp://10.0.0.5:6001", "tcp://10.0.0.6:6001"]})):

    The gateway connects to each endpoint and keeps dialling one that is away. Whichever provider answers
    there gets requests, under whatever routing id. Two spellings of one address count as two providers: use
    only one. All have weight 1. `set` changes the endpoints of a service while gateways use them; call it in
    their event loop. Any number of gateways may share one object. Raises BadEndpoint, BadArgument.
    """

    def __init__(self, services: Mapping[str, Iterable[str]] | None = None) -> None:
        self._services: dict[str, tuple[ProviderInfo, ...]] = {}
        self._listeners = Listeners(_listener_failed)
        for service, endpoints in (services or {}).items():
            self.set(service, endpoints)

    def set(self, service: str, endpoints: Iterable[str]) -> None:
        """Set the providers of a service; without any, the service has none.

        A provider that stays keeps its connection. One that is left out answers the requests it has, and is
        then disconnected. Raises BadEndpoint and BadArgument, with nothing changed.
        """
        if isinstance(endpoints, str):
            raise BadArgument(f"the endpoints of {service!r} are a list: write [{endpoints!r}]")
        before = self._services.get(service, ())
        after = tuple(
            ProviderInfo(service=service, endpoint=endpoint, routing_id=b"", weight=1, registered_at=0.0)
            for endpoint in dict.fromkeys(map(_dialable, endpoints))
        )
        if after:
            self._services[service] = after
        else:
            self._services.pop(service, None)
        self._listeners.tell(events_between(service, before, after))

    # -- what a gateway asks

    @property
    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """All services that have endpoints, each endpoint as a provider."""
        return dict(self._services)

    @property
    def awaits_first_list(self) -> bool:
        """Never: the providers were given."""
        return False

    @property
    def situation(self) -> str:
        """For the text of an error."""
        return "its endpoints were given by the program, and no registry is asked"

    def follows(self, service: str) -> bool:
        """Always: a service without endpoints has no provider."""
        return True

    def provider_count(self, service: str) -> int:
        """How many endpoints the service has."""
        return len(self._services.get(service, ()))

    def listen(self, callback: Callable[[DiscoveryEvent], None]) -> Callable[[], None]:
        """Call `callback` with every change from now on, within `set`; call the result to stop.

        A callback that raises is reported to the loop's exception handler, and called again for the next
        change.
        """
        return self._listeners.add(callback)

    async def wait_heard(self) -> None:
        """Return at once."""


def _dialable(text: str) -> str:
    endpoint = Endpoint.parse(text)
    if not endpoint.is_dialable:
        raise BadEndpoint(
            f"{endpoint} says where to listen, not where to dial: give the provider's host and port"
        )
    return str(endpoint)


def _listener_failed(error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": "a listener to addresses failed", "exception": error}
    )
