"""The election for threads."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from types import TracebackType

from hansa.coordination.election import Election as AsyncElection
from hansa.coordination.election import LeaderInfo
from hansa.coordination.election import Leadership as AsyncLeadership
from hansa.coordination.line import LineStats
from hansa.errors import AlreadyClosed, HansaError, LeadershipLost, UsageError
from hansa.runtime.mailboxes import Mailbox
from hansa.runtime.waiters import Waiters
from hansa.sync.event_stream import EventStream
from hansa.sync.ownership import Ownership, obtained
from hansa.sync.session import Session


class Leadership(Ownership[LeadershipLost]):
    """This process leads. Give it back with `resign`, or use `with leadership:`.

    A thread cannot be cancelled when leadership is lost: ask `is_leading`, or call `check`, between the steps
    of long work. A `with` block resigns when it is left, and raises LeadershipLost if it was lost by then.
    """

    def __init__(self, session: Session, inner: AsyncLeadership) -> None:
        super().__init__(session, inner, inner.name)
        self._inner = inner

    @property
    def term(self) -> int:
        """Grows from leader to leader: whoever guards something refuses terms lower than it has seen."""
        return self._inner.term

    @property
    def is_leading(self) -> bool:
        """Whether it surely leads now: False from the session's deadline on. Asks nobody."""
        self._session._check_process()
        return self._inner.is_leading

    def proclaim(self, value: bytes) -> None:
        """Say something else of the leader; those who observe are told. Raises LeadershipLost.

        Raises TimedOut and StoreUnavailable too: then try again, it does no harm.
        """
        self._session._call(lambda: self._inner.proclaim(value), "proclaim")

    def resign(self) -> bool:
        """Lead no more, as of now. Says whether it led until now; never raises that it did not.

        When the store does not answer soon it is told in the background.
        """
        return self._give_back()


class Election:
    """An election by name. `value` is what this candidate says of itself, an address for example."""

    def __init__(self, session: Session, name: str, *, value: bytes = b"") -> None:
        """Raises BadArgument for what cannot be a name."""
        self.name = name
        self._session = session
        self._inner = AsyncElection(session._inner, name, value=value)

    def campaign(self, *, timeout: float | None = None) -> Campaign:
        """`with election.campaign() as leadership:` waits to lead, and leads until the block is left.

        Leaving it raises LeadershipLost when leadership was lost by then; until then the body has
        `leadership.is_leading` and `leadership.check()`. For what entering raises see `win`.
        """
        return Campaign(self, timeout)

    def win(self, *, timeout: float | None = None) -> Leadership:
        """Wait until this process leads. A store that cannot be reached is waited for.

        Raises TimedOut, SessionLost, LeadershipLost when somebody took this candidate out of the line,
        AlreadyClosed when the session is closed. Who is interrupted leaves the line.
        """
        return obtained(
            self._session,
            lambda: self._inner.win(timeout=timeout),
            lambda inner: Leadership(self._session, inner),
            f"win of election {self.name!r}",
        )

    def leader(self) -> LeaderInfo | None:
        """Who leads now, if anybody. Raises what the store raises."""
        return self._session._call(self._inner.leader, f"leader of election {self.name!r}")

    def observe(self) -> EventStream[LeaderInfo | None]:
        """A blocking iterator: who leads, now and after each change; None for nobody. Terms never go back.

        It waits for a store that cannot be reached, and then tells what it missed as one change. It ends when
        it, the session or the store is closed. Needs no live session.
        """
        steps = self._session._held()
        return EventStream(self._session, steps.run(lambda: _Observing(self._session, self._inner)))

    @property
    def stats(self) -> LineStats:
        """What this object has seen so far."""
        return self._session._ask(lambda: self._inner.stats)


class Campaign:
    """What `Election.campaign` gives: enter it to lead."""

    def __init__(self, election: Election, timeout: float | None) -> None:
        self._election = election
        self._timeout_s = timeout
        self._leadership: Leadership | None = None

    def __enter__(self) -> Leadership:
        if self._leadership is not None:
            raise UsageError(f"election {self._election.name!r}: a campaign is entered once")
        self._leadership = self._election.win(timeout=self._timeout_s)
        return self._leadership

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leadership is None:
            raise UsageError(f"election {self._election.name!r}: this campaign was not entered")
        self._leadership.__exit__(kind, error, trace)


class _Observing:
    """Reads on while a reader waits, and waits for the reader: a step that is given up must lose nothing.

    Giving up a step of the asynchronous iterator itself would end that one.
    """

    def __init__(self, session: Session, election: AsyncElection) -> None:
        self.dropped_count = 0
        self._told: Mailbox[LeaderInfo | None] = Mailbox(f"who leads {election.name!r}")
        self._taken = Waiters()
        self._error: HansaError | None = None
        self._task: asyncio.Task[None] = session._inner.spawn(
            self._read(election), f"observes election {election.name!r}"
        )

    async def __anext__(self) -> LeaderInfo | None:
        try:
            leader = await self._told.get()
        except AlreadyClosed:
            if self._error is not None:
                raise self._error from None
            raise StopAsyncIteration from None
        self._taken.wake_all()
        return leader

    def get_nowait(self) -> LeaderInfo | None:
        return self._told.get_nowait()

    def close(self) -> None:
        self._task.cancel()
        self._told.close()

    async def _read(self, election: AsyncElection) -> None:
        try:
            async with aclosing(election.observe()) as news:
                async for leader in news:
                    self._told.put(leader)
                    while len(self._told):
                        await self._taken.wait()
        except HansaError as error:
            self._error = error
        finally:
            self._told.close()
