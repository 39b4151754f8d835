"""Members: this process's place in a cluster, and its view of all others.

`RosterBook` decides the status of each member; this module drives it. It must: follow records and suspicions,
and tell the stay of its own record before anybody else hears of it; note each answer of the store; wake all
waiters at each change, at each joining and at the end; tick, to report a late loop and a stale view and to
forget members that are gone for long; report its expulsion before it leaves; and, when it closes, end its
tasks first, then the stay, then the watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from hansa.coordination.following import Following
from hansa.coordination.lookout import Lookout
from hansa.coordination.member import (
    SAID,
    Expelled,
    LoopLagged,
    Member,
    MemberDown,
    MemberEvent,
    MemberRefuted,
    MembersEvent,
    MembersStats,
    MemberStatus,
    NodeInfo,
    Rejoined,
)
from hansa.coordination.nodes import by_id, record_events
from hansa.coordination.roster import Roster, RosterBook
from hansa.coordination.session import SessionKeeper
from hansa.coordination.stay import Stay
from hansa.errors import AlreadyClosed, BadArgument, HansaError, StoreUnavailable, TimedOut, UsageError
from hansa.keys import Keys
from hansa.limits import (
    EVENTS_COUNT_MAX,
    MEMBER_HEARTBEAT_INTERVAL_S,
    MEMBER_HEARTBEAT_TIMEOUT_S,
    STORE_TIMEOUT_S,
)
from hansa.runtime.loops import Home
from hansa.runtime.mailboxes import EventFeeds, EventStream, Waiters
from hansa.runtime.tasks import Closing, TaskScope
from hansa.store.store import Store
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

# A lease lasts two heartbeat timeouts: a member is SUSPECT after the first, and DOWN after the second.
_LEASE_TIMEOUTS: Final = 2
# How often in an interval the lag of the loop is measured.
_TICKS_PER_INTERVAL: Final = 4


class Members:
    """A view of a cluster's members, and with `node` a place in it. Use it with `async with`.

    Entering reads who is there and joins; when this process leaves, the others see LEFT at once. While it is
    open its lease is renewed every `heartbeat_interval`; without a renewal for `heartbeat_timeout` it is
    SUSPECT to all, after twice that time DOWN. When its session was lost, or its record is gone, it joins
    again, with a higher incarnation. The latest process with an id wins, and the former one is told by
    `Expelled`; with `takeover=False` entering raises `Conflict` instead. Without `node` it only looks.

    When the store is away the view stays as it was, and `is_stale` is True; nobody is declared dead because
    of that. Entering raises `StoreUnavailable` or `TimedOut` when the store does not answer, `BadArgument`,
    `AlreadyClosed`.
    """

    def __init__(
        self,
        store: Store,
        node: NodeInfo | None = None,
        *,
        cluster: str = "default",
        heartbeat_interval: float = MEMBER_HEARTBEAT_INTERVAL_S,
        heartbeat_timeout: float = MEMBER_HEARTBEAT_TIMEOUT_S,
        takeover: bool = True,
        timeout: float = 2 * STORE_TIMEOUT_S,
        session: SessionKeeper | None = None,
        environment: Environment | None = None,
    ) -> None:
        """With `session` its record is on that keeper's sessions, and the keeper's times count.

        So one lease serves a whole process. The keeper is closed when the process is replaced, or its node
        deregistered. Raises `BadArgument`.
        """
        if not 0 < 2 * heartbeat_interval <= heartbeat_timeout:
            raise BadArgument(
                f"heartbeats every {heartbeat_interval} s and a timeout of {heartbeat_timeout} s: give a"
                " timeout of two intervals or more"
            )
        environment = environment if environment is not None else Environment()
        self.store = store
        self.cluster = cluster
        self.heartbeat_interval_s = heartbeat_interval
        self.heartbeat_timeout_s = heartbeat_timeout
        self._timeout_s = timeout
        self._keys = Keys(cluster)
        self._name = f"members of {cluster}" + (f" at {node.id}" if node is not None else "")
        self._book = RosterBook()
        self._feeds = EventFeeds[MembersEvent]("the events of members", count_max=EVENTS_COUNT_MAX)
        self._changed = Waiters()
        self._tasks = TaskScope(self._name, self._failed)
        self._closing = Closing()
        self._home: Home | None = None
        self._failure: BaseException | None = None
        self._is_open = False
        self._trouble: HansaError | None = None
        # So that entering fails with the store's own error, and not only by its timeout.
        read_s_max = min(STORE_TIMEOUT_S, timeout / 2)
        follow = partial(Following, store, timeout=read_s_max, on_trouble=self._in_trouble)
        self._nodes = follow(self._keys.nodes, environment=environment.fork("nodes"), on_read=self._tell_stay)
        self._suspects = follow(self._keys.suspects, environment=environment.fork("suspects"))
        self._lookout = Lookout(self, self._book, self._keys, chance=environment.chance.fork("lookout"))
        self._stay: Stay | None = None
        # The keeper that this object itself opens and closes; None if it was given one.
        self._keeper: SessionKeeper | None = None
        if node is not None:
            if session is None:
                session = self._keeper = SessionKeeper(
                    store,
                    cluster=cluster,
                    node=node.id,
                    ttl=_LEASE_TIMEOUTS * heartbeat_timeout,
                    name=f"member {node.id}",
                    renew_interval=heartbeat_interval,
                    loop_silence_s_max=heartbeat_timeout,
                    environment=environment.fork("stay"),
                )
            self._stay = Stay(session, node, takeover=takeover, on_joined=self._joined)
        self._sessions = session
        self._joined_incarnation = 0
        self._expelled_reason = ""
        self._rejoins_count = self._refuted_count = self._downs_count = self._errors_count = 0
        self._heartbeat_age_s_max = 0.0
        self._lag_s = self._lag_s_max = 0.0
        self._is_lagging = self._was_stale = False
        self._bad_records_told_count = 0

    def __repr__(self) -> str:
        return f"<Members of {self.cluster!r}: {self.view!r}>"

    # -- what is so now

    @property
    def view(self) -> Roster:
        """All members as last heard. The view is replaced, never changed."""
        return self._book.roster

    @property
    def me(self) -> Member:
        """This process as the view shows it; before it is in the view, as it describes itself.

        DOWN when a newer process has its id. Raises `UsageError` without a node.
        """
        stay = self._my_stay()
        info, incarnation = stay.info, stay.incarnation
        seen = self.view.get(info.id)
        if seen is not None and seen.incarnation == incarnation:
            return seen
        if self._expelled_reason:
            # The view has the newer process under this id.
            down, reason = MemberStatus.DOWN, self._expelled_reason
            return Member(info=info, status=down, incarnation=incarnation, reason=reason)
        return Member(info=info, status=info.status, incarnation=incarnation)

    @property
    def is_member(self) -> bool:
        """Whether this process is joined now, with a lease that lives."""
        return self._stay is not None and self._stay.is_joined and not self._expelled_reason

    @property
    def sessions(self) -> SessionKeeper:
        """The keeper whose sessions its record is on, maybe shared. Raises `UsageError` without a node."""
        if self._sessions is None:
            raise UsageError(f"{self._name} only looks: give a node to join with")
        return self._sessions

    @property
    def is_stale(self) -> bool:
        """Whether the store has not answered for the heartbeat timeout: the view may be old."""
        return self._silence_s() > self.heartbeat_timeout_s

    @property
    def stale_s(self) -> float:
        """How old the view may be; 0.0 while it is not stale."""
        return self._silence_s() if self.is_stale else 0.0

    @property
    def loop_lag_s(self) -> float:
        """How late this process's event loop is; while it is stuck, other threads see it grow."""
        return max(self._lag_s, 0.0 if self._sessions is None else self._sessions.loop_lag_s)

    @property
    def heartbeats_s(self) -> Mapping[str, float]:
        """How long ago each member that this process watches renewed its lease, at the last look."""
        return self._lookout.silences_s

    @property
    def stats(self) -> MembersStats:
        view, parts = self.view, (self._lookout, self._stay, self._keeper)
        return MembersStats(
            here_count=len(view.here()),
            up_count=len(view.up()),
            suspect_count=len(view.with_status(MemberStatus.SUSPECT)),
            heartbeat_age_s=self._heartbeat_age_s(),
            heartbeat_age_s_max=self._heartbeat_age_s_max,
            store_latency_s=self._lookout.latency_s,
            store_latency_s_max=self._lookout.latency_s_max,
            suspicions_count=self._lookout.suspicions_count,
            false_suspicions_count=self._refuted_count,
            downs_count=self._downs_count,
            rejoins_count=self._rejoins_count,
            store_errors_count=self._errors_count + sum(part.errors_count for part in parts if part),
            loop_lag_s=self.loop_lag_s,
            loop_lag_s_max=self._lag_s_max,
            bad_records_count=self._book.bad_records_count,
            forgotten_count=self._book.forgotten_count,
            events_dropped_count=self._feeds.dropped_count,
        )

    # -- what happens

    def events(self) -> EventStream[MembersEvent]:
        """All events from this call on. Members that are there already are in `view`."""
        self._check_home()
        return self._feeds.open()

    async def until(self, condition: Callable[[Roster], bool], *, timeout: float | None = None) -> Roster:
        """Wait until the view fulfils a condition; returns the view. Raises `TimedOut`, `AlreadyClosed`."""
        try:
            async with asyncio.timeout(timeout):
                await self._until_so(lambda: condition(self.view))
                return self.view
        except TimeoutError:
            raise TimedOut(f"after {timeout} s {self._name} are still {self.view!r}") from None

    # -- what this process says of itself

    async def set_status(self, status: MemberStatus, *, reason: str = "") -> None:
        """Set the status of this node: JOINING, UP or DRAINING, as `SAID` allows. Twice does no harm.

        Raises `BadArgument`, `UsageError` without a node, `Conflict` while it is not joined, and what the
        store raises.
        """

        def change(info: NodeInfo) -> NodeInfo:
            allowed = SAID.get(info.status, frozenset())
            if status is not info.status and status not in allowed:
                raise BadArgument(
                    f"a member that is {info.status} cannot say that it is {status}:"
                    f" only {', '.join(sorted(allowed))}"
                )
            return replace(info, status=status)

        self._check_open()
        await self._my_stay().write(change, reason=reason or status.value.lower())

    async def update(
        self,
        *,
        metadata: Mapping[str, str] | None = None,
        roles: frozenset[str] | None = None,
        zone: str | None = None,
        version: str | None = None,
    ) -> None:
        """Change what this node says of itself, where arguments are given. Raises as `set_status`."""
        self._check_open()
        given = {"metadata": metadata, "roles": roles, "zone": zone, "version": version}
        new: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        await self._my_stay().write(lambda info: replace(info, **new), reason="updated")

    async def note(self, key: str, value: str | None) -> None:
        """Set one key of this node's metadata, or remove it with None. Raises as `set_status`."""

        def change(info: NodeInfo) -> NodeInfo:
            others = {name: text for name, text in info.metadata.items() if name != key}
            return replace(info, metadata=others if value is None else others | {key: value})

        self._check_open()
        await self._my_stay().write(change, reason="updated")

    # -- life

    async def __aenter__(self) -> Self:
        if self._home is not None:
            raise UsageError(f"{self._name}: a view is entered once")
        self._is_open = True
        self._home = Home(self._name, "make one here, or use hansa.sync.Members, which serves all threads")
        try:
            async with asyncio.timeout(self._timeout_s):
                self._tasks.spawn(self._follow_nodes(), "following nodes")
                self._tasks.spawn(self._follow_suspects(), "following suspicions")
                self._tasks.spawn(self._tick(), "looking at the loop")
                await self._until_so(lambda: self._nodes.is_current and self._suspects.is_current)
                if self._keeper is not None:
                    await self._keeper.__aenter__()
                if self._stay is not None:
                    self._tasks.spawn(self._be_there(self._stay), "staying")
                    await self._until_so(self._is_in_view)
                self._tasks.spawn(self._lookout.run(), "looking after others")
        except TimeoutError:
            parts = [part for part in (self._stay, self._sessions) if part is not None]
            error = next((part.last_error for part in parts if part.last_error), self._trouble)
            # The store did not answer in all that time: do not wait for it once more.
            await self._close(None)
            kind = StoreUnavailable if isinstance(error, StoreUnavailable) else TimedOut
            why = "" if error is None else f": {error}"
            raise kind(f"{self._name}: the store did not answer within {self._timeout_s:g} s{why}") from error
        except BaseException:
            await self._close("left before it had joined")
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_plain = error is None or isinstance(error, asyncio.CancelledError | GeneratorExit)
        await self._close("left" if is_plain else f"left after {type(error).__name__}", error)

    async def close(self) -> None:
        """Leave, and stop looking, as leaving the block does. Closing twice does no harm."""
        self._check_home()
        await self._close("left")

    async def _close(self, reason: str | None, error: BaseException | None = None) -> None:
        """Leave with a reason; None: without a word. `error` is the exception that is leaving the block."""
        await self._closing.once(lambda: self._leave(reason, error))

    async def _leave(self, reason: str | None, error: BaseException | None) -> None:
        self._is_open = False
        try:
            await self._tasks.close()
            if self._stay is not None and reason is not None:
                await self._stay.leave(reason, error)
                if self._keeper is not None:
                    await self._keeper.__aexit__(None if error is None else type(error), error, None)
        finally:
            if self._keeper is not None:
                await self._keeper.abandon()
            elif self._stay is not None:
                self._stay.withdraw_later()
            self._nodes.close()
            self._suspects.close()
            self._feeds.close()
            self._changed.wake_all()

    # -- tasks

    async def _follow_nodes(self) -> None:
        async for news in self._nodes:
            self._lookout.heard()
            # The stay is told first: nobody should hear of this node's record before it does.
            self._tell_stay()
            self._tell_all(record_events(self._book, news, self._keys.nodes, self.store.clock))

    async def _follow_suspects(self) -> None:
        clock = self.store.clock
        async for news in self._suspects:
            self._lookout.heard()
            puts, deletes = by_id(news, self._keys.suspects)
            now, wall = clock.monotonic(), clock.wall()
            self._tell_all(self._book.change_suspicions(puts, deletes, now=now, wall=wall))

    async def _be_there(self, stay: Stay) -> None:
        reason = self._expelled_reason = await stay.run()
        logger.warning("%s: no longer a member: %s", self._name, reason)
        self._put(Expelled(member=self.me, reason=reason))
        # Also a keeper that others use: what hangs on it belonged to this node.
        if self._sessions is not None:
            await self._sessions.close(reason)

    async def _tick(self) -> None:
        clock = self.store.clock
        step_s = self.heartbeat_interval_s / _TICKS_PER_INTERVAL
        while True:
            due_s = clock.monotonic() + step_s
            await asyncio.sleep(step_s)
            now = clock.monotonic()
            self._heartbeat_age_s_max = max(self._heartbeat_age_s_max, self._heartbeat_age_s())
            self._tell_lag(now - due_s)
            self._tell_stale()
            self._book.tick(now=now)
            if self._book.bad_records_count > self._bad_records_told_count:
                self._bad_records_told_count = self._book.bad_records_count
                logger.warning("%s: %d records cannot be read", self._name, self._book.bad_records_count)

    # -- small things

    def _tell_stay(self) -> None:
        if self._stay is not None:
            key = self._keys.node(self._stay.info.id)
            self._stay.hear(self._nodes.items.get(key), revision=self._nodes.revision)

    def _tell_all(self, events: list[MemberEvent]) -> None:
        for event in events:
            self._refuted_count += isinstance(event, MemberRefuted)
            self._downs_count += isinstance(event, MemberDown)
            self._put(event)
        self._changed.wake_all()

    def _put(self, event: MembersEvent) -> None:
        self._feeds.put(event)
        self._changed.wake_all()

    def _joined(self, reason: str) -> None:
        incarnation = self.me.incarnation
        if self._joined_incarnation and incarnation != self._joined_incarnation:
            self._rejoins_count += 1
            logger.warning("%s: %s", self._name, reason)
            self._put(Rejoined(member=self.me, reason=reason))
        self._joined_incarnation = incarnation
        self._changed.wake_all()

    def _tell_lag(self, late_s: float) -> None:
        self._lag_s = max(late_s, 0.0)
        self._lag_s_max = max(self._lag_s_max, self._lag_s)
        if self._lag_s <= self.heartbeat_interval_s:
            self._is_lagging = self._is_lagging and self._lag_s > self.heartbeat_interval_s / 2
        elif not self._is_lagging:
            # Once for each time that the lag begins.
            self._is_lagging = True
            reason = f"the event loop was stuck for {self._lag_s:.1f} s"
            logger.warning("%s: %s", self._name, reason)
            self._put(LoopLagged(lag_s=self._lag_s, reason=reason))

    def _tell_stale(self) -> None:
        if self.is_stale is not self._was_stale:
            self._was_stale = self.is_stale
            logger.warning("%s: the view is %s", self._name, "stale" if self._was_stale else "current again")
            self._changed.wake_all()

    def _heartbeat_age_s(self) -> float:
        session = None if self._stay is None else self._stay.session
        if session is None or not session.is_live:
            return 0.0
        return max(session.ttl_s - session.margin_s - session.remaining_s, 0.0)

    def _silence_s(self) -> float:
        """How long ago the store told anything: news, or an answer to a look or a heartbeat."""
        silence_s = self.store.clock.monotonic() - self._lookout.heard_s
        return min(silence_s, self._heartbeat_age_s()) if self.is_member else silence_s

    def _is_in_view(self) -> bool:
        return self._joined_incarnation > 0 and self.me.id in self.view

    async def _until_so(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._check_open()
            await self._changed.wait()

    def _my_stay(self) -> Stay:
        if self._stay is None:
            raise UsageError(f"{self._name} only looks: give a node to join with")
        return self._stay

    def _check_home(self) -> None:
        if self._home is not None:
            self._home.check()

    def _check_open(self) -> None:
        self._check_home()
        if self._failure is not None:
            raise self._failure
        if not self._is_open:
            raise AlreadyClosed(f"{self._name}: the view is not open")

    def _in_trouble(self, error: HansaError) -> None:
        self._trouble = error
        self._errors_count += 1
        logger.info("%s: the store is read anew: %s", self._name, error)

    def _failed(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            logger.warning("%s: the view ended: %s", self._name, error)
        self._feeds.close()
        self._changed.wake_all()
