"""SpotNode: a process's part in the topic mesh, which makes its spots.

A node binds its mesh, registers at a registry, and follows the other nodes that its discovery lists. Spots
share the node's connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Self, TypeAlias

from hansa.coordination.session import SessionKeeper
from hansa.endpoint import Endpoint, advertised
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    BadEndpoint,
    NotRegistered,
    RegistrationRefused,
    TimedOut,
    UsageError,
)
from hansa.ids import check_routing_id, new_routing_id
from hansa.limits import (
    CLAIM_TTL_S,
    DRAIN_S,
    EVENTS_COUNT_MAX,
    FAILOVER_S_MAX,
    FAREWELL_S_MAX,
    JOIN_S_MAX,
    QUERY_INTERVAL_S,
    REGISTER_TIMEOUT_S,
    SURVEY_S,
)
from hansa.presence.provider_info import ProviderInfo
from hansa.presence.registrations import Registrations
from hansa.presence.registry_line import RegistryLine
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import EventFeed, EventStream
from hansa.runtime.steps import Steps
from hansa.runtime.tasks import Closing, TaskScope
from hansa.services.discovery.client import Discovery
from hansa.services.discovery.events import DiscoveryEvent, ProviderAdded, ProviderRemoved
from hansa.store.store import Store
from hansa.topics.claims import TopicClaims
from hansa.topics.effects import Tell
from hansa.topics.events import SpotEvent, SpotStats, TopicReport
from hansa.topics.mover import TopicMover
from hansa.topics.names import SERVICE, check_service, check_topic
from hansa.topics.pubsub_mesh import PubSubMesh
from hansa.topics.router_mesh import RouterMesh
from hansa.topics.spot import Spot, Subscription
from hansa.topics.threads import LOOP_ADVICE, ThreadsafeSpot
from hansa.transport import Environment
from hansa.transport.system_network import SystemNetwork, default_route_host

MeshDriver: TypeAlias = RouterMesh | PubSubMesh
"""The driver that carries the messages. Nodes and spots use both kinds alike: see `RouterMesh`."""


class SpotNode:
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

    It belongs to the event loop in which it was entered, and is used once. Leaving the block closes its spots
    in the order in which they were made, tells the other nodes and the registry, and ends every connection.
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
        if isinstance(registries, str):
            raise BadArgument(f"registries is a list of endpoints: write [{registries!r}]")
        if query_interval <= 0 or (heartbeat_interval is not None and not heartbeat_interval > 0):
            raise BadArgument("query_interval and heartbeat_interval must be positive")
        if bind is None and (discovery is not None or registries):
            raise BadArgument("a node that others find needs bind=..., such as 'tcp://127.0.0.1:0'")
        store = session.store if session is not None else store
        if store is not None and mesh == "pubsub":
            raise BadArgument("topics of a PUB/SUB mesh have no owners: there is nothing to claim in a store")
        environment = environment or Environment()
        self.name = name
        self.service = check_service(service)
        self.routing_id = check_routing_id(routing_id) if routing_id else new_routing_id(environment.chance)
        self._bind = None if bind is None else Endpoint.parse(bind)
        self._bound: Endpoint | None = None
        self._advertise = advertise
        self._advertised = ""
        self._discovery = discovery
        self._join_timeout_s = join_timeout
        self._network = environment.network
        self._spots: dict[Spot, None] = {}
        self._steps: Steps | None = None
        self._feeds: dict[EventFeed[SpotEvent], None] = {}
        self._events_dropped_count = 0
        self._tasks = TaskScope(name, self._task_failed)
        self._closing = Closing()
        self._registered = asyncio.Event()
        self._is_listed = asyncio.Event()
        self._refusal: RegistrationRefused | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_entered = self._is_closed = False
        self._home: Home | None = None
        self._unlisten = self._nothing
        self._was_followed = True
        self.mesh: MeshDriver = self._new_mesh(mesh, environment, query_interval)
        """For spots."""
        self.claims = (
            None
            if store is None
            else TopicClaims(
                store,
                cluster=cluster,
                service=self.service,
                node=self.routing_id,
                ttl_s=claim_ttl,
                keeper=session,
                environment=environment.fork("claims"),
                on_lost=lambda topic, reason: self.mesh.lose(check_topic(topic), reason),
                on_failure=self._task_failed,
            )
        )
        """The claims of topics, with a store; for spots."""
        self.mover: TopicMover | None = None
        """Hands topics over, with a store; for spots."""
        self._takes_topics = takes_topics
        self._heir: Spot | None = None
        if self.claims is not None and isinstance(self.mesh, RouterMesh) and bind is not None:
            self.mover = TopicMover(
                self.claims,
                self.mesh,
                node=self.routing_id,
                heir=lambda: self.heir,
                environment=environment.fork("mover"),
                on_failure=self._task_failed,
            )
        self._machine = Registrations(
            map(self._checked_registry, registries),
            heartbeat_interval_s=heartbeat_interval,
            chance=environment.chance,
        )
        self._line = RegistryLine(
            self._machine,
            routing_id=self.routing_id,
            environment=environment,
            name=name,
        )

    # -- life

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise UsageError(f"{self.name} has been used already: make a new SpotNode")
        self._is_entered = True
        self._home = Home(self.name, "other threads use the threadsafe_spot() that is made in its own")
        try:
            self._bound = await self.mesh.start()
            if self._bound is not None:
                self._advertised = str(advertised(self._bound, self._advertise, default_route_host))
            self._line.start()
            if self.mover is not None:
                self.mover.start(takes_topics=self._takes_topics)
            if self._machine.registries:
                self._begin_registering()
            if self._discovery is not None:
                self._follow(self._discovery)
                await self._join()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the spots in order, tell the others, end every connection. Closing twice does no harm.

        If it is cancelled, others may not be told: claims in a store then end with their lease.
        """
        if self._home is not None:
            self._home.check()
        await self._closing.once(self._close)

    async def _close(self) -> None:
        self._is_closed = True
        self._unlisten()
        if not self._was_followed and self._discovery is not None:
            self._discovery.unsubscribe(self.service)
        if self.mover is not None:
            self.mover.shut()
        if self.claims is not None:
            self.claims.shut()
        for spot in list(self._spots):
            spot.end()
        for feed in self._feeds:
            feed.close()
        try:
            try:
                if self._steps is not None:
                    await self._steps.close()
            finally:
                # Also when this is cancelled: otherwise the claims would be renewed for ever.
                if self.claims is not None:
                    await self.claims.close()
            if self._machine.registry is not None:
                await self._line.unregister_all(timeout=FAREWELL_S_MAX)
        finally:
            try:
                await self.mesh.close()
            finally:
                try:
                    await self._line.close()
                finally:
                    try:
                        if self.mover is not None:
                            await self.mover.close()
                    finally:
                        await self._tasks.close()

    async def drain(self, timeout: float = DRAIN_S) -> dict[str, bytes]:
        """Before closing: hand its topics over to the least loaded takers; returns which node got which.

        It takes none any more. A topic that no node takes in time stays here, and is destroyed when the node
        closes. Without a store it does nothing. Raises UsageError, AlreadyClosed. Cancelling it leaves the
        rest here.
        """
        self._check_open()
        return {} if self.mover is None else await self.mover.drain(timeout)

    # -- spots

    @property
    def heir(self) -> Spot:
        """The spot that owns the topics which other nodes hand over to this one. It closes with the node."""
        if self._heir is None or self._heir.is_closed:
            self._heir = self.spot("heir")
        return self._heir

    def spot(self, name: str = "") -> Spot:
        """A new spot, for the node's own thread. Raises UsageError, AlreadyClosed after closing."""
        self._check_open()
        spot = Spot(self, self.mesh, name)
        self._spots[spot] = None
        return spot

    def threadsafe_spot(self, name: str = "") -> ThreadsafeSpot:
        """A new spot for all other threads; its calls block. Call this in the node's own thread.

        Raises UsageError, AlreadyClosed after closing.
        """
        spot = self.spot(name)
        if self._steps is None:
            self._steps = Steps(self.name, LOOP_ADVICE)
        return ThreadsafeSpot(spot, self._steps)

    # -- the mesh

    async def unregister(self, *, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Leave the mesh without closing; returns when the registry has removed this node.

        It and its peers let go of each other within a few seconds: here the peers' topics then have no owner,
        and there its own topics have none; spots of this node still reach each other. `register` undoes it.
        Raises NotRegistered when it is unregistered already, TimedOut, UsageError. Cancelled or timed out, it
        is no longer kept registered: a registry that was not told drops it when heartbeats stay away.
        """
        self._check_registering()
        if self._keeping is None:
            raise NotRegistered(f"{self.name} has unregistered already: register() undoes it")
        self._keeping.cancel()
        self._keeping = self._refusal = None
        self._registered.clear()
        self.mesh.part()
        if self.service in self._machine.services:
            await self._line.unregister(self.service, timeout=timeout)

    async def register(self, *, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Be part of the mesh again after `unregister`; returns when it has joined, as entering does.

        Changes nothing when it is registered. Raises TimedOut, RegistrationRefused, UsageError; after these,
        or if it is cancelled, it goes on in the background.
        """
        self._check_registering()
        if self._keeping is None:
            self._begin_registering()
        await self.registered(timeout)
        if self._discovery is not None:
            await self._join()

    async def registered(self, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Wait until a registry has this node. Raises TimedOut, RegistrationRefused, UsageError."""
        self._check_registering()
        try:
            async with asyncio.timeout(timeout):
                await self._registered.wait()
        except TimeoutError:
            if self._refusal is not None:
                raise self._refusal from None
            problems = "; ".join(f"{where}: {what}" for where, what in self._machine.problems.items())
            raise TimedOut(
                f"{self.name} is not registered as {self.service!r} after {timeout} s: "
                f"{problems or 'still dialling ' + ', '.join(self._machine.registries)}"
            ) from None

    async def in_step(self, timeout: float | None = None) -> None:
        """Wait until every listed node has told its topics, or was given up. Raises TimedOut."""
        self._check_open()
        try:
            async with asyncio.timeout(timeout):
                await self.mesh.in_step()
        except TimeoutError:
            raise TimedOut(f"{self.name} has not heard every listed node after {timeout} s") from None
        self._check_open()

    async def survey(self, timeout: float = SURVEY_S) -> tuple[TopicReport, ...]:
        """Ask every node for the counts of its topics; sorted by topic. Nodes that are late are left out."""
        self._check_open()
        return await self.mesh.survey(timeout)

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it is bound, with the real port; before entering, as it was given."""
        return self._bound or self._bind

    @property
    def registry(self) -> str | None:
        """The active registry, while it is connected."""
        return self._machine.registry

    @property
    def peers(self) -> tuple[bytes, ...]:
        """Nodes that are connected now."""
        return self.mesh.peers

    @property
    def takers(self) -> dict[bytes, str]:
        """Those of `peers` that take topics which others hand over: each with its name in their store.

        The least loaded node comes first.
        """
        takers = self.mesh.takers() if isinstance(self.mesh, RouterMesh) else ()
        return {one.node: one.name for one in takers}

    @property
    def topics(self) -> dict[str, bytes]:
        """Every known topic and the routing id of its owner, this node's own included."""
        return self.mesh.topics

    @property
    def owned(self) -> tuple[str, ...]:
        """Topics that spots of this node own."""
        return tuple(outlet.feed.topic for outlet in self.mesh.exchange.outlets.values())

    @property
    def wanted(self) -> dict[str, int]:
        """Topics that spots of this node want, and how many subscriptions match each."""
        return self.mesh.wanted

    def subscribers(self, topic: str) -> tuple[bytes, ...]:
        """The other nodes that are subscribed to a topic of this node."""
        return self.mesh.subscribers(check_topic(topic))

    def subscribers_count(self, topic: str) -> int:
        """How many other nodes get the topic from this one: as its owner, or as any PUB/SUB node."""
        return self.mesh.subscribers_count(check_topic(topic))

    @property
    def has_owners(self) -> bool:
        """Whether topics of this mesh have owners: in a ROUTER mesh, not in a PUB/SUB mesh."""
        return self.mesh.has_owners

    def events(self) -> EventStream[SpotEvent]:
        """Everything that happens on this node from this call on, as an async iterator.

        It keeps a bounded number of events for a slow reader; then the oldest are dropped and counted.
        """
        self._check_open()
        feed = self.new_feed(f"the events of {self.name}")
        self._feeds[feed] = None
        return EventStream(feed, lambda: self._forget_feed(feed))

    @property
    def stats(self) -> SpotStats:
        exchange, tally, strikes = self.mesh.exchange, self.mesh.tally, self.mesh.strikes
        subscriptions = [one for spot in self._spots for one in spot.subscriptions]
        return SpotStats(
            spots_count=len(self._spots),
            subscriptions_count=len(subscriptions),
            peers_count=len(self.mesh.peers),
            topics_count=self.mesh.topics_count,
            owned_count=len(exchange.outlets),
            published_count=exchange.published_count,
            dropped_count=self.mesh.dropped_count,
            delivered_count=exchange.delivered_count,
            inbox_dropped_count=sum(one.dropped_count for one in subscriptions),
            missed_count=tally.missed_count,
            duplicates_count=tally.duplicates_count,
            unwanted_count=tally.unwanted_count,
            conflicts_count=tally.conflicts_count,
            demotions_count=tally.demotions_count,
            refused_count=tally.refused_count,
            subscribes_refused_count=tally.subscribes_refused_count,
            publishes_refused_count=tally.publishes_refused_count,
            publishes_in_doubt_count=tally.publishes_in_doubt_count,
            queries_count=tally.queries_count,
            unlisted_count=tally.unlisted_count,
            strangers_count=tally.strangers_count,
            bad_frames=dict(strikes.by_reason),
            expelled_count=strikes.expelled_count,
            taken_over_count=self.mesh.taken_over_count,
            moved_count=tally.moved_count,
            events_dropped_count=self._events_dropped_count,
            failovers_count=self._machine.tally.failovers_count,
        )

    # -- for spots and for the mesh

    def forget(self, spot: Spot) -> None:
        self._spots.pop(spot, None)

    def new_feed(self, what: str) -> EventFeed[SpotEvent]:
        return EventFeed(what, count_max=EVENTS_COUNT_MAX, on_drop=self._event_dropped)

    def tell(self, tell: Tell) -> None:
        # A copy: a stream that is thrown away may be collected in another thread.
        for feed in list(self._feeds):
            feed.put(tell.event)
        if isinstance(tell.to, Spot | Subscription):
            tell.to.hear(tell.event)

    # -- registry and discovery

    def _begin_registering(self) -> None:
        self._keeping = self._tasks.spawn(self._keep_registered(), "registers")

    async def _keep_registered(self) -> None:
        while True:
            try:
                await self._line.register(self.service, self._advertised, 1, timeout=None)
            except RegistrationRefused as error:
                # The node that holds the endpoint may leave.
                self._refusal = error
                await asyncio.sleep(FAILOVER_S_MAX)
            else:
                self._refusal = None
                self._registered.set()
                self.mesh.rejoin()
                return

    def _follow(self, discovery: Discovery) -> None:
        self._was_followed = discovery.follows(self.service)
        self._unlisten = discovery.listen(self._discovered)
        # The discovery tells known nodes at once, unless the program had subscribed before.
        if self._was_followed:
            for node in discovery.providers(self.service):
                self._list(node)
        else:
            discovery.subscribe(self.service)

    def _discovered(self, event: DiscoveryEvent) -> None:
        if self._is_closed:
            return
        if isinstance(event, ProviderAdded) and event.provider.service == self.service:
            self._list(event.provider)
        elif isinstance(event, ProviderRemoved) and event.provider.service == self.service:
            if event.provider.routing_id == self.routing_id:
                self._is_listed.clear()
            self.mesh.unlist_node(event.provider)

    def _list(self, node: ProviderInfo) -> None:
        if node.routing_id == self.routing_id:
            self._is_listed.set()
        elif node.endpoint != self._advertised:
            # A node that was listed at this node's endpoint is gone: dialling there would reach this node.
            self.mesh.list_node(node)

    def _hears_registry(self) -> bool:
        return self._discovery is not None and bool(self._discovery.registries_heard)

    async def _join(self) -> None:
        """Wait until this node is listed, so that lower ids dial it, and all listed nodes have spoken."""
        try:
            async with asyncio.timeout(self._join_timeout_s):
                if self._machine.registries:
                    await self._is_listed.wait()
                await self.mesh.in_step()
        except TimeoutError:
            pass  # Nodes that are found later join later.

    # -- small things

    def _new_mesh(self, kind: str, environment: Environment, query_interval_s: float) -> MeshDriver:
        if kind == "router":
            return RouterMesh(
                self._bind,
                routing_id=self.routing_id,
                environment=environment,
                query_interval_s=query_interval_s,
                on_tell=self.tell,
                hears_registry=self._hears_registry,
                name=self.name,
            )
        if kind == "pubsub":
            return PubSubMesh(
                self._bind,
                routing_id=self.routing_id,
                environment=environment,
                on_tell=self.tell,
                name=self.name,
            )
        raise BadArgument(f"mesh is {kind!r}; write 'router' or 'pubsub'")

    def _forget_feed(self, feed: EventFeed[SpotEvent]) -> None:
        self._feeds.pop(feed, None)

    def _event_dropped(self) -> None:
        self._events_dropped_count += 1

    def _checked_registry(self, registry: str) -> str:
        endpoint = Endpoint.parse(registry)
        if not endpoint.is_dialable:
            raise BadEndpoint(f"{endpoint} cannot be dialled: give the host and port of a registry's ROUTER")
        if isinstance(self._network, SystemNetwork):
            self._network.check(endpoint)
        return str(endpoint)

    def _check_registering(self) -> None:
        self._check_open()
        if not self._machine.registries:
            raise UsageError(f"{self.name} knows no registry: give registries=[...]")

    def _check_open(self) -> None:
        if not self._is_entered:
            raise UsageError(f"{self.name} is not open yet: use `async with node:` around this call")
        if self._home is not None:
            self._home.check()
        if self._is_closed:
            raise AlreadyClosed(f"{self.name} is closed")

    def _task_failed(self, error: BaseException) -> None:
        if not self._is_closed:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"a task of {self.name} failed; please report this", "exception": error}
            )

    @staticmethod
    def _nothing() -> None:
        """There is nothing to stop listening to yet."""
