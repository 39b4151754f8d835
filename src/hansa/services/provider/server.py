"""Provider: offers services. A ROUTER takes requests; a line to the active registry keeps the entries there.

Entering binds the ROUTER, then starts the line. The ROUTER's requests go to the `HandlerRunner`, and so does
the end of each connection. Leaving first takes the entries back, then refuses new requests, waits for the
running ones, and ends the handlers, the line and the ROUTER, each of them even if the step before failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar

from hansa.endpoint import Endpoint, advertised
from hansa.errors import BadArgument, BadEndpoint, UsageError
from hansa.ids import check_routing_id, new_routing_id
from hansa.limits import (
    BURST_COUNT,
    CANCEL_S_MAX,
    CONCURRENCY_MAX,
    DRAIN_TIMEOUT_S,
    FAREWELL_S_MAX,
    REGISTER_TIMEOUT_S,
    THREADS_MAX,
    WAITING_MAX,
)
from hansa.presence.provider_info import ProviderState, Registration, is_reserved
from hansa.presence.registrations import Registrations
from hansa.presence.registry_line import RegistryLine
from hansa.runtime.loops import Home
from hansa.runtime.tasks import Closing
from hansa.services.provider.handlers import HandlerRunner
from hansa.services.provider.work import HandlerFunction, Workload
from hansa.transport import Disconnected, Environment, Router, SocketEvent
from hansa.transport.system_network import SystemNetwork, default_route_host

F = TypeVar("F", bound=HandlerFunction)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStats:
    """Counts since the provider began; `running`, `waiting` and `peers` are current values.

    Every request that came is one of: replied, failed, busy, draining, expired, abandoned, unknown msgId, a
    bad frame, running or waiting.
    """

    requests_count: int
    replied_count: int
    """Handlers that returned a reply."""
    failed_count: int
    """Handlers that failed or were cancelled; the caller was told."""
    busy_count: int
    draining_count: int
    expired_count: int
    """Never started: the caller's deadline had passed."""
    abandoned_count: int
    """Never started: the caller had left."""
    unknown_msg_id_count: int
    bad_frames: Mapping[str, int]
    """Messages that are no requests, by reason."""
    expelled_count: int
    """Connections ended because of bad frames."""
    replies_dropped_count: int
    """Answers of any kind that were not delivered: the caller had left or given up, or does not read."""
    not_reading_count: int
    """Connections ended because the caller did not read: it is told ProviderLost instead of nothing."""
    running_count: int
    waiting_count: int
    peers_count: int
    registrations_count: int
    """Services that a registry accepted for the first time."""
    reregistrations_count: int
    """Services accepted again: after a failover, a registry's restart, or a change."""
    refusals_count: int
    missing_count: int
    """How often a registry did not have an entry that it should have."""
    behind_count: int
    """How often a registry knew a later word about an entry: this machine's clock is behind another's."""
    heartbeats_count: int
    failovers_count: int
    """How often a connected registry was lost."""
    dials_failed_count: int
    unanswered_count: int
    """How often a registry was left because it did not answer."""
    stray_answers_count: int
    """Answers of registries that match no question."""
    registry_bad_frames_count: int
    """Messages of registries that cannot be decoded."""


class Provider:
    """A process that offers services. It belongs to the event loop in which it was entered, and is used once.

    Entering binds and begins to look for a registry; `register` waits until one has the service. Handlers are
    `async def` (they run as tasks) or `def` (they run in threads), at most `concurrency_max` at once; at most
    `waiting_max` more requests wait, and beyond that callers get ProviderBusy. Leaving the block unregisters,
    lets running requests finish within the socket's linger, cancels the rest and closes; a handler that still
    runs `cancel_s_max` after its cancellation is left behind and logged, and its caller is told ProviderLost.

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
        cancel_s_max: float = CANCEL_S_MAX,
        heartbeat_interval: float | None = None,
        environment: Environment | None = None,
        name: str = "provider",
    ) -> None:
        if isinstance(registries, str):
            raise BadArgument(f"registries is a list of endpoints: write [{registries!r}]")
        if heartbeat_interval is not None and not heartbeat_interval > 0:
            raise BadArgument(f"heartbeat_interval is {heartbeat_interval}; it must be positive")
        if cancel_s_max < 0:
            raise BadArgument(f"cancel_s_max is {cancel_s_max}; it must not be negative")
        environment = environment or Environment()
        options = environment.options
        self.name = name
        self.routing_id = check_routing_id(routing_id) if routing_id else new_routing_id(environment.chance)
        self._bind = Endpoint.parse(bind)
        self._bound: Endpoint | None = None
        self._advertise = advertise
        self._network = environment.network
        self._linger_s = options.linger
        self._is_entered = self._is_leaving = False
        self._closing = Closing()
        self._home: Home | None = None
        work = Workload(concurrency_max=concurrency_max, threads_max=threads_max, waiting_max=waiting_max)
        self._runner = HandlerRunner(
            name, work, threads_max=threads_max, cancel_s_max=cancel_s_max, options=options
        )
        self.router = Router(
            self.routing_id,
            environment=environment.but(
                options=replace(options, burst_count=min(options.burst_count, BURST_COUNT))
            ),
            on_messages=self._runner.take,
            on_event=self._happened,
            name=name,
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
            raise UsageError(f"{self.name} has been used already: make a new Provider")
        self._is_entered = True
        self._home = Home(self.name, "make one here, or use hansa.sync.Provider, which serves all threads")
        self._runner.start(self.router)
        try:
            self._bound = await self.router.bind(self._bind)
        except BaseException:
            await self.router.close()
            raise
        self._line.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Unregister, finish running requests within the linger, and end. Closing twice does no harm."""
        if self._home is not None:
            self._home.check()
            await self._closing.once(self._close)

    async def _close(self) -> None:
        self._is_leaving = True
        runner = self._runner
        try:
            if self._machine.registry is not None:
                await self._line.unregister_all(timeout=FAREWELL_S_MAX)
            runner.work.shut()
            await self._calm(lambda: self._is_idle, self._linger_s)
        finally:
            try:
                await runner.close()
            finally:
                try:
                    await self._line.close()
                finally:
                    await self.router.close()

    def connect_registry(self, endpoint: str) -> None:
        """Add a registry (its ROUTER) to choose from. Raises BadEndpoint, BadArgument."""
        if self._home is not None:
            self._home.check()
        self._line.add_registry(self._checked_registry(endpoint))

    # -- handlers

    def handler(self, msg_id: int = 0) -> Callable[[F], F]:
        """Decorates the function for requests with this msgId: it takes a Request and returns the reply.

        An exception of it reaches the caller as an error: HandlerFailed with its reason, another error of
        hansa's as itself, anything else as HandlerFailed. Raises BadArgument, UsageError.
        """
        if callable(msg_id):
            raise UsageError("write @provider.handler(), with parentheses")

        def add(function: F) -> F:
            self._runner.add(msg_id, function)
            return function

        return add

    # -- services

    async def register(
        self,
        service: str,
        *,
        weight: int = 1,
        advertise: str | None = None,
        timeout: float | None = REGISTER_TIMEOUT_S,
    ) -> Registration:
        """Offer a service, or change what is offered; returns when a registry has it.

        Raises RegistrationRefused, TimedOut (which names the registries tried), BadArgument, BadEndpoint,
        UsageError. After an error or a cancellation the service is not registered, unless it was before.
        """
        self._check_registering()
        if is_reserved(service):
            raise BadArgument(
                f"service {service!r} is reserved for the nodes of topic meshes, which would take "
                f"{self.name} for one of them: choose another name, or use a SpotNode"
            )
        endpoint = advertised(self.endpoint, advertise or self._advertise, default_route_host)
        return await self._line.register(service, str(endpoint), weight or 1, timeout=timeout)

    async def update_weight(
        self, service: str, weight: int, *, timeout: float | None = REGISTER_TIMEOUT_S
    ) -> None:
        """Change a service's weight; returns when the registry has it. 0 means 1.

        Raises NotRegistered, TimedOut, BadArgument. After a cancellation or a timeout the new weight may
        already be in use, and a later registry is told it.
        """
        self._check_registering()
        await self._line.reweight(service, weight or 1, timeout=timeout)

    async def unregister(self, service: str, *, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Take a service back; returns when the registry has removed it. Requests are still answered.

        Raises NotRegistered, TimedOut. After a cancellation or a timeout, it is no longer kept up: a registry
        that was not told drops it when heartbeats stop.
        """
        self._check_entered()
        await self._line.unregister(service, timeout=timeout)

    def registration(self, service: str) -> Registration | None:
        """The last answer of a registry about this service, also a refusal."""
        return self._machine.registration(service)

    def state(self, service: str) -> ProviderState:
        """The state of this service's registration."""
        return ProviderState.INIT if self._bound is None else self._machine.state(service)

    # -- leaving

    async def drain(self, *, timeout: float = DRAIN_TIMEOUT_S) -> bool:
        """Leave without failing any caller: unregister all services, and serve until every gateway has left.

        Afterwards new requests are answered ProviderDraining. Returns False when requests still ran, or a
        gateway was still connected, at the end of the timeout. If cancelled, nothing is registered and it
        serves on.
        """
        self._check_entered()
        self._is_leaving = True
        loop = asyncio.get_running_loop()
        end_at = loop.time() + timeout
        # Without a registry this fails, and is repeated when one is back; the gateways count in any case.
        await self._line.unregister_all(timeout=min(timeout, REGISTER_TIMEOUT_S))
        await self._calm(lambda: self._is_idle and not self.router.peers, max(0.0, end_at - loop.time()))
        self._runner.work.shut()
        return self._is_idle and not self.router.peers

    # -- looking

    @property
    def endpoint(self) -> Endpoint:
        """Where it is bound, with the real port; before entering, as it was given."""
        return self._bound or self._bind

    @property
    def registry(self) -> str | None:
        """The active registry, while it is connected."""
        return self._machine.registry

    @property
    def stats(self) -> ProviderStats:
        runner, work, machine = self._runner, self._runner.work, self._machine.tally
        return ProviderStats(
            requests_count=runner.tally.requests_count,
            replied_count=runner.tally.replied_count,
            failed_count=runner.tally.failed_count,
            busy_count=work.tally.busy_count,
            draining_count=work.tally.draining_count,
            expired_count=work.tally.expired_count,
            abandoned_count=work.tally.abandoned_count,
            unknown_msg_id_count=runner.tally.unknown_msg_id_count,
            bad_frames=dict(runner.strikes.by_reason),
            expelled_count=runner.strikes.expelled_count,
            replies_dropped_count=runner.tally.replies_dropped_count,
            not_reading_count=runner.tally.not_reading_count,
            running_count=work.running_count,
            waiting_count=work.waiting_count,
            peers_count=len(self.router.peers),
            registrations_count=machine.registrations_count,
            reregistrations_count=machine.reregistrations_count,
            refusals_count=machine.refusals_count,
            missing_count=machine.missing_count,
            behind_count=machine.behind_count,
            heartbeats_count=machine.heartbeats_count,
            failovers_count=machine.failovers_count,
            dials_failed_count=machine.dials_failed_count,
            unanswered_count=machine.unanswered_count,
            stray_answers_count=machine.stray_answers_count,
            registry_bad_frames_count=self._line.bad_frames_count,
        )

    # -- small things

    @property
    def _is_idle(self) -> bool:
        work = self._runner.work
        return not work.running_count and not work.waiting_count

    async def _calm(self, is_calm: Callable[[], bool], within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._runner.calm(is_calm)
        except TimeoutError:
            pass  # The caller checks what is left.

    def _happened(self, event: SocketEvent) -> None:
        if isinstance(event, Disconnected):
            self._runner.peer_left(event.peer)

    def _checked_registry(self, registry: str) -> str:
        endpoint = Endpoint.parse(registry)
        if not endpoint.is_dialable:
            raise BadEndpoint(f"{endpoint} cannot be dialled: give the host and port of a registry's ROUTER")
        if isinstance(self._network, SystemNetwork):
            self._network.check(endpoint)
        return str(endpoint)

    def _check_entered(self) -> None:
        if self._home is not None:
            self._home.check()
        if self._bound is None:
            raise UsageError(f"{self.name} is not bound yet: use `async with provider:` around this call")

    def _check_registering(self) -> None:
        self._check_entered()
        if self._is_leaving:
            raise UsageError(f"{self.name} is leaving: it registers nothing any more")
        if not self._machine.registries:
            raise UsageError(
                f"{self.name} knows no registry: give registries=[...], or call connect_registry()"
            )
