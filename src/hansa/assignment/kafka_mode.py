"""Kafka mode: the broker of a Kafka consumer group shares the partitions out among the workers.

`KafkaMode` carries out what `KafkaShare` decides. It must:

- *assigned*: take the partition's entry in one transaction that compares the lease of this node's record and
  the revision at which the entry was read. So the owner has a placed claim, as in store mode, with an epoch
  higher than all before. Only then the worker reads the handoff, the consumer goes to the offset after it,
  and messages flow. Other partitions go on meanwhile.
- *revoked*: have the works end, and their handoffs written, each together with the release of its entry,
  before the broker hears that the partitions are given back. If a work does not end in time, its last note is
  saved. If a handoff cannot be written in time, that is reported, and the partition given back all the same.
- *lost*: tell the works at once, and write nothing.

The store's epoch makes this safe: a new owner takes the entry before it reads, and from then on all that the
old owner sends is refused. The entry also has the group's generation, for one question only: may a member
take the entry from the owner that it names? A member of a higher generation may. A member of a lower
generation may have been stopped, and is about to hear of its end: it may not, unless the broker's own
description of the group names it.

The offset that was stored with the state decides where reading goes on. Kafka's committed offset says where a
partition without a handoff begins, and shows others how far the work is.

A member that has missed what the broker assigned to it (see `kafka_group`) leaves the group in good order,
and another one joins in its place.

A static member (`member_id`) that leaves, or dies, keeps its place: Kafka gives its partitions to others when
its session timeout is over, or back to it if it returns before that. The client cannot give the place up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from hansa.assignment.handoff import Handoff
from hansa.assignment.kafka_entries import KafkaEntries, KafkaSweep, read_entry, revision_of
from hansa.assignment.kafka_group import (
    ConfluentMember,
    GroupMember,
    KafkaLookout,
    KafkaSettings,
    OpenMember,
    PartitionFlow,
    Protocols,
    import_client,
)
from hansa.assignment.kafka_share import (
    AskWork,
    BeginWork,
    Command,
    DropWork,
    KafkaPart,
    KafkaShare,
    Membership,
    PartitionTenure,
    ReleaseEntry,
    StopTaking,
    TakeEntry,
    TenureState,
    is_believed,
    names_of,
)
from hansa.assignment.work import WorkState
from hansa.coordination.following import TROUBLE, changes, patient_backoff
from hansa.coordination.placed import PlacedClaim
from hansa.errors import (
    BadArgument,
    Conflict,
    Fenced,
    GroupRefused,
    HansaError,
    KafkaUnavailable,
    MemberFenced,
    NotHeld,
)
from hansa.limits import (
    HANDOFF_LIFETIME_S,
    HANDOFF_SAVE_S,
    KAFKA_COMMIT_INTERVAL_S,
    KAFKA_RECEIVE_S,
    KAFKA_RECEIVE_S_MIN,
    KAFKA_REVOKE_S,
    KAFKA_REVOKE_SHARE_MAX,
    KAFKA_SEEKS_COUNT_MAX,
    KAFKA_TAKE_AGAIN_S_MIN,
    KAFKA_WAITING_COUNT_MAX,
)
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import TaskScope
from hansa.store.values import KeyValue, Operation

if TYPE_CHECKING:
    from hansa.assignment.worker import Worker

logger = logging.getLogger(__name__)

# Errors for good: no second try helps.
_FATAL = (MemberFenced, GroupRefused)


@dataclass(slots=True)
class KafkaModeStats:
    """Counts since the worker was opened, and the last and the longest times, in seconds."""

    assigned_count: int = 0
    """Partitions that the broker assigned to this member."""
    revoked_count: int = 0
    lost_count: int = 0
    """Partitions that the broker took away without waiting for what was left of them here."""
    taken_count: int = 0
    """Entries that were taken, also again after a session was lost."""
    retries_count: int = 0
    """Failed tries to take an entry."""
    refused_count: int = 0
    """Of these: the generation was not higher, and the broker did not name this member."""
    confirmed_count: int = 0
    """Entries that were taken although the generation was not higher: the broker names this member."""
    rejoined_count: int = 0
    """How often this member left its group and joined again, because it had missed what it was assigned."""
    cut_off_count: int = 0
    """Works that did not end in the time that a rebalance has."""
    received_count: int = 0
    dropped_count: int = 0
    """Messages of partitions without a work here, or below its offset. The partition's owner reads them."""
    missing_count: int = 0
    """Offsets that were to be read and are no longer there: the broker has deleted or lost them."""
    paused_count: int = 0
    """How often a partition had to wait for its work."""
    errors_count: int = 0
    """Errors that the client reported, and questions without an answer."""
    ready_s: float = 0.0
    """From when the broker assigned a partition until its messages flowed."""
    ready_s_max: float = 0.0
    revoke_s: float = 0.0
    """How long a rebalance waited for this member to give partitions up."""
    revoke_s_max: float = 0.0


class _Opening:
    """A partition whose messages are to flow from an offset on, once the consumer was sent there."""

    def __init__(self, tenure: PartitionTenure, claim: PlacedClaim, offset: int) -> None:
        self.tenure = tenure
        self.claim = claim
        self.offset = offset
        self.flow: PartitionFlow = PartitionFlow(offset, count_max=KAFKA_WAITING_COUNT_MAX)
        self.due_s = 0.0
        self.is_fresh = True
        """Whether no message has come since the consumer was sent there, or the partition was paused."""
        self.seeks_count = 1
        self.is_over = False
        self.over = Waiters()

    def end(self) -> None:
        self.is_over = True
        self.over.wake_all()


class KafkaMode:
    """A Kafka consumer group shares the work out: the group with the worker's name, on these topics.

    A partition is called `{topic}-{number}`. `async for message in work` returns its messages, which are
    confluent-kafka's own, from after the last handoff on. Without a handoff they begin where the group has
    committed, else at the beginning, or as `auto.offset.reset` in the settings says.

    `protocol` is `"consumer"` (KIP-848, brokers from 4.0 on) or `"classic"`; both are cooperative.
    `member_id` makes this a static member, which keeps its place when it leaves. `settings` are librdkafka's.
    Handoffs that nobody has saved for `handoff_lifetime` seconds are deleted; None keeps all. It must be
    longer than the topics keep their messages: the worker looks that up, and refuses otherwise. If a topic
    keeps messages for ever, no handoff is deleted. `revoke_timeout` is how long a rebalance waits for this
    worker's works and handoffs.

    Raises `UsageError` if confluent-kafka is missing, `BadArgument`.
    """

    def __init__(
        self,
        servers: str,
        topics: str | Sequence[str],
        *,
        protocol: Protocols = "consumer",
        member_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
        handoff_lifetime: float | None = HANDOFF_LIFETIME_S,
        revoke_timeout: float = KAFKA_REVOKE_S,
        open_member: OpenMember = ConfluentMember,
    ) -> None:
        if open_member is ConfluentMember:
            import_client()
        self._topics = (topics,) if isinstance(topics, str) else tuple(topics)
        if not servers or not self._topics:
            raise BadArgument("Kafka mode: give servers and a topic")
        if patterns := [topic for topic in self._topics if topic.startswith("^")]:
            raise BadArgument(f"Kafka mode: {patterns[0]!r} is a pattern; name each topic")
        self._new_settings = partial(
            KafkaSettings,
            servers=servers,
            protocol=protocol,
            member_id=member_id,
            settings={} if settings is None else dict(settings),
        )
        limit_s = KAFKA_REVOKE_SHARE_MAX * self._new_settings(group="?").poll_interval_s
        self._revoke_s = min(revoke_timeout, limit_s)
        # In the classic protocol a member answers each assignment, and is told of it until it does.
        self._may_miss = protocol == "consumer"
        self._lifetime_s = handoff_lifetime
        self._open_member = open_member
        self.stats = KafkaModeStats()
        self.last_error: HansaError | None = None
        self._sweep: KafkaSweep | None = None

    @property
    def is_leading(self) -> bool:
        """Whether this worker deletes the group's old handoffs: one of the group does, by an `Election`.

        For work of your own that one worker is to do, and that Kafka does not share out, use an `Election` of
        your own on the same sessions.
        """
        return self._sweep is not None and self._sweep.is_leading

    # -- for the worker

    def attach(self, worker: Worker) -> None:
        self._worker = worker
        self._store = worker.store
        self._entries = KafkaEntries(worker.sessions, worker.node, worker.group)
        self._name = f"Kafka member {worker.node} of {worker.group}"
        self._bound_saves()
        self._share = KafkaShare()
        self._claims: dict[int, PlacedClaim] = {}
        self._tenures: dict[PlacedClaim, PartitionTenure] = {}
        # Claims of works whose body has ended: what follows takes a bounded time.
        self._left: set[PlacedClaim] = set()
        self._takes: dict[int, asyncio.Task[None]] = {}
        self._openings: list[_Opening] = []
        self._flows: dict[KafkaPart, _Opening] = {}
        self._paused: set[KafkaPart] = set()
        self._saved: dict[KafkaPart, int] = {}
        self._committed: dict[KafkaPart, int] = {}
        self._commit_due_s = 0.0
        self._lookout = KafkaLookout(self._share, name=self._name, chance=worker.environment.chance)
        self._changed = Waiters()
        self._tasks = TaskScope(self._name, self._fail)
        self._context = copy_context()
        self._failure: BaseException | None = None
        self._is_in_trouble = False
        self._is_leaving = False
        self._has_ended = False
        self._member: GroupMember = self._new_member()

    async def run(self) -> None:
        """Take part in the group until `leave`, or until cancelled.

        Raises `MemberFenced`, `GroupRefused`, `UsageError` for a lifetime that is too short, `AlreadyClosed`.
        """
        self._context = copy_context()
        try:
            await self._begin_sweep()
            self._spawn(self._follow_entries(), "following entries")
            await self._consume()
        finally:
            self._has_ended = True
            self._changed.wake_all()
            await self._tasks.close()

    async def began(self, claim: PlacedClaim) -> None:
        """Do nothing: the consumer was sent to the right place before."""

    def farewell(self, claim: PlacedClaim) -> Sequence[Operation]:
        self._left.add(claim)
        return self._entries.release_of(claim)

    async def let_go(self, claim: PlacedClaim) -> None:
        claim.check()
        self._remember_saved(claim)
        claim.handed_over()
        if (tenure := self._forget(claim)) is not None:
            self._share.given_up(tenure)
        self._changed.wake_all()

    async def leave(self, timeout: float) -> None:
        """Leave the group, which rebalances at once; but a static member keeps its place."""
        self._revoke_s = min(self._revoke_s, timeout)
        self._bound_saves()
        self._is_leaving = True
        while not self._has_ended:
            await self._changed.wait()

    # -- from the broker

    async def assigned(self, parts: Sequence[KafkaPart], membership: Membership) -> None:
        """This member gets these: take them."""
        logger.info("%s: assigned in generation %d: %s", self._name, membership.generation, names_of(parts))
        self.stats.assigned_count += len(parts)
        self._paused.update(parts)
        self._do(self._share.assigned(parts, membership, now=self._now()))

    async def revoked(self, parts: Sequence[KafkaPart]) -> None:
        """Another member gets these when this returns: end their works, and write their handoffs."""
        logger.info("%s: revoked: %s", self._name, names_of(parts))
        began_s = self._now()
        self.stats.revoked_count += len(parts)
        self._do(self._share.revoked(parts))
        self._settle_openings()
        await self._until_over(parts, began_s + self._revoke_s / 2)
        await self._cut_off(parts, began_s + self._revoke_s)
        await self._until_over(parts, began_s + self._revoke_s)
        await self._commit(parts)
        self._do(self._share.given_back(parts), "it was not given up in the time that a rebalance has")
        self._forget_parts(parts)
        self.stats.revoke_s = self._now() - began_s
        self.stats.revoke_s_max = max(self.stats.revoke_s_max, self.stats.revoke_s)

    async def lost(self, parts: Sequence[KafkaPart]) -> None:
        """Another member may have these already."""
        logger.warning("%s: lost: %s", self._name, names_of(parts))
        self.stats.lost_count += len(parts)
        self._do(self._share.lost(parts), "the group went on without this member")
        self._settle_openings()
        self._forget_parts(parts)

    def failed(self, error: HansaError, part: KafkaPart | None = None) -> None:
        """The client has reported an error; it goes on by itself, if it can."""
        self.stats.errors_count += 1
        self.last_error = error
        if isinstance(error, _FATAL):
            self._fail(error)
        # The client reports a broker that is away at each try. Warn once, until something is received.
        level = logging.DEBUG if self._is_in_trouble else logging.WARNING
        self._is_in_trouble = True
        logger.log(level, "%s%s: %s", self._name, "" if part is None else f" ({part.name})", error)

    # -- what the share decides

    def _do(self, commands: Sequence[Command], reason: str = "") -> None:
        for command in commands:
            tenure = command.tenure
            claim = self._claims.get(tenure.number)
            match command:
                case TakeEntry():
                    task = self._spawn(self._take(tenure), f"takes {tenure.part.name}")
                    self._takes[tenure.number] = task
                    task.add_done_callback(partial(self._tried, tenure.number))
                case StopTaking():
                    if (trying := self._takes.get(tenure.number)) is not None:
                        trying.cancel()
                case BeginWork() if claim is not None:
                    self._worker.begin(
                        claim,
                        tenure.part.name,
                        generation=tenure.membership.generation,
                        open_messages=partial(self._open, tenure, claim),
                    )
                case AskWork() if claim is not None:
                    self._worker.ask(claim, tenure.part.name, "the group gives it to another member")
                case ReleaseEntry() if claim is not None:
                    claim.handed_over()
                    self._forget(claim)
                    self._spawn(self._release(claim), f"releases {tenure.part.name}")
                case DropWork() if claim is not None:
                    self._forget(claim)
                    claim.drop(reason)
        self._changed.wake_all()

    def _tried(self, number: int, _task: asyncio.Task[None]) -> None:
        self._takes.pop(number, None)

    async def _take(self, tenure: PartitionTenure) -> None:
        try:
            claim = await self._taken(tenure)
        except (*TROUBLE, Conflict, Fenced, KafkaUnavailable) as error:
            self.stats.retries_count += 1
            logger.info("%s: %s is not taken yet: %s", self._name, tenure.part.name, error)
            self._share.refused(tenure, now=self._now())
            return
        self.stats.taken_count += 1
        begin = self._share.took(tenure)
        if not begin:
            # It was revoked, or lost, at this very moment.
            claim.handed_over()
            await self._release(claim)
            return
        self._claims[tenure.number] = claim
        self._tenures[claim] = tenure
        claim.loss.call_back(partial(self._heard_loss, tenure, claim))
        self._do(begin)

    async def _taken(self, tenure: PartitionTenure) -> PlacedClaim:
        name, mine = tenure.part.name, tenure.membership
        await self._worker.sessions.live()
        seen = await self._entries.look(name)
        if not is_believed(mine, seen.note):
            if tenure.part not in ((await self._member.view(mine.member)).parts or ()):
                self.stats.refused_count += 1
                there = "what nobody can read" if seen.note is None else f"generation {seen.note.generation}"
                raise Conflict(
                    f"member {mine.member!r} has it in generation {mine.generation}, its entry is of {there},"
                    " and the broker does not name this member"
                )
            self.stats.confirmed_count += 1
        return await self._entries.take(name, seen, mine)

    async def _release(self, claim: PlacedClaim) -> None:
        # If this fails, the next owner writes over the entry.
        with suppress(*TROUBLE):
            await self._entries.release(claim)

    def _heard_loss(self, tenure: PartitionTenure, claim: PlacedClaim) -> None:
        if self._forget(claim) is not None:
            self._share.fenced(tenure, now=self._now())
        self._settle_openings()
        self._changed.wake_all()

    def _forget(self, claim: PlacedClaim) -> PartitionTenure | None:
        self._left.discard(claim)
        tenure = self._tenures.pop(claim, None)
        if tenure is not None:
            self._claims.pop(tenure.number, None)
            opening = self._flows.get(tenure.part)
            if opening is not None and opening.claim is claim:
                opening.flow.stop()
                del self._flows[tenure.part]
        return tenure

    def _forget_parts(self, parts: Collection[KafkaPart]) -> None:
        for part in parts:
            self._paused.discard(part)
            self._saved.pop(part, None)
            self._committed.pop(part, None)

    # -- giving up

    def _bound_saves(self) -> None:
        # After the work's end: for a save and, if that fails, for another one of what `recover` returns.
        self._worker.save_timeout_s = min(HANDOFF_SAVE_S, self._revoke_s / 4)

    async def _until_over(self, parts: Sequence[KafkaPart], until_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(until_s - self._now(), 0.0)):
                while not self._share.is_over(parts):
                    await self._changed.wait()

    async def _cut_off(self, parts: Sequence[KafkaPart], until_s: float) -> None:
        """Save the last notes of works that do not end, and cancel their bodies."""
        late = [
            (claim, tenure)
            for claim, tenure in self._tenures.items()
            if tenure.part in parts
            and self._share.state_of(tenure) is TenureState.ENDING
            and claim not in self._left
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(max(until_s - self._now(), 0.0)), asyncio.TaskGroup() as tasks:
                for claim, tenure in late:
                    tasks.create_task(self._cut_off_one(claim, tenure), name=f"cuts {tenure.part.name} off")

    async def _cut_off_one(self, claim: PlacedClaim, tenure: PartitionTenure) -> None:
        self.stats.cut_off_count += 1
        work = self._worker.works.get(tenure.part.name)
        if work is not None and work.claim is claim and work.state is WorkState.RUNNING:
            with suppress(Fenced, NotHeld):
                await self._worker.save_last(work, self._entries.release_of(claim))
            self._remember_saved(claim)
        self._forget(claim)
        self._share.given_up(tenure)
        claim.drop("its work did not end in the time that a rebalance has: what it noted was saved")
        self._changed.wake_all()

    def _remember_saved(self, claim: PlacedClaim) -> None:
        tenure = self._tenures.get(claim)
        if tenure is None:
            return
        work = self._worker.works.get(tenure.part.name)
        if work is not None and work.claim is claim and work.saved is not None:
            handoff = work.saved.handoff
            if handoff.last_offset >= 0:
                self._saved[tenure.part] = handoff.next_offset

    # -- messages

    async def _open(
        self, tenure: PartitionTenure, claim: PlacedClaim, handoff: Handoff | None
    ) -> PartitionFlow:
        """The messages after a handoff, once the consumer was sent there. Raises the loss."""
        offset = -1 if handoff is None else handoff.last_offset
        offset = offset + 1 if offset >= 0 else await self._start_of(tenure, claim)
        claim.check()
        opening = _Opening(tenure, claim, offset)
        self._openings.append(opening)
        self._settle_openings()
        while not opening.is_over:
            await opening.over.wait()
        claim.check()
        return opening.flow

    async def _start_of(self, tenure: PartitionTenure, claim: PlacedClaim) -> int:
        """Where a partition without any handoff begins. Waits, however long the broker is away."""
        backoff = patient_backoff(self._worker.environment.chance)
        while tenure.part not in self._saved:
            claim.check()
            try:
                offset = await self._member.start_of(tenure.part)
            except KafkaUnavailable as error:
                self.failed(error, tenure.part)
                await asyncio.sleep(backoff.next_s())
            else:
                # If this work leaves nothing, the next one, here or elsewhere, begins there, too.
                self._saved.setdefault(tenure.part, offset)
                self._commit_due_s = 0.0
        return self._saved[tenure.part]

    async def _look_for_missing(self, part: KafkaPart, wanted: int, found: int) -> None:
        """Count offsets that should be there and are gone. Other gaps are no loss: offsets are not dense."""
        with suppress(KafkaUnavailable):
            first, _ = await self._member.range_of(part)
            if (missing_count := min(first, found) - wanted) > 0:
                self.stats.missing_count += missing_count
                logger.error(
                    "%s: %s is to be read from offset %d on, and the broker has nothing before %d any more",
                    self._name,
                    part.name,
                    wanted,
                    first,
                )

    def _settle_openings(self) -> None:
        """End the openings of partitions that this process no longer has: no work waits for them."""
        for opening in list(self._openings):
            owned = (TenureState.READING, TenureState.READY)
            if self._share.state_of(opening.tenure) not in owned or not opening.claim.is_standing:
                self._openings.remove(opening)
                opening.flow.stop()
                opening.end()

    async def _consume(self) -> None:
        try:
            while True:
                await self._member.join(self._topics, self)
                if self._may_miss:
                    self._lookout.begin(now=self._now())
                await self._take_part()
                await self._member.close()
                if self._is_leaving:
                    return
                self._begin_anew()
        except BaseException:
            # The place in the group is given up without a word: nothing more may be done under it.
            self._drop_all("this worker no longer takes part in its group")
            with suppress(HansaError):
                await self._member.close()
            raise

    async def _take_part(self) -> None:
        """Run until the worker leaves, or its member has missed something."""
        while not self._is_leaving and not self._lookout.has_missed:
            self._do(self._share.tick(now=self._now()))
            await self._steer()
            await self._receive(KAFKA_RECEIVE_S_MIN if self._openings else KAFKA_RECEIVE_S)
            self._check()
            if self._now() >= self._commit_due_s:
                self._commit_due_s = self._now() + KAFKA_COMMIT_INTERVAL_S
                for claim in self._tenures:
                    self._remember_saved(claim)
                await self._commit(list(self._saved))
            if self._now() >= self._lookout.due_s:
                self._lookout.due_s = inf
                self._spawn(self._look(await self._member.membership()), "looks at its group")

    def _begin_anew(self) -> None:
        """Replace the member, which has missed something and has left, by a new one."""
        self._drop_all("its member has left the group")
        self.stats.rejoined_count += 1
        self._member = self._new_member()

    def _drop_all(self, reason: str) -> None:
        parts = [tenure.part for tenure in self._share.tenures]
        self._do(self._share.lost(parts), reason)
        self._settle_openings()
        self._forget_parts(parts)

    def _new_member(self) -> GroupMember:
        return self._open_member(self._new_settings(group=self._worker.group))

    async def _look(self, mine: Membership) -> None:
        pause_s = await self._lookout.look(self._member, mine)
        self._lookout.due_s = self._now() + pause_s

    async def _steer(self) -> None:
        """Send the consumer where works begin, and let the partitions flow that have room."""
        self._settle_openings()
        for opening in [opening for opening in self._openings if opening.due_s <= self._now()]:
            part = opening.tenure.part
            if not await self._try(self._member.seek(part, opening.offset)):
                # The group is just taking it back; otherwise it is tried again.
                opening.due_s = self._now() + KAFKA_TAKE_AGAIN_S_MIN
                continue
            if opening not in self._openings:
                continue
            self._openings.remove(opening)
            if self._share.state_of(opening.tenure) is TenureState.READING:
                tenure = self._share.get(part) or opening.tenure
                self.stats.ready_s = self._now() - tenure.assigned_s
                self.stats.ready_s_max = max(self.stats.ready_s_max, self.stats.ready_s)
            if not self._share.opened(opening.tenure):
                opening.flow.stop()
            else:
                before = self._flows.get(part)
                if before is not None and before is not opening:
                    before.flow.stop()
                self._flows[part] = opening
            opening.end()
        flowing = {part for part, opening in self._flows.items() if opening.flow.is_flowing}
        assigned = {tenure.part for tenure in self._share.tenures}
        if to_pause := assigned - flowing - self._paused:
            self.stats.paused_count += len(to_pause)
            if await self._try(self._member.pause(to_pause)):
                self._paused |= to_pause
                for part in to_pause & self._flows.keys():
                    self._flows[part].is_fresh = True
        for part in sorted(flowing & self._paused):
            # The partition may have been lost while others were resumed.
            found = self._flows.get(part)
            if found and await self._try(self._member.resume(part, found.flow.next_offset)):
                self._paused.discard(part)

    async def _receive(self, timeout: float) -> None:
        try:
            messages = await self._member.receive(timeout)
        except KafkaUnavailable as error:
            self.failed(error)
            await asyncio.sleep(timeout)
            return
        self.stats.received_count += len(messages)
        self._is_in_trouble = self._is_in_trouble and not messages
        for message in messages:
            topic, number, offset = message.topic(), message.partition(), message.offset()
            opening = None if topic is None or number is None else self._flows.get(KafkaPart(topic, number))
            wanted = -1 if opening is None else opening.flow.next_offset
            if opening is None or offset is None or not opening.flow.put(message):
                self.stats.dropped_count += 1
                if opening is not None and self._strayed(opening):
                    opening.offset = wanted
                    opening.seeks_count += 1
                    self._openings.append(opening)
                continue
            if opening.is_fresh and offset > wanted:
                part = opening.tenure.part
                self._spawn(
                    self._look_for_missing(part, wanted, offset), f"looks for the start of {part.name}"
                )
            opening.is_fresh = False

    def _strayed(self, opening: _Opening) -> bool:
        """Whether to send the client there once more: otherwise it reads all that lies before."""
        may_seek = opening.is_fresh and opening.seeks_count < KAFKA_SEEKS_COUNT_MAX
        # If the client is about to be sent elsewhere, maybe for the partition's next work, that place counts.
        is_due = any(each.tenure.part == opening.tenure.part for each in self._openings)
        return may_seek and not is_due

    async def _commit(self, parts: Sequence[KafkaPart]) -> None:
        """Show in Kafka how far the saved works are."""
        offsets = {
            part: self._saved[part]
            for part in parts
            if part in self._saved and self._saved[part] != self._committed.get(part)
        }
        if offsets and await self._try(self._member.commit(offsets)):
            self._committed.update(offsets)

    async def _try(self, step: Awaitable[None]) -> bool:
        """Try a step; returns whether it was done."""
        try:
            await step
        except KafkaUnavailable as error:
            self.failed(error)
            return False
        return True

    # -- tasks

    async def _begin_sweep(self) -> None:
        """Look up how long handoffs are kept, however long the broker is away. Raises `UsageError`."""
        if self._lifetime_s is None:
            return
        self._sweep = KafkaSweep(
            self._worker,
            self._entries,
            topics=self._topics,
            lifetime_s=self._lifetime_s,
            ask=lambda: self._member.retention_s(self._topics),
        )
        backoff = patient_backoff(self._worker.environment.chance)
        while not self._is_leaving:
            try:
                if await self._sweep.is_needed():
                    self._spawn(self._sweep.run(), "sweeping")
                return
            except KafkaUnavailable as error:
                self.failed(error)
            await asyncio.sleep(backoff.next_s())

    async def _follow_entries(self) -> None:
        """Hear of other processes that take entries from this one."""
        following = self._entries.follow()
        try:
            async for news in following:
                puts, deletes = changes(news)
                for item in deletes:
                    self._hear_entry(replace(item, value=b"", mod_revision=news.revision))
                for item in puts:
                    self._hear_entry(item)
        finally:
            following.close()

    def _hear_entry(self, item: KeyValue) -> None:
        now, _ = read_entry(item)
        for claim in list(self._tenures):
            # The release of the claim's own entry is no loss: the code that writes it does the rest.
            is_release = not now.node and now.epoch == claim.epoch
            if claim.key == item.key and item.mod_revision > revision_of(claim) and not is_release:
                claim.drop(f"its entry names {now.node or 'nobody'!r} now")

    # -- small things

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        # The client knows its own calls by the context of its callbacks: no other task may run in that one.
        return self._context.run(self._tasks.spawn, work, name)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _now(self) -> float:
        return self._store.clock.monotonic()
