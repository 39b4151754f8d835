"""Registry, discovery, gateway and provider, for threads."""

# Written by `python -m mirrors.build` from the asynchronous classes: change those, or mirrors/plan.py.

from __future__ import annotations

from collections.abc import Callable, Sequence

from hansa.endpoint import Endpoint
from hansa.limits import (
    BROADCAST_INTERVAL_S,
    BROADCASTS_MISSED_MAX,
    CONCURRENCY_MAX,
    DRAIN_TIMEOUT_S,
    HEARTBEAT_TIMEOUT_S,
    IN_FLIGHT_MAX,
    PROVIDER_ENTRIES_MAX,
    REGISTER_TIMEOUT_S,
    REQUEST_TIMEOUT_S,
    THREADS_MAX,
    WAITING_MAX,
)
from hansa.presence.provider_info import ProviderInfo, ProviderState, Registration
from hansa.services.discovery.client import Discovery as AsyncDiscovery
from hansa.services.discovery.client import DiscoveryStats
from hansa.services.discovery.events import DiscoveryEvent, ServiceState
from hansa.services.gateway.balancers import Balancer
from hansa.services.gateway.client import DirectRouter as AsyncDirectRouter
from hansa.services.gateway.client import Gateway as AsyncGateway
from hansa.services.gateway.client import GatewayStats
from hansa.services.gateway.switchboard import Completion
from hansa.services.gateway.tries import RetryPolicy
from hansa.services.provider.server import Provider as AsyncProvider
from hansa.services.provider.server import ProviderStats
from hansa.services.registry.server import Registry as AsyncRegistry
from hansa.services.registry.server import RegistryStats
from hansa.sync.calls import Handlers, Requests
from hansa.sync.mirror import Mirror, shielded
from hansa.sync.streams import DiscoveryEvents
from hansa.transport import Environment
from hansa.wire.business import TraceContext


class Registry(Mirror[AsyncRegistry]):
    """Keeps the entries of providers and tells them to discoveries and to the other registries.

    Providers register at `router`, discoveries and other registries listen at `pub`; `peers` are the PUB
    endpoints of the others. Use it as `with`, or `start` and `stop` it, again and again: each start begins
    empty, under a new random id unless one is given. Leaving the block frees the ports. One provider has at
    most `provider_entries_max` entries, and more are refused, so that no single one can fill the list.

    An entry that is silent for `heartbeat_timeout` is removed. Providers are told so, and beat at a third of
    it or every 5 s, whichever is sooner; `heartbeat_interval` says when other beats are expected.
    """

    def __init__(
        self,
        pub: str,
        router: str,
        *,
        peers: Sequence[str] = (),
        registry_id: int | None = None,
        heartbeat_interval: float | None = None,
        heartbeat_timeout: float = HEARTBEAT_TIMEOUT_S,
        broadcast_interval: float = BROADCAST_INTERVAL_S,
        provider_entries_max: int = PROVIDER_ENTRIES_MAX,
        environment: Environment | None = None,
        name: str = "registry",
    ) -> None:
        """Raises `BadEndpoint`, `BadArgument`."""
        super().__init__(
            name,
            AsyncRegistry(
                pub,
                router,
                peers=peers,
                registry_id=registry_id,
                heartbeat_interval=heartbeat_interval,
                heartbeat_timeout=heartbeat_timeout,
                broadcast_interval=broadcast_interval,
                provider_entries_max=provider_entries_max,
                environment=environment,
                name=name,
            ),
        )

    def close(self) -> None:
        """The same as `stop`, by the name that every component has."""
        self.__exit__(None, None, None)

    def start(self) -> None:
        """Bind both endpoints and follow the peers. If interrupted or failed, it leaves nothing behind.

        Raises `UsageError` when it is running, `AddressInUse`, `BadEndpoint`.
        """
        self._open(self._inner.start)

    def stop(self) -> None:
        """End everything and free the ports; does nothing when it does not run. Interrupting hurries it."""
        self._close(self._inner.stop)

    def add_peer(self, pub_endpoint: str) -> None:
        """Follow another registry of the cluster, at once or from the next start on. Raises `BadEndpoint`."""
        self._ask(lambda: self._inner.add_peer(pub_endpoint))

    @property
    def is_running(self) -> bool:
        """Whether it is started, and not yet stopped."""
        return self._ask(lambda: self._inner.is_running)

    @property
    def registry_id(self) -> int:
        """The id of the current or last run; before the first, the given one or 0."""
        return self._ask(lambda: self._inner.registry_id)

    @property
    def pub(self) -> Endpoint:
        """Where lists are published: with its real port while it runs, else as it was given."""
        return self._ask(lambda: self._inner.pub)

    @property
    def router(self) -> Endpoint:
        """Where providers register: with its real port while it runs, else as it was given."""
        return self._ask(lambda: self._inner.router)

    @property
    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """The merged list, as discoveries are told it; empty when it does not run."""
        return self._ask(lambda: self._inner.services)

    @property
    def peers_heard(self) -> tuple[int, ...]:
        """The ids of the other registries whose entries are in the list."""
        return self._ask(lambda: self._inner.peers_heard)

    @property
    def stats(self) -> RegistryStats:
        """The counts of the current or last run."""
        return self._ask(lambda: self._inner.stats)


class Discovery(Mirror[AsyncDiscovery]):
    """Knows which providers offer which service, from any number of registries at once.

    `registries` are PUB endpoints. A registry's list counts until the registry has been silent for
    `silence_timeout`, or until a few seconds after its connection broke, in which its providers move to
    another one; when no registry is heard any longer, the last known providers stay. Subscriptions are a
    local filter: queries and events know only subscribed services. Wrong messages of registries are counted
    by reason and change nothing; their connections are kept, because the user chose them.

    Use it with `with`; subscribing, listening and connecting are possible before that. After the block
    queries still answer with the last known state. Raises BadEndpoint, BadArgument.
    """

    def __init__(
        self,
        registries: Sequence[str] = (),
        *,
        silence_timeout: float = BROADCAST_INTERVAL_S * BROADCASTS_MISSED_MAX,
        environment: Environment | None = None,
        name: str = "discovery",
    ) -> None:
        """Raises BadEndpoint, BadArgument."""
        super().__init__(
            name,
            AsyncDiscovery(registries, silence_timeout=silence_timeout, environment=environment, name=name),
        )

    def close(self) -> None:
        """Stop hearing registries. Iterators end; waiting calls raise AlreadyClosed.

        Closing twice does no harm.
        """
        self.__exit__(None, None, None)

    def connect_registry(self, endpoint: str) -> None:
        """Hear the registry that publishes there, too. A second call for the same endpoint changes nothing.

        Returns at once, and keeps dialling while it is away. Raises BadEndpoint, AlreadyClosed, and
        BadArgument for a tls endpoint without credentials.
        """
        self._ask(lambda: self._inner.connect_registry(endpoint))

    def subscribe(self, service: str) -> None:
        """Show this service; providers known already are told to listeners at once.

        Not counted: one `unsubscribe` ends any number of them. Raises BadArgument for an impossible name.
        """
        self._ask(lambda: self._inner.subscribe(service))

    def unsubscribe(self, service: str) -> None:
        """Stop showing it, also under `subscribe_all`; listeners are told that its providers were removed."""
        self._ask(lambda: self._inner.unsubscribe(service))

    def subscribe_all(self) -> None:
        """Show every service, also those that come later."""
        self._ask(self._inner.subscribe_all)

    def follows(self, service: str) -> bool:
        """True when the service is subscribed, by name or with all."""
        return self._ask(lambda: self._inner.follows(service))

    def providers(self, service: str) -> tuple[ProviderInfo, ...]:
        """The service's providers, in the order of their endpoints; none if it is not subscribed."""
        return self._ask(lambda: self._inner.providers(service))

    def provider_count(self, service: str) -> int:
        """How many providers a subscribed service has."""
        return self._ask(lambda: self._inner.provider_count(service))

    def is_available(self, service: str) -> bool:
        """True when a subscribed service has a provider."""
        return self._ask(lambda: self._inner.is_available(service))

    def state(self, service: str) -> ServiceState:
        """EMPTY, AVAILABLE or UNAVAILABLE; EMPTY for a service that is not subscribed."""
        return self._ask(lambda: self._inner.state(service))

    @property
    def services(self) -> dict[str, tuple[ProviderInfo, ...]]:
        """All subscribed services that have providers, in the order of their names."""
        return self._ask(lambda: self._inner.services)

    @property
    def registries_heard(self) -> tuple[int, ...]:
        """Ids of the registries that are connected and have spoken within `silence_timeout`, ascending."""
        return self._ask(lambda: self._inner.registries_heard)

    @property
    def has_heard(self) -> bool:
        """True once a registry has told its list. Before that no provider is known, even if one is there."""
        return self._ask(lambda: self._inner.has_heard)

    @property
    def awaits_first_list(self) -> bool:
        """True while it has registries to hear and none of them has told its list yet."""
        return self._ask(lambda: self._inner.awaits_first_list)

    @property
    def lists_heard(self) -> dict[int, int]:
        """The number of each heard registry's newest list, by registry id. What is shown follows from it."""
        return self._ask(lambda: self._inner.lists_heard)

    @property
    def stats(self) -> DiscoveryStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)

    def listen(self, callback: Callable[[DiscoveryEvent], None]) -> Callable[[], None]:
        """Call it with every event from now on, in hansa's thread and at once; call the result to stop.

        A callback that raises is reported to the loop's exception handler, and called again for the next
        event.

        The function runs in hansa's thread, which all calls wait for: it must be quick and must not wait.
        """
        stop = self._ask(lambda: self._inner.listen(shielded(callback)))
        return lambda: self._ask(stop)

    def events(self) -> DiscoveryEvents:
        """A blocking iterator over everything that happens from this call on.

        It keeps a bounded number of events for a slow reader; then the oldest are dropped and counted.
        """
        return self._ask(lambda: DiscoveryEvents(self, self._inner.events()))

    def wait_available(self, service: str, timeout: float | None = None) -> None:
        """Return as soon as the service has a provider. Interrupting it leaves nothing behind.

        Raises TimedOut, whose text says which registries were heard; BadArgument for a service that is not
        subscribed, since that wait might never end; AlreadyClosed when the discovery closes.
        """
        self._call(lambda: self._inner.wait_available(service, timeout), "wait_available")

    def wait_heard(self, timeout: float | None = None) -> None:
        """Return as soon as a registry has told its list, at once if one has. Interrupting leaves nothing.

        From then on the providers are known. Raises TimedOut, AlreadyClosed when the discovery closes.
        """
        self._call(lambda: self._inner.wait_heard(timeout), "wait_heard")


class Gateway(Requests):
    """Calls services by name. Every request has one outcome: a reply, or an error that says what to do.

    It follows the services that its discovery subscribes to, and connects to their providers by itself. One
    gateway serves any number of threads at once, over the same connections. Use it in a `with` block, inside
    the discovery's; leaving the block ends every open request, in whatever thread it waits, with
    AlreadyClosed.
    """

    def __init__(
        self,
        providers: Discovery,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        retry: RetryPolicy | None = None,
        environment: Environment | None = None,
        name: str = "gateway",
    ) -> None:
        """Raises BadArgument."""
        super().__init__(
            name,
            AsyncGateway(
                providers._inner, in_flight_max=in_flight_max, retry=retry, environment=environment, name=name
            ),
        )

    def close(self) -> None:
        """End every open request with AlreadyClosed, then every connection."""
        self.__exit__(None, None, None)

    def submit(
        self,
        service: str,
        parts: Sequence[bytes] | bytes,
        callback: Callable[[Completion], None],
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
        key: bytes | str | None = None,
        idempotent: bool = False,
        trace: TraceContext | None = None,
    ) -> int:
        """Send a request without waiting; returns the request id.

        `callback` gets the outcome, in hansa's thread. It is called once. An error that this raises
        (NoProvider, BadArgument, AlreadyClosed, and Backlogged at the in-flight limit or when the provider
        does not read) says that nothing was sent; then no outcome follows.

        The function runs in hansa's thread, which all calls wait for: it must be quick and must not wait.
        """
        return self._held().run(
            lambda: self._inner.submit(
                service,
                parts,
                shielded(callback),
                msg_id=msg_id,
                timeout=timeout,
                key=key,
                idempotent=idempotent,
                trace=trace,
            )
        )

    def abandon(self, request_id: int) -> bool:
        """Give up a request of `submit` or `send`: it will have no outcome, its reply is dropped and counted.

        False when it has its outcome already.
        """
        return self._held().run(lambda: self._inner.abandon(request_id))

    def send(
        self,
        service: str,
        parts: Sequence[bytes] | bytes,
        *,
        msg_id: int = 0,
        timeout: float | None = None,
        key: bytes | str | None = None,
        idempotent: bool = False,
        trace: TraceContext | None = None,
    ) -> int:
        """Send a request, waiting for room only; returns its request id. The outcome comes to `recv`.

        `timeout` bounds the whole request; None waits without end. Raises as `submit`, but waits instead of
        raising Backlogged. Interrupting it sends nothing.
        """
        return self._call(
            lambda: self._inner.send(
                service, parts, msg_id=msg_id, timeout=timeout, key=key, idempotent=idempotent, trace=trace
            ),
            "send",
        )

    def recv(self, timeout: float | None = None) -> Completion:
        """The next outcome of a request from `send` or a direct router, in the order of arrival.

        Raises AlreadyClosed. Several threads may wait: each outcome goes to one of them.
        """
        return self._call(lambda: self._inner.recv(timeout), "recv")

    def request_send(
        self,
        service: str,
        parts: Sequence[bytes] | bytes,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> int:
        """`send` under the name that goes with `request_recv`, and with the deadline of a request."""
        return self._call(
            lambda: self._inner.request_send(service, parts, msg_id=msg_id, timeout=timeout), "request_send"
        )

    def request_recv(self, timeout: float | None = None) -> Completion:
        """`recv` under the name that goes with `request_send`."""
        return self._call(lambda: self._inner.request_recv(timeout), "request_recv")

    def router(self, service: str) -> DirectRouter:
        """A router for callers that choose the provider and the request id themselves."""
        return self._held().run(lambda: DirectRouter(self, self._inner.router(service)))

    def set_balancer(self, service: str, balancer: Balancer | None) -> None:
        """From the next request on `balancer` chooses the provider; None is the default, round robin.

        It is kept for the service, also while the service has no provider, until another one or None is set.
        Its `choose` runs in hansa's thread: it must be quick and must not wait.
        """
        self._ask(lambda: self._inner.set_balancer(service, balancer))

    def connection_count(self, service: str) -> int:
        """How many providers of the service are connected and may get requests."""
        return self._ask(lambda: self._inner.connection_count(service))

    def wait_connected(self, service: str, count: int = 1, *, timeout: float | None = None) -> None:
        """Wait until this many providers are connected. Raises TimedOut, AlreadyClosed."""
        self._call(lambda: self._inner.wait_connected(service, count, timeout=timeout), "wait_connected")

    @property
    def stats(self) -> GatewayStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)


class DirectRouter:
    """Sends to a provider by its routing id, under a request id that the caller chooses.

    The outcomes come to `Gateway.recv` with those ids. Any number of requests may be under way.
    """

    def __init__(self, gateway: Gateway, inner: AsyncDirectRouter) -> None:
        self._gateway = gateway
        self._inner = inner

    @property
    def peers(self) -> tuple[bytes, ...]:
        """Routing ids of the providers that are connected now."""
        return self._gateway._ask(lambda: self._inner.peers)

    def send(
        self,
        routing_id: bytes,
        request_id: int,
        parts: Sequence[bytes] | bytes,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> None:
        """Send to the provider with this routing id.

        Waits within the timeout until the providers are known, and at the gateway's in-flight limit for room.
        Such a request is never tried again. Raises NoProvider when that provider is not connected,
        BadArgument when the request id is in flight already, TimedOut when nothing was sent in time.
        """
        self._gateway._call(
            lambda: self._inner.send(routing_id, request_id, parts, msg_id=msg_id, timeout=timeout),
            "send of a direct router",
        )


class Provider(Handlers):
    """A process that offers services, with plain functions as handlers. Use it once, in a `with` block.

    Entering binds and begins to look for a registry; `register` waits until one has the service. Handlers run
    in up to `threads_max` threads of its own, at most `concurrency_max` at once, and may block and use any
    object of `hansa.sync`; at most `waiting_max` more requests wait, and beyond that callers get
    ProviderBusy. A request's `deadline` is in the time of `time.monotonic()`. Leaving the block unregisters,
    lets running requests finish within the socket's linger, and closes; a handler that runs on after that has
    nobody to answer.

    Heartbeats go to the registry every 5 s, or at a third of its timeout if that is shorter. With a
    `heartbeat_interval` they go at least that often; one that is not shorter than the registry's timeout
    makes `register` raise RegistrationRefused.
    """

    def __init__(
        self,
        bind: str = "tcp://127.0.0.1:0",
        registries: Sequence[str] = (),
        *,
        advertise: str | None = None,
        routing_id: bytes = b"",
        concurrency_max: int = CONCURRENCY_MAX,
        waiting_max: int = WAITING_MAX,
        threads_max: int = THREADS_MAX,
        heartbeat_interval: float | None = None,
        environment: Environment | None = None,
        name: str = "provider",
    ) -> None:
        """Raises BadEndpoint, BadArgument."""
        super().__init__(
            name,
            AsyncProvider(
                bind,
                registries,
                advertise=advertise,
                routing_id=routing_id,
                concurrency_max=concurrency_max,
                waiting_max=waiting_max,
                threads_max=threads_max,
                heartbeat_interval=heartbeat_interval,
                environment=environment,
                name=name,
            ),
        )

    @property
    def routing_id(self) -> bytes:
        """The id of its ROUTER and of its line to the registry."""
        return self._inner.routing_id

    def close(self) -> None:
        """Unregister, finish running requests within the linger, and end. Closing twice does no harm."""
        self.__exit__(None, None, None)

    def connect_registry(self, endpoint: str) -> None:
        """Add a registry (its ROUTER) to choose from. Raises BadEndpoint, BadArgument."""
        self._ask(lambda: self._inner.connect_registry(endpoint))

    def register(
        self,
        service: str,
        *,
        weight: int = 1,
        advertise: str | None = None,
        timeout: float | None = REGISTER_TIMEOUT_S,
    ) -> Registration:
        """Offer a service, or change what is offered; returns when a registry has it.

        Raises RegistrationRefused, TimedOut (which names the registries tried), BadArgument, BadEndpoint,
        UsageError. After an error or an interrupt the service is not registered, unless it was before.
        """
        return self._call(
            lambda: self._inner.register(service, weight=weight, advertise=advertise, timeout=timeout),
            "register",
        )

    def update_weight(self, service: str, weight: int, *, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Change a service's weight; returns when the registry has it. 0 means 1.

        Raises NotRegistered, TimedOut, BadArgument. After an interrupt or a timeout the new weight may
        already be in use, and a later registry is told it.
        """
        self._call(lambda: self._inner.update_weight(service, weight, timeout=timeout), "update_weight")

    def unregister(self, service: str, *, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Take a service back; returns when the registry has removed it. Requests are still answered.

        Raises NotRegistered, TimedOut. After an interrupt or a timeout, it is no longer kept up: a registry
        that was not told drops it when heartbeats stop.
        """
        self._call(lambda: self._inner.unregister(service, timeout=timeout), "unregister")

    def registration(self, service: str) -> Registration | None:
        """The last answer of a registry about this service, also a refusal."""
        return self._ask(lambda: self._inner.registration(service))

    def state(self, service: str) -> ProviderState:
        """The state of this service's registration."""
        return self._ask(lambda: self._inner.state(service))

    def drain(self, *, timeout: float = DRAIN_TIMEOUT_S) -> bool:
        """Leave without failing any caller: unregister all services, and serve until every gateway has left.

        Afterwards new requests are answered ProviderDraining. Returns False when requests still ran, or a
        gateway was still connected, at the end of the timeout. If interrupted, nothing is registered and it
        serves on.
        """
        return self._call(lambda: self._inner.drain(timeout=timeout), "drain")

    @property
    def endpoint(self) -> Endpoint:
        """Where it is bound, with the real port; before entering, as it was given."""
        return self._ask(lambda: self._inner.endpoint)

    @property
    def registry(self) -> str | None:
        """The active registry, while it is connected."""
        return self._ask(lambda: self._inner.registry)

    @property
    def stats(self) -> ProviderStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)
