"""Drives `Registrations`: one connection to one registry at a time, one timer, and the calls that wait.

Each dial gets a DEALER of its own, so nothing that a former registry still says or does reaches the machine.

What the driver must do for the machine. It tells the machine all that happens on the current DEALER
(connected, disconnected, an answer) and every wish of the program, and performs the effects in order. After
each of these it sets its one timer to the machine's deadline, where it calls `tick`. It never repeats a
message by itself: if one cannot be sent, that counts as a lost connection, the other messages for that
connection are dropped, and the machine decides what to tell the next registry. It stamps every message but
heartbeats. A call that waits ends by an effect, by its deadline, or by `close`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import Any, TypeVar

from hansa.errors import (
    AlreadyClosed,
    BadFrame,
    NotRegistered,
    RegistrationRefused,
    TimedOut,
    Unavailable,
    invariant,
)
from hansa.limits import CLOSE_S_MAX, FAREWELL_S_MAX
from hansa.presence.provider_info import Registration
from hansa.presence.registrations import (
    Dial,
    Effect,
    HangUp,
    ProviderMessage,
    Refused,
    Registered,
    Registrations,
    TellRegistry,
    Unregistered,
)
from hansa.runtime.tasks import TaskScope
from hansa.transport import (
    Away,
    Connected,
    Dealer,
    Disconnected,
    Environment,
    HandshakeFailed,
    Overflow,
    SocketEvent,
)
from hansa.wire.registry import Heartbeat, Register, RegisterAck, decode, encode

T = TypeVar("T")


class RegistryLine:
    """The line to the active registry. Its calls have deadlines; cancelling one stops the waiting."""

    def __init__(
        self, machine: Registrations, *, routing_id: bytes, environment: Environment, name: str
    ) -> None:
        self.machine = machine
        self.bad_frames_count = 0
        self._routing_id = routing_id
        self._options = replace(environment.options, away=Away.FAIL, overflow=Overflow.FAIL)
        self._environment = environment.but(options=self._options)
        self._clock = environment.clock
        self._name = name
        self._dealer: Dealer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._registering: dict[str, list[asyncio.Future[Registration]]] = {}
        self._reweighting: dict[str, list[asyncio.Future[Registration]]] = {}
        self._unregistering: dict[str, list[asyncio.Future[None]]] = {}
        self._tasks = TaskScope(name, self._task_failed)
        self._is_started = self._is_closed = False

    # -- life

    def start(self) -> None:
        self._is_started = True
        self._perform(self.machine.start(now=self._now()))

    def add_registry(self, registry: str) -> None:
        # Before the start there may be no event loop to ask for the time, and nothing depends on it.
        self._perform(self.machine.add_registry(registry, now=self._now() if self._is_started else 0.0))

    async def close(self) -> None:
        """End the connection, once sent messages have been read, and all waiting calls."""
        self._is_closed = True
        self._set_timer()
        # Only now: a registry that was given up is told nothing more, and must not see two connections of us.
        self._hang_up(linger_s=min(self._options.linger, FAREWELL_S_MAX))
        closed = AlreadyClosed(f"{self._name} was closed")
        waiting: dict[str, list[asyncio.Future[Any]]]
        for waiting in (self._registering, self._reweighting, self._unregistering):
            for service in list(waiting):
                _fail(waiting, service, closed)
        await self._tasks.close(grace_s=FAREWELL_S_MAX + CLOSE_S_MAX)

    # -- what the program asks for

    async def register(
        self, service: str, endpoint: str, weight: int, *, timeout: float | None
    ) -> Registration:
        """Raises BadArgument, RegistrationRefused, TimedOut. After these, or cancelled, it is not wanted."""
        encode(Register(service=service, endpoint=endpoint, weight=weight))
        try:
            effects = self.machine.want(service, endpoint, weight, now=self._now())
            return await self._answer(self._registering, service, effects, timeout)
        finally:
            is_wanted = service in self.machine.services
            if is_wanted and not self.machine.is_accepted(service) and service not in self._registering:
                self._perform(self.machine.unwant(service, now=self._now()))

    async def reweight(self, service: str, weight: int, *, timeout: float | None) -> None:
        """Raises BadArgument, NotRegistered, TimedOut. The new weight stays wanted in any case."""
        self._check_wanted(service)
        encode(Register(service=service, endpoint="", weight=weight))
        effects = self.machine.reweight(service, weight, now=self._now())
        await self._answer(self._reweighting, service, effects, timeout)

    async def unregister(self, service: str, *, timeout: float | None) -> None:
        """Raises NotRegistered, TimedOut. From the call on it is no longer wanted, in any case."""
        self._check_wanted(service)
        effects = self._unwant(service)
        await self._answer(self._unregistering, service, effects, timeout)

    async def unregister_all(self, *, timeout: float) -> bool:
        """Take all entries back at once; returns whether the registry confirmed all of it in time."""
        services = self.machine.services
        futures = [_join(self._unregistering, service) for service in services]
        for service in services:
            self._perform(self._unwant(service))
        if not futures:
            return True
        try:
            _, late = await asyncio.wait(futures, timeout=timeout)
        finally:
            for service, future in zip(services, futures, strict=True):
                _leave(self._unregistering, service, future)
        return not late

    def _check_wanted(self, service: str) -> None:
        if service not in self.machine.services:
            raise NotRegistered(f"{self._name} has not registered {service!r}: call register() first")

    def _unwant(self, service: str) -> list[Effect]:
        for waiting in (self._registering, self._reweighting):
            _fail(waiting, service, NotRegistered(f"{service!r} was unregistered meanwhile"))
        return self.machine.unwant(service, now=self._now())

    async def _answer(
        self,
        waiting: dict[str, list[asyncio.Future[T]]],
        service: str,
        effects: list[Effect],
        timeout: float | None,
    ) -> T:
        future = _join(waiting, service)
        try:
            self._perform(effects)
            # Not `asyncio.timeout`: an answer that comes at the moment of the deadline has changed what is
            # registered, so it must not be lost to the caller.
            await asyncio.wait((future,), timeout=timeout)
            if future.done():
                return future.result()
            raise TimedOut(
                f"no registry has answered {self._name} about {service!r} within {timeout} s: "
                f"{self._problems(service)}"
            )
        finally:
            _leave(waiting, service, future)

    def _problems(self, service: str) -> str:
        machine = self.machine
        said = [f"{registry}: {problem}" for registry, problem in machine.problems.items()]
        if machine.registry is not None:
            last = machine.registration(service)
            refused = f" (it said last: {last.error})" if last is not None and last.error else ""
            said.append(f"{machine.registry}: connected{refused}")
        return "; ".join(said) or f"still dialling {', '.join(machine.registries)}"

    # -- effects

    def _perform(self, effects: list[Effect]) -> None:
        if self._is_closed or not self._is_started:
            return
        todo = deque(effects)
        while todo:
            match todo.popleft():
                case Dial(registry=registry):
                    self._dial(registry)
                case HangUp():
                    self._hang_up()
                case TellRegistry(message=message):
                    problem = self._send(encode(self._stamped(message)))
                    if problem:
                        # The other messages were for that connection too.
                        todo = deque(effect for effect in todo if not isinstance(effect, TellRegistry))
                        self._hang_up()
                        todo += self.machine.disconnected(problem, now=self._now())
                case Registered(registration=registration):
                    _settle(self._registering, registration.service, registration)
                    _settle(self._reweighting, registration.service, registration)
                case Refused(registration=registration):
                    _fail(self._registering, registration.service, _refusal(registration))
                case Unregistered(service=service):
                    _settle(self._unregistering, service, None)
        self._set_timer()

    def _stamped(self, message: ProviderMessage) -> ProviderMessage:
        """The message with a stamp. A heartbeat needs none: it says nothing new."""
        if isinstance(message, Heartbeat):
            return message
        return replace(message, stamp=self.machine.stamps.next(int(self._clock.wall() * 1000)))

    def _send(self, frames: list[bytes]) -> str:
        """Send it; returns the problem, if there was one."""
        if self._dealer is None:
            return "not connected"
        try:
            self._dealer.post(frames)
        except (Unavailable, AlreadyClosed) as error:
            return str(error)
        return ""

    def _dial(self, registry: str) -> None:
        invariant(self._dealer is None, "a registry is dialled before the one before was left")
        dealer = Dealer(
            self._routing_id,
            environment=self._environment,
            on_messages=lambda peer, messages: self._heard(dealer, messages),
            on_event=lambda event: self._happened(dealer, event),
            name=f"{self._name} at registry {registry}",
        )
        self._dealer = dealer
        dealer.connect(registry)

    def _hang_up(self, *, linger_s: float = 0.0) -> None:
        if self._dealer is not None:
            self._tasks.spawn(self._dealer.close(linger=linger_s), f"hangs up on {self._dealer.name}")
            self._dealer = None

    # -- what happens

    def _happened(self, dealer: Dealer, event: SocketEvent) -> None:
        if dealer is not self._dealer:
            return  # It comes from a registry that was left already.
        now = self._now()
        match event:
            case Connected():
                self._perform(self.machine.connected(now=now))
            case Disconnected() | HandshakeFailed():
                self._hang_up()
                problem = f"{event.reason}: {event.detail}" if event.detail else str(event.reason)
                self._perform(self.machine.disconnected(problem, now=now))

    def _heard(self, dealer: Dealer, messages: list[list[bytes]]) -> None:
        for frames in messages:
            if dealer is not self._dealer:
                return
            try:
                message = decode(frames)
            except BadFrame:
                self.bad_frames_count += 1
                continue
            if isinstance(message, RegisterAck):
                self._perform(self.machine.ack(message, now=self._now()))
            else:
                self.bad_frames_count += 1  # Readable, but not a message from a registry to a provider.

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _tick(self) -> None:
        self._timer = None
        self._perform(self.machine.tick(now=self._now()))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.machine.deadline()
        if deadline is not None and not self._is_closed:
            delay_s = max(0.0, deadline - self._now())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _task_failed(self, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a task of {self._name} failed; please report this", "exception": error}
        )


def _join(waiting: dict[str, list[asyncio.Future[T]]], service: str) -> asyncio.Future[T]:
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    waiting.setdefault(service, []).append(future)
    return future


def _leave(waiting: dict[str, list[asyncio.Future[T]]], service: str, future: asyncio.Future[T]) -> None:
    futures = waiting.get(service)
    if futures is not None and future in futures:
        futures.remove(future)
        if not futures:
            del waiting[service]
    if future.done() and not future.cancelled():
        future.exception()  # Marked as seen, even if the waiter was cancelled just then.
    future.cancel()


def _settle(waiting: dict[str, list[asyncio.Future[T]]], service: str, result: T) -> None:
    for future in waiting.pop(service, ()):
        if not future.done():
            future.set_result(result)


def _fail(waiting: dict[str, list[asyncio.Future[Any]]], service: str, error: Exception) -> None:
    for future in waiting.pop(service, ()):
        if not future.done():
            future.set_exception(error)


def _refusal(registration: Registration) -> RegistrationRefused:
    return RegistrationRefused(
        f"{registration.registry} refused {registration.service!r} at {registration.endpoint} "
        f"({registration.status.name}): {registration.error or 'it gave no reason'}",
        int(registration.status),
    )
