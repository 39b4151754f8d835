"""A raft group as one of its peers reads it: members, who of them answers, the record, the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from hansa.errors import BadRecord, Conflict, HansaError, StoreUnavailable, TimedOut
from hansa.store.etcd import api_pb2 as api
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
from hansa.store.raft.member_calls import MemberCalls, MemberPool
from hansa.store.raft.raft_events import GroupStatus, PeerStatus, RequestStatus
from hansa.store.values import Compare, Delete, Get, GetResult, KeyValue, Operation, Put, prefix_range

# A record that many change at once: far more tries than a group has peers.
_TRIES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A request to join and the revision of its last change."""

    record: JoinRecord
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBook:
    """What the store says of the group, at one revision. Requests are in the order they came."""

    record: GroupRecord
    record_revision: int
    requests: tuple[JoinRequest, ...]

    @property
    def records(self) -> list[JoinRecord]:
        return [request.record for request in self.requests]

    def request(self, name: str) -> JoinRequest | None:
        return next((request for request in self.requests if request.record.peer.name == name), None)


class Group:
    """Reads and writes through one member, asks the others whether they are there."""

    def __init__(self, app: str, cluster: str, local: MemberCalls, pool: MemberPool) -> None:
        self.app = app
        self.cluster = cluster
        self.keys = RaftKeys(cluster, app)
        self.local = local
        self._pool = pool

    async def members(self) -> tuple[list[MemberView], dict[int, api.StatusResponse]]:
        """Every member, with whether it answers and follows a leader, and the answers."""
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
        """The status of a member that answers for itself; else None."""
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
            record=record,
            record_revision=revision,
            requests=tuple(_request(item) for item in ordered),
        )

    async def begin(self, book: GroupBook, record: GroupRecord, bootstrap: Bootstrap) -> bool:
        """Write the first record and how the group began, in one revision. Says whether nobody was faster."""
        outcome = await self.local.commit(
            [Compare.revision(self.keys.group, "=", book.record_revision)],
            [self._put(record), Put(self.keys.metadata, encode(bootstrap))],
        )
        return outcome.is_success

    async def write_request(self, record: JoinRecord, revision: int) -> bool:
        """Put a request whose last change has this revision (0: there is none). Says whether it was so."""
        key = self.keys.request(record.peer.name)
        compare = Compare.revision(key, "=", revision)
        outcome = await self.local.commit([compare], [Put(key, encode(record), record.lease)])
        return outcome.is_success

    async def finish_request(self, book: GroupBook, request: JoinRequest, peer: PeerInfo) -> bool:
        """Peer into the record, request out, in one revision. Says whether both were as in the book."""
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
        """Change the group's record, against whoever else does. Raises `Conflict` when that never ends."""
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
        """The group, with every member asked. Raises what a call raises.

        Of a group without a leader it is what this peer's own member knows: that is when it is needed most.
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
    # The lease is what the key hangs on, whatever the record says.
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
