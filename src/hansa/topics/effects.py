"""What the mesh's machines ask their driver to do, know of a connected peer, and count. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from hansa.topics.events import SpotEvent
from hansa.transport.outbox import Outbox
from hansa.wire.topics import SpotCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Send a command to one peer."""

    peer: bytes
    command: SpotCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Broadcast:
    """Send a command to every connected peer."""

    command: SpotCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Report an event to all listeners on this node, and to the spot or subscription that it concerns."""

    event: SpotEvent
    to: object = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Let publishers and hand-overs that wait for a topic on its way try again."""


Effect: TypeAlias = Send | Broadcast | Tell | Resume


class Peer:
    """A connected node. If it connects again, it becomes another `Peer`."""

    def __init__(self, peer: bytes, box: Outbox) -> None:
        self.id = peer
        self.box = box
        self.taker = ""
        """The node's name in the store, if it takes topics that are handed over."""
        self.is_hansa = False
        """Whether it understands extension frames, and confirms subscriptions."""
        self.heard_count = 0
        """How often it said something that nodes say; several messages at once may count as one."""
        self.subscribed: dict[bytes, None] = {}
        """Topics of this node that the peer receives."""
        self.asked: dict[bytes, int] = {}
        """Topics of the peer that this node asked for, each with its number of unanswered SUBSCRIBEs."""
        self.left: dict[bytes, None] = {}
        """Topics that this node, by its last word to the peer, no longer wants; the oldest are forgotten."""
        self.published_count = 0
        """How many PUBLISH commands it was sent and has not refused."""

    def answered(self, topic: bytes) -> bool:
        """Note the answer to one SUBSCRIBE; returns whether no other one waits for its answer."""
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
