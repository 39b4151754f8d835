"""A lock that one process at a time holds, and a semaphore that a few hold, first come, first served."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from types import TracebackType

from hansa.coordination.claim import Line
from hansa.coordination.held import Held
from hansa.coordination.line import LineStats, Permit, decode_permit
from hansa.coordination.session import Sessions
from hansa.coordination.succession import Movable
from hansa.errors import BadArgument, LockLost, UsageError
from hansa.limits import SEMAPHORE_LIMIT_MAX
from hansa.store.values import KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderInfo:
    """A holder or waiter: its session's lease, its fence, and its note.

    `node` is the name that it gives, and `since` the wall time at which it came, by its own clock, for
    display. Older processes write neither. The `fence` of a waiter is 0 if its fence will be another one than
    its key's.
    """

    lease: int
    fence: int
    note: bytes
    node: str = ""
    since: float = 0.0


class Hold(Held[LockLost]):
    """A lock, or a place in a semaphore, that is held. Give it back with `release`, or use `async with`.

    `async with hold:` cancels its body when the hold is lost and raises `LockLost`; it gives back at the end.
    """

    @property
    def fence(self) -> int:
        """Grows from holder to holder: guarded storage refuses lower fences than it has seen."""
        return self._claim.epoch

    @property
    def is_held(self) -> bool:
        """Whether it is held now: False from the session's deadline on, also in a loop that is stuck.

        Any thread may ask.
        """
        return self._claim.is_standing

    async def release(self) -> bool:
        """Give it back: from now on it is not held. Returns whether it was held; never raises a loss.

        Deletes this holder's own key and nothing else. When the store does not answer soon, that goes on in
        the background, as it does when this is cancelled.
        """
        return await self._claim.release()


class Turns:
    """Something held in turns: a line, and its `async with` blocks, of which each task may be inside one."""

    name: str

    def __init__(self, line: Line[LockLost]) -> None:
        self._line = line
        self._holds: dict[asyncio.Task[object], Hold] = {}

    @property
    def stats(self) -> LineStats:
        return self._line.stats

    async def acquire(self, timeout: float | None = None) -> Hold:
        """Wait in line, and hold. Waits for a store that cannot be reached, as long as the session lives.

        Raises `TimedOut`, `SessionLost`, and `LockLost` when somebody took this waiter out of the line; for a
        semaphore `BadArgument` when its limit differs from the others'. `UsageError` without a timeout in a
        task whose blocks have all the places: it would wait for itself. Cancelling it leaves the line.
        """
        return Hold(self.name, await self._line.acquire(timeout))

    async def try_acquire(self) -> Hold | None:
        """Hold, if there is room and nobody waits for it; else return None.

        Raises `SessionLost`, `TimedOut`, `StoreUnavailable`, and `BadArgument` as `acquire`. Cancelling it
        leaves the line.
        """
        claim = await self._line.try_acquire()
        return None if claim is None else Hold(self.name, claim)

    async def __aenter__(self) -> Hold:
        task = asyncio.current_task()
        if task is None or task in self._holds:
            raise UsageError(f"{self._line.what}: this task is inside already, and might wait for itself")
        hold = await self.acquire()
        await hold.__aenter__()
        self._holds[task] = hold
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        if task is None or task not in self._holds:
            raise UsageError(f"{self._line.what}: a block is left by the task that entered it")
        await self._holds.pop(task).__aexit__(kind, error, trace)

    async def _standing(self) -> tuple[HolderInfo, ...]:
        """All that stand in the line, in order."""
        return tuple(
            HolderInfo(
                lease=one.lease,
                fence=one.epoch,
                note=one.signed.body,
                node=one.signed.node,
                since=one.signed.since,
            )
            for one in await self._line.standing()
        )


class Lock(Turns):
    """A lock by name. Every `acquire` stands in line for itself, also with the same object.

    It hangs on a session, or with a `SessionKeeper` on the one that lives when it is acquired. `async with
    lock as hold:` cancels its body when the lock is lost, and raises `LockLost`.
    """

    def __init__(self, session: Sessions, name: str, *, note: bytes = b"") -> None:
        self.name = name
        key = session.keys.lock(name)
        movable = Movable(kind="lock", name=name)
        super().__init__(
            Line(session, key, what=f"lock {name!r}", error=LockLost, body=note, movable=movable)
        )

    def __repr__(self) -> str:
        return f"<Lock {self.name!r} of {self._line.sessions!r}>"

    async def holder(self) -> HolderInfo | None:
        """Who holds it now. Raises what the store raises."""
        line = await self._standing()
        return line[0] if line and line[0].fence else None

    async def waiting(self) -> tuple[HolderInfo, ...]:
        """Who waits for it, in order. Raises what the store raises."""
        line = await self._standing()
        # After a hand-over the first in the line may be a waiter that is about to take its turn.
        return line[1:] if line and line[0].fence else line


class Semaphore(Turns):
    """Up to `limit` holders at once. All who use a name at one time give the same limit, else `BadArgument`.

    It hangs on a session or a `SessionKeeper`, as a `Lock` does. `async with semaphore as hold:` cancels its
    body when the hold is lost, and raises `LockLost`.
    """

    def __init__(self, session: Sessions, name: str, limit: int, *, note: bytes = b"") -> None:
        if not 1 <= limit <= SEMAPHORE_LIMIT_MAX:
            raise BadArgument(f"semaphore {name!r}: the limit is 1 to {SEMAPHORE_LIMIT_MAX}, not {limit}")
        self.name = name
        self.limit = limit
        permit = Permit(count=limit, note=note)
        line = Line(
            session,
            session.keys.semaphore(name),
            what=f"semaphore {name!r}",
            error=LockLost,
            body=permit.encode(),
            turns_count=limit,
            admit=self._admit,
            # Tells the waiter behind, which watches this key alone, to look again which keys are ahead.
            inside=replace(permit, is_inside=True).encode(),
        )
        super().__init__(line)

    def __repr__(self) -> str:
        return f"<Semaphore {self.name!r} for {self.limit} of {self._line.sessions!r}>"

    async def holders(self) -> tuple[HolderInfo, ...]:
        """Who holds it now, the oldest first. Raises what the store raises."""
        return (await self._standing())[: self.limit]

    async def waiting(self) -> tuple[HolderInfo, ...]:
        """Who waits for it, in order. Raises what the store raises."""
        return (await self._standing())[self.limit :]

    async def _standing(self) -> tuple[HolderInfo, ...]:
        line = await super()._standing()
        return tuple(replace(info, note=decode_permit(info.note).note) for info in line)

    def _admit(self, items: tuple[KeyValue, ...]) -> None:
        # Check all keys, and not the first alone: one with a wrong limit may be about to leave.
        for limit in {decode_permit(item.value).count for item in items}:
            if limit != self.limit:
                raise BadArgument(
                    f"semaphore {self.name!r} is used with a limit of {limit}, here with {self.limit}"
                )
