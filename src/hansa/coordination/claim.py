"""Something owned, from taking it to losing it or giving it back: one mechanism for all that is owned.

A claim knows at once when it is lost (`loss`), cancels the bodies of its blocks, gives comparisons for its
owner's own transactions (`guards`), and has an `epoch` that grows from owner to owner. There are two kinds:

- *Taken* (`TakenClaim`, out of a `Line`): a key of its own on a session's lease, in a line of such keys. Its
  epoch is the revision that created the key, or that of a hand-over. Locks, semaphores, elections, barriers
  and topics are taken.
- *Placed* (`PlacedClaim` in `placed`): an entry that a leader writes for a node, its session's lease and an
  epoch.

A taken claim must: ask again until the store has answered, and remember that an unanswered request may still
be carried out; from then on hear of the session's loss, and have its key guarded; look at the line again
after each change ahead of it; end the whole session when the store has its lease no more; leave the line
however acquiring ends, unless it owns; ask the session's clock last of all, after the store's yes; and,
leaving, hear of nothing any longer and have the key deleted, in the background if the store does not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from hansa.coordination.following import TROUBLE, Following, key_changed, patient_backoff, patiently
from hansa.coordination.giving import Giving
from hansa.coordination.handed import read_state
from hansa.coordination.handover import Handover
from hansa.coordination.line import (
    LineStats,
    Place,
    Signed,
    decode_signed,
    epoch_of,
    has_head,
    head_of,
    in_order,
    place_of,
)
from hansa.coordination.session import Session, Sessions
from hansa.coordination.succession import ClaimRecord, Movable, asked_for, finish, wait_for_turn
from hansa.errors import (
    AlreadyClosed,
    Conflict,
    Fenced,
    HansaError,
    LeaseLost,
    NotHeld,
    SessionLost,
    StoreCorrupt,
    TimedOut,
    UsageError,
)
from hansa.limits import FAREWELL_STORE_S_MAX, HANDOVER_S, STORE_TIMEOUT_S, STORE_TXN_COUNT_MAX
from hansa.runtime.tasks import Closing, GuardedBlock, Loss, again
from hansa.store.values import Compare, Delete, Get, KeyValue, Outcome, Put, prefix_range

logger = logging.getLogger(__name__)

E = TypeVar("E", bound=Fenced)

# A put of one's own that was given up may come in between, once each.
_MARK_TRIES_COUNT: Final = 8


# ---- what all claims have in common -------------------------------------------------------------------


class Claim(Generic[E]):
    """What is owned through a session. `what` names it in errors, which are of the type `error`."""

    is_sealed = False
    """Whether a hand-over has come so far that its owner acts no more."""

    def __init__(self, session: Session, *, what: str, error: type[E]) -> None:
        self.session = session
        self.what = what
        self.epoch = 0
        """Grows from owner to owner; 0 while it is not known."""
        self.loss: Loss[E] = Loss()
        self._error = error
        self.has_left = False
        """Whether it was given back, or over."""
        self._lost_when_leaving: E | None = None
        self._blocks: dict[asyncio.Task[object], GuardedBlock] = {}

    def __repr__(self) -> str:
        state = "given back" if self.has_left else "owned" if self.is_standing else "lost"
        if self.is_sealed and not self.has_left:
            state = "being handed over"
        return f"<{type(self).__name__} of {self.what}, {self.epoch}, {state}>"

    @property
    def guards(self) -> tuple[Compare, ...]:
        """They hold as long as it is owned: put them into your own `commit` in the same store."""
        raise NotImplementedError

    @property
    def is_standing(self) -> bool:
        """Whether it is surely owned. Any thread may ask, at any moment."""
        return bool(
            self.epoch
            and not self.has_left
            and not self.is_sealed
            and self.loss.error is None
            and self.session.is_live
        )

    def as_lost(self) -> E | None:
        """The error that says why it is owned no more; None while it is, and when it was given back before.

        Any thread may ask, at any moment.
        """
        if self.loss.error is not None:
            return self.loss.error
        if self.has_left or not self.epoch or self.session.is_live:
            return self._lost_when_leaving
        # The clock knows it already; the event loop will hear of it.
        return self._as_session_lost()

    def check(self) -> None:
        """Raise the loss, with its reason, or `NotHeld` once given back or over. Any thread may ask."""
        if (lost := self.as_lost()) is not None:
            raise again(lost)
        if self.has_left:
            raise NotHeld(f"{self.what} was given back")
        if self.is_sealed:
            raise NotHeld(f"{self.what} is being handed over")

    async def refresh(self) -> None:
        """Renew the session's lease now. Raises the loss; `TimedOut` and `StoreUnavailable` lose nothing."""
        self.check()
        try:
            await self.session.renew()
        except SessionLost:
            self.check()
            raise
        self.check()

    async def release(self, error: BaseException | None = None) -> bool:
        """Give it back, with the error that is on its way to the caller; says whether it was owned.

        No error for what was lost before: in a `finally` it would take the place of a cancellation.
        """
        was_owned = self.is_standing
        await self._give_back(self.session.farewell_s(error))
        return was_owned

    async def __aenter__(self) -> Self:
        self.check()
        task = asyncio.current_task()
        if task is None or task in self._blocks:
            raise UsageError(f"{self.what}: a task enters its block once")
        block = GuardedBlock(self.loss)
        await block.__aenter__()
        self._blocks[task] = block
        self._inside(task, 1)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        if task is None or task not in self._blocks:
            raise UsageError(f"{self.what}: a block is left by the task that entered it")
        lost = None if self.has_left else self.as_lost()
        self._inside(task, -1)
        try:
            await self._blocks.pop(task).__aexit__(kind, error, trace)
        finally:
            await self.release(error)
        if kind is None and lost is not None:
            raise again(lost)

    def _inside(self, who: Hashable, step: int) -> None:
        """A task, or a thread by its number, has entered (1) or leaves (-1) a block of it."""

    async def _give_back(self, timeout_s: float) -> None:
        raise NotImplementedError

    def _begin(self, epoch: int) -> None:
        """It is owned from now on, as far as the store has told."""
        self.epoch = epoch
        self.session.loss.call_back(self._session_lost)

    def _end(self) -> bool:
        """Own it no more, as of now; False if that was so before."""
        if self.has_left:
            return False
        self._lost_when_leaving = self.as_lost()
        self.has_left = True
        self.session.loss.forget(self._session_lost)
        return True

    def _lose(self, reason: str) -> None:
        if not self.session.is_live:
            self._session_lost()
        else:
            self.loss.set(self._error(f"{self.what} is lost: {reason}"))

    def _session_lost(self) -> None:
        self.loss.set(self._as_session_lost())

    def _as_session_lost(self) -> E:
        try:
            self.session.check()
        except SessionLost as cause:
            lost = self._error(f"{self.what} is lost: {cause}")
            lost.__cause__ = cause
            return lost
        return self._error(f"{self.what} is lost with its session")


# ---- what is taken, in a line -------------------------------------------------------------------------


class TakenClaim(Claim[E]):
    """A key in a line, on a session's lease, from entering to leaving.

    One that is guarded is told by `loss` when somebody deletes the key; the session's end is told always.
    `admit` is given all keys of the line, and raises when this owner should not stand there.
    """

    # What only a hand-over sets: a claim without pays nothing for it.
    handover: Handover | None = None
    """How it came to this owner, if the one before has handed it over."""
    _state = b""
    _state_loss: StoreCorrupt | None = None
    giving: Giving | None = None
    record: ClaimRecord | None = None
    is_named = False
    """Whether a hand-over may name the key, now or later: then no other claim gets a key of this name."""

    def __init__(
        self,
        session: Session,
        prefix: bytes,
        *,
        what: str,
        error: type[E],
        body: bytes,
        turns_count: int = 1,
        admit: Callable[[tuple[KeyValue, ...]], None] | None = None,
        is_guarded: bool = True,
        is_brief: bool = True,
        movable: Movable | None = None,
    ) -> None:
        super().__init__(session, what=what, error=error)
        self._number = session.numbers.take(prefix)
        self.key = prefix + b"%016x-%d" % (session.lease, self._number)
        self._left_key = session.keys.left(session.lease, self._number)
        # Whether a request for the key may still be under way, to be carried out who knows when.
        self._is_in_doubt = False
        # The revisions of the key's creation and of its last put, as far as the store has told.
        self._created = 0
        self._put_revision = 0
        self.prefix = prefix
        self.movable = movable
        self._value = Signed(node=session.node, since=session.store.clock.wall(), body=body)
        self._turns_count = turns_count
        self._admit = admit
        self._is_guarded = is_guarded
        self._is_brief = is_brief
        self._leaving = Closing()

    @property
    def guards(self) -> tuple[Compare, ...]:
        return (Compare.created(self.key, "=", self._created),)

    async def enter(self, *, is_patient: bool = True) -> tuple[Place, tuple[KeyValue, ...]]:
        """Create the key at the end of the line; gives its place and all keys of the line.

        A lost answer does no harm: the same again finds the key there. Raises `SessionLost`, and what `admit`
        raises; also `TimedOut` and `StoreUnavailable` unless it `is_patient`. A caller that is cancelled or
        fails here must call `leave_later`.
        """
        session = self.session
        put = Put(self.key, self._value.encode(), session.lease)
        everybody = Get(*prefix_range(self.prefix))

        async def ask() -> Outcome:
            self._is_in_doubt, was_in_doubt = True, self._is_in_doubt
            outcome = await session.store.commit(
                [Compare.absent(self.key), Compare.absent(self._left_key)],
                then=[put, everybody],
                otherwise=[everybody],
            )
            self._is_in_doubt = was_in_doubt
            return outcome

        try:
            outcome = await (patiently(ask, session.environment.chance) if is_patient else ask())
        except LeaseLost as gone:
            session.end_lost("the store ended the lease")
            raise SessionLost(f"{self.what}: {gone}") from gone
        items = outcome.items
        place = self.place(items, outcome.revision)
        self._put_revision = place.own.mod_revision
        self._created = place.own.create_revision
        self._begin(self._created)
        if self._is_guarded:
            session.guard.look_after(
                place.own, revision=outcome.revision, on_gone=self.deleted, is_brief=self._is_brief
            )
        try:
            if self._admit is not None:
                self._admit(items)
        except HansaError:
            # First gone, then told: nobody else must be refused because of one who was.
            await self.release()
            raise
        return place, items

    async def wait_turn(self, place: Place) -> None:
        """Wait from a place on until it is this key's turn, and take it, with what is handed on.

        Put it into a block that its loss cancels. A caller that is cancelled or fails here must leave.
        """
        await wait_for_turn(self, place)

    def own(self, epoch: int, *, put_revision: int = 0, handover: Handover | None = None) -> None:
        """For `wait_for_turn`: the turn was taken, at a revision that put the key, with what is handed on."""
        self.epoch, self.handover = epoch, handover
        self._put_revision = put_revision or self._put_revision

    @property
    def state(self) -> bytes:
        """What came along, once it was read. Raises `StoreCorrupt` for what was lost."""
        if self._state_loss is not None:
            # A new one each time: one object that is raised twice would tell of both ways.
            raise StoreCorrupt(str(self._state_loss)) from self._state_loss.__cause__
        return self._state

    async def handed_state(self) -> bytes:
        """What the owner before has handed on; empty if it came here in another way. Waits for the store.

        Raises `StoreCorrupt` when that was too large for the record, and is gone or damaged since.
        """
        handover = self.handover
        if handover is not None and (handover.state or handover.blob) and self._state_loss is None:
            try:
                self._state = self._state or await read_state(self.session, handover)
            except StoreCorrupt as lost:
                logger.warning("%s", lost)
                self._state_loss = lost
        return self.state

    async def finish_handover(self) -> None:
        """Read what was handed on, and say that it was read. However long the store cannot be reached.

        Raises the loss. Until then whoever comes after this owner is given the same state. If that is lost,
        the record says so, it is owned all the same, and `state` raises it.
        """
        if self.handover is not None:
            with suppress(StoreCorrupt):
                await self.handed_state()
            await finish(self, "" if self._state_loss is None else str(self._state_loss))

    async def wanted(self) -> Handover:
        """Wait until somebody asks from outside to move it; gives the record. Raises as `Held.wanted`."""
        self.check()
        return await asked_for(self)

    async def hand_over(
        self,
        to: str | Handover,
        *,
        state: bytes | Callable[[], Awaitable[bytes]] = b"",
        timeout: float = HANDOVER_S,
        reason: str = "",
    ) -> Handover:
        """Give it to a node, with a state. As `Held.hand_over`; a topic's node comes when it is named."""
        self.check()
        if self.giving is not None:
            raise Conflict(f"{self.what} is being handed over to {self.giving.to!r} already")
        self.giving = giving = Giving(self, to, state=state, timeout=timeout, reason=reason)
        return await giving.run()

    def handed_over(self) -> None:
        """For `Giving`: somebody else owns it now."""
        if self._end():
            self.session.guard.let_go(self.key)

    def put_own(self) -> Put:
        """The key once more, as it is."""
        return Put(self.key, self._value.encode(), self.session.lease)

    def puts_of_leaving(self) -> list[Put]:
        """What must be put along when the key is deleted, by this owner or the next.

        A request that was given up may be carried out later than this: it must find that all is over.
        """
        return [Put(self._left_key, b"", self.session.lease)] if self._is_in_doubt else []

    async def mark(self, body: bytes) -> None:
        """Give the key another value. Raises the loss; also `TimedOut` and `StoreUnavailable`."""
        value = replace(self._value, body=body)
        for _ in range(_MARK_TRIES_COUNT):
            outcome = await self.session.store.commit(
                # By the last put too: one that was given up must not come late, over a newer one.
                [*self.guards, Compare.revision(self.key, "=", self._put_revision)],
                then=[Put(self.key, value.encode(), self.session.lease)],
                otherwise=[Get(self.key)],
            )
            if outcome.is_success:
                self._put_revision = outcome.revision
                return
            found = outcome.items
            if not found or found[0].create_revision != self._created:
                self.deleted()
                self.loss.check()
                return
            self._put_revision = found[0].mod_revision
        raise Conflict(f"{self.what}: others write to the key {self.key!r} all the time")

    def leave_later(self) -> None:
        """Delete the key in the background."""
        if self._leave():
            self._delete_later()

    async def _give_back(self, timeout_s: float) -> None:
        """Delete the key. If the store does not answer soon, that goes on in the background. Never raises it.

        A key that was lost is deleted in the background alone: the loss is told first. Cancelling it lets it
        go on in the background too. Who leaves at the same time returns when the first one does.
        """
        await self._leaving.once(lambda: self._leave_line(timeout_s))

    async def _leave_line(self, timeout_s: float) -> None:
        if not self._leave():
            return
        if self._lost_when_leaving is not None:
            self._delete_later()
            return
        try:
            await self._delete(timeout_s)
        except LeaseLost:
            pass  # With the lease the key goes, and no late request can make it anew.
        except BaseException as error:
            self._delete_later()
            if not isinstance(error, TROUBLE):
                raise

    def _leave(self) -> bool:
        """Stand here no more, as of now; says whether there is still a key to delete."""
        if not self._end():
            return False
        self.session.guard.let_go(self.key)
        return self._lost_when_leaving is None or self._is_in_doubt

    def _delete_later(self) -> None:
        # A lease that ends takes the key along.
        if self.session.is_live:
            self.session.spawn(self._delete_patiently(), f"leaves {self.what}")

    async def _delete(self, timeout: float) -> None:
        # Before the store has answered, the name is enough: nobody else makes a key with this lease in it.
        compares = self.guards if self._created else ()
        over = self.puts_of_leaving()
        await self.session.store.commit(
            compares, then=[Delete(self.key), *over], otherwise=over, timeout=timeout
        )
        if compares and not self._is_in_doubt and not self.is_named:
            self.session.numbers.give_back(self.prefix, self._number)

    async def _delete_patiently(self) -> None:
        backoff = patient_backoff(self.session.environment.chance)
        while self.session.is_live:
            try:
                return await self._delete(FAREWELL_STORE_S_MAX)
            except TROUBLE:
                await asyncio.sleep(backoff.next_s())
            except (AlreadyClosed, LeaseLost):
                return  # With the lease the key goes, and no late request can make it anew.

    async def wait_behind(self, place: Place) -> None:
        """Wait until who stands ahead has changed in a way that may make it this key's turn."""
        if self._turns_count > 1 and place.is_next:
            await self._wait_for_any(place)
            return
        # With several turns at once, the one before may also have got its turn, and says so by a put.
        await key_changed(
            self.session.store,
            place.before,
            revision=place.revision,
            chance=self.session.environment.chance,
            is_enough=lambda item: self._turns_count > 1,
        )

    async def _wait_for_any(self, place: Place) -> None:
        session = self.session
        following = Following(session.store, self.prefix, environment=session.environment)
        try:
            async for _ in following:
                here = {(item.key, item.create_revision) for item in following.items.values()}
                if any((item.key, item.create_revision) not in here for item in place.ahead):
                    return
        finally:
            following.close()

    async def look(self) -> Place:
        """Its place in the line now. A store that cannot be reached is waited for."""
        look = partial(self.session.store.scan, self.prefix)
        scan = await patiently(partial(look, keys_only=True), self.session.environment.chance)
        if has_head(scan.items):
            # Rare, and what it says counts.
            scan = await patiently(look, self.session.environment.chance)
        return self.place(scan.items, scan.revision)

    def place(self, items: Iterable[KeyValue], revision: int) -> Place:
        """Its place among these keys. Raises the loss when it stands there no more."""
        place = place_of(self.key, items, revision=revision, turns_count=self._turns_count)
        if place is None or (self._created and place.own.create_revision != self._created):
            self.deleted()
            raise self._error(f"{self.what}: somebody deleted the key {self.key!r}")
        return place

    def _inside(self, who: Hashable, step: int) -> None:
        inside = self.session.inside
        inside[who, self.prefix] += step
        if not inside[who, self.prefix]:
            del inside[who, self.prefix]

    def deleted(self) -> None:
        """The key is gone: lost, unless it was given away, which `Giving` finds out."""
        if not self.is_sealed:
            self._lose(f"somebody deleted the key {self.key!r}")

    def unseal(self) -> None:
        """For `Giving`: the hand-over was withdrawn, and this owner acts again; if its key is still there."""
        self.is_sealed = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Somebody in a line: the session's lease, the epoch, and what is said there, and by whom.

    The epoch is 0 of one who must take its turn before it owns anything, as after a hand-over.
    """

    lease: int
    epoch: int
    signed: Signed

    @classmethod
    def of(cls, items: Iterable[KeyValue]) -> list[Standing]:
        """Everybody in a line, in order. Raises `BadRecord`."""
        items = tuple(items)
        head = head_of(items)
        return [
            cls(lease=item.lease, epoch=epoch_of(item, head), signed=decode_signed(item.value))
            for item in in_order(items)
        ]


class Line(Generic[E]):
    """Where claims are taken in turns: the part that a lock, a semaphore, an election and topics share.

    `turns_count` own at a time. Who had to wait says `inside` when its turn comes, if there is something to
    say. What may be held for a moment only (`is_brief`) is not watched at once. What has a name for
    hand-overs is `movable`.
    """

    def __init__(
        self,
        sessions: Sessions,
        prefix: bytes,
        *,
        what: str,
        error: type[E],
        body: bytes = b"",
        turns_count: int = 1,
        admit: Callable[[tuple[KeyValue, ...]], None] | None = None,
        inside: bytes | None = None,
        is_brief: bool = True,
        movable: Movable | None = None,
    ) -> None:
        self.sessions = sessions
        self.prefix = prefix
        self.what = what
        self._acquired_count = 0
        self._timed_out_count = 0
        self._lost_count = 0
        self._waited_s = 0.0
        self._waited_s_max = 0.0
        self._turns_count = turns_count
        self._inside = inside
        self._claim: Callable[[Session], TakenClaim[E]] = partial(
            TakenClaim,
            prefix=prefix,
            what=what,
            error=error,
            body=body,
            turns_count=turns_count,
            admit=admit,
            is_brief=is_brief,
            movable=movable,
        )

    @property
    def stats(self) -> LineStats:
        return LineStats(
            acquired_count=self._acquired_count,
            timed_out_count=self._timed_out_count,
            lost_count=self._lost_count,
            waited_s=self._waited_s,
            waited_s_max=self._waited_s_max,
        )

    async def acquire(self, timeout: float | None) -> TakenClaim[E]:
        """Wait in line, and own. Leaves the line when it fails, is cancelled, or times out.

        Raises `TimedOut`, the error of the line when somebody takes this one out of it, and `UsageError` in a
        task that would wait for itself. When the session is lost it raises `SessionLost`, or with a keeper
        begins anew on the next one.
        """
        clock = self.sessions.store.clock
        began_s = clock.monotonic()
        while True:
            waited_s = clock.monotonic() - began_s
            session = await self.sessions.live(None if timeout is None else timeout - waited_s)
            if timeout is None:
                self.check_outside(session, asyncio.current_task(), "task")
            claim = self._claim(session)
            try:
                left_s = None if timeout is None else timeout - (clock.monotonic() - began_s)
                async with GuardedBlock(session.loss, claim.loss, timeout=left_s):
                    place, _ = await claim.enter()
                    if not place.is_turn or place.head is not None:
                        await claim.wait_turn(place)
                        await self._finish(claim)
                        if self._inside is not None:
                            # However long the store cannot be reached; cancelling it may leave either value.
                            await patiently(partial(claim.mark, self._inside), session.environment.chance)
                # The store said so a moment ago; the session's clock has the last word.
                session.check()
                return self._owned(claim, clock.monotonic() - began_s)
            except TimeoutError:
                claim.leave_later()
                self._timed_out_count += 1
                raise TimedOut(f"{self.what}: the turn did not come within {timeout} s") from None
            except SessionLost:
                claim.leave_later()
                if session is self.sessions:
                    raise
            except BaseException:
                claim.leave_later()
                raise

    async def try_acquire(self, timeout: float | None = 0.0) -> TakenClaim[E] | None:
        """Own, if the turn comes with entering the line; else None. `timeout` is for a session that lives.

        Raises `TimedOut` and `StoreUnavailable`, `SessionLost`. Cancelling it leaves the line.
        """
        session = await self.sessions.live(timeout)
        claim = self._claim(session)
        try:
            place, _ = await claim.enter(is_patient=False)
            if place.is_turn and place.head is not None:
                async with GuardedBlock(session.loss, claim.loss, timeout=STORE_TIMEOUT_S):
                    await claim.wait_turn(place)
                    await self._finish(claim)
            session.check()
        except TimeoutError:
            claim.leave_later()
            raise TimedOut(f"{self.what}: the store did not answer within {STORE_TIMEOUT_S:g} s") from None
        except BaseException:
            claim.leave_later()
            raise
        if not place.is_turn:
            await claim.release()
            return None
        return self._owned(claim, 0.0)

    async def _finish(self, claim: TakenClaim[E]) -> None:
        if claim.movable is not None and claim.movable.is_plain:
            await claim.finish_handover()
        else:
            # Who says by itself when it is done has it at hand, too.
            with suppress(StoreCorrupt):
                await claim.handed_state()

    async def standing(self) -> list[Standing]:
        """Everybody in the line, in order. Raises what the store raises."""
        return Standing.of((await self.sessions.store.scan(self.prefix)).items)

    def _owned(self, claim: TakenClaim[E], waited_s: float) -> TakenClaim[E]:
        self._acquired_count += 1
        self._waited_s += waited_s
        self._waited_s_max = max(self._waited_s_max, waited_s)
        claim.loss.call_back(self._lost)
        return claim

    def _lost(self) -> None:
        self._lost_count += 1

    def check_outside(self, session: Session, who: Hashable, kind: str) -> None:
        """Raises `UsageError` for a task or a thread that has all the turns there are, in its blocks."""
        if session.inside[who, self.prefix] >= self._turns_count:
            raise UsageError(f"{self.what}: this {kind} is inside already, and might wait for itself")


async def give_back_all(claims: Iterable[TakenClaim[Any]]) -> None:
    """Give back many claims, so many in a transaction. What the store does not hear soon, it hears later."""
    left = [claim for claim in claims if claim._leave()]
    try:
        while left:
            # Nobody else makes a key with this lease in it: here the name is enough.
            deletes = [Delete(claim.key) for claim in left[:STORE_TXN_COUNT_MAX]]
            await left[0].session.store.commit((), deletes, timeout=FAREWELL_STORE_S_MAX)
            del left[: len(deletes)]
    except (*TROUBLE, LeaseLost):
        pass
    finally:
        for claim in left:
            claim._delete_later()


async def mark_all(session: Session, items: Sequence[KeyValue], body: bytes) -> Outcome:
    """Give the keys of several owners another body, in one transaction: if none of them has changed."""
    return await session.store.commit(
        [Compare.revision(item.key, "=", item.mod_revision) for item in items],
        then=[
            Put(item.key, replace(decode_signed(item.value), body=body).encode(), item.lease)
            for item in items
        ],
    )
