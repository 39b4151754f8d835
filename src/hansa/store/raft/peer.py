"""A peer of a raft group: an etcd member under supervision, the join API, and the store that they keep."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, Self

from hansa.errors import AlreadyClosed, BadArgument, HansaError, JoinRefused, RaftRefused, TimedOut
from hansa.limits import (
    EVENTS_COUNT_MAX,
    RAFT_APPROVAL_TIMEOUT_S,
    RAFT_HEALTH_PATIENCE_S,
    RAFT_JOIN_TIMEOUT_S,
    RAFT_LOOK_S,
    RAFT_MEASURE_S,
    RAFT_RESTART_JITTER,
    RAFT_RESTART_S_MAX,
    RAFT_RESTART_S_MIN,
    RAFT_START_S_MAX,
    RAFT_STOP_S_MAX,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.mailboxes import EventFeeds, EventStream
from hansa.runtime.tasks import Closing, TaskScope
from hansa.store.raft.etcd_program import (
    MemberSettings,
    RaftTimings,
    arguments,
    check_seconds,
    environment,
    find_etcd,
    listening,
    read_listen_host,
)
from hansa.store.raft.group import Group, MemberCalls, MemberPool
from hansa.store.raft.group_record import (
    Charter,
    PeerInfo,
    check_name,
    read_address,
    read_approval,
    read_founders,
)
from hansa.store.raft.join_client import JoinClient
from hansa.store.raft.join_messages import JoinAcceptance, misfit
from hansa.store.raft.join_service import JoinService
from hansa.store.raft.member_process import REMOVED, MemberProcess, Report, Supervision
from hansa.store.raft.peer_home import FolderState, PeerHome
from hansa.store.raft.peer_watch import PeerWatch
from hansa.store.raft.raft_events import (
    ApprovalAwaited,
    CatchingUp,
    GroupStatus,
    JoinAccepted,
    MemberFailing,
    MemberRestarted,
    RaftEvent,
    RaftPeerLeft,
    RaftStats,
)
from hansa.store.raft.raft_store import MemberAddresses, RaftStore
from hansa.transport.environment import Environment

_log = logging.getLogger(__name__)
_LOOK_S: Final = 0.05


class RaftPeer:
    """One peer of an application's raft group. Use it with `async with`.

    A group begins with `peers`, the same at each peer: the name and peer address of all. Later peers `join`
    through the join addresses of some that run. A peer whose folder holds a member's data continues with it,
    whatever else is given. Port 0 takes any free port, and the folder remembers which.

    `approval` ("automatic", or "manual": a person lets peers join) and `resource_group` (what the application
    works on) belong to the group: it takes them from the peers that it begins with. A peer that joins gives
    none, or the same.

    Entering returns when the group has a leader and, if the peer joins, when it has its vote. It raises
    `RaftRefused` (the program, the folder, or an etcd that does not start, with the end of its log),
    `JoinRefused`, `TimedOut`, `BadArgument`; then nothing is left running. Leaving the block ends the member;
    the group goes on with the others, and `leave` is what takes it out of the group.

    Its three ports trust whoever can reach them: no encryption, no login, whatever credentials `environment`
    has. For an address with an IP it listens at that IP alone, for one with a name at all IPs of the machine,
    unless `listen_host` says where.
    """

    def __init__(
        self,
        app: str,
        name: str,
        *,
        data: Path | str,
        peers: Mapping[str, str] | None = None,
        join: Sequence[str] = (),
        peer_address: str = "127.0.0.1:0",
        client_address: str = "",
        join_address: str = "",
        listen_host: str = "",
        cluster: str = "default",
        resource_group: str = "",
        approval: str | None = None,
        zone: str = "",
        roles: Sequence[str] = (),
        metadata: Mapping[str, str] | None = None,
        program: str | None = None,
        timings: RaftTimings | None = None,
        join_timeout: float = RAFT_JOIN_TIMEOUT_S,
        approval_timeout: float = RAFT_APPROVAL_TIMEOUT_S,
        start_timeout: float = RAFT_START_S_MAX,
        stop_timeout: float = RAFT_STOP_S_MAX,
        look_interval: float = RAFT_LOOK_S,
        measure_interval: float = RAFT_MEASURE_S,
        patience: float = RAFT_HEALTH_PATIENCE_S,
        environment: Environment | None = None,
    ) -> None:
        self.app = check_name("application", app)
        self.name = check_name("peer", name)
        self.cluster = check_name("cluster", cluster)
        self._peers = read_founders(name, peers) if peers else {}
        if peers and join:
            raise BadArgument("a group begins with `peers`, or is joined through `join`: give one of them")
        peer_address = self._peers.get(name, peer_address)
        host = peer_address.rpartition(":")[0]
        self._wanted = PeerInfo(
            name=name,
            peer_address=read_address("the peer address", peer_address, any_port=True),
            client_address=read_address("the client address", client_address or f"{host}:0", any_port=True),
            join_address=read_address("the join address", join_address or f"{host}:0", any_port=True),
            zone=zone,
            roles=tuple(sorted(roles)),
            metadata=dict(metadata or {}),
        )
        self._join_through = tuple(join)
        self._listen_host = listen_host = read_listen_host(listen_host)
        self._program = program
        self._timings = timings or RaftTimings()
        self._charter = Charter(
            founders=self._peers,
            resource_group=check_name("resource group", resource_group) if resource_group else "",
            approval=None if approval is None else read_approval(approval),
        )
        self._join_timeout_s = check_seconds("join_timeout", join_timeout)
        self._approval_timeout_s = check_seconds("approval_timeout", approval_timeout)
        self._start_timeout_s = start_timeout
        self._stop_timeout_s = stop_timeout
        self._look_s = look_interval
        self._measure_s = measure_interval
        self._patience_s = patience
        self._environment = environment = environment or Environment()
        self._clock, self._chance = environment.clock, environment.chance
        self._home = PeerHome(app, cluster, self._wanted, Path(data), listen_host)
        self._feeds: EventFeeds[RaftEvent] = EventFeeds(
            f"the events of raft peer {name}", count_max=EVENTS_COUNT_MAX
        )
        self._join_sync_s = 0.0
        self._join_snapshot_bytes = 0
        self._store: RaftStore | None = None
        self._stack: AsyncExitStack | None = None
        self._closing = Closing()
        self._process: MemberProcess | None = None
        self._watch: PeerWatch | None = None
        self._was_left = asyncio.Event()

    # ---- what it is ----------------------------------------------------------------------------

    @property
    def info(self) -> PeerInfo:
        """This peer, with its real addresses once it has started."""
        return self._watch.me if self._watch is not None else self._wanted

    @property
    def peers(self) -> tuple[PeerInfo, ...]:
        """The peers that had a vote at the last look."""
        return () if self._watch is None else self._watch.record.peers

    @property
    def store(self) -> RaftStore:
        """The group's store. It begins at the peer's own member, and uses others when that one fails.

        It is closed with the peer.
        """
        if self._store is None:
            raise AlreadyClosed(f"the raft peer {self.name} is not running")
        return self._store

    @property
    def is_leading(self) -> bool:
        """Whether its member led the group at the last look."""
        return self._watch is not None and self._watch.is_leading

    @property
    def is_left(self) -> bool:
        """Whether the group no longer has this peer; then its folder is of no use."""
        return self._was_left.is_set()

    @property
    def pid(self) -> int | None:
        """The process id of its etcd; None while it is not running."""
        return None if self._process is None else self._process.pid

    @property
    def stats(self) -> RaftStats:
        stats = RaftStats() if self._watch is None else self._watch.stats
        return replace(
            stats,
            restarts_count=0 if self._process is None else self._process.restarts_count,
            join_sync_s=self._join_sync_s,
            join_snapshot_bytes=self._join_snapshot_bytes,
            events_dropped_count=self._feeds.dropped_count,
        )

    def events(self) -> EventStream[RaftEvent]:
        """All events from now on, as this peer sees them. Also before entering."""
        return self._feeds.open()

    async def status(self) -> GroupStatus:
        """The state of the whole group; asks each member.

        Raises `StoreUnavailable`, `TimedOut`, `AlreadyClosed`.
        """
        return await self._running().status()

    async def wait_left(self) -> None:
        """Wait until the group no longer has this peer: it left, or was removed."""
        await self._was_left.wait()

    async def leave(self, *, timeout: float = 30.0) -> None:
        """Take this peer out of the group, for good; hands leadership over first if it leads.

        Raises `RaftRefused` when the others would not keep a quorum that answers: then nothing has changed.
        After a cancellation or a timeout, it may be out or not.
        """
        watch = self._running()
        async with self._client(watch) as client:
            await client.leave(self.name, timeout=timeout)
        watch.removed.set()
        await self._was_left.wait()

    async def approve(self, name: str, *, timeout: float = 30.0) -> None:
        """See `JoinClient.approve`; any peer of the group may be asked."""
        async with self._client(self._running()) as client:
            await client.approve(name, timeout=timeout)

    async def refuse(self, name: str, reason: str, *, timeout: float = 30.0) -> None:
        """See `JoinClient.refuse`."""
        async with self._client(self._running()) as client:
            await client.refuse(name, reason, timeout=timeout)

    def _client(self, watch: PeerWatch) -> JoinClient:
        """A client that asks this peer first; the others in case its own member is silent."""
        others = (peer.join_address for peer in watch.record.peers if peer.name != self.name)
        return JoinClient(self.app, [watch.me.join_address, *others], environment=self._environment)

    # ---- its life ------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._stack is not None:
            raise AlreadyClosed(f"the raft peer {self.name} was started before: make another one")
        stack = self._stack = AsyncExitStack()
        try:
            await self._start(stack)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop its member of the group, which keeps its place and its data. Closing twice does no harm."""
        await self._closing.once(self._close)

    async def _close(self) -> None:
        if self._stack is not None:
            await self._stack.aclose()
        self._feeds.close()

    async def _start(self, stack: AsyncExitStack) -> None:
        program = await find_etcd(self._program)
        stack.callback(self._home.close)
        me = self._home.open(is_founder=bool(self._peers), is_joiner=bool(self._join_through))
        scope = TaskScope(f"raft peer {self.name}", self._failed)
        stack.push_async_callback(scope.close)
        service = JoinService(
            self.app,
            clock=self._clock,
            join_timeout_s=self._join_timeout_s,
            approval_timeout_s=self._approval_timeout_s,
        )
        await service.start(listening(me.join_address, self._listen_host))
        stack.push_async_callback(service.close)
        local, pool = MemberCalls(me.client_address, self._timings), MemberPool(self._timings)
        stack.push_async_callback(local.close)
        stack.push_async_callback(pool.close)
        group = Group(self.app, self.cluster, local, pool)
        settings = MemberSettings(
            program=program.path,
            name=self.name,
            folder=str(self._home.folder.member_path),
            token=f"hansa-{self.cluster}-{self.app}",
            peer_address=me.peer_address,
            client_address=me.client_address,
            initial_cluster={**self._peers, self.name: me.peer_address},
            is_new_group=True,
            listen_host=self._listen_host,
            timings=self._timings,
        )
        if self._join_through and not self._home.has_member:
            await self._join(me, settings, group, scope, stack)
        else:
            if not self._home.has_member:
                self._home.note(me, FolderState.STARTING)
            await self._run_member(settings, scope, stack)
            await self._ready(local, self._start_timeout_s)
        self._watch = watch = PeerWatch(
            me,
            group,
            clock=self._clock,
            tell=self._tell,
            on_ready=self._member_ready,
            figures=lambda: self.stats,
            charter=self._charter,
            look_s=self._look_s,
            measure_s=self._measure_s,
            patience_s=self._patience_s,
            join_timeout_s=self._join_timeout_s,
            approval_timeout_s=self._approval_timeout_s,
        )
        status = await local.status(timeout_s=self._timings.replication_timeout)
        watch.me = replace(me, peer_id=status.header.member_id)
        self._home.note(watch.me, FolderState.MEMBER)
        service.beside = watch
        # Ended before the member is: the member's end is no news then.
        watching = TaskScope(f"raft peer {self.name}", self._failed)
        stack.push_async_callback(watching.close)
        watching.spawn(watch.run(), "watch")
        self._store = RaftStore(
            self._find_members, name=f"raft group {self.app}", environment=self._environment
        )
        await stack.enter_async_context(self._store)
        watching.spawn(self._await_removal(watch), "removal")

    async def _run_member(self, settings: MemberSettings, scope: TaskScope, stack: AsyncExitStack) -> None:
        backoff = Backoff(
            s_min=RAFT_RESTART_S_MIN,
            s_max=RAFT_RESTART_S_MAX,
            jitter=RAFT_RESTART_JITTER,
            chance=self._chance.fork("restarts"),
        )
        self._process = process = MemberProcess(
            arguments(settings),
            env=environment(os.environ),
            log_path=self._home.folder.log_path,
            supervision=Supervision(backoff, stop_s_max=self._stop_timeout_s),
            clock=self._clock,
            on_restart=self._restarted,
            on_report=self._failing,
        )
        scope.spawn(process.run(), "member")
        stack.push_async_callback(process.stop)

    async def _ready(self, local: MemberCalls, timeout_s: float, target_index: int = 0) -> None:
        """Wait until the member follows a leader, and has applied `target_index`."""
        process = self._process
        end_at = self._clock.monotonic() + timeout_s
        said, told = "", -1
        while process is not None and not process.ended.is_set():
            try:
                status = await local.status()
            except HansaError as error:
                # A member that was restarted answers nobody before it has a leader.
                said = f"no leader yet, or no etcd: {error}"
            else:
                process.ready()
                if target_index and status.raftAppliedIndex != told:
                    told = status.raftAppliedIndex
                    self._tell(CatchingUp(applied_index=told, target_index=target_index))
                if status.leader and status.raftAppliedIndex >= target_index:
                    return
                said = (
                    f"applied {status.raftAppliedIndex} of {target_index}" if status.leader else "no leader"
                )
            if self._clock.monotonic() >= end_at:
                self._check_log(process)
                hint = "" if target_index else "; it needs more than half of the group's peers"
                raise TimedOut(
                    f"raft peer {self.name} of {self.app} is not ready after {timeout_s:.3g} s{hint}: {said} "
                    f"(its etcd's log: {self._home.folder.log_path})"
                )
            await asyncio.sleep(_LOOK_S)
        if process is not None:
            self._check_log(process)
        tail = "" if process is None else process.log_tail()
        raise RaftRefused(f"the etcd of {self.name} does not start; the end of its log: {tail}")

    def _check_log(self, process: MemberProcess) -> None:
        """Raise `RaftRefused` when the others have told the member that it is no longer one of them."""
        if REMOVED in process.log_tail():
            raise RaftRefused(
                f"{self.name} was removed from {self.app}; to come back it joins with an empty folder"
            )

    # ---- joining and leaving -------------------------------------------------------------------

    async def _join(
        self, me: PeerInfo, settings: MemberSettings, group: Group, scope: TaskScope, stack: AsyncExitStack
    ) -> None:
        """Ask to join, start as a learner, catch up, get the vote. Raises as entering does."""
        asked_at = began_at = self._clock.monotonic()

        def left_s() -> float:
            return max(0.0, began_at + self._join_timeout_s - self._clock.monotonic())

        async with JoinClient(self.app, self._join_through, environment=self._environment) as client:
            # Also for the addresses of all peers: the one that was given may end meanwhile.
            group_status = await client.describe(timeout=left_s())
            problem = misfit(group_status, me, self.cluster, self._charter)
            if problem:
                raise BadArgument(f"{self.name} cannot join {self.app}: {problem}")
            # So that the next try has the same address: with another one it would count as another peer.
            self._home.note(me, FolderState.JOINING)
            ticket = await client.request_join(me, self._chance.token(8).hex(), timeout=left_s())
            if ticket.needs_approval:
                self._tell(ApprovalAwaited(name=self.name, timeout_s=ticket.timeout_s))
            wait_s = ticket.timeout_s if ticket.needs_approval else left_s()
            answer = await client.verdict(ticket, timeout=wait_s)
            if ticket.needs_approval:
                # The time that a person needs is not taken from the peer's own.
                began_at = self._clock.monotonic()
            if answer.code == "already-member" and self._home.folder.has_data:
                # The vote was given, and the answer was lost when the process ended.
                await self._run_member(settings, scope, stack)
                await self._ready(group.local, left_s())
                return
            if answer.acceptance is None:
                raise JoinRefused(f"{self.name} was not taken into {self.app}: {answer.text} ({answer.code})")
            accepted_at = self._clock.monotonic()
            acceptance = answer.acceptance
            self._tell(
                JoinAccepted(name=self.name, peer_id=acceptance.peer_id, accept_s=accepted_at - asked_at)
            )
            await self._sync(me, acceptance, settings, scope, stack)
            await self._ready(group.local, left_s(), acceptance.effective_index)
            await client.complete_sync(acceptance.peer_id, timeout=left_s())
            self._join_sync_s = self._clock.monotonic() - accepted_at
            self._join_snapshot_bytes = acceptance.snapshot_bytes

    async def _sync(
        self,
        me: PeerInfo,
        acceptance: JoinAcceptance,
        settings: MemberSettings,
        scope: TaskScope,
        stack: AsyncExitStack,
    ) -> None:
        # The peer has a new number in the group: data of an earlier try belong to a member that was removed.
        self._home.folder.wipe()
        self._home.note(replace(me, peer_id=acceptance.peer_id), FolderState.JOINING)
        joining = replace(settings, initial_cluster=acceptance.initial_cluster, is_new_group=False)
        await self._run_member(joining, scope, stack)

    async def _await_removal(self, watch: PeerWatch) -> None:
        await watch.removed.wait()
        if self._process is not None:
            await self._process.stop()
        self._home.note(watch.me, FolderState.LEFT)
        self._tell(RaftPeerLeft(peer=watch.me))
        self._was_left.set()

    async def _find_members(self) -> MemberAddresses:
        watch = self._running()
        known = {peer.client_address for peer in watch.record.peers} | {watch.me.client_address}
        return MemberAddresses(keys=watch.group.keys, addresses=tuple(known), own=watch.me.client_address)

    # ---- what happens --------------------------------------------------------------------------

    def _running(self) -> PeerWatch:
        if self._watch is None:
            raise AlreadyClosed(f"the raft peer {self.name} is not running")
        return self._watch

    def _member_ready(self) -> None:
        if self._process is not None:
            self._process.ready()

    def _restarted(self, exit_status: int | None) -> None:
        count = 0 if self._process is None else self._process.restarts_count
        self._tell(MemberRestarted(restarts_count=count, exit_status=exit_status))

    def _failing(self, report: Report) -> None:
        tail = "" if self._process is None else self._process.log_tail()
        self._tell(MemberFailing(crashes_count=report.crashes_count, log_tail=tail))

    def _failed(self, error: BaseException) -> None:
        """A task of the peer ended with an error: callers that wait for the member see that it ended."""
        _log.error("the raft peer %s of %s broke: %s", self.name, self.app, error, exc_info=error)
        if self._process is not None:
            self._process.ended.set()

    def _tell(self, event: RaftEvent) -> None:
        self._feeds.put(event)
