"""Topics: nodes that own topics by name, and the spots that publish and subscribe through them.

In the order in which a message goes from `publish` to `recv`:

- `spot`: what a program publishes and reads with, and its subscriptions.
- `node`: a process's part in the mesh, and where its spots come from.
- `fanout`: the hot path: one message to all its subscribers.
- `inbox`: what waits to be read.

The mesh behind them, of which there are two kinds:

- `mesh_driver`: what a node and its spots expect of either kind.
- `router_mesh` drives `mesh`, where each topic has an owner; `pubsub_mesh` drives `open_mesh`: none has.
- `wants`: which topics are wanted here. `owners`: who owns which topic. `interests`: which subscription
  matches which topic.
- `doorkeeper`: which nodes this one stays connected with. `claims`: topics claimed in a store.
- `effects`, `events`, `stats`, `names`: values.

Beside them: `threads` and `tap` are spots for threads; `cluster_events` bridges members' events onto a topic.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.runtime.mailboxes import EventStream
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
            "hansa.runtime.mailboxes": "EventStream",
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
