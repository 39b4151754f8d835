"""The gateway as its users see it: requests in several forms, and the bound on how many are in flight."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from types import TracebackType
from typing import Any, Self

from hansa.errors import AlreadyClosed, Backlogged, BadArgument, HansaError, TimedOut, UsageError
from hansa.ids import format_id
from hansa.limits import BURST_COUNT, IN_FLIGHT_MAX, REQUEST_TIMEOUT_S
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import Mailbox
from hansa.services.gateway.addresses import ProviderSource
from hansa.services.gateway.balancers import Balancer
from hansa.services.gateway.calls import Call, as_parts, blocked
from hansa.services.gateway.switchboard import Completion, Switchboard, completion_of
from hansa.services.gateway.tries import RetryPolicy
from hansa.transport import Away, Environment, Overflow
from hansa.wire.business import TraceContext

# How long a request waits between tries while its provider's buffer is full; twice as long each time.
_PAUSE_S_MIN = 0.001
_PAUSE_S_MAX = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayStats:
    """A snapshot. Every request of `requests_count` is replied, failed (by code), abandoned or in flight.

    The caller of an abandoned request was cancelled. A late reply belongs to no open request; a stray one
    came from another provider than the one that was asked. `moved_count` counts tries that were certainly not
    started and went to another provider, `retried_count` repeated tries of idempotent requests.
    `hedged_count` counts tries of idempotent requests beside one that took too long; the second answer counts
    as late. `withheld_count` requests would have had one, if the budget had allowed it at once.
    `suspected_count` providers took too long and have not answered since: others get their requests.
    `services_count` services have a socket: those that have a provider, and those that a request waits for.
    `impostors_count` connections were answered by another process than the provider that is listed there;
    `bad_endpoints_count` providers are listed at an endpoint that cannot be dialled from here.
    """

    requests_count: int
    replied_count: int
    abandoned_count: int
    failed: dict[str, int]
    late_replies_count: int
    stray_replies_count: int
    moved_count: int
    retried_count: int
    hedged_count: int
    withheld_count: int
    suspected_count: int
    impostors_count: int
    bad_endpoints_count: int
    in_flight_count: int
    parked_count: int
    completions_count: int
    services_count: int
    connections_count: int
    bad_frames: dict[str, int]
    expelled_count: int


class Gateway:
    """Calls services by name. Every request has one outcome: a reply, or an error that says what to do.

    `providers` is a `Discovery`: the gateway follows the services that it subscribes to, and connects to
    their providers by itself. Without registries it is `Addresses`: services with the endpoints of their
    providers. Use the gateway within `async with`, inside the discovery's block; leaving the block ends every
    open request with AlreadyClosed. It belongs to the event loop that it was entered in, and raises
    UsageError elsewhere; threads use `hansa.sync.Gateway`.
    """

    def __init__(
        self,
        providers: ProviderSource,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        retry: RetryPolicy | None = None,
        environment: Environment | None = None,
        name: str = "gateway",
    ) -> None:
        if in_flight_max < 1:
            raise BadArgument(f"in_flight_max is {in_flight_max}; it must be at least 1")
        self.name = name
        self._providers = providers
        self._in_flight_max = in_flight_max
        self._retry = retry or RetryPolicy()
        environment = environment or Environment()
        # Messages that waited for a provider that left would reach its successor, or nobody; dropped ones
        # would be waited for in vain: the gateway decides.
        options = environment.options
        self._environment = environment.but(
            options=replace(
                options,
                away=Away.FAIL,
                overflow=Overflow.BLOCK,
                burst_count=min(options.burst_count, BURST_COUNT),
            )
        )
        self._completions: Mailbox[Completion] = Mailbox(f"the completions of {name}")
        self._line: deque[asyncio.Future[None]] = deque()
        """Callers that wait for room, first come first served."""
        self._taken_count = 0
        """Room without an open call: that of untaken outcomes, and of waiters that may go on."""
        self._balancers: dict[str, Balancer] = {}
        self._board: Switchboard | None = None
        self._home: Home | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread = 0
        self._stop_listening: Callable[[], None] | None = None
        self._is_closed = False
        self._ended = asyncio.Event()

    # -- life

    async def __aenter__(self) -> Self:
        if self._board is not None or self._is_closed:
            raise UsageError(f"{self.name} was entered before: make a new Gateway")
        self._home = Home(self.name, "make one here, or use hansa.sync.Gateway, which serves all threads")
        self._loop, self._thread = self._home.loop, get_ident()
        self._board = board = Switchboard(
            self.name,
            self._providers,
            retry=self._retry,
            environment=self._environment,
            balancers=self._balancers,
            on_room=self._make_room,
        )
        self._stop_listening = self._providers.listen(board.services.discovered)
        board.services.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End every open request with AlreadyClosed, then every connection."""
        self._check_home()
        if self._is_closed:
            await self._ended.wait()
            return
        self._is_closed = True
        if self._stop_listening is not None:
            self._stop_listening()
        while self._line:
            self._let_in()
        self._completions.close()
        try:
            if self._board is not None:
                await self._board.close()
        finally:
            self._ended.set()

    # -- requests

    async def request(
        self,
        service: str,
        parts: Sequence[bytes] | bytes,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
        key: bytes | str | None = None,
        idempotent: bool = False,
        trace: TraceContext | None = None,
    ) -> list[bytes]:
        """Send a request and wait for the reply; returns its parts.

        `timeout` None (or -1) waits without end. `key` is what a Rendezvous balancer chooses by. `idempotent`
        allows another try when the first may have been carried out. At the in-flight limit it waits for room.

        Raises TimedOut (ETIMEDOUT), NoProvider, ProviderLost, ProviderBusy, ProviderDraining, UnknownMsgId,
        HandlerFailed and any other error of hansa's that the handler raised; AlreadyClosed when the gateway
        closes. Cancelling gives the request up: its reply is dropped and counted.
        """
        board = self._board
        if (
            board is None
            or self._is_closed
            or len(board.calls.open) + self._taken_count >= self._in_flight_max
            # As `Home.check`, which until Python 3.12 asks the system for the process's number.
            or get_ident() != self._thread
            or not self._loop.is_running()
        ):
            timeout = await self._wait_for_room(timeout)
            board = self._open_board()
        future: asyncio.Future[list[bytes]] = self._loop.create_future()
        try:
            call = board.open(service, timeout, parts, msg_id, key, idempotent, trace, future, True)
        except Backlogged:
            call = await self._open_slowly(
                board.open, service, timeout, parts, msg_id, key, idempotent, trace, future, True
            )
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.exception()  # Marked as seen: it came in the same turn as the cancellation.
            board.abandon(call)
            raise

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

        `callback` gets the outcome, in the event loop. It is called once. An error that this raises
        (NoProvider, BadArgument, AlreadyClosed, and Backlogged at the in-flight limit or when the provider
        does not read) says that nothing was sent; then no outcome follows.
        """
        board = self._open_board()
        if self._is_full() or self._line:  # Room that a callback finds belongs to the callers that wait.
            raise Backlogged(
                f"{self.name} has {self._in_flight_max} requests in flight: wait for some to end, or raise "
                "in_flight_max"
            )
        sink = partial(board.tell, callback)
        return board.open(service, timeout, parts, msg_id, key, idempotent, trace, sink, False).request_id

    def abandon(self, request_id: int) -> bool:
        """Give up a request of `submit` or `send`: it will have no outcome, its reply is dropped and counted.

        False when it has its outcome already.
        """
        board = self._open_board()
        call = board.calls.open.get(request_id)
        if call is None:
            return False
        board.abandon(call)
        return True

    async def send(
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
        raising Backlogged. Cancelling it sends nothing.
        """
        self._check_home()
        if self._is_full():
            timeout = await self._wait_for_room(timeout)
        board, sink = self._open_board(), self._complete
        try:
            call = board.open(service, timeout, parts, msg_id, key, idempotent, trace, sink, False)
        except Backlogged:
            call = await self._open_slowly(
                board.open, service, timeout, parts, msg_id, key, idempotent, trace, sink, False
            )
        return call.request_id

    async def recv(self, timeout: float | None = None) -> Completion:
        """The next outcome of a request from `send` or a direct router, in the order of arrival.

        Waits no longer than `timeout`; None (or -1) waits on. Raises TimedOut, AlreadyClosed. Cancelling it
        loses nothing.
        """
        self._check_home()
        if self._board is None:
            self._open_board()  # Otherwise it would wait for ever.
        if timeout is None or timeout < 0:
            completion = await self._completions.get()
        else:
            try:
                async with asyncio.timeout(timeout):
                    completion = await self._completions.get()
            except TimeoutError:
                raise TimedOut(f"nothing was completed at {self.name} within {timeout} s") from None
        self._taken_count -= 1
        self._make_room()
        return completion

    async def request_send(
        self,
        service: str,
        parts: Sequence[bytes] | bytes,
        *,
        msg_id: int = 0,
        timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> int:
        """`send` under the name that goes with `request_recv`, and with the deadline of a request."""
        return await self.send(service, parts, msg_id=msg_id, timeout=timeout)

    async def request_recv(self, timeout: float | None = None) -> Completion:
        """`recv` under the name that goes with `request_send`."""
        return await self.recv(timeout)

    def router(self, service: str) -> DirectRouter:
        """A router for callers that choose the provider and the request id themselves."""
        self._open_board().services.check_followed(service)
        return DirectRouter(partial(self._peers_of, service), partial(self._send_to, service))

    # -- what users set and ask

    def set_balancer(self, service: str, balancer: Balancer | None) -> None:
        """From the next request on `balancer` chooses the provider; None is the default, round robin.

        It is kept for the service, also while the service has no provider, until another one or None is set.
        """
        self._check_home()
        if balancer is None:
            self._balancers.pop(service, None)
        else:
            self._balancers[service] = balancer
        if self._board is not None:
            self._board.services.rebalance(service)

    def connection_count(self, service: str) -> int:
        """How many providers of the service are connected and may get requests."""
        self._check_home()
        if self._board is None or service not in self._board.links:
            return 0
        return len(self._board.links[service].pool.ready)

    async def wait_connected(self, service: str, count: int = 1, *, timeout: float | None = None) -> None:
        """Wait until this many providers are connected. Raises TimedOut, AlreadyClosed."""
        self._open_board().services.check_followed(service)
        try:
            async with asyncio.timeout(timeout):
                while self.connection_count(service) < count:
                    await self._open_board().services.changed(service)
                self._open_board()
        except TimeoutError:
            raise TimedOut(
                f"{self.connection_count(service)} of {count} providers of {service} were connected within "
                f"{timeout} s; {self._providers.provider_count(service)} are listed"
            ) from None

    @property
    def stats(self) -> GatewayStats:
        self._check_home()
        board = self._open_board() if self._board is None else self._board
        calls, tally, links = board.calls, board.tally, board.links.values()
        return GatewayStats(
            requests_count=calls.requests_count,
            replied_count=calls.replied_count,
            abandoned_count=calls.abandoned_count,
            failed=dict(calls.failed),
            late_replies_count=calls.late_replies_count,
            stray_replies_count=calls.stray_replies_count,
            moved_count=tally.moved_count,
            retried_count=tally.retried_count,
            hedged_count=tally.hedged_count,
            withheld_count=tally.withheld_count,
            suspected_count=sum(len(link.pool.suspects) for link in links),
            impostors_count=board.services.tally.impostors_count,
            bad_endpoints_count=board.services.tally.bad_endpoints_count,
            in_flight_count=len(calls),
            parked_count=sum(len(link.parked) for link in links),
            completions_count=len(self._completions),
            services_count=len(links),
            connections_count=sum(len(link.pool.ready) for link in links),
            bad_frames=dict(board.strikes.by_reason),
            expelled_count=board.strikes.expelled_count,
        )

    # -- waiting for room

    def _is_full(self) -> bool:
        board = self._board
        return board is not None and len(board.calls.open) + self._taken_count >= self._in_flight_max

    def _complete(self, call: Call, parts: list[bytes], error: HansaError | None) -> None:
        """Keep an outcome for `recv`; until it is taken, it uses the room of its call."""
        self._taken_count += 1
        self._completions.put(completion_of(call, parts, error))

    def _make_room(self) -> None:
        while self._line and not self._is_full():
            self._let_in()

    def _let_in(self) -> None:
        waiter = self._line.popleft()
        if not waiter.done():
            self._taken_count += 1
            waiter.set_result(None)

    async def _wait_for_room(self, timeout: float | None) -> float | None:
        """Wait until another request may be opened, at once; returns how much of the timeout is left."""
        board = self._open_board()
        deadline = None if timeout is None or timeout < 0 else self._loop.time() + timeout
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._line.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError:
            late = TimedOut(
                f"{self.name} had {self._in_flight_max} requests in flight for {timeout} s; nothing was sent"
                f"{self._blocked(timeout, deadline)}"
            )
            board.calls.refused(late)
            raise late from None
        finally:
            if waiter.done() and not waiter.cancelled():
                self._taken_count -= 1
                # In a turn of its own: the caller opens its request now, or leaves the room to the next.
                self._loop.call_soon(self._make_room)
            elif waiter in self._line:
                self._line.remove(waiter)
        return None if deadline is None else max(0.0, deadline - self._loop.time())

    async def _open_slowly(
        self, open_call: Callable[..., Call], service: str, timeout: float | None, *rest: Any
    ) -> Call:
        """Open a call while providers do not read and megabytes wait for them: rare, so it polls."""
        deadline = None if timeout is None or timeout < 0 else self._loop.time() + timeout
        pause_s = _PAUSE_S_MIN
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(_PAUSE_S_MAX, pause_s * 2)
            board = self._open_board()
            left_s = None if deadline is None else deadline - self._loop.time()
            if left_s is not None and left_s <= 0:
                late = TimedOut(
                    f"the providers of {service} did not read for {timeout} s; nothing was sent"
                    f"{self._blocked(timeout, deadline)}"
                )
                board.calls.refused(late)
                raise late
            if self._is_full():
                continue
            try:
                return open_call(service, left_s, *rest)
            except Backlogged:
                continue

    async def _send_to(
        self,
        service: str,
        routing_id: bytes,
        request_id: int,
        parts: Sequence[bytes] | bytes,
        msg_id: int,
        timeout: float | None,
    ) -> None:
        """Send a request for a direct router."""
        if self._open_board().services.may_come(service, routing_id):
            timeout = await self._wait_for_peer(service, routing_id, timeout)
        if self._is_full():
            timeout = await self._wait_for_room(timeout)
        board = self._open_board()
        rest = (routing_id, request_id, as_parts(parts), msg_id, self._complete)
        try:
            board.open_direct(service, timeout, *rest)
        except Backlogged:
            await self._open_slowly(board.open_direct, service, timeout, *rest)

    async def _wait_for_peer(self, service: str, routing_id: bytes, timeout: float | None) -> float | None:
        """Wait until this provider is connected, or surely is not; returns what is left of the timeout."""
        deadline = None if timeout is None or timeout < 0 else self._loop.time() + timeout
        try:
            async with asyncio.timeout_at(deadline):
                while self._open_board().services.may_come(service, routing_id):
                    await self._open_board().services.changed(service)
        except TimeoutError:
            raise TimedOut(
                f"provider {format_id(routing_id)} of {service} was not connected within {timeout} s; "
                f"nothing was sent; {self._providers.situation}{self._blocked(timeout, deadline)}"
            ) from None
        return None if deadline is None else max(0.0, deadline - self._loop.time())

    def _blocked(self, timeout: float | None, deadline: float | None) -> str:
        """What a TimedOut's text says about a loop that notices a deadline far too late."""
        if timeout is None or deadline is None:
            return ""
        return blocked(started_at=deadline - timeout, due_at=deadline, now=self._loop.time())

    def _peers_of(self, service: str) -> tuple[bytes, ...]:
        self._check_home()
        return self._open_board().services.peers(service) if not self._is_closed else ()

    def _check_home(self) -> None:
        """Raise UsageError in another thread or event loop. A closed gateway answers everywhere."""
        if self._home is not None and not self._is_closed:
            self._home.check()

    def _open_board(self) -> Switchboard:
        self._check_home()
        if self._is_closed:
            raise AlreadyClosed(f"{self.name} is closed")
        if self._board is None:
            raise UsageError(f"{self.name} is used before it was entered: write `async with`")
        return self._board


SendTo = Callable[[bytes, int, Sequence[bytes] | bytes, int, float | None], Coroutine[Any, Any, None]]


class DirectRouter:
    """Sends to a provider by its routing id, under a request id that the caller chooses.

    The outcomes come to `Gateway.recv` with those ids. Any number of requests may be under way.
    """

    def __init__(self, peers: Callable[[], tuple[bytes, ...]], send_to: SendTo) -> None:
        self._peers = peers
        self._send_to = send_to

    @property
    def peers(self) -> tuple[bytes, ...]:
        """Routing ids of the providers that are connected now."""
        return self._peers()

    async def send(
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
        await self._send_to(routing_id, request_id, parts, msg_id, timeout)
