"""What the machine of a mesh asks its driver to do, and what it knows of a connected peer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hansa.messaging.spot.events import SpotEvent
from hansa.transport.outbox import Outbox
from hansa.wire.spot import SpotCommand

if TYPE_CHECKING:
    from hansa.messaging.spot.want import Subscriber


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """To one peer."""

    peer: bytes
    command: SpotCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    """To every connected peer."""

    command: SpotCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """To whoever listens on this node, and to the subscription or the spot that it concerns."""

    event: SpotEvent
    subscriber: Subscriber | None = None
    spot: object = None


Effect: TypeAlias = Send | Broadcast | Tell


class Peer:
    """A connected node. Another connection of the same node is another one."""

    def __init__(self, peer: bytes, box: Outbox) -> None:
        self.id = peer
        self.box = box
        self.is_hansa = False
        """It understands extension frames, and confirms subscriptions."""
        self.subscribed: dict[bytes, None] = {}
        self.published_count = 0
        """PUBLISH that it was sent."""
