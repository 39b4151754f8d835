"""The timers of a gateway's calls, one for all deadlines and one for all tries that may take too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hansa.messaging.gateway.calls import ALARM_S_MIN, NEVER, Call, Calls, IdempotentCall
from hansa.messaging.gateway.pool import Member, Pool


class CallTimers:
    """Tells `on_expired` of each call that has run out of time, and `on_overdue` of each slow try.

    Both are given the time, and `on_expired` also when the timer should have fired. `on_overdue` sets the
    time at which that call is to be looked at again, if it is.
    """

    def __init__(
        self,
        calls: Calls,
        *,
        on_expired: Callable[[Call, float, float], None],
        on_overdue: Callable[[IdempotentCall, float], None],
    ) -> None:
        self._calls = calls
        self._on_expired = on_expired
        self._on_overdue = on_overdue
        self._loop = asyncio.get_running_loop()
        self._alarm: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._suspecting: dict[Pool, None] = {}

    def close(self) -> None:
        for timer in (self._alarm, self._look):
            if timer is not None:
                timer.cancel()

    # -- deadlines

    def set_alarm(self, deadline: float, now: float) -> None:
        """There is a call with this deadline."""
        if self._calls.alarm(deadline, now=now):
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_at(self._calls.alarm_at, self._ring)

    def _ring(self) -> None:
        # First of all: a callback below may open a call and set the alarm.
        self._alarm = None
        now, due_at = self._loop.time(), self._calls.alarm_at
        for call in self._calls.expired(now=now):
            self._on_expired(call, now, due_at)
        if self._alarm is None and self._calls.alarm_at != NEVER:
            self._alarm = self._loop.call_at(self._calls.alarm_at, self._ring)

    # -- tries

    def try_begun(self, call: IdempotentCall, after_s: float, now: float) -> None:
        """The call has a try from now on, which is to be looked at after so long."""
        call.tried_at = now
        call.hedge_at = at = now + after_s
        calls = self._calls
        calls.hedge_last_at = at
        if at < calls.look_at:
            self.look_at(at)

    def suspect(self, pool: Pool, member: Member, now: float) -> None:
        """The member has let the time of a try pass."""
        pool.suspect(member, now=now)
        if pool.suspects:
            self._suspecting[pool] = None

    def look_at(self, at: float) -> None:
        """Look for tries that are overdue then; earlier than planned, or the first time."""
        self._calls.look_at = at
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_at(at, self._look_round)

    def _look_round(self) -> None:
        self._look = None
        now = self._loop.time()
        for pool in self._suspecting:
            pool.relieve(now=now)
        due = self._calls.overdue(now=now)
        for call in due:
            self._on_overdue(call, now)
        self._suspecting = {pool: None for pool in self._suspecting if pool.suspects}
        ends = (member.suspected_until for pool in self._suspecting for member in pool.suspects)
        at = min((self._calls.look_at, *ends, *(call.hedge_at for call in due)))
        self._calls.look_at = NEVER
        if at < NEVER:
            self.look_at(max(at, now + ALARM_S_MIN))
