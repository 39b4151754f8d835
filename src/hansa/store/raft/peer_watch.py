"""What a peer does while its member runs: looks at it, reports what changed, serves the group if it leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from hansa.clock import Clock
from hansa.errors import HansaError, StoreUnavailable
from hansa.store.etcd import api_pb2 as api
from hansa.store.raft.group import Group, GroupBook, Measures, MemberCalls, fetch_measures
from hansa.store.raft.group_record import Approval, Bootstrap, Charter, GroupRecord, PeerInfo
from hansa.store.raft.raft_events import (
    GroupStatus,
    JoinAccepted,
    JoinApproved,
    JoinExpired,
    JoinRequestRefused,
    LeaderChanged,
    RaftEvent,
    RaftPeerJoined,
    RaftPeerLeft,
    RaftStats,
    SnapshotTaken,
)
from hansa.store.raft.steward import Steward

_log = logging.getLogger(__name__)
# Steps of the steward in one look; the rest wait for the next look, so that it can do its other work.
_STEPS_MAX = 20


class PeerWatch:
    """The watch of one peer, from when its member has its place in the group. `run` it in a task."""

    def __init__(
        self,
        me: PeerInfo,
        group: Group,
        *,
        clock: Clock,
        tell: Callable[[RaftEvent], None],
        on_ready: Callable[[], None],
        figures: Callable[[], RaftStats],
        charter: Charter,
        look_s: float,
        measure_s: float,
        patience_s: float,
        join_timeout_s: float,
        approval_timeout_s: float,
    ) -> None:
        self.me = me
        self.stats = RaftStats()
        self.record = GroupRecord(app=group.app)
        self.leader_name = ""
        self.is_leading = False
        # Set when the group no longer has this peer.
        self.removed = asyncio.Event()
        self.app = group.app
        self.group = group
        self._clock = clock
        self._tell_on = tell
        self._on_ready = on_ready
        self._figures = figures
        self._charter = charter
        self._look_s = look_s
        self._measure_s = measure_s
        self._kicked = asyncio.Event()
        # The leader and term that were noticed last, and the last leader that was not 0.
        self._leader = (0, 0)
        self._leader_before = 0
        self._measures: Measures | None = None
        self._measured_at = clock.monotonic()
        self.steward = Steward(
            group,
            clock,
            self._tell,
            patience_s=patience_s,
            join_timeout_s=join_timeout_s,
            approval_timeout_s=approval_timeout_s,
        )

    def kick(self) -> None:
        """Wake the watch: there is something to do for the steward."""
        self._kicked.set()

    async def leader_join_address(self) -> str:
        """The join address of the leader's peer; empty when this peer is the leader's.

        Raises `StoreUnavailable` when nobody leads, or the leader's peer is not known yet.
        """
        status = await self.group.local.status()
        if status.leader == status.header.member_id:
            return ""
        if not status.leader:
            raise StoreUnavailable(
                f"{self.app} has no leader: an election, or too many of its peers are away"
            )
        book = await self.group.book()
        leader = next((peer for peer in book.record.peers if peer.peer_id == status.leader), None)
        if leader is None:
            raise StoreUnavailable(f"{self.app} has no leader whose peer is known; ask again")
        return leader.join_address

    async def status(self) -> GroupStatus:
        """The group as this peer sees it, with this peer's own numbers. Raises what a call raises."""
        return replace(await self.group.status(), asked=self.me.name, stats=self._figures())

    # See `Steward` for these.

    async def remove(self, name: str) -> str:
        return await self.steward.remove(name, self.me.name)

    async def approve(self, name: str) -> None:
        await self.steward.approve(name)
        self.kick()

    async def refuse(self, name: str, reason: str) -> None:
        await self.steward.refuse(name, reason)

    async def set_approval(self, approval: Approval) -> None:
        await self.steward.set_approval(approval)
        self.kick()

    def refused(self, name: str, code: str, reason: str) -> None:
        """Report that a request was refused before it was written."""
        self._tell(JoinRequestRefused(name=name, code=code, reason=reason))

    async def run(self) -> None:
        """Look again and again, until cancelled or removed from the group."""
        while not self.removed.is_set():
            try:
                await self._look()
            except HansaError:
                self.stats = replace(self.stats, looks_failed_count=self.stats.looks_failed_count + 1)
                await self._check_removed()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._look_s):
                    await self._kicked.wait()
            self._kicked.clear()

    async def _look(self) -> None:
        try:
            status = await self.group.local.status()
        except HansaError:
            self._notice_leader(0, self._leader[1], is_own=False)
            raise
        self._on_ready()
        self.stats = replace(self.stats, term=status.raftTerm, db_bytes=status.dbSize)
        if not status.leader:
            # Reported before the book is read, which then fails.
            self._notice_leader(0, status.raftTerm, is_own=False)
        book = await self.group.book()
        await self._register(status, book)
        self._compare_records(book.record)
        await self._follow_leader(status)
        if self.is_leading:
            for _ in range(_STEPS_MAX):
                if not await self.steward.turn():
                    break
        await self._measure()

    async def _follow_leader(self, status: api.StatusResponse) -> None:
        """Notice the leader, from a status that was requested before the book."""
        if (status.leader, status.raftTerm) != self._leader:
            # A member knows a new leader before its term. After reading the book, which a leader confirmed,
            # it knows both; if the leader has changed once more, the next look reports it.
            later = await self.group.local.status()
            if later.leader != status.leader:
                return
            status = later
        is_own = status.leader == status.header.member_id
        self._notice_leader(status.leader, status.raftTerm, is_own=is_own)

    def _notice_leader(self, leader: int, term: int, *, is_own: bool) -> None:
        """Report this leader (0: its own member knows of none), if it is new."""
        if self.is_leading and not is_own:
            self.steward.forget()
        self.is_leading = is_own
        name = next((peer.name for peer in self.record.peers if peer.peer_id == leader), "")
        # A leader whose record is still to come is reported when it has come.
        if (leader, term) == self._leader and name == self.leader_name:
            return
        if leader and leader != self._leader_before:
            self._leader_before = leader
            self.stats = replace(self.stats, leader_changes_count=self.stats.leader_changes_count + 1)
        self._leader, self.leader_name = (leader, term), name
        if name or not leader:
            self._tell(LeaderChanged(leader=name, term=term))

    async def _register(self, status: api.StatusResponse, book: GroupBook) -> None:
        """Put this peer's current data into the record, if it has a vote."""
        if self.me.peer_id != status.header.member_id:
            self.me = replace(self.me, peer_id=status.header.member_id)
        me = self.me
        if status.isLearner or (book.record.group_id and book.record.peer(me.name) == me):
            return
        if book.record.group_id:
            await self.group.change_record(
                lambda record: None if record.peer(me.name) == me else record.with_peer(me)
            )
        else:
            await self._begin(status, book)
        # The next look sees it.
        self._kicked.set()

    async def _begin(self, status: api.StatusResponse, book: GroupBook) -> None:
        """Write the settings of the whole group, unless another peer does so at this moment."""
        group_id = f"{status.header.cluster_id:x}"
        record = self._charter.begun(book.record.with_peer(self.me), group_id)
        # Without founders the group is older than such records: its peers are all that is known.
        founders = self._charter.founders or {peer.name: peer.peer_address for peer in record.peers}
        bootstrap = Bootstrap(
            app=self.app,
            group_id=group_id,
            # A peer that begins alone may have been given no port.
            founders={**founders, self.me.name: self.me.peer_address},
            began_by=self.me.name,
            began_at=self._clock.wall(),
            etcd_version=status.version,
        )
        await self.group.begin(book, record, bootstrap)

    def _compare_records(self, record: GroupRecord) -> None:
        before = {peer.name: peer for peer in self.record.peers}
        after = {peer.name: peer for peer in record.peers}
        differing = self._charter.misfit(record.resource_group, record.approval)
        if differing and record.group_id and not self.record.group_id:
            _log.warning("%s: %s; a peer's setting counts when a group begins", self.app, differing)
        self.record = record
        for name in sorted(set(after) - set(before)):
            self._tell(RaftPeerJoined(peer=after[name]))
        for name in sorted(set(before) - set(after)):
            self._tell(RaftPeerLeft(peer=before[name]))

    async def _measure(self) -> None:
        now = self._clock.monotonic()
        if now - self._measured_at < self._measure_s and self._measures is not None:
            return
        self._measured_at = now
        try:
            found = await fetch_measures(self.me.client_address)
        except StoreUnavailable:
            return
        before, self._measures = self._measures or Measures(), found
        count, seconds = _more(
            (before.snapshots_count, before.snapshots_s), (found.snapshots_count, found.snapshots_s)
        )
        received_count, received_s = _more(
            (before.received_count, before.received_s), (found.received_count, found.received_s)
        )
        if received_count:
            self.stats = replace(
                self.stats,
                snapshots_received_count=self.stats.snapshots_received_count + received_count,
                snapshot_received_s=received_s / received_count,
            )
        if count:
            self.stats = replace(
                self.stats,
                snapshots_count=self.stats.snapshots_count + count,
                snapshot_s=seconds / count,
                snapshot_bytes=self.stats.db_bytes,
            )
            self._tell(SnapshotTaken(count=count, seconds=seconds, db_bytes=self.stats.db_bytes))

    async def _check_removed(self) -> None:
        """Ask the others whether this peer is still a member; only their agreed list counts."""
        for peer in self.record.peers:
            if peer.name == self.me.name or self.me.peer_id == 0:
                continue
            timings = self.group.local.timings
            other = MemberCalls(peer.client_address, timings)
            try:
                members = await other.members(timeout_s=timings.rpc_timeout)
            except HansaError:
                continue
            finally:
                await other.close()
            if all(member.peer_id != self.me.peer_id for member in members):
                self.removed.set()
            return

    def _tell(self, event: RaftEvent) -> None:
        stats = self.stats
        if isinstance(event, JoinAccepted):
            self.stats = replace(
                stats, joins_accepted_count=stats.joins_accepted_count + 1, join_accept_s=event.accept_s
            )
        elif isinstance(event, JoinApproved):
            self.stats = replace(
                stats, joins_approved_count=stats.joins_approved_count + 1, join_approval_s=event.approval_s
            )
        elif isinstance(event, JoinRequestRefused):
            refusals = {**stats.refusals, event.code: stats.refusals.get(event.code, 0) + 1}
            self.stats = replace(stats, joins_refused_count=stats.joins_refused_count + 1, refusals=refusals)
        elif isinstance(event, JoinExpired):
            self.stats = replace(stats, joins_expired_count=stats.joins_expired_count + 1)
        self._tell_on(event)


def _more(before: tuple[int, float], found: tuple[int, float]) -> tuple[int, float]:
    """How many there were since `before`, and their seconds. A restarted process counts from zero."""
    count, seconds = found[0] - before[0], found[1] - before[1]
    return found if count < 0 else (count, seconds)
