"""The provider for threads."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self, TypeVar

from hansa.chance import Chance
from hansa.clock import Clock
from hansa.endpoint import Endpoint
from hansa.errors import UsageError
from hansa.limits import (
    CONCURRENCY_MAX,
    DRAIN_TIMEOUT_S,
    REGISTER_TIMEOUT_S,
    THREADS_MAX,
    WAITING_MAX,
)
from hansa.services.provider import Provider as AsyncProvider
from hansa.services.provider import ProviderState, ProviderStats, Registration
from hansa.services.provider.request import Reply, Request
from hansa.sync.mirror import Mirror
from hansa.transport import Network, SocketOptions, Tls

F = TypeVar("F", bound=Callable[[Request], Reply])


class Provider(Mirror):
    """A process that offers services, with plain functions as handlers.

    As `hansa.Provider`, for threads: use it once, in a `with` block. Handlers run in up to `threads_max`
    threads of its own, several at once, and may block and use any object of `hansa.sync`. A request's
    `deadline` is in the time of `time.monotonic()`. Leaving the block unregisters, lets what runs finish
    within the socket's linger, and closes; a handler that runs on after that has nobody to answer.
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
        heartbeat_interval_s: float | None = None,
        tls: Tls | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        options: SocketOptions | None = None,
        name: str = "provider",
    ) -> None:
        """Raises `BadEndpoint`, `BadArgument`."""
        super().__init__(name)
        self._inner = AsyncProvider(
            bind,
            registries,
            advertise=advertise,
            routing_id=routing_id,
            concurrency_max=concurrency_max,
            waiting_max=waiting_max,
            threads_max=threads_max,
            heartbeat_interval_s=heartbeat_interval_s,
            tls=tls,
            network=network,
            clock=clock,
            chance=chance,
            options=options,
            name=name,
        )

    def __enter__(self) -> Self:
        self._open(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Unregister, finish what runs within the linger, and end. Closing twice does no harm."""
        self._close(lambda: self._inner.__aexit__(None, None, None))

    def connect_registry(self, endpoint: str) -> None:
        """One more registry (its ROUTER) to choose from. Raises BadEndpoint, BadArgument."""
        self._ask(lambda: self._inner.connect_registry(endpoint))

    def handler(self, msg_id: int = 0) -> Callable[[F], F]:
        """Decorates the function for requests with this msgId: it takes a Request and returns the reply.

        What it raises reaches the caller as an error: HandlerFailed with the reason it was given, another
        error of hansa's as itself, anything else as HandlerFailed. Raises BadArgument, UsageError, the latter
        also for an `async def`: that is a handler for `hansa.Provider`.
        """
        if callable(msg_id):
            raise UsageError("write @provider.handler(), with parentheses")

        def add(function: F) -> F:
            called = getattr(function, "__call__", None)  # noqa: B004
            if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
                raise UsageError(
                    f"a handler of a blocking provider is a plain function: {self.name} cannot run an async "
                    "one, hansa.Provider can"
                )
            self._ask(lambda: self._inner.handler(msg_id)(function))
            return function

        return add

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

        Raises NotRegistered, TimedOut, BadArgument.
        """
        self._call(lambda: self._inner.update_weight(service, weight, timeout=timeout), "update_weight")

    def unregister(self, service: str, *, timeout: float | None = REGISTER_TIMEOUT_S) -> None:
        """Take a service back; returns when the registry has removed it. Requests are still answered.

        Raises NotRegistered, TimedOut.
        """
        self._call(lambda: self._inner.unregister(service, timeout=timeout), "unregister")

    def drain(self, *, timeout: float = DRAIN_TIMEOUT_S) -> bool:
        """Leave without failing anyone: unregister everything, and serve on until every gateway has left.

        Afterwards new requests are answered ProviderDraining. False when something still ran, or somebody was
        still connected, at the end of the timeout.
        """
        return self._call(lambda: self._inner.drain(timeout=timeout), "drain")

    def registration(self, service: str) -> Registration | None:
        """What a registry last said about this service, refusals too."""
        return self._ask(lambda: self._inner.registration(service))

    def state(self, service: str) -> ProviderState:
        """How far this service is."""
        return self._ask(lambda: self._inner.state(service))

    @property
    def endpoint(self) -> Endpoint:
        """Where it is bound, with the real port; before entering, as it was given."""
        return self._ask(lambda: self._inner.endpoint)

    @property
    def registry(self) -> str | None:
        """The active registry, while it is connected."""
        return self._ask(lambda: self._inner.registry)

    @property
    def routing_id(self) -> bytes:
        """The id of its ROUTER and of its line to the registry."""
        return self._inner.routing_id

    @property
    def stats(self) -> ProviderStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)
