"""Topics: nodes that own topics by name, and the spots that publish and subscribe through them.

In the order in which a message goes from `publish` to `recv`:

- `spot`: what a program publishes and reads with, and its subscriptions.
- `fanout`: the hot path: one message to all its subscribers, here and on other nodes.
- `router_mesh`, `pubsub_mesh`: the sockets of either kind of mesh. They write what is due, pass on what
  comes, and wake whoever reads.
- `inbox`: what waits to be read.

Around them `node` is a process's part in the mesh, and where its spots come from. What decides:

- `mesh`: for the ROUTER mesh, where each topic has an owner. `open_mesh`: for the PUB/SUB mesh: none has.
- `wants`: which subscription matches which topics, and what is wanted here. `owners`: who owns which topic.
- `doorkeeper`: which nodes this one stays connected with. `claims`: topics claimed in a store.
- `moving`: how a topic goes from one owner to another while it is used. `topic_state`: what goes along.
  `mover` drives that by a record.
- `lags`: what peers are told that missed messages. `names`: what topics may be called.
- `effects`: what these ask for. `events`: what a program is told.

Beside them: `threads` are spots for threads; `cluster_events` bridges members' events onto a topic.
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
        SpotStats,
        SubscriptionActivated,
        SubscriptionState,
        SubscriptionSuspended,
        TopicAnnounced,
        TopicDemoted,
        TopicLost,
        TopicMoved,
        TopicRemoved,
        TopicReport,
    )
    from hansa.topics.inbox import TopicMessage, WhenSlow
    from hansa.topics.node import SpotNode
    from hansa.topics.spot import Spot, Subscription
    from hansa.topics.threads import ThreadsafeSpot, ThreadsafeSubscription
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.runtime.mailboxes": "EventStream",
            "hansa.topics.cluster_events": "TopicBridge bridged_events",
            "hansa.topics.events": (
                "MessagesDropped MessagesMissed PeerJoined PeerLeft PublishesInDoubt PublishesRefused "
                "SpotEvent SpotStats SubscriptionActivated SubscriptionState SubscriptionSuspended "
                "TopicAnnounced TopicDemoted TopicLost TopicMoved TopicRemoved TopicReport"
            ),
            "hansa.topics.inbox": "TopicMessage WhenSlow",
            "hansa.topics.node": "SpotNode",
            "hansa.topics.spot": "Spot Subscription",
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
    "TopicMoved",
    "TopicRemoved",
    "TopicReport",
    "WhenSlow",
    "bridged_events",
]
