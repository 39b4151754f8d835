"""The client of the join API: asks the peers of a raft group to join, to leave, or for their state."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Self

from hansa.control.client import ControlClient
from hansa.control.method import Method
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    BadEndpoint,
    Conflict,
    JoinRefused,
    RaftRefused,
    StoreUnavailable,
    TimedOut,
)
from hansa.limits import (
    RAFT_CALL_S_MAX,
    RAFT_JOIN_TIMEOUT_S,
    RAFT_MESSAGE_BYTES_MAX,
    RAFT_POLL_S_MAX,
    RAFT_REDIRECTS_MAX,
    STORE_RETRY_JITTER,
    STORE_RETRY_S_MAX,
    STORE_RETRY_S_MIN,
)
from hansa.runtime.backoff import Backoff
from hansa.runtime.tasks import Closing
from hansa.store.raft.group_record import PeerInfo, read_address, read_approval
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
    AwaitAsk,
    CompleteAsk,
    DescribeAsk,
    GovernAsk,
    JoinAcceptance,
    JoinAnswer,
    JoinAsk,
    JoinTicket,
    LeaveAsk,
    RefuseAsk,
    check_reason,
)
from hansa.store.raft.raft_events import GroupStatus
from hansa.transport.environment import Environment

_TRY_S_MIN = 1.0
# The code of an answer for a peer that was not reached.
_UNREACHED = "unreached"
_OPTIONS = (("grpc.max_receive_message_length", RAFT_MESSAGE_BYTES_MAX),)


class JoinClient:
    """The join API of a group, through the join addresses of some of its peers. Use it with `async with`.

    Every call tries the peers in turn, with pauses, until its time is over: then `TimedOut`. It follows
    redirects. If a peer says no, it raises `JoinRefused`, or `RaftRefused` for a removal; cancelling a call
    leaves it open whether it was done. `redirects_count` counts the redirects that were followed.
    """

    def __init__(self, app: str, addresses: Sequence[str], *, environment: Environment | None = None) -> None:
        if not addresses:
            raise BadArgument(f"raft group {app}: give the join address of at least one of its peers")
        self.app = app
        self.redirects_count = 0
        self._addresses = [read_address("the join address", address) for address in addresses]
        environment = environment or Environment()
        self._clock, self._chance = environment.clock, environment.chance
        self._clients: dict[str, ControlClient] = {}
        self._closing = Closing()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End its connections, and stop asking. Closing twice does no harm."""
        await self._closing.once(self._close)

    async def _close(self) -> None:
        self._is_closed = True
        while self._clients:
            _, client = self._clients.popitem()
            await client.close()

    async def describe(self, *, timeout: float = RAFT_CALL_S_MAX) -> GroupStatus:
        """The group as one of its peers sees it. Later calls try all the peers that it names."""
        answer = await self._ask(DESCRIBE, DescribeAsk(app=self.app), timeout)
        group = answer.group
        if answer.code or group is None:
            raise RaftRefused(f"raft group {self.app}: {answer.text}")
        for status in group.peers:
            if status.peer.join_address and status.peer.join_address not in self._addresses:
                self._addresses.append(status.peer.join_address)
        return group

    async def request_join(
        self, peer: PeerInfo, ticket: str, *, timeout: float = RAFT_JOIN_TIMEOUT_S
    ) -> JoinTicket:
        """Ask to join the group. The same ticket again is the same request."""
        answer = await self._ask(REQUEST, JoinAsk(app=self.app, peer=peer, ticket=ticket), timeout)
        if answer.code or answer.ticket is None:
            raise _refused(self.app, peer.name, answer)
        return answer.ticket

    async def await_acceptance(self, ticket: JoinTicket, *, timeout: float | None = None) -> JoinAcceptance:
        """Wait until the leader's peer has added the learner. Raises `JoinRefused` with the reason."""
        answer = await self.verdict(ticket, timeout=timeout)
        if answer.acceptance is None:
            raise _refused(self.app, ticket.name, answer)
        return answer.acceptance

    async def verdict(self, ticket: JoinTicket, *, timeout: float | None = None) -> JoinAnswer:
        """As `await_acceptance`, but returns a refusal as a value."""
        timeout = ticket.timeout_s if timeout is None else timeout
        ask = AwaitAsk(app=self.app, name=ticket.name, ticket=ticket.ticket, wait_s=_poll_s(timeout))
        return await self._ask(AWAIT, ask, timeout)

    async def complete_sync(self, peer_id: int, *, timeout: float = RAFT_JOIN_TIMEOUT_S) -> None:
        """Say that the learner has caught up, and wait until it has its vote. Raises `JoinRefused`."""
        ask = CompleteAsk(app=self.app, peer_id=peer_id, wait_s=_poll_s(timeout))
        answer = await self._ask(COMPLETE, ask, timeout)
        if answer.code:
            raise _refused(self.app, f"{peer_id:x}", answer)

    async def leave(self, name: str, *, timeout: float = 30.0) -> None:
        """Remove a peer from the group. Raises `RaftRefused` when that would cost the quorum."""
        end_at = self._clock.monotonic() + timeout
        group = await self.describe(timeout=timeout)
        if all(one.peer.name != name for one in group.peers):
            raise RaftRefused(f"there is no peer {name} in {self.app}")
        await self._order(LEAVE, LeaveAsk(app=self.app, name=name), end_at - self._clock.monotonic())

    async def approve(self, name: str, *, timeout: float = 30.0) -> None:
        """Approve a peer whose request waits for a person. Raises `RaftRefused` when there is none.

        It returns when the approval is written; the peer then joins like any other, if the group still can.
        """
        await self._order(APPROVE, ApproveAsk(app=self.app, name=name), timeout)

    async def refuse(self, name: str, reason: str, *, timeout: float = 30.0) -> None:
        """Refuse to let a peer join; it is told the reason. Raises `RaftRefused` when it is too late."""
        ask = RefuseAsk(app=self.app, name=name, reason=check_reason(reason))
        await self._order(REFUSE, ask, timeout)

    async def set_approval(self, approval: str, *, timeout: float = 30.0) -> None:
        """Set who lets peers join from now on: `automatic`, or `manual`: a person. Raises `BadArgument`."""
        await self._order(GOVERN, GovernAsk(app=self.app, approval=read_approval(approval)), timeout)

    async def _order(self, method: Method[Any, JoinAnswer], ask: Any, timeout: float) -> None:
        answer = await self._ask(method, ask, timeout)
        if answer.code:
            raise RaftRefused(answer.text)

    async def _ask(self, method: Method[Any, JoinAnswer], ask: Any, timeout: float) -> JoinAnswer:
        """The first answer of a peer that is not a redirect, not pending and not worth another try."""
        end_at = self._clock.monotonic() + timeout
        backoff = Backoff(
            s_min=STORE_RETRY_S_MIN, s_max=STORE_RETRY_S_MAX, jitter=STORE_RETRY_JITTER, chance=self._chance
        )
        said, unreached = "", "nobody answered"
        while True:
            addresses = tuple(self._addresses)
            for tried_count, address in enumerate(addresses):
                remaining_s = end_at - self._clock.monotonic()
                if remaining_s <= 0:
                    raise TimedOut(
                        f"raft group {self.app}: {method.name} was not done in {timeout:.3g} s: "
                        f"{said or unreached}"
                    )
                # A peer that does not answer at all must leave the others their share of the time.
                share_s = max(remaining_s / (len(addresses) - tried_count), min(remaining_s, _TRY_S_MIN))
                answer = await self._ask_following(method, ask, address, share_s)
                if not answer.code and not answer.is_pending:
                    return answer
                if answer.code and not answer.is_retryable:
                    return answer
                # The reason why a peer was not reached says less than what another peer answered.
                if answer.code == _UNREACHED:
                    unreached = answer.text
                else:
                    said = answer.text or "it is pending"
                if answer.is_pending:
                    backoff.reset()
            await asyncio.sleep(min(backoff.next_s(), max(0.0, end_at - self._clock.monotonic())))

    async def _ask_following(
        self, method: Method[Any, JoinAnswer], ask: Any, address: str, remaining_s: float
    ) -> JoinAnswer:
        for _ in range(RAFT_REDIRECTS_MAX):
            try:
                answer = await self._ask_once(method, ask, address, remaining_s)
            except (Conflict, StoreUnavailable, TimedOut) as error:
                return JoinAnswer(code=_UNREACHED, text=str(error), is_retryable=True)
            if not answer.redirect:
                return answer
            self.redirects_count += 1
            address = read_address("a redirect", answer.redirect)
            if address not in self._addresses:
                self._addresses.append(address)
        return JoinAnswer(
            code="redirected", text="sent from peer to peer: the leader changes", is_retryable=True
        )

    async def _ask_once(
        self, method: Method[Any, JoinAnswer], ask: Any, address: str, remaining_s: float
    ) -> JoinAnswer:
        if self._is_closed:
            raise AlreadyClosed(f"the client of raft group {self.app} is closed")
        if address not in self._clients:
            self._clients[address] = ControlClient(address, options=_OPTIONS)
        timeout_s = min(remaining_s, RAFT_POLL_S_MAX + 2 * RAFT_CALL_S_MAX)
        return await self._clients[address].ask(method, ask, timeout_s=timeout_s)


def read_group_address(text: str) -> tuple[tuple[str, ...], str]:
    """The join addresses and the application in `raft://host:port,host:port/app`. Raises `BadEndpoint`."""
    rest = text.removeprefix("raft://")
    addresses, slash, app = rest.partition("/")
    if not slash or not app or not addresses or "/" in app:
        raise BadEndpoint(
            f"store {text!r}: write raft://host:port,host:port/app with join addresses of its peers"
        )
    return tuple(read_address("the join address", one) for one in addresses.split(",") if one), app


def _poll_s(timeout: float) -> float:
    """How long a peer may wait with its answer: short enough that the caller hears news in time."""
    return min(RAFT_POLL_S_MAX, timeout / 4)


def _refused(app: str, name: str, answer: JoinAnswer) -> JoinRefused:
    return JoinRefused(f"{name} was not taken into {app}: {answer.text} ({answer.code})")
