"""The gateway for threads."""

from __future__ import annotations

import asyncio
from _thread import get_ident
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from hansa.chance import Chance
from hansa.errors import AlreadyClosed, Backlogged
from hansa.limits import IN_FLIGHT_MAX, REQUEST_TIMEOUT_S
from hansa.runtime.steps import Order, Outcome, Steps
from hansa.services.gateway import Balancer, Completion, GatewayStats, RetryPolicy
from hansa.services.gateway import DirectRouter as AsyncDirectRouter
from hansa.services.gateway import Gateway as AsyncGateway
from hansa.sync.discovery import Discovery
from hansa.sync.mirror import Mirror, shielded
from hansa.transport import Network, SocketOptions, Tls
from hansa.wire.business import TraceContext

Parts = Sequence[bytes] | bytes


class Gateway(Mirror):
    """Calls services by name. Every request has one outcome: a reply, or an error that says what to do.

    As `hansa.Gateway`, for threads: one gateway serves any number of them at once, over the same connections.
    Use it in a `with` block, inside the discovery's; leaving the block ends every open request, in whatever
    thread it waits, with AlreadyClosed.
    """

    def __init__(
        self,
        discovery: Discovery,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        retry: RetryPolicy | None = None,
        tls: Tls | None = None,
        network: Network | None = None,
        chance: Chance | None = None,
        options: SocketOptions | None = None,
        name: str = "gateway",
    ) -> None:
        """Raises BadArgument."""
        super().__init__(name)
        self._inner = AsyncGateway(
            discovery._inner,
            in_flight_max=in_flight_max,
            retry=retry,
            tls=tls,
            network=network,
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
        """End every open request with AlreadyClosed, then every connection. Closing twice does no harm."""
        self._close(self._inner.close)

    # -- requests

    def request(
        self,
        service: str,
        parts: Parts,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
        key: bytes | str | None = None,
        idempotent: bool = False,
        trace: TraceContext | None = None,
    ) -> list[bytes]:
        """Ask and wait for the reply; its parts.

        `timeout` None (or -1) waits without end. `key` is what a Rendezvous balancer chooses by. `idempotent`
        allows another try when the first may have been carried out. At the in-flight limit it waits for room.

        Raises TimedOut (ETIMEDOUT), NoProvider, ProviderLost, ProviderBusy, ProviderDraining, UnknownMsgId,
        HandlerFailed and what else of hansa's errors the handler raised; AlreadyClosed when the gateway
        closes. An interrupt (Ctrl-C) gives the request up: its reply is dropped and counted.
        """
        steps = self._steps
        if steps is None:
            steps = self._held()
        if get_ident() == steps.ident:
            steps.check_not_inside(f"request of {self.name}")
        asked = _Request(steps, self._inner, service, parts, msg_id, timeout, key, idempotent, trace)
        try:
            steps.post(asked)
            return asked.wait()
        except BaseException:
            if not asked.is_settled:
                steps.post(Order(asked.abandon))
            raise

    def submit(
        self,
        service: str,
        parts: Parts,
        callback: Callable[[Completion], None],
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
        key: bytes | str | None = None,
        idempotent: bool = False,
        trace: TraceContext | None = None,
    ) -> int:
        """Ask without waiting for the reply; the request id. `callback` gets the outcome, once.

        The callback runs in the thread of the event loop, which everything else waits for: it must be quick
        and must not wait. `submit` itself is allowed in it.

        Raises what says that nothing was sent (NoProvider, BadArgument, AlreadyClosed), and Backlogged at the
        in-flight limit or when the provider does not read; then there is no outcome to come.
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

    def send(
        self,
        service: str,
        parts: Parts,
        *,
        msg_id: int = 0,
        timeout: float | None = None,
        key: bytes | str | None = None,
        idempotent: bool = False,
        trace: TraceContext | None = None,
    ) -> int:
        """Send a request, waiting for room only; its request id. The outcome comes to `recv`.

        `timeout` bounds the whole request; None waits without end. Raises as `submit`, but waits where that
        would be Backlogged.
        """
        return self._call(
            lambda: self._inner.send(
                service,
                parts,
                msg_id=msg_id,
                timeout=timeout,
                key=key,
                idempotent=idempotent,
                trace=trace,
            ),
            "send",
        )

    def recv(self) -> Completion:
        """The next outcome of what was sent with `send` or a direct router, in the order of arrival.

        Raises AlreadyClosed. Several threads may wait: each outcome goes to one of them.
        """
        return self._call(self._inner.recv, "recv")

    def request_send(
        self,
        service: str,
        parts: Parts,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> int:
        """`send` under the name that goes with `request_recv`, and with the deadline of a request."""
        return self.send(service, parts, msg_id=msg_id, timeout=timeout)

    def request_recv(self, timeout: float | None = None) -> Completion:
        """`recv`, but no longer than `timeout`. Raises TimedOut, AlreadyClosed."""
        return self._call(lambda: self._inner.request_recv(timeout), "request_recv")

    def router(self, service: str) -> DirectRouter:
        """For callers who choose the provider and the request id themselves."""
        return DirectRouter(self, self._held().run(lambda: self._inner.router(service)))

    # -- what users set and ask

    def set_balancer(self, service: str, balancer: Balancer | None) -> None:
        """From the next request on `balancer` chooses the provider; None is the default, round robin.

        It is kept for the service, also while nobody offers that, until another one or None is set. Its
        `choose` runs in the thread of the event loop: it must be quick and must not wait.
        """
        self._ask(lambda: self._inner.set_balancer(service, balancer))

    def connection_count(self, service: str) -> int:
        """How many providers of the service are connected and may get requests."""
        return self._ask(lambda: self._inner.connection_count(service))

    def wait_connected(self, service: str, count: int = 1, *, timeout: float | None = None) -> None:
        """Wait until so many providers are connected. Raises TimedOut, AlreadyClosed."""
        self._call(lambda: self._inner.wait_connected(service, count, timeout=timeout), "wait_connected")

    @property
    def stats(self) -> GatewayStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)


class DirectRouter:
    """Sends to a provider by its routing id, under a request id of the caller's own.

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
        parts: Parts,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> None:
        """Send to the provider with this routing id.

        Waits within the timeout until it is known who is there, and beyond the gateway's in-flight limit for
        room. Such a request is never tried again. Raises NoProvider when that provider is not connected,
        BadArgument when the request id is in flight already, TimedOut when nothing was sent in time.
        """
        self._gateway._call(
            lambda: self._inner.send(routing_id, request_id, parts, msg_id=msg_id, timeout=timeout),
            "direct send",
        )


class _Request(Outcome[list[bytes]]):
    """One blocking request: posted to the loop, submitted there, and settled by its callback.

    Without a coroutine, a task or a future of its own, which is what makes it cheaper than
    `asyncio.run_coroutine_threadsafe` (measured by `bench/sync_cost.py`).
    """

    __slots__ = (
        "_gateway",
        "_idempotent",
        "_key",
        "_msg_id",
        "_parts",
        "_request_id",
        "_service",
        "_steps",
        "_task",
        "_timeout",
        "_trace",
    )

    def __init__(
        self,
        steps: Steps,
        gateway: AsyncGateway,
        service: str,
        parts: Parts,
        msg_id: int,
        timeout: float | None,
        key: bytes | str | None,
        idempotent: bool,
        trace: TraceContext | None,
    ) -> None:
        super().__init__()
        self._steps = steps
        self._gateway = gateway
        self._service = service
        self._parts = parts
        self._msg_id = msg_id
        self._timeout = timeout
        self._key = key
        self._idempotent = idempotent
        self._trace = trace
        self._request_id: int | None = None
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        try:
            self._request_id = self._gateway.submit(
                self._service,
                self._parts,
                self._completed,
                msg_id=self._msg_id,
                timeout=self._timeout,
                key=self._key,
                idempotent=self._idempotent,
                trace=self._trace,
            )
        except Backlogged:
            # Rare, and then it takes long in any case: a task waits for room.
            self._task = self._steps.spawn(self._request(), f"a request to {self._service}")
            self._task.add_done_callback(self._ended)
        except BaseException as error:
            self.fail(error)

    def abandon(self) -> None:
        """Nobody waits any more."""
        if self._task is not None:
            self._task.cancel()
        elif self._request_id is not None:
            self._gateway.abandon(self._request_id)

    def _completed(self, completion: Completion) -> None:
        if completion.error is None:
            self.succeed(completion.parts)
        else:
            self.fail(completion.error)

    async def _request(self) -> None:
        try:
            parts = await self._gateway.request(
                self._service,
                self._parts,
                msg_id=self._msg_id,
                timeout=self._timeout,
                key=self._key,
                idempotent=self._idempotent,
                trace=self._trace,
            )
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self.fail(error)
        else:
            self.succeed(parts)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.fail(AlreadyClosed(f"the request to {self._service} was given up: the gateway is closed"))
