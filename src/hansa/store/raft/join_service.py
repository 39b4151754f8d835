"""The server of the join API at every peer. It redirects changes of the group to the leader's peer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hansa.clock import Clock
from hansa.control.method import Method
from hansa.control.server import ControlServer
from hansa.errors import BadArgument, Conflict, HansaError, StoreUnavailable
from hansa.limits import RAFT_ASKS_MAX, RAFT_MESSAGE_BYTES_MAX, RAFT_POLL_S_MAX, RAFT_REQUESTS_MAX
from hansa.store.raft.group import JoinRequest
from hansa.store.raft.group_record import Approval, JoinRecord, JoinState, check_peer
from hansa.store.raft.join_messages import (
    APPROVE,
    AWAIT,
    COMPLETE,
    DESCRIBE,
    GOVERN,
    LEAVE,
    REFUSE,
    REQUEST,
    ApproveAsk,
    AskT,
    AwaitAsk,
    CompleteAsk,
    DescribeAsk,
    GovernAsk,
    JoinAnswer,
    JoinAsk,
    JoinTicket,
    LeaveAsk,
    RefuseAsk,
    refusal,
    verdict,
)
from hansa.store.raft.join_steps import OPEN, moved
from hansa.store.raft.peer_watch import PeerWatch

# The pause between two looks of an answer that waits: short compared with a join.
_LOOK_S = 0.05


class JoinService:
    """A gRPC server with the methods of the join API."""

    def __init__(self, app: str, *, clock: Clock, join_timeout_s: float, approval_timeout_s: float) -> None:
        # Set when the peer's own member has its place in the group.
        self.beside: PeerWatch | None = None
        self._app = app
        self._clock = clock
        self._join_timeout_s = join_timeout_s
        self._approval_timeout_s = approval_timeout_s
        self._server: ControlServer | None = None

    async def start(self, address: str) -> int:
        """Serve at an address; returns the port. Raises `AddressInUse`, `BadEndpoint`."""
        server = ControlServer(
            _failed,
            calls_max=RAFT_ASKS_MAX,
            options=(
                ("grpc.max_receive_message_length", RAFT_MESSAGE_BYTES_MAX),
                ("grpc.max_send_message_length", RAFT_MESSAGE_BYTES_MAX),
            ),
        )
        # Only the leader's peer may change the group.
        self._answer(server, REQUEST, self._request, by_leader=True)
        self._answer(server, AWAIT, self._await)
        self._answer(server, APPROVE, self._approve, by_leader=True)
        self._answer(server, REFUSE, self._refuse, by_leader=True)
        self._answer(server, GOVERN, self._govern, by_leader=True)
        self._answer(server, COMPLETE, self._complete, by_leader=True)
        self._answer(server, DESCRIBE, self._describe)
        self._answer(server, LEAVE, self._leave, by_leader=True)
        port = await server.start(address, what="the join address ")
        self._server = server
        return port

    async def close(self) -> None:
        """Stop answering; clients that wait find another peer."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    def _answer(
        self,
        server: ControlServer,
        method: Method[AskT, JoinAnswer],
        answer: Callable[[AskT, PeerWatch], Awaitable[JoinAnswer]],
        *,
        by_leader: bool = False,
    ) -> None:
        async def checked(ask: AskT) -> JoinAnswer:
            if ask.app != self._app:
                raise BadArgument(f"this peer is of {self._app}, not of {ask.app}")
            if self.beside is None:
                raise StoreUnavailable("this peer is still starting")
            if by_leader and (elsewhere := await self.beside.leader_join_address()):
                return JoinAnswer(redirect=elsewhere)
            return await answer(ask, self.beside)

        server.answer(method, checked)

    async def _request(self, ask: JoinAsk, beside: PeerWatch) -> JoinAnswer:
        peer = check_peer(ask.peer)
        book = await beside.group.book()
        needs_approval = book.record.approval is Approval.MANUAL
        ticket = JoinTicket(
            app=ask.app,
            name=peer.name,
            ticket=ask.ticket,
            timeout_s=self._join_timeout_s + (self._approval_timeout_s if needs_approval else 0.0),
            needs_approval=needs_approval,
        )
        before = book.request(peer.name)
        if before is not None and before.record.ticket == ask.ticket:
            return JoinAnswer(ticket=ticket)
        if before is not None and before.record.state in OPEN:
            if before.record.peer.peer_address != peer.peer_address:
                return _turned_away(
                    beside, peer.name, "name-taken", f"another {peer.name} is joining {ask.app} just now"
                )
        elif len(book.requests) >= RAFT_REQUESTS_MAX:
            return _turned_away(
                beside, peer.name, "busy", f"{len(book.requests)} peers are joining {ask.app} already"
            )
        lease = await beside.group.local.grant(self._join_timeout_s)
        record = JoinRecord(
            app=ask.app, peer=peer, ticket=ask.ticket, requested_at=self._clock.wall(), lease=lease
        )
        if not await beside.group.write_request(record, 0 if before is None else before.revision):
            raise Conflict(f"the request of {peer.name} has changed meanwhile")
        beside.kick()
        return JoinAnswer(ticket=ticket)

    async def _await(self, ask: AwaitAsk, beside: PeerWatch) -> JoinAnswer:
        async def look() -> JoinAnswer:
            found = (await beside.group.book()).request(ask.name)
            return verdict(None if found is None else found.record, ask)

        return await _settled(look, ask.wait_s)

    async def _approve(self, ask: ApproveAsk, beside: PeerWatch) -> JoinAnswer:
        await beside.approve(ask.name)
        return JoinAnswer()

    async def _refuse(self, ask: RefuseAsk, beside: PeerWatch) -> JoinAnswer:
        await beside.refuse(ask.name, ask.reason)
        return JoinAnswer()

    async def _govern(self, ask: GovernAsk, beside: PeerWatch) -> JoinAnswer:
        await beside.set_approval(ask.approval)
        return JoinAnswer()

    async def _complete(self, ask: CompleteAsk, beside: PeerWatch) -> JoinAnswer:
        async def look() -> JoinAnswer:
            book = await beside.group.book()
            request = next((one for one in book.requests if one.record.peer.peer_id == ask.peer_id), None)
            if request is not None:
                return await self._advance(request, beside)
            if any(peer.peer_id == ask.peer_id for peer in book.record.peers):
                return JoinAnswer()
            return refusal("expired", f"there is no request of peer {ask.peer_id:x} to join {ask.app}")

        return await _settled(look, ask.wait_s)

    async def _advance(self, request: JoinRequest, beside: PeerWatch) -> JoinAnswer:
        record = request.record
        if record.state is JoinState.REFUSED:
            return refusal(record.code, record.reason)
        if record.state is JoinState.ACCEPTED:
            await beside.group.write_request(moved(record, JoinState.SYNCING), request.revision)
        beside.kick()
        return JoinAnswer(is_pending=True)

    async def _describe(self, ask: DescribeAsk, beside: PeerWatch) -> JoinAnswer:
        return JoinAnswer(group=await beside.status())

    async def _leave(self, ask: LeaveAsk, beside: PeerWatch) -> JoinAnswer:
        return JoinAnswer(redirect=await beside.remove(ask.name))


def _failed(error: HansaError) -> JoinAnswer:
    return refusal(error.code, str(error), is_retryable=error.retryable)


def _turned_away(beside: PeerWatch, name: str, code: str, reason: str) -> JoinAnswer:
    beside.refused(name, code, reason)
    return refusal(code, reason)


async def _settled(look: Callable[[], Awaitable[JoinAnswer]], wait_s: float) -> JoinAnswer:
    """The first answer that is not pending, or the last one when the time is over."""
    loop = asyncio.get_running_loop()
    end_at = loop.time() + min(max(0.0, wait_s), RAFT_POLL_S_MAX)
    while True:
        answer = await look()
        if not answer.is_pending or loop.time() >= end_at:
            return answer
        # The leader's peer does the work, here or elsewhere: the store tells when it is done.
        await asyncio.sleep(_LOOK_S)
