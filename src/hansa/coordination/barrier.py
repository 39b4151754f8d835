"""A barrier: nobody passes until all parties have come; then all pass, and it is closed again.

Each party puts a key that says that it waits. A party that sees enough waiting keys opens the barrier: one
transaction turns the oldest of them to "inside", if each of them is unchanged. So a party that died before is
not counted, however late that is noticed; no party is let in twice; and a party that comes for the next round
while slow ones are still leaving has a key of its own that nobody confuses with theirs. Among any set of
waiting parties the youngest saw all others when it came: so if they are enough, one that lives tries to open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from hansa.coordination.claim import TakenClaim, mark_all
from hansa.coordination.following import TROUBLE, key_changed, patient_backoff
from hansa.coordination.line import Permit, decode_permit, waiting_of
from hansa.coordination.session import Session, Sessions
from hansa.errors import BadArgument, LockLost, TimedOut
from hansa.limits import BARRIER_PARTIES_MAX
from hansa.runtime.tasks import GuardedBlock
from hansa.store.values import KeyValue

_GONE: Final = 0


class Barrier:
    """A meeting of `parties` processes, again and again. All who use a name at a time give one number."""

    def __init__(self, session: Sessions, name: str, parties: int) -> None:
        if not 1 <= parties <= BARRIER_PARTIES_MAX:
            raise BadArgument(f"barrier {name!r}: 1 to {BARRIER_PARTIES_MAX} parties, not {parties}")
        self.name = name
        self.parties = parties
        self._sessions = session
        self._prefix = session.keys.barrier(name)

    def __repr__(self) -> str:
        return f"<Barrier {self.name!r} for {self.parties} of {self._sessions!r}>"

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have come. Returns the generation: one number for all that passed together.

        The generation grows from one opening to the next. Raises `TimedOut` and `SessionLost`, and
        `BadArgument` for another number of parties than the others'. A party that gives up, or is cancelled,
        is no longer counted once the store has heard of it: the others may pass with it before that.
        """
        clock = self._sessions.store.clock
        began_s = clock.monotonic()
        session = await self._sessions.live(timeout)
        left_s = None if timeout is None else timeout - (clock.monotonic() - began_s)
        try:
            async with GuardedBlock(session.loss, timeout=left_s):
                generation = _GONE
                while generation == _GONE:
                    generation = await self._come(session)
        except TimeoutError:
            raise TimedOut(f"barrier {self.name!r} did not open within {timeout} s") from None
        session.check()
        return generation

    async def waiting_count(self) -> int:
        """How many parties wait now. Raises what the store raises."""
        scan = await self._sessions.store.scan(self._prefix)
        return len(waiting_of(scan.items))

    async def _come(self, session: Session) -> int:
        """Come once; returns the generation, or `_GONE` when somebody deleted the key."""
        claim = TakenClaim(
            session,
            self._prefix,
            what=f"barrier {self.name!r}",
            error=LockLost,
            body=Permit(count=self.parties).encode(),
            admit=self._admit,
            is_guarded=False,
        )
        try:
            place, items = await claim.enter()
            return await self._pass(session, claim.key, place.revision, items)
        finally:
            claim.leave_later()

    async def _pass(self, session: Session, key: bytes, revision: int, items: Sequence[KeyValue]) -> int:
        backoff = patient_backoff(session.environment.chance)
        inside = Permit(count=self.parties, is_inside=True).encode()
        while True:
            own = next((item for item in items if item.key == key), None)
            if own is None:
                return _GONE
            if decode_permit(own.value).is_inside:
                return own.mod_revision
            waiting = waiting_of(items)
            if len(waiting) < self.parties:
                opened = await key_changed(
                    session.store,
                    own,
                    revision=revision,
                    chance=session.environment.chance,
                    is_enough=lambda item: decode_permit(item.value).is_inside,
                )
                return _GONE if opened is None else opened.mod_revision
            try:
                await mark_all(session, waiting[: self.parties], inside)
                scan = await session.store.scan(self._prefix)
                revision, items = scan.revision, scan.items
            except TROUBLE:
                # It may have opened: the same request again finds the keys changed, and reads their new
                # state.
                await asyncio.sleep(backoff.next_s())

    def _admit(self, items: Sequence[KeyValue]) -> None:
        for parties in {decode_permit(item.value).count for item in items}:
            if parties != self.parties:
                raise BadArgument(
                    f"barrier {self.name!r} is used by {parties} parties, here by {self.parties}"
                )
