"""What the peer beside the leader does for its group: takes requests to join, one at a time, and removals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from hansa.clock import Clock
from hansa.errors import Conflict, RaftRefused, StoreUnavailable
from hansa.limits import RAFT_DENIAL_S, RAFT_HEALTH_PATIENCE_S, RAFT_REFUSAL_S
from hansa.store.raft.group_record import JoinState
from hansa.store.raft.join_steps import (
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
from hansa.store.raft.over_group import Group, GroupBook, Request
from hansa.store.raft.raft_events import (
    JoinAccepted,
    JoinExpired,
    JoinRequested,
    JoinRequestRefused,
    RaftEvent,
)


class Steward:
    """Acts only while its member leads; then it is the one place where the group's membership is changed.

    All it remembers by itself is what it told and since when: the next leader's decides the same without it.
    """

    def __init__(
        self,
        group: Group,
        clock: Clock,
        tell: Callable[[RaftEvent], None],
        *,
        patience_s: float = RAFT_HEALTH_PATIENCE_S,
    ) -> None:
        self._group = group
        self._clock = clock
        self._tell = tell
        self._patience_s = patience_s
        self._turns = asyncio.Lock()
        self._unhealthy_since: float | None = None
        self._denied_since: float | None = None
        self._seen: dict[str, tuple[str, float]] = {}
        self._orphans: frozenset[int] = frozenset()
        self._recorded: frozenset[int] = frozenset()

    def forget(self) -> None:
        """Its member leads no more."""
        self._unhealthy_since = self._denied_since = None
        self._seen.clear()
        self._orphans = self._recorded = frozenset()

    async def turn(self) -> bool:
        """One look and at most one step. Says whether there may be more to do at once.

        Raises what the member's calls raise; then the same is decided again at the next look.
        """
        async with self._turns:
            members, _ = await self._group.members()
            # After the members: a learner that is seen has had its request in the store before.
            book = await self._group.book()
            self._notice(book)
            await self._strike_out(members, book)
            if await self._remove_orphans(members, book):
                return True
            record = next_request(book.records)
            if record is None:
                return False
            request = next(one for one in book.requests if one.record is record)
            step = next_step(record, members, is_patience_over=self._is_patience_over(members))
            return await self._carry_out(step, request, book)

    async def remove(self, name: str, own_name: str) -> str:
        """Remove a peer; gives where to ask instead when it is the leader itself, which hands over first.

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
            # One that is not there was removed before: an answer may have been lost.
            return ""

    async def _hand_over(self, members: list[MemberView], book: GroupBook, own_id: int) -> str:
        others = [one for one in members if one.is_reachable and not one.is_learner and one.peer_id != own_id]
        # The one that has the most: it takes over without having to catch up.
        target = max(others, key=lambda one: (one.applied_index, one.name))
        await self._group.local.move_leader(target.peer_id)
        peer = book.record.peer(target.name)
        if peer is None:
            raise Conflict(f"{target.name} leads {self._group.app} now; ask again")
        return peer.join_address

    def _notice(self, book: GroupBook) -> None:
        """Tell of requests that came, and of those that went without being done or refused."""
        now = self._clock.monotonic()
        present = {request.record.ticket: request.record for request in book.requests}
        for ticket, record in present.items():
            if ticket not in self._seen and record.state is not JoinState.REFUSED:
                self._seen[ticket] = (record.peer.name, now)
                self._tell(JoinRequested(name=record.peer.name))
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
        """Remove learners that were without a request at two looks: the first may have been a leader ago."""
        found = {step.peer_id: step for step in orphans(members, book.records)}
        twice = [step for peer_id, step in found.items() if peer_id in self._orphans]
        self._orphans = frozenset(found)
        for step in twice:
            await self._group.local.remove(step.peer_id)
        return bool(twice)

    async def _strike_out(self, members: list[MemberView], book: GroupBook) -> None:
        """Take out of the record who was removed, and whose removal was broken off before that.

        It stood there at the look before, so it had its vote; it is no member now, so it never is again.
        """
        present = {member.peer_id for member in members}
        gone = next(
            (one for one in book.record.peers if one.peer_id in self._recorded - present),
            None,
        )
        self._recorded = frozenset(one.peer_id for one in book.record.peers)
        if gone is not None:
            await self._group.change_record(
                lambda record: record.without_peer(gone.name) if record.peer(gone.name) == gone else None
            )

    async def _carry_out(self, step: Step, request: Request, book: GroupBook) -> bool:
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
                return False  # It has not caught up so far; the next look tries again.
        elif isinstance(step, Finish) and await self._group.finish_request(book, request, step.peer):
            self._seen.pop(request.record.ticket, None)
        return True

    async def _add(self, step: AddLearner, request: Request) -> bool:
        try:
            await self._group.local.add_learner(step.peer_address)
        except (Conflict, StoreUnavailable) as error:
            # It may be there already (an answer was lost), or the members are not connected long enough yet.
            now = self._clock.monotonic()
            if self._denied_since is None:
                self._denied_since = now
            if now - self._denied_since >= RAFT_DENIAL_S:
                self._denied_since = None
                await self._refuse(Refuse(code="denied", reason=str(error)), request)
            return False
        self._denied_since = None
        return True

    async def _remember(self, step: Remember, request: Request) -> None:
        record = step.record
        if record.state is JoinState.ACCEPTED:
            status = await self._group.local.status()
            record = replace(record, snapshot_bytes=status.dbSize, effective_index=status.raftIndex)
        if await self._group.write_request(record, request.revision) and record.state is JoinState.ACCEPTED:
            _, seen_at = self._seen.get(record.ticket, ("", self._clock.monotonic()))
            self._tell(
                JoinAccepted(
                    name=record.peer.name,
                    peer_id=record.peer.peer_id,
                    accept_s=self._clock.monotonic() - seen_at,
                )
            )

    async def _refuse(self, step: Refuse, request: Request) -> None:
        """Write why, for as long as it takes to be read."""
        lease = await self._group.local.grant(RAFT_REFUSAL_S)
        record = moved(request.record, JoinState.REFUSED, lease=lease, code=step.code, reason=step.reason)
        if await self._group.write_request(record, request.revision):
            self._seen.pop(record.ticket, None)
            self._tell(JoinRequestRefused(name=record.peer.name, code=step.code, reason=step.reason))
