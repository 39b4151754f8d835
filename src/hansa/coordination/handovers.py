"""All hand-overs of a cluster, from outside: to see and follow them, to ask for one, and to look after them.

`Handovers` owns nothing and needs no session. It must: offer only what somebody owns, and nothing while
another hand-over of the same thing is open; withdraw only while the old owner still acts; find a lost answer
by reading again; and in `look_after` withdraw what does not come to its end in time, or tell why it cannot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from hansa.coordination.following import TROUBLE, Following, Snapshot, changes, patiently
from hansa.coordination.handed import dropped, handover_blobs
from hansa.coordination.handover import Actor, Facts, Handover, HandoverStep, advanced, decide, offered
from hansa.coordination.line import decode_signed, epoch_of, head_key, head_of, in_order
from hansa.coordination.succession import checked_offer
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    BadRecord,
    Conflict,
    HansaError,
    NoOwner,
    NoSuccessor,
    TimedOut,
)
from hansa.keys import Keys
from hansa.limits import (
    COMMIT_TRIES_MAX,
    HANDOVER_GRACE_S,
    HANDOVER_KEPT_S,
    HANDOVER_REASON_CHARS_MAX,
    HANDOVER_S,
    HANDOVER_SWEEP_COUNT,
    HANDOVER_SWEEP_INTERVAL_S,
    STORE_TIMEOUT_S,
)
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, Get, KeyValue, Operation, Put, prefix_range
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

# Kinds whose next owner must wait in the line before it is named.
_PLAIN: Final = ("lock", "leader")
_LINES: Final = (*_PLAIN, "topic")

# A transaction: what it compares, and what it does if all of that holds.
_Request = tuple[Sequence[Compare], Sequence[Operation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverAdvanced:
    """A hand-over has come to this step.

    `is_after_gap` is one that was found so, when following began or after a watch was lost: it may have made
    steps before that were not told.
    """

    handover: Handover
    is_after_gap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverStuck:
    """A hand-over did not end in time, and nobody outside may withdraw it; `reason` says who can end it."""

    handover: Handover
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A hand-over that is under way, and when somebody should look why."""

    record: Handover
    due_s: float


# Who can still end one that nobody outside may withdraw.
_STUCK: Final[Mapping[HandoverStep, str]] = {
    HandoverStep.SEALED: (
        "its old owner has stopped to act; whoever claims it next is given what was sealed, or the old owner"
        " takes it back"
    ),
    HandoverStep.TAKEN: "its new owner has it, and has not said that it read what was handed on",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoversStats:
    """What `look_after` has seen since it began; of what had ended before that, nothing."""

    open_count: int = 0
    """Hand-overs that are under way now."""
    offered_count: int = 0
    done_count: int = 0
    lost_states_count: int = 0
    """Of those that are done: what was handed on could not be read any more."""
    withdrawn_count: int = 0
    overdue_count: int = 0
    """Of those that were withdrawn: by this one, because their time was over."""
    stuck_count: int = 0
    bad_records_count: int = 0


class Handovers:
    """The hand-overs of a cluster. `name` is who asks, for the records. For one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        cluster: str = "default",
        name: str = "outside",
        environment: Environment | None = None,
    ) -> None:
        self._store = store
        self._keys = Keys(cluster)
        self._name = name or "outside"
        self._environment = environment if environment is not None else Environment()
        self._blobs = handover_blobs(store, cluster, self._environment.chance)
        self._open: dict[bytes, _Open] = {}
        self._numbers: dict[bytes, int] = {}
        self._swept_to = ("", "")
        self._stats = HandoversStats()

    def __repr__(self) -> str:
        return f"<Handovers of {self._keys.cluster!r}>"

    @property
    def stats(self) -> HandoversStats:
        """What `look_after` has counted."""
        return replace(self._stats, open_count=len(self._open))

    async def all(self) -> list[Handover]:
        """The last hand-over of each thing, in the order of their keys. Raises what the store raises.

        A record that cannot be read is left out, and logged.
        """
        scan = await self._store.scan(self._keys.handovers)
        return [found for item in scan.items if (found := self._read(item)) is not None]

    async def get(self, kind: str, name: str) -> Handover | None:
        """The last hand-over of one thing, if there was one lately. Raises `BadRecord` and as the store."""
        item = await self._store.get(self._keys.handover(kind, name))
        return None if item is None else Handover.decode(item.value, revision=item.mod_revision)

    async def follow(self) -> AsyncGenerator[HandoverAdvanced, None]:
        """Each step of each hand-over, as it comes; first what there is.

        It waits for a store that cannot be reached; what was missed meanwhile is told as `is_after_gap`.
        Raises `AlreadyClosed` when the store was closed.
        """
        following = Following(self._store, self._keys.handovers, environment=self._environment)
        try:
            async for news in following:
                is_after_gap = isinstance(news, Snapshot) or news.is_after_gap
                for item in changes(news)[0]:
                    if (found := self._read(item)) is not None:
                        yield HandoverAdvanced(handover=found, is_after_gap=is_after_gap)
        finally:
            following.close()

    async def offer(
        self, kind: str, name: str, to: str, *, timeout: float = HANDOVER_S, reason: str = ""
    ) -> Handover:
        """Ask the owner of a "lock", of a "leader"'s office or of a "topic" to hand it over to a node.

        Raises `NoOwner`; `NoSuccessor` for a lock or an office for which the node does not wait; `Conflict`
        while another hand-over of it is open; `BadArgument`, and what the store raises: then it may have been
        offered. Cancelling it takes it back.
        """
        checked_offer(to, timeout, reason)
        key, prefix = self._keys.handover(kind, name), self._keys.line(kind, name)
        reads = [Get(*prefix_range(prefix)), Get(key)]
        sent: Handover | None = None
        request: _Request = ((), ())
        for _ in range(COMMIT_TRIES_MAX):
            try:
                found = await self._store.commit([], then=reads)
            except asyncio.CancelledError:
                if sent is not None:
                    await self._take_back(sent, request)
                raise
            items = [item for item in found.items if item.key != key]
            item = next((item for item in found.items if item.key == key), None)
            before = None if item is None else self._read(item)
            if before is not None and sent is not None and _is_same(before, sent):
                return before  # It may have come further than that by now.
            head, line = head_of(items), in_order(items)
            owner = line[0] if line else None
            epoch = 0 if owner is None else epoch_of(owner, head)
            if owner is None or not epoch:
                raise NoOwner(f"nobody has {kind} {name!r} now")
            if before is not None and before.is_open and before.is_of(owner.key, epoch):
                raise Conflict(
                    f"{kind} {name!r}: its hand-over to {before.target!r} is open ({before.step.value})"
                )
            if kind in _PLAIN and not any(decode_signed(each.value).node == to for each in line[1:]):
                raise NoSuccessor(f"{kind} {name!r} stays where it is: node {to!r} does not wait for it")
            sent = offer = offered(
                before,
                kind=kind,
                name=name,
                source=decode_signed(owner.value).node,
                target=to,
                epoch=epoch,
                owner_key=owner.key.decode(),
                timeout=timeout,
                at=self._store.clock.wall(),
                asked_by=self._name,
                reason=reason,
            )
            compares = (
                Compare.revision(key, "=", 0 if item is None else item.mod_revision),
                Compare.created(owner.key, "=", owner.create_revision),
                Compare.revision(head_key(prefix), "=", 0 if head is None else head.revision),
            )
            request = compares, (Put(key, offer.encode()), *dropped(self._blobs, before, offer))
            try:
                outcome = await self._store.commit(*request)
            except TimedOut:
                continue  # Whether it was offered, the record says.
            except asyncio.CancelledError:
                await self._take_back(offer, request)
                raise
            if outcome.is_success:
                return replace(offer, revision=outcome.revision)
        raise Conflict(f"{kind} {name!r}: its line changes all the time")

    async def withdraw(self, kind: str, name: str, *, reason: str = "") -> Handover | None:
        """Take an offer back, if the old owner still acts; gives the record as it is then.

        Raises what the store raises, and `BadArgument`.
        """
        if len(reason) > HANDOVER_REASON_CHARS_MAX:
            raise BadArgument(
                f"a reason has at most {HANDOVER_REASON_CHARS_MAX} characters, not {len(reason)}"
            )
        return await self._end(kind, name, Facts(refusal=reason or f"{self._name} took it back"))

    async def move(
        self, kind: str, name: str, to: str, *, timeout: float = HANDOVER_S, reason: str = ""
    ) -> Handover:
        """Ask as `offer` does, and wait until it is done or withdrawn; gives the record. Raises as both."""
        return await self.ended(await self.offer(kind, name, to, timeout=timeout, reason=reason))

    async def ended(self, offer: Handover) -> Handover:
        """Wait until what was offered is done or withdrawn; gives the record.

        If the owner does not answer in the offer's time it is withdrawn. Raises `TimedOut` for one that
        cannot be withdrawn any more, and was not done. Cancelling it takes the offer back, in a bounded time.
        """
        clock = self._store.clock
        record = offer
        deadline_s = clock.monotonic() + offer.timeout
        key = self._keys.handover(offer.kind, offer.name)
        following = Following(self._store, key, exact=True, environment=self._environment)
        is_late = False
        try:
            while True:
                # At the deadline it is withdrawn, if it still can be; a while later enough is enough.
                until_s = deadline_s + (HANDOVER_GRACE_S if is_late else 0.0)
                try:
                    async with asyncio.timeout(max(until_s - clock.monotonic(), 0.0)):
                        await anext(following)
                except TimeoutError:
                    if is_late:
                        how = f"it was {record.step.value} to {offer.target!r}"
                        raise TimedOut(f"{record.what}: {how}, and was not done in time") from None
                    is_late = True
                    late = partial(self._end, offer.kind, offer.name, Facts(is_over_time=True), record)
                    await patiently(late, self._environment.chance)
                    continue
                item = following.items.get(key)
                found = None if item is None else self._read(item)
                if found is None or found.number != record.number:
                    raise Conflict(f"{record.what}: somebody else has changed the record of its hand-over")
                record = found
                if not record.is_open:
                    return record
        except asyncio.CancelledError:
            await self._take_back(record, None)
            raise
        finally:
            following.close()

    async def sweep(
        self, *, older_than: float = HANDOVER_KEPT_S, count_max: int = HANDOVER_SWEEP_COUNT
    ) -> int:
        """Forget hand-overs that ended so many seconds ago; gives how many were forgotten.

        A line's head goes along. A call looks at so many at most, the next one at others. Blobs that no
        hand-over names go at the end of their lifetime, as `Blobs.sweep` does it. Raises as the store does.
        """
        swept_count = 0
        oldest = self._store.clock.wall() - older_than
        records = await self.all()
        old = [
            record for record in records if not record.is_open and record.times.get(record.step, 0.0) < oldest
        ]
        # After those of the last call: what has to stay must not keep others.
        old.sort(key=lambda one: ((one.kind, one.name) <= self._swept_to, one.kind, one.name))
        for record in old[:count_max]:
            swept_count += await self._forget(record)
            self._swept_to = record.kind, record.name
        await self._blobs.sweep(kept={record.blob for record in records if record.blob})
        return swept_count

    async def keep_swept(self, *, interval: float = HANDOVER_SWEEP_INTERVAL_S) -> None:
        """Until cancelled: `sweep` about once in every interval, each process at times of its own.

        Nodes with a store, `hansa lead` and `hansa lock` do so. What the store raises is logged, and tried
        again the next time. Returns when the store was closed.
        """
        chance = self._environment.chance.fork("sweeps")
        while True:
            await asyncio.sleep(chance.uniform(0.5, 1.5) * interval)
            try:
                await self.sweep()
            except AlreadyClosed:
                return
            except HansaError as error:
                logger.info("old hand-overs of %r are swept later: %s", self._keys.cluster, error)

    async def look_after(self, on_stuck: Callable[[HandoverStuck], None] | None = None) -> None:
        """Until cancelled: withdraw what does not end in time, and tell what cannot be withdrawn any more.

        It counts what it sees, in `stats`. One is enough for a cluster; several do no harm. It waits for a
        store that cannot be reached. Raises `AlreadyClosed` when the store was closed.
        """
        clock = self._store.clock
        following = Following(self._store, self._keys.handovers, environment=self._environment)
        self._open.clear()
        try:
            while True:
                due_s = min((one.due_s for one in self._open.values()), default=inf)
                try:
                    left_s = None if due_s == inf else max(due_s - clock.monotonic(), 0.0)
                    async with asyncio.timeout(left_s):
                        news = await anext(following)
                except TimeoutError:
                    for key, one in list(self._open.items()):
                        if one.due_s <= clock.monotonic():
                            await self._end_overdue(key, one, on_stuck)
                    continue
                puts, deletes = changes(news)
                for item in deletes:
                    self._open.pop(item.key, None)
                for item in puts:
                    self._note(item, is_first=isinstance(news, Snapshot))
        finally:
            following.close()

    def _note(self, item: KeyValue, *, is_first: bool) -> None:
        """A record is this now."""
        record = self._read(item)
        if record is None:
            return
        before = self._open.get(item.key)
        is_new = self._numbers.get(item.key) != record.number
        self._numbers[item.key] = record.number
        stats = self._stats
        if is_new and not (is_first and not record.is_open):
            stats = replace(stats, offered_count=stats.offered_count + 1)
        if record.is_open:
            if before is None or before.record.number != record.number:
                due_s = self._store.clock.monotonic() + record.timeout + HANDOVER_GRACE_S
                self._open[item.key] = _Open(record=record, due_s=due_s)
            else:
                self._open[item.key] = replace(before, record=record)
        else:
            self._open.pop(item.key, None)
            if before is not None or (is_new and not is_first):
                is_done = record.step is HandoverStep.DONE
                stats = replace(
                    stats,
                    done_count=stats.done_count + is_done,
                    lost_states_count=stats.lost_states_count + (is_done and bool(record.trouble)),
                    withdrawn_count=stats.withdrawn_count + (not is_done),
                )
        self._stats = stats

    async def _end_overdue(
        self, key: bytes, one: _Open, on_stuck: Callable[[HandoverStuck], None] | None
    ) -> None:
        record = one.record
        try:
            ended = await self._end(record.kind, record.name, Facts(is_over_time=True), record)
        except (*TROUBLE, Conflict) as error:
            logger.info("the hand-over of %s is overdue, and is looked at again: %s", record.what, error)
            self._open[key] = replace(one, due_s=self._store.clock.monotonic() + HANDOVER_GRACE_S)
            return
        if ended is None or not _is_same(ended, record):
            return  # The watch tells. One of the same number is another one where a store went back.
        stats = self._stats
        if not ended.is_open:
            self._stats = replace(stats, overdue_count=stats.overdue_count + 1)
            self._open[key] = replace(one, due_s=inf)
            return
        self._stats = replace(stats, stuck_count=stats.stuck_count + 1)
        self._open[key] = replace(one, due_s=inf)
        stuck = HandoverStuck(handover=ended, reason=_STUCK[ended.step])
        logger.warning("the hand-over of %s does not end: %s", record.what, stuck.reason)
        if on_stuck is not None:
            on_stuck(stuck)

    async def _forget(self, record: Handover) -> bool:
        key = self._keys.handover(record.kind, record.name)
        compares = [Compare.revision(key, "=", record.revision)]
        deletes = [Delete(key)]
        if record.kind in _LINES:
            prefix = self._keys.line(record.kind, record.name)
            items = (await self._store.scan(prefix)).items
            head = head_of(items)
            if head is not None:
                if head.is_open or any(item.create_revision < head.revision for item in in_order(items)):
                    return False
                compares.append(Compare.revision(head_key(prefix), "=", head.revision))
                deletes.append(Delete(head_key(prefix)))
        return (await self._store.commit(compares, then=deletes)).is_success

    async def _take_back(self, offer: Handover, request: _Request | None) -> None:
        """Withdraw it, if an outsider still may: in a bounded time, or by its deadline.

        A request that was given up may be under way still. So it is sent once more: then it is there, or
        never will be.
        """
        facts = Facts(refusal=f"{self._name} took it back")

        async def take_back() -> None:
            found = await self.get(offer.kind, offer.name)
            if request is not None and (found is None or not _is_same(found, offer)):
                await self._store.commit(*request)
            await self._end(offer.kind, offer.name, facts, offer)

        try:
            async with asyncio.timeout(STORE_TIMEOUT_S):
                await patiently(take_back, self._environment.chance)
        except (TimeoutError, HansaError) as error:
            logger.info("%s is not taken back, it ends by its deadline: %s", offer.what, error)

    async def _end(self, kind: str, name: str, facts: Facts, only: Handover | None = None) -> Handover | None:
        """Withdraw it, if an outsider may, and if it is no other one; gives the record as it is then."""
        key = self._keys.handover(kind, name)
        for _ in range(COMMIT_TRIES_MAX):
            record = await self.get(kind, name)
            if record is None or (only is not None and not _is_same(record, only)):
                return record
            decision = decide(record, Actor.OUTSIDER, facts)
            if decision is None:
                return record
            at = self._store.clock.wall()
            ended = advanced(record, HandoverStep.WITHDRAWN, at=at, trouble=decision.trouble)
            outcome = await self._store.commit(
                [Compare.revision(key, "=", record.revision)], then=[Put(key, ended.encode())]
            )
            if outcome.is_success:
                return replace(ended, revision=outcome.revision)
        raise Conflict(f"the hand-over of {kind} {name!r} changes all the time")

    def _read(self, item: KeyValue) -> Handover | None:
        try:
            return Handover.decode(item.value, revision=item.mod_revision)
        except BadRecord as error:
            logger.warning("%r: %s", item.key, error)
            self._stats = replace(self._stats, bad_records_count=self._stats.bad_records_count + 1)
            return None


def _is_same(record: Handover, other: Handover) -> bool:
    """Whether both tell of one hand-over, however far. Two who ask at once would give it one number."""
    offered_at = record.times.get(HandoverStep.OFFERED), other.times.get(HandoverStep.OFFERED)
    return (record.number, record.asked_by, record.target, offered_at[0]) == (
        other.number,
        other.asked_by,
        other.target,
        offered_at[1],
    )
