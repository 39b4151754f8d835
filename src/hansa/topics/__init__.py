"""Topics: nodes that own topics by name, and the spots that publish and subscribe through them.

In the order in which a message goes from `publish` to `recv`:

- `node`: a process's part in the mesh. `spot`: what a program publishes and reads with, with subscriptions.
- `fanout`: the hot path: one message to all who subscribed. `inbox`: what waits to be read.
- `mesh_driver`: what a node and its spots expect of a mesh, of which there are two:
  `router_mesh` drives `mesh`, where each topic has an owner; `pubsub_mesh` drives `open_mesh`, where none
  has one.
- `wants`, `owners`, `interests`: which topics are wanted here, who owns them, which subscription wants which.
- `doorkeeper`: which nodes this one stays connected with. `claims`: topics claimed in a store.
- `threads`, `tap`: spots for threads, and messages on their way to them.
- `effects`, `events`, `stats`, `names`: values. `cluster_events`: events of members, bridged onto a topic.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.runtime.event_stream import EventStream
    from hansa.topics.cluster_events import TopicBridge, bridged_events
    from hansa.topics.events import (
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
    from hansa.topics.inbox import TopicMessage, WhenSlow
    from hansa.topics.node import SpotNode
    from hansa.topics.spot import Spot, Subscription
    from hansa.topics.stats import SpotStats, TopicReport
    from hansa.topics.threads import ThreadsafeSpot, ThreadsafeSubscription
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.runtime.event_stream": "EventStream",
            "hansa.topics.cluster_events": "TopicBridge bridged_events",
            "hansa.topics.events": (
                "MessagesDropped MessagesMissed PeerJoined PeerLeft PublishesInDoubt PublishesRefused "
                "SpotEvent SubscriptionActivated SubscriptionState SubscriptionSuspended TopicAnnounced "
                "TopicDemoted TopicLost TopicRemoved"
            ),
            "hansa.topics.inbox": "TopicMessage WhenSlow",
            "hansa.topics.node": "SpotNode",
            "hansa.topics.spot": "Spot Subscription",
            "hansa.topics.stats": "SpotStats TopicReport",
            "hansa.topics.threads": "ThreadsafeSpot ThreadsafeSubscription",
        },
    )

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
    "TopicBridge",
    "TopicDemoted",
    "TopicLost",
    "TopicMessage",
    "TopicRemoved",
    "TopicReport",
    "WhenSlow",
    "bridged_events",
]
