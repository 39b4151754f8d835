"""The gateway: requests to services by name, shared out over their providers.

In the order in which a request goes through them:

- `client`: the calls of users, and the bound on how many requests are in flight.
- `switchboard`: the way of every request, from opened to settled, and the timers of all of them.
- `calls`: open requests, their deadlines and their tries.
- `addresses`: where the providers come from: a discovery, or endpoints that the program gives.
- `links`: the connections of each service. `pool` decides which of them may get requests.
- `balancers`: which provider gets the next request.
- `tries`: whether a request gets another try, after the first or beside it.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.services.gateway.addresses import Addresses, ProviderSource
    from hansa.services.gateway.balancers import (
        Balancer,
        Choice,
        Rendezvous,
        RoundRobin,
        TwoChoices,
        Weighted,
    )
    from hansa.services.gateway.client import DirectRouter, Gateway, GatewayStats
    from hansa.services.gateway.switchboard import Completion
    from hansa.services.gateway.tries import RetryPolicy
    from hansa.wire.business import TraceContext
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.services.gateway.addresses": "Addresses ProviderSource",
            "hansa.services.gateway.balancers": "Balancer Choice Rendezvous RoundRobin TwoChoices Weighted",
            "hansa.services.gateway.client": "DirectRouter Gateway GatewayStats",
            "hansa.services.gateway.switchboard": "Completion",
            "hansa.services.gateway.tries": "RetryPolicy",
            "hansa.wire.business": "TraceContext",
        },
    )

__all__ = [
    "Addresses",
    "Balancer",
    "Choice",
    "Completion",
    "DirectRouter",
    "Gateway",
    "GatewayStats",
    "ProviderSource",
    "Rendezvous",
    "RetryPolicy",
    "RoundRobin",
    "TraceContext",
    "TwoChoices",
    "Weighted",
]
