"""The barrier for threads."""

from __future__ import annotations

from hansa.coordination.barrier import Barrier as AsyncBarrier
from hansa.sync.session import Session


class Barrier:
    """A meeting of so many parties, again and again. All who use a name at a time give the same number."""

    def __init__(self, session: Session, name: str, parties: int) -> None:
        """Raises BadArgument."""
        self.name = name
        self.parties = parties
        self._session = session
        self._inner = AsyncBarrier(session._inner, name, parties)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have come. Gives the generation: one number for all who passed together.

        It grows from one opening to the next. Raises TimedOut and SessionLost, BadArgument for another number
        of parties than the others', AlreadyClosed when the session is closed. Who gives up, or is
        interrupted, is counted no more, once the store has heard of it: the others may pass before that.
        """
        return self._session._call(lambda: self._inner.wait(timeout), f"wait of barrier {self.name!r}")

    def waiting_count(self) -> int:
        """How many wait now. Raises what the store raises."""
        return self._session._call(self._inner.waiting_count, f"waiting_count of barrier {self.name!r}")
