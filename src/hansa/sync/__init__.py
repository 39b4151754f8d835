"""hansa for threads: the same names and arguments, blocking, and safe to use from many threads at once.

    from hansa import sync

    with sync.Discovery(["tcp://127.0.0.1:5550"]) as discovery, sync.Gateway(discovery) as gateway:
        discovery.subscribe("payment-service")
        discovery.wait_available("payment-service", timeout=5)
        reply = gateway.request("payment-service", b"100", msg_id=1)

One thread with an event loop works behind all objects of the process. It starts with the first one that is
opened and has ended when the last one is closed. Waiting calls can be interrupted with Ctrl-C. Callbacks run
in that thread and must not wait; a blocking call from inside one raises UsageError instead of hanging. After
a fork, objects of the parent raise UsageError in the child; new ones can be made there.

Any number of threads may share the spots of a `sync.SpotNode`; they are of the kind `hansa.ThreadsafeSpot`. A
lost lock or leadership cannot stop what a thread does: `hold.is_held` is False from that moment,
`hold.check()` raises, and so does the `with` block when it is left.

Errors, values, events, balancers and Tls are those of `hansa`.

The thread side, and what does not follow mechanically from the asynchronous classes, is by hand:
- `mirror`: what all objects share: the thread and its event loop, from opened to closed; `open_store`.
- `calls`: the gateway's hot path, and handlers.
- `streams`: blocking iterators over events and changes.
- `ownership`: the blocks of locks and elections.
The mirrors themselves, `services`, `topics`, `store`, `sessions` and `coordination`, are written by
`mirrors/build.py`.
"""

from hansa.sync.coordination import Barrier, Election, Hold, Leadership, Lock, Members, Semaphore
from hansa.sync.mirror import open_store
from hansa.sync.ownership import Campaign
from hansa.sync.services import DirectRouter, Discovery, Gateway, Provider, Registry
from hansa.sync.sessions import KeptSession, Session, SessionKeeper
from hansa.sync.store import FencedKey, MembershipWatcher, NodeRegistry, RoutingTableStore, Store
from hansa.sync.streams import DiscoveryEvents, EventStream, News, Watch
from hansa.sync.topics import SpotNode

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
    "KeptSession",
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
    "SessionKeeper",
    "SpotNode",
    "Store",
    "Watch",
    "open_store",
]
