"""hansa for threads: the same names and arguments, blocking, and safe to use from many threads at once.

    from hansa import sync

    with sync.Discovery(["tcp://127.0.0.1:5550"]) as discovery, sync.Gateway(discovery) as gateway:
        discovery.subscribe("payment-service")
        discovery.wait_available("payment-service", timeout=5)
        reply = gateway.request("payment-service", b"100", msg_id=1)

One thread with an event loop works behind all objects of the process. It starts with the first one that is
opened and has ended when the last one is closed. What waits can be interrupted with Ctrl-C. Callbacks run in
that thread and must not wait; a blocking call from inside one raises UsageError instead of hanging. After a
fork, objects of the parent raise UsageError in the child; new ones can be made there.

Spots of a `sync.SpotNode` are shared by any number of threads; they are of the kind `hansa.ThreadsafeSpot`.
A lock or a leadership that is lost cannot end what a thread does: `hold.is_held` is False from that moment,
`hold.check()` raises, and so does the `with` block when it is left.

Errors, values, events, balancers and Tls are those of `hansa`.
"""

from hansa.sync.barrier import Barrier
from hansa.sync.discovery import Discovery, DiscoveryEvents
from hansa.sync.election import Campaign, Election, Leadership
from hansa.sync.event_stream import EventStream
from hansa.sync.fenced_key import FencedKey
from hansa.sync.gateway import DirectRouter, Gateway
from hansa.sync.lock import Hold, Lock, Semaphore
from hansa.sync.members import Members
from hansa.sync.news import News
from hansa.sync.node_registry import MembershipWatcher, NodeRegistry
from hansa.sync.provider import Provider
from hansa.sync.registry import Registry
from hansa.sync.routing_table import RoutingTableStore
from hansa.sync.session import Session
from hansa.sync.spot_node import SpotNode
from hansa.sync.store import Store, Watch, open_store

__all__ = [
    "Barrier",
    "Campaign",
    "DirectRouter",
    "Discovery",
    "DiscoveryEvents",
    "Election",
    "EventStream",
    "FencedKey",
    "Gateway",
    "Hold",
    "Leadership",
    "Lock",
    "Members",
    "MembershipWatcher",
    "News",
    "NodeRegistry",
    "Provider",
    "Registry",
    "RoutingTableStore",
    "Semaphore",
    "Session",
    "SpotNode",
    "Store",
    "Watch",
    "open_store",
]
