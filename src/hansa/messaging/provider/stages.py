"""How far a provider has come with its registries: the connection, each entry, each question."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hansa.messaging.provider.standing import Registration
from hansa.transport.backoff import Backoff
from hansa.wire.registry import Register, Unregister, UpdateWeight


class Phase(Enum):
    """Of the connection to the active registry."""

    IDLE = "no registry to dial"
    DIALLING = "until it has shaken hands"
    UP = "connected"
    RESTING = "until the next dial"


class Step(Enum):
    """Of one entry at the active registry."""

    DUE = "REGISTER goes out at due_at"
    ASKED = "REGISTER is out"
    REGISTERED = "HEARTBEAT goes out at due_at"


@dataclass(slots=True, kw_only=True)
class Entry:
    """A service that is to be registered, and how far that has come."""

    service: str
    endpoint: str
    weight: int
    backoff: Backoff
    step: Step = Step.DUE
    due_at: float = 0.0
    token: int = 0
    """Of the newest REGISTER, then of the heartbeats."""
    entered: str = ""
    """The endpoint as the active registry has it."""
    is_sent: bool = False
    """Some registry may have it."""
    is_accepted: bool = False
    """Some registry had it once."""
    is_asked_for: bool = True
    """The program waits for the answer."""
    behind_count: int = 0
    """Times in a row that REGISTER was behind."""
    answer: Registration | None = None
    """What a registry last said about it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """What is left of an entry that is wanted no more."""

    answer: Registration | None
    is_accepted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a registry has been asked and has not answered."""

    message: Register | Unregister | UpdateWeight
    answer_by: float
