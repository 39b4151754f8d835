"""One stream of etcd's Watch: any number of watchers of one client, over one call.

Two tasks share it. One reads requests and makes or ends watchers; the other writes: answers first, then what
changed, one watcher after the other. Only the writer waits for the client. A client that does not read delays
only itself: its watchers' backlogs fill, and a watcher whose backlog overflows goes back to reading the log
at the client's pace, which costs no memory. When the log is compacted beneath it, the watcher is ended and
the client is told.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import grpc

from hansa.errors import BadArgument, Compacted, HansaError, PeerAway, StoreUnavailable, WatchOverrun
from hansa.limits import (
    STORE_MESSAGE_BYTES,
    STORE_MESSAGE_EVENTS,
    STORE_PROGRESS_S,
    STORE_STREAM_ANSWERS_MAX,
    STORE_STREAM_WATCHERS_MAX,
    STORE_WATCH_TURN_COUNT,
)
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.messages import event_to_message
from hansa.store.served.answers import COMPACTED
from hansa.store.served.served_store import ServedStore
from hansa.store.values import (
    FROM_KEY,
    Event,
    EventKind,
    WatchBatch,
    as_bytes,
    as_key,
    is_within,
    prefix_range,
)
from hansa.store.watching import Watcher, WatcherStage, WatchInterest, event_bytes

logger = logging.getLogger(__name__)

# The watch number of answers that belong to no watcher of the stream.
NO_WATCHER: Final = -1

_UNWANTED: Final = {
    api.WatchCreateRequest.NOPUT: EventKind.PUT,
    api.WatchCreateRequest.NODELETE: EventKind.DELETE,
}


@dataclass(slots=True)
class WatchStats:
    """Counts over all streams of a server."""

    streams_count: int = 0
    events_count: int = 0
    overruns_count: int = 0
    compacted_count: int = 0


@dataclass(slots=True)
class _Subscription:
    """A watcher of the stream, and its client's options."""

    watcher: Watcher
    key: bytes
    range_end: bytes
    is_narrower: bool
    unwanted: frozenset[EventKind]
    wants_progress: bool
    may_split: bool

    def wanted(self, batch: WatchBatch) -> list[Event]:
        """The wanted events.

        The watcher's own interest is a prefix; ranges within it, and filters, are applied here.
        """
        if not self.is_narrower and not self.unwanted:
            return list(batch.events)
        return [
            event
            for event in batch.events
            if event.kind not in self.unwanted and is_within(event.item.key, self.key, self.range_end)
        ]


class WatchStream:
    """Serves one call. `run` returns when the client has ended its requests, or raises when it is gone."""

    def __init__(
        self,
        served: ServedStore,
        header: Callable[[int], api.ResponseHeader],
        stats: WatchStats,
        context: grpc.aio.ServicerContext[api.WatchRequest, api.WatchResponse],
        *,
        progress_s: float = STORE_PROGRESS_S,
    ) -> None:
        self._served = served
        self._header = header
        self._stats = stats
        self._context = context
        self._progress_s = progress_s
        self._progress_at_s = asyncio.get_running_loop().time() + progress_s
        self._subscriptions: dict[int, _Subscription] = {}
        # Watchers with something to take. A dict as a set that keeps its order.
        self._ready: dict[int, None] = {}
        self._answers: deque[api.WatchResponse] = deque()
        self._progress_asked_count = 0
        self._next_id = 0
        self._wake = asyncio.Event()
        self._has_room = asyncio.Event()

    async def run(self) -> None:
        """Serve until the client ends the stream. All its watchers end then."""
        self._stats.streams_count += 1
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write_all(), name="watch stream: writing")
                await self._read_all()
                writer.cancel()
        except* PeerAway as gone:
            # The client is gone: there is nobody to tell.
            logger.debug("%s", gone.exceptions[0])
        finally:
            for subscription in self._subscriptions.values():
                self._served.unwatch(subscription.watcher)

    # ---- requests

    async def _read_all(self) -> None:
        while True:
            request: Any = await self._context.read()
            if request is grpc.aio.EOF:
                return
            kind = request.WhichOneof("request_union")
            if kind == "create_request":
                self._create(request.create_request)
            elif kind == "cancel_request":
                self._cancel(request.cancel_request.watch_id)
            elif kind == "progress_request":
                self._progress_asked_count = 1
                self._wake.set()
            while len(self._answers) >= STORE_STREAM_ANSWERS_MAX:
                self._has_room.clear()
                await self._has_room.wait()

    def _create(self, request: api.WatchCreateRequest) -> None:
        number = request.watch_id or self._free_id()
        try:
            if number in self._subscriptions:
                raise BadArgument("etcdserver: mvcc: duplicate watch ID provided on the WatchStream")
            if len(self._subscriptions) >= STORE_STREAM_WATCHERS_MAX:
                raise StoreUnavailable(f"a stream has at most {STORE_STREAM_WATCHERS_MAX} watchers")
            self._subscriptions[number] = self._subscribe(number, request)
        except Compacted as error:
            # etcd creates it and ends it at once; clients wait for both answers.
            self._answer(watch_id=number, created=True)
            self._end_compacted(number, error)
        except HansaError as error:
            self._answer(watch_id=NO_WATCHER, created=True, canceled=True, cancel_reason=str(error))
        else:
            self._answer(watch_id=number, created=True)

    def _subscribe(self, number: int, request: api.WatchCreateRequest) -> _Subscription:
        key = as_key(request.key or FROM_KEY)
        range_end = as_bytes(request.range_end)
        if range_end not in (b"", FROM_KEY) and range_end <= key:
            raise BadArgument("etcdserver: mvcc: watcher range is empty")
        interest, is_narrower = interest_of(key, range_end, before=request.prev_kv)
        watcher = self._served.watch(interest, request.start_revision, lambda: self._news(number))
        if watcher.stage is WatcherStage.CATCHING_UP:
            self._news(number)
        return _Subscription(
            watcher=watcher,
            key=key,
            range_end=range_end,
            is_narrower=is_narrower,
            unwanted=frozenset(_UNWANTED[kind] for kind in request.filters if kind in _UNWANTED),
            wants_progress=request.progress_notify,
            may_split=request.fragment,
        )

    def _cancel(self, number: int) -> None:
        subscription = self._subscriptions.pop(number, None)
        if subscription is not None:
            self._served.unwatch(subscription.watcher)
            self._ready.pop(number, None)
            self._answer(watch_id=number, canceled=True)

    def _free_id(self) -> int:
        while self._next_id in self._subscriptions:
            self._next_id += 1
        self._next_id += 1
        return self._next_id - 1

    def _answer(self, **facts: Any) -> None:
        self._answers.append(api.WatchResponse(header=self._header(self._served.safe_revision), **facts))
        self._wake.set()

    def _news(self, number: int) -> None:
        self._ready[number] = None
        self._wake.set()

    # ---- responses

    async def _write_all(self) -> None:
        while True:
            if self._answers:
                await self._write(self._answers.popleft())
                self._has_room.set()
            elif asyncio.get_running_loop().time() >= self._progress_at_s:
                await self._tell_progress()
            elif self._ready:
                await self._write_changes(next(iter(self._ready)))
            elif self._progress_asked_count:
                self._progress_asked_count = 0
                await self._write(self._message(NO_WATCHER, self._served.safe_revision))
            else:
                await self._rest()

    async def _write(self, message: api.WatchResponse) -> None:
        try:
            await self._context.write(message)
        except grpc.aio.InternalError as error:
            raise PeerAway("the client of a watch is gone") from error

    async def _rest(self) -> None:
        """Wait for something to do, at most until progress must be told."""
        self._wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(self._progress_at_s):
                await self._wake.wait()

    async def _tell_progress(self) -> None:
        """Tell progress to watchers that asked for it; events of other watchers do not delay it."""
        self._progress_at_s = asyncio.get_running_loop().time() + self._progress_s
        revision = self._served.safe_revision
        for number, subscription in tuple(self._subscriptions.items()):
            if subscription.wants_progress and number not in self._ready:
                await self._write(self._message(number, revision))

    async def _write_changes(self, number: int) -> None:
        subscription = self._subscriptions[number]
        try:
            events, revision = self._take(number, subscription)
        except Compacted as error:
            self._subscriptions.pop(number)
            self._ready.pop(number, None)
            self._served.unwatch(subscription.watcher)
            self._end_compacted(number, error)
            return
        if not events:
            # A long past without anything that is wanted: let others run meanwhile.
            await asyncio.sleep(0)
            return
        self._stats.events_count += len(events)
        messages = [event_to_message(event) for event in events]
        if not subscription.may_split:
            await self._write(self._message(number, revision, messages))
            return
        pieces = _pieces(messages)
        for piece in pieces[:-1]:
            await self._write(self._message(number, revision, piece, fragment=True))
        await self._write(self._message(number, revision, pieces[-1]))

    def _take(self, number: int, subscription: _Subscription) -> tuple[list[Event], int]:
        """Whole revisions, as many as fit a message; when none is left the watcher is no longer ready."""
        events: list[Event] = []
        looked_count, bytes_count, revision = 0, 0, 0
        while (
            looked_count < STORE_WATCH_TURN_COUNT
            and len(events) < STORE_MESSAGE_EVENTS
            and bytes_count < STORE_MESSAGE_BYTES
        ):
            looked_count += 1
            try:
                batch = self._next_batch(number, subscription)
            except Compacted:
                if events:
                    break  # Send these first; the error is raised again at the next call.
                raise
            if batch is None:
                if subscription.watcher.stage is not WatcherStage.CATCHING_UP:
                    self._ready.pop(number, None)
                break
            found = subscription.wanted(batch)
            events += found
            revision = batch.revision
            bytes_count += sum(map(event_bytes, found))
        else:
            # Its turn is over; it goes to the end of the line.
            self._ready.pop(number, None)
            self._ready[number] = None
        return events, revision

    def _next_batch(self, number: int, subscription: _Subscription) -> WatchBatch | None:
        try:
            return self._served.take(subscription.watcher)
        except WatchOverrun as error:
            # From here on it reads the log, at its own pace.
            self._served.unwatch(subscription.watcher)
            interest = subscription.watcher.interest
            subscription.watcher = self._served.watch(
                interest, error.resume_revision, lambda: self._news(number)
            )
            self._stats.overruns_count += 1
            return self._served.take(subscription.watcher)

    def _end_compacted(self, number: int, error: Compacted) -> None:
        self._stats.compacted_count += 1
        self._answer(
            watch_id=number,
            canceled=True,
            compact_revision=error.compacted_revision,
            cancel_reason=COMPACTED[1],
        )

    def _message(
        self, number: int, revision: int, events: list[api.Event] | None = None, *, fragment: bool = False
    ) -> api.WatchResponse:
        return api.WatchResponse(
            header=self._header(revision), watch_id=number, events=events or (), fragment=fragment
        )


def interest_of(key: bytes, range_end: bytes, *, before: bool) -> tuple[WatchInterest, bool]:
    """The narrowest prefix, or key, that contains a whole range; and whether the range is narrower."""
    if not range_end:
        return WatchInterest(key, True, before), False
    if prefix_range(key) == (key, range_end):
        return WatchInterest(key, False, before), False
    if range_end == FROM_KEY:
        return WatchInterest(b"", False, before), key != FROM_KEY
    length = 0
    while length < min(len(key), len(range_end)) and key[length] == range_end[length]:
        length += 1
    return WatchInterest(key[:length], False, before), True


def _pieces(events: list[api.Event]) -> list[list[api.Event]]:
    """The events in order, in pieces that a client with a small buffer can take; a large event alone."""
    pieces: list[list[api.Event]] = [[]]
    bytes_count = 0
    for event in events:
        size = event.ByteSize()
        if pieces[-1] and bytes_count + size > STORE_MESSAGE_BYTES:
            pieces.append([])
            bytes_count = 0
        pieces[-1].append(event)
        bytes_count += size
    return pieces
