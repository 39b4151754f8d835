"""A session: one lease, kept alive, with a deadline that its owner keeps by itself.

`session_times` decides; this drives. It must: count the lease from before the grant was asked for, and a
renewal from before it was; arm one timer for the deadline, look when it rings, and arm it again unless the
session is lost; look whenever the keeping tells of a change, before noting that the loop was heard; once
lost, stop the keeping, cancel the timer, and tell all who wait, once. It never renews anything itself but in
`renew`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Final, Self

from hansa.chance import Chance
from hansa.coordination.loss import Loss
from hansa.coordination.session_times import Kept, farewell_s, session_times
from hansa.errors import HansaError, LeaseLost, SessionLost, UsageError
from hansa.keys import Keys
from hansa.limits import STORE_TIMEOUT_S
from hansa.runtime.loops import Home
from hansa.runtime.tasks import Closing, TaskScope
from hansa.store.store import Keeping, Store

logger = logging.getLogger(__name__)

_TIMER_S_MIN: Final = 0.001


class Session:
    """One lease in a store, renewed until the block is left; locks and leaderships hang on it.

    It is lost when the store ends the lease, or when no renewal was answered until shortly (`margin_s`)
    before the lease could end: then for good, and users open another one. If the store cannot be reached and
    comes back before that, nothing is lost. It belongs to one event loop, but `is_live`, `deadline_s` and
    `remaining_s` are true at any moment and in any thread, also while the loop is stuck.

    Entering raises `StoreUnavailable` and `TimedOut`. Leaving ends the lease, in a bounded time, or lets it
    end by itself. A session that was lost says nothing more to the store: who waits for the loss must hear of
    it now, and the lease has at most `margin_s` left, as far as this process knows.
    """

    def __init__(
        self,
        store: Store,
        ttl: float = 10.0,
        *,
        cluster: str = "default",
        margin_s: float | None = None,
        name: str = "",
        renew_interval_s: float | None = None,
        loop_silence_s_max: float | None = None,
        chance: Chance | None = None,
    ) -> None:
        self.store = store
        self.chance = chance if chance is not None else Chance.system()
        self.keys = Keys(cluster)
        self.name = name
        self._times = session_times(
            ttl,
            margin_s=margin_s,
            renew_interval_s=renew_interval_s,
            loop_silence_s_max=loop_silence_s_max,
        )
        self._lease = 0
        self._keeping: Keeping | None = None
        self._renewed_until_s = 0.0
        self._heard_s = 0.0
        self._numbers_count = 0
        self._has_lease_ended = False
        # Set from any thread, and final. `loss` follows it, on the loop.
        self._verdict: SessionLost | None = None
        self.loss: Loss[SessionLost] = Loss()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = TaskScope(f"session {name}" if name else "session", self._failed)
        self._closing = Closing()
        self._home: Home | None = None

    def __repr__(self) -> str:
        called = f" {self.name!r}" if self.name else ""
        if not self._lease:
            return f"<Session{called} not open>"
        state = "live" if self.is_live else "lost"
        return f"<Session{called} {state}, lease {self._lease:x}>"

    @property
    def lease(self) -> int:
        """The lease's number in the store. Raises `UsageError` before the session was entered."""
        if not self._lease:
            raise UsageError("this session is not open: use it inside `async with`")
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
        return self._times.deadline_s(self._kept())

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
        if not self._lease:
            raise UsageError("this session is not open: use it inside `async with`")
        if (lost := self._look()) is not None:
            raise SessionLost(str(lost)) from lost

    async def lost(self) -> SessionLost:
        """Wait until it is lost or left; gives the reason. Cancelling it changes nothing."""
        self._check_home()
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
            self._verdict = self._lost_for(reason)
        self._changed()

    def next_number(self) -> int:
        """A number that this session gives out once, for the keys on its lease."""
        self._numbers_count += 1
        return self._numbers_count

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
            ttl_s=self.ttl_s,
            granted_s=granted_s,
            interval_s=self._times.renew_interval_s,
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
        self._check_home()
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
        if self._verdict is None and self._keeping is not None:
            reason = self._times.why_lost(self._kept(), now=self.store.clock.monotonic())
            if reason is not None:
                self._verdict = self._lost_for(reason)
        return self._verdict

    def _kept(self) -> Kept:
        keeping = self._open_keeping()
        return Kept(
            until_s=max(keeping.kept_until_s, self._renewed_until_s),
            is_lost=keeping.is_lost,
            failures_count=keeping.failures_count,
            heard_s=self._heard_s,
        )

    def _check_home(self) -> None:
        if self._home is not None:
            self._home.check()

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

    def _lost_for(self, reason: str) -> SessionLost:
        return SessionLost(f"{self._title()} is lost: {reason}")

    def _title(self) -> str:
        called = f" {self.name!r}" if self.name else ""
        return f"session{called} (lease {self._lease:x}, {self.ttl_s:g} s)"

    def _failed(self, error: BaseException) -> None:
        logger.error("%s: a task failed: %s", self._title(), error, exc_info=error)
