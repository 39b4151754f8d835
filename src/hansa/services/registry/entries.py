"""The rule by which registries agree about one key, and the entries of a list by service. Pure.

A claim says that a provider offers a service at an endpoint. One key (service, endpoint) may have several
claims: the provider has moved from one registry to another, a restarted provider has a new routing id, or two
processes took the same endpoint while their registries could not hear each other. Every registry decides by
the same rule, so that registries which know the same claims show the same entry:

- a claim up to the key's tombstone is dead;
- of one provider (one routing id) the highest epoch counts: it has moved;
- of several providers a living one beats an orphaned one; of living ones the first to come stays (the lowest
  epoch), of orphaned ones the last to come is the likeliest to return (the highest epoch);
- then the lower registry id decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from hansa.limits import PROVIDERS_MAX, SERVICES_MAX
from hansa.wire.listing import LIST_FRAMES_MAX, ProviderEntry

Key: TypeAlias = tuple[str, str]
"""Service name and advertised endpoint, in its canonical spelling."""

_HEAD_FRAMES = 4
_SERVICE_FRAMES = 2
_PROVIDER_FRAMES = 3


class EntryClaim(NamedTuple):
    """A provider's entry and the registry that says so. Living: neither of the two is away."""

    entry: ProviderEntry
    registry_id: int
    is_alive: bool


def newest_by_id(claims: Iterable[EntryClaim], dead_epoch: int) -> dict[bytes, EntryClaim]:
    """Of each provider the claim that counts, by its routing id."""
    newest: dict[bytes, EntryClaim] = {}
    for claim in claims:
        if claim.entry.epoch <= dead_epoch:
            continue
        known = newest.get(claim.entry.routing_id)
        if known is None or _novelty(claim) > _novelty(known):
            newest[claim.entry.routing_id] = claim
    return newest


def prevailing(newest: Mapping[bytes, EntryClaim]) -> EntryClaim | None:
    """The claim that everybody shows, of those that `newest_by_id` gave."""
    return min(newest.values(), key=_rank, default=None)


def _novelty(claim: EntryClaim) -> tuple[int, bool, int]:
    return claim.entry.epoch, claim.is_alive, -claim.registry_id


def _rank(claim: EntryClaim) -> tuple[bool, int, int]:
    epoch = claim.entry.epoch
    return not claim.is_alive, epoch if claim.is_alive else -epoch, claim.registry_id


class Entries:
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
