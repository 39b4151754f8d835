"""What a program is told of topics, subscriptions and nodes: events and counts, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class SubscriptionState(StrEnum):
    """Whether a subscription has an owner to receive from."""

    PENDING = "pending"
    """Nobody owns the topic, or the owner has not confirmed the subscription yet."""
    ACTIVE = "active"
    """What the owner publishes from now on arrives. Of a pattern: all topics that match, and there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionActivated:
    """A topic of a subscription is active. `subscription` is the name or pattern that was subscribed."""

    subscription: str
    topic: str
    owner: bytes
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSuspended:
    """A topic of a subscription has lost its owner; the subscription waits for the next one."""

    subscription: str
    topic: str
    owner: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesMissed:
    """So many messages of a topic were lost on their way from the owner's node to this one."""

    subscription: str
    topic: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesDropped:
    """So many messages found the subscription's inbox full, since the reader was told last."""

    subscription: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDemoted:
    """Another node, of a lower id, owns the topic too: it stays the owner, the spot that is told this is not.

    What is published from now on goes through the winner.
    """

    topic: str
    winner: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLost:
    """The claim of a topic in the store is lost: the spot that is told this owns it no more."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMoved:
    """A topic was handed over, from one node to another, and goes on there: nothing is lost, nothing waits.

    The spots that owned it and that own it now are told this, and every node. `epoch` is the new owner's, of
    its claim in the store.
    """

    topic: str
    source: bytes
    target: bytes
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishesRefused:
    """The node that was taken for the owner was not: so many publishes reached nobody."""

    topic: str
    owner: bytes
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishesInDoubt:
    """The connection to an owner broke: at most so many publishes may or may not have reached it."""

    owner: bytes
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJoined:
    """Another node of the mesh is connected."""

    peer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLeft:
    """A node's connection ended; its topics have no owner until they are claimed again."""

    peer: bytes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAnnounced:
    """A topic has an owner that it did not have before."""

    topic: str
    owner: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemoved:
    """A topic has no owner any more."""

    topic: str
    owner: bytes


SpotEvent: TypeAlias = (
    SubscriptionActivated
    | SubscriptionSuspended
    | MessagesMissed
    | MessagesDropped
    | TopicDemoted
    | TopicLost
    | TopicMoved
    | PublishesRefused
    | PublishesInDoubt
    | PeerJoined
    | PeerLeft
    | TopicAnnounced
    | TopicRemoved
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotStats:
    """A snapshot of a node.

    Of its own topics: `published_count` messages, of which subscribed nodes missed `dropped_count` because
    their outboxes were full. Here `delivered_count` messages were given to subscriptions, whose inboxes
    dropped `inbox_dropped_count`; `missed_count` were lost on their way here. `refused_count` publishes of
    others were for topics that are not ours, `publishes_refused_count` and `publishes_in_doubt_count` are
    our own that an owner refused or may not have got. `taken_over_count` connections were replaced by
    another one of the same id; if it keeps growing, two nodes have one id. `moved_count` topics were handed
    over, to this node or away from it. `unwanted_count` messages came
    for nobody, as after an unsubscribe; `duplicates_count` came twice. `bad_frames` counts by reason what
    made no sense. `unlisted_count` peers were let go, or not let in, because they are not listed (any more)
    or this node has unregistered; `strangers_count` because they do not speak as nodes do.
    """

    spots_count: int
    subscriptions_count: int
    peers_count: int
    topics_count: int
    owned_count: int
    published_count: int
    dropped_count: int
    delivered_count: int
    inbox_dropped_count: int
    missed_count: int
    duplicates_count: int
    unwanted_count: int
    conflicts_count: int
    demotions_count: int
    refused_count: int
    subscribes_refused_count: int
    publishes_refused_count: int
    publishes_in_doubt_count: int
    queries_count: int
    unlisted_count: int
    strangers_count: int
    bad_frames: dict[str, int]
    expelled_count: int
    taken_over_count: int
    moved_count: int
    events_dropped_count: int
    failovers_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """One topic, as its owner tells it; None where the owner is not a node of hansa's.

    `subscribers_count` counts nodes, and at the owner's node each spot.
    """

    topic: str
    owner: bytes
    subscribers_count: int | None
    published_count: int | None
    dropped_count: int | None
