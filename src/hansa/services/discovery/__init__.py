"""Discovery: which providers offer which service, according to several registries.

- `client`: receives the lists of registries on a SUB, and answers the program's questions.
- `directory`: the machine that merges the lists.
- `events`: the changes, as values, and how every listener hears of them, in order.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.presence.provider_info import ProviderInfo
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
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.presence.provider_info": "ProviderInfo",
            "hansa.services.discovery.client": "Discovery DiscoveryEvents DiscoveryStats",
            "hansa.services.discovery.events": (
                "DiscoveryEvent ProviderAdded ProviderRemoved ServiceAvailable ServiceState "
                "ServiceUnavailable WeightChanged"
            ),
        },
    )

__all__ = [
    "Discovery",
    "DiscoveryEvent",
    "DiscoveryEvents",
    "DiscoveryStats",
    "ProviderAdded",
    "ProviderInfo",
    "ProviderRemoved",
    "ServiceAvailable",
    "ServiceState",
    "ServiceUnavailable",
    "WeightChanged",
]
