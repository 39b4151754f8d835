"""Something owned through a key in a line: until it is given back, or lost.

It must: leave the line however acquiring ends, unless it owns; ask the session's clock last of all, after the
store's yes, and after each renewal; count a loss once, and none after giving back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from hansa.coordination.entry import Entry
from hansa.coordination.line import LineTally
from hansa.coordination.loss import GuardedBlock, again
from hansa.errors import Fenced, HansaError, NotHeld, SessionLost, TimedOut, UsageError
from hansa.store.values import Compare, KeyValue

E = TypeVar("E", bound=Fenced)

# Given all keys of the line; raises when this one should not stand there.
Admission = Callable[[tuple[KeyValue, ...]], None]


class Ownership(Generic[E]):
    """What holds and leaderships have in common. Made by `acquired`."""

    def __init__(self, entry: Entry[E], tally: LineTally) -> None:
        self._entry = entry
        self._blocks: dict[asyncio.Task[object], GuardedBlock[E]] = {}
        entry.loss.call_back(tally.lost)

    def __repr__(self) -> str:
        state = "given back" if self._entry.has_left else "owned" if self._entry.is_standing else "lost"
        return f"<{type(self).__name__} of {self._entry.what}, {self._entry.created}, {state}>"

    @property
    def guard(self) -> Compare:
        """Holds as long as this owner owns: put it into your own `commit` in the same store."""
        return self._entry.compare()

    def check(self) -> None:
        """Raise the loss, with its reason, or `NotHeld` once given back. Any thread may ask."""
        if (lost := self._entry.as_lost()) is not None:
            raise again(lost)
        if self._entry.has_left:
            raise NotHeld(f"{self._entry.what} was given back")

    async def refresh(self) -> None:
        """Renew the session's lease now. Raises the loss; `TimedOut` and `StoreUnavailable` lose nothing."""
        self.check()
        try:
            await self._entry.session.renew()
        except SessionLost:
            self.check()
            raise
        self.check()

    async def lost(self) -> E:
        """Wait until it is lost; gives the reason. What was given back is never lost."""
        return await self._entry.loss.wait()

    async def __aenter__(self) -> Self:
        self.check()
        task = asyncio.current_task()
        if task is None or task in self._blocks:
            raise UsageError(f"{self._entry.what}: a task enters its block once")
        block = GuardedBlock(self._entry.loss)
        await block.__aenter__()
        self._blocks[task] = block
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        if task is None or task not in self._blocks:
            raise UsageError(f"{self._entry.what}: a block is left by the task that entered it")
        lost = None if self._entry.has_left else self._entry.as_lost()
        try:
            await self._blocks.pop(task).__aexit__(kind, error, trace)
        finally:
            await self._give_back(error)
        if kind is None and lost is not None:
            raise again(lost)

    async def _give_back(self, error: BaseException | None = None) -> bool:
        """Leave the line, with the error that is on its way to the caller; says whether it was owned."""
        # No error for what was lost before: in a `finally` it would take the place of a cancellation.
        was_owned = self._entry.is_standing
        await self._entry.leave(self._entry.session.farewell_s(error))
        return was_owned


async def acquired(
    entry: Entry[E],
    tally: LineTally,
    *,
    timeout: float | None,
    admit: Admission | None = None,
    promote: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Enter a line and wait for the turn. Leaves the line when it fails, is cancelled, or times out.

    `promote` is awaited after the turn came to one who had to wait for it. Raises `TimedOut`, `SessionLost`,
    and the entry's loss when somebody takes it out of the line.
    """
    session = entry.session
    session.check()
    began_s = session.store.clock.monotonic()
    try:
        async with asyncio.timeout(timeout), GuardedBlock(session.loss):
            place, items = await entry.enter()
            if admit is not None:
                await _admitted(entry, admit, items)
            await entry.wait_turn(place)
            if promote is not None and not place.is_turn:
                await promote()
        # The store said so a moment ago; the session's clock has the last word.
        session.check()
    except TimeoutError:
        entry.leave_later()
        tally.timed_out()
        raise TimedOut(f"{entry.what}: the turn did not come within {timeout} s") from None
    except BaseException:
        entry.leave_later()
        raise
    tally.acquired(session.store.clock.monotonic() - began_s)


async def acquired_at_once(entry: Entry[E], tally: LineTally, *, admit: Admission | None = None) -> bool:
    """Enter a line only if the turn comes with it; says whether it did.

    Raises `TimedOut` and `StoreUnavailable`, `SessionLost`. Cancelling it leaves the line.
    """
    entry.session.check()
    try:
        place, items = await entry.enter(is_patient=False)
        if admit is not None:
            await _admitted(entry, admit, items)
        entry.session.check()
    except BaseException:
        entry.leave_later()
        raise
    if not place.is_turn:
        await entry.leave()
        return False
    tally.acquired(0.0)
    return True


async def _admitted(entry: Entry[E], admit: Admission, items: tuple[KeyValue, ...]) -> None:
    try:
        admit(items)
    except HansaError:
        # First gone, then told: nobody else must be refused because of one who was.
        await entry.leave()
        raise
