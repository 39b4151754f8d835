"""Locks and semaphores for threads."""

from __future__ import annotations

from abc import ABC
from collections.abc import Coroutine
from typing import Any

from hansa.coordination.line_stats import LineStats
from hansa.coordination.over_lock import Hold as AsyncHold
from hansa.coordination.over_lock import HolderInfo
from hansa.coordination.over_lock import Lock as AsyncLock
from hansa.coordination.over_semaphore import Semaphore as AsyncSemaphore
from hansa.errors import InvariantBroken, LockLost
from hansa.sync.ownership import Ownership
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

    def release(self) -> None:
        """Give it back: from now on it is not held. Once is enough, more is fine. Raises LockLost.

        Deletes this holder's own key and nothing else. When the store does not answer soon, that goes on in
        the background.
        """
        self._give_back()

    def _give_back_inner(self) -> Coroutine[Any, Any, None]:
        return self._inner.release()


class _Line(ABC):
    """What a lock and a semaphore have in common. The blocks of several threads may share one object."""

    def __init__(self, session: Session, inner: AsyncLock | AsyncSemaphore, what: str) -> None:
        self.name = inner.name
        self._session = session
        self._what = f"{what} {self.name!r}"
        self._line = inner
        self._holds: dict[int, Hold] = {}

    def acquire(self, timeout: float | None = None) -> Hold:
        """Wait in line, and hold. A store that cannot be reached is waited for as long as the session lives.

        Raises TimedOut, SessionLost, LockLost when somebody took this waiter out of the line, AlreadyClosed
        when the session is closed, and for a semaphore BadArgument when others use another limit. Who is
        interrupted leaves the line.
        """
        hold = self._obtained(lambda: self._line.acquire(timeout), f"acquire ({self._what})")
        if hold is None:
            raise InvariantBroken(f"{self._what} was acquired, and is not held")
        return hold

    def try_acquire(self) -> Hold | None:
        """Hold, if it is free and nobody waits for it; else None.

        Raises SessionLost, TimedOut, StoreUnavailable, AlreadyClosed.
        """
        return self._obtained(self._line.try_acquire, f"try_acquire ({self._what})")

    def waiting(self) -> tuple[HolderInfo, ...]:
        """Who waits for it, in order. Raises what the store raises."""
        return self._session._call(self._line.waiting, f"waiting ({self._what})")

    @property
    def stats(self) -> LineStats:
        return self._session._ask(lambda: self._line.stats)
