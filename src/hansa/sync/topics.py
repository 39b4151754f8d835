"""The node of the topic mesh, for threads."""

# Written by `python -m mirrors.build` from the asynchronous classes: change those, or mirrors/plan.py.

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from hansa.endpoint import Endpoint
from hansa.limits import CLAIM_TTL_S, DRAIN_S, JOIN_S_MAX, QUERY_INTERVAL_S, REGISTER_TIMEOUT_S, SURVEY_S
from hansa.sync.mirror import Mirror
from hansa.sync.services import Discovery
from hansa.sync.sessions import SessionKeeper
from hansa.sync.store import Store
from hansa.sync.streams import EventStream
from hansa.topics.events import SpotEvent, SpotStats, TopicReport
from hansa.topics.names import SERVICE
from hansa.topics.node import SpotNode as AsyncSpotNode
from hansa.topics.threads import ThreadsafeSpot
from hansa.transport import Environment


class SpotNode(Mirror[AsyncSpotNode]):
    """Knows all topics of the mesh and carries their messages. One node serves any number of spots.

    Without a discovery it works LOCAL: its spots reach each other and nobody else. With one it registers as
    `service` with one of the `registries` (their ROUTERs), moves to another when that one fails, and connects
    to every other node that is listed under the same service. Entering waits, `join_timeout` at most, until
    these have told their topics; nodes that cannot be reached by then are found later. Nodes of
    `spot-node.blue` and of `spot-node` do not see each other.

    With a `store` a topic is claimed there before it is created, on a lease of `claim_ttl`, under `cluster`
    and `service`: two nodes never own one topic, if all nodes of the mesh have that store. A node that cannot
    renew the lease gives its topics up before another one can claim them, and reports it by `TopicLost`; the
    topics of a killed node are free when the lease ends. Nodes with a store hand topics over to each other
    (`Spot.hand_over`, `drain`); one with `takes_topics=False` gets none.

    It is used once. Leaving the block closes its spots in the order in which they were made, tells the other
    nodes and the registry, and ends every connection.
    """

    def __init__(
        self,
        bind: str | None = None,
        registries: Sequence[str] = (),
        *,
        discovery: Discovery | None = None,
        service: str = SERVICE,
        mesh: Literal["router", "pubsub"] = "router",
        advertise: str | None = None,
        routing_id: bytes = b"",
        join_timeout: float = JOIN_S_MAX,
        query_interval: float = QUERY_INTERVAL_S,
        heartbeat_interval: float | None = None,
        store: Store | None = None,
        cluster: str = "default",
        claim_ttl: float = CLAIM_TTL_S,
        session: SessionKeeper | None = None,
        takes_topics: bool = True,
        environment: Environment | None = None,
        name: str = "node",
    ) -> None:
        """With a `session` it claims on that keeper's sessions, in its store and cluster, not on its own.

        Raises BadArgument (EINVAL), BadEndpoint.
        """
        super().__init__(
            name,
            AsyncSpotNode(
                bind,
                registries,
                discovery=None if discovery is None else discovery._inner,
                service=service,
                mesh=mesh,
                advertise=advertise,
                routing_id=routing_id,
                join_timeout=join_timeout,
                query_interval=query_interval,
                heartbeat_interval=heartbeat_interval,
                store=None if store is None else store._inner,
                cluster=cluster,
                claim_ttl=claim_ttl,
                session=None if session is None else session._inner,
                takes_topics=takes_topics,
                environment=environment,
                name=name,
            ),
        )

    @property
    def service(self) -> str:
        """The name under which nodes of this mesh find each other."""
        return self._inner.service

    @property
    def routing_id(self) -> bytes:
        """The id of this node in the mesh."""
        return self._inner.routing_id

    def close(self) -> None:
        """Close the spots in order, tell the others, end every connection. Closing twice does no harm.

        If it is interrupted, others may not be told: claims in a store then end with their lease.
        """
        self.__exit__(None, None, None)

    def drain(self, timeout: float = DRAIN_S) -> dict[str, bytes]:
        """Before closing: hand its topics over to the least loaded takers; returns which node got which.

        It takes none any more. A topic that no node takes in time stays here, and is destroyed when the node
        closes. Without a store it does nothing. Raises UsageError, AlreadyClosed. Interrupting it leaves the
        rest here.
        """
        return self._call(lambda: self._inner.drain(timeout), "drain")

    @property
    def heir(self) -> ThreadsafeSpot:
        """The spot that owns the topics which other nodes hand over to this one. It closes with the node."""
        return self._ask(lambda: ThreadsafeSpot(self._inner.heir, self._held()))

    def spot(self, name: str = "") -> ThreadsafeSpot:
        """A new spot, for any number of threads. Raises UsageError before entering, AlreadyClosed later."""
        return self._held().run(lambda: ThreadsafeSpot(self._inner.spot(name), self._held()))

    def unregister(self, *, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Leave the mesh without closing; returns when the registry has removed this node.

        It and its peers let go of each other within a few seconds: here the peers' topics then have no owner,
        and there its own topics have none; spots of this node still reach each other. `register` undoes it.
        Raises NotRegistered when it is unregistered already, TimedOut, UsageError. Interrupted or timed out,
        it is no longer kept registered: a registry that was not told drops it when heartbeats stay away.
        """
        self._call(lambda: self._inner.unregister(timeout=timeout), "unregister")

    def register(self, *, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Be part of the mesh again after `unregister`; returns when it has joined, as entering does.

        Changes nothing when it is registered. Raises TimedOut, RegistrationRefused, UsageError; after these,
        or if it is interrupted, it goes on in the background.
        """
        self._call(lambda: self._inner.register(timeout=timeout), "register")

    def registered(self, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Wait until a registry has this node. Raises TimedOut, RegistrationRefused, UsageError."""
        self._call(lambda: self._inner.registered(timeout), "registered")

    def in_step(self, timeout: float | None = None) -> None:
        """Wait until every listed node has told its topics, or was given up. Raises TimedOut."""
        self._call(lambda: self._inner.in_step(timeout), "in_step")

    def survey(self, timeout: float = SURVEY_S) -> tuple[TopicReport, ...]:
        """Ask every node for the counts of its topics; sorted by topic. Nodes that are late are left out."""
        return self._call(lambda: self._inner.survey(timeout), "survey")

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it is bound, with the real port; before entering, as it was given."""
        return self._ask(lambda: self._inner.endpoint)

    @property
    def registry(self) -> str | None:
        """The active registry, while it is connected."""
        return self._ask(lambda: self._inner.registry)

    @property
    def peers(self) -> tuple[bytes, ...]:
        """Nodes that are connected now."""
        return self._ask(lambda: self._inner.peers)

    @property
    def takers(self) -> dict[bytes, str]:
        """Those of `peers` that take topics which others hand over: each with its name in their store.

        The least loaded node comes first.
        """
        return self._ask(lambda: self._inner.takers)

    @property
    def topics(self) -> dict[str, bytes]:
        """Every known topic and the routing id of its owner, this node's own included."""
        return self._ask(lambda: self._inner.topics)

    @property
    def owned(self) -> tuple[str, ...]:
        """Topics that spots of this node own."""
        return self._ask(lambda: self._inner.owned)

    @property
    def wanted(self) -> dict[str, int]:
        """Topics that spots of this node want, and how many subscriptions match each."""
        return self._ask(lambda: self._inner.wanted)

    def subscribers(self, topic: str) -> tuple[bytes, ...]:
        """The other nodes that are subscribed to a topic of this node."""
        return self._ask(lambda: self._inner.subscribers(topic))

    def subscribers_count(self, topic: str) -> int:
        """How many other nodes get the topic from this one: as its owner, or as any PUB/SUB node."""
        return self._ask(lambda: self._inner.subscribers_count(topic))

    @property
    def has_owners(self) -> bool:
        """Whether topics of this mesh have owners: in a ROUTER mesh, not in a PUB/SUB mesh."""
        return self._inner.has_owners

    def events(self) -> EventStream[SpotEvent]:
        """Everything that happens on this node from this call on, as a blocking iterator.

        It keeps a bounded number of events for a slow reader; then the oldest are dropped and counted.
        """
        return self._held().run(lambda: EventStream(self, self._inner.events()))

    @property
    def stats(self) -> SpotStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)
