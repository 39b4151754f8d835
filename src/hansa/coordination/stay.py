"""One node's stay in a cluster: its record in the store, on a keeper's sessions.

The record has an incarnation, which is higher on each new session: what the node owned on the session before
it no longer owns, also while its old record is still there, and everybody must see that.

It must: put the record again whenever it is gone, overwritten, or its session is lost, with pauses that grow
with each failure and are short again after a success; give up a session when the store no longer has its
lease, and look at the session before each try; when the record is written, forget what it heard of the one
before; wake all waiters whenever the watch or the keeper reports something.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hansa.coordination.following import TROUBLE, patient_backoff
from hansa.coordination.member import SAID, MemberStatus, NodeInfo, NodeRecord, decoded_record
from hansa.coordination.session import Hanging, Session, SessionKeeper
from hansa.errors import BadArgument, Conflict, HansaError, LeaseLost, SessionLost, TimedOut
from hansa.limits import COMMIT_TRIES_MAX, LEAVE_S_MAX, OWN_LEASES_MAX, STORE_TIMEOUT_S
from hansa.runtime.mailboxes import Waiters
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, Get, KeyValue, Put

logger = logging.getLogger(__name__)

DEREGISTERED: Final = "deregistered"


class Stay(Hanging):
    """Puts a node's record into the store, on a keeper's session, and puts it again when it is gone.

    The latest process with an id wins: it overwrites the record of its predecessor, which notices, and stops.
    `takeover=False` raises `Conflict` instead. `run` does all of this; the caller follows the records, and
    calls `hear`. `on_joined` is called after each joining, with the reason.
    """

    def __init__(
        self, keeper: SessionKeeper, info: NodeInfo, *, takeover: bool, on_joined: Callable[[str], None]
    ) -> None:
        if info.status not in SAID:
            raise BadArgument(f"node {info.id} joins as JOINING, UP or DRAINING, not as {info.status}")
        self._keeper = keeper
        self._store = keeper.store
        self._key = keeper.keys.node(info.id)
        self._timeout_s = keeper.try_s_max
        self._takeover = takeover
        self._on_joined = on_joined
        self._backoff = patient_backoff(keeper.environment.chance, self._timeout_s)
        self._record = NodeRecord(info=info)
        # Leases of its last sessions: a record on one of them is its own, even if the answer was lost.
        self._leases: deque[int] = deque(maxlen=OWN_LEASES_MAX)
        self._joined_lease = 0
        self._joined_revision = 0
        # Whether a write is unanswered, and may be in the store, or may still be carried out.
        self._is_in_doubt = False
        # What somebody else did to the record.
        self._gone_reason = ""
        self._expelled_reason = ""
        self._lost_reason = ""
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
        """The incarnation of this stay; 0 before it joined."""
        return self._record.incarnation

    @property
    def session(self) -> Session | None:
        """The live session, if there is one. The node may have one and not be joined yet."""
        return self._keeper.session

    @property
    def is_joined(self) -> bool:
        """Whether its record is in the store, as far as is known here, on a live lease."""
        session = self.session
        return session is not None and session.lease == self._joined_lease and not self._gone_reason

    async def run(self) -> str:
        """Stay until replaced or deregistered; returns the reason. Raises `Conflict`, `AlreadyClosed`.

        It comes back however long the store is away. When it is cancelled or ends, the record stays where it
        is unless `leave` is called: so a caller can tell others the reason before it leaves.
        """
        self._keeper.hang_on(self)
        try:
            reason = "joined"
            while not self._expelled_reason:
                try:
                    await self._join(reason)
                except (*TROUBLE, LeaseLost, SessionLost) as error:
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
        finally:
            self._keeper.let_go(self)

    def session_lost(self, lost: SessionLost) -> None:
        """The record goes with its lease, or is put on another one before that."""
        self._lost_reason = str(lost)
        self._news.wake_all()

    def hear(self, item: KeyValue | None, *, revision: int) -> None:
        """At this revision the record is `item`, or gone. Before the last own write that says nothing new.

        Call it after each read and each change of any node's record: a record that is older than the last own
        write, at a later revision, shows that the store went back.
        """
        if not self._joined_lease or revision <= self._joined_revision:
            return
        if item is not None and item.mod_revision == self._joined_revision:
            return
        record = None if item is None else decoded_record(item)
        if item is None:
            self._gone_reason = "its record was gone"
        elif record is None or item.lease != self._leases[-1]:
            self._judge(item, record, "its record was overwritten")
        elif item.mod_revision < self._joined_revision:
            self._gone_reason = "the store went back to an older record of it"
        elif record.info.status is MemberStatus.LEFT:
            self._expelled_reason = record.reason or DEREGISTERED
        else:
            # An own write whose answer was lost.
            self._settle(record, item.mod_revision)
        self._news.wake_all()

    async def write(self, change: Callable[[NodeInfo], NodeInfo], *, reason: str) -> None:
        """Change what this node says of itself: `change` makes the new info from the last one.

        Writes nothing if nothing changes. Raises what `change` raises, `Conflict` while it is not joined,
        `BadArgument`, `StoreUnavailable` and `TimedOut`: then the change may have been written.
        """
        try:
            async with asyncio.timeout(STORE_TIMEOUT_S), self._writing:
                await self._write(change, reason, self._timeout_s)
        except TimeoutError:
            raise TimedOut(f"node {self.info.id} cannot reach the store") from None

    async def leave(self, reason: str, error: BaseException | None = None) -> None:
        """Write that the node left, in a bounded time. Call it when `run` has ended.

        `error` is the exception that is on its way to the caller: a loss does not wait for the farewell.
        """
        session = self.session
        if session is None or not self.incarnation or self._expelled_reason:
            return
        try:
            timeout_s = min(LEAVE_S_MAX, session.farewell_s(error))
            await self._write(lambda info: replace(info, status=MemberStatus.LEFT), reason, timeout_s)
        except HansaError as trouble:
            self.errors_count += 1
            logger.warning("node %s left unheard: %s", self.info.id, trouble)

    def withdraw_later(self) -> None:
        """Delete the record in the background: for a node that leaves a session which others still use."""
        session = self.session
        if session is not None and (self._joined_lease == session.lease or self._is_in_doubt):
            session.spawn(self._withdraw(session), f"withdraws node {self.info.id}")

    async def _withdraw(self, session: Session) -> None:
        mine = Compare.lease(self._key, "=", session.lease)
        while session.is_live:
            try:
                await self._store.commit([mine], [Delete(self._key)], timeout=self._timeout_s)
                return
            except TROUBLE:
                await asyncio.sleep(self._backoff.next_s())

    async def _until_gone(self) -> str:
        """Wait until the session is lost or the record changed; returns the reason."""
        while self.is_joined and not self._expelled_reason:
            await self._news.wait()
        return self._gone_reason or self._lost_reason

    async def _join(self, reason: str) -> None:
        """Put the record, on a live lease."""
        session = await self._keeper.live()
        async with self._writing:
            if session.lease not in self._leases:
                self._leases.append(session.lease)
            try:
                await self._claim(session, reason)
            except LeaseLost:
                session.end_lost("the store ended the lease")
                raise
        self._keeper.end_former()

    async def _claim(self, session: Session, reason: str) -> None:
        while True:
            session.check()
            scan = await self._store.scan(self._key, b"", timeout=self._timeout_s)
            found = scan.items[0] if scan.items else None
            record = None if found is None else decoded_record(found)
            mine = record if found is not None and self._is_mine(found, record) else None
            if found is not None and mine is None:
                self._judge(found, record, "")
                if self._expelled_reason:
                    return
                if record is not None and record.info.status.is_here and not self._takeover:
                    raise Conflict(f"node {self.info.id} is there already: {record.info.address or 'alive'}")
            wanted = replace(
                self._record, incarnation=scan.revision, joined_at=self._store.clock.wall(), reason=reason
            )
            if found is not None and mine is not None and found.lease == session.lease:
                # The answer was lost, or the last thing it said: on the same session the stay goes on.
                wanted = replace(mine, info=self.info)
            # An absent key has revision 0.
            same = Compare.revision(self._key, "=", 0 if found is None else found.mod_revision)
            put = Put(self._key, wanted.encode(), session.lease)
            outcome = await self._store.commit([same], [put], timeout=self._timeout_s)
            if outcome.is_success:
                self._settle(wanted, outcome.revision)
                self._joined_lease = session.lease
                self._gone_reason = ""
                return
            # Another writer was faster: look again at what is there now.
            await asyncio.sleep(self._backoff.next_s())

    def _is_mine(self, found: KeyValue, record: NodeRecord | None) -> bool:
        """Whether this object put the record, and no rival did: on this session, or on one that was lost."""
        if record is None or not record.info.status.is_here:
            return False
        # The lease shows it when a commit's answer was lost; the incarnation when the lease was lost.
        return found.lease in self._leases or 0 < record.incarnation == self.incarnation

    def _judge(self, found: KeyValue, record: NodeRecord | None, otherwise: str) -> None:
        """Another process wrote the record. The one that came earlier gives way to the later one."""
        if record is None or not self.incarnation or found.lease in self._leases:
            self._gone_reason = otherwise
        elif record.info.status is MemberStatus.LEFT and record.incarnation == self.incarnation:
            self._expelled_reason = record.reason or DEREGISTERED
        elif record.incarnation > self.incarnation and record.info.status.is_here:
            self._expelled_reason = f"replaced by a newer process (incarnation {record.incarnation})"
        else:
            self._gone_reason = otherwise

    async def _write(self, change: Callable[[NodeInfo], NodeInfo], reason: str, timeout_s: float) -> None:
        """Overwrite only the last own write: an older one that is on its way must not arrive later."""
        for _ in range(COMMIT_TRIES_MAX):
            session = self.session
            if self._expelled_reason:
                raise Conflict(f"node {self.info.id} is no longer a member: {self._expelled_reason}")
            if session is None or not self.incarnation:
                raise Conflict(f"node {self.info.id} is not joined now: try again")
            # Built again in each try, from what is known by now: the incarnation may have changed too.
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
                # Joining again, when the session is lost, must not wait for this.
                timeout=min(timeout_s, session.remaining_s),
            )
            if outcome.is_success:
                self._settle(record, outcome.revision)
                return
            found = outcome.items
            if not found or found[0].lease != session.lease:
                break
            # Either an own write whose answer was lost, or the store has forgotten the last one.
            self.hear(found[0], revision=outcome.revision)
            if self._gone_reason:
                break
        raise Conflict(f"node {self.info.id}: its record is gone or somebody else's")

    def _settle(self, record: NodeRecord, revision: int) -> None:
        """Remember what the store has: a write over anything older is refused from now on."""
        self._record, self._joined_revision, self._is_in_doubt = record, revision, False


async def deregister(store: Store, key: bytes, what: str) -> bool:
    """Remove a node's record at once, whoever put it; returns whether it was there. See `NodeRegistry`."""
    for _ in range(COMMIT_TRIES_MAX):
        found = await store.get(key, timeout=STORE_TIMEOUT_S)
        if found is None:
            return False
        same = Compare.revision(key, "=", found.mod_revision)
        if (record := decoded_record(found)) is None:
            logger.warning("%s: a record that nobody can read is removed", what)
        else:
            try:
                # First put LEFT, so that everybody knows that the end is not a mistake.
                word = record.saying(MemberStatus.LEFT, DEREGISTERED).encode()
                outcome = await store.commit([same], [Put(key, word, found.lease)])
            except LeaseLost:
                return True
            if not outcome.is_success:
                continue
            same = Compare.revision(key, "=", outcome.revision)
        # The lease belongs to the process, which ends it when it hears of this.
        await store.commit([same], [Delete(key)])
        return True
    raise Conflict(f"{what}: its record changed {COMMIT_TRIES_MAX} times while it was removed")
