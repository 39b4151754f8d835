"""Events and counts of topics, subscriptions and nodes, as a program gets them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class SubscriptionState(StrEnum):
    """Whether a subscription has an owner to receive from."""

    PENDING = "pending"
    """Nobody owns the topic, or the owner has not confirmed the subscription yet."""
    ACTIVE = "active"
    """What the owner publishes from now on arrives. An active pattern has topics, all of them active."""


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
    """`count` messages of a topic were lost on their way from the owner's node to this one."""

    subscription: str
    topic: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesDropped:
    """`count` messages found the subscription's inbox full since the reader was last told."""

    subscription: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDemoted:
    """Another node owns the topic too, and wins: it stays the owner, the spot that gets this event does not.

    The higher epoch of a claim in the store wins, then the lower id. What is published from now on goes
    through the winner.
    """

    topic: str
    winner: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLost:
    """The topic's claim in the store is lost: the spot that gets this event no longer owns the topic."""

    topic: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMoved:
    """A topic was handed over from one node to another, and goes on there: nothing is lost, nothing waits.

    The old owner's spot, the new owner's spot and every node get this event. `epoch` is that of the new
    owner's claim in the store.
    """

    topic: str
    source: bytes
    target: bytes
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishesRefused:
    """The node that was taken for the owner does not own the topic: `count` publishes reached nobody."""

    topic: str
    owner: bytes
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishesInDoubt:
    """The connection to an owner broke: at most `count` publishes may or may not have reached it."""

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
    """A topic has a new owner."""

    topic: str
    owner: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemoved:
    """A topic no longer has an owner."""

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
    """A snapshot of a node's counts.

    For its own topics: `published_count` messages, of which subscribed nodes missed `dropped_count` because
    their outboxes were full. On this node `delivered_count` messages were given to subscriptions, whose
    inboxes dropped `inbox_dropped_count`; `missed_count` were lost on their way here. `refused_count`
    publishes of other nodes were for topics that this node does not own; `publishes_refused_count` and
    `publishes_in_doubt_count` are its own publishes that an owner refused or may not have got.
    `taken_over_count` connections were replaced by another one of the same id; if it keeps growing, two nodes
    have one id. `moved_count` topics were handed over, to this node or away from it. `unwanted_count`
    messages came that nobody wants, as after an unsubscribe; `duplicates_count` came twice. `bad_frames`
    counts by reason what made no sense. `unlisted_count` peers were let go, or not let in, because they are
    not listed (any more) or this node has unregistered; `strangers_count` because they do not speak as nodes
    do.
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
    """One topic, as its owner reports it; a count is None if the owner is not a node of hansa's.

    `subscribers_count` counts nodes, and at the owner's node each spot.
    """

    topic: str
    owner: bytes
    subscribers_count: int | None
    published_count: int | None
    dropped_count: int | None
