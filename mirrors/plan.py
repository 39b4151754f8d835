"""Which classes of hansa.sync are written from which asynchronous ones, and what does not follow by itself.

By itself follow the signature, the docstring, and the body, by the kind of the member:
- A coroutine is run in the background loop, and waited for (`_call`).
- A property or a plain method is asked in the loop's thread (`_ask`), also before the object is open and
  after it was closed.
- An argument whose class is mirrored is passed on as what is behind it. A result whose class is mirrored
  (`RESULTS`) is given as its mirror. A callback runs shielded.

Everything else about a class is said in its `Mirrored`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """Something that the asynchronous object has from the beginning, and that never changes."""

    type: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """One class. Names of members are those of the asynchronous class; one that it has not is an error."""

    name: str
    """Of the mirror, and of the asynchronous class unless that is `of` another name."""
    of: str = ""
    """The asynchronous class, if it has another mirror besides this one, which is for arguments."""
    module: str
    """Of the asynchronous class."""
    base: str = ""
    """What is by hand, in a module of `BASES`."""
    base_arguments: str = ""
    """What the base is made with; `{inner}` is the new asynchronous object."""
    owner: str = ""
    """The argument through whose object its calls go; empty for a mirror that has a life of its own."""
    is_made: bool = False
    """Made by other mirrors alone: with its owner, and the asynchronous object."""
    what: str = ""
    """What it is called in errors, as the inside of an f-string, if it has an owner."""
    doc: str = ""
    """Instead of the docstring of the asynchronous class, where that says what does not hold for threads."""
    docs: Mapping[str, str] = field(default_factory=dict)
    """So for its members, and for those without a docstring."""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    keeps: tuple[str, ...] = ()
    """Arguments that are attributes, too."""
    by_hand: frozenset[str] = frozenset()
    """Members that the base has."""
    without: frozenset[str] = frozenset()
    """Members, and arguments of `__init__`, that are not for users of threads."""
    opens: frozenset[str] = frozenset()
    closes: frozenset[str] = frozenset()
    """Coroutines that begin and end its life, besides those of the block."""
    while_open: frozenset[str] = frozenset()
    """Plain methods that are called only while it is open."""
    fixed: frozenset[str] = frozenset()
    """Properties that never change: any thread reads them."""
    anywhere: frozenset[str] = frozenset()
    """Plain members that are right at any moment, also while the loop is stuck: any thread reads them."""
    once_entered: frozenset[str] = frozenset()
    """As `anywhere`, from entering on."""
    bounded: Mapping[str, str] = field(default_factory=dict)
    """Coroutines that wait without end, and get a timeout. What is so then, as the inside of an f-string."""
    bodies: Mapping[str, str] = field(default_factory=dict)
    """What is done instead."""

    @property
    def source(self) -> str:
        """The name of the asynchronous class."""
        return self.of or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a result becomes. `{owner}` is the mirror that has a life, `{self}` the one that was called."""

    type: str
    made: str


# The bases that are generic in what is behind them.
GENERIC = frozenset({"Mirror", "EndingMirror"})

# Where the classes and functions by hand stand.
BASES: Mapping[str, str] = {
    "Mirror": "hansa.sync.mirror",
    "EndingMirror": "hansa.sync.mirror",
    "shielded": "hansa.sync.mirror",
    "within": "hansa.sync.mirror",
    "Requests": "hansa.sync.calls",
    "Handlers": "hansa.sync.calls",
    "OpeningStore": "hansa.sync.mirror",
    "Ownership": "hansa.sync.ownership",
    "Line": "hansa.sync.ownership",
    "Contest": "hansa.sync.ownership",
    "check_outside": "hansa.sync.ownership",
    "obtained": "hansa.sync.ownership",
    "EventStream": "hansa.sync.streams",
    "DiscoveryEvents": "hansa.sync.streams",
    "News": "hansa.sync.streams",
    "Watch": "hansa.sync.streams",
    "ThreadsafeSpot": "hansa.topics.threads",
}

# By the name of the result's class.
RESULTS: Mapping[str, Result] = {
    "EventStream": Result(type="EventStream", made="EventStream({owner}, {inner})"),
    "DiscoveryEvents": Result(type="DiscoveryEvents", made="DiscoveryEvents({owner}, {inner})"),
    "MembershipWatch": Result(type="News[MemberEvent]", made='News({owner}, {inner}, "the events of nodes")'),
    "RoutingTables": Result(type="News[RoutingTable]", made='News({owner}, {inner}, "the routing tables")'),
    "Watch": Result(type="Watch", made="Watch({owner}, {inner})"),
    "DirectRouter": Result(type="DirectRouter", made="DirectRouter({owner}, {inner})"),
    "Session": Result(type="KeptSession", made="KeptSession({owner}, {inner})"),
    "Spot": Result(type="ThreadsafeSpot", made="ThreadsafeSpot({inner}, {owner}._held())"),
}

# What an owner is, where its name does not say it.
OWNERS: Mapping[str, str] = {"session": "Session | SessionKeeper", "keeper": "SessionKeeper"}

# Results that must be given back when the call is interrupted as they come.
OWNED = frozenset({"Hold", "Leadership"})

COUNTED = "What it has counted."
NAME = Attribute(type="str", doc="The name under which all processes know it.")

REGISTRY = Mirrored(
    name="Registry",
    module="hansa.services.registry.server",
    base="Mirror",
    base_arguments="name, {inner}",
    opens=frozenset({"start"}),
    closes=frozenset({"stop"}),
    docs={"is_running": "Whether it is started, and not yet stopped."},
)

DISCOVERY = Mirrored(
    name="Discovery",
    module="hansa.services.discovery.client",
    base="Mirror",
    base_arguments="name, {inner}",
    docs={"__init__": "Raises BadEndpoint, BadArgument.", "stats": COUNTED},
    # It may say to write `async with`. Errors for threads have it in their texts.
    without=frozenset({"situation"}),
)

# For a thread it is always this mirror: the other sources are changed from within their event loop.
STANDS_FOR = {"ProviderSource": "Discovery", "Sessions": "Session | SessionKeeper"}

GATEWAY = Mirrored(
    name="Gateway",
    module="hansa.services.gateway.client",
    base="Requests",
    base_arguments="name, {inner}",
    doc="""Calls services by name. Every request has one outcome: a reply, or an error that says what to do.

    It follows the services that its discovery subscribes to, and connects to their providers by itself. One
    gateway serves any number of threads at once, over the same connections. Use it in a `with` block, inside
    the discovery's; leaving the block ends every open request, in whatever thread it waits, with
    AlreadyClosed.
    """,
    docs={
        "__init__": "Raises BadArgument.",
        "stats": COUNTED,
        "recv": """The next outcome of a request from `send` or a direct router, in the order of arrival.

        Raises AlreadyClosed. Several threads may wait: each outcome goes to one of them.
        """,
        "set_balancer": """
        From the next request on `balancer` chooses the provider; None is the default, round robin.

        It is kept for the service, also while the service has no provider, until another one or None is set.
        Its `choose` runs in hansa's thread: it must be quick and must not wait.
        """,
    },
    by_hand=frozenset({"request"}),
    while_open=frozenset({"submit", "abandon", "router"}),
)

DIRECT_ROUTER = Mirrored(
    name="DirectRouter",
    module="hansa.services.gateway.client",
    owner="gateway",
    is_made=True,
    what="a direct router",
)

PROVIDER = Mirrored(
    name="Provider",
    module="hansa.services.provider.server",
    base="Handlers",
    base_arguments="name, {inner}",
    doc="""A process that offers services, with plain functions as handlers. Use it once, in a `with` block.

    Entering binds and begins to look for a registry; `register` waits until one has the service. Handlers run
    in up to `threads_max` threads of its own, at most `concurrency_max` at once, and may block and use any
    object of `hansa.sync`; at most `waiting_max` more requests wait, and beyond that callers get
    ProviderBusy. A request's `deadline` is in the time of `time.monotonic()`. Leaving the block unregisters,
    lets running requests finish within the socket's linger, and closes; a handler that runs on after that
    has nobody to answer.

    Heartbeats go to the registry every 5 s, or at a third of its timeout if that is shorter. With a
    `heartbeat_interval` they go at least that often; one that is not shorter than the registry's timeout
    makes `register` raise RegistrationRefused.
    """,
    docs={"__init__": "Raises BadEndpoint, BadArgument.", "stats": COUNTED},
    attributes={
        "routing_id": Attribute(type="bytes", doc="The id of its ROUTER and of its line to the registry.")
    },
    by_hand=frozenset({"handler"}),
    # A plain function cannot be cancelled.
    without=frozenset({"cancel_s_max"}),
)

SPOT_NODE = Mirrored(
    name="SpotNode",
    module="hansa.topics.node",
    base="Mirror",
    base_arguments="name, {inner}",
    docs={
        "stats": COUNTED,
        "spot": """
        A new spot, for any number of threads. Raises UsageError before entering, AlreadyClosed later.
        """,
    },
    attributes={
        "service": Attribute(type="str", doc="The name under which nodes of this mesh find each other."),
        "routing_id": Attribute(type="bytes", doc="The id of this node in the mesh."),
    },
    while_open=frozenset({"spot", "events"}),
    fixed=frozenset({"has_owners"}),
    # All spots here are for threads. The others are for spots.
    without=frozenset({"threadsafe_spot", "forget", "new_feed", "tell"}),
)

STORE = Mirrored(
    name="Store",
    module="hansa.store.store",
    base="OpeningStore",
    doc="""Keys with revisions, transactions, leases and watches. `open_store` makes one; use it with `with`.

    As the asynchronous store, for any number of threads. Every call ends by its deadline: `timeout` seconds
    from now (None waits for ever), then TimedOut, and the request may or may not have been carried out; the
    same holds for a call that is interrupted. StoreUnavailable says that nothing was done. Wrong arguments
    raise BadArgument. When the store is closed, calls that wait end with AlreadyClosed.
    """,
    by_hand=frozenset({"__init__", "close"}),
    while_open=frozenset({"watch"}),
    fixed=frozenset({"clock"}),
    # A `Session` keeps its lease by itself.
    without=frozenset({"keep"}),
)

SESSION = Mirrored(
    name="Session",
    module="hansa.coordination.session",
    base="EndingMirror",
    base_arguments='f"session {name}" if name else "session", {inner}',
    doc="""One lease in a store, renewed until the block is left; locks and leaderships hang on it.

    As the asynchronous session, for any number of threads, which may share one. It is lost when the store
    ends the lease, or when no renewal was answered until shortly (`margin`) before the lease could end:
    then for good, and users open another one. If the store cannot be reached and comes back before that,
    nothing is lost. `is_live`, `deadline_s`, `remaining_s` and `check` ask nobody: they are true at any
    moment and never wait.

    Entering raises StoreUnavailable and TimedOut. Leaving ends the lease, in a bounded time, or lets it end
    by itself; calls that wait for something of this session end with AlreadyClosed.
    """,
    docs={
        "__init__": "Raises BadArgument.",
        "ttl_s": "How long the lease lives without a renewal.",
        "lost": "Wait until it is lost; returns the reason.",
    },
    keeps=("store",),
    attributes={"keys": Attribute(type="Keys", doc="Where what hangs on this session stands in the store.")},
    fixed=frozenset({"ttl_s", "margin_s"}),
    anywhere=frozenset({"is_live"}),
    once_entered=frozenset(
        {"lease", "deadline_s", "remaining_s", "vacant_until_s", "loop_lag_s", "failures_count", "check"}
    ),
    bounded={"lost": "{self.name} still lives"},
    # For locks, elections and what else hangs on it.
    without=frozenset({"end_lost", "spawn", "ended", "farewell_s", "end_lease", "live"}),
)

SESSION_KEEPER = Mirrored(
    name="SessionKeeper",
    module="hansa.coordination.session",
    base="EndingMirror",
    base_arguments='f"the keeper of session {name}" if name else "the keeper of a session", {inner}',
    doc="""Keeps a session open in a store: opens another one whenever one was lost. One serves a process.

    As the asynchronous keeper, for any number of threads, which share it: locks, semaphores, barriers,
    elections, members and topic nodes take it as they take a session. What hangs on a session is lost with
    it, and must be taken again on the next one.

    Entering begins to open the first session, and waits for no store; `live` waits. Leaving ends the lease of
    the last session as leaving a `Session` does; calls that wait for something of it end with AlreadyClosed.
    """,
    docs={
        "__init__": "Raises BadArgument.",
        "live": """Wait for a session that lives.

        Raises TimedOut, or StoreUnavailable if the store is why; AlreadyClosed; UsageError before entering.
        """,
    },
    keeps=("store",),
    attributes={
        "keys": Attribute(type="Keys", doc="Where what hangs on its sessions stands in the store."),
        "ttl_s": Attribute(type="float", doc="How long the lease of each session lives without a renewal."),
    },
    closes=frozenset({"close"}),
    anywhere=frozenset({"loop_lag_s"}),
    # `live(0.0)` gives the session. The others are for what hangs on it.
    without=frozenset({"session", "hang_on", "let_go", "abandon", "end_former"}),
)

KEPT_SESSION = Mirrored(
    name="KeptSession",
    of="Session",
    module="hansa.coordination.session",
    owner="keeper",
    is_made=True,
    what="a kept session",
    doc="""One session of a `SessionKeeper`, which opens and ends it. `live` returns it.

    It behaves as a `Session` does. When it is lost, the keeper opens another one: ask for that with `live`.
    """,
    docs={
        "lease": "The lease's number in the store. Asks nobody, and never waits.",
        "ttl_s": SESSION.docs["ttl_s"],
        "check": "Raise SessionLost, with the reason, unless it lives.",
        "lost": SESSION.docs["lost"],
    },
    fixed=SESSION.fixed,
    anywhere=SESSION.anywhere | SESSION.once_entered,
    bounded={"lost": "the session still lives"},
    without=SESSION.without | {"close"},
)

HOLD = Mirrored(
    name="Hold",
    module="hansa.coordination.lock",
    base="Ownership",
    base_arguments="session, inner, inner.release",
    owner="session",
    is_made=True,
    what="{self.name!r}",
    doc="""A lock, or a place in a semaphore, that is held. Give it back with `release`, or use `with hold:`.

    A thread cannot be cancelled when the hold is lost: ask `is_held`, or call `check`, between the steps of
    long work. A `with` block gives back when it is left, and raises LockLost if the hold was lost by then.
    """,
    attributes={"name": Attribute(type="str", doc="The name of the lock or semaphore.")},
    by_hand=frozenset({"hand_over"}),
    fixed=frozenset({"fence", "guard", "state"}),
    anywhere=frozenset({"is_held", "check"}),
    bounded={"lost": "{self.name} is still owned", "wanted": "nobody asked for {self.name}"},
    bodies={"release": "return self._give_back()"},
)

LOCK = Mirrored(
    name="Lock",
    module="hansa.coordination.lock",
    base="Line",
    base_arguments='f"lock {name!r}"',
    owner="session",
    what="lock {self.name!r}",
    doc="""A lock by name. Every `acquire` stands in line for itself, also with the same object.

    `with Lock(session, name) as hold:` waits for its turn, and gives back at the end. It raises LockLost when
    it is left after the lock was lost; until then the body has `hold.is_held` and `hold.check()`.
    """,
    docs={
        "__init__": "Raises BadArgument for what cannot be a name.",
        "stats": "What this object has seen so far.",
        "acquire": """Wait in line, and hold. A store that cannot be reached is waited for.

        Raises TimedOut, SessionLost, and LockLost when somebody took this waiter out of the line; UsageError
        without a timeout in a thread that is in a block of this lock: it would wait for itself. Interrupting
        it leaves the line.
        """,
    },
    attributes={"name": NAME},
)

SEMAPHORE = Mirrored(
    name="Semaphore",
    module="hansa.coordination.lock",
    base="Line",
    base_arguments='f"semaphore {name!r}"',
    owner="session",
    what="semaphore {self.name!r}",
    doc="""Up to `limit` holders at once. All who use a name at a time give the same limit, else BadArgument.

    `with semaphore as hold:` is as that of a `Lock`.
    """,
    docs={
        "__init__": "Raises BadArgument.",
        "stats": "What this object has seen so far.",
        "acquire": """Wait in line, and hold. A store that cannot be reached is waited for.

        Raises TimedOut, SessionLost, BadArgument for another limit than the others', and LockLost when
        somebody took this waiter out of the line; UsageError without a timeout in a thread whose blocks have
        all the places. Interrupting it leaves the line.
        """,
    },
    attributes={"name": NAME, "limit": Attribute(type="int", doc="How many may hold it at once.")},
)

LEADERSHIP = Mirrored(
    name="Leadership",
    module="hansa.coordination.election",
    base="Ownership",
    base_arguments="session, inner, inner.resign",
    owner="session",
    is_made=True,
    what="leadership of {self.name!r}",
    doc="""The leadership of this process. Give it back with `resign`, or use `with leadership:`.

    A thread cannot be cancelled when leadership is lost: ask `is_leading`, or call `check`, between the steps
    of long work. A `with` block resigns when it is left, and raises LeadershipLost if it was lost by then.
    """,
    attributes={"name": Attribute(type="str", doc="The name of the election.")},
    by_hand=frozenset({"hand_over"}),
    fixed=frozenset({"term", "guard", "state"}),
    anywhere=frozenset({"is_leading", "check"}),
    bounded={"lost": "{self.name} is still owned", "wanted": "nobody asked for {self.name}"},
    bodies={"resign": "return self._give_back()"},
)

ELECTION = Mirrored(
    name="Election",
    module="hansa.coordination.election",
    base="Contest",
    base_arguments="session, {inner}",
    owner="session",
    what="election {self.name!r}",
    doc="An election by name. `value` is what this candidate says of itself, an address for example.",
    docs={
        "__init__": "Raises BadArgument for what cannot be a name.",
        "stats": "What this object has seen so far.",
        "win": """Wait until this process leads. A store that cannot be reached is waited for.

        Raises TimedOut, SessionLost, and LeadershipLost when somebody took this candidate out of the line;
        UsageError without a timeout in a thread that leads, in a block. Interrupting it leaves the line.
        """,
    },
    attributes={"name": NAME},
    by_hand=frozenset({"campaign", "observe"}),
)

BARRIER = Mirrored(
    name="Barrier",
    module="hansa.coordination.barrier",
    owner="session",
    what="barrier {self.name!r}",
    docs={"__init__": "Raises BadArgument."},
    attributes={"name": NAME, "parties": Attribute(type="int", doc="How many meet.")},
)

MEMBERS = Mirrored(
    name="Members",
    module="hansa.coordination.members",
    base="EndingMirror",
    base_arguments='f"members of {cluster}" + (f" at {node.id}" if node is not None else ""), {inner}',
    docs={"stats": COUNTED},
    keeps=("store", "cluster"),
    without=frozenset({"sessions"}),
    while_open=frozenset({"events"}),
    anywhere=frozenset({"is_member", "loop_lag_s"}),
)

NODE_REGISTRY = Mirrored(
    name="NodeRegistry",
    module="hansa.coordination.nodes",
    owner="store",
    what="the node registry",
    docs={
        "__init__": "Raises BadArgument.",
        "register": """Register a node and keep it registered: give it a thread of its own.

        It returns, with the reason, when the node was deregistered or replaced by a newer process. An
        interrupt stops the renewals, and the lease ends by itself; so does closing the store, with
        AlreadyClosed. When the lease is lost it registers again, however long the store was away. Raises
        Conflict for an id that is taken, without `takeover`; BadArgument.
        """,
    },
)

MEMBERSHIP_WATCHER = Mirrored(
    name="MembershipWatcher",
    module="hansa.coordination.nodes",
    owner="store",
    what="the events of nodes",
    docs={"__init__": "Raises BadArgument."},
    while_open=frozenset({"watch"}),
)

ROUTING_TABLE_STORE = Mirrored(
    name="RoutingTableStore",
    module="hansa.coordination.routing_table",
    owner="store",
    what="the routing table",
    docs={
        "__init__": "Raises BadArgument.",
        "watch": "The current table, if there is one, then each new one. A slow reader gets the latest.",
    },
    while_open=frozenset({"watch"}),
)

FENCED_KEY = Mirrored(
    name="FencedKey",
    module="hansa.coordination.fencing",
    owner="store",
    what="{self.key!r}",
    docs={"__init__": "Raises BadArgument."},
    attributes={
        "key": Attribute(type="bytes", doc="Where the value is."),
        "fence_key": Attribute(type="bytes", doc="Where the highest fence is."),
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One generated module."""

    name: str
    opening: str
    classes: tuple[Mirrored, ...]


PAGES = (
    Page(
        name="services",
        opening="Registry, discovery, gateway and provider, for threads.",
        classes=(REGISTRY, DISCOVERY, GATEWAY, DIRECT_ROUTER, PROVIDER),
    ),
    Page(name="topics", opening="The node of the topic mesh, for threads.", classes=(SPOT_NODE,)),
    Page(
        name="store",
        opening="The store, and what a cluster keeps in it, for threads.",
        classes=(STORE, FENCED_KEY, NODE_REGISTRY, MEMBERSHIP_WATCHER, ROUTING_TABLE_STORE),
    ),
    Page(
        name="sessions",
        opening="Sessions in a store, and what keeps one open, for threads.",
        classes=(SESSION, SESSION_KEEPER, KEPT_SESSION),
    ),
    Page(
        name="coordination",
        opening="What hangs on a session, and the members of a cluster, for threads.",
        classes=(HOLD, LOCK, SEMAPHORE, LEADERSHIP, ELECTION, BARRIER, MEMBERS),
    ),
)
