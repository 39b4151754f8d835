"""The messages about joining and leaving between peers, as JSON over gRPC.

Each method takes one of the requests here and returns a `JoinAnswer`. A peer whose member does not lead
answers with the address of the leader's peer (`redirect`), and the client goes there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from hansa.control.method import Form, Method
from hansa.errors import BadArgument
from hansa.limits import RAFT_REASON_CHARS_MAX
from hansa.store.raft.group_record import (
    Approval,
    Charter,
    JoinRecord,
    JoinState,
    PeerInfo,
    decode,
    encode,
    is_loopback,
)
from hansa.store.raft.raft_events import GroupStatus

_JSON: Final = Form(encode=encode, decoder=lambda kind: partial(decode, kind))


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAsk:
    """RequestJoin: take this peer into the group of this application."""

    app: str
    peer: PeerInfo
    ticket: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTicket:
    """The answer to a request: with it the peer asks whether it was accepted, within `timeout_s`.

    `needs_approval`: a person decides, and the time includes the one that a person has for it.
    """

    app: str
    name: str
    ticket: str
    timeout_s: float
    needs_approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAcceptance:
    """The peer is a learner now. Its etcd starts with `initial_cluster` (names and peer addresses).

    It has caught up when it has applied `effective_index`; the leader sends it `snapshot_bytes` of data, or
    less where its log reaches back far enough.
    """

    peer_id: int
    initial_cluster: Mapping[str, str]
    snapshot_bytes: int
    effective_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitAsk:
    """AwaitAcceptance: was the request accepted? Answered within `wait_s`, with `is_pending` if undecided."""

    app: str
    name: str
    ticket: str
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveAsk:
    """Approve: a person lets this peer join."""

    app: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseAsk:
    """Refuse: a person does not let this peer join, for a reason that the peer is told."""

    app: str
    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernAsk:
    """SetApproval: from now on requests are approved in this way."""

    app: str
    approval: Approval


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteAsk:
    """CompleteSync: the learner runs and has caught up; give it its vote. Answered within `wait_s`."""

    app: str
    peer_id: int
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeAsk:
    """Describe: who is in the group, and in what state are they?"""

    app: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAsk:
    """Leave: remove a peer from the group."""

    app: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The result of a request.

    With a `code` it failed, and `text` says why; `is_retryable`: it may work later.
    """

    redirect: str = ""
    code: str = ""
    text: str = ""
    is_retryable: bool = False
    is_pending: bool = False
    ticket: JoinTicket | None = None
    acceptance: JoinAcceptance | None = None
    group: GroupStatus | None = None


# A request of the join API: each names its application.
AskT = TypeVar(
    "AskT", JoinAsk, AwaitAsk, ApproveAsk, RefuseAsk, GovernAsk, CompleteAsk, DescribeAsk, LeaveAsk
)


def _method(name: str, ask: type[AskT]) -> Method[AskT, JoinAnswer]:
    return Method(service="hansa.raft.Join", name=name, request=ask, response=JoinAnswer, form=_JSON)


REQUEST: Final = _method("RequestJoin", JoinAsk)
AWAIT: Final = _method("AwaitAcceptance", AwaitAsk)
APPROVE: Final = _method("Approve", ApproveAsk)
REFUSE: Final = _method("Refuse", RefuseAsk)
COMPLETE: Final = _method("CompleteSync", CompleteAsk)
GOVERN: Final = _method("SetApproval", GovernAsk)
DESCRIBE: Final = _method("Describe", DescribeAsk)
LEAVE: Final = _method("Leave", LeaveAsk)


def misfit(group: GroupStatus, peer: PeerInfo, cluster: str, charter: Charter) -> str:
    """Why a peer of this cluster must not even ask to join the group; empty when it may."""
    if group.cluster != cluster:
        return f"the group is of the cluster {group.cluster!r}, not of {cluster!r}"
    if differing := charter.misfit(group.resource_group, group.approval):
        return differing
    elsewhere = [one.peer.peer_address for one in group.peers if not is_loopback(one.peer.peer_address)]
    if elsewhere and is_loopback(peer.peer_address):
        return (
            f"the peers at {', '.join(elsewhere)} cannot reach it at {peer.peer_address}; give it the peer "
            "address that they dial (`--peer`)"
        )
    return ""


def check_reason(reason: str) -> str:
    """Return a person's reason, or raise `BadArgument`: the refused peer must be given one."""
    if not reason.strip() or len(reason) > RAFT_REASON_CHARS_MAX:
        raise BadArgument(
            f"reason: {len(reason)} characters; write 1 to {RAFT_REASON_CHARS_MAX}, which the peer is told"
        )
    return reason.strip()


def refusal(code: str, text: str, *, is_retryable: bool = False) -> JoinAnswer:
    return JoinAnswer(code=code, text=text, is_retryable=is_retryable)


def verdict(record: JoinRecord | None, ask: AwaitAsk) -> JoinAnswer:
    """The answer to `AwaitAcceptance`, from the request's record (None: it is gone)."""
    if record is None or record.ticket != ask.ticket:
        return refusal("expired", f"the request of {ask.name} to join {ask.app} has expired")
    if record.state is JoinState.REFUSED:
        return refusal(record.code, record.reason)
    if record.state is JoinState.PENDING:
        return JoinAnswer(is_pending=True, text=f"{ask.name} waits for a person's approval")
    if record.state in (JoinState.REQUESTED, JoinState.APPROVED, JoinState.ADDING):
        return JoinAnswer(is_pending=True)
    return JoinAnswer(
        acceptance=JoinAcceptance(
            peer_id=record.peer.peer_id,
            initial_cluster=record.initial_cluster,
            snapshot_bytes=record.snapshot_bytes,
            effective_index=record.effective_index,
        )
    )
