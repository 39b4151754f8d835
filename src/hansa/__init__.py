"""hansa: many Python processes acting as one system.

These are the names that a beginner needs, each loaded when it is first used. Everything else is imported from
its part: `hansa.errors`, `hansa.store`, `hansa.coordination`, `hansa.assignment`, `hansa.topics`,
`hansa.transport`, `hansa.testing`, `hansa.services.registry`, `.provider`, `.discovery` and `.gateway`.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.assignment import Assignments, Handoff, Partition, Work, Worker
    from hansa.coordination import (
        Barrier,
        Election,
        FencedKey,
        LeaderInfo,
        Leadership,
        Lock,
        Members,
        MemberStatus,
        NodeInfo,
        Semaphore,
        Session,
    )
    from hansa.errors import (
        BadEndpoint,
        Fenced,
        HandlerFailed,
        HansaError,
        NoOwner,
        NoProvider,
        PeerError,
        StaleFence,
        StoreUnavailable,
        TimedOut,
        TopicExists,
        Unavailable,
        UnknownMsgId,
        UsageError,
    )
    from hansa.installed import __version__, build_info
    from hansa.services.discovery import Discovery, ProviderInfo
    from hansa.services.gateway import (
        Choice,
        Gateway,
        Rendezvous,
        RetryPolicy,
        RoundRobin,
        TwoChoices,
        Weighted,
    )
    from hansa.services.provider import Provider, Request
    from hansa.services.registry import Registry
    from hansa.store import Compare, Delete, Get, KeyValue, Put, Store, open_store
    from hansa.topics import (
        EventStream,
        Spot,
        SpotEvent,
        SpotNode,
        Subscription,
        SubscriptionActivated,
        SubscriptionSuspended,
        ThreadsafeSpot,
        TopicMessage,
        WhenSlow,
    )
    from hansa.transport import Environment, Tls
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.assignment": "Assignments Handoff Partition Work Worker",
            "hansa.coordination": (
                "Barrier Election FencedKey LeaderInfo Leadership Lock Members MemberStatus NodeInfo "
                "Semaphore Session"
            ),
            "hansa.errors": (
                "BadEndpoint Fenced HandlerFailed HansaError NoOwner NoProvider PeerError StaleFence "
                "StoreUnavailable TimedOut TopicExists Unavailable UnknownMsgId UsageError"
            ),
            "hansa.installed": "__version__ build_info",
            "hansa.services.discovery": "Discovery ProviderInfo",
            "hansa.services.gateway": "Choice Gateway Rendezvous RetryPolicy RoundRobin TwoChoices Weighted",
            "hansa.services.provider": "Provider Request",
            "hansa.services.registry": "Registry",
            "hansa.store": "Compare Delete Get KeyValue Put Store open_store",
            "hansa.topics": (
                "EventStream Spot SpotEvent SpotNode Subscription SubscriptionActivated "
                "SubscriptionSuspended ThreadsafeSpot TopicMessage WhenSlow"
            ),
            "hansa.transport": "Environment Tls",
        },
    )

__all__ = [
    "Assignments",
    "BadEndpoint",
    "Barrier",
    "Choice",
    "Compare",
    "Delete",
    "Discovery",
    "Election",
    "Environment",
    "EventStream",
    "Fenced",
    "FencedKey",
    "Gateway",
    "Get",
    "HandlerFailed",
    "Handoff",
    "HansaError",
    "KeyValue",
    "LeaderInfo",
    "Leadership",
    "Lock",
    "MemberStatus",
    "Members",
    "NoOwner",
    "NoProvider",
    "NodeInfo",
    "Partition",
    "PeerError",
    "Provider",
    "ProviderInfo",
    "Put",
    "Registry",
    "Rendezvous",
    "Request",
    "RetryPolicy",
    "RoundRobin",
    "Semaphore",
    "Session",
    "Spot",
    "SpotEvent",
    "SpotNode",
    "StaleFence",
    "Store",
    "StoreUnavailable",
    "Subscription",
    "SubscriptionActivated",
    "SubscriptionSuspended",
    "ThreadsafeSpot",
    "TimedOut",
    "Tls",
    "TopicExists",
    "TopicMessage",
    "TwoChoices",
    "Unavailable",
    "UnknownMsgId",
    "UsageError",
    "Weighted",
    "WhenSlow",
    "Work",
    "Worker",
    "__version__",
    "build_info",
    "open_store",
]
