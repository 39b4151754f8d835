"""What the machine of a provider's registrations asks its driver to do, and what it has to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hansa.messaging.provider.standing import Registration
from hansa.wire.registry import Heartbeat, Register, Unregister, UpdateWeight

ProviderMessage: TypeAlias = Register | Unregister | Heartbeat | UpdateWeight


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Connect to this registry, and to no other."""

    registry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HangUp:
    """End the connection to the active registry: it does not answer."""

    registry: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Tell the active registry."""

    message: ProviderMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The active registry has the service, with this weight."""

    registration: Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The registry said no to what the program asked for."""

    registration: Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    """No registry has the service from us any more, as far as we can know."""

    service: str


Effect = Dial | HangUp | Send | Registered | Refused | Unregistered
