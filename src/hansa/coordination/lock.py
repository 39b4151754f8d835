"""A lock that one process at a time holds, and a semaphore that a few hold, in the order of their coming."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import TracebackType

from hansa.coordination.entry import Entry
from hansa.coordination.line import LineStats, LineTally, Permit, decode_permit, in_order
from hansa.coordination.ownership import Ownership, acquired, acquired_at_once
from hansa.coordination.session import Session
from hansa.errors import BadArgument, LockLost, UsageError
from hansa.limits import SEMAPHORE_LIMIT_MAX
from hansa.store.values import KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderInfo:
    """Who holds something or waits for it: its session's lease, its fence, and the note it left."""

    lease: int
    fence: int
    note: bytes


class Hold(Ownership[LockLost]):
    """A lock, or a place in a semaphore, that is held. Give it back with `release`, or use `async with`.

    `async with hold:` cancels its body when the hold is lost and raises `LockLost`; it gives back at the end.
    """

    def __init__(self, name: str, entry: Entry[LockLost], tally: LineTally) -> None:
        super().__init__(entry, tally)
        self.name = name

    @property
    def fence(self) -> int:
        """Grows from holder to holder: whoever guards something refuses fences lower than it has seen."""
        return self._entry.created

    @property
    def is_held(self) -> bool:
        """Whether it is held now: False from the session's deadline on, also in a loop that is stuck.

        Any thread may ask.
        """
        return self._entry.is_standing

    async def release(self) -> bool:
        """Give it back: from now on it is not held. Says whether it was until now; never raises that.

        Deletes this holder's own key and nothing else. When the store does not answer soon, that goes on in
        the background, as it does when this is cancelled.
        """
        return await self._give_back()


class HoldBlocks:
    """The `async with` blocks of one lock or semaphore. Each task may be inside one of them."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._holds: dict[asyncio.Task[object], Hold] = {}

    async def enter(self, acquire: Callable[[], Awaitable[Hold]]) -> Hold:
        """Raises `UsageError` in a task that is inside, and what `acquire` raises."""
        task = asyncio.current_task()
        if task is None or task in self._holds:
            raise UsageError(f"{self._what}: this task is inside already, and might wait for itself")
        hold = await acquire()
        await hold.__aenter__()
        self._holds[task] = hold
        return hold

    async def leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        if task is None or task not in self._holds:
            raise UsageError(f"{self._what}: a block is left by the task that entered it")
        await self._holds.pop(task).__aexit__(kind, error, trace)


class Lock:
    """A lock by name. Every `acquire` stands in line for itself, also with the same object.

    `async with lock as hold:` cancels its body when the lock is lost, and raises `LockLost`.
    """

    def __init__(self, session: Session, name: str, *, note: bytes = b"") -> None:
        self.name = name
        self._session = session
        self._prefix = session.keys.lock(name)
        self._note = note
        self._tally = LineTally()
        self._blocks = HoldBlocks(f"lock {name!r}")

    def __repr__(self) -> str:
        return f"<Lock {self.name!r} of {self._session!r}>"

    @property
    def stats(self) -> LineStats:
        return self._tally.stats()

    async def acquire(self, timeout: float | None = None) -> Hold:
        """Wait in line, and hold. A store that cannot be reached is waited for as long as the session lives.

        Raises `TimedOut`, `SessionLost`, and `LockLost` when somebody took this waiter out of the line.
        Cancelling it leaves the line.
        """
        entry = self._entry()
        await acquired(entry, self._tally, timeout=timeout)
        return Hold(self.name, entry, self._tally)

    async def try_acquire(self) -> Hold | None:
        """Hold, if nobody holds it or waits for it; else None.

        Raises `SessionLost`, `TimedOut`, `StoreUnavailable`. Cancelling it leaves the line.
        """
        entry = self._entry()
        if not await acquired_at_once(entry, self._tally):
            return None
        return Hold(self.name, entry, self._tally)

    async def holder(self) -> HolderInfo | None:
        """Who holds it now. Raises what the store raises."""
        line = await line_of(self._session, self._prefix)
        return line[0] if line else None

    async def waiting(self) -> tuple[HolderInfo, ...]:
        """Who waits for it, in order. Raises what the store raises."""
        return (await line_of(self._session, self._prefix))[1:]

    async def __aenter__(self) -> Hold:
        return await self._blocks.enter(self.acquire)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._blocks.leave(kind, error, trace)

    def _entry(self) -> Entry[LockLost]:
        return Entry(
            self._session, self._prefix, what=f"lock {self.name!r}", error=LockLost, value=self._note
        )


async def line_of(session: Session, prefix: bytes) -> tuple[HolderInfo, ...]:
    """Everybody in a line, in order."""
    scan = await session.store.scan(prefix)
    return tuple(
        HolderInfo(lease=item.lease, fence=item.create_revision, note=item.value)
        for item in in_order(scan.items)
    )


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
