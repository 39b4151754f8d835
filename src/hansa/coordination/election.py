"""An election: one process leads at a time, and its term is higher than all terms before."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from types import TracebackType

from hansa.coordination.claim import Line, Standing
from hansa.coordination.following import Following
from hansa.coordination.held import Held
from hansa.coordination.line import LineStats
from hansa.coordination.session import Sessions
from hansa.coordination.succession import Movable
from hansa.errors import LeadershipLost, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderInfo:
    """Who leads: the term, what the leader says of itself, and its session's lease.

    `node` is the name that the leader gives, and `since` the wall time at which it became a candidate, by its
    own clock, for display. Older processes write neither.
    """

    term: int
    value: bytes
    lease: int
    node: str = ""
    since: float = 0.0


class Leadership(Held[LeadershipLost]):
    """The leadership of this process. Give it back with `resign`, or use `async with`.

    `async with leadership:` cancels its body when the leadership is lost and raises `LeadershipLost`; it
    resigns at the end.
    """

    @property
    def term(self) -> int:
        """Grows from leader to leader: guarded storage refuses lower terms than it has seen."""
        return self._claim.epoch

    @property
    def is_leading(self) -> bool:
        """Whether it leads now: False from the session's deadline on, also in a loop that is stuck.

        Any thread may ask.
        """
        return self._claim.is_standing

    async def proclaim(self, value: bytes) -> None:
        """Change what the leader says of itself; observers are told. Raises `LeadershipLost`.

        Raises `TimedOut` and `StoreUnavailable` too: then try again, it does no harm.
        """
        self.check()
        await self._claim.mark(value)

    async def resign(self) -> bool:
        """Stop leading now. Returns whether this process led until now; never raises a loss.

        When the store does not answer soon it is told in the background, as it is when this is cancelled.
        """
        return await self._claim.release()


class Election:
    """An election by name. `value` is what this candidate says of itself, an address for example.

    It hangs on a session, or with a `SessionKeeper` on the session that lives when it campaigns.
    """

    def __init__(self, session: Sessions, name: str, *, value: bytes = b"") -> None:
        self.name = name
        self._line = Line(
            session,
            session.keys.leader(name),
            what=f"leadership of {name!r}",
            error=LeadershipLost,
            body=value,
            movable=Movable(kind="leader", name=name),
        )

    def __repr__(self) -> str:
        return f"<Election {self.name!r} of {self._line.sessions!r}>"

    @property
    def stats(self) -> LineStats:
        return self._line.stats

    def campaign(self, *, timeout: float | None = None) -> Campaign:
        """`async with election.campaign() as leadership:` waits to lead, and leads until the block is left.

        The body is cancelled when leadership is lost, and `LeadershipLost` raised. For what entering raises
        see `win`.
        """
        return Campaign(self, timeout)

    async def win(self, *, timeout: float | None = None) -> Leadership:
        """Wait until this process leads. Waits for a store that cannot be reached.

        Raises `TimedOut`, `SessionLost`, and `LeadershipLost` when somebody took this candidate out of the
        line; `UsageError` without a timeout in a task that leads already. Cancelling it leaves the line.
        """
        return Leadership(self.name, await self._line.acquire(timeout))

    async def leader(self) -> LeaderInfo | None:
        """Who leads now; None for nobody. Raises what the store raises."""
        return _leader_of(await self._line.standing())

    async def observe(self) -> AsyncGenerator[LeaderInfo | None, None]:
        """The leader now and after each change; None for nobody. Terms never go back.

        It waits for a store that cannot be reached, and then reports what it missed as one change. Needs no
        live session. Raises `AlreadyClosed` when the store was closed.
        """
        sessions = self._line.sessions
        following = Following(sessions.store, self._line.prefix, environment=sessions.environment)
        seen: LeaderInfo | None = None
        is_first, term_max = True, 0
        try:
            async for _ in following:
                leader = _leader_of(Standing.of(following.items.values()))
                # If the store was restored to an older state, its readers must not go back too.
                if (leader is not None and leader.term < term_max) or (leader == seen and not is_first):
                    continue
                is_first, seen = False, leader
                if leader is not None:
                    term_max = leader.term
                yield leader
        finally:
            following.close()


class Campaign:
    """The result of `Election.campaign`: enter it to lead."""

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


def _leader_of(line: Sequence[Standing]) -> LeaderInfo | None:
    """The first in a line leads; after a hand-over, only once it has taken its turn."""
    if not line or not line[0].epoch:
        return None
    first, signed = line[0], line[0].signed
    return LeaderInfo(
        term=first.epoch, value=signed.body, lease=first.lease, node=signed.node, since=signed.since
    )
