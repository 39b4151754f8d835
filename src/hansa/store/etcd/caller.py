"""Calls to an etcd group: to a member that answers, as often as is safe, and what is known when they fail.

`StoreLife` is the time in which a store is open. Every call goes through it, so that its deadline, or
closing, ends it. `EtcdCaller` asks. It compares the header of each answer with what was seen before
(`Lineage`). It reports a store that went back in time to `on_lost`, and a store that may have gone back to
`on_doubt`, which must then call `confirm`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from hansa.chance import Chance
from hansa.control.client import channel_credentials, open_channel
from hansa.control.method import RequestT, ResponseT
from hansa.errors import (
    AlreadyClosed,
    Compacted,
    FutureRevision,
    HandshakeRefused,
    HansaError,
    StoreUnavailable,
    TimedOut,
    UsageError,
)
from hansa.limits import KIB, STORE_ANSWER_BYTES_MAX, STORE_PING_S, STORE_PING_TIMEOUT_S, STORE_TXN_BYTES_MAX
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import Waiters
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.lineage import HistoryLost, HistoryQuestion, Lineage, Mark
from hansa.store.etcd.members import Doubt, EtcdAccess, FailedTry, Rotation, Trail, judge
from hansa.store.etcd.messages import (
    AUTHENTICATE,
    LEASE_GRANT,
    RANGE,
    STATUS,
    EtcdCall,
    item_from_message,
)
from hansa.store.values import FROM_KEY

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A transaction of many small operations has more overhead around its keys and values.
_REQUEST_BYTES_MAX: Final = STORE_TXN_BYTES_MAX + 512 * KIB
CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.keepalive_time_ms", int(STORE_PING_S * 1000)),
    ("grpc.keepalive_timeout_ms", int(STORE_PING_TIMEOUT_S * 1000)),
    # etcd treats pings without a call as an attack.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", STORE_ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", _REQUEST_BYTES_MAX),
)
# A member without a leader refuses at once, instead of letting callers wait; it ends streams after a while.
_WITH_LEADER: Final = grpc.aio.Metadata(("hasleader", "true"))
# A fresh token that is refused this often in one call was not refused for its age.
_STRANGERS_MAX: Final = 3
NOT_ENABLED: Final = "authentication is not enabled"
# A timer may come early by this much: a clock that rounds must not make the loop spin.
_EARLY_S_MAX: Final = 0.001


class _Limit:
    """The deadline of a call. Then the task that makes the call is cancelled, as by `asyncio.timeout`."""

    __slots__ = ("_cancels_count", "_task", "deadline_s", "is_over")

    def __init__(self, task: asyncio.Task[Any], deadline_s: float) -> None:
        self._task: asyncio.Task[Any] | None = task
        # Cancellations by others, which want the task ended and not the call.
        self._cancels_count = task.cancelling()
        self.deadline_s = deadline_s
        self.is_over = False

    def end(self) -> None:
        if not self.is_over and self._task is not None:
            self.is_over = True
            self._task.cancel()

    def lift(self) -> bool:
        """The call has ended. Returns whether this limit cancelled it, and nobody else; twice is once."""
        # Cleared: an error refers to the frame that refers to this, in a cycle with the task. What the call
        # holds (a connection) would stay open until the garbage collector runs.
        task, self._task = self._task, None
        return self.is_over and task is not None and task.uncancel() <= self._cancels_count


class StoreLife:
    """The time from opening a store to closing it. Every call goes through `within`, so that closing ends it.

    One timer rings for all calls (a timer for each was a tenth of what a call costs: `make bench`, store).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._home: Home | None = None
        self._users_count = 0
        self._limits: dict[_Limit, None] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_s = inf
        self._context: Context | None = None
        self._left = Waiters()
        self.is_closed = False

    def enter(self) -> bool:
        """Add a user; returns whether it is the first. Raises `AlreadyClosed`, `UsageError`."""
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} is closed: make another one")
        if self._home is None:
            self._home = Home(f"store {self._name}", "open one for this loop")
            # The timer's own context: the task that sets it may be gone when it rings.
            self._context = copy_context()
        self.check_usable()
        self._users_count += 1
        return self._users_count == 1

    def leave(self) -> bool:
        """Remove a user; returns whether it was the last. Then the store is closed, and all calls end."""
        self._users_count -= 1
        if self._users_count:
            return False
        self.close()
        return True

    def close(self) -> None:
        """Close the store, and end all calls."""
        self.is_closed = True
        for limit in self._limits:
            limit.end()

    async def left(self) -> None:
        """Wait until every call has ended."""
        while self._limits:
            await self._left.wait()
        if self._alarm is not None:
            self._alarm.cancel()

    def check_usable(self) -> asyncio.AbstractEventLoop:
        """Its loop. Raises `AlreadyClosed`, and `UsageError` outside of `async with` and in another loop."""
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} is closed")
        home = self._home
        if home is None:
            raise UsageError(f"store {self._name} is not open: use it inside `async with`")
        # Faster than `home.check()`: every call comes this way (`make bench`, store).
        if asyncio._get_running_loop() is not home.loop:
            home.check()
        return home.loop

    async def within(self, work: Callable[[Trail], Awaitable[T]], timeout: float | None, trail: Trail) -> T:
        """Do the work before the deadline.

        Raises `TimedOut` when it may have been done, `StoreUnavailable` when it surely was not,
        `AlreadyClosed` when the store was closed before it was done.
        """
        limit = self._begin(timeout)
        try:
            return await work(trail)
        except asyncio.CancelledError:
            if not limit.lift():
                raise
        finally:
            limit.lift()
            del self._limits[limit]
            if self.is_closed:
                self._left.wake_all()
        # Outside of `except`: an error refers to the one before it, which would close the cycle of `lift`.
        if self.is_closed:
            raise AlreadyClosed(f"store {self._name} was closed")
        text = f"store {self._name} did not answer within {timeout} s: {trail.last_text}"
        raise TimedOut(text) if trail.may_be_done else StoreUnavailable(text)

    def _begin(self, timeout: float | None) -> _Limit:
        loop = self.check_usable()
        task = asyncio.current_task(loop)
        if task is None:
            raise UsageError(f"store {self._name} is called from a task, and not from a callback")
        if timeout is None:
            deadline_s = inf
        elif timeout > 0.0:
            deadline_s = loop.time() + timeout
        else:
            raise TimedOut(f"store {self._name} was given no time to answer")
        limit = _Limit(task, deadline_s)
        self._limits[limit] = None
        if deadline_s < self._alarm_s:
            self._set_alarm(loop, deadline_s)
        return limit

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, at_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_s = at_s
        self._alarm = None if at_s == inf else loop.call_at(at_s, self._ring, loop, context=self._context)

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the calls that are late, and set the timer for the next deadline."""
        late_s = loop.time() + _EARLY_S_MAX
        next_s = inf
        for limit in self._limits:
            if limit.deadline_s <= late_s:
                limit.end()
            else:
                next_s = min(next_s, limit.deadline_s)
        self._set_alarm(loop, next_s)


@dataclass(slots=True, eq=False)
class _Dialled:
    """The channel to a member, the calls that were made over it, and how many use it now."""

    channel: grpc.aio.Channel
    stubs: dict[str, grpc.aio.UnaryUnaryMultiCallable[Any, Any]] = field(default_factory=dict)
    users_count: int = 0


def metadata_of(access: EtcdAccess) -> grpc.aio.Metadata:
    """The metadata that goes with every call."""
    return grpc.aio.Metadata(*_WITH_LEADER, ("token", access.token)) if access.token else _WITH_LEADER


class EtcdCaller:
    """The channels of a store, for the event loop that opened them."""

    def __init__(self, access: EtcdAccess, *, try_timeout_s: float, chance: Chance, name: str = "it") -> None:
        self.access = access
        self.lineage = Lineage()
        self.on_lost: Callable[[HistoryLost], None] = lambda lost: None
        self.on_doubt: Callable[[], None] = lambda: None
        self._name = name
        self._try_timeout_s = try_timeout_s
        self._chance = chance
        self._rotation = Rotation(len(access.endpoints), chance, begins_first=access.begins_first)
        self._credentials: grpc.ChannelCredentials | None = None
        self._lines: dict[int, _Dialled] = {}
        self._authenticating = asyncio.Lock()
        self._confirming = asyncio.Lock()

    def open(self) -> None:
        """Open the channels. Raises `BadArgument` for credentials that cannot be used."""
        self._credentials = channel_credentials(self.access.tls)

    async def close(self) -> None:
        while self._lines:
            _, line = self._lines.popitem()
            await line.channel.close()

    def acquire(self, index: int) -> grpc.aio.Channel:
        """The channel to a member. It stays open until each caller has released it."""
        line = self._line(index)
        line.users_count += 1
        return line.channel

    async def release(self, index: int) -> None:
        # After `close` it is no longer there.
        if index in self._lines:
            self._lines[index].users_count -= 1
        if index not in self.access.members:
            await self._close_unused()

    async def use(self) -> None:
        """The access names other members now. Calls that are under way end where they are."""
        self._rotation.use(self.access.members)
        await self._close_unused()

    def trail(self) -> Trail:
        """A trail for one call, or for a series of calls that share a deadline."""
        return Trail(len(self.access.members), self._chance)

    async def ask(
        self,
        call: EtcdCall[RequestT, ResponseT],
        request: RequestT,
        *,
        trail: Trail,
        repeatable: bool = True,
    ) -> ResponseT:
        """The group's answer, however long it takes; the caller sets the deadline.

        A call that must not be done twice (`repeatable` is false) is sent to a member that is known to be
        reachable, and is repeated only if it surely was not done: else `TimedOut`. Raises what the store
        refuses with. Cancelling it leaves open whether it was done. A store that went back behind what was
        seen of it can be read, and is not changed: `StoreWentBack`.
        """
        loop = asyncio.get_running_loop()
        is_change = not repeatable or call.name == LEASE_GRANT.name
        if is_change and self.lineage.is_behind:
            await self._check_not_behind()
        while True:
            index = self._rotation.current
            token: str | None = None
            is_sent = False
            began_s = loop.time()
            try:
                if self.access.needs_token:
                    await self._authenticate(index, trail)
                token = self.access.token
                if not repeatable and not self._is_connected(index):
                    status = await self._once(
                        index, STATUS, api.StatusRequest(), trail.try_s(self._try_timeout_s)
                    )
                    await self._check_same(status.header)
                is_sent = trail.is_under_way = True
                timeout_s = trail.try_s(self._try_timeout_s) if repeatable else None
                mark = self.lineage.mark
                response = await self._once(index, call, request, timeout_s)
            except grpc.aio.AioRpcError as error:
                # Without its traceback, which refers to this frame, in a cycle with `cause`: the call would
                # live until the garbage collector runs, and gRPC would dial for it, also after closing.
                cause = error.with_traceback(None)
                failure = judge(error.code().name, error.details() or "")
            except asyncio.CancelledError:
                # The caller has given up. A member that had its time and said nothing may be frozen, with its
                # connection open: the next call goes to another.
                if loop.time() - began_s >= self._try_timeout_s:
                    self._rotation.failed(index)
                raise
            else:
                trail.is_under_way = False
                if call.is_ordered:
                    self._compare(response, mark, is_change=is_change)
                return response
            trail.is_under_way = False
            if not is_sent and failure.doubt is Doubt.DOUBTFUL:
                failure = replace(failure, doubt=Doubt.UNDONE)
            # A call that must not be repeated, and whose answer was lost, ends with `TimedOut` below.
            if failure.error is not None and (repeatable or failure.doubt is not Doubt.DOUBTFUL):
                raise failure.error from cause
            delay_s = self._failed(index, failure, token, trail)
            if not repeatable and failure.doubt is Doubt.DOUBTFUL:
                raise TimedOut(
                    f"{call.name} at {self.access.endpoints[index]} may or may not have been done:"
                    f" {failure.text}"
                ) from cause
            await asyncio.sleep(delay_s)

    async def confirm(self, trail: Trail, key: bytes = FROM_KEY) -> None:
        """If in doubt, settle whether the store is still the one that answered before. Once for all callers.

        It reads in a way that all members agree on: at the revision that was seen last, and the last change
        that was seen. `key` is one that the caller may see. What it finds is told to `on_lost`.
        """
        async with self._confirming:
            if not self.lineage.is_doubtful:
                return
            asked = self.lineage.question
            try:
                lost = await self._confirm(trail, key, asked)
            except HansaError as error:
                # Nothing is known of keys that this user may not read, and nothing was told of them.
                logger.warning("%s: cannot tell whether it went back in time: %s", self._name, error)
                self.lineage.unsettled(asked=asked)
                return
            if lost is not None:
                self.on_lost(lost)

    async def greet(self, trail: Trail) -> None:
        """Get a token, where one is needed. Raises `HandshakeRefused`."""
        await self.ask(STATUS, api.StatusRequest(), trail=trail)

    async def probe(self, index: int) -> FailedTry | None:
        """Ask whether a member lives and has a leader; returns None when it is well."""
        try:
            await self._once(index, STATUS, api.StatusRequest(), self._try_timeout_s)
        except grpc.aio.AioRpcError as error:
            return judge(error.code().name, error.details() or "")
        return None

    async def _confirm(self, trail: Trail, key: bytes, asked: HistoryQuestion) -> HistoryLost | None:
        witness = asked.witness
        key = key if witness is None else witness.key
        now = api.RangeRequest(key=key, keys_only=True, limit=1)
        try:
            # At revision 0, before anything was seen, this reads the current state.
            last = api.RangeRequest(key=key, revision=asked.mark[1], keys_only=True, limit=1)
            await self.ask(RANGE, last, trail=trail)
            if witness is None:
                return self.lineage.confirmed(None, asked=asked)
            then = api.RangeRequest(key=key, revision=witness.mod_revision, limit=1)
            answer = await self.ask(RANGE, then, trail=trail)
        except FutureRevision:
            answer = await self.ask(RANGE, now, trail=trail)
            return self.lineage.denied(answer.header.revision, asked=asked)
        except Compacted:
            # The revision was compacted meanwhile: then the current state has to be enough.
            await self.ask(RANGE, now, trail=trail)
            self.lineage.unsettled(asked=asked)
            return None
        found = item_from_message(answer.kvs[0]) if answer.kvs else None
        return self.lineage.confirmed(found, asked=asked)

    def _compare(self, response: Any, mark: Mark, *, is_change: bool) -> None:
        head = response.header
        lost = self.lineage.told(head.cluster_id, head.raft_term, head.revision, since=mark)
        if lost is not None:
            self.on_lost(lost)
            refusal = self.lineage.refusal(self._name)
            if is_change and refusal is not None:
                raise TimedOut(f"a change was made in what is left, and may not stay: {refusal}") from refusal
        elif self.lineage.is_doubtful and not self._confirming.locked():
            self.on_doubt()

    async def _check_same(self, head: api.ResponseHeader) -> None:
        """Check before a change over a new connection: it may lead to a store that went back."""
        if self.lineage.is_strange(head.cluster_id, head.raft_term, head.revision):
            self.lineage.doubt()
            # With a trail of its own: the change has not been sent yet.
            await self.confirm(self.trail())
            self._check_refusal()

    async def _check_not_behind(self) -> None:
        """Check whether the store has come beyond what was seen of it. Raises `StoreWentBack` if not."""
        # A user who may not read there stays refused until another of its reads shows more.
        with suppress(HandshakeRefused):
            request = api.RangeRequest(key=FROM_KEY, keys_only=True, limit=1)
            await self.ask(RANGE, request, trail=self.trail())
        self._check_refusal()

    def _check_refusal(self) -> None:
        if (refusal := self.lineage.refusal(self._name)) is not None:
            raise refusal

    def _failed(self, index: int, failure: FailedTry, token: str | None, trail: Trail) -> float:
        delay_s = trail.note(failure)
        if failure.doubt is not Doubt.STRANGER:
            self._rotation.failed(index)
            return delay_s
        if self.access.user is None or trail.strangers_count > _STRANGERS_MAX:
            raise HandshakeRefused(f"the store does not know us: {failure.text}", "auth-failed")
        self.access.forget(token)
        return 0.0

    async def _authenticate(self, index: int, trail: Trail) -> None:
        async with self._authenticating:
            if not self.access.needs_token:
                return
            request = api.AuthenticateRequest(name=self.access.user, password=self.access.password)
            try:
                answer = await self._once(index, AUTHENTICATE, request, trail.try_s(self._try_timeout_s))
            except grpc.aio.AioRpcError as error:
                if NOT_ENABLED not in (error.details() or ""):
                    raise
                self.access.token = ""
            else:
                self.access.token = answer.token

    async def _once(
        self, index: int, call: EtcdCall[RequestT, ResponseT], request: RequestT, timeout_s: float | None
    ) -> ResponseT:
        line = self._line(index)
        stub = line.stubs.get(call.name)
        if stub is None:
            stub = line.stubs[call.name] = call.stub(line.channel)
        line.users_count += 1
        try:
            response: ResponseT = await stub(request, timeout=timeout_s, metadata=metadata_of(self.access))
            return response
        finally:
            line.users_count -= 1
            if index not in self.access.members:
                await self._close_unused()

    def _line(self, index: int) -> _Dialled:
        line = self._lines.get(index)
        if line is None:
            channel = open_channel(
                self.access.endpoints[index], credentials=self._credentials, options=CHANNEL_OPTIONS
            )
            line = self._lines[index] = _Dialled(channel)
        return line

    def _is_connected(self, index: int) -> bool:
        return self._line(index).channel.get_state() is grpc.ChannelConnectivity.READY

    async def _close_unused(self) -> None:
        """Close the channels to former members that nobody uses."""
        unused = [index for index, line in self._lines.items() if not line.users_count]
        # Taken out at once: while one is being closed other tasks may look for unused ones, too.
        lines = [self._lines.pop(index) for index in unused if index not in self.access.members]
        for line in lines:
            await line.channel.close()
