"""How a service stands with the registries: values that the program sees."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hansa.wire.registry import AckStatus


class ProviderState(Enum):
    """How far a provider is with one service."""

    INIT = "init"
    BOUND = "bound"
    CONNECTED = "connected"
    REGISTERED = "registered"
    UNREGISTERED = "unregistered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a registry last said about a service: `status` OK, or why not in `error`."""

    service: str
    endpoint: str
    weight: int
    registry: str
    status: AckStatus
    error: str = ""


@dataclass(slots=True, kw_only=True)
class RegistrationTally:
    """What happened so far."""

    registrations_count: int = 0
    """Services accepted for the first time."""
    reregistrations_count: int = 0
    """Services accepted again: after a failover, a registry's restart, or a change."""
    refusals_count: int = 0
    missing_count: int = 0
    """Times a registry did not have an entry that it should have."""
    behind_count: int = 0
    """Times a registry knew a later word about an entry: this machine's clock is behind another's."""
    failovers_count: int = 0
    """Times a connected registry was lost."""
    dials_failed_count: int = 0
    unanswered_count: int = 0
    """Times a registry was left because it did not answer."""
    heartbeats_count: int = 0
    stray_answers_count: int = 0
    """Answers to nothing that was asked."""
