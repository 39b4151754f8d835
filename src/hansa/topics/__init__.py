"""Topics: nodes that own topics by name, and the spots that publish and subscribe through them.

In the order in which a message goes from `publish` to `recv`:

- `spot`: spots and their subscriptions, with which a program publishes and reads.
- `fanout`: the hot path, which gives one message to all its subscribers, here and on other nodes.
- `router_mesh`, `pubsub_mesh`: the drivers of the two kinds of mesh, with their sockets. They write what is
  due, pass on what comes in, and wake the readers.
- `inbox`: the messages that wait to be read.

Around them `node` is a process's part in the mesh, which makes the spots. The machines that decide:

- `mesh`: for the ROUTER mesh, whose topics have owners. `open_mesh`: for the PUB/SUB mesh, whose have none.
- `wants`: which topics the local subscriptions match and receive. `owners`: which node owns which topic.
- `doorkeeper`: which nodes this one stays connected with. `claims`: topics claimed in a store.
- `moving`: how a topic goes from one owner to another while it is used. `topic_state`: the state that goes
  along. `mover`: hand-overs of topics by their records in the store.
- `lags`: what peers are told that missed messages. `names`: valid names of topics.
- `effects`: what the machines ask their drivers to do. `events`: what a program is told.

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
