"""The work of a provider: requests, their handlers and replies, and which requests run. Pure.

At most `concurrency_max` requests run, at most `threads_max` of them in threads. At most `waiting_max` more
(and `waiting_bytes_max` of them) wait; of the waiting ones that could run, the oldest goes first. Any further
request is refused as busy. A request is not started once its deadline has passed or its caller has left.

Requests for tasks and for threads wait in two lines, so that plain functions that fill all threads do not
hold up the others.

Compiled by mypyc: every request passes here (`make bench`, case gateway).
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from hansa.errors import (
    BadArgument,
    BadFrame,
    HandlerFailed,
    HansaError,
    NoProvider,
    ProviderBusy,
    ProviderDraining,
    Unavailable,
)
from hansa.limits import ERROR_CODE_BYTES_MAX, WAITING_BYTES_MAX, WAITING_SWEEP_S
from hansa.wire.business import (
    CallHeader,
    ErrorReply,
    TraceContext,
    decode_call,
    decode_header,
    encode_call,
)

Reply: TypeAlias = bytes | Sequence[bytes] | None


class Request:
    """A caller's request. `deadline` is in the event loop's time; after it nobody waits for the reply."""

    __slots__ = ("deadline", "msg_id", "parts", "peer", "request_id", "trace")

    def __init__(
        self,
        parts: list[bytes],
        msg_id: int,
        request_id: int,
        peer: bytes,
        deadline: float | None = None,
        trace: TraceContext | None = None,
    ) -> None:
        self.parts = parts
        self.msg_id = msg_id
        self.request_id = request_id
        self.peer = peer
        self.deadline = deadline
        self.trace = trace

    def __repr__(self) -> str:
        return (
            f"Request(parts={self.parts!r}, msg_id={self.msg_id!r}, request_id={self.request_id!r}, "
            f"peer={self.peer!r}, deadline={self.deadline!r}, trace={self.trace!r})"
        )

    @property
    def payload(self) -> bytes:
        """The first part; a request has at least one."""
        return self.parts[0]

    def remaining_s(self, now: float) -> float | None:
        """How long the caller still waits; None when it did not say. Never negative."""
        return None if self.deadline is None else max(0.0, self.deadline - now)


HandlerFunction: TypeAlias = Callable[[Request], Reply] | Callable[[Request], Awaitable[Reply]]


class Handler:
    """A function for one msgId. A plain one (`def`) runs in a thread, another (`async def`) as a task."""

    __slots__ = ("function", "is_plain", "msg_id")

    def __init__(self, msg_id: int, function: HandlerFunction) -> None:
        self.msg_id = msg_id
        self.function = function
        # An object with an async __call__ counts as an async def.
        self.is_plain = not (
            inspect.iscoroutinefunction(function)
            or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
        )

    @property
    def name(self) -> str:
        """The function's name for people: where it was defined, and its msgId."""
        named = self.function if hasattr(self.function, "__qualname__") else type(self.function)
        return f"{named.__module__}.{named.__qualname__} (msgId {self.msg_id})"


def reply_parts(reply: object, frame_bytes_max: int, message_bytes_max: int) -> list[bytes]:
    """The parts of a reply. Raises `HandlerFailed` for a value that a handler must not return.

    A reply that is too large is such a value: the caller's side would end the whole connection.
    """
    given: list[Any]  # Compiled code would raise an error of its own for a value of another type.
    if type(reply) is bytes:
        given = [reply]
    elif reply is None:
        return [b""]
    elif isinstance(reply, list | tuple):
        given = reply if type(reply) is list else list(reply)
    else:
        raise HandlerFailed(
            f"the handler returned {type(reply).__name__}; it must return bytes, a list of bytes or None"
        )
    size_bytes = 0
    for part in given:
        if type(part) is not bytes:
            raise HandlerFailed(f"the handler returned a part of type {type(part).__name__}, not bytes")
        size_bytes += len(part)
        if len(part) > frame_bytes_max or size_bytes > message_bytes_max:
            raise HandlerFailed(
                f"the handler's reply is too large: a part has at most {frame_bytes_max} bytes, "
                f"all together {message_bytes_max}"
            )
    return given


def reply_frames(request: Request, reply: Any, frame_bytes_max: int, message_bytes_max: int) -> list[bytes]:
    """The frames of a reply. Raises `HandlerFailed` for a value that a handler must not return."""
    parts = reply_parts(reply, frame_bytes_max, message_bytes_max)
    return encode_call(request.request_id, request.msg_id, parts)


def error_reply(error: BaseException) -> ErrorReply:
    """The reply for a handler's exception: hansa's own errors keep their code."""
    try:
        text = str(error)
    # The exception's own __str__ failed: the caller gets its answer all the same.
    except Exception as broken:
        text = f"(its text failed: {type(broken).__name__})"
    if isinstance(error, NoProvider | ProviderBusy | ProviderDraining):
        # These errors promise "not started", and a caller may send such a request again without asking. A
        # handler that lets them through (it called somebody else, say) has started.
        return ErrorReply(Unavailable.code, f"{type(error).__name__}: {text}")
    if isinstance(error, HansaError):
        code = error.reason if isinstance(error, HandlerFailed) else error.code
        if 1 <= len(code) <= ERROR_CODE_BYTES_MAX and all("!" <= letter <= "~" for letter in code):
            return ErrorReply(code, text)
        return ErrorReply(HandlerFailed.code, f"{code}: {text}")
    return ErrorReply(HandlerFailed.code, f"{type(error).__name__}: {text}" if text else type(error).__name__)


# The results of offering a request. Integers, because every request is compared with them.
START: Final = 0
WAIT: Final = 1
BUSY: Final = 2
DRAINING: Final = 3
EXPIRED: Final = 4


@dataclass(slots=True, kw_only=True)
class WorkTally:
    """Counts of requests that were not started, by reason."""

    busy_count: int = 0
    draining_count: int = 0
    expired_count: int = 0
    """The caller's deadline had passed."""
    abandoned_count: int = 0
    """The caller had left."""


class Workload:
    """Admits requests and decides whose turn it is. The caller runs them and reports when each has ended."""

    def __init__(
        self,
        *,
        concurrency_max: int,
        threads_max: int,
        waiting_max: int,
        waiting_bytes_max: int = WAITING_BYTES_MAX,
    ) -> None:
        if concurrency_max < 1 or threads_max < 1 or waiting_max < 0:
            raise BadArgument(
                f"concurrency_max={concurrency_max}, threads_max={threads_max}, waiting_max={waiting_max}: "
                "something must be able to run; give at least 1, 1 and 0"
            )
        self.tally = WorkTally()
        self.running_count = 0
        self.waiting_count = 0
        self._concurrency_max = concurrency_max
        self._threads_max = threads_max
        self._waiting_max = waiting_max
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting_bytes = 0
        self._threads_count = 0
        self._is_shut = False
        self._arrivals_count = 0
        self._swept_at = float("-inf")
        # One line for tasks and one for threads; a number of arrival lets the older of two heads go first.
        self._lines: tuple[deque[tuple[int, Request, Handler]], ...] = (deque(), deque())
        # Most callers use one timeout and no trace, and so one header.
        self._last_header = b""
        self._last_values = CallHeader()

    def take(
        self,
        peer: bytes,
        messages: list[list[bytes]],
        at: int,
        now: float,
        handlers: dict[int, Handler],
        due: deque[tuple[Request, Handler]],
        refused: list[tuple[Request, int]],
    ) -> int:
        """Offer the requests from `at` on; returns the place of the first without a handler, or the end.

        Requests to START are added to `due`, and those to answer BUSY or DRAINING to `refused`.
        """
        for place in range(at, len(messages)):
            deadline: float | None = None
            trace: TraceContext | None = None
            try:
                request_id, msg_id, header, parts = decode_call(messages[place])
                if header:
                    if header != self._last_header:
                        self._last_values = decode_header(header)
                        self._last_header = header
                    remaining_ms, trace = self._last_values
                    if remaining_ms is not None:
                        deadline = now + remaining_ms / 1_000
            except BadFrame:
                return place
            handler = handlers.get(msg_id)
            if handler is None or not parts:
                return place
            request = Request(parts, msg_id, request_id, peer, deadline, trace)
            verdict = self.offer(request, handler, now)
            if verdict == START:
                due.append((request, handler))
            elif verdict in (BUSY, DRAINING):
                refused.append((request, verdict))
        return len(messages)

    def offer(self, request: Request, handler: Handler, now: float) -> int:
        """START it, let it WAIT here, or answer BUSY or DRAINING; EXPIRED needs no answer."""
        deadline = request.deadline
        if deadline is not None and deadline <= now:
            self.tally.expired_count += 1
            return EXPIRED
        if self._is_shut:
            self.tally.draining_count += 1
            return DRAINING
        if self.running_count < self._concurrency_max:
            if not handler.is_plain:
                self.running_count += 1
                return START
            if self._threads_count < self._threads_max:
                self.running_count += 1
                self._threads_count += 1
                return START
        if not self._has_room(now):
            self.tally.busy_count += 1
            return BUSY
        self._arrivals_count += 1
        self._lines[handler.is_plain].append((self._arrivals_count, request, handler))
        self.waiting_count += 1
        self._waiting_bytes += _size(request)
        return WAIT

    def ended(self, handler: Handler) -> None:
        """A started request has ended. If others wait, `next_due` returns the one to start instead."""
        self.running_count -= 1
        if handler.is_plain:
            self._threads_count -= 1

    def unstarted(self, handler: Handler) -> None:
        """A request that was to be started never was, and is answered DRAINING."""
        self.ended(handler)
        self.tally.draining_count += 1

    def next_due(self, now: float) -> tuple[Request, Handler] | None:
        """The oldest waiting request that can run now; it counts as started."""
        while self.running_count < self._concurrency_max:
            tasks, threads = self._lines
            line = tasks
            if threads and self._threads_count < self._threads_max:
                line = threads if not tasks or threads[0][0] < tasks[0][0] else tasks
            if not line:
                return None
            _, request, handler = line.popleft()
            self._left_the_line(request)
            if request.deadline is not None and request.deadline <= now:
                self.tally.expired_count += 1
                continue
            self.running_count += 1
            self._threads_count += handler.is_plain
            return request, handler
        return None

    def peer_left(self, peer: bytes) -> None:
        """Forget the waiting requests of this caller."""
        if self.waiting_count:
            self.tally.abandoned_count += self._sweep(lambda request: request.peer == peer)

    def shut(self) -> None:
        """From now on all new requests are answered DRAINING; waiting and running ones go on."""
        self._is_shut = True

    def give_up(self) -> list[Request]:
        """Start nothing more; returns the waiting requests, oldest first, to be answered DRAINING."""
        self.shut()
        left = [request for _, request, _ in sorted((*self._lines[0], *self._lines[1]), key=_arrival)]
        self._sweep(lambda request: True)
        self.tally.draining_count += len(left)
        return left

    def _has_room(self, now: float) -> bool:
        if self._fits():
            return True
        if self.waiting_count and now - self._swept_at >= WAITING_SWEEP_S:
            self._swept_at = now
            self.tally.expired_count += self._sweep(
                lambda request: request.deadline is not None and request.deadline <= now
            )
        return self._fits()

    def _fits(self) -> bool:
        # As in an outbox: a request larger than the whole bound may wait when nothing else does.
        return self.waiting_count < self._waiting_max and self._waiting_bytes < self._waiting_bytes_max

    def _sweep(self, is_unwanted: Callable[[Request], bool]) -> int:
        count_before = self.waiting_count
        for line in self._lines:
            kept = []
            for waiting in line:
                if is_unwanted(waiting[1]):
                    self._left_the_line(waiting[1])
                else:
                    kept.append(waiting)
            line.clear()
            line.extend(kept)
        return count_before - self.waiting_count

    def _left_the_line(self, request: Request) -> None:
        self.waiting_count -= 1
        self._waiting_bytes -= _size(request)


def _size(request: Request) -> int:
    return sum(map(len, request.parts))


def _arrival(waiting: tuple[int, Request, Handler]) -> int:
    return waiting[0]
