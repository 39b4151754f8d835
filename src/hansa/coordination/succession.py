"""How what is handed over comes to who waits in the line: the record as a claim sees it, and taking by it.

`wait_for_turn` must: prepare when the record names this node; take by the record
what was sealed for this key, and what was sealed for nobody who is left; take by the head of the line what
comes to an older key than that; and close the record of an owner who is gone.

Every step compares the revision of the record that was decided on. So what is sent twice happens once, and a
lost answer is found by reading the record again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hansa.coordination.following import TROUBLE, patient_backoff, patiently
from hansa.coordination.handed import blobs_of, dropped
from hansa.coordination.handover import (
    Actor,
    Decision,
    Facts,
    Handover,
    HandoverStep,
    advanced,
    decide,
)
from hansa.coordination.line import Head, Place, head_key
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    BadRecord,
    HansaError,
    LeaseLost,
    SessionLost,
    UsageError,
)
from hansa.keys import as_name
from hansa.limits import (
    HANDOVER_REASON_CHARS_MAX,
    HANDOVER_S_MAX,
)
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import GuardedBlock
from hansa.store.values import Compare, Delete, Get, KeyValue, Operation, Outcome, Put, prefix_range

if TYPE_CHECKING:
    from hansa.coordination.claim import TakenClaim
    from hansa.coordination.session import Session

logger = logging.getLogger(__name__)

# Not shorter than a moment: a clock that rounds must not make a wait spin.
_WAIT_S_MIN: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Movable:
    """The name of what can be handed over.

    What is plain goes to a node that waits in the line already, and is done as soon as it is taken. Who takes
    something else comes into the line when it is named, and says by itself when it is done.
    """

    kind: str
    name: str
    is_plain: bool = True


def checked_offer(to: str, timeout: float, reason: str) -> None:
    """Raises `BadArgument` for what cannot be offered so."""
    as_name(to, "the node to hand over to")
    if not 0.0 < timeout <= HANDOVER_S_MAX:
        raise BadArgument(
            f"timeout {timeout} s: a hand-over has more than 0 and at most {HANDOVER_S_MAX:g} s"
        )
    if len(reason) > HANDOVER_REASON_CHARS_MAX:
        raise BadArgument(f"a reason has at most {HANDOVER_REASON_CHARS_MAX} characters, not {len(reason)}")


# ---- the record, as a claim sees it -------------------------------------------------------------------


class RecordListeners:
    """Those of one session who follow one record, over one watch. They stand in `Session.listeners`."""

    def __init__(self) -> None:
        self.records: dict[ClaimRecord, None] = {}
        self.is_following = False
        self.told: KeyValue | None = None

    def hear(self, item: KeyValue | None) -> None:
        self.told = item
        for record in tuple(self.records):
            record.hear(item)


class ClaimRecord:
    """The record of one thing as a claim sees it: what is known of it, since when, and steps of it."""

    def __init__(self, session: Session, movable: Movable) -> None:
        self.session = session
        self.movable = movable
        self.key = session.keys.handover(movable.kind, movable.name)
        self.latest: Handover | None = None
        # How often something was new; who waits names the number that it has seen.
        self.changes_count = 0
        # Of the record's last put; 0: it is not there.
        self._revision = 0
        # The store's, at which this was so.
        self._known_at = 0
        self._seen: tuple[int, float] = (0, 0.0)
        self._news = Waiters()
        self._users_count = 0

    @property
    def deadline_s(self) -> float:
        """When the hand-over that it tells of should have ended, on the session's clock."""
        if self.latest is None:
            return 0.0
        return self._seen[1] + self.latest.timeout

    @property
    def is_over_time(self) -> bool:
        return self.session.store.clock.monotonic() >= self.deadline_s

    async def follow(self) -> None:
        """Know it, and hear of it until `let_go`, once for each call. Waits for the store."""
        listeners = self.session.listeners.setdefault(self.key, RecordListeners())
        listeners.records[self] = None
        self._users_count += 1
        try:
            revision = await self.read()
        except BaseException:
            self.let_go()
            raise
        if not listeners.is_following:
            listeners.is_following = True
            self.session.guard.follow(self.key, revision=revision, on_change=listeners.hear)
        elif listeners.told is not None:
            # It may be newer than what was read.
            self._believe(listeners.told, listeners.told.mod_revision)

    def let_go(self) -> None:
        """Hear of it no more."""
        self._users_count -= 1
        listeners = self.session.listeners.get(self.key)
        if self._users_count or listeners is None:
            return
        listeners.records.pop(self, None)
        if not listeners.records:
            del self.session.listeners[self.key]
            if listeners.is_following:
                self.session.guard.let_go(self.key)

    async def read(self) -> int:
        """Look at it; gives the store's revision. Waits for the store."""
        look, known_at = partial(self.session.store.scan, self.key, b""), self._known_at
        scan = await patiently(look, self.session.environment.chance)
        self._check_time(scan.revision, known_at)
        self._believe(scan.items[0] if scan.items else None, scan.revision)
        return scan.revision

    def hear(self, item: KeyValue | None) -> None:
        """The watch says that it is this, or gone."""
        if item is not None:
            self._believe(item, item.mod_revision)
        elif self.latest is not None:
            # When it was gone is not said: it may have been before this claim wrote it anew.
            self.session.spawn(self._reread(), f"reads {self.key!r}")

    async def write(
        self,
        record: Handover,
        compares: Sequence[Compare],
        also: Sequence[Operation] = (),
        reads: Sequence[Get] = (),
    ) -> Outcome:
        """One step, if the record is as it is known, and these hold. Afterwards it is known as it is then.

        Raises `TimedOut` and `StoreUnavailable`: the same again does no harm. `SessionLost` without a lease.
        """
        session, known_at = self.session, self._known_at
        drops = dropped(blobs_of(session), self.latest, record)
        try:
            outcome = await session.store.commit(
                [Compare.revision(self.key, "=", self._revision), *compares],
                then=[Put(self.key, record.encode()), *drops, *also, *reads],
                otherwise=[Get(self.key), *reads],
            )
        except LeaseLost as gone:
            session.end_lost("the store ended the lease")
            raise SessionLost(f"{record.what}: {gone}") from gone
        self._check_time(outcome.revision, known_at)
        if outcome.is_success:
            # The news of what somebody else made of it may have come before this answer.
            if outcome.revision > self._known_at:
                next_epoch = outcome.revision if record.step is HandoverStep.TAKEN else record.next_epoch
                self._set(replace(record, revision=outcome.revision, next_epoch=next_epoch), outcome.revision)
        else:
            found = [item for item in outcome.items if item.key == self.key]
            self._believe(found[0] if found else None, outcome.revision)
        return outcome

    async def _reread(self) -> None:
        with suppress(AlreadyClosed):
            await self.read()

    def wake(self) -> None:
        """Something else than the record has changed."""
        self.changes_count += 1
        self._news.wake_all()

    async def wait(self, since: int, until_s: float | None = None) -> None:
        """Wait until it is not as it was at this count any more, or until this time."""
        if self.changes_count != since:
            return
        if until_s is None:
            await self._news.wait()
            return
        left_s = max(until_s - self.session.store.clock.monotonic(), _WAIT_S_MIN)
        try:
            async with asyncio.timeout(left_s):
                await self._news.wait()
        except TimeoutError:
            return

    def _check_time(self, revision: int, known_at: int) -> None:
        """A store that answers with an older revision than was known when it was asked went back."""
        if revision < known_at:
            self._known_at = 0

    def _believe(self, item: KeyValue | None, at: int) -> None:
        if at < self._known_at:
            return  # An answer, or news, that was overtaken.
        if item is None:
            self.latest, self._revision, self._known_at = None, 0, at
            self.wake()
            return
        try:
            self._set(Handover.decode(item.value, revision=item.mod_revision), at)
        except BadRecord as error:
            logger.warning("%r: %s", self.key, error)
            # As if there were none: the next step is written over it.
            self.latest, self._revision, self._known_at = None, item.mod_revision, at
            self.wake()

    def _set(self, record: Handover, at: int) -> None:
        self.latest, self._revision, self._known_at = record, record.revision, at
        if self._seen[0] != record.number:
            self._seen = record.number, self.session.store.clock.monotonic()
        self.wake()


def record_of(claim: TakenClaim[Any]) -> ClaimRecord:
    """The record of a claim: one for all that it does, so that all count one time. Raises `UsageError`."""
    if claim.record is None:
        if claim.movable is None:
            raise UsageError(f"{claim.what} cannot be handed over: only locks, leaderships and topics can")
        claim.record = ClaimRecord(claim.session, claim.movable)
    return claim.record


async def call_off(record: ClaimRecord, number: int, actor: Actor, facts: Facts) -> None:
    """Withdraw a hand-over, if this actor may, however long the store cannot be reached."""
    session = record.session
    backoff = patient_backoff(session.environment.chance)
    try:
        await record.read()
        while session.is_live:
            now = record.latest
            if now is None or now.number != number or not now.step.is_early:
                return
            decision = decide(now, actor, facts)
            if decision is None or decision.step is not HandoverStep.WITHDRAWN:
                return
            try:
                await record.write(withdrawn(now, decision, session), ())
            except TROUBLE:
                await asyncio.sleep(backoff.next_s())
    except AlreadyClosed:
        return  # Whoever has closed the store says nothing more: it ends by its deadline.


def withdrawn(record: Handover, decision: Decision, session: Session) -> Handover:
    """The record after this decision to withdraw."""
    at = session.store.clock.wall()
    return advanced(record, HandoverStep.WITHDRAWN, at=at, trouble=decision.trouble)


# ---- who waits ----------------------------------------------------------------------------------------


async def wait_for_turn(claim: TakenClaim[Any], place: Place) -> None:
    """Wait from a place on until it is the claim's turn, and take it; then the claim owns."""
    heeding = _Heeding(claim) if claim.movable is not None and claim.session.node else None
    owns = False
    try:
        while True:
            while not place.is_turn:
                if heeding is None:
                    await claim.wait_behind(place)
                else:
                    await heeding.wait(partial(claim.wait_behind, place))
                place = await claim.look()
            place = await _take_turn(claim, place)
            if place.is_turn:
                owns = True
                return
    finally:
        if heeding is not None:
            heeding.close(owns=owns)


class _Heeding:
    """Somebody in a line who heeds the record: it prepares when its node is named."""

    def __init__(self, claim: TakenClaim[Any]) -> None:
        self._claim = claim
        self._session: Session = claim.session
        self._key = claim.key.decode()
        self._record = record_of(claim)
        self._is_following = False
        self._error: HansaError | None = None
        # The count of the record's changes when it was found to be sealed for this one.
        self._sealed_at = 0

    async def wait(self, behind: Callable[[], Awaitable[None]]) -> None:
        """Wait until those ahead have changed, or until what they have was sealed for this one."""
        record, claim = self._record, self._claim
        waiting = self._session.spawn(self._until(behind), f"waits for {claim.what}")
        backoff = patient_backoff(self._session.environment.chance)
        try:
            if not self._is_following:
                await record.follow()
                self._is_following = True
            while True:
                since, now = record.changes_count, record.latest
                if self._error is not None:
                    raise self._error
                if waiting.done():
                    return
                if now is not None and self._is_sealed_for_me(now) and since != self._sealed_at:
                    self._sealed_at = since
                    return
                until_s = None
                if now is not None and self._is_for_me(now):
                    facts = Facts(is_over_time=record.is_over_time)
                    decision = decide(now, Actor.TARGET, facts)
                    if decision is not None:
                        try:
                            await self._write(now, decision)
                        except TROUBLE:
                            await asyncio.sleep(backoff.next_s())
                        continue
                    until_s = record.deadline_s
                await record.wait(since, until_s)
        finally:
            waiting.cancel()

    def close(self, *, owns: bool) -> None:
        """Heed it no more. What was offered by an owner who is gone is withdrawn, in the background."""
        record, session = self._record, self._session
        if not self._is_following:
            return
        record.let_go()
        now = record.latest
        if (
            owns
            and now is not None
            and now.step.is_early
            and not now.is_of(self._claim.key, self._claim.epoch)
        ):
            session.spawn(call_off(record, now.number, Actor.HEIR, Facts()), "withdraws")

    def _is_sealed_for_me(self, now: Handover) -> bool:
        return now.step is HandoverStep.SEALED and now.target_key == self._key

    def _is_for_me(self, now: Handover) -> bool:
        if now.target != self._session.node or not now.step.is_early:
            return False
        # Another one of this node may have been quicker.
        return now.target_key in ("", self._key)

    async def _write(self, now: Handover, decision: Decision) -> None:
        if decision.step is HandoverStep.PREPARED:
            self._claim.is_named = True
            at = self._session.store.clock.wall()
            record = advanced(now, HandoverStep.PREPARED, at=at, target_key=self._key)
        else:
            record = withdrawn(now, decision, self._session)
        outcome = await self._record.write(record, self._claim.guards, reads=[Get(self._claim.key)])
        if not outcome.is_success and not any(item.key == self._claim.key for item in outcome.items):
            self._claim.deleted()
            self._claim.loss.check()

    async def _until(self, behind: Callable[[], Awaitable[None]]) -> None:
        try:
            await behind()
        except HansaError as error:
            self._error = error
        self._record.wake()


async def _take_turn(claim: TakenClaim[Any], place: Place) -> Place:
    """Take the turn, if it needs to be taken; gives the place as it is then. The turn may have gone."""
    session = claim.session
    handover: Handover | None = None
    backoff = patient_backoff(session.environment.chance)
    while place.is_turn and not place.epoch:
        try:
            place, handover = await _try_to_take(claim, place)
        except TROUBLE:
            await asyncio.sleep(backoff.next_s())
        except LeaseLost as gone:
            session.end_lost("the store ended the lease")
            raise SessionLost(f"{claim.what}: {gone}") from gone
    if place.is_turn:
        claim.own(place.epoch, put_revision=place.own.mod_revision, handover=handover)
    return place


async def _try_to_take(claim: TakenClaim[Any], place: Place) -> tuple[Place, Handover | None]:
    """One transaction: by the record if something is sealed there, else by the head alone."""
    head, session = place.head, claim.session
    if head is None:
        return place, None
    record = record_of(claim)
    claim.is_named = True
    if head.is_open:
        await record.read()
    now = record.latest if head.is_open else None
    # What was taken before was this claim's own try, whose answer was lost, or who took it is gone.
    is_mine = now is not None and now.step is HandoverStep.SEALED and head.next == claim.key
    decision = decide(now, Actor.TARGET if is_mine else Actor.HEIR, Facts()) if now is not None else None
    everybody = Get(*prefix_range(claim.prefix))
    compares = [*claim.guards, Compare.revision(head_key(claim.prefix), "=", head.revision)]
    new_head = Head(first=claim.key, is_open=decision is not None and decision.step is HandoverStep.TAKEN)
    puts: list[Operation] = [claim.put_own(), Put(head_key(claim.prefix), new_head.encode())]
    if now is not None and new_head.is_open:
        taken = advanced(
            now,
            HandoverStep.TAKEN,
            at=session.store.clock.wall(),
            target_key=claim.key.decode(),
            taken_by=session.node,
            next_epoch=0,
        )
        if now.owner_key != taken.target_key:
            puts.append(Delete(now.owner_key.encode()))
        outcome = await record.write(taken, compares, puts, [everybody])
    else:
        if head.is_open and now is None:
            logger.warning("%s: what was handed on is gone with its record %r", claim.what, record.key)
        outcome = await session.store.commit(compares, then=[*puts, everybody], otherwise=[everybody])
    items = [item for item in outcome.items if item.key != record.key]
    place = claim.place(items, outcome.revision)
    handover = record.latest if place.epoch and place.head is not None and place.head.is_open else None
    return place, handover


async def finish(claim: TakenClaim[Any], trouble: str) -> None:
    """Say that what was handed on was read, or why not. However long the store cannot be reached.

    Raises the loss.
    """
    handover, session = claim.handover, claim.session
    if handover is None:
        return
    record = record_of(claim)
    backoff = patient_backoff(session.environment.chance)
    head = Head(first=claim.key, epoch=claim.epoch)
    while (
        (now := record.latest) is not None
        and now.number == handover.number
        and now.step is HandoverStep.TAKEN
    ):
        at = session.store.clock.wall()
        done = advanced(now, HandoverStep.DONE, at=at, trouble=trouble or now.trouble)
        try:
            outcome = await record.write(
                done, claim.guards, [Put(head_key(claim.prefix), head.encode())], [Get(claim.key)]
            )
        except TROUBLE:
            await asyncio.sleep(backoff.next_s())
            continue
        if not outcome.is_success and not any(item.key == claim.key for item in outcome.items):
            claim.deleted()
            claim.loss.check()
    if (now := record.latest) is not None and now.number == handover.number:
        # Somebody may have offered it once more by now.
        claim.handover = now


async def asked_for(claim: TakenClaim[Any]) -> Handover:
    """Wait until somebody asks from outside to have it elsewhere. Raises the loss, `UsageError`."""
    record = record_of(claim)
    async with GuardedBlock(claim.loss):
        await record.follow()
        try:
            while True:
                since, now = record.changes_count, record.latest
                if (
                    now is not None
                    and now.asked_by
                    and now.step.is_early
                    and now.is_of(claim.key, claim.epoch)
                ):
                    return now
                await record.wait(since)
        finally:
            record.let_go()
