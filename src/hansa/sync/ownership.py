"""What is owned through a session, for threads: until it is given back, or lost.

A thread cannot be cancelled. So a block that goes on after the loss is told in three ways: `is_held` (or
`is_leading`) is False from that moment, `check()` raises, and leaving the block raises.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from hansa.coordination.ownership import Ownership as AsyncOwnership
from hansa.errors import AlreadyClosed, Fenced, NotHeld
from hansa.store.values import Compare
from hansa.sync.session import Session, within

E = TypeVar("E", bound=Fenced)
A = TypeVar("A")
O = TypeVar("O", bound="Ownership[Any] | None")  # noqa: E741


class Ownership(Generic[E]):
    """What holds and leaderships have in common. Made by `obtained`."""

    def __init__(self, session: Session, inner: AsyncOwnership[E], name: str) -> None:
        self.name = name
        self._session = session
        self._owned = inner

    def __enter__(self) -> Self:
        self.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost: Fenced | None = None
        try:
            self.check()
        except NotHeld:
            pass  # Given back in the block, while it was owned.
        except Fenced as loss:
            lost = loss
        self._give_back(error)
        # Errors of the body's own go first.
        if kind is None and lost is not None:
            raise lost

    @property
    def guard(self) -> Compare:
        """Holds as long as this owner owns: put it into your own `commit` in the same store."""
        return self._owned.guard

    def check(self) -> None:
        """Raise the loss, with its reason, or NotHeld once given back. Asks nobody, and never waits."""
        self._session._check_process()
        self._owned.check()

    def refresh(self) -> None:
        """Renew the session's lease now. Raises the loss; TimedOut and StoreUnavailable lose nothing."""
        self._session._call(self._owned.refresh, "refresh")

    def lost(self, timeout: float | None = None) -> E:
        """Wait until it is lost; gives the reason. What was given back is never lost.

        Raises TimedOut, and AlreadyClosed when the session is closed.
        """
        return self._session._call(
            lambda: within(timeout, self._owned.lost, f"{self.name} is still owned after {timeout} s"), "lost"
        )

    def _give_back(self, error: BaseException | None = None) -> bool:
        try:
            return self._session._call(lambda: self._owned._give_back(error), "giving back")
        except AlreadyClosed:
            return False  # It went with its session.


def obtained(
    session: Session,
    acquire: Callable[[], Coroutine[Any, Any, A]],
    own: Callable[[A], O],
    what: str,
) -> O:
    """Wait to own. An interrupt that comes too late to give up the wait gives back what came of it."""
    owned: list[O] = []

    async def wait() -> O:
        owned.append(own(await acquire()))
        return owned[0]

    try:
        return session._call(wait, what)
    except BaseException:
        for each in owned:
            if each is not None:
                each._give_back()
        raise
