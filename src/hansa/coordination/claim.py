"""Something owned, from taking it to losing it or giving it back: one mechanism for all that is owned.

A claim knows at once when it is lost (`loss`), cancels the bodies of its blocks, gives comparisons for its
owner's own transactions (`guards`), and has an `epoch` that grows from owner to owner. There are two kinds:

- *Taken* (`TakenClaim`, out of a `Line`): a key of its own on a session's lease, in a line of such keys. Its
  epoch is the revision that created the key. Locks, semaphores, elections, barriers and topics are taken.
- *Placed* (`PlacedClaim`, out of `PlacedClaims`): an entry that a leader writes for a node, its session's
  lease and an epoch. The guards of the owner compare the entry, and the lease of the node's record. So a node
  with 10,000 entries has one lease and one leased key, and loses all at one moment. A leader places entries
  anew whose lease is not that of the record.

A taken claim must: ask again until the store has answered, and remember that an unanswered request may still
be carried out; from then on hear of the session's loss, and have its key guarded; look at the line again
after each change ahead of it; end the whole session when the store has its lease no more; leave the line
however acquiring ends, unless it owns; ask the session's clock last of all, after the store's yes; and,
leaving, hear of nothing any longer and have the key deleted, in the background if the store does not answer.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from hansa.coordination.following import TROUBLE, Following, changes, key_changed, patient_backoff, patiently
from hansa.coordination.line import LineStats, Place, Signed, decode_signed, in_order, place_of
from hansa.coordination.session import Hanging, Session, SessionKeeper, Sessions
from hansa.errors import (
    AlreadyClosed,
    BadRecord,
    Conflict,
    Fenced,
    HansaError,
    LeaseLost,
    NotHeld,
    SessionLost,
    TimedOut,
    UsageError,
)
from hansa.limits import FAREWELL_STORE_S_MAX, STORE_TXN_COUNT_MAX
from hansa.runtime.tasks import Closing, GuardedBlock, Loss, again
from hansa.store.values import Compare, Delete, Get, KeyValue, Outcome, Put, prefix_range

E = TypeVar("E", bound=Fenced)

# A put of one's own that was given up may come in between, once each.
_MARK_TRIES_COUNT: Final = 8


# ---- what all claims have in common -------------------------------------------------------------------


class Claim(Generic[E]):
    """What is owned through a session. `what` names it in errors, which are of the type `error`."""

    def __init__(self, session: Session, *, what: str, error: type[E]) -> None:
        self.session = session
        self.what = what
        self.epoch = 0
        """Grows from owner to owner; 0 while it is not known."""
        self.loss: Loss[E] = Loss()
        self._error = error
        self.has_left = False
        """Whether it was given back."""
        self._lost_when_leaving: E | None = None
        self._blocks: dict[asyncio.Task[object], GuardedBlock] = {}

    def __repr__(self) -> str:
        state = "given back" if self.has_left else "owned" if self.is_standing else "lost"
        return f"<{type(self).__name__} of {self.what}, {self.epoch}, {state}>"

    @property
    def guards(self) -> tuple[Compare, ...]:
        """They hold as long as it is owned: put them into your own `commit` in the same store."""
        raise NotImplementedError

    @property
    def is_standing(self) -> bool:
        """Whether it is surely owned. Any thread may ask, at any moment."""
        return bool(self.epoch and not self.has_left and self.loss.error is None and self.session.is_live)

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
        """Raise the loss, with its reason, or `NotHeld` once given back. Any thread may ask."""
        if (lost := self.as_lost()) is not None:
            raise again(lost)
        if self.has_left:
            raise NotHeld(f"{self.what} was given back")

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


class Held(Generic[E]):
    """A claim under the name that its users know: what a hold and a leadership have in common."""

    def __init__(self, name: str, claim: TakenClaim[E]) -> None:
        self.name = name
        self._claim = claim

    def __repr__(self) -> str:
        return repr(self._claim).replace(type(self._claim).__name__, type(self).__name__, 1)

    @property
    def guard(self) -> Compare:
        """Holds as long as this owner owns: put it into your own `commit` in the same store."""
        return self._claim.guards[0]

    def check(self) -> None:
        """Raise the loss, with its reason, or `NotHeld` once given back. Any thread may ask.

        It asks nobody. The session's end it knows at any moment; that somebody deleted the key, as soon as
        the store has told: it is asked when the key is 0.05 s old, for all that happened to it.
        """
        self._claim.check()

    async def refresh(self) -> None:
        """Renew the session's lease now. Raises the loss; `TimedOut` and `StoreUnavailable` lose nothing."""
        await self._claim.refresh()

    async def lost(self) -> E:
        """Wait until it is lost; gives the reason. What was given back is never lost."""
        return await self._claim.loss.wait()

    async def __aenter__(self) -> Self:
        await self._claim.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._claim.__aexit__(kind, error, trace)


# ---- what is taken, in a line -------------------------------------------------------------------------


class TakenClaim(Claim[E]):
    """A key in a line, on a session's lease, from entering to leaving.

    One that is guarded is told by `loss` when somebody deletes the key; the session's end is told always.
    `admit` is given all keys of the line, and raises when this owner should not stand there.
    """

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
    ) -> None:
        super().__init__(session, what=what, error=error)
        number = next(session.numbers)
        self.key = prefix + b"%016x-%d" % (session.lease, number)
        self._left_key = session.keys.left(session.lease, number)
        # Whether a request for the key may still be under way, to be carried out who knows when.
        self._is_in_doubt = False
        # The revision of the key's last put, as far as the store has told.
        self._put_revision = 0
        self._prefix = prefix
        self._value = Signed(node=session.node, since=session.store.clock.wall(), body=body)
        self._turns_count = turns_count
        self._admit = admit
        self._is_guarded = is_guarded
        self._is_brief = is_brief
        self._leaving = Closing()

    @property
    def guards(self) -> tuple[Compare, ...]:
        return (Compare.created(self.key, "=", self.epoch),)

    async def enter(self, *, is_patient: bool = True) -> tuple[Place, tuple[KeyValue, ...]]:
        """Create the key at the end of the line; gives its place and all keys of the line.

        A lost answer does no harm: the same again finds the key there. Raises `SessionLost`, and what `admit`
        raises; also `TimedOut` and `StoreUnavailable` unless it `is_patient`. A caller that is cancelled or
        fails here must call `leave_later`.
        """
        session = self.session
        put = Put(self.key, self._value.encode(), session.lease)
        everybody = Get(*prefix_range(self._prefix))

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
        place = self._place(items, outcome.revision)
        self._put_revision = place.own.mod_revision
        self._begin(place.own.create_revision)
        if self._is_guarded:
            session.guard.look_after(
                place.own, revision=outcome.revision, on_gone=self._deleted, is_brief=self._is_brief
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
        """Wait from a place on until it is this key's turn. Put it into a block that its loss cancels."""
        while not place.is_turn:
            await self._wait_behind(place)
            place = await self._look()

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
            if not found or found[0].create_revision != self.epoch:
                self._deleted()
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
        compares = self.guards if self.epoch else ()
        # A request that was given up may be carried out later than this: it must find that all is over.
        over = [Put(self._left_key, b"", self.session.lease)] if self._is_in_doubt else []
        await self.session.store.commit(
            compares, then=[Delete(self.key), *over], otherwise=over, timeout=timeout
        )

    async def _delete_patiently(self) -> None:
        backoff = patient_backoff(self.session.environment.chance)
        while self.session.is_live:
            try:
                return await self._delete(FAREWELL_STORE_S_MAX)
            except TROUBLE:
                await asyncio.sleep(backoff.next_s())
            except (AlreadyClosed, LeaseLost):
                return  # With the lease the key goes, and no late request can make it anew.

    async def _wait_behind(self, place: Place) -> None:
        if self._turns_count > 1 and place.is_next:
            await self._wait_for_any(place)
            return
        # With several turns at once, the one before may also have got its turn, and says so by a put.
        await key_changed(
            self.session.store,
            place.ahead[-1],
            revision=place.revision,
            chance=self.session.environment.chance,
            is_enough=lambda item: self._turns_count > 1,
        )

    async def _wait_for_any(self, place: Place) -> None:
        session = self.session
        following = Following(session.store, self._prefix, environment=session.environment)
        try:
            async for _ in following:
                here = {(item.key, item.create_revision) for item in following.items.values()}
                if any((item.key, item.create_revision) not in here for item in place.ahead):
                    return
        finally:
            following.close()

    async def _look(self) -> Place:
        look = partial(self.session.store.scan, self._prefix, keys_only=True)
        scan = await patiently(look, self.session.environment.chance)
        return self._place(scan.items, scan.revision)

    def _place(self, items: Iterable[KeyValue], revision: int) -> Place:
        place = place_of(self.key, items, revision=revision, turns_count=self._turns_count)
        if place is None or (self.epoch and place.own.create_revision != self.epoch):
            self._deleted()
            raise self._error(f"{self.what}: somebody deleted the key {self.key!r}")
        return place

    def _inside(self, who: Hashable, step: int) -> None:
        inside = self.session.inside
        inside[who, self._prefix] += step
        if not inside[who, self._prefix]:
            del inside[who, self._prefix]

    def _deleted(self) -> None:
        self._lose(f"somebody deleted the key {self.key!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Somebody in a line: the session's lease, the epoch, and what is said there, and by whom."""

    lease: int
    epoch: int
    signed: Signed

    @classmethod
    def of(cls, items: Iterable[KeyValue]) -> list[Standing]:
        """Everybody in a line, in order."""
        return [
            cls(lease=item.lease, epoch=item.create_revision, signed=decode_signed(item.value))
            for item in in_order(items)
        ]


class Line(Generic[E]):
    """Where claims are taken in turns: the part that a lock, a semaphore, an election and topics share.

    `turns_count` own at a time. Who had to wait says `inside` when its turn comes, if there is something to
    say. What may be held for a moment only (`is_brief`) is not watched at once.
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
    ) -> None:
        self.sessions = sessions
        self.prefix = prefix
        self.what = what
        self.stats = LineStats()
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
                    if not place.is_turn:
                        await claim.wait_turn(place)
                        if self._inside is not None:
                            # However long the store cannot be reached; cancelling it may leave either value.
                            await patiently(partial(claim.mark, self._inside), session.environment.chance)
                # The store said so a moment ago; the session's clock has the last word.
                session.check()
                return self._owned(claim, clock.monotonic() - began_s)
            except TimeoutError:
                claim.leave_later()
                self.stats = replace(self.stats, timed_out_count=self.stats.timed_out_count + 1)
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
            session.check()
        except BaseException:
            claim.leave_later()
            raise
        if not place.is_turn:
            await claim.release()
            return None
        return self._owned(claim, 0.0)

    async def standing(self) -> list[Standing]:
        """Everybody in the line, in order. Raises what the store raises."""
        return Standing.of((await self.sessions.store.scan(self.prefix)).items)

    def _owned(self, claim: TakenClaim[E], waited_s: float) -> TakenClaim[E]:
        self.stats = replace(
            self.stats,
            acquired_count=self.stats.acquired_count + 1,
            waited_s=self.stats.waited_s + waited_s,
            waited_s_max=max(self.stats.waited_s_max, waited_s),
        )
        claim.loss.call_back(self._lost)
        return claim

    def _lost(self) -> None:
        self.stats = replace(self.stats, lost_count=self.stats.lost_count + 1)

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


# ---- what is placed, by a leader ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """What a leader writes: who owns an entry, on which lease, in which epoch. The rest is the user's own.

    A leader writes over what it has read, compares its own leadership, and takes a number for the epoch that
    is higher than the revision it has read: so epochs grow from owner to owner, also when a store goes back.
    """

    node: str
    lease: int
    epoch: int
    body: bytes = b""

    def encode(self) -> bytes:
        """A line of JSON, then the body."""
        head = {"node": self.node, "lease": self.lease, "epoch": self.epoch}
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def decode(cls, value: bytes) -> Placement:
        """Raises `BadRecord`."""
        head, _, body = value.partition(b"\n")
        with suppress(ValueError, RecursionError):
            match json.loads(head):
                case {"node": str(node), "lease": int(lease), "epoch": int(epoch)}:
                    return cls(node=node, lease=lease, epoch=epoch, body=body)
        raise BadRecord(f"an entry that a leader placed cannot be {value[:40]!r}")


class PlacedClaim(Claim[Fenced]):
    """An entry that a leader has placed on a session of this node. Made by `PlacedClaims`."""

    def __init__(self, session: Session, item: KeyValue, placement: Placement) -> None:
        super().__init__(session, what=f"entry {item.key!r}", error=Fenced)
        self.key = item.key
        self.placement = placement
        self._revision = item.mod_revision
        self._record = Compare.lease(session.keys.node(placement.node), "=", session.lease)
        self._begin(placement.epoch)

    @property
    def guards(self) -> tuple[Compare, ...]:
        return self._record, Compare.revision(self.key, "=", self._revision)

    def hear(self, item: KeyValue, placement: Placement) -> None:
        """The leader has written the entry again, for the same owner in the same epoch."""
        self.placement, self._revision = placement, item.mod_revision

    def drop(self, reason: str) -> None:
        """The entry is another one's, or gone: lost, unless it was given back before."""
        if not self.has_left:
            self._lose(reason)
            self.session.loss.forget(self._session_lost)

    async def _give_back(self, timeout_s: float) -> None:
        """Own it no more. The entry is its leader's to write: tell the leader."""
        self._end()


class PlacedClaims(Hanging):
    """What leaders place below a prefix on one node's present session. `on_claim` is given each claim.

    An entry that names another lease is none of this session's, also if it names this node. A session's loss
    loses all at once.
    """

    def __init__(
        self, keeper: SessionKeeper, node: str, prefix: bytes, *, on_claim: Callable[[PlacedClaim], None]
    ) -> None:
        self._keeper = keeper
        self._node = node
        self._on_claim = on_claim
        self._following = Following(keeper.store, prefix, environment=keeper.environment)
        self._claims: dict[bytes, PlacedClaim] = {}
        self.bad_records_count = 0

    @property
    def claims(self) -> Mapping[bytes, PlacedClaim]:
        """What is owned now, by the entry's key."""
        return {key: claim for key, claim in self._claims.items() if claim.is_standing}

    async def run(self) -> None:
        """Follow the entries until cancelled: then nothing is owned any more. Raises `AlreadyClosed`."""
        self._keeper.hang_on(self)
        try:
            async for news in self._following:
                puts, deletes = changes(news)
                for item in deletes:
                    self._drop(item.key, "its entry was deleted")
                for item in puts:
                    self._hear(item)
        finally:
            self._keeper.let_go(self)
            self._following.close()
            for key in list(self._claims):
                self._drop(key, "nobody follows its entry any more")

    def session_lost(self, lost: SessionLost) -> None:
        """All claims have heard of it by themselves. On the next one a leader places anew."""
        self._claims.clear()

    def _hear(self, item: KeyValue) -> None:
        """The entry is this now."""
        session, claim = self._keeper.session, self._claims.get(item.key)
        try:
            placement = Placement.decode(item.value)
        except BadRecord:
            self.bad_records_count += 1
            self._drop(item.key, "its entry cannot be read")
            return
        is_mine = session is not None and (placement.node, placement.lease) == (self._node, session.lease)
        if claim is not None and claim.is_standing and is_mine and claim.epoch == placement.epoch:
            claim.hear(item, placement)
            return
        self._drop(item.key, f"its entry was placed on {placement.node!r} in epoch {placement.epoch}")
        if session is not None and is_mine:
            claim = self._claims[item.key] = PlacedClaim(session, item, placement)
            self._on_claim(claim)

    def _drop(self, key: bytes, reason: str) -> None:
        if (claim := self._claims.pop(key, None)) is not None:
            claim.drop(reason)
