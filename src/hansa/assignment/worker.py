"""A worker: a process that takes its share of a group's work, partition by partition.

The worker's mode decides how partitions come and go: on a store a leader places them (`store_mode`), in a
Kafka group the broker does (`kafka_mode`). What is the same in both is here. The worker must: say in its
member's metadata that it works for the group, as long as it does; read a partition's handoff when it owns the
partition, and not before; give each work to its user once; when a partition is asked for, have its work come
to an end, save the last note, and only then let the partition go; give a work to its user again when it ended
by itself; and forget a work when its partition is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from hansa.assignment.handoff import FailedHandoff, Handoff, Handoffs, HandoffSave, Recover, SavedHandoff
from hansa.assignment.partition import Partition
from hansa.assignment.store_mode import Mode, StoreMode
from hansa.assignment.topology import (
    HandoffFailed,
    PartitionAssigned,
    PartitionLost,
    PartitionRevoked,
    PartitionUpdated,
    TopologyEvent,
    WorkerInfo,
)
from hansa.assignment.work import Handler, Messages, OpenMessages, Work, WorkState
from hansa.coordination.following import TROUBLE, Following, changes, patient_backoff, patiently
from hansa.coordination.member import NodeRecord
from hansa.coordination.members import Members
from hansa.coordination.placed import PlacedClaim
from hansa.errors import (
    AlreadyClosed,
    BadRecord,
    Fenced,
    HandoverWithdrawn,
    HansaError,
    LimitExceeded,
    MixedModes,
    NotHeld,
    StoreCorrupt,
    UsageError,
)
from hansa.keys import Keys
from hansa.limits import (
    EVENTS_COUNT_MAX,
    HANDOFF_SAVE_S,
    HANDOVER_S,
    LEAVE_S_MAX,
    RECONNECT_JITTER,
    WORK_AGAIN_S_MAX,
    WORK_AGAIN_S_MIN,
    WORK_SAVE_INTERVAL_S,
    WORK_SAVES_AT_ONCE,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import EventFeeds, EventStream, Mailbox, Waiters
from hansa.runtime.tasks import Closing, TaskScope
from hansa.store.values import KeyValue, Operation
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

# Why a handoff cannot be saved, although this worker still owns the partition.
_UNSAVED: Final = (*TROUBLE, LimitExceeded, StoreCorrupt)


@dataclass(slots=True)
class WorkerStats:
    """Counts since the worker was opened, and the last and the longest times, in seconds."""

    owned_count: int = 0
    """Partitions that this process has now."""
    assigned_count: int = 0
    revoked_count: int = 0
    """Partitions that were given up in good order."""
    lost_count: int = 0
    again_count: int = 0
    """Works that ended by themselves and were given to the user again."""
    withdrawn_count: int = 0
    """Partitions that were asked for, and stayed here in the end."""
    saved_count: int = 0
    save_retries_count: int = 0
    failed_count: int = 0
    """Handoffs that could not be saved, or read, after all tries."""
    recovered_count: int = 0
    """Failed handoffs for which `recover` found a way out."""
    handoff_s: float = 0.0
    """From when a partition was asked for until it was let go."""
    handoff_s_max: float = 0.0
    handoff_bytes: int = 0
    handoff_bytes_max: int = 0
    ready_s: float = 0.0
    """From when the worker owned a partition until its work was ready."""
    ready_s_max: float = 0.0
    events_dropped_count: int = 0


class Worker:
    """Takes part in a group's work: `async for work in worker` gives each partition as it comes.

    `members` must have this process as a node; this worker's partitions hang on its session. `mode` says how
    the work is shared out: a `StoreMode`, which is the default, or a `KafkaMode`. `weight` is how much this
    worker can carry, compared with the others; it belongs to the `resource_groups`. Notes are saved every
    `save_interval` seconds. `source` returns the messages of a work, for `async for message in work`.
    `recover` is called when a handoff cannot be saved, or read.

    Leaving the block gives up all partitions in good order, within `leave_timeout` seconds, and then ends.
    Entering raises `UsageError` for members without a node, `MixedModes` while the group has a worker of
    another mode, and as `Members.note`.
    """

    def __init__(
        self,
        members: Members,
        group: str,
        *,
        mode: Mode | None = None,
        weight: int = 1,
        resource_groups: Iterable[str] = (),
        save_interval: float = WORK_SAVE_INTERVAL_S,
        leave_timeout: float = HANDOVER_S,
        source: Callable[[Work], AsyncIterable[Any]] | None = None,
        recover: Recover | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.members = members
        self.group = group
        self.node = members.me.id
        self.sessions = members.sessions
        self.store = members.store
        self.keys = Keys(members.cluster)
        self.environment = environment if environment is not None else Environment()
        self._save_interval_s = save_interval
        self._leave_timeout_s = leave_timeout
        self._source = source
        self._recover = recover
        self._handoffs = Handoffs(
            self.store, group, cluster=members.cluster, environment=self.environment.fork("handoffs")
        )
        self.save_timeout_s = HANDOFF_SAVE_S
        """How long one save is tried. The mode may shorten it."""
        self._name = f"worker {self.node} of {group}"
        self._works: dict[str, Work] = {}
        self._ready: Mailbox[Work] = Mailbox(self._name)
        # The reasons of asks that came before the work was ready, and the times of all asks.
        self._asked: dict[PlacedClaim, str] = {}
        self._asked_at_s: dict[str, float] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._changed = Waiters()
        self._feeds = EventFeeds[TopologyEvent](f"the events of {self._name}", count_max=EVENTS_COUNT_MAX)
        self._tasks = TaskScope(self._name, self._failed)
        self._leaving = Closing()
        self._closing = Closing()
        self._home: Home | None = None
        self._failure: BaseException | None = None
        self._is_leaving = False
        self._stats = WorkerStats()
        self.mode: Mode = mode if mode is not None else StoreMode()
        self._info = WorkerInfo(
            weight=weight, resource_groups=frozenset(resource_groups), mode=type(self.mode).__name__
        )
        self.mode.attach(self)

    def __repr__(self) -> str:
        return f"<Worker {self.node!r} of {self.group!r}: {sorted(self._works)}>"

    # -- what is so now

    @property
    def works(self) -> Mapping[str, Work]:
        """The works of this process, also those that are about to begin, by partition."""
        return self._works

    @property
    def is_leaving(self) -> bool:
        """Whether the worker is giving everything up."""
        return self._is_leaving

    @property
    def stats(self) -> WorkerStats:
        self._stats.owned_count = len(self._works)
        self._stats.save_retries_count = self._handoffs.retries_count
        self._stats.events_dropped_count = self._feeds.dropped_count
        return self._stats

    def events(self) -> EventStream[TopologyEvent]:
        """What happens to this worker's partitions from this call on."""
        self._check_home()
        return self._feeds.open()

    async def until(self, condition: Callable[[Collection[str]], bool]) -> None:
        """Wait until the names of this worker's partitions fulfil a condition. Raises `AlreadyClosed`."""
        while not condition(self._works.keys()):
            self._check_open()
            await self._changed.wait()

    # -- for its user

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Work:
        """The next partition to work on. Iterating ends when the worker leaves."""
        self._check_home()
        while True:
            try:
                work = await self._ready.get()
            except AlreadyClosed:
                if self._failure is not None:
                    raise self._failure from None
                raise StopAsyncIteration from None
            if work.state is WorkState.READY and self._works.get(work.partition) is work:
                return work

    async def run(self, handler: Handler) -> None:
        """Have `handler` work on each partition as it comes, each in a task of its own, until `leave`.

        A handler enters the work's block. What it raises is logged, and the partition is given to it again
        after a pause, with the last note; a loss is no failure. Raises why the worker cannot go on, if so.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                async for work in self:
                    tasks.create_task(self._handle(handler, work), name=f"{self._name}: {work.partition}")
        except BaseExceptionGroup as failed:
            if self._failure is not None and self._failure in failed.exceptions:
                raise self._failure from None
            raise

    async def leave(self, timeout: float | None = None) -> None:
        """Give up all partitions in good order, and take nothing more: iterating ends. Twice does no harm.

        In the last part of the time, half of it or at most what a save may take, the worker saves the
        partitions that no other worker has taken, and gives them up all the same. A second call waits for
        the first; if the first is cancelled, the second one goes on.
        """
        self._check_home()
        timeout_s = self._leave_timeout_s if timeout is None else timeout
        await self._leaving.once(lambda: self._leave(timeout_s))

    async def _leave(self, timeout_s: float) -> None:
        if self._failure is not None:
            return
        self._is_leaving = True
        until_s = self.store.clock.monotonic() + timeout_s
        farewell_s = min(LEAVE_S_MAX, timeout_s / 4)
        try:
            await self._say(replace(self._info, is_draining=True), timeout_s / 4)
            left_s = until_s - farewell_s - self.store.clock.monotonic()
            await self.mode.leave(max(left_s, 0.0))
        finally:
            self._ready.close()
        await self._say(None, max(until_s - self.store.clock.monotonic(), farewell_s))

    async def _say(self, info: WorkerInfo | None, timeout_s: float) -> None:
        """Tell the members that this worker leaves, or has left; a failure is only logged."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.members.note(
                    WorkerInfo.key_of(self.group), None if info is None else info.encode()
                )
        except (HansaError, TimeoutError) as error:
            logger.info("%s: the members could not be told that it leaves: %s", self._name, error)

    async def __aenter__(self) -> Self:
        if self._home is not None:
            raise UsageError(f"{self._name} is entered once: make another one")
        self._home = Home(self._name, "make one here")
        await self._check_modes()
        try:
            await self.members.note(WorkerInfo.key_of(self.group), self._info.encode())
            # If two workers start at the same time, at least one sees the other here.
            await self._check_modes()
        except BaseException:
            # The note may be there all the same, and partitions that are placed here would have no worker.
            await self._say(None, LEAVE_S_MAX)
            raise
        self._tasks.spawn(self._follow_definitions(), "following definitions")
        self._tasks.spawn(self._keep_saved(), "saving")
        self._tasks.spawn(self.mode.run(), "running")
        return self

    async def _check_modes(self) -> None:
        """A leader and a broker would give the same partitions to different workers. Raises `MixedModes`."""
        scan = await self.store.scan(self.keys.nodes)
        for item in scan.items:
            with suppress(BadRecord):
                info = NodeRecord.decode(item.value).info
                text = info.metadata.get(WorkerInfo.key_of(self.group)) if info.status.is_here else None
                other = "" if text is None else WorkerInfo.decode(text).mode
                if info.id != self.node and other not in ("", self._info.mode):
                    raise MixedModes(
                        f"{self._name} has the mode {self._info.mode}, and {info.id!r} in the same group has"
                        f" the mode {other}: all workers of a group need the same mode"
                    )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_plain = error is None or isinstance(error, asyncio.CancelledError | GeneratorExit)
        await self._closing.once(lambda: self._close(is_plain))

    async def _close(self, is_plain: bool) -> None:
        try:
            if is_plain:
                await self.leave()
        finally:
            self._ready.close()
            await self._tasks.close()
            for work in [work for work in self._works.values() if work.is_left]:
                # The worker no longer does what follows its block.
                work.end()
            self._works.clear()
            self._feeds.close()
            self._changed.wake_all()
            # Also after an error and a cancellation: a leader would wait for a worker that no longer works.
            await self._say(None, LEAVE_S_MAX)

    # -- for the mode

    def begin(
        self,
        claim: PlacedClaim,
        partition: str,
        *,
        generation: int = 0,
        open_messages: OpenMessages | None = None,
    ) -> None:
        """This process owns a partition: read what the last owner left, and give the work to the user."""
        self._tasks.spawn(
            self._begin(claim, partition, generation, open_messages), f"begins with {partition}"
        )

    def ask(self, claim: PlacedClaim, partition: str, reason: str) -> None:
        """A partition is to go to another worker: have its work come to an end, and let it go."""
        self._asked_at_s.setdefault(partition, self.store.clock.monotonic())
        work = self._works.get(partition)
        if work is None or work.claim is not claim:
            # Its work is not ready yet.
            self._asked[claim] = reason
            return
        work.ask(reason)
        # The user has not begun it, or it ended by itself and waits to be given to the user again.
        if work.state is not WorkState.RUNNING:
            work.state = WorkState.RUNNING
            self._tasks.spawn(self._let_go(work), f"lets {partition} go")

    def ask_all(self, reason: str) -> list[Work]:
        """Ask for all partitions of this process; returns the works."""
        works = list(self._works.values())
        for work in works:
            self.ask(work.claim, work.partition, reason)
        return works

    # -- for a work

    def save_until_s(self) -> float:
        """The time until which a save that begins now is tried."""
        return self.store.clock.monotonic() + self.save_timeout_s

    def prepared(self, work: Work, handoff: Handoff, operations: Sequence[Operation]) -> HandoffSave:
        """A save of a work, after the last saved one."""
        return self._handoffs.prepared(
            work.claim,
            handoff if handoff.resources else replace(handoff, resources=work.resources),
            before=work.saved,
            generation=work.generation,
            operations=operations,
        )

    async def carry_out(self, work: Work, save: HandoffSave, until_s: float) -> SavedHandoff:
        """Save how far a work is; returns the handoff as it is stored."""
        left_s = until_s - self.store.clock.monotonic()
        saved = await self._handoffs.carry_out(work.claim, work.partition, save, timeout=left_s)
        self._stats.saved_count += 1
        self._stats.handoff_bytes = saved.size
        self._stats.handoff_bytes_max = max(self._stats.handoff_bytes_max, saved.size)
        return saved

    def left(self, work: Work, error: BaseException | None) -> None:
        """The user has left a work's block."""
        if self._works.get(work.partition) is not work:
            work.end()
        elif (lost := work.claim.as_lost()) is not None:
            self._lost(work, str(lost))
        elif work.is_ending:
            self._tasks.spawn(self._let_go(work), f"lets {work.partition} go")
        else:
            work.end()
            self._tasks.spawn(self._give_again(work, error), f"gives {work.partition} again")

    # -- what follows

    async def _begin(
        self, claim: PlacedClaim, partition: str, generation: int, open_messages: OpenMessages | None
    ) -> None:
        since_s = self.store.clock.monotonic()
        try:
            if (before := self._works.get(partition)) is not None:
                # The earlier work's body may not have heard yet that it is lost.
                await before.ended()
            saved, definition, handoff = await self._take(claim, partition)
            work = await self._opened(claim, definition, saved, handoff, generation, open_messages)
            # `recover` may have taken long: another worker may own the partition by now.
            claim.check()
        except Fenced as lost:
            self._tell_lost(claim, partition, str(lost))
            return
        except NotHeld:
            self._forget_asked(claim, partition)
            return
        self._tasks.spawn(self._began(claim), f"has begun {partition}")
        self._stats.assigned_count += 1
        self._stats.ready_s = self.store.clock.monotonic() - since_s
        self._stats.ready_s_max = max(self._stats.ready_s_max, self._stats.ready_s)
        self._tell(PartitionAssigned, claim, definition, work.handoff, "")
        self._give(work)

    async def _take(
        self, claim: PlacedClaim, partition: str
    ) -> tuple[SavedHandoff | None, Partition, Handoff | None]:
        """What the last owner left, the definition, and where to begin if that is not what was left."""
        backoff = self._new_backoff()
        while True:
            try:
                saved, item = await self._handoffs.take(claim, partition)
                return saved, self._defined(partition, item), None
            except (StoreCorrupt, BadRecord) as error:
                handoff = await self._way_out(
                    claim, Partition(name=partition), Handoff(), error, is_reading=True
                )
            if handoff is not None:
                read = partial(self.store.get, self.keys.partition(self.group, partition))
                item = await patiently(read, self.environment.chance)
                return None, self._defined(partition, item), handoff
            # Somebody may mend the record; until then the work must not begin from nothing.
            await asyncio.sleep(backoff.next_s())

    async def _way_out(
        self,
        claim: PlacedClaim,
        definition: Partition,
        handoff: Handoff,
        error: HansaError,
        *,
        is_reading: bool,
    ) -> Handoff | None:
        """A handoff has failed: report it, and ask the user for a way out."""
        self._stats.failed_count += 1
        logger.error("%s: the handoff of %r failed: %s", self._name, definition.name, error)
        self._tell(HandoffFailed, claim, definition, handoff, str(error))
        if self._recover is None:
            return None
        failed = FailedHandoff(
            group=self.group,
            partition=definition.name,
            epoch=claim.epoch,
            error=error,
            is_reading=is_reading,
            handoff=handoff,
        )
        try:
            found = await self._recover(failed)
        except Exception:
            logger.exception("%s: `recover` failed for %r", self._name, definition.name)
            return None
        self._stats.recovered_count += found is not None
        return found

    def _defined(self, partition: str, item: KeyValue | None) -> Partition:
        if item is None:
            return Partition(name=partition)
        try:
            return Partition.decode(item.value, revision=item.mod_revision)
        except BadRecord as error:
            logger.warning("%s: %s", self._name, error)
            return Partition(name=partition)

    async def _opened(
        self,
        claim: PlacedClaim,
        definition: Partition,
        saved: SavedHandoff | None,
        handoff: Handoff | None,
        generation: int,
        open_messages: OpenMessages | None,
    ) -> Work:
        messages: Messages | None = None
        if open_messages is not None:
            messages = await open_messages(handoff or (None if saved is None else saved.handoff))
        return Work(
            claim,
            definition,
            saved,
            self,
            handoff=handoff,
            generation=generation,
            open_messages=open_messages,
            messages=messages,
            source=self._source,
        )

    def _give(self, work: Work) -> None:
        """Give a work to its user, or let it go at once if the partition was asked for meanwhile."""
        self._works[work.partition] = work
        work.given_s = self.store.clock.monotonic()
        work.claim.loss.call_back(partial(self._heard_loss, work))
        reason = self._asked.pop(work.claim, "")
        if reason or self._is_leaving:
            self.ask(work.claim, work.partition, reason or "its worker leaves")
        else:
            self._ready.put(work)
        self._changed.wake_all()

    async def _began(self, claim: PlacedClaim) -> None:
        with suppress(Fenced, NotHeld):
            await self.mode.began(claim)

    async def _let_go(self, work: Work) -> None:
        """Save the last note, and let another worker own the partition."""
        claim, partition = work.claim, work.partition
        try:
            farewell = self.mode.farewell(claim)
            if work.is_unsaved or farewell:
                await self.save_last(work, farewell)
            await self.mode.let_go(claim)
        except HandoverWithdrawn as withdrawn:
            logger.info("%s: %s", self._name, withdrawn)
            self._stats.withdrawn_count += 1
            try:
                claim.check()
            except (Fenced, NotHeld) as lost:
                self._lost(work, str(lost))
                return
            work.end()
            if not self._is_leaving:
                await self._give_again(work, None)
            # A worker that leaves does not begin it again: it waits for a next owner, or for its last saves.
            return
        except (Fenced, NotHeld) as lost:
            self._lost(work, str(lost))
            return
        asked_s = self._asked_at_s.pop(partition, None)
        if asked_s is not None:
            self._stats.handoff_s = self.store.clock.monotonic() - asked_s
            self._stats.handoff_s_max = max(self._stats.handoff_s_max, self._stats.handoff_s)
        self._stats.revoked_count += 1
        self._forget(work)
        self._tell(PartitionRevoked, claim, work.definition, work.handoff, work.reason)
        work.end()

    async def save_last(self, work: Work, farewell: Sequence[Operation]) -> None:
        """Save before letting go. If that fails, report it, and ask the user for a way out."""
        try:
            await work.save(operations=farewell)
            return
        except _UNSAVED as error:
            failure = error
        handoff = await self._way_out(work.claim, work.definition, work.handoff, failure, is_reading=False)
        if handoff is not None:
            with suppress(*_UNSAVED):
                # The first save may have been carried out with its farewell: then a second one is refused.
                await work.save(None if work.is_in_doubt else handoff, operations=farewell)

    async def _give_again(self, work: Work, error: BaseException | None) -> None:
        """Give a work that ended by itself, or stays after all, to its user again, with the last note."""
        partition = work.partition
        if error is not None and not isinstance(error, asyncio.CancelledError):
            logger.warning("%s: the work on %r failed", self._name, partition, exc_info=error)
        if not work.is_ending:
            self._stats.again_count += 1
            await asyncio.sleep(self._backoff_of(work).next_s())
        # A save that was under way when the work ended counts.
        await work.saved_all()
        if not self._waits(work):
            return
        self._asked_at_s.pop(partition, None)
        try:
            work.claim.check()
            await self._settle(work)
            if not self._waits(work):
                return
            handoff = work.handoff if work.is_unsaved else None
            again = await self._opened(
                work.claim, work.definition, work.saved, handoff, work.generation, work.open_messages
            )
        except (Fenced, NotHeld) as lost:
            self._lost(work, str(lost))
        else:
            if self._waits(work):
                self._give(again)

    async def _settle(self, work: Work) -> None:
        """Send a save that has no answer again, however long the store cannot be reached. Raises the loss."""
        backoff = patient_backoff(self.environment.chance)
        while self._waits(work):
            try:
                await work.settle()
                return
            except _UNSAVED as error:
                logger.warning("%s: what %r has done is not saved yet: %s", self._name, work.partition, error)
            await asyncio.sleep(backoff.next_s())

    def _waits(self, work: Work) -> bool:
        """Whether a work that has ended is to be given to its user again: its partition was not asked for."""
        is_mine = self._works.get(work.partition) is work and work.claim.is_standing
        return is_mine and work.state is WorkState.ENDED

    def _heard_loss(self, work: Work) -> None:
        """A claim was lost. A user who is in the work's block hears of it there."""
        if work.is_left:
            self._lost(work, str(work.claim.as_lost()))

    def _lost(self, work: Work, reason: str) -> None:
        if self._forget(work):
            self._tell_lost(work.claim, work.partition, reason)
        work.end()

    def _forget_asked(self, claim: PlacedClaim, partition: str) -> None:
        """Forget that a partition was asked for before its work was ready: it was lost meanwhile."""
        if self._asked.pop(claim, None) is not None:
            self._asked_at_s.pop(partition, None)

    def _forget(self, work: Work) -> bool:
        if self._works.get(work.partition) is not work:
            return False
        del self._works[work.partition]
        self._backoffs.pop(work.partition, None)
        self._asked_at_s.pop(work.partition, None)
        self._changed.wake_all()
        return True

    # -- tasks

    async def _follow_definitions(self) -> None:
        prefix = self.keys.partitions(self.group)
        following = Following(self.store, prefix, environment=self.environment.fork("definitions"))
        try:
            async for news in following:
                for item in changes(news)[0]:
                    work = self._works.get(item.key.removeprefix(prefix).decode())
                    if work is None or item.mod_revision <= work.definition.revision:
                        continue
                    before, work.definition = work.definition, self._defined(work.partition, item)
                    if work.resources != before.resources:
                        self._tell(PartitionUpdated, work.claim, work.definition, work.handoff, "resources")
        finally:
            following.close()

    async def _keep_saved(self) -> None:
        while True:
            await asyncio.sleep(self._save_interval_s)
            due = iter(list(self._works.values()))
            async with asyncio.TaskGroup() as tasks:
                for number in range(WORK_SAVES_AT_ONCE):
                    tasks.create_task(self._save_due(due), name=f"{self._name}: saves {number}")

    async def _save_due(self, due: Iterator[Work]) -> None:
        """Save the unsaved works of those that no other task has taken yet."""
        for work in due:
            is_at_work = work.state is WorkState.RUNNING and not work.is_ending
            if is_at_work and work.is_unsaved:
                # It is tried again at the next turn; a failure at the end is reported.
                with suppress(*_UNSAVED, Fenced, NotHeld):
                    await work.save()

    async def _handle(self, handler: Handler, work: Work) -> None:
        try:
            await handler(work)
        except Fenced as lost:
            logger.info("%s: %s", self._name, lost)
        except Exception:
            # The worker reports it when the block is left.
            logger.debug("%s: the handler of %r failed", self._name, work.partition, exc_info=True)
        if work.state is WorkState.READY:
            self.left(work, UsageError(f"the handler of {work.partition!r} did not enter its block"))

    # -- small things

    def _backoff_of(self, work: Work) -> Backoff:
        """The pauses before a partition is given again. After a long work they begin with the shortest."""
        if self.store.clock.monotonic() - work.given_s > WORK_AGAIN_S_MAX:
            self._backoffs.pop(work.partition, None)
        return self._backoffs.setdefault(work.partition, self._new_backoff())

    def _new_backoff(self) -> Backoff:
        return Backoff(
            s_min=WORK_AGAIN_S_MIN,
            s_max=WORK_AGAIN_S_MAX,
            jitter=RECONNECT_JITTER,
            chance=self.environment.chance,
        )

    def _tell(
        self,
        kind: type[TopologyEvent],
        claim: PlacedClaim,
        definition: Partition,
        handoff: Handoff | None,
        reason: str,
    ) -> None:
        event = kind(
            group=self.group,
            partition=definition.name,
            node=self.node,
            epoch=claim.epoch,
            resources=definition.resources,
            handoff=handoff,
            reason=reason,
        )
        self._feeds.put(event)

    def _tell_lost(self, claim: PlacedClaim, partition: str, reason: str) -> None:
        self._forget_asked(claim, partition)
        self._stats.lost_count += 1
        logger.info("%s: %s", self._name, reason)
        self._tell(PartitionLost, claim, Partition(name=partition), None, reason)

    def _check_home(self) -> None:
        if self._home is None:
            raise UsageError(f"{self._name} is not open: use it inside `async with`")
        self._home.check()

    def _check_open(self) -> None:
        self._check_home()
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            logger.warning("%s ended: %s", self._name, error)
        self._ready.close()
        self._changed.wake_all()
