"""A semaphore: so many hold it at a time, in the order in which they came."""

from __future__ import annotations

from dataclasses import replace
from types import TracebackType

from hansa.coordination.line_stats import LineStats, LineTally
from hansa.coordination.over_entry import Entry
from hansa.coordination.over_lock import Hold, HoldBlocks, HolderInfo, line_of
from hansa.coordination.over_ownership import acquired, acquired_at_once
from hansa.coordination.over_session import Session
from hansa.coordination.permit import Permit, decode_permit
from hansa.errors import BadArgument, LockLost
from hansa.limits import SEMAPHORE_LIMIT_MAX
from hansa.store.values import KeyValue


class Semaphore:
    """Up to `limit` hold it. All who use a name at a time give the same limit, else `BadArgument`.

    `async with semaphore as hold:` cancels its body when the hold is lost, and raises `LockLost`.
    """

    def __init__(self, session: Session, name: str, limit: int, *, note: bytes = b"") -> None:
        if not 1 <= limit <= SEMAPHORE_LIMIT_MAX:
            raise BadArgument(f"semaphore {name!r}: the limit is 1 to {SEMAPHORE_LIMIT_MAX}, not {limit}")
        self.name = name
        self.limit = limit
        self._session = session
        self._prefix = session.keys.semaphore(name)
        self._permit = Permit(count=limit, note=note)
        self._tally = LineTally()
        self._blocks = HoldBlocks(f"semaphore {name!r}")

    def __repr__(self) -> str:
        return f"<Semaphore {self.name!r} for {self.limit} of {self._session!r}>"

    @property
    def stats(self) -> LineStats:
        return self._tally.stats()

    async def acquire(self, timeout: float | None = None) -> Hold:
        """Wait in line, and hold. A store that cannot be reached is waited for as long as the session lives.

        Raises `TimedOut`, `SessionLost`, `BadArgument` for another limit than the others', and `LockLost`
        when somebody took this waiter out of the line. Cancelling it leaves the line.
        """
        entry = self._entry()
        inside = replace(self._permit, is_inside=True).encode()
        await acquired(
            entry,
            self._tally,
            timeout=timeout,
            admit=self._admit,
            # Tells the one behind, who watches this key alone, to look who is ahead of it now.
            promote=lambda: entry.mark_patiently(inside),
        )
        return Hold(self.name, entry, self._tally)

    async def try_acquire(self) -> Hold | None:
        """Hold, if there is room and nobody waits for it; else None.

        Raises `SessionLost`, `TimedOut`, `StoreUnavailable`, `BadArgument`. Cancelling it leaves the line.
        """
        entry = self._entry()
        if not await acquired_at_once(entry, self._tally, admit=self._admit):
            return None
        return Hold(self.name, entry, self._tally)

    async def holders(self) -> tuple[HolderInfo, ...]:
        """Who holds it now, the oldest first. Raises what the store raises."""
        return (await self._line())[: self.limit]

    async def waiting(self) -> tuple[HolderInfo, ...]:
        """Who waits for it, in order. Raises what the store raises."""
        return (await self._line())[self.limit :]

    async def __aenter__(self) -> Hold:
        return await self._blocks.enter(self.acquire)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._blocks.leave(kind, error, trace)

    async def _line(self) -> tuple[HolderInfo, ...]:
        line = await line_of(self._session, self._prefix)
        return tuple(replace(info, note=decode_permit(info.note).note) for info in line)

    def _admit(self, items: tuple[KeyValue, ...]) -> None:
        # All that stand there, and not the first alone: one with a wrong limit may be about to leave.
        for limit in {decode_permit(item.value).count for item in items}:
            if limit != self.limit:
                raise BadArgument(
                    f"semaphore {self.name!r} is used with a limit of {limit}, here with {self.limit}"
                )

    def _entry(self) -> Entry[LockLost]:
        return Entry(
            self._session,
            self._prefix,
            what=f"semaphore {self.name!r}",
            error=LockLost,
            value=self._permit.encode(),
            turns_count=self.limit,
        )
