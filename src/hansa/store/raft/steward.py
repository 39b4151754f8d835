"""The steward: the peer beside the leader handles requests to join, one at a time, and removals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from hansa.clock import Clock
from hansa.errors import Conflict, RaftRefused, StoreUnavailable
from hansa.limits import (
    RAFT_APPROVAL_TIMEOUT_S,
    RAFT_DENIAL_S,
    RAFT_HEALTH_PATIENCE_S,
    RAFT_JOIN_TIMEOUT_S,
    RAFT_REFUSAL_S,
)
from hansa.store.raft.group import Group, GroupBook, JoinRequest
from hansa.store.raft.group_record import Approval, JoinRecord, JoinState
from hansa.store.raft.join_messages import check_reason
from hansa.store.raft.join_steps import (
    UNDECIDED,
    AddLearner,
    Finish,
    MemberView,
    Promote,
    Refuse,
    Remember,
    RemoveLearner,
    Step,
    Wait,
    health_problem,
    leave_problem,
    moved,
    next_request,
    next_step,
    orphans,
)
from hansa.store.raft.raft_events import (
    ApprovalAwaited,
    JoinAccepted,
    JoinApproved,
    JoinExpired,
    JoinRequested,
    JoinRequestRefused,
    RaftEvent,
)


class Steward:
    """Acts only while its member leads; then it is the one place where the group's membership is changed.

    In memory it has only what it reported and since when: the next leader's steward decides the same without
    it. A request has `join_timeout_s` from its record to its vote, and `approval_timeout_s` more for a
    person.
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        tell: Callable[[RaftEvent], None],
        *,
        patience_s: float = RAFT_HEALTH_PATIENCE_S,
        join_timeout_s: float = RAFT_JOIN_TIMEOUT_S,
        approval_timeout_s: float = RAFT_APPROVAL_TIMEOUT_S,
    ) -> None:
        self._group = group
        self._clock = clock
        self._tell = tell
        self._patience_s = patience_s
        self._join_timeout_s = join_timeout_s
        self._approval_timeout_s = approval_timeout_s
        self._turns = asyncio.Lock()
        self._unhealthy_since: float | None = None
        self._denied_since: float | None = None
        self._seen: dict[str, tuple[str, float]] = {}
        self._orphans: frozenset[int] = frozenset()
        self._recorded: frozenset[int] = frozenset()

    def forget(self) -> None:
        """Forget everything: its member no longer leads."""
        self._unhealthy_since = self._denied_since = None
        self._seen.clear()
        self._orphans = self._recorded = frozenset()

    async def turn(self) -> bool:
        """One look and at most one step. Returns whether there may be more to do at once.

        Raises what the member's calls raise; then the same is decided again at the next look.
        """
        async with self._turns:
            members, _ = await self._group.members()
            # Read after the members: a learner that is seen had its request in the store before.
            book = await self._group.book()
            self._notice(book)
            await self._strike_out(members, book)
            if await self._remove_orphans(members, book):
                return True
            approval = book.record.approval
            record = next_request(book.records, approval)
            if record is None:
                # The group's health during one request says nothing about the next.
                self._unhealthy_since = self._denied_since = None
                return False
            request = next(one for one in book.requests if one.record is record)
            is_patience_over = self._is_patience_over(members)
            step = next_step(record, members, is_patience_over=is_patience_over, approval=approval)
            return await self._carry_out(step, request, book)

    async def approve(self, name: str) -> None:
        """Approve a peer, in the name of a person. Raises `RaftRefused` when there is nothing to approve.

        Repeating it, because an answer was lost, does nothing.
        """
        async with self._turns:
            book = await self._group.book()
            if book.request(name) is None and book.record.peer(name) is not None:
                return
            request = self._asked_for(name, book)
            record = request.record
            if record.state is JoinState.REFUSED:
                raise RaftRefused(f"{name} was refused already: {record.reason} ({record.code})")
            if record.state not in UNDECIDED:
                return
            # From here on the peer has the time of any other join: the person may have used all of it.
            lease = await self._group.local.grant(self._join_timeout_s)
            approved = moved(record, JoinState.APPROVED, lease=lease)
            if not await self._group.write_request(approved, request.revision):
                raise Conflict(f"the request of {name} has changed meanwhile")
            self._tell(JoinApproved(name=name, approval_s=self._waited_s(record)))

    async def refuse(self, name: str, reason: str) -> None:
        """Refuse a peer, in the name of a person; it is told why. Raises `RaftRefused`, `BadArgument`.

        A request that was refused already, for whatever reason, stays refused.
        """
        step = Refuse(code="refused", reason=check_reason(reason))
        async with self._turns:
            request = self._asked_for(name, await self._group.book())
            state = request.record.state
            if state is JoinState.REFUSED:
                return
            if state not in UNDECIDED and state is not JoinState.APPROVED:
                raise RaftRefused(
                    f"{name} was accepted already; once it has its vote, `hansa raft leave` takes it out"
                )
            if not await self._refuse(step, request):
                raise Conflict(f"the request of {name} has changed meanwhile")

    async def set_approval(self, approval: Approval) -> None:
        """Approve requests in this way from now on, also those that already wait for a person."""
        await self._group.change_record(
            lambda record: None if record.approval is approval else record.with_approval(approval)
        )

    def _asked_for(self, name: str, book: GroupBook) -> JoinRequest:
        request = book.request(name)
        if request is None:
            raise RaftRefused(
                f"there is no request of {name} to join {self._group.app}: none came, or it has expired"
            )
        return request

    async def remove(self, name: str, own_name: str) -> str:
        """Remove a peer. If it is the leader itself, it hands over first; then returns where to ask instead.

        Raises `RaftRefused` when the group would not keep a healthy quorum, and what the calls raise.
        """
        async with self._turns:
            members, _ = await self._group.members()
            book = await self._group.book()
            known = book.record.peer(name)
            ids = {member.peer_id for member in members if member.name == name}
            ids |= {known.peer_id} if known is not None else set()
            found = next((member for member in members if member.peer_id in ids), None)
            if found is not None and not found.is_learner:
                problem = leave_problem(members, found.peer_id)
                if problem:
                    raise RaftRefused(f"{name} cannot leave {self._group.app}: {problem}")
                if name == own_name:
                    return await self._hand_over(members, book, found.peer_id)
            if found is not None:
                await self._group.local.remove(found.peer_id)
            if known is not None:
                await self._group.change_record(
                    lambda record: record.without_peer(name) if record.peer(name) else None
                )
            # A peer that is not there was removed before: an answer may have been lost.
            return ""

    async def _hand_over(self, members: list[MemberView], book: GroupBook, own_id: int) -> str:
        others = [one for one in members if one.is_reachable and not one.is_learner and one.peer_id != own_id]
        # The member that has the most: it takes over without having to catch up.
        target = max(others, key=lambda one: (one.applied_index, one.name))
        await self._group.local.move_leader(target.peer_id)
        peer = book.record.peer(target.name)
        if peer is None:
            raise Conflict(f"{target.name} leads {self._group.app} now; ask again")
        return peer.join_address

    def _notice(self, book: GroupBook) -> None:
        """Report new requests, and requests that vanished without being done or refused."""
        now = self._clock.monotonic()
        present = {request.record.ticket: request.record for request in book.requests}
        for ticket, record in present.items():
            if ticket not in self._seen and record.state is not JoinState.REFUSED:
                # It may have come while another peer led. Only for display: clocks of two machines differ.
                age_s = max(0.0, self._clock.wall() - record.requested_at) if record.requested_at else 0.0
                self._seen[ticket] = (record.peer.name, now - age_s)
                self._tell(JoinRequested(name=record.peer.name))
                if record.state is JoinState.PENDING:
                    self._tell(ApprovalAwaited(name=record.peer.name, timeout_s=self._approval_timeout_s))
        for ticket in set(self._seen) - set(present):
            name, _ = self._seen.pop(ticket)
            asked_again = any(record.peer.name == name for record in present.values())
            if not asked_again:
                self._tell(JoinExpired(name=name))

    def _is_patience_over(self, members: list[MemberView]) -> bool:
        now = self._clock.monotonic()
        if not health_problem(members):
            self._unhealthy_since = None
            return False
        if self._unhealthy_since is None:
            self._unhealthy_since = now
        return now - self._unhealthy_since >= self._patience_s

    async def _remove_orphans(self, members: list[MemberView], book: GroupBook) -> bool:
        """Remove learners that had no request at two looks: a former leader may have made the first."""
        found = {step.peer_id: step for step in orphans(members, book.records)}
        twice = [step for peer_id, step in found.items() if peer_id in self._orphans]
        self._orphans = frozenset(found)
        for step in twice:
            await self._group.local.remove(step.peer_id)
        return bool(twice)

    async def _strike_out(self, members: list[MemberView], book: GroupBook) -> None:
        """Take out of the record a peer that was removed, if the removal was broken off before that.

        It was in the record at the look before, so it had its vote; it is no member now, so never again.
        """
        present = {member.peer_id for member in members}
        gone = next((one for one in book.record.peers if one.peer_id in self._recorded - present), None)
        self._recorded = frozenset(one.peer_id for one in book.record.peers)
        if gone is not None:
            await self._group.change_record(
                lambda record: record.without_peer(gone.name) if record.peer(gone.name) == gone else None
            )

    async def _carry_out(self, step: Step, request: JoinRequest, book: GroupBook) -> bool:
        if isinstance(step, Wait):
            return False
        if isinstance(step, Refuse):
            await self._refuse(step, request)
        elif isinstance(step, Remember):
            await self._remember(step, request)
        elif isinstance(step, RemoveLearner):
            await self._group.local.remove(step.peer_id)
        elif isinstance(step, AddLearner):
            return await self._add(step, request)
        elif isinstance(step, Promote):
            try:
                await self._group.local.promote(step.peer_id)
            except Conflict:
                return False  # It has not caught up yet; the next look tries again.
        elif isinstance(step, Finish) and await self._group.finish_request(book, request, step.peer):
            self._seen.pop(request.record.ticket, None)
        return True

    async def _add(self, step: AddLearner, request: JoinRequest) -> bool:
        try:
            await self._group.local.add_learner(step.peer_address)
        except (Conflict, StoreUnavailable) as error:
            # It may be there already (an answer was lost), or the members are not connected for long enough.
            now = self._clock.monotonic()
            if self._denied_since is None:
                self._denied_since = now
            if now - self._denied_since >= RAFT_DENIAL_S:
                self._denied_since = None
                await self._refuse(Refuse(code="denied", reason=str(error)), request)
            return False
        self._denied_since = None
        return True

    async def _remember(self, step: Remember, request: JoinRequest) -> None:
        record = step.record
        if record.state is JoinState.ACCEPTED:
            status = await self._group.local.status()
            record = replace(record, snapshot_bytes=status.dbSize, effective_index=status.raftIndex)
        elif record.state is JoinState.PENDING:
            record = replace(record, lease=await self._group.local.grant(self._approval_timeout_s))
        if not await self._group.write_request(record, request.revision):
            return
        name = record.peer.name
        if record.state is JoinState.ACCEPTED:
            accept_s = self._waited_s(record)
            self._tell(JoinAccepted(name=name, peer_id=record.peer.peer_id, accept_s=accept_s))
        elif record.state is JoinState.PENDING:
            self._tell(ApprovalAwaited(name=name, timeout_s=self._approval_timeout_s))

    def _waited_s(self, record: JoinRecord) -> float:
        """How long ago the request was made, as far as this peer knows."""
        now = self._clock.monotonic()
        return now - self._seen.get(record.ticket, ("", now))[1]

    async def _refuse(self, step: Refuse, request: JoinRequest) -> bool:
        """Write the reason, for long enough that the peer can read it.

        Returns whether the request was unchanged.
        """
        lease = await self._group.local.grant(RAFT_REFUSAL_S)
        record = moved(request.record, JoinState.REFUSED, lease=lease, code=step.code, reason=step.reason)
        if not await self._group.write_request(record, request.revision):
            return False
        self._seen.pop(record.ticket, None)
        self._tell(JoinRequestRefused(name=record.peer.name, code=step.code, reason=step.reason))
        return True
