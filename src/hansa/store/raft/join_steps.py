"""One join, step by step: what the peer beside the leader does next, decided from what the store says. Pure.

Nothing is remembered between two steps but the record in the store and the list of members. So the next
leader decides the same from the same: a leader that dies between any two steps, with the effect of the last
one done or not, leaves a state from which the next one continues. `ADDING` and `PROMOTING` are written before
their effect is requested, and are left only when the list of members shows it.

    requested -> adding -> accepted -> syncing -> promoting -> done
       \\-> pending -> approved -/
    any of them up to promoting, at a check that fails or a person's no -> refused
    any of them, at the end of its time ------------------------------> expired

A group whose approval is manual takes the way through `PENDING`: the request waits there for a person,
without blocking others, after the checks have passed and before anything is changed. The checks are made
again after the approval.

A learner whose request is gone (expired) is an orphan and is removed. A voter is never removed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hansa.errors import invariant
from hansa.limits import RAFT_PEERS_MAX
from hansa.store.raft.group_record import Approval, JoinRecord, JoinState, PeerInfo

S = JoinState
TRANSITIONS: Final[Mapping[JoinState, frozenset[JoinState]]] = {
    S.REQUESTED: frozenset({S.PENDING, S.APPROVED, S.ADDING, S.REFUSED, S.EXPIRED}),
    S.PENDING: frozenset({S.APPROVED, S.ADDING, S.REFUSED, S.EXPIRED}),
    S.APPROVED: frozenset({S.ADDING, S.REFUSED, S.EXPIRED}),
    S.ADDING: frozenset({S.ACCEPTED, S.REFUSED, S.EXPIRED}),
    S.ACCEPTED: frozenset({S.SYNCING, S.DONE, S.REFUSED, S.EXPIRED}),
    S.SYNCING: frozenset({S.PROMOTING, S.DONE, S.REFUSED, S.EXPIRED}),
    S.PROMOTING: frozenset({S.DONE, S.REFUSED, S.EXPIRED}),
    S.DONE: frozenset(),
    S.REFUSED: frozenset({S.EXPIRED}),
    S.EXPIRED: frozenset(),
}
# A learner belongs to a request in one of these states.
_WITH_LEARNER: Final = frozenset({S.ADDING, S.ACCEPTED, S.SYNCING, S.PROMOTING})
# A person may still say yes or no to a request in one of these states.
UNDECIDED: Final = frozenset({S.REQUESTED, S.PENDING})
OPEN: Final = _WITH_LEARNER | UNDECIDED | {S.APPROVED}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """A member of the group. `name` is empty until it has started once; `is_reachable` when it answered."""

    peer_id: int
    name: str
    peer_address: str
    client_address: str = ""
    is_learner: bool = False
    is_reachable: bool = True
    applied_index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Refuse the request. `code` is a word for programs, `reason` a sentence."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remember:
    """Write the record as it is now; the next step follows from it."""

    record: JoinRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AddLearner:
    """Add a member without a vote."""

    peer_address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveLearner:
    """Remove a member that has no vote."""

    peer_id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promote:
    """Give the learner its vote, once it has caught up."""

    peer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Write the peer into the group's record and delete the request, in one revision."""

    peer: PeerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """There is nothing to do before something changes."""

    why: str


Step = Refuse | Remember | AddLearner | RemoveLearner | Promote | Finish | Wait


def moved(record: JoinRecord, state: JoinState, **changes: Any) -> JoinRecord:
    """The record in its next state. Raises `InvariantBroken` for a step that is not in the table."""
    invariant(state in TRANSITIONS[record.state], f"a join went from {record.state} to {state}")
    return replace(record, state=state, **changes)


def next_request(records: Sequence[JoinRecord], approval: Approval = Approval.AUTOMATIC) -> JoinRecord | None:
    """The one request that is worked on: the one that has begun, else the first.

    `records` are in their order.
    """
    ready = {S.REQUESTED, S.APPROVED} if approval is Approval.MANUAL else {S.REQUESTED, S.PENDING, S.APPROVED}
    begun = [record for record in records if record.state in _WITH_LEARNER]
    waiting = [record for record in records if record.state in ready]
    return next(iter([*begun, *waiting]), None)


def orphans(members: Sequence[MemberView], records: Sequence[JoinRecord]) -> list[RemoveLearner]:
    """Learners that belong to no open request. `records` were read after `members`.

    A request that waits for a person has no learner: a member at its address is left from an earlier request.
    """
    wanted = {record.peer.peer_address for record in records if record.state in OPEN - {S.PENDING}}
    return [
        RemoveLearner(peer_id=member.peer_id, name=member.name)
        for member in members
        if member.is_learner and member.peer_address not in wanted
    ]


def next_step(
    record: JoinRecord,
    members: Sequence[MemberView],
    *,
    is_patience_over: bool,
    approval: Approval = Approval.AUTOMATIC,
    peers_max: int = RAFT_PEERS_MAX,
) -> Step:
    """What to do about a request. `is_patience_over`: the group has had its time to become healthy."""
    if record.state is S.PENDING and approval is Approval.MANUAL:
        return Wait(why=f"{record.peer.name} waits for a person's approval")
    if record.state in (S.REQUESTED, S.PENDING, S.APPROVED):
        is_asked = record.state is S.REQUESTED and approval is Approval.MANUAL
        allowed = Remember(record=moved(record, S.PENDING if is_asked else S.ADDING))
        return _check(record, members, is_patience_over, peers_max, allowed)
    if record.state is S.ADDING:
        return _add(record, members, is_patience_over)
    if record.state in (S.ACCEPTED, S.SYNCING, S.PROMOTING):
        return _promote(record, members)
    return Wait(why=f"it is {record.state}")


def health_problem(members: Sequence[MemberView]) -> str:
    """Why no member may be added now; empty when every voter answers."""
    away = [member.name or member.peer_address for member in members if _is_away(member)]
    if not away:
        return ""
    return f"{', '.join(away)} of {len(members)} peers did not answer: start or remove it first"


def leave_problem(members: Sequence[MemberView], peer_id: int) -> str:
    """Why a member may not be removed now; empty when the others keep a quorum that answers.

    A member that answers leaves only while all others answer too. Otherwise two members that leave at once,
    one by the word of a leader and one by the word of a former leader that does not know yet, could break the
    quorum.
    """
    voters = [member for member in members if not member.is_learner]
    others = [member for member in voters if member.peer_id != peer_id]
    if len(others) == len(voters):
        return ""
    if any(member.is_learner for member in members):
        return "another peer is joining: one change at a time"
    if not others:
        return "it is the last peer: stop it instead, or remove its data folder"
    answering = [member for member in others if member.is_reachable]
    quorum = len(others) // 2 + 1
    if len(answering) < quorum:
        return (
            f"of the {len(others)} peers that would remain {len(answering)} answer, and a quorum of them is "
            f"{quorum}: start the others first"
        )
    is_away = any(_is_away(member) for member in voters if member.peer_id == peer_id)
    return "" if is_away else health_problem(others)


def _is_away(member: MemberView) -> bool:
    return not member.is_learner and not member.is_reachable


def _check(
    record: JoinRecord, members: Sequence[MemberView], is_patience_over: bool, peers_max: int, allowed: Step
) -> Step:
    peer = record.peer
    for member in members:
        at_address = member.peer_address == peer.peer_address
        if not member.is_learner and at_address and member.name in ("", peer.name):
            return Refuse(code="already-member", reason=f"{peer.name} has a vote in {record.app} already")
        if not member.is_learner and (at_address or member.name == peer.name):
            taken = f"address {peer.peer_address}" if at_address else f"name {peer.name}"
            return Refuse(code="name-taken", reason=f"the {taken} belongs to another peer of {record.app}")
        if member.is_learner and at_address:
            # It belongs to an earlier request: the peer asks again because it lost its data, and a member
            # must not forget.
            return RemoveLearner(peer_id=member.peer_id, name=peer.name)
    if any(member.is_learner for member in members):
        return Wait(why="another peer is joining")
    if len(members) >= peers_max:
        return Refuse(code="full", reason=f"{record.app} has {len(members)} peers, and no room for more")
    return _unless_unhealthy(members, is_patience_over, allowed)


def _add(record: JoinRecord, members: Sequence[MemberView], is_patience_over: bool) -> Step:
    added = next((one for one in members if one.peer_address == record.peer.peer_address), None)
    if added is None:
        step = AddLearner(peer_address=record.peer.peer_address)
        return _unless_unhealthy(members, is_patience_over, step)
    cluster = {member.name: member.peer_address for member in members if member is not added}
    cluster[record.peer.name] = record.peer.peer_address
    peer = replace(record.peer, peer_id=added.peer_id)
    return Remember(record=moved(record, S.ACCEPTED, peer=peer, initial_cluster=cluster))


def _unless_unhealthy(members: Sequence[MemberView], is_patience_over: bool, step: Step) -> Step:
    problem = health_problem(members)
    if not problem:
        return step
    return Refuse(code="unhealthy", reason=problem) if is_patience_over else Wait(why=problem)


def _promote(record: JoinRecord, members: Sequence[MemberView]) -> Step:
    found = next((member for member in members if member.peer_id == record.peer.peer_id), None)
    if found is None:
        return Refuse(code="removed", reason=f"{record.peer.name} was removed before it had its vote")
    if not found.is_learner:
        return Finish(peer=record.peer)
    if record.state is S.ACCEPTED:
        return Wait(why=f"{record.peer.name} has not caught up yet")
    if not found.is_reachable:
        # A voter that does not answer would cost the group its quorum: 2 of 3 becomes 2 of 4.
        return Wait(why=f"{record.peer.name} does not answer at {record.peer.client_address}")
    if record.state is S.PROMOTING:
        return Promote(peer_id=found.peer_id)
    return Remember(record=moved(record, S.PROMOTING))
