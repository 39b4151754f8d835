"""Ownership for threads: what a thread owns through a session, until it is given back, or lost.

A thread cannot be cancelled. So a block that goes on after the loss is told in three ways: `is_held` (or
`is_leading`) is False from that moment, `check()` raises, and leaving the block raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, suppress
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from hansa.coordination.claim import Line as AsyncLine
from hansa.coordination.election import Election as AsyncElection
from hansa.coordination.election import LeaderInfo
from hansa.coordination.handover import Handover
from hansa.coordination.held import Held
from hansa.coordination.session import SessionKeeper as AsyncSessionKeeper
from hansa.errors import AlreadyClosed, Fenced, HansaError, NotHeld, UsageError
from hansa.limits import HANDOVER_S
from hansa.runtime.mailboxes import Mailbox, Waiters
from hansa.sync.mirror import EndingMirror
from hansa.sync.streams import EventStream

if TYPE_CHECKING:
    from hansa.sync.coordination import Hold, Leadership
    from hansa.sync.sessions import Session, SessionKeeper

A = TypeVar("A")
GiveBack: TypeAlias = Callable[[], Coroutine[Any, Any, bool]]
O = TypeVar("O", bound="Ownership | None")  # noqa: E741


# ---- what is owned -------------------------------------------------------------------------------------


class Ownership:
    """The `with` block of a hold or a leadership, and its hand-over. Made by `obtained`."""

    def __init__(self, session: EndingMirror[Any], inner: Held[Any], give_back: GiveBack) -> None:
        self._session = session
        self._held = inner
        self._give_back_owned = give_back
        # The threads that are in one of its blocks.
        self._inside: list[int] = []

    def __enter__(self) -> Self:
        self._check_now()
        self._inside.append(get_ident())
        self._held._claim._inside(get_ident(), 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        lost: Fenced | None = None
        if self._inside:
            self._held._claim._inside(self._inside.pop(), -1)
        try:
            self._check_now()
        except NotHeld:
            pass  # It was given back in the block, while it was owned.
        except Fenced as loss:
            lost = loss
        with suppress(AlreadyClosed):  # It ended with its session.
            self._session._call(lambda: self._farewell(error), "giving back")
        # The body's own errors take precedence.
        if kind is None and lost is not None:
            raise lost

    def hand_over(
        self, to: str | Handover, *, state: bytes = b"", timeout: float = HANDOVER_S, reason: str = ""
    ) -> Handover:
        """Hand it over, with a state, to a node that waits for it, ahead of all others; returns the record.

        Stop the work before: from when the new owner is ready, it is not held here. `to` is the name of a
        `Session(node=...)`, or the record that `wanted` returned: then only that hand-over is carried out,
        and no other one if it is over meanwhile. Raises NoSuccessor and HandoverWithdrawn: then it is held as
        before. Raises the loss, NotHeld, BadArgument; Conflict while another hand-over is open; TimedOut and
        StoreUnavailable. Interrupting it withdraws, or, when this owner has stopped acting, lets the
        hand-over come to its end.
        """
        return self._session._call(
            lambda: self._held.hand_over(to, state=state, timeout=timeout, reason=reason), "handing over"
        )

    def _check_now(self) -> None:
        self._session._check_process()
        self._held.check()

    def _give_back(self) -> bool:
        """Give back; returns whether it was owned."""
        try:
            return self._session._call(self._give_back_owned, "giving back")
        except AlreadyClosed:
            return False  # It ended with its session.

    async def _farewell(self, error: BaseException | None) -> None:
        """Give back while `error` is on its way to the caller, which a loss must reach soon."""
        # If the store does not hear it by then, it is told in the background.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._held._claim.session.farewell_s(error)):
                await self._give_back_owned()


def check_outside(session: Session | SessionKeeper, line: AsyncLine[Any], timeout: float | None) -> None:
    """Raise UsageError in a thread that would wait, without a timeout, for itself."""
    inner = session._inner
    present = inner.session if isinstance(inner, AsyncSessionKeeper) else inner
    if timeout is None and present is not None:
        line.check_outside(present, get_ident(), "thread")


def obtained(
    session: EndingMirror[Any],
    acquire: Callable[[], Coroutine[Any, Any, A]],
    own: Callable[[A], O],
    what: str,
) -> O:
    """Wait to own. If an interrupt comes too late to end the wait, what was obtained is given back."""
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


# ---- what it is taken from -----------------------------------------------------------------------------


class Line:
    """The `with` blocks of one lock or semaphore. Several threads may be in blocks of one object."""

    def __init__(self, what: str) -> None:
        self._what = what
        # By thread.
        self._holds: dict[int, Hold] = {}

    def acquire(self, timeout: float | None = None) -> Hold:
        raise NotImplementedError

    def __enter__(self) -> Hold:
        ident = get_ident()
        if ident in self._holds:
            raise UsageError(f"{self._what}: this thread is in a block of it already")
        hold = self._holds[ident] = self.acquire().__enter__()
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold = self._holds.pop(get_ident(), None)
        if hold is None:
            raise UsageError(f"{self._what}: a block is left by the thread that entered it")
        hold.__exit__(kind, error, trace)


class Contest:
    """The part of a blocking election that is entered, and watched."""

    def __init__(self, session: Session | SessionKeeper, inner: AsyncElection) -> None:
        self._session = session
        self._inner = inner

    def win(self, *, timeout: float | None = None) -> Leadership:
        raise NotImplementedError

    def campaign(self, *, timeout: float | None = None) -> Campaign:
        """`with election.campaign() as leadership:` waits to lead, and leads until the block is left.

        Leaving it raises LeadershipLost when leadership was lost by then; until then the body has
        `leadership.is_leading` and `leadership.check()`. For what entering raises see `win`.
        """
        return Campaign(self, timeout)

    def observe(self) -> EventStream[LeaderInfo | None]:
        """A blocking iterator: who leads, now and after each change; None for nobody. Terms never go back.

        It waits for a store that cannot be reached, and then tells what it missed as one change. It ends when
        it, the session or the store is closed. Needs no live session.
        """
        session = self._session
        return session._held().run(lambda: EventStream(session, _Observing(session, self._inner)))


class Campaign:
    """The result of `Election.campaign`: enter it to lead."""

    def __init__(self, election: Contest, timeout: float | None) -> None:
        self._election = election
        self._what = f"election {election._inner.name!r}"
        self._timeout_s = timeout
        self._leadership: Leadership | None = None

    def __enter__(self) -> Leadership:
        if self._leadership is not None:
            raise UsageError(f"{self._what}: a campaign is entered once")
        self._leadership = self._election.win(timeout=self._timeout_s).__enter__()
        return self._leadership

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leadership is None:
            raise UsageError(f"{self._what}: this campaign was not entered")
        self._leadership.__exit__(kind, error, trace)


class _Observing:
    """Reads on while a reader waits, and waits for the reader: a step that is given up must lose nothing.

    Giving up a step of the asynchronous iterator itself would end that iterator.
    """

    def __init__(self, session: EndingMirror[Any], election: AsyncElection) -> None:
        self.dropped_count = 0
        self._told: Mailbox[LeaderInfo | None] = Mailbox(f"who leads {election.name!r}")
        self._taken = Waiters()
        self._error: HansaError | None = None
        self._task = session._spawn(self._read(election), f"observes election {election.name!r}")

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
