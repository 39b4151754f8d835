"""What changed in a registry since the last look, as log lines."""

from __future__ import annotations

from hansa.cli.log_lines import LogLines
from hansa.ids import format_id
from hansa.presence.provider_info import ProviderInfo
from hansa.services.discovery import (
    DiscoveryEvent,
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceUnavailable,
    WeightChanged,
)
from hansa.services.discovery.events import events_between
from hansa.services.registry import Registry


class RegistryNews:
    """Compares the registry with how it was at the last look and tells the differences.

    A change is always followed by a broadcast, so a look at an unchanged count costs nothing.
    """

    def __init__(self, registry: Registry, log: LogLines) -> None:
        self._registry = registry
        self._log = log
        self._services: dict[str, tuple[ProviderInfo, ...]] = {}
        self._peers: tuple[int, ...] = ()
        self._broadcasts_count = -1

    def look(self) -> None:
        """Tell what is new: providers registered and removed, weights, peers heard and silent."""
        self._look_at_peers()
        count = self._registry.stats.broadcasts_count
        if count == self._broadcasts_count:
            return
        self._broadcasts_count = count
        before, self._services = self._services, self._registry.services
        for service in sorted(before.keys() | self._services.keys()):
            for event in events_between(service, before.get(service, ()), self._services.get(service, ())):
                tell_change(self._log, event)

    def _look_at_peers(self) -> None:
        before, self._peers = self._peers, self._registry.peers_heard
        for peer in self._peers:
            if peer not in before:
                self._log.tell("peer-heard", f"registry {peer} is heard", peer=peer)
        for peer in before:
            if peer not in self._peers:
                self._log.tell("peer-silent", f"registry {peer} is not heard any more", peer=peer)


def tell_change(log: LogLines, event: DiscoveryEvent) -> None:
    """One change of the list of providers, as a line."""
    match event:
        case ProviderAdded(provider=provider):
            log.tell("provider-added", f"{name(provider)} added, weight {provider.weight}", **facts(provider))
        case ProviderRemoved(provider=provider):
            log.tell("provider-removed", f"{name(provider)} removed", **facts(provider))
        case WeightChanged(provider=provider, weight_before=before):
            sentence = f"{name(provider)} has weight {provider.weight}, before {before}"
            log.tell("weight-changed", sentence, **facts(provider), weight_before=before)
        case ServiceAvailable(service=service):
            log.tell("service-available", f"{service} is available", service=service)
        case ServiceUnavailable(service=service):
            log.tell("service-unavailable", f"{service} is not available any more", service=service)


def name(provider: ProviderInfo) -> str:
    return f"{provider.service} at {provider.endpoint} ({format_id(provider.routing_id)})"


def facts(provider: ProviderInfo) -> dict[str, object]:
    """A provider as JSON; the routing id in the spelling that people see."""
    return {
        "service": provider.service,
        "endpoint": provider.endpoint,
        "routing_id": format_id(provider.routing_id),
        "weight": provider.weight,
        "registered_at": provider.registered_at or None,
    }
