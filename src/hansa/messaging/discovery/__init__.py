"""Discovery: who provides what, by the word of several registries."""

from hansa.messaging.discovery.client import Discovery
from hansa.messaging.discovery.events import (
    DiscoveryEvent,
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceState,
    ServiceUnavailable,
    WeightChanged,
)
from hansa.messaging.discovery.over_feed import DiscoveryEvents
from hansa.messaging.discovery.stats import DiscoveryStats

__all__ = [
    "Discovery",
    "DiscoveryEvent",
    "DiscoveryEvents",
    "DiscoveryStats",
    "ProviderAdded",
    "ProviderRemoved",
    "ServiceAvailable",
    "ServiceState",
    "ServiceUnavailable",
    "WeightChanged",
]
