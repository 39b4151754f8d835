"""A session: one lease, kept alive, with a deadline that its owner keeps by itself; and its keeper.

`SessionTimes` decides how long a session may believe in its lease, and why it stops to. The store counts a
lease's time from when it answers a renewal, the session from when it asked: so the session is always the
earlier of the two, and by a margin more. Between its deadline and the lease's end nobody owns what hangs on
it: the old owner has stopped by itself, and no new one can have begun.

`Session` drives it, once. It must: count the lease from before the grant was asked for, and a renewal from
before it was; arm one timer for the deadline, look when it rings, and arm it again unless the session is
lost; look whenever the keeping tells of a change, before noting that the loop was heard; once lost, stop the
keeping, cancel the timer, and tell all who wait, once. It never renews anything itself but in `renew`.

`SessionKeeper` has one session after the other: the one place where a lost session is followed by another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from hansa.coordination.following import TROUBLE, Guard, patient_backoff
from hansa.coordination.line import KeyNumbers
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    Fenced,
    HansaError,
    LeaseLost,
    SessionLost,
    StoreUnavailable,
    TimedOut,
    UsageError,
)
from hansa.keys import Keys
from hansa.limits import (
    FAREWELL_STORE_S_MAX,
    LEAVE_S_MAX,
    LOSS_FAREWELL_S_MAX,
    MEMBER_HEARTBEAT_TIMEOUT_S,
    SESSION_MARGIN_S_MIN,
    SESSION_MARGIN_SHARE,
    SESSION_MARGIN_SHARE_MAX,
    SESSION_RENEWALS_COUNT,
    STORE_TIMEOUT_S,
)
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import Closing, Loss, TaskScope
from hansa.store.store import Keeping, Store
from hansa.transport.environment import Environment

if TYPE_CHECKING:
    from hansa.coordination.succession import RecordListeners

logger = logging.getLogger(__name__)

_TIMER_S_MIN: Final = 0.001
# A try to open a session, or to join on it, takes at most this share of its lease.
_TRIES_PER_LEASE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What is known of a lease: until when it surely lives, and what its keeper went through."""

    until_s: float
    is_lost: bool
    failures_count: int
    # When the event loop was last seen to run.
    heard_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTimes:
    """The durations of a session. `session_times` makes it, with the defaults."""

    ttl_s: float
    margin_s: float
    renew_interval_s: float
    loop_silence_s_max: float

    def deadline_s(self, until_s: float) -> float:
        """From when on the session is lost, unless renewed; its lease surely lives until then."""
        return until_s - self.margin_s

    def why_lost(self, kept: Kept, *, now: float) -> str | None:
        """Why the session is lost; None while it lives. Once lost it stays so: the caller sees to that."""
        unrenewed_s = now - (kept.until_s - self.ttl_s)
        if kept.is_lost:
            return f"the store ended the lease; it was renewed last {unrenewed_s:.1f} s ago"
        if now < self.deadline_s(kept.until_s):
            return None
        # A renewal is tried every interval and has failed after another, and either is heard on the loop.
        silence_s = now - kept.heard_s
        if not kept.failures_count and silence_s > 2 * self.renew_interval_s:
            return f"the event loop, or the whole process, was stuck for {silence_s:.1f} s"
        return f"could not renew for {unrenewed_s:.1f} s"


def farewell_s(error: BaseException | None, *, failures_count: int) -> float:
    """How long a block that is left with this error may wait for the store to hear of it; 0 is not at all.

    A loss is told first. One that passes through the blocks of others, whose leases still live, waits for
    their farewells only as long as a store that is there needs, and never for one that did not answer lately.
    """
    losses = error.subgroup(Fenced) if isinstance(error, BaseExceptionGroup) else error
    if not isinstance(losses, Fenced | BaseExceptionGroup):
        return FAREWELL_STORE_S_MAX
    return 0.0 if failures_count else LOSS_FAREWELL_S_MAX


def session_times(
    ttl: float,
    *,
    margin: float | None = None,
    renew_interval: float | None = None,
    loop_silence_s_max: float | None = None,
) -> SessionTimes:
    """The times of a session, checked, with defaults for what is not given. Raises `BadArgument`."""
    if not (isfinite(ttl) and ttl > 0.0):
        raise BadArgument(f"ttl {ttl} s: give how long the lease lives without being renewed")
    if margin is None:
        margin = min(max(SESSION_MARGIN_SHARE * ttl, SESSION_MARGIN_S_MIN), SESSION_MARGIN_SHARE_MAX * ttl)
    if not 0.0 <= margin < ttl:
        raise BadArgument(f"margin {margin} s: give 0 or more, and less than the {ttl} s of the lease")
    if renew_interval is None:
        renew_interval = min(ttl / SESSION_RENEWALS_COUNT, (ttl - margin) / 2)
    if not 0.0 < renew_interval < ttl - margin:
        raise BadArgument(
            f"renewing every {renew_interval} s: it must be less than the {ttl - margin:g} s that a"
            " renewal lasts"
        )
    loop_silence_s_max = ttl if loop_silence_s_max is None else loop_silence_s_max
    if not loop_silence_s_max > 0.0:
        raise BadArgument(f"loop silence {loop_silence_s_max} s: give how long the event loop may be stuck")
    return SessionTimes(
        ttl_s=ttl, margin_s=margin, renew_interval_s=renew_interval, loop_silence_s_max=loop_silence_s_max
    )


class Session:
    """One lease in a store, renewed until the block is left; locks and leaderships hang on it.

    `node` is who others are told has what hangs on it. It is lost when the store ends the lease, or when no
    renewal was answered until shortly (`margin`) before the lease could end: then for good, and users open
    another one, or have a `SessionKeeper` do so. If the store cannot be reached and comes back before that,
    nothing is lost. It belongs to one event loop, but `is_live`, `deadline_s` and `remaining_s` are true at
    any moment and in any thread, also while the loop is stuck.

    Entering raises `StoreUnavailable` and `TimedOut`. Leaving ends the lease, in a bounded time, or lets it
    end by itself. A session that was lost says nothing more to the store: who waits for the loss must hear of
    it now, and the lease has at most `margin` left, as far as this process knows.
    """

    def __init__(
        self,
        store: Store,
        ttl: float = 10.0,
        *,
        cluster: str = "default",
        node: str = "",
        margin: float | None = None,
        name: str = "",
        renew_interval: float | None = None,
        loop_silence_s_max: float | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.store = store
        self.environment = environment if environment is not None else Environment()
        self.keys = Keys(cluster)
        self.node = node
        self.name = name
        self._times = session_times(
            ttl, margin=margin, renew_interval=renew_interval, loop_silence_s_max=loop_silence_s_max
        )
        self._lease = 0
        self._keeping: Keeping | None = None
        self._renewed_until_s = 0.0
        self._heard_s = 0.0
        self.numbers = KeyNumbers()
        self._has_lease_ended = False
        # Set from any thread, and final. `loss` follows it, on the loop.
        self._verdict: SessionLost | None = None
        self.loss: Loss[SessionLost] = Loss()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = TaskScope(f"session {name}" if name else "session", self._failed)
        self.guard = Guard(store, self._tasks, self.environment.chance)
        # How many blocks of which line each task or thread is in: one that is in all would wait for itself.
        self.inside: Counter[tuple[Hashable, bytes]] = Counter()
        # Who follows which record of hand-overs: one watch serves all of them.
        self.listeners: dict[bytes, RecordListeners] = {}
        self._closing = Closing()
        self._home: Home | None = None

    def __repr__(self) -> str:
        called = f" {self.name!r}" if self.name else ""
        state = f"{'live' if self.is_live else 'lost'}, lease {self._lease:x}" if self._lease else "not open"
        return f"<Session{called} {state}>"

    @property
    def lease(self) -> int:
        """The lease's number in the store. Raises `UsageError` before the session was entered."""
        self._open_keeping()
        return self._lease

    @property
    def ttl_s(self) -> float:
        return self._times.ttl_s

    @property
    def margin_s(self) -> float:
        """So long before the lease's end the session is lost."""
        return self._times.margin_s

    @property
    def is_live(self) -> bool:
        """Whether what hangs on this session is still owned. False from the deadline on, and ever after."""
        return self._lease != 0 and self._look() is None

    @property
    def deadline_s(self) -> float:
        """When it is lost unless it is renewed, on the store's clock; each renewal moves it on."""
        return self._times.deadline_s(self._until_s(self._open_keeping()))

    @property
    def remaining_s(self) -> float:
        """How long it surely lives from now on; 0.0 once it is lost."""
        return max(self.deadline_s - self.store.clock.monotonic(), 0.0) if self.is_live else 0.0

    @property
    def vacant_until_s(self) -> float:
        """Until when nobody else can own what hangs on this session: its lease's end; 0.0 once that ended.

        Who stops its work because the session was lost has until then.
        """
        keeping = self._open_keeping()
        return 0.0 if self._has_lease_ended or keeping.is_lost else self._kept().until_s

    @property
    def loop_lag_s(self) -> float:
        """How late the event loop was when the keeper last looked; grows while it is stuck."""
        return self._open_keeping().loop_lag_s

    @property
    def failures_count(self) -> int:
        """Renewals in a row that the store did not answer; 0 when all is well."""
        return self._open_keeping().failures_count

    def check(self) -> None:
        """Raise `SessionLost`, with the reason, unless it lives. Raises `UsageError` when not open."""
        self._open_keeping()
        if (lost := self._look()) is not None:
            raise SessionLost(str(lost)) from lost

    async def live(self, timeout: float | None = None) -> Session:
        """This session, if it lives; who takes sessions and keepers asks both so. Raises as `check`."""
        self.check()
        return self

    async def lost(self) -> SessionLost:
        """Wait until it is lost or left; gives the reason. Cancelling it changes nothing."""
        if self._home is not None:
            self._home.check()
        return await self.loss.wait()

    async def renew(self, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """Renew the lease now, besides the renewals in the background.

        Raises `SessionLost`; also `TimedOut` and `StoreUnavailable`, which lose nothing by themselves.
        """
        self.check()
        sent_s = self.store.clock.monotonic()
        try:
            ttl_s = await self.store.keep_alive(self._lease, timeout=timeout)
        except LeaseLost as gone:
            self.end_lost("the store ended the lease")
            raise SessionLost(str(self._verdict)) from gone
        self.check()
        self._renewed_until_s = max(self._renewed_until_s, sent_s + min(ttl_s, self.ttl_s))

    def end_lost(self, reason: str) -> None:
        """For who saw that the store has this lease no more: the session is lost now, and for good."""
        self._has_lease_ended = True
        if self._verdict is None:
            self._verdict = SessionLost(f"{self._title()} is lost: {reason}")
        self._changed()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run what serves those who hang on this session; leaving the session ends it."""
        return self._tasks.spawn(work, name)

    async def __aenter__(self) -> Self:
        if self._lease:
            raise UsageError("a session is entered once: open another one")
        self._home = Home("this session", "open one here, or use hansa.sync.Session for all threads")
        granted_s = self._heard_s = self.store.clock.monotonic()
        # An answer that comes later is that of a session which is lost already.
        timeout_s = min(self.ttl_s - self.margin_s, STORE_TIMEOUT_S)
        self._lease = await self.store.grant(self.ttl_s, timeout=timeout_s)
        self._keeping = self.store.keep(
            self._lease,
            ttl=self.ttl_s,
            granted_s=granted_s,
            interval=self._times.renew_interval_s,
            loop_silence_s_max=self._times.loop_silence_s_max,
            on_change=self._heard,
        )
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closing.once(lambda: self._leave(error))

    async def close(self) -> None:
        """End the lease, as leaving the block does. Closing twice does no harm."""
        if self._home is not None:
            self._home.check()
        if self._keeping is not None:
            await self._closing.once(lambda: self._leave(None))

    async def _leave(self, error: BaseException | None) -> None:
        lost_before = self._look()
        if lost_before is None:
            # First of all nobody believes in it any more, then the lease may end.
            self._verdict = SessionLost(f"{self._title()} was left")
        keeping = self._open_keeping()
        keeping.stop()
        self._has_lease_ended = True
        self._changed()
        await self.ended()
        if lost_before is None:
            await self.end_lease(self.farewell_s(error))

    async def ended(self) -> None:
        """For who has left it, or said that it is lost: wait until no task of it is left."""
        try:
            await self._tasks.close()
        finally:
            await self._open_keeping().stopped()

    def farewell_s(self, error: BaseException | None) -> float:
        """How long a block on this session, left with this error, may wait for the store to hear of it."""
        return farewell_s(error, failures_count=self.failures_count)

    async def end_lease(self, timeout_s: float) -> None:
        """For who has stopped whatever hangs on this session: let the store end the lease, if it answers."""
        try:
            await self.store.revoke(self._lease, timeout=timeout_s)
        except LeaseLost:
            pass  # It ended before, which is as good.
        except HansaError as trouble:
            logger.warning("%s was left, its lease ends by itself: %s", self._title(), trouble)

    def _look(self) -> SessionLost | None:
        """The verdict as of now. Any thread may ask; the loop is told by its own timer."""
        keeping = self._keeping
        if self._verdict is None and keeping is not None:
            now = self.store.clock.monotonic()
            # A lock looks six times, and nearly always it lives. That is all that `why_lost` would say, and
            # no `Kept` is made for it (`make bench`, lock).
            if not keeping.is_lost and now < self._times.deadline_s(self._until_s(keeping)):
                return None
            reason = self._times.why_lost(self._kept(), now=now)
            if reason is not None:
                self._verdict = SessionLost(f"{self._title()} is lost: {reason}")
        return self._verdict

    def _kept(self) -> Kept:
        keeping = self._open_keeping()
        return Kept(
            until_s=self._until_s(keeping),
            is_lost=keeping.is_lost,
            failures_count=keeping.failures_count,
            heard_s=self._heard_s,
        )

    def _until_s(self, keeping: Keeping) -> float:
        """Until when the lease surely lives."""
        return max(keeping.kept_until_s, self._renewed_until_s)

    def _open_keeping(self) -> Keeping:
        if self._keeping is None:
            raise UsageError("this session is not open: use it inside `async with`")
        return self._keeping

    def _heard(self) -> None:
        # First the verdict: it tells a loop that was stuck from a store that did not answer.
        self._changed()
        self._heard_s = self.store.clock.monotonic()

    def _changed(self) -> None:
        if (lost := self._look()) is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._keeping is not None:
            self._keeping.stop()
        self.guard.close()
        self.loss.set(lost)

    def _arm(self) -> None:
        """Look when the deadline comes. Renewals move the deadline on, and not the timer: it looks again."""
        # Not shorter than a moment: a clock that rounds must not make the loop spin.
        delay_s = max(self.deadline_s - self.store.clock.monotonic(), _TIMER_S_MIN)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._changed()
        if self.loss.error is None:
            self._arm()

    def _title(self) -> str:
        called = f" {self.name!r}" if self.name else ""
        return f"session{called} (lease {self._lease:x}, {self.ttl_s:g} s)"

    def _failed(self, error: BaseException) -> None:
        logger.error("%s: a task failed: %s", self._title(), error, exc_info=error)


class Hanging:
    """Who hangs on a keeper's sessions. Who inherits this defines what it wants to be told of."""

    def session_lost(self, lost: SessionLost) -> None:
        """The session is lost, and all claims on it know it."""

    def session_opened(self, session: Session) -> None:
        """Here is the first one, or another one. Everybody was told of the loss of the one before."""


class SessionKeeper:
    """A session in a store that is opened anew whenever it was lost: one for all that a process has there.

    Entering begins to open the first session, and waits for no store; `live` waits. What hangs on a session
    is lost with it, and who wants it again takes it again. Pauses between tries grow, with jitter.

    All who `hang_on` are told, in the order in which they came: of each loss, and then of each session that
    follows. Leaving ends the lease of the last session as leaving a `Session` does; a lease that was lost
    ends by itself. It belongs to one event loop.
    """

    def __init__(
        self,
        store: Store,
        *,
        cluster: str = "default",
        node: str = "",
        ttl: float = 2 * MEMBER_HEARTBEAT_TIMEOUT_S,
        margin: float | None = None,
        name: str = "",
        renew_interval: float | None = None,
        loop_silence_s_max: float | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.store = store
        self.environment = environment if environment is not None else Environment()
        self.keys = Keys(cluster)
        self.node = node
        self.name = name
        self._new_session = partial(
            Session,
            store,
            ttl,
            cluster=cluster,
            node=node,
            margin=margin,
            name=name,
            renew_interval=renew_interval,
            loop_silence_s_max=loop_silence_s_max,
            environment=self.environment,
        )
        # Refuses now what none of them could be.
        self.ttl_s = self._new_session().ttl_s
        self.try_s_max = min(STORE_TIMEOUT_S, ttl / _TRIES_PER_LEASE)
        """One lost answer must not cost a lease: so long may a try last."""
        self._backoff = patient_backoff(self.environment.chance, self.try_s_max)
        self._title = f"the keeper of session {name!r}" if name else "the keeper of a session"
        self._session: Session | None = None
        self._former: Session | None = None
        self._hanging: dict[Hanging, None] = {}
        self._news = Waiters()
        self._tasks = TaskScope(self._title, self._failed)
        self._closing = Closing()
        self._home: Home | None = None
        self._end: HansaError | BaseException | None = None
        self.reopened_count = 0
        self.losses_count = 0
        self.errors_count = 0
        """Tries to open a session that failed."""
        self.last_error: HansaError | None = None

    def __repr__(self) -> str:
        return f"<SessionKeeper {self.name!r} of {self._session!r}>"

    @property
    def session(self) -> Session | None:
        """The session, if there is one that lives."""
        session = self._session
        return session if session is not None and session.is_live else None

    @property
    def loop_lag_s(self) -> float:
        """How late the event loop was when the session was last kept; grows while it is stuck."""
        return 0.0 if self._session is None else self._session.loop_lag_s

    async def live(self, timeout: float | None = None) -> Session:
        """Wait for a session that lives.

        Raises `TimedOut`, or `StoreUnavailable` if the store is why; `AlreadyClosed`; `UsageError` before
        entering.
        """
        if (session := self.session) is not None:
            return session
        try:
            async with asyncio.timeout(timeout):
                while (session := self.session) is None:
                    self._check_open()
                    await self._news.wait()
                return session
        except TimeoutError:
            kind = StoreUnavailable if isinstance(self.last_error, StoreUnavailable) else TimedOut
            why = "" if self.last_error is None else f": {self.last_error}"
            raise kind(f"{self._title} has none after {timeout:g} s{why}") from self.last_error

    def hang_on(self, part: Hanging) -> None:
        """Tell it of each loss and each session from now on."""
        self._hanging[part] = None

    def let_go(self, part: Hanging) -> None:
        """Tell it no more. One that never hung on is fine."""
        self._hanging.pop(part, None)

    async def __aenter__(self) -> Self:
        if self._home is not None:
            raise UsageError(f"{self._title} is entered once: make another one")
        if self._end is not None:
            raise self._end
        self._home = Home(self._title, "make one here")
        self._tasks.spawn(self._keep(), "keeping")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._closing.once(lambda: self._leave(error))

    async def close(self, reason: str = "") -> None:
        """End the lease, and open no session any more, for this reason. Closing twice does no harm."""
        if self._home is not None:
            self._home.check()
        await self._closing.once(lambda: self._leave(None, reason))

    async def abandon(self) -> None:
        """Open and renew nothing any more, and wait until that is so; the lease ends by itself."""
        self._shut("")
        # First nothing is renewed any more, should this be cancelled.
        if self._session is not None:
            self._session.end_lost("left to end by itself")
        await self._tasks.close()
        if self._session is not None:
            await self._session.ended()

    async def _leave(self, error: BaseException | None, reason: str = "") -> None:
        self._shut(reason)
        try:
            await self._tasks.close()
        finally:
            # Also when this is cancelled: a session that nobody leaves would be renewed for ever.
            if self._session is not None:
                await self._session.__aexit__(None if error is None else type(error), error, None)
                self._session = None

    def _shut(self, reason: str) -> None:
        if self._end is None:
            self._end = AlreadyClosed(f"{self._title} is closed" + (f": {reason}" if reason else ""))
        self._news.wake_all()

    def end_former(self) -> None:
        """End a lease that was lost and may still be there, when the time to stop what hung on it is over.

        For who has taken off it what should not go with it. The store may have heard more renewals of it than
        it could answer, so it could last for long.
        """
        former, self._former = self._former, None
        if former is not None:
            self._tasks.spawn(self._end_lease(former), "ends a former lease")

    async def _end_lease(self, former: Session) -> None:
        await asyncio.sleep(max(former.vacant_until_s - self.store.clock.monotonic(), 0.0))
        await former.end_lease(LEAVE_S_MAX)

    async def _keep(self) -> None:
        while True:
            session = await self._open()
            self.reopened_count += self.losses_count > 0
            self._backoff.reset()
            for part in list(self._hanging):
                part.session_opened(session)
            self._news.wake_all()
            lost = await session.lost()
            self._former = session
            self.losses_count += 1
            logger.info("%s: %s", self._title, lost)
            for part in list(self._hanging):
                part.session_lost(lost)
            await session.ended()

    async def _open(self) -> Session:
        """Try until there is one. Raises `AlreadyClosed` when the store was closed."""
        while True:
            session = self._new_session()
            try:
                async with asyncio.timeout(self.try_s_max):
                    self._session = await session.__aenter__()
                return session
            except TimeoutError:
                self.last_error = TimedOut(f"{self._title} was given no lease within {self.try_s_max:g} s")
            except TROUBLE as error:
                self.last_error = error
            self.errors_count += 1
            logger.debug("%s: %s", self._title, self.last_error)
            await asyncio.sleep(self._backoff.next_s())

    def _check_open(self) -> None:
        if self._home is None:
            raise UsageError(f"{self._title} is not open: use it inside `async with`")
        self._home.check()
        if self._end is not None:
            raise self._end

    def _failed(self, error: BaseException) -> None:
        # Mostly the store was closed: there is none to open a session in.
        if self._end is None:
            self._end = error
        logger.info("%s ended: %s", self._title, error)
        self._news.wake_all()


Sessions: TypeAlias = Session | SessionKeeper
"""What things hang on: one session, or one after the other."""
