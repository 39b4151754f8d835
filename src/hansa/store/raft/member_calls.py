"""Questions to the members of a group: over etcd's API, and to their pages of metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hansa.control.client import ControlClient
from hansa.control.method import RequestT, ResponseT
from hansa.errors import StoreUnavailable
from hansa.limits import RAFT_MEASURES_BYTES_MAX, RAFT_REACH_S_MAX
from hansa.store.etcd import api_pb2 as api
from hansa.store.etcd import messages
from hansa.store.etcd.messages import EtcdCall, commit_to_message, outcome_from_message
from hansa.store.raft.join_steps import MemberView
from hansa.store.raft.member_settings import RaftTimings, address_of, url
from hansa.store.values import Compare, Operation, Outcome

_SAVED: Final = "etcd_debugging_snap_save_total_duration_seconds"
_RECEIVED: Final = "etcd_network_snapshot_receive_total_duration_seconds"


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
        """Close those to members that are none any more."""
        for address in set(self._members) - addresses:
            await self._members.pop(address).close()

    async def close(self) -> None:
        await self.keep_only(set())


class MemberCalls:
    """One member. Each call ends within its time: `TimedOut`, `StoreUnavailable`, `Conflict`.

    Unavailable is one that is away or has no leader; a conflict has etcd's words for why it cannot be.
    """

    def __init__(self, address: str, timings: RaftTimings | None = None) -> None:
        self.address = address
        self.timings = timings or RaftTimings()
        self._client = ControlClient(address)

    async def close(self) -> None:
        await self._client.close()

    async def status(self, *, timeout_s: float | None = None) -> api.StatusResponse:
        """How the member is, in its own words; within `rpc_timeout_s` if nothing else is said."""
        return await self._ask(messages.STATUS, api.StatusRequest(), timeout_s or self.timings.rpc_timeout_s)

    async def members(self, *, timeout_s: float | None = None) -> list[MemberView]:
        """All members, as the group has agreed; whether they answer is not known yet."""
        # Older members answer from what they know; a read before it makes that as new as the group.
        await self._ask(messages.RANGE, api.RangeRequest(key=b"\0", limit=1, keys_only=True), timeout_s)
        answer = await self._ask(messages.MEMBER_LIST, api.MemberListRequest(linearizable=True), timeout_s)
        return [_view(member) for member in answer.members]

    async def known_members(self) -> list[MemberView]:
        """As `members`, but what this one member knows: the group need not have a leader."""
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
        """To be asked of the leader itself."""
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
        timeout_s = timeout_s or self.timings.replication_timeout_s
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
    """The measures on a page of metrics; what is not there is 0, since versions differ."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        name, _, number = line.rpartition(" ")
        # The labels say from whom; only the sum over all counts here.
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
