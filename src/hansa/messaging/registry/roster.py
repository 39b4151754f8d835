"""Entries by service, and which services have changed since they were last asked for."""

from __future__ import annotations

from hansa.limits import PROVIDERS_MAX, SERVICES_MAX
from hansa.wire.listing import LIST_FRAMES_MAX, ProviderEntry

_HEAD_FRAMES = 4
_SERVICE_FRAMES = 2
_PROVIDER_FRAMES = 3


class Roster:
    """What one list holds. Entries of a service are given out in the order of their endpoints."""

    def __init__(self) -> None:
        self._services: dict[str, dict[str, ProviderEntry]] = {}
        self._changed: dict[str, None] = {}
        self.providers_count = 0

    @property
    def services(self) -> list[str]:
        return sorted(self._services)

    @property
    def services_count(self) -> int:
        return len(self._services)

    @property
    def is_changed(self) -> bool:
        return bool(self._changed)

    def get(self, service: str, endpoint: str) -> ProviderEntry | None:
        providers = self._services.get(service)
        return None if providers is None else providers.get(endpoint)

    def providers(self, service: str) -> tuple[ProviderEntry, ...]:
        providers = self._services.get(service, {})
        return tuple(providers[endpoint] for endpoint in sorted(providers))

    def has_room(self, service: str) -> bool:
        """Whether one more provider of this service fits into a list that everybody accepts."""
        is_new = service not in self._services
        services_count = len(self._services) + is_new
        providers_count = self.providers_count + 1
        frames_count = _HEAD_FRAMES + _SERVICE_FRAMES * services_count + _PROVIDER_FRAMES * providers_count
        return (
            services_count <= SERVICES_MAX
            and providers_count <= PROVIDERS_MAX
            and frames_count <= LIST_FRAMES_MAX
        )

    def put(self, service: str, entry: ProviderEntry) -> None:
        providers = self._services.setdefault(service, {})
        if entry.endpoint not in providers:
            self.providers_count += 1
        providers[entry.endpoint] = entry
        self._changed[service] = None

    def remove(self, service: str, endpoint: str) -> None:
        providers = self._services[service]
        del providers[endpoint]
        if not providers:
            del self._services[service]
        self.providers_count -= 1
        self._changed[service] = None

    def take_changed(self) -> list[str]:
        """The services that changed since the last time, in order."""
        changed = sorted(self._changed)
        self._changed.clear()
        return changed
