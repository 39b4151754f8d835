"""The switchboard: the way of every request of a gateway, opened, posted, and settled once.

The short way is `open`, `_post` and, when the reply comes, `_replies`, which leaves plain replies to
`Calls.answer` (compiled by mypyc; `make bench`, case gateway). The rest runs when something changes: a
provider comes or goes, a deadline passes, a try fails.

All requests share two timers: one for the earliest deadline, one for the tries that may take too long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hansa.errors import (
    AlreadyClosed,
    Backlogged,
    BadFrame,
    HansaError,
    ProviderDraining,
    ProviderLost,
    Unavailable,
    UsageError,
    error_from_code,
)
from hansa.ids import format_id, new_routing_id
from hansa.limits import HEDGE_LOOK_S, TRY_S_MIN
from hansa.runtime.tasks import TaskScope
from hansa.services.gateway.addresses import ProviderSource
from hansa.services.gateway.balancers import Balancer
from hansa.services.gateway.calls import ALARM_S_MIN, NEVER, Call, Calls
from hansa.services.gateway.links import ServiceLink, ServiceLinks
from hansa.services.gateway.pool import Pool, PoolMember
from hansa.services.gateway.tries import NOT_STARTED, RetryPolicy
from hansa.transport import Disconnected, Environment, Router
from hansa.transport.admission import Strikes
from hansa.transport.outbox import QUIET
from hansa.wire.business import ERROR_MSG_ID, TraceContext, decode_call, decode_error
from hansa.wire.frames import encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The one outcome of one request: the reply's parts, or the error that it ended with."""

    service: str
    request_id: int
    parts: list[bytes]
    error: HansaError | None = None

    def result(self) -> list[bytes]:
        """The reply's parts. Raises the error if the request failed."""
        if self.error is not None:
            raise self.error
        return self.parts


def completion_of(call: Call, parts: list[bytes], error: HansaError | None) -> Completion:
    """The outcome of a call, for a caller that did not wait for it."""
    return Completion(service=call.service, request_id=call.request_id, parts=parts, error=error)


@dataclass(slots=True)
class TryTally:
    """Counts of tries that were not the first."""

    moved_count: int = 0
    retried_count: int = 0
    hedged_count: int = 0
    withheld_count: int = 0


class CallTimers:
    """Calls `on_expired` with each call that has run out of time, and `on_overdue` with each slow try.

    Both are given the time, and `on_expired` also when the timer should have fired. `on_overdue` sets the
    time at which that call must be checked again, if it must.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        on_expired: Callable[[Call, float, float], None],
        on_overdue: Callable[[Call, float], None],
    ) -> None:
        self._calls = calls
        self._on_expired = on_expired
        self._on_overdue = on_overdue
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._suspecting: dict[Pool, None] = {}

    def close(self) -> None:
        for timer in (self._alarm, self._look):
            if timer is not None:
                timer.cancel()

    # -- deadlines

    def set_alarm(self, deadline: float, now: float) -> None:
        """There is a call with this deadline."""
        if self._calls.alarm(deadline, now=now):
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_at(self._calls.alarm_at, self._ring)

    def _ring(self) -> None:
        # First of all: a callback below may open a call and set the alarm.
        self._alarm = None
        now, due_at = self._loop.time(), self._calls.alarm_at
        for call in self._calls.expired(now=now):
            self._on_expired(call, now, due_at)
        if self._alarm is None and self._calls.alarm_at != NEVER:
            self._alarm = self._loop.call_at(self._calls.alarm_at, self._ring)

    # -- tries

    def try_begun(self, call: Call, after_s: float, now: float) -> None:
        """A try of the call began; check it after `after_s`."""
        if self._calls.try_begun(call, after_s, now):
            self._look_at(call.hedge_at)

    def suspect(self, pool: Pool, member: PoolMember, now: float) -> None:
        """The member did not answer a try in time."""
        pool.suspect(member, now=now)
        if pool.suspects:
            self._suspecting[pool] = None

    def _look_at(self, at: float) -> None:
        """Check for overdue tries at this time, if that is earlier than planned."""
        self._calls.plan_look(at)
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_at(at, self._look_round)

    def _look_round(self) -> None:
        self._look = None
        now = self._loop.time()
        for pool in self._suspecting:
            pool.relieve(now=now)
        due = self._calls.overdue(now=now)
        for call in due:
            self._on_overdue(call, now)
        self._suspecting = {pool: None for pool in self._suspecting if pool.suspects}
        ends = (member.suspected_until for pool in self._suspecting for member in pool.suspects)
        at = min((self._calls.look_at, *ends, *(call.hedge_at for call in due)))
        self._calls.plan_look(NEVER)
        if at < NEVER:
            self._look_at(max(at, now + ALARM_S_MIN))


class Switchboard:
    """Open requests and the providers that they go to. `on_room` is called when one has ended."""

    def __init__(
        self,
        name: str,
        providers: ProviderSource,
        *,
        retry: RetryPolicy,
        environment: Environment,
        balancers: Mapping[str, Balancer],
        on_room: Callable[[], None],
    ) -> None:
        self.name = name
        # High and random, so that numbers which users of a direct router choose rarely collide with these.
        self.calls = Calls(environment.chance.uint32() << 31 | 1 << 62)
        self.tally = TryTally()
        self.strikes = Strikes()
        self._providers = providers
        self._retry = retry
        self._environment = environment
        self._chance = environment.chance
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._timers = CallTimers(self.calls, on_expired=self._expired, on_overdue=self._overdue)
        self._tasks = TaskScope(
            name, partial(self._report, message=f"a task of {name} failed; please report this")
        )
        self.services = ServiceLinks(
            providers,
            owner=self,
            balancers=balancers,
            retry=retry,
            tasks=self._tasks,
            forget_peer=self.strikes.forget,
            make_router=self._new_router,
        )
        self.links = self.services.links  # The same object, for the short way.
        self._is_closed = False

    async def close(self) -> None:
        """End every open request with AlreadyClosed, then every connection."""
        self._is_closed = True
        self._timers.close()
        calls = self.calls.take_all()
        self.services.stop()
        for call in calls:
            self.calls.settle(call, AlreadyClosed(f"{self.name} was closed before {call} ended"))
        self._on_room()
        # At the same time: each may linger.
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tasks.close(), name=f"{self.name}: closing")
            for link in self.links.values():
                group.create_task(link.router.close(), name=f"{self.name}: closing {link.name}")

    # -- the way of a request

    def open(
        self,
        service: str,
        timeout: float | None,
        parts: Sequence[bytes] | bytes,
        msg_id: int,
        key: bytes | str | None,
        idempotent: bool,
        trace: TraceContext | None,
        sink: Any,
        is_awaited: bool,
    ) -> Call:
        """Send a request, or park it until a provider is connected. If it raises, nothing was sent."""
        calls, now = self.calls, self._loop.time()
        call = calls.make(service, timeout, parts, msg_id, key, idempotent, trace, sink, is_awaited, now)
        frames = calls.first_frames(call, timeout)
        link = self.links.get(service)
        if link is not None and link.pool.ready:
            self._post(call, link, link.pool.well or link.pool.ready, frames)
            if idempotent:  # Its patience is computed only if it is not answered by then.
                self._timers.try_begun(call, TRY_S_MIN, now)
        else:
            encode(frames, [])  # An unsendable request fails now, as if a provider were there.
            self._park(call, link or self.services.absent(service))
        if calls.opened(call):
            self._timers.set_alarm(call.deadline, now)
        return call

    def open_direct(
        self,
        service: str,
        timeout: float | None,
        routing_id: bytes,
        request_id: int,
        parts: list[bytes],
        msg_id: int,
        sink: Any,
    ) -> Call:
        """Send to the provider that the caller chose. Raises NoProvider, BadArgument, Backlogged."""
        link = self.links.get(service)
        member = None if link is None else link.pool.ready_as(routing_id)
        if link is None or member is None:
            raise self.services.not_there(service, routing_id)
        now = self._loop.time()
        call = self.calls.make(
            service, timeout, parts, msg_id, None, False, None, sink, False, now, request_id
        )
        link.router.post(routing_id, self.calls.first_frames(call, timeout))
        call.posted(member)
        if self.calls.opened(call):
            self._timers.set_alarm(call.deadline, now)
        return call

    def _post(self, call: Call, link: ServiceLink, choices: list[PoolMember], frames: list[bytes]) -> None:
        """Choose a provider and hand the request to the socket. If it raises, nothing was sent."""
        if len(choices) == 1:
            member = choices[0]
        else:
            try:
                member = link.balancer.choose(choices, call.key, self._chance)
            except Exception as failure:  # The balancer may be the user's own.
                raise UsageError(f"the balancer of {link.name} failed for {call}: {failure!r}") from failure
            if type(member) is not PoolMember or not member.in_ready:
                raise UsageError(f"the balancer of {link.name} chose {member!r}: not one that it was given")
        lane = link.lanes.get(member.peer)
        if lane is None:
            link.router.post(member.peer, frames)  # This raises the error that says why it cannot.
        # Not router.post: this saves a call (`make bench`, case gateway).
        elif (due := lane.outbox.put(frames)) != QUIET:
            lane.act(due)
        call.posted(member)

    def _replies(self, link: ServiceLink, peer: bytes, messages: list[list[bytes]]) -> None:
        """Handle what a provider sent in one chunk."""
        if link.pool.suspects:
            link.pool.heard(peer)
        answer, sampling, at = self.calls.answer, link.hedging.sampling, 0
        while (at := answer(peer, messages, at, sampling)) < len(messages):
            self._reply(link, peer, messages[at])
            at += 1
        link.answered(peer)
        self._on_room()

    def _reply(self, link: ServiceLink, peer: bytes, frames: list[bytes]) -> None:
        """Handle one reply that is not plain."""
        try:
            request_id, msg_id, _, parts = decode_call(frames)
        except BadFrame as error:
            self._bad_reply(link, peer, error)
            return
        call = self.calls.asked_of(peer, request_id)
        if call is None:
            return
        if msg_id == ERROR_MSG_ID:
            self._error_reply(link, peer, call, parts)
            return
        self._learn(link, call)
        self._leave(link, call)
        self._leave_beside(link, call)
        self.calls.replied(call, parts)

    def tell(
        self, callback: Callable[[Completion], None], call: Call, parts: list[bytes], error: HansaError | None
    ) -> None:
        """Pass a call's outcome to its caller's callback."""
        try:
            callback(completion_of(call, parts, error))
        except Exception as failure:
            self._report(failure, f"the callback of {call} failed")

    @staticmethod
    def _leave(link: ServiceLink, call: Call) -> None:
        """Take the request from the member that it was posted to."""
        if (member := call.leave()) is not None:
            link.settled(member)

    @staticmethod
    def _leave_beside(link: ServiceLink, call: Call) -> None:
        """Take it also from earlier members; their answers are late then."""
        for member in call.leave_beside():
            link.settled(member)

    def _learn(self, link: ServiceLink, call: Call) -> None:
        """An idempotent request was answered: note what that says about the next."""
        hedging = link.hedging
        if not call.idempotent or call.request_id & hedging.sampling:
            return
        if call.beside:
            hedging.answered_late()
        elif not call.tried:
            hedging.answered(self._loop.time() - call.tried_at)

    # -- outcomes other than a reply

    def abandon(self, call: Call) -> None:
        """The caller was cancelled, and does not wait for the reply any longer."""
        if self.calls.abandon(call):
            self._withdraw(call)
            self._on_room()

    def _fail(self, call: Call, error: HansaError) -> None:
        self.calls.fail(call, error)
        self._on_room()

    def _withdraw(self, call: Call) -> None:
        """Remove a call that is no longer open from where it waits."""
        link = self.links[call.service]
        self._leave_beside(link, call)
        if call.member is not None:
            self._leave(link, call)
        else:
            link.forget(call)
            self.services.release(link)

    def _bad_reply(self, link: ServiceLink, peer: bytes, error: BadFrame) -> None:
        if self.strikes.strike(peer, error):
            link.router.expel(peer, f"too many messages that are no replies; the last: {error}")

    def _error_reply(self, link: ServiceLink, peer: bytes, call: Call, parts: list[bytes]) -> None:
        try:
            code, text = decode_error(parts)
        except BadFrame as error:
            self._bad_reply(link, peer, error)
            # It was an answer all the same, and there will be no other.
            self._leave(link, call)
            self._leave_beside(link, call)
            self._fail(call, error)
            return
        self._leave(link, call)
        problem = error_from_code(code, text)
        member = call.member
        if isinstance(problem, ProviderDraining) and member is not None and member.peer == peer:
            link.pool.drains(member)
            link.look()
        self._try_again(call, link, problem, not_started=isinstance(problem, NOT_STARTED))

    def _try_again(self, call: Call, link: ServiceLink, error: HansaError, *, not_started: bool) -> None:
        """A try has failed: start the next one, or end the call with this error."""
        call.end_try()
        if (
            self._is_closed
            or call.is_direct
            or not self._retry.allows(
                error, tries_count=len(call.tried), idempotent=call.idempotent, not_started=not_started
            )
        ):
            self._give_up(call, link, error)
            return
        if not_started:
            self.tally.moved_count += 1
        else:
            self.tally.retried_count += 1
        if link.pool.has_others(call.tried):
            self._go_on(call, link, error)
        else:
            self._pause(call, link, error)

    def _give_up(self, call: Call, link: ServiceLink, error: HansaError) -> None:
        """There is no other try: end the call, unless a try beside may still be answered."""
        if call.beside and error.retryable:
            return
        self._leave_beside(link, call)
        self._fail(call, error)

    def _pause(self, call: Call, link: ServiceLink, error: HansaError) -> None:
        if call.beside:  # The call is not idle meanwhile, and is checked again soon.
            self._timers.try_begun(call, HEDGE_LOOK_S, self._loop.time())
            return
        pause_s = self._retry.pause_s(max(1, len(call.tried)), self._chance)
        link.pause(call, self._loop.call_later(pause_s, self._go_on, call, link, error))

    def _go_on(self, call: Call, link: ServiceLink, error: HansaError) -> None:
        """Start the next try of a call, unless it has ended meanwhile; without one, end it with `error`."""
        link.forget(call)
        if self.calls.open.get(call.request_id) is not call:
            return
        try:
            if link.pool.ready:
                pool, tried = link.pool, call.tried
                choices = pool.choices_beside(call.asked, tried) if call.beside else pool.choices(tried)
                self._post_again(call, link, choices, self._loop.time())
            else:
                self._park(call, link)
        except Backlogged:  # The providers do not read now.
            self._pause(call, link, error)
        except Unavailable:  # No provider is there.
            self._give_up(call, link, error)
        except HansaError as problem:
            self._give_up(call, link, problem)
        self.services.release(link)

    def _post_again(self, call: Call, link: ServiceLink, choices: list[PoolMember], now: float) -> None:
        """As `_post`, for a try that is not the first."""
        self._post(call, link, choices, call.frames_again(now))
        if call.idempotent:
            self._timers.try_begun(call, TRY_S_MIN, now)

    def _overdue(self, call: Call, now: float) -> None:
        """The current try has had its time: ask another provider too, if there is one and it is allowed."""
        link = self.links[call.service]
        due_at = call.tried_at + link.hedging.patience_s(call.deadline - call.started_at)
        if call.member is not None and now < due_at:
            call.look_again(due_at)
            return
        asked, tried = call.asked, call.tried
        if call.member is not None:
            self._timers.suspect(link.pool, call.member, now)
            tried = (*tried, call.member.endpoint)
        if not self._retry.allows_beside(tries_count=len(tried)):
            call.look_again(NEVER)
            return
        call.look_again(now + HEDGE_LOOK_S)  # Unless it is sent now.
        choices = link.pool.choices_beside(asked, tried)
        if not choices:
            return
        if not link.hedging.take(now=now):
            self.tally.withheld_count += call.withhold()
            return
        call.set_beside()
        try:
            self._post_again(call, link, choices, now)
            self.tally.hedged_count += 1
        except HansaError:  # The providers do not read now, and there is a try that may be answered.
            call.look_again(now + HEDGE_LOOK_S)

    # -- waiting: for room, for a provider, for the end of time

    def _park(self, call: Call, link: ServiceLink) -> None:
        """Keep a call until a provider is connected. Raises NoProvider when none is about to be."""
        if not self.services.is_hopeful(link):
            raise self.services.nobody(call.service)
        link.park(call)

    def _expired(self, call: Call, now: float, due_at: float) -> None:
        """End a call whose time is over, and which is no longer open."""
        problem = call.timed_out(self._providers.situation, now=now, due_at=due_at)
        self._withdraw(call)
        self.calls.settle(call, problem)
        self._on_room()

    # -- providers come and go

    def service_ready(self, link: ServiceLink) -> None:
        """Send the requests that waited for a provider."""
        self._unpark(link)
        link.waiters.wake_all()

    def service_hopeless(self, link: ServiceLink) -> None:
        """End the requests that waited for a provider, once it is known that there is none."""
        if not self._providers.awaits_first_list:
            self._unpark(link)
            link.waiters.wake_all()

    def _unpark(self, link: ServiceLink) -> None:
        for call in link.take_parked():
            self._go_on(call, link, self.services.nobody(call.service))

    def member_lost(self, link: ServiceLink, member: PoolMember, event: Disconnected) -> None:
        """Requests that the connection was given may have been carried out; others go to another provider."""
        calls = self.calls.of_member(member, event.peer)
        unsent_after = member.posted_count - event.unsent_count
        link.pool.disconnected(member)
        for call in calls:
            error = ProviderLost(
                f"{call} was with {member.endpoint} ({format_id(event.peer)}) when the connection "
                f"ended ({event.reason}): it may or may not have been carried out"
            )
            if call.peer == event.peer:
                self._try_again(call, link, error, not_started=call.post_number > unsent_after)
            else:
                call.drop_beside(event.peer)
                if call.member is None and not call.beside:
                    self._try_again(call, link, error, not_started=False)

    def _new_router(self, link: ServiceLink) -> Router:
        return Router(
            new_routing_id(self._chance),
            environment=self._environment,
            on_messages=partial(self._replies, link),
            on_event=link.happened,
            name=f"{self.name} for {link.name}",
        )

    def _report(self, error: BaseException, message: str) -> None:
        self._loop.call_exception_handler({"message": message, "exception": error})
