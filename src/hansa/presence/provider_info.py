"""Values about providers that programs see, reserved service names, and the heartbeat's interval. Pure.

The interval is here because a registry and its providers derive it from the same rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from hansa.limits import BEAT_S_MIN, BEATS_PER_TIMEOUT, HEARTBEAT_INTERVAL_S
from hansa.wire.registry import AckStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderInfo:
    """A provider of a service and its endpoint. `registered_at` is in wall seconds; 0.0 when not known."""

    service: str
    endpoint: str
    routing_id: bytes
    weight: int
    registered_at: float


class ProviderState(Enum):
    """The state of a provider's registration of one service."""

    INIT = "init"
    BOUND = "bound"
    CONNECTED = "connected"
    REGISTERED = "registered"
    UNREGISTERED = "unregistered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A registry's last answer about a service: `status` OK, or the reason in `error`."""

    service: str
    endpoint: str
    weight: int
    registry: str
    status: AckStatus
    error: str = ""


@dataclass(slots=True, kw_only=True)
class RegistrationTally:
    """Counts of what happened so far."""

    registrations_count: int = 0
    """Services accepted for the first time."""
    reregistrations_count: int = 0
    """Services accepted again: after a failover, a registry's restart, or a change."""
    refusals_count: int = 0
    missing_count: int = 0
    """How often a registry did not have an entry that it should have."""
    behind_count: int = 0
    """How often a registry knew a later word about an entry: this machine's clock is behind another's."""
    failovers_count: int = 0
    """How often a connected registry was lost."""
    dials_failed_count: int = 0
    unanswered_count: int = 0
    """How often a registry was left because it did not answer."""
    heartbeats_count: int = 0
    stray_answers_count: int = 0
    """Answers that match no question."""


NODES: Final = "spot-node"
"""The service name of topic nodes: alone, or followed by a dot and a cluster's name."""


def is_reserved(service: str) -> bool:
    """Whether only nodes of a mesh register this name: `NODES`, and names that begin with it and a dot."""
    return f"{service}.".startswith(f"{NODES}.")


def beat_s(timeout_s: float, interval_s: float = HEARTBEAT_INTERVAL_S) -> float:
    """The time between two heartbeats for a registry with this timeout: no longer than the interval."""
    return min(interval_s, max(timeout_s / BEATS_PER_TIMEOUT, BEAT_S_MIN))
