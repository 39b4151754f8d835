"""Discovery: who provides what, according to several registries.

- `client`: receives the lists of registries on a SUB, and answers the program's questions.
- `directory`: the machine that merges the lists.
- `events`: what changed, as values.
- `listeners`: gives each event to every listener, in order.
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
