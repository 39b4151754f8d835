"""Topics: nodes that own topics by name, and the spots that publish and subscribe through them."""

from hansa.messaging.spot.events import (
    MessagesDropped,
    MessagesMissed,
    PeerJoined,
    PeerLeft,
    PublishesInDoubt,
    PublishesRefused,
    SpotEvent,
    SubscriptionActivated,
    SubscriptionState,
    SubscriptionSuspended,
    TopicAnnounced,
    TopicDemoted,
    TopicLost,
    TopicRemoved,
)
from hansa.messaging.spot.inbox import TopicMessage, WhenSlow
from hansa.messaging.spot.node import SpotNode
from hansa.messaging.spot.over_spot import Spot
from hansa.messaging.spot.over_subscription import Subscription
from hansa.messaging.spot.over_threads import ThreadsafeSpot, ThreadsafeSubscription
from hansa.messaging.spot.stats import SpotStats, TopicReport
from hansa.transport.over_events import EventStream

__all__ = [
    "EventStream",
    "MessagesDropped",
    "MessagesMissed",
    "PeerJoined",
    "PeerLeft",
    "PublishesInDoubt",
    "PublishesRefused",
    "Spot",
    "SpotEvent",
    "SpotNode",
    "SpotStats",
    "Subscription",
    "SubscriptionActivated",
    "SubscriptionState",
    "SubscriptionSuspended",
    "ThreadsafeSpot",
    "ThreadsafeSubscription",
    "TopicAnnounced",
    "TopicDemoted",
    "TopicLost",
    "TopicMessage",
    "TopicRemoved",
    "TopicReport",
    "WhenSlow",
]
