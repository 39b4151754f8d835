"""What the machines of a mesh ask their driver to do, know of a connected peer, and count. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hansa.topics.events import SpotEvent
from hansa.transport.outbox import Outbox
from hansa.wire.topics import SpotCommand


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
    """To whoever listens on this node, and to the spot or the subscription that it concerns."""

    event: SpotEvent
    to: object = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Publishers that wait because their topic was handed over may try again."""


Effect: TypeAlias = Send | Broadcast | Tell | Resume


class Peer:
    """A connected node. Another connection of the same node is another one."""

    def __init__(self, peer: bytes, box: Outbox) -> None:
        self.id = peer
        self.box = box
        self.taker = ""
        """The name under which a store knows it, if it takes topics that are handed over."""
        self.is_hansa = False
        """It understands extension frames, and confirms subscriptions."""
        self.heard_count = 0
        """How often it was heard to say something that nodes say; several messages at once may be one."""
        self.subscribed: dict[bytes, None] = {}
        """Topics of ours that it receives."""
        self.asked: dict[bytes, int] = {}
        """Topics of its that we asked for, and how many of those questions have no answer yet."""
        self.left: dict[bytes, None] = {}
        """Topics of which it was told last that we want them no more; the oldest are forgotten."""
        self.published_count = 0
        """PUBLISH that it was sent and has not refused."""

    def answered(self, topic: bytes) -> bool:
        """One SUBSCRIBE has its answer; whether it was the last one that had none."""
        left_count = self.asked.pop(topic, 1) - 1
        if left_count:
            self.asked[topic] = left_count
        return not left_count


@dataclass(slots=True, kw_only=True)
class MeshTally:
    """Running counts."""

    queries_count: int = 0
    conflicts_count: int = 0
    demotions_count: int = 0
    missed_count: int = 0
    duplicates_count: int = 0
    unwanted_count: int = 0
    refused_count: int = 0
    subscribes_refused_count: int = 0
    publishes_refused_count: int = 0
    publishes_in_doubt_count: int = 0
    moved_count: int = 0
    unlisted_count: int = 0
    strangers_count: int = 0
