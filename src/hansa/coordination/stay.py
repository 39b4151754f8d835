"""One node's stay in a cluster: its record in the store, on a lease, for as long as it wants to be there.

It must: put the record again whenever it is gone, overwritten, or its session is lost, with pauses that grow
with each failure and begin anew after a success; give up a session whose lease the store has no more, and
look at the session before each try; end a lost session's lease only when the record is off it; forget, when
the record is written, what it heard of the one before; wake whoever waits at each word of the watch and at
the session's loss.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hansa.chance import Chance
from hansa.coordination.node_info import SAID, MemberStatus, NodeInfo, NodeRecord
from hansa.coordination.session import Session
from hansa.errors import (
    BadArgument,
    BadRecord,
    Conflict,
    HansaError,
    LeaseLost,
    SessionLost,
    StoreUnavailable,
    TimedOut,
)
from hansa.keys import Keys
from hansa.limits import (
    COMMIT_TRIES_MAX,
    FOLLOW_RETRY_S_MAX,
    FOLLOW_RETRY_S_MIN,
    LEAVE_S_MAX,
    OWN_LEASES_MAX,
    RECONNECT_JITTER,
    STORE_TIMEOUT_S,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.mailboxes import Waiters
from hansa.store.store import Store
from hansa.store.values import Compare, Get, GetResult, KeyValue, Put

logger = logging.getLogger(__name__)

DEREGISTERED: Final = "deregistered"
_TRIES_PER_LEASE: Final = 4


class Stay:
    """Puts a node's record into the store, keeps its lease, and puts it there again when it is gone.

    The latest process with an id wins: it writes its own record over that of its predecessor, who notices,
    and stops. `takeover=False` refuses instead, with `Conflict`. `run` is the whole of it; who follows the
    records calls `hear`. `on_joined` is called after each joining, with the reason.
    """

    def __init__(
        self,
        store: Store,
        info: NodeInfo,
        *,
        keys: Keys,
        ttl_s: float,
        interval_s: float | None,
        loop_silence_s_max: float | None,
        takeover: bool,
        chance: Chance,
        on_joined: Callable[[str], None],
    ) -> None:
        if info.status not in SAID:
            raise BadArgument(f"node {info.id} joins as JOINING, UP or DRAINING, not as {info.status}")
        self._store = store
        self._keys = keys
        self._key = keys.node(info.id)
        self._ttl_s = ttl_s
        # One lost answer must not cost the lease.
        self._timeout_s = min(STORE_TIMEOUT_S, ttl_s / _TRIES_PER_LEASE)
        self._interval_s = interval_s
        self._loop_silence_s_max = loop_silence_s_max
        self._takeover = takeover
        self._on_joined = on_joined
        self._backoff = Backoff(
            s_min=FOLLOW_RETRY_S_MIN,
            s_max=min(FOLLOW_RETRY_S_MAX, self._timeout_s),
            jitter=RECONNECT_JITTER,
            chance=chance,
        )
        self._record = NodeRecord(info=info)
        self._session: Session | None = None
        # A lease that was lost and may still be there: the record is taken off it before it is ended.
        self._former: Session | None = None
        # Of its last sessions: what stands on one of these is its own, whatever became of the answer.
        self._leases: deque[int] = deque(maxlen=OWN_LEASES_MAX)
        self._joined_lease = 0
        self._joined_revision = 0
        # Whether a write is unanswered, that may be in the store or come to be.
        self._is_in_doubt = False
        # What became of the record behind our back.
        self._gone_reason = ""
        self._expelled_reason = ""
        self._news = Waiters()
        self._writing = asyncio.Lock()
        self.joins_count = 0
        self.errors_count = 0
        self.last_error: HansaError | None = None

    @property
    def info(self) -> NodeInfo:
        """What this node says of itself."""
        return self._record.info

    @property
    def incarnation(self) -> int:
        """0 before it joined."""
        return self._record.incarnation

    @property
    def session(self) -> Session | None:
        """None while it has no lease. It may have one and not be joined yet."""
        return self._session

    @property
    def is_joined(self) -> bool:
        """Whether its record is in the store, as far as is known here, on a lease that lives."""
        session = self._session
        is_on_it = session is not None and session.lease == self._joined_lease and session.is_live
        return is_on_it and not self._gone_reason

    async def run(self) -> str:
        """Stay until replaced or deregistered; gives the reason. Raises `Conflict`, `AlreadyClosed`.

        However long the store is away, it comes back. Cancelled or at its end it leaves the lease to end by
        itself, unless `leave` is called: whoever is given the reason tells it before that.
        """
        reason = "joined"
        while not self._expelled_reason:
            try:
                await self._join(reason)
            except Conflict:
                await self._close_sessions()
                raise
            except (StoreUnavailable, TimedOut, LeaseLost, SessionLost) as error:
                self.errors_count += 1
                self.last_error = error
                logger.debug("node %s cannot join: %s", self.info.id, error)
                await asyncio.sleep(self._backoff.next_s())
                continue
            if self._expelled_reason:
                break
            self._backoff.reset()
            self.joins_count += 1
            self._on_joined(reason)
            reason = f"joined again: {await self._until_gone()}"
        return self._expelled_reason

    def hear(self, item: KeyValue | None, *, revision: int) -> None:
        """At this revision the record is this, or gone. Before our own last write that says nothing new.

        Call it after each read and each change of the records, whichever changed: a record that is older than
        our last write, at a later revision, is how one sees that the store went back.
        """
        if self._session is None or revision <= self._joined_revision:
            return
        if item is not None and item.mod_revision == self._joined_revision:
            return
        record = None if item is None else _decoded(item)
        if item is None:
            self._gone_reason = "its record was gone"
        elif record is None or item.lease != self._session.lease:
            self._judge(item, record, "its record was overwritten")
        elif item.mod_revision < self._joined_revision:
            self._gone_reason = "the store went back to an older record of it"
        elif record.info.status is MemberStatus.LEFT:
            self._expelled_reason = record.reason or DEREGISTERED
        else:
            # A write of ours of which no answer came.
            self._settle(record, item.mod_revision)
        self._news.wake_all()

    async def write(self, change: Callable[[NodeInfo], NodeInfo], *, reason: str) -> None:
        """Say something else of this node: `change` gives it, of what was said last. Nothing new is not said.

        Raises what `change` raises, `Conflict` while it is not joined, `BadArgument`, `StoreUnavailable` and
        `TimedOut`: then it may have been said.
        """
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S), self._writing:
                await self._write(change, reason, self._timeout_s)
        except TimeoutError:
            raise TimedOut(f"node {self.info.id} cannot reach the store") from None

    async def leave(self, reason: str, error: BaseException | None = None) -> None:
        """Say that it left, and end the lease, in a bounded time. Call it when `run` has ended.

        `error` is what is on its way to the caller: a loss waits for nobody to hear the farewell.
        """
        session = self._session
        if session is not None and session.is_live and self.incarnation and not self._expelled_reason:
            try:
                timeout_s = min(LEAVE_S_MAX, session.farewell_s(error))
                await self._write(lambda info: replace(info, status=MemberStatus.LEFT), reason, timeout_s)
            except HansaError as trouble:
                self.errors_count += 1
                logger.warning("node %s left unheard: %s", self.info.id, trouble)
        await self._close_sessions(error)

    async def abandon(self) -> None:
        """Renew no more, and wait until that is so; the lease ends by itself."""
        sessions = [session for session in (self._session, self._former) if session is not None]
        self._session = self._former = None
        # First all of them, so that nothing is renewed any more should this be cancelled.
        for session in sessions:
            session.end_lost("left to end by itself")
        for session in sessions:
            await session.ended()

    async def _until_gone(self) -> str:
        """Wait until the session is lost or the record changed; gives the reason."""
        session = self._session
        if session is None:
            return ""
        while session.is_live and not self._gone_reason and not self._expelled_reason:
            await self._news.wait()
        reason = self._gone_reason
        if not session.is_live:
            reason = str(await session.lost())
            self._session, self._former = None, session
        return reason

    async def _join(self, reason: str) -> None:
        """Put the record, on a live lease. A session that was lost is ended only after that."""
        async with self._writing:
            if self._session is None:
                session = Session(
                    self._store,
                    self._ttl_s,
                    cluster=self._keys.cluster,
                    name=f"member {self.info.id}",
                    renew_interval_s=self._interval_s,
                    loop_silence_s_max=self._loop_silence_s_max,
                )
                try:
                    async with asyncio.timeout(self._timeout_s):
                        self._session = await session.__aenter__()
                    self._leases.append(session.lease)
                except TimeoutError:
                    raise TimedOut(f"node {self.info.id} was given no lease") from None
                session.spawn(self._tell_loss(session), "telling of its loss")
            try:
                await self._claim(self._session, reason)
            except (LeaseLost, SessionLost):
                await _close(self._session)
                self._session = None
                raise
            former, self._former = self._former, None
        if former is not None:
            await _close(former)
            # The store answers again, and may have heard more renewals of it than it could answer.
            await former.end_lease(LEAVE_S_MAX)

    async def _claim(self, session: Session, reason: str) -> None:
        while True:
            session.check()
            scan = await self._store.scan(self._key, b"", timeout=self._timeout_s)
            found = scan.items[0] if scan.items else None
            record = None if found is None else _decoded(found)
            mine = record if found is not None and self._is_mine(found, record) else None
            if found is not None and mine is None:
                self._judge(found, record, "")
                if self._expelled_reason:
                    return
                if record is not None and record.info.status.is_here and not self._takeover:
                    raise Conflict(f"node {self.info.id} is there already: {record.info.address or 'alive'}")
            wanted = replace(
                self._record,
                incarnation=scan.revision if mine is None else mine.incarnation,
                joined_at=self._store.clock.wall() if mine is None else mine.joined_at,
                reason=reason if mine is None else mine.reason,
            )
            compare = (
                Compare.absent(self._key)
                if found is None
                else Compare.revision(self._key, "=", found.mod_revision)
            )
            outcome = await self._store.commit(
                [compare], [Put(self._key, wanted.encode(), session.lease)], timeout=self._timeout_s
            )
            if outcome.is_success:
                self._settle(wanted, outcome.revision)
                self._joined_lease = session.lease
                self._gone_reason = ""
                return
            # Somebody was faster: look again at what is there now.
            await asyncio.sleep(self._backoff.next_s())

    def _is_mine(self, found: KeyValue, record: NodeRecord | None) -> bool:
        """Whether it is of this stay: it goes on, and nobody is told of another one."""
        if record is None or not record.info.status.is_here:
            return False
        # By a lease of its own, when the answer to a commit was lost; by the incarnation, when the lease was.
        return found.lease in self._leases or 0 < record.incarnation == self.incarnation

    def _judge(self, found: KeyValue, record: NodeRecord | None, otherwise: str) -> None:
        """Somebody else wrote the record. Whoever came before gives way to who came later."""
        if record is None or not self.incarnation or found.lease in self._leases:
            self._gone_reason = otherwise
        elif record.info.status is MemberStatus.LEFT and record.incarnation == self.incarnation:
            self._expelled_reason = record.reason or DEREGISTERED
        elif record.incarnation > self.incarnation and record.info.status.is_here:
            self._expelled_reason = f"replaced by a newer process (incarnation {record.incarnation})"
        else:
            self._gone_reason = otherwise

    async def _write(self, change: Callable[[NodeInfo], NodeInfo], reason: str, timeout_s: float) -> None:
        """Write over our own last write and nothing else: one that is still under way must not come later."""
        for _ in range(COMMIT_TRIES_MAX):
            session = self._session
            if self._expelled_reason:
                raise Conflict(f"node {self.info.id} is a member no more: {self._expelled_reason}")
            if session is None or not session.is_live or not self.incarnation:
                raise Conflict(f"node {self.info.id} is not joined now: try again")
            # Each time anew, from what is known by now: also its incarnation may be another one.
            record = replace(self._record, info=change(self.info), reason=reason)
            if record.info == self.info and not self._is_in_doubt:
                return
            value, self._is_in_doubt = record.encode(), True
            outcome = await self._store.commit(
                [
                    Compare.lease(self._key, "=", session.lease),
                    Compare.revision(self._key, "=", self._joined_revision),
                ],
                [Put(self._key, value, session.lease)],
                [Get(self._key)],
                # Whoever joins again, because the session is lost, does not wait for this.
                timeout=min(timeout_s, session.remaining_s),
            )
            if outcome.is_success:
                self._settle(record, outcome.revision)
                return
            found = [item for read in outcome.results if isinstance(read, GetResult) for item in read.items]
            if not found or found[0].lease != session.lease:
                break
            # A write of ours of which no answer came; or the store has forgotten the last one.
            self.hear(found[0], revision=outcome.revision)
            if self._gone_reason:
                break
        raise Conflict(f"node {self.info.id}: its record is gone or somebody else's")

    def _settle(self, record: NodeRecord, revision: int) -> None:
        """This is what the store has: what was written over anything older is refused from now on."""
        self._record, self._joined_revision, self._is_in_doubt = record, revision, False

    async def _close_sessions(self, error: BaseException | None = None) -> None:
        # Known until it is closed: whoever is cancelled here abandons what is left.
        if self._session is not None:
            await _close(self._session, error)
            self._session = None
        if self._former is not None:
            await _close(self._former)
            self._former = None

    async def _tell_loss(self, session: Session) -> None:
        await session.lost()
        self._news.wake_all()


async def _close(session: Session, error: BaseException | None = None) -> None:
    await session.__aexit__(None if error is None else type(error), error, None)


def _decoded(item: KeyValue) -> NodeRecord | None:
    """None for a record that nobody can read: whoever wrote it, a node that joins writes over it."""
    try:
        return NodeRecord.decode(item.value)
    except BadRecord:
        return None
