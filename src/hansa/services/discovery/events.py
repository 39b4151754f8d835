"""What a discovery tells its listeners, as values, and how they follow from two lists. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from hansa.presence.provider_info import ProviderInfo


class ServiceState(StrEnum):
    """Where a subscribed service stands. One that is not subscribed is EMPTY."""

    EMPTY = "empty"
    """No provider was seen since it was subscribed."""
    AVAILABLE = "available"
    """At least one provider is listed."""
    UNAVAILABLE = "unavailable"
    """There were providers, and none is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAdded:
    """A provider of a subscribed service is listed."""

    provider: ProviderInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRemoved:
    """A provider is listed no more, or its service is no longer subscribed; as it was when last shown."""

    provider: ProviderInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightChanged:
    """A provider stays, with another weight."""

    provider: ProviderInfo
    weight_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAvailable:
    """A service has a provider; it had none."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUnavailable:
    """The last provider of a service is gone."""

    service: str


DiscoveryEvent: TypeAlias = (
    ProviderAdded | ProviderRemoved | WeightChanged | ServiceAvailable | ServiceUnavailable
)


def events_between(
    service: str, before: tuple[ProviderInfo, ...], after: tuple[ProviderInfo, ...]
) -> list[DiscoveryEvent]:
    """What leads from one list of a service's providers to the next.

    In order: removals, additions, weights, availability. A provider whose routing id changed is another
    process at the same endpoint: it is removed and added.
    """
    old = {provider.endpoint: provider for provider in before}
    new = {provider.endpoint: provider for provider in after}
    removed: list[DiscoveryEvent] = []
    for provider in before:
        now = new.get(provider.endpoint)
        if now is None or now.routing_id != provider.routing_id:
            removed.append(ProviderRemoved(provider=provider))
    added: list[DiscoveryEvent] = []
    weighed: list[DiscoveryEvent] = []
    for provider in after:
        was = old.get(provider.endpoint)
        if was is None or was.routing_id != provider.routing_id:
            added.append(ProviderAdded(provider=provider))
        elif was.weight != provider.weight:
            weighed.append(WeightChanged(provider=provider, weight_before=was.weight))
    availability: list[DiscoveryEvent] = []
    if after and not before:
        availability.append(ServiceAvailable(service=service))
    elif before and not after:
        availability.append(ServiceUnavailable(service=service))
    return [*removed, *added, *weighed, *availability]
