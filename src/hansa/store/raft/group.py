"""A raft group as one of its peers sees it: its members, which of them answer, its record, its requests.

`MemberCalls` asks one member, over etcd's API; `fetch_measures` reads its page of metrics. `Group` combines
what the members and the store say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hansa.control.client import ControlClient
from hansa.control.method import RequestT, ResponseT
from hansa.errors import BadRecord, Conflict, HansaError, StoreUnavailable, TimedOut
from hansa.limits import RAFT_MEASURES_BYTES_MAX, RAFT_REACH_S_MAX
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd import messages
from hansa.store.etcd.messages import EtcdCall, commit_to_message, outcome_from_message
from hansa.store.raft.etcd_program import RaftTimings, address_of, url
from hansa.store.raft.group_record import (
    Bootstrap,
    GroupRecord,
    JoinRecord,
    PeerInfo,
    RaftKeys,
    decode,
    encode,
)
from hansa.store.raft.join_steps import MemberView
from hansa.store.raft.raft_events import GroupStatus, PeerStatus, RequestStatus
from hansa.store.values import (
    Compare,
    Delete,
    Get,
    GetResult,
    KeyValue,
    Operation,
    Outcome,
    Put,
    prefix_range,
)

_SAVED: Final = "etcd_debugging_snap_save_total_duration_seconds"
_RECEIVED: Final = "etcd_network_snapshot_receive_total_duration_seconds"


# For a record that many change at once: far more tries than a group has peers.
_TRIES_MAX = 20


class MemberPool:
    """Connections to all members of a group, made when they are first asked."""

    def __init__(self, timings: RaftTimings | None = None) -> None:
        self._timings = timings
        self._members: dict[str, MemberCalls] = {}

    def at(self, address: str) -> MemberCalls:
        if address not in self._members:
            self._members[address] = MemberCalls(address, self._timings)
        return self._members[address]

    async def keep_only(self, addresses: set[str]) -> None:
        """Close the connections to former members."""
        for address in set(self._members) - addresses:
            await self._members.pop(address).close()

    async def close(self) -> None:
        await self.keep_only(set())


class MemberCalls:
    """Calls to one member. Each call ends within its time: `TimedOut`, `StoreUnavailable`, `Conflict`.

    A member is unavailable if it is away or has no leader; a conflict quotes etcd's reason for refusing.
    """

    def __init__(self, address: str, timings: RaftTimings | None = None) -> None:
        self.address = address
        self.timings = timings or RaftTimings()
        self._client = ControlClient(address)

    async def close(self) -> None:
        await self._client.close()

    async def status(self, *, timeout_s: float | None = None) -> api.StatusResponse:
        """The member's own report of its status, within `rpc_timeout` unless `timeout_s` is given."""
        return await self._ask(messages.STATUS, api.StatusRequest(), timeout_s or self.timings.rpc_timeout)

    async def members(self, *, timeout_s: float | None = None) -> list[MemberView]:
        """All members, as the group has agreed; whether they answer is not known yet."""
        # Older members answer from what they know; this read brings them up to date with the group first.
        await self._ask(messages.RANGE, api.RangeRequest(key=b"\0", limit=1, keys_only=True), timeout_s)
        answer = await self._ask(messages.MEMBER_LIST, api.MemberListRequest(linearizable=True), timeout_s)
        return [_view(member) for member in answer.members]

    async def known_members(self) -> list[MemberView]:
        """As `members`, but as this one member knows it: the group need not have a leader."""
        answer = await self._ask(messages.MEMBER_LIST, api.MemberListRequest())
        return [_view(member) for member in answer.members]

    async def known_value(self, key: bytes) -> bytes | None:
        """The value of a key as this one member knows it; None when it knows of none."""
        answer = await self._ask(messages.RANGE, api.RangeRequest(key=key, serializable=True))
        return answer.kvs[0].value if answer.kvs else None

    async def add_learner(self, peer_address: str) -> int:
        request = api.MemberAddRequest(peerURLs=[url(peer_address)], isLearner=True)
        return (await self._ask(messages.MEMBER_ADD, request)).member.ID

    async def promote(self, peer_id: int) -> None:
        await self._ask(messages.MEMBER_PROMOTE, api.MemberPromoteRequest(ID=peer_id))

    async def remove(self, peer_id: int) -> None:
        await self._ask(messages.MEMBER_REMOVE, api.MemberRemoveRequest(ID=peer_id))

    async def move_leader(self, peer_id: int) -> None:
        """Make another member the leader. Only the leader itself can do this."""
        await self._ask(messages.MOVE_LEADER, api.MoveLeaderRequest(targetID=peer_id))

    async def grant(self, ttl_s: float) -> int:
        return (await self._ask(messages.LEASE_GRANT, api.LeaseGrantRequest(TTL=max(1, round(ttl_s))))).ID

    async def commit(
        self, compares: Sequence[Compare], then: Sequence[Operation], otherwise: Sequence[Operation] = ()
    ) -> Outcome:
        return outcome_from_message(
            await self._ask(messages.TXN, commit_to_message(compares, then, otherwise))
        )

    async def _ask(
        self, call: EtcdCall[RequestT, ResponseT], request: RequestT, timeout_s: float | None = None
    ) -> ResponseT:
        timeout_s = timeout_s or self.timings.replication_timeout
        return await self._client.ask(call, request, timeout_s=timeout_s)


def _view(member: api.Member) -> MemberView:
    return MemberView(
        peer_id=member.ID,
        name=member.name,
        peer_address=address_of(next(iter(member.peerURLs), "")),
        client_address=address_of(next(iter(member.clientURLs), "")),
        is_learner=member.isLearner,
        is_reachable=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Snapshots since the process started: written, and received from another member."""

    snapshots_count: int = 0
    snapshots_s: float = 0.0
    received_count: int = 0
    received_s: float = 0.0


async def fetch_measures(address: str) -> Measures:
    """The measures of the member at a client address. Raises `StoreUnavailable`."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(RAFT_REACH_S_MAX):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                # HTTP/1.0: the answer ends with the connection, in one piece.
                writer.write(f"GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
                page = b""
                while chunk := await reader.read(65_536):
                    page += chunk
                    if len(page) > RAFT_MEASURES_BYTES_MAX:
                        break
            finally:
                writer.close()
    except (OSError, TimeoutError) as error:
        raise StoreUnavailable(f"the metrics of the member at {address}: {error}") from error
    return read_measures(page.decode(errors="replace"))


def read_measures(page: str) -> Measures:
    """The measures on a page of metrics; missing ones are 0, since versions differ."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        name, _, number = line.rpartition(" ")
        # The labels say from which member; only the sum over all counts here.
        name = name.partition("{")[0]
        if name.startswith((_SAVED, _RECEIVED)):
            try:
                sums[name] = sums.get(name, 0.0) + float(number)
            except ValueError:
                continue
    return Measures(
        snapshots_count=int(sums.get(f"{_SAVED}_count", 0)),
        snapshots_s=sums.get(f"{_SAVED}_sum", 0.0),
        received_count=int(sums.get(f"{_RECEIVED}_count", 0)),
        received_s=sums.get(f"{_RECEIVED}_sum", 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A request to join and the revision of its last change."""

    record: JoinRecord
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBook:
    """What the store says about the group, at one revision. Requests are in the order in which they came."""

    record: GroupRecord
    record_revision: int
    requests: tuple[JoinRequest, ...]

    @property
    def records(self) -> list[JoinRecord]:
        return [request.record for request in self.requests]

    def request(self, name: str) -> JoinRequest | None:
        return next((request for request in self.requests if request.record.peer.name == name), None)


class Group:
    """Reads and writes through one member, and asks the others whether they are there."""

    def __init__(self, app: str, cluster: str, local: MemberCalls, pool: MemberPool) -> None:
        self.app = app
        self.cluster = cluster
        self.keys = RaftKeys(cluster, app)
        self.local = local
        self._pool = pool

    async def members(self) -> tuple[list[MemberView], dict[int, api.StatusResponse]]:
        """Every member, with whether it answers and follows a leader, and their answers."""
        return await self._asked(await self.local.members())

    async def _asked(self, views: list[MemberView]) -> tuple[list[MemberView], dict[int, api.StatusResponse]]:
        await self._pool.keep_only({view.client_address for view in views})
        found = await asyncio.gather(*(self._reach(view) for view in views))
        statuses = {view.peer_id: status for view, status in zip(views, found, strict=True) if status}
        return [
            replace(
                view,
                is_reachable=_is_healthy(statuses.get(view.peer_id)),
                applied_index=statuses[view.peer_id].raftAppliedIndex if view.peer_id in statuses else 0,
            )
            for view in views
        ], statuses

    async def _reach(self, view: MemberView) -> api.StatusResponse | None:
        """The status of a member that answers; else None."""
        if not view.client_address:
            return None
        try:
            status = await self._pool.at(view.client_address).status()
        except HansaError:
            return None
        return status if status.header.member_id == view.peer_id else None

    async def book(self) -> GroupBook:
        """The record and the requests. Raises what a call raises, and `BadRecord`."""
        outcome = await self.local.commit([], [Get(self.keys.group), Get(*prefix_range(self.keys.requests))])
        group, requests = outcome.results
        if not isinstance(group, GetResult) or not isinstance(requests, GetResult):
            raise BadRecord("the store answered a read with something else")
        record, revision = GroupRecord(app=self.app), 0
        if group.items:
            record, revision = decode(GroupRecord, group.items[0].value), group.items[0].mod_revision
        ordered = sorted(requests.items, key=lambda item: item.create_revision)
        return GroupBook(
            record=record, record_revision=revision, requests=tuple(_request(item) for item in ordered)
        )

    async def begin(self, book: GroupBook, record: GroupRecord, bootstrap: Bootstrap) -> bool:
        """Write the first record and how the group began, in one revision. False if another peer did."""
        outcome = await self.local.commit(
            [Compare.revision(self.keys.group, "=", book.record_revision)],
            [self._put(record), Put(self.keys.metadata, encode(bootstrap))],
        )
        return outcome.is_success

    async def write_request(self, record: JoinRecord, revision: int) -> bool:
        """Put a request if its last change has this revision (0: there is none). Returns whether it had."""
        key = self.keys.request(record.peer.name)
        compare = Compare.revision(key, "=", revision)
        outcome = await self.local.commit([compare], [Put(key, encode(record), record.lease)])
        return outcome.is_success

    async def finish_request(self, book: GroupBook, request: JoinRequest, peer: PeerInfo) -> bool:
        """Put the peer into the record and delete the request, in one revision.

        Returns whether both were unchanged.
        """
        key = self.keys.request(request.record.peer.name)
        outcome = await self.local.commit(
            [
                Compare.revision(key, "=", request.revision),
                Compare.revision(self.keys.group, "=", book.record_revision),
            ],
            [self._put(book.record.with_peer(peer)), Delete(key)],
        )
        return outcome.is_success

    async def change_record(self, change: Callable[[GroupRecord], GroupRecord | None]) -> None:
        """Change the group's record, also if others change it. Raises `Conflict` when that never ends."""
        for _ in range(_TRIES_MAX):
            book = await self.book()
            changed = change(book.record)
            if changed is None:
                return
            compare = Compare.revision(self.keys.group, "=", book.record_revision)
            if (await self.local.commit([compare], [self._put(changed)])).is_success:
                return
        raise Conflict(f"the record of the raft group {self.app} changes too fast to be changed")

    async def status(self) -> GroupStatus:
        """The group's state; asks every member. Raises what a call raises.

        For a group without a leader it is what this peer's own member knows: that is when it is needed most.
        """
        try:
            own = await self.local.status()
        except (StoreUnavailable, TimedOut) as error:
            raise StoreUnavailable(f"the etcd of this peer is silent, ask another one ({error})") from error
        requests: tuple[JoinRequest, ...] = ()
        if own.leader:
            (members, statuses), book = await self.members(), await self.book()
            record, requests = book.record, book.requests
        else:
            members, statuses = await self._asked(await self.local.known_members())
            known = await self.local.known_value(self.keys.group)
            record = GroupRecord(app=self.app) if known is None else decode(GroupRecord, known)
        began = await self.local.known_value(self.keys.metadata)
        names = {member.peer_id: member.name for member in members}
        return GroupStatus(
            app=self.app,
            cluster=self.cluster,
            leader=names.get(own.leader, ""),
            term=own.raftTerm,
            record_version=record.version,
            peers=tuple(
                _peer_status(member, record, statuses.get(member.peer_id), own.leader)
                for member in sorted(members, key=lambda one: one.name)
            ),
            group_id=record.group_id,
            resource_group=record.resource_group,
            approval=record.approval,
            bootstrap=None if began is None else decode(Bootstrap, began),
            requests=tuple(_request_status(request.record) for request in requests),
        )

    def _put(self, record: GroupRecord) -> Operation:
        return Put(self.keys.group, encode(record))


def _request(item: KeyValue) -> JoinRequest:
    # The lease is the one that the key is on, whatever the record says.
    record = replace(decode(JoinRecord, item.value), lease=item.lease)
    return JoinRequest(record=record, revision=item.mod_revision)


def _request_status(record: JoinRecord) -> RequestStatus:
    return RequestStatus(
        peer=record.peer,
        state=record.state,
        requested_at=record.requested_at,
        code=record.code,
        reason=record.reason,
    )


def _is_healthy(status: api.StatusResponse | None) -> bool:
    return status is not None and bool(status.leader)


def _peer_status(
    member: MemberView, record: GroupRecord, status: api.StatusResponse | None, leader: int
) -> PeerStatus:
    peer = record.peer(member.name) or PeerInfo(
        name=member.name,
        peer_address=member.peer_address,
        client_address=member.client_address,
        join_address="",
    )
    role = "learner" if member.is_learner else "leader" if member.peer_id == leader else "follower"
    return PeerStatus(
        peer=replace(peer, peer_id=member.peer_id),
        role=role,
        is_voter=not member.is_learner,
        is_healthy=_is_healthy(status),
        term=status.raftTerm if status else 0,
        applied_index=status.raftAppliedIndex if status else 0,
        db_bytes=status.dbSize if status else 0,
        version=status.version if status else "",
    )
