"""Runs handlers: takes requests from the socket, runs them in tasks and threads, and sends the replies.

What the driver must do. It offers each request to `Workload`, and starts it, leaves it there, or answers it
at once, as `Workload` says. It tells `Workload` of each request that has ended, and starts as many waiting
ones as there is room for. It tells `Workload` and `Strikes` of each caller that has left. After each of
these, `calm` checks again.

A reply to a caller that reads slowly waits at most `REPLY_S_MAX`, and never past the caller's deadline.
Answers that no handler gives (busy, draining, bad request) do not wait: a full buffer keeps a reserve for
them. If a reply cannot be delivered, its caller's connection is ended, so that the caller stops waiting.

The hot path is `take` to `_run` (`make bench`, case gateway): one decode, one look-up, one encode. Tasks are
kept here and not in a `TaskScope`: a task that removes itself when it ends saves a callback and a turn of the
loop per request.

The requests of one chunk wait in a line, and one task runs their handlers, one after another, for as long as
these return without suspending and leave no trace in the task (a context variable, a cancellation). The
handler that does either keeps the task for itself, and the rest of the line gets tasks of its own: `_share`,
called in the same turn of the loop. So each handler finds a current task and a context that no other has
touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import cast

from hansa.errors import (
    AlreadyClosed,
    Backlogged,
    BadArgument,
    BadFrame,
    HandlerFailed,
    HansaError,
    ProviderBusy,
    ProviderDraining,
    ProviderLost,
    Unavailable,
    UnknownMsgId,
    UsageError,
)
from hansa.ids import format_id
from hansa.limits import REPLY_S_MAX
from hansa.runtime.mailboxes import Waiters
from hansa.services.provider.work import (
    BUSY,
    Handler,
    HandlerFunction,
    Reply,
    Request,
    Workload,
    error_reply,
    reply_frames,
)
from hansa.transport import CloseReason, Router, SocketOptions
from hansa.transport.admission import Strikes
from hansa.wire.business import (
    ERROR_MSG_ID,
    ErrorReply,
    decode_call,
    decode_header,
    encode_error,
)

_KNOWN_SHOWN_MAX = 20
_LOG_INTERVAL_S = 1.0

_log = logging.getLogger("hansa.provider")


@dataclass(slots=True, kw_only=True)
class ReplyTally:
    """What became of requests that were started, and of those that nobody could start."""

    requests_count: int = 0
    replied_count: int = 0
    failed_count: int = 0
    unknown_msg_id_count: int = 0
    replies_dropped_count: int = 0
    not_reading_count: int = 0


class HandlerRunner:
    """Answers every request that it takes exactly once, unless its caller has given up or left."""

    def __init__(
        self, name: str, work: Workload, *, threads_max: int, cancel_s_max: float, options: SocketOptions
    ) -> None:
        self.tally = ReplyTally()
        self.strikes = Strikes()
        self.work = work
        self._name = name
        self._task_name = f"{name}: handler"
        self._threads_max = threads_max
        self._cancel_s_max = cancel_s_max
        self._frame_bytes_max = options.frame_bytes_max
        self._message_bytes_max = options.message_bytes_max
        self._handlers: dict[int, Handler] = {}
        self._running: dict[Request, asyncio.Task[None]] = {}
        self._lines: dict[asyncio.Task[None], deque[tuple[Request, Handler]]] = {}
        """Requests that have not begun, by the task that runs those before them."""
        self._pool: ThreadPoolExecutor | None = None
        self._in_threads: dict[Future[Reply], Handler] = {}
        self._left_behind: set[Request] = set()
        """Requests whose handlers still run after the end; their callers have been told so."""
        self._calm = Waiters()
        self._is_watched = False
        self._is_ending = False
        self._logged_at = float("-inf")
        self._not_logged_count = 0
        self._router: Router
        self._loop: asyncio.AbstractEventLoop

    def add(self, msg_id: int, function: HandlerFunction) -> None:
        """Call this function for requests with this msgId. Raises BadArgument, UsageError."""
        if not 0 <= msg_id < ERROR_MSG_ID:
            raise BadArgument(f"msgId {msg_id} is not in 0..{ERROR_MSG_ID - 1}")
        if not callable(function):
            raise BadArgument(f"a handler is a function, not {type(function).__name__}")
        if msg_id in self._handlers:
            raise UsageError(f"{self._name} already has a handler for msgId {msg_id}: {self._known()}")
        self._handlers[msg_id] = Handler(msg_id, function)

    def start(self, router: Router) -> None:
        self._router = router
        self._loop = asyncio.get_running_loop()

    # -- requests in

    def take(self, peer: bytes, messages: list[list[bytes]]) -> None:
        """Take all requests of one chunk."""
        now, work = self._loop.time(), self.work
        due: deque[tuple[Request, Handler]] = deque()
        refused: list[tuple[Request, int]] = []
        self.tally.requests_count += len(messages)
        at = 0
        while (at := work.take(peer, messages, at, now, self._handlers, due, refused)) < len(messages):
            self._take_other(peer, messages[at])
            at += 1
        for request, verdict in refused:
            self._answer(request, _busy(self._name) if verdict == BUSY else _draining(self._name))
        if len(due) == 1:
            self._start(*due.popleft())
        elif due:
            task = self._loop.create_task(self._run_line(due), name=self._task_name)
            self._lines[task] = due
            self._loop.call_soon(self._share, task)

    def peer_left(self, peer: bytes) -> None:
        """Forget the waiting requests of this caller; those that run go on."""
        self.work.peer_left(peer)
        self.strikes.forget(peer)
        self._calm.wake_all()

    def _take_other(self, peer: bytes, frames: list[bytes]) -> None:
        """Handle a message that is no request for a handler."""
        try:
            request_id, msg_id, header, parts = decode_call(frames)
            decode_header(header)
            if not parts:
                raise BadFrame("a request has at least one part", "no-parts")
        except BadFrame as error:
            self._take_bad(peer, frames, error)
        else:
            self._take_unknown(peer, request_id, msg_id)

    def _take_bad(self, peer: bytes, frames: list[bytes], error: BadFrame) -> None:
        if frames and len(frames[0]) == 8:
            request_id = int.from_bytes(frames[0], "little")
            self._post(peer, encode_error(request_id, ErrorReply(BadFrame.code, str(error))))
        if self.strikes.strike(peer, error):
            self._router.expel(peer, f"too many bad requests, the last: {error}")

    def _take_unknown(self, peer: bytes, request_id: int, msg_id: int) -> None:
        if msg_id == ERROR_MSG_ID:
            # Not answered: two peers that answer each other's failures would never stop.
            if self.strikes.strike(peer, BadFrame("a failed reply came as a request", "not-a-request")):
                self._router.expel(peer, "too many failed replies sent as requests")
            return
        self.tally.unknown_msg_id_count += 1
        text = f"{self._name} has no handler for msgId {msg_id}; it knows {self._known()}"
        self._post(peer, encode_error(request_id, ErrorReply(UnknownMsgId.code, text)))

    # -- handlers

    def _start(self, request: Request, handler: Handler) -> None:
        self._running[request] = self._loop.create_task(self._run(request, handler), name=self._task_name)

    async def _run_line(self, line: deque[tuple[Request, Handler]]) -> None:
        """Run one handler after another, while each leaves this task as it was."""
        running, run = self._running, self._run
        task, context = cast("asyncio.Task[None]", asyncio.current_task(self._loop)), copy_context()
        size = len(context)
        try:
            while line:
                request, handler = line.popleft()
                if handler.is_plain:
                    self._start(request, handler)
                    continue
                running[request] = task
                await run(request, handler)
                left = copy_context()
                if task.cancelling() or len(left) != size or (size and not _is_same(left, context)):
                    break
        finally:
            # Without the changes that the last handler made to this task's context.
            context.run(self._share, task)

    def _share(self, task: asyncio.Task[None]) -> None:
        """Give the requests that this task has not begun tasks of their own."""
        line = self._lines.pop(task, None)
        while line:
            self._start(*line.popleft())

    async def _run(self, request: Request, handler: Handler) -> None:
        work = self.work
        try:
            try:
                if handler.is_plain:
                    result = await self._in_thread(request, handler)
                else:
                    result = await handler.function(request)  # type: ignore[misc]
                frames = reply_frames(request, result, self._frame_bytes_max, self._message_bytes_max)
                self.tally.replied_count += 1
            except Exception as error:
                frames = self._failure(request, error)
            except asyncio.CancelledError as error:
                self.tally.failed_count += 1
                if request not in self._left_behind:
                    self._answer(request, _lost(self._name) if self._is_ending else error_reply(error))
                raise
            if request in self._left_behind:
                return
            try:
                if not self._router.post(request.peer, frames):  # The socket's policy is not to wait.
                    self.tally.replies_dropped_count += 1
                    self._part_from(request.peer)
            except Backlogged:
                await self._post_slowly(request, frames)
            except (Unavailable, AlreadyClosed):  # The caller has left, or the provider is leaving.
                self.tally.replies_dropped_count += 1
        finally:
            del self._running[request]
            work.ended(handler)
            if work.waiting_count or self._is_watched:
                self._look()

    async def _in_thread(self, request: Request, handler: Handler) -> Reply:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix=f"{self._name} handler")
        future = self._pool.submit(_call, handler, request)
        self._in_threads[future] = handler
        future.add_done_callback(self._in_threads.pop)
        return await asyncio.wrap_future(future)

    def _look(self) -> None:
        """A request has ended: start waiting ones, and wake those that wait in `calm`."""
        while self.work.waiting_count and (due := self.work.next_due(self._loop.time())) is not None:
            self._start(*due)
        if self._is_watched:
            self._calm.wake_all()

    def _failure(self, request: Request, error: Exception) -> list[bytes]:
        self.tally.failed_count += 1
        if not isinstance(error, HansaError):
            self._log_failure(request, error)
        return encode_error(request.request_id, error_reply(error))

    def _log_failure(self, request: Request, error: Exception) -> None:
        """Log it with its traceback, which the caller never sees; only so often, even if it fails often."""
        now = self._loop.time()
        if now - self._logged_at < _LOG_INTERVAL_S:
            self._not_logged_count += 1
            return
        more = f" ({self._not_logged_count} failures before it not shown)" if self._not_logged_count else ""
        self._logged_at, self._not_logged_count = now, 0
        _log.error("%s: the handler of msgId %d failed%s", self._name, request.msg_id, more, exc_info=error)

    # -- replies out

    def _answer(self, request: Request, reply: ErrorReply) -> None:
        self._post(request.peer, encode_error(request.request_id, reply))

    def _post(self, peer: bytes, frames: list[bytes]) -> None:
        """Send an answer that no handler gave. It is small and must not wait: it may use the reserve."""
        try:
            self._router.post_control(peer, frames)
        except Backlogged:
            self.tally.replies_dropped_count += 1
            self._part_from(peer)
        except (Unavailable, AlreadyClosed):
            self.tally.replies_dropped_count += 1

    async def _post_slowly(self, request: Request, frames: list[bytes]) -> None:
        """Wait for a caller that reads slowly, but not for one that has given up or never reads."""
        remaining_s = request.remaining_s(self._loop.time())
        gives_up_first = remaining_s is not None and remaining_s <= REPLY_S_MAX
        is_taken = False
        try:
            async with asyncio.timeout(remaining_s if gives_up_first else REPLY_S_MAX):
                is_taken = await self._router.send(request.peer, frames)
        except TimeoutError:
            if not gives_up_first:
                self._part_from(request.peer)
        except Backlogged:  # The socket's policy is not to wait.
            self._part_from(request.peer)
        except (Unavailable, AlreadyClosed):
            pass  # The caller has left, or the provider is leaving.
        finally:
            self.tally.replies_dropped_count += not is_taken

    def _part_from(self, peer: bytes) -> None:
        """A caller did not read: end its connection, so that it learns that a reply is lost."""
        detail = "the caller does not read its replies"
        if self._router.expel(peer, detail, reason=CloseReason.NOT_READING):
            self.tally.not_reading_count += 1
            _log.warning("%s ended the connection of %s: %s", self._name, format_id(peer), detail)
            self.peer_left(peer)

    # -- the end

    async def calm(self, is_calm: Callable[[], bool]) -> None:
        """Wait until `is_calm()`; it is checked when a request has ended and when a peer has left."""
        self._is_watched = True
        while not is_calm():
            await self._calm.wait()

    async def close(self) -> None:
        """Answer waiting requests, cancel running ones, and wait for them to end, but not for ever.

        A handler that still runs `cancel_s_max` after its cancellation is left behind: its caller is told,
        and its result is dropped. A plain function cannot be cancelled: its thread ends when it returns.
        """
        self._is_ending = True
        for request in self.work.give_up():
            self._answer(request, _draining(self._name))
        for line in self._lines.values():
            while line:
                self._unstarted(line.popleft()[0])
        try:
            await self._end_tasks(dict(self._running))
        finally:
            self._end_threads()

    async def _end_tasks(self, running: dict[Request, asyncio.Task[None]]) -> None:
        for task in running.values():
            task.cancel()
        if running:
            await asyncio.wait(running.values(), timeout=self._cancel_s_max)
        for request in [request for request in running if request in self._running]:
            if running[request].done():  # It was cancelled before its first step.
                del self._running[request]
                self._unstarted(request)
            else:
                self._left_behind.add(request)
                self._answer(request, _lost(self._name))
        if self._left_behind:
            _log.warning(
                "%s closes without %d handlers that go on %g s after they were cancelled: %s",
                self._name,
                len(self._left_behind),
                self._cancel_s_max,
                self._names(self._handlers[request.msg_id] for request in self._left_behind),
            )

    def _unstarted(self, request: Request) -> None:
        self.work.unstarted(self._handlers[request.msg_id])
        self._answer(request, _draining(self._name))

    def _end_threads(self) -> None:
        if self._pool is None:
            return
        busy = [handler for future, handler in list(self._in_threads.items()) if future.running()]
        if busy:
            _log.warning(
                "%s closes while %d plain handlers still run: %s", self._name, len(busy), self._names(busy)
            )
        # Idle threads end in no time; waiting for a busy one would stop the whole loop.
        self._pool.shutdown(wait=not busy, cancel_futures=True)

    @staticmethod
    def _names(handlers: Iterable[Handler]) -> str:
        return ", ".join(sorted({handler.name for handler in handlers}))

    def _known(self) -> str:
        known = sorted(self._handlers)
        shown = ", ".join(map(str, known[:_KNOWN_SHOWN_MAX])) or "none"
        return (
            shown if len(known) <= _KNOWN_SHOWN_MAX else f"{shown} and {len(known) - _KNOWN_SHOWN_MAX} more"
        )


def _call(handler: Handler, request: Request) -> Reply:
    try:
        return handler.function(request)  # type: ignore[return-value]
    except StopIteration as error:
        # A future cannot carry StopIteration, and would never be done.
        raise HandlerFailed("StopIteration left the handler") from error


def _is_same(context: Context, before: Context) -> bool:
    """Whether two contexts of the same length hold the very same values."""
    return all(context.get(name, before) is value for name, value in before.items())


def _busy(name: str) -> ErrorReply:
    return ErrorReply(ProviderBusy.code, f"{name} has as many requests running and waiting as it takes")


def _draining(name: str) -> ErrorReply:
    return ErrorReply(ProviderDraining.code, f"{name} is leaving; the request was not started")


def _lost(name: str) -> ErrorReply:
    return ErrorReply(ProviderLost.code, f"{name} closed while the request ran; it may have been carried out")
