"""Lists as registries send them, and what a directory makes of them, in few words."""

from hansa.limits import REGISTRY_GRACE_S
from hansa.services.discovery.directory import Directory
from hansa.services.discovery.events import (
    DiscoveryEvent,
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceUnavailable,
    WeightChanged,
)
from hansa.wire.listing import ProviderEntry, ServiceList, Tombstone

SILENCE_S = 90.0
Services = dict[str, list[ProviderEntry]]


def entry(endpoint: str, routing_id: bytes = b"", weight: int = 1, epoch: int = 0) -> ProviderEntry:
    return ProviderEntry(
        endpoint=endpoint, routing_id=routing_id or endpoint.encode(), weight=weight, epoch=epoch
    )


def told(registry: int, seq: int, services: Services, *tombstones: tuple[str, str, int]) -> ServiceList:
    return ServiceList(
        registry_id=registry,
        list_seq=seq,
        services={service: tuple(entries) for service, entries in services.items()},
        tombstones=tuple(Tombstone(service=s, endpoint=e, epoch=n) for s, e, n in tombstones),
    )


def all_of() -> Directory:
    directory = Directory(silence_s=SILENCE_S)
    assert directory.subscribe_all() == []
    return directory


def end(directory: Directory, source: bytes, *, now: float) -> list[DiscoveryEvent]:
    """The connection breaks, and the grace of its registry passes: afterwards it is that much later."""
    events = directory.lost(source, now=now)
    return events + directory.tick(now=now + REGISTRY_GRACE_S)


def names(directory: Directory, service: str = "pay") -> list[str]:
    return [provider.endpoint for provider in directory.providers(service)]


def heard(directory: Directory) -> list[int]:
    return list(directory.registries_heard)


def short(events: list[DiscoveryEvent]) -> list[str]:
    """Events as text, for tables."""
    shown = []
    for event in events:
        match event:
            case ProviderAdded(provider=p):
                shown.append(f"+{p.endpoint}")
            case ProviderRemoved(provider=p):
                shown.append(f"-{p.endpoint}")
            case WeightChanged(provider=p, weight_before=before):
                shown.append(f"{p.endpoint} {before}>{p.weight}")
            case ServiceAvailable(service=service):
                shown.append(f"{service} available")
            case ServiceUnavailable(service=service):
                shown.append(f"{service} unavailable")
    return shown
