"""An election: one leads at a time, and its term is higher than all before."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from types import TracebackType

from hansa.coordination.entry import Entry
from hansa.coordination.following import Following
from hansa.coordination.line import LineStats, LineTally, in_order
from hansa.coordination.ownership import Ownership, acquired
from hansa.coordination.session import Session
from hansa.errors import LeadershipLost, UsageError
from hansa.store.values import KeyValue


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderInfo:
    """Who leads: the term, what it says of itself, and its session's lease."""

    term: int
    value: bytes
    lease: int


class Leadership(Ownership[LeadershipLost]):
    """This process leads. Give it back with `resign`, or use `async with`.

    `async with leadership:` cancels its body when it is lost and raises `LeadershipLost`; it resigns at the
    end.
    """

    def __init__(self, name: str, entry: Entry[LeadershipLost], tally: LineTally) -> None:
        super().__init__(entry, tally)
        self.name = name

    @property
    def term(self) -> int:
        """Grows from leader to leader: whoever guards something refuses terms lower than it has seen."""
        return self._entry.created

    @property
    def is_leading(self) -> bool:
        """Whether it leads now: False from the session's deadline on, also in a loop that is stuck.

        Any thread may ask.
        """
        return self._entry.is_standing

    async def proclaim(self, value: bytes) -> None:
        """Say something else of the leader; those who observe are told. Raises `LeadershipLost`.

        Raises `TimedOut` and `StoreUnavailable` too: then try again, it does no harm.
        """
        self.check()
        await self._entry.mark(value)

    async def resign(self) -> bool:
        """Lead no more, as of now. Says whether it led until now; never raises that it did not.

        When the store does not answer soon it is told in the background, as it is when this is cancelled.
        """
        return await self._give_back()


class Election:
    """An election by name. `value` is what this candidate says of itself, an address for example."""

    def __init__(self, session: Session, name: str, *, value: bytes = b"") -> None:
        self.name = name
        self._session = session
        self._prefix = session.keys.leader(name)
        self._value = value
        self._tally = LineTally()

    def __repr__(self) -> str:
        return f"<Election {self.name!r} of {self._session!r}>"

    @property
    def stats(self) -> LineStats:
        return self._tally.stats()

    def campaign(self, *, timeout: float | None = None) -> Campaign:
        """`async with election.campaign() as leadership:` waits to lead, and leads until the block is left.

        The body is cancelled when leadership is lost, and `LeadershipLost` raised. For what entering raises
        see `win`.
        """
        return Campaign(self, timeout)

    async def win(self, *, timeout: float | None = None) -> Leadership:
        """Wait until this process leads. A store that cannot be reached is waited for.

        Raises `TimedOut`, `SessionLost`, and `LeadershipLost` when somebody took this candidate out of the
        line. Cancelling it leaves the line.
        """
        entry = Entry(
            self._session,
            self._prefix,
            what=f"leadership of {self.name!r}",
            error=LeadershipLost,
            value=self._value,
        )
        await acquired(entry, self._tally, timeout=timeout)
        return Leadership(self.name, entry, self._tally)

    async def leader(self) -> LeaderInfo | None:
        """Who leads now, if anybody. Raises what the store raises."""
        scan = await self._session.store.scan(self._prefix)
        return leader_of(scan.items)

    async def observe(self) -> AsyncGenerator[LeaderInfo | None, None]:
        """Who leads, now and after each change; None for nobody. Terms never go back.

        It waits for a store that cannot be reached, and then tells what it missed as one change. Needs no
        live session. Raises `AlreadyClosed` when the store was closed.
        """
        following = Following(self._session.store, self._prefix, chance=self._session.chance)
        seen: LeaderInfo | None = None
        is_first, term_max = True, 0
        try:
            async for _ in following:
                leader = leader_of(following.items.values())
                # A store that was put back to an older state must not put its readers back too.
                if (leader is not None and leader.term < term_max) or (leader == seen and not is_first):
                    continue
                is_first, seen = False, leader
                if leader is not None:
                    term_max = leader.term
                yield leader
        finally:
            following.close()


class Campaign:
    """What `Election.campaign` gives: enter it to lead."""

    def __init__(self, election: Election, timeout: float | None) -> None:
        self._election = election
        self._timeout_s = timeout
        self._leadership: Leadership | None = None

    async def __aenter__(self) -> Leadership:
        if self._leadership is not None:
            raise UsageError(f"election {self._election.name!r}: a campaign is entered once")
        leadership = await self._election.win(timeout=self._timeout_s)
        await leadership.__aenter__()
        self._leadership = leadership
        return leadership

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leadership is None:
            raise UsageError(f"election {self._election.name!r}: this campaign was not entered")
        await self._leadership.__aexit__(kind, error, trace)


def leader_of(items: Iterable[KeyValue]) -> LeaderInfo | None:
    """The first of a line is who leads."""
    first = next(iter(in_order(items)), None)
    if first is None:
        return None
    return LeaderInfo(term=first.create_revision, value=first.value, lease=first.lease)
