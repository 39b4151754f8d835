"""The gateway: requests to services by name, shared out over their providers.

In the order in which a request goes through them:

- `client`: what users call, and the bound on how many requests are in flight; `direct` for those who choose
  the provider themselves, `completion` for outcomes as values.
- `over_switchboard`: the way of every request, from opened to settled; `headers` go with it.
- `calls`: open requests, their deadlines and their tries; `over_call_timers` wakes up for both.
- `over_service`: the connections of each service; `pool` decides who of them may get requests.
- `balancers`: who gets the next one.
- `retry`, `hedging`: whether a request gets another try, after the first or beside it.
- `stats`: what was counted.
"""

from hansa.messaging.gateway.balancers import (
    Balancer,
    Choice,
    Rendezvous,
    RoundRobin,
    TwoChoices,
    Weighted,
)
from hansa.messaging.gateway.client import Gateway
from hansa.messaging.gateway.completion import Completion
from hansa.messaging.gateway.direct import DirectRouter
from hansa.messaging.gateway.retry import RetryPolicy
from hansa.messaging.gateway.stats import GatewayStats

__all__ = [
    "Balancer",
    "Choice",
    "Completion",
    "DirectRouter",
    "Gateway",
    "GatewayStats",
    "Rendezvous",
    "RetryPolicy",
    "RoundRobin",
    "TwoChoices",
    "Weighted",
]
