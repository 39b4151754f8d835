"""The gateway: requests to services by name, shared out over their providers."""

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
