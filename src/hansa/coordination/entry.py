"""One place in a line: a key on a session's lease, from entering to leaving, and all that may befall it.

It must: ask again until the store has answered, and remember that an unanswered request may still be carried
out; from then on hear of the session's loss and watch its own key; look at the line again after each change
ahead of it; end the whole session when the store has its lease no more; and, leaving, hear of neither any
longer and have the key deleted, in the background if the store does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from hansa.coordination.following import TROUBLE, Following, key_changed, patient_backoff
from hansa.coordination.line import Place, place_of
from hansa.coordination.loss import GuardedBlock, Loss
from hansa.coordination.session import Session
from hansa.errors import AlreadyClosed, Conflict, Fenced, LeaseLost, SessionLost, invariant
from hansa.limits import FAREWELL_STORE_S_MAX
from hansa.runtime.tasks import Closing
from hansa.store.values import (
    Compare,
    Delete,
    Get,
    GetResult,
    KeyValue,
    Put,
    prefix_range,
)

E = TypeVar("E", bound=Fenced)

# A put of one's own that was given up may come in between, once each.
_MARK_TRIES_COUNT: Final = 8


class Entry(Generic[E]):
    """A key in a line. `what` names it in errors, which are of the type `error`.

    Who enters it guarded is told by `loss` when somebody deletes the key; the session's end is told always.
    """

    def __init__(
        self,
        session: Session,
        prefix: bytes,
        *,
        what: str,
        error: type[E],
        value: bytes,
        turns_count: int = 1,
        is_guarded: bool = True,
    ) -> None:
        self.session = session
        self.what = what
        number = session.next_number()
        self.key = prefix + b"%016x-%d" % (session.lease, number)
        self._left_key = session.keys.left(session.lease, number)
        # Whether a request for the key may still be under way, to be carried out who knows when.
        self._is_in_doubt = False
        # The revision of the key's last put, as far as the store has told.
        self._put_revision = 0
        # The revision that created the key; 0 until the store has said so.
        self.created = 0
        self.loss: Loss[E] = Loss()
        self._prefix = prefix
        self._error = error
        self._value = value
        self._turns_count = turns_count
        self._is_guarded = is_guarded
        self._has_left = False
        self._lost_when_leaving: E | None = None
        self._guard: asyncio.Task[None] | None = None
        self._leaving = Closing()

    @property
    def is_standing(self) -> bool:
        """Whether the key is surely there. Any thread may ask, at any moment."""
        return bool(self.created and not self._has_left and self.loss.error is None and self.session.is_live)

    @property
    def has_left(self) -> bool:
        return self._has_left

    def as_lost(self) -> E | None:
        """The error that says why it stands no more; None while it does, and when it left before.

        Any thread may ask, at any moment.
        """
        if self.loss.error is not None:
            return self.loss.error
        if self._has_left or not self.created or self.session.is_live:
            return self._lost_when_leaving
        # The clock knows it already; the event loop will hear of it.
        return self._as_session_lost()

    async def enter(self, *, is_patient: bool = True) -> tuple[Place, tuple[KeyValue, ...]]:
        """Create the key at the end of the line; gives its place and all keys of the line.

        A lost answer does no harm: the same again finds the key there. Raises `SessionLost`; also `TimedOut`
        and `StoreUnavailable` unless it `is_patient`. Who is cancelled or fails here calls `leave_later`.
        """
        session, store = self.session, self.session.store
        everybody = Get(*prefix_range(self._prefix))
        backoff = patient_backoff(session.chance)
        while True:
            try:
                self._is_in_doubt, was_in_doubt = True, self._is_in_doubt
                outcome = await store.commit(
                    [Compare.absent(self.key), Compare.absent(self._left_key)],
                    then=[Put(self.key, self._value, session.lease), everybody],
                    otherwise=[everybody],
                )
                self._is_in_doubt = was_in_doubt
                break
            except LeaseLost as gone:
                session.end_lost("the store ended the lease")
                raise SessionLost(f"{self.what}: {gone}") from gone
            except TROUBLE:
                if not is_patient:
                    raise
                await asyncio.sleep(backoff.next_s())
        found = outcome.results[-1]
        invariant(isinstance(found, GetResult), f"{self.what}: a transaction left out what was read in it")
        items = found.items if isinstance(found, GetResult) else ()
        place = self._place(items, outcome.revision)
        self.created = self._put_revision = place.created
        session.loss.call_back(self._session_lost)
        if self._is_guarded:
            self._guard = session.spawn(self._stand_guard(outcome.revision), f"guards {self.what}")
        return place, items

    async def wait_turn(self, place: Place) -> None:
        """Wait from a place on until it is this key's turn. Raises the loss, when it comes first."""
        async with GuardedBlock(self.loss):
            while not place.is_turn:
                await self._wait_behind(place)
                place = await self._look()

    async def mark(self, value: bytes) -> None:
        """Give the key another value. Raises the loss; also `TimedOut` and `StoreUnavailable`."""
        for _ in range(_MARK_TRIES_COUNT):
            outcome = await self.session.store.commit(
                # By the last put too: one that was given up must not come late, over a newer one.
                [self.compare(), Compare.revision(self.key, "=", self._put_revision)],
                then=[Put(self.key, value, self.session.lease)],
                otherwise=[Get(self.key)],
            )
            if outcome.is_success:
                self._put_revision = outcome.revision
                return
            found = [
                each for result in outcome.results if isinstance(result, GetResult) for each in result.items
            ]
            if not found or found[0].create_revision != self.created:
                self._deleted()
                self.loss.check()
                return
            self._put_revision = found[0].mod_revision
        raise Conflict(f"{self.what}: others write to the key {self.key!r} all the time")

    async def mark_patiently(self, value: bytes) -> None:
        """The same, however long the store cannot be reached. Cancelling it may leave either value."""
        backoff = patient_backoff(self.session.chance)
        while True:
            try:
                return await self.mark(value)
            except TROUBLE:
                await asyncio.sleep(backoff.next_s())

    def compare(self) -> Compare:
        """Holds as long as the key stands: put it into a transaction of your own."""
        return Compare.created(self.key, "=", self.created)

    async def leave(self, timeout_s: float = FAREWELL_STORE_S_MAX) -> None:
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

    def leave_later(self) -> None:
        """Delete the key in the background."""
        if self._leave():
            self._delete_later()

    def _leave(self) -> bool:
        """Stand here no more, as of now; says whether there is still a key to delete."""
        if self._has_left:
            return False
        self._lost_when_leaving = self.as_lost()
        self._has_left = True
        self.session.loss.forget(self._session_lost)
        if self._guard is not None:
            self._guard.cancel()
        return self._lost_when_leaving is None or self._is_in_doubt

    def _delete_later(self) -> None:
        # A lease that ends takes the key along.
        if self.session.is_live:
            self.session.spawn(self._delete_patiently(), f"leaves {self.what}")

    async def _delete(self, timeout: float) -> None:
        # Before the store has answered, the name is enough: nobody else makes a key with this lease in it.
        compares = [self.compare()] if self.created else []
        # A request that was given up may be carried out later than this: it must find that all is over.
        over = [Put(self._left_key, b"", self.session.lease)] if self._is_in_doubt else []
        await self.session.store.commit(
            compares, then=[Delete(self.key), *over], otherwise=over, timeout=timeout
        )

    async def _delete_patiently(self) -> None:
        backoff = patient_backoff(self.session.chance)
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
            start_revision=place.revision + 1,
            chance=self.session.chance,
            is_enough=lambda item: self._turns_count > 1,
        )

    async def _wait_for_any(self, place: Place) -> None:
        following = Following(self.session.store, self._prefix, chance=self.session.chance)
        try:
            async for _ in following:
                if any(
                    found is None or found.create_revision != item.create_revision
                    for item in place.ahead
                    for found in (following.items.get(item.key),)
                ):
                    return
        finally:
            following.close()

    async def _look(self) -> Place:
        backoff = patient_backoff(self.session.chance)
        while True:
            try:
                scan = await self.session.store.scan(self._prefix, keys_only=True)
                return self._place(scan.items, scan.revision)
            except TROUBLE:
                await asyncio.sleep(backoff.next_s())

    def _place(self, items: Iterable[KeyValue], revision: int) -> Place:
        place = place_of(self.key, items, revision=revision, turns_count=self._turns_count)
        if place is None or (self.created and place.created != self.created):
            self._deleted()
            raise self._error(f"{self.what}: somebody deleted the key {self.key!r}")
        return place

    async def _stand_guard(self, revision: int) -> None:
        own = KeyValue(
            key=self.key, value=b"", create_revision=self.created, mod_revision=revision, version=1
        )
        try:
            await key_changed(
                self.session.store, own, start_revision=revision + 1, chance=self.session.chance
            )
        except AlreadyClosed:
            return  # Nothing renews the lease any more: the session's clock tells.
        self._deleted()

    def _deleted(self) -> None:
        if not self.session.is_live:
            self._session_lost()
        else:
            self.loss.set(self._error(f"{self.what} is lost: somebody deleted the key {self.key!r}"))

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
