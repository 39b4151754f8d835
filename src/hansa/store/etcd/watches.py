"""All watches of a store over one stream to one etcd member, and to the next when that one fails.

What this driver owes to its two machines, the book of the tapes (`WatchBook`) and the lineage:

    asks      which revision is now, for each tape without a start, or with one that may never have been
    writes    all that the book has to say, and looks again until that is nothing: also for what was added, or
              closed, while something was being written, when nobody waited for the bell
    rings     the bell after each `add`, `remove` and `begin`, and each reader whose tape has news
    resends   after a broken stream everything that is still watched, from where each tape is
    confirms  before it resends, and whenever somebody doubts, that the store is the one it watched before
    beats     when a stream was quiet, so that one whose member is gone is left
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Self, TypeAlias

import grpc
import grpc.aio

from hansa.chance import Chance
from hansa.errors import (
    AlreadyClosed,
    Compacted,
    FutureRevision,
    HandshakeRefused,
    HansaError,
    StoreUnavailable,
)
from hansa.limits import STORE_TIMEOUT_S, STORE_WATCH_BEAT_S
from hansa.runtime.mailboxes import Bell, Waiters
from hansa.runtime.tasks import TaskScope
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd.caller import EtcdCaller, StoreLife, metadata_of
from hansa.store.etcd.lineage import HistoryLost
from hansa.store.etcd.members import Doubt, FailedTry, Rotation, Trail, judge
from hansa.store.etcd.messages import RANGE, WATCH, item_from_message
from hansa.store.etcd.watch_book import WatchBook, WatchTape
from hansa.store.values import WatchBatch

logger = logging.getLogger(__name__)

_Stream: TypeAlias = "grpc.aio.StreamStreamCall[api.WatchRequest, api.WatchResponse]"


class EtcdWatches:
    """The watches of one store.

    The stream is opened with the first watch, and stays until the store is closed.
    """

    def __init__(
        self, caller: EtcdCaller, life: StoreLife, *, chance: Chance, beat_s: float = STORE_WATCH_BEAT_S
    ) -> None:
        self.caller = caller
        self.life = life
        self._chance = chance
        self._beat_s = beat_s
        access = caller.access
        self._rotation = Rotation(len(access.endpoints), chance, begins_first=access.begins_first)
        self._book = WatchBook()
        self._readers: dict[WatchTape, Bell] = {}
        self._thrown_away: deque[WatchTape] = deque()
        # Rung for the writer, and for the task that asks for the current revision.
        self._bell = Waiters()
        self._tasks = TaskScope("watches", self._task_failed)
        self._is_running = False
        # What ended the tasks, by a fault of ours: then nobody serves watches any longer.
        self._broken: StoreUnavailable | None = None
        self._heard_count = 0
        # The token that the open stream came with.
        self._token: str | None = None
        # The member of the open stream, and the future that ends it.
        self._serving: tuple[int, asyncio.Future[FailedTry]] | None = None
        # One trail for the question for the current revision, one for the stream: they know the last failure.
        self._begin_trail = caller.trail()
        self._stream_trail = caller.trail()
        self.reconnects_count = 0

    @property
    def trouble(self) -> str:
        """What is in the way of a watch that no member has yet."""
        return (self._begin_trail if self._book.unbegun() else self._stream_trail).last_text

    def add(self, tape: WatchTape) -> Bell:
        """Add a watch; returns the bell on which its readers wait."""
        self._drop_thrown_away()
        readers = Bell()
        tape.is_begun = 0 < tape.start_revision <= self.caller.lineage.revision + 1
        if self._broken is not None:
            tape.fail(self._broken)
        else:
            self._book.add(tape)
        if tape.error is None:
            self._readers[tape] = readers
            self._bell.wake_all()
            self._run()
        return readers

    def look(self) -> None:
        """Another store may be answering: settle that. Call it on the loop; twice is once."""
        if self.life.is_closed or self._broken is not None:
            return
        self.caller.lineage.doubt()
        self._bell.wake_all()
        self._run()

    def lose_all(self, lost: HistoryLost) -> None:
        """The store is not the one that was watched: all readers of watches read again."""
        error = Compacted(f"the store went back in time: {lost.why}; read anew", lost.revision)
        for tape in self._book.fail_all(error, only_begun=True):
            self._wake(tape)
        self._bell.wake_all()

    def remove(self, tape: WatchTape) -> None:
        self._book.remove(tape)
        self._readers.pop(tape, None)
        self._bell.wake_all()

    def throw_away(self, tape: WatchTape) -> None:
        """From a destructor, which may run in the middle of anything, in any thread: handled later."""
        self._thrown_away.append(tape)

    def use(self) -> None:
        """The access names other members now: a stream to a former member is moved to another one."""
        self._rotation.use(self.caller.access.members)
        if self._serving is not None and self._serving[0] not in self.caller.access.members:
            _end(self._serving[1], FailedTry(doubt=Doubt.UNDONE, text="it is not a member any more"))

    async def close(self) -> None:
        for readers in self._readers.values():
            readers.wake_all()
        await self._tasks.close()

    def _run(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._begin_all(), "beginning")
            self._tasks.spawn(self._keep_stream(), "stream")

    # ---- which revision is now, and of which history ----

    async def _begin_all(self) -> None:
        while True:
            if self.caller.lineage.is_doubtful:
                self._begin_trail = self.caller.trail()
                await self.caller.confirm(self._begin_trail, self._book.key)
                continue
            waiting = self._book.unbegun()
            if not waiting:
                await self._bell.wait()
                continue
            # One read for all that wait, of a key that the first of them may see.
            request = api.RangeRequest(key=waiting[0].key, keys_only=True, limit=1)
            self._begin_trail = self.caller.trail()
            try:
                answer = await self.caller.ask(RANGE, request, trail=self._begin_trail)
            except HansaError as error:
                self._fail(waiting[0], error)
                continue
            for tape in waiting:
                tape.begin(answer.header.revision)
                if tape.error is not None:
                    self._fail(tape, tape.error)
            self._bell.wake_all()

    # ---- the stream ----

    async def _keep_stream(self) -> None:
        while True:
            while not len(self._book):
                await self._bell.wait()
            index = self._rotation.current
            heard_count = self._heard_count
            failure = await self._serve(index, self._stream_trail)
            self._book.break_off()
            self.reconnects_count += 1
            self.caller.lineage.doubt(anew=True)
            if self._heard_count > heard_count:
                self._stream_trail = self.caller.trail()
            if failure.doubt is Doubt.STRANGER:
                # Also when the stream must come with a new token.
                self.caller.access.forget(self._token)
            else:
                self._rotation.failed(index)
            if isinstance(failure.error, HandshakeRefused):
                for tape in self._book.fail_all(failure.error):
                    self._wake(tape)
            logger.info("the watches at %s broke off: %s", self.caller.access.endpoints[index], failure.text)
            await asyncio.sleep(self._stream_trail.note(failure))

    async def _serve(self, index: int, trail: Trail) -> FailedTry:
        """Use one stream until it ends; returns the reason. It never raises."""
        access = self.caller.access
        if access.needs_token:
            try:
                await self.caller.greet(trail)
            except HansaError as error:
                return FailedTry(doubt=Doubt.UNDONE, text=str(error), error=error)
        if self.caller.lineage.is_doubtful:
            # Before it resumes from old revisions: they may be given out a second time.
            await self.caller.confirm(trail, self._book.key)
        self._token = access.token
        ended: asyncio.Future[FailedTry] = asyncio.get_running_loop().create_future()
        self._serving = index, ended
        channel = self.caller.acquire(index)
        try:
            return await self._speak(channel, index, ended)
        finally:
            self._serving = None
            await self.caller.release(index)

    async def _speak(
        self, channel: grpc.aio.Channel, index: int, ended: asyncio.Future[FailedTry]
    ) -> FailedTry:
        stream: _Stream = WATCH.stream_stub(channel)(metadata=metadata_of(self.caller.access))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(work, name=f"watches: {name}")
                for work, name in (
                    (self._read(stream, ended), "reading"),
                    (self._write(stream, ended), "writing"),
                    (self._beat(index, ended), "beating"),
                )
            ]
            try:
                return await ended
            finally:
                for task in tasks:
                    task.cancel()
                stream.cancel()
                # A cancellation's traceback holds this frame, in a cycle: the connection would stay open
                # until the garbage collector runs.
                tasks.clear()
                del stream

    async def _read(self, stream: _Stream, ended: asyncio.Future[FailedTry]) -> None:
        while True:
            try:
                response: Any = await stream.read()
            except grpc.aio.AioRpcError as error:
                _end(ended, judge(error.code().name, error.details() or ""))
                return
            if response is grpc.aio.EOF:
                _end(ended, FailedTry(doubt=Doubt.UNDONE, text="the member ended the stream"))
                return
            self._heard_count += 1
            self._note(response)
            tapes, must_reopen = self._book.hear(response)
            for tape in tapes:
                self._wake(tape)
            if must_reopen:
                _end(ended, FailedTry(doubt=Doubt.STRANGER, text=response.cancel_reason))
                return

    async def _write(self, stream: _Stream, ended: asyncio.Future[FailedTry]) -> None:
        while True:
            try:
                # Until there is none: a ring during a write wakes nobody.
                while requests := self._book.requests():
                    for request in requests:
                        await stream.write(request)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
                _end(ended, FailedTry(doubt=Doubt.UNDONE, text=f"the stream is gone: {error}"))
                return
            await self._bell.wait()

    async def _beat(self, index: int, ended: asyncio.Future[FailedTry]) -> None:
        """Ask the member of a quiet stream for a sign of life; leave a member that gives none.

        Not over the stream: there etcd answers only while no watch is catching up, and old versions answer
        wrongly.
        """
        while True:
            heard_count = self._heard_count
            await asyncio.sleep(self._beat_s)
            self._drop_thrown_away()
            # Twice, because a busy member may be late once.
            if self._heard_count == heard_count and await self.caller.probe(index) is not None:
                failure = await self.caller.probe(index)
                if failure is not None and self._heard_count == heard_count:
                    _end(ended, failure)
                    return

    def _note(self, response: api.WatchResponse) -> None:
        last = response.events[-1] if response.events else None
        is_put = last is not None and last.type == api.Event.PUT
        self.caller.lineage.seen(
            response.header.revision, item_from_message(last.kv) if last is not None and is_put else None
        )

    # ---- those who read ----

    def _wake(self, tape: WatchTape) -> None:
        readers = self._readers.get(tape)
        if readers is not None:
            readers.wake_all()
        if tape.error is not None:
            self._readers.pop(tape, None)

    def _fail(self, tape: WatchTape, error: HansaError) -> None:
        tape.fail(error)
        self._book.remove(tape)
        self._wake(tape)

    def _drop_thrown_away(self) -> None:
        while self._thrown_away:
            self.remove(self._thrown_away.popleft())

    def _task_failed(self, error: BaseException) -> None:
        logger.error("watches are no longer served: %s", error, exc_info=error)
        self._broken = StoreUnavailable(f"watches are no longer served, open the store anew: {error}")
        for tape in self._book.fail_all(self._broken):
            self._wake(tape)


def _end(ended: asyncio.Future[FailedTry], failure: FailedTry) -> None:
    if not ended.done():
        ended.set_result(failure)


class EtcdWatch:
    """A `Watch` of an etcd group: see there. If it is thrown away without `close`, it costs nothing more."""

    def __init__(self, watches: EtcdWatches, tape: WatchTape) -> None:
        self._watches = watches
        self._tape = tape
        self._closed = False
        self._readers = watches.add(tape)

    async def ready(self, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        self._check_open()
        trail = self._watches.caller.trail()
        # The watch has been requested; the caller wants to know whether a member has it.
        trail.is_under_way = True
        return await self._watches.life.within(self._ready, timeout, trail)

    def take(self) -> WatchBatch | None:
        if self._closed:
            return None
        self._watches.life.check_usable()
        return self._tape.take()

    def call_back(self, on_news: Callable[[], None]) -> None:
        self._readers.call_back(on_news)

    def close(self) -> None:
        self._closed = True
        self._readers.silence()
        self._watches.remove(self._tape)
        self._readers.wake_all()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        while not self._closed:
            if (batch := self.take()) is not None:
                return batch
            await self._readers.wait()
        raise StopAsyncIteration

    async def _ready(self, trail: Trail) -> int:
        tape = self._tape
        try:
            await self._until(lambda: tape.created_revision > 0)
        except asyncio.CancelledError:
            # If it is the deadline that ends this, the error tells why.
            trail.last_text = self._watches.trouble
            raise
        if not tape.is_surely_kept:
            # etcd accepts a watch of a compacted past, and ends it a little later. A read tells at once.
            request = api.RangeRequest(key=tape.key, revision=tape.start_revision, keys_only=True, limit=1)
            try:
                await self._watches.caller.ask(RANGE, request, trail=trail)
            except Compacted:
                await self._until(lambda: tape.is_surely_kept)
            except FutureRevision:
                await self._check_past(trail)
        return tape.start_revision

    async def _check_past(self, trail: Trail) -> None:
        """The store leapt over the revision: it was started again right before, or lost what was there."""
        tape = self._tape
        request = api.RangeRequest(key=tape.key, revision=tape.start_revision - 1, keys_only=True, limit=1)
        try:
            await self._watches.caller.ask(RANGE, request, trail=trail)
        except (Compacted, FutureRevision):
            await self._until(lambda: tape.is_surely_kept)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while self._tape.error is None and not condition():
            await self._readers.wait()
            self._check_open()
        if self._tape.error is not None:
            raise self._tape.error.with_traceback(None)

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("this watch is closed")

    def __del__(self) -> None:
        if not self._closed:
            self._watches.throw_away(self._tape)
