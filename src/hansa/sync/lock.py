"""Locks and semaphores for threads."""

from __future__ import annotations

from threading import get_ident
from types import TracebackType

from hansa.coordination.line import LineStats
from hansa.coordination.lock import Hold as AsyncHold
from hansa.coordination.lock import HolderInfo
from hansa.coordination.lock import Lock as AsyncLock
from hansa.coordination.lock import Semaphore as AsyncSemaphore
from hansa.errors import LockLost, UsageError
from hansa.sync.ownership import Ownership, obtained
from hansa.sync.session import Session


class Hold(Ownership[LockLost]):
    """A lock, or a place in a semaphore, that is held. Give it back with `release`, or use `with hold:`.

    A thread cannot be cancelled when the hold is lost: ask `is_held`, or call `check`, between the steps of
    long work. A `with` block gives back when it is left, and raises LockLost if the hold was lost by then.
    """

    def __init__(self, session: Session, inner: AsyncHold) -> None:
        super().__init__(session, inner, inner.name)
        self._inner = inner

    @property
    def fence(self) -> int:
        """Grows from holder to holder: whoever guards something refuses fences lower than it has seen."""
        return self._inner.fence

    @property
    def is_held(self) -> bool:
        """Whether it is surely held now: False from the session's deadline on. Asks nobody."""
        self._session._check_process()
        return self._inner.is_held

    def release(self) -> bool:
        """Give it back: from now on it is not held. Says whether it was until now; never raises that.

        Deletes this holder's own key and nothing else. When the store does not answer soon, that goes on in
        the background.
        """
        return self._give_back()


class Line:
    """What a lock and a semaphore have in common. Several threads may be in blocks of one object."""

    def __init__(self, session: Session, inner: AsyncLock | AsyncSemaphore, what: str) -> None:
        self.name = inner.name
        self._session = session
        self._line = inner
        self._what = f"{what} {self.name!r}"
        # By thread.
        self._holds: dict[int, Hold] = {}

    def __enter__(self) -> Hold:
        ident = get_ident()
        if ident in self._holds:
            raise UsageError(f"{self._what}: this thread is in a block of it already")
        hold = self.acquire()
        self._holds[ident] = hold
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._holds.pop(get_ident(), None)
        if hold is None:
            raise UsageError(f"{self._what}: a block is left by the thread that entered it")
        hold.__exit__(kind, error, trace)

    def acquire(self, timeout: float | None = None) -> Hold:
        """Wait in line, and hold. A store that cannot be reached is waited for as long as the session lives.

        Raises TimedOut, SessionLost, LockLost when somebody took this waiter out of the line, AlreadyClosed
        when the session is closed. Who is interrupted leaves the line.
        """
        return obtained(
            self._session,
            lambda: self._line.acquire(timeout),
            lambda inner: Hold(self._session, inner),
            f"acquire of {self._what}",
        )

    def try_acquire(self) -> Hold | None:
        """Hold, if there is room and nobody waits for it; else None.

        Raises SessionLost, TimedOut, StoreUnavailable, AlreadyClosed.
        """
        return obtained(
            self._session,
            self._line.try_acquire,
            lambda inner: None if inner is None else Hold(self._session, inner),
            f"try_acquire of {self._what}",
        )

    def waiting(self) -> tuple[HolderInfo, ...]:
        """Who waits for it, in order. Raises what the store raises."""
        return self._session._call(self._line.waiting, f"waiting of {self._what}")

    @property
    def stats(self) -> LineStats:
        """What this object has seen so far."""
        return self._session._ask(lambda: self._line.stats)


class Lock(Line):
    """A lock by name. Every `acquire` stands in line for itself, also with the same object.

    `with Lock(session, name) as hold:` waits for its turn, and gives back at the end. It raises LockLost when
    it is left after the lock was lost; until then the body has `hold.is_held` and `hold.check()`.
    """

    def __init__(self, session: Session, name: str, *, note: bytes = b"") -> None:
        """Raises BadArgument for what cannot be a name."""
        self._inner = AsyncLock(session._inner, name, note=note)
        super().__init__(session, self._inner, "lock")

    def holder(self) -> HolderInfo | None:
        """Who holds it now. Raises what the store raises."""
        return self._session._call(self._inner.holder, f"holder of {self._what}")


class Semaphore(Line):
    """Up to `limit` hold it. All who use a name at a time give the same limit, else BadArgument.

    `with semaphore as hold:` is as that of a `Lock`.
    """

    def __init__(self, session: Session, name: str, limit: int, *, note: bytes = b"") -> None:
        """Raises BadArgument."""
        self._inner = AsyncSemaphore(session._inner, name, limit, note=note)
        super().__init__(session, self._inner, "semaphore")
        self.limit = limit

    def holders(self) -> tuple[HolderInfo, ...]:
        """Who holds it now, the oldest first. Raises what the store raises."""
        return self._session._call(self._inner.holders, f"holders of {self._what}")
