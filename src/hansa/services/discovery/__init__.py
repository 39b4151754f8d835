"""Discovery: who provides what, by the word of several registries.

- `client`: hears the lists of registries on a SUB, and answers its users.
- `directory`: the machine that puts the lists together. `events`: what it tells.
- `listeners`: hands events to everyone who listens, each in order.
"""

from hansa.services.discovery.client import Discovery, DiscoveryEvents, DiscoveryStats
from hansa.services.discovery.events import (
    DiscoveryEvent,
    ProviderAdded,
    ProviderRemoved,
    ServiceAvailable,
    ServiceState,
    ServiceUnavailable,
    WeightChanged,
)

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
