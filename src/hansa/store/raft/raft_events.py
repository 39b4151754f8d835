"""What a peer of a raft group reports: its events, its numbers, and the state of its group."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hansa.store.raft.group_record import Approval, Bootstrap, JoinState, PeerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """The group has another leader, or the same one for a new term. Empty: this peer knows of none."""

    leader: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftPeerJoined:
    """A peer has its vote and is in the group's record. (Topics have peers, too: `hansa.topics`.)"""

    peer: PeerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftPeerLeft:
    """A peer is no longer in the group. (Topics have peers, too: `hansa.topics`.)"""

    peer: PeerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRestarted:
    """This peer's etcd ended by itself and was started again."""

    restarts_count: int
    exit_status: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFailing:
    """This peer's etcd ends again and again; `log_tail` is the end of its log."""

    crashes_count: int
    log_tail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchingUp:
    """Progress of a joining peer: how much it has of the log that existed when it was accepted."""

    applied_index: int
    target_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequested:
    """The leader's peer has seen a request to join."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAwaited:
    """A request waits for a person (`hansa raft approve`, `refuse`), at most this long: then it expires."""

    name: str
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinApproved:
    """A person let the peer join, this long after its request."""

    name: str
    approval_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAccepted:
    """The peer was added as a learner, this long after its request."""

    name: str
    peer_id: int
    accept_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequestRefused:
    """A request was refused; `code` is for programs, `reason` for people."""

    name: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinExpired:
    """A request came to the end of its time; its learner, if it had one, is removed."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTaken:
    """This peer's etcd wrote snapshots of its log: how many, in how long. `db_bytes` is its data's size."""

    count: int
    seconds: float
    db_bytes: int


RaftEvent = (
    LeaderChanged
    | RaftPeerJoined
    | RaftPeerLeft
    | MemberRestarted
    | MemberFailing
    | CatchingUp
    | JoinRequested
    | ApprovalAwaited
    | JoinApproved
    | JoinAccepted
    | JoinRequestRefused
    | JoinExpired
    | SnapshotTaken
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftStats:
    """Numbers of one peer, since it started. `_s` and `_bytes` are of the last case; 0 if there was none.

    The join counts are about requests that this peer decided on while its member led; `join_sync_s` and
    `join_snapshot_bytes` are about its own joining. `refusals` counts them by their code.
    """

    leader_changes_count: int = 0
    term: int = 0
    db_bytes: int = 0
    snapshots_count: int = 0
    snapshot_s: float = 0.0
    snapshot_bytes: int = 0
    snapshots_received_count: int = 0
    snapshot_received_s: float = 0.0
    restarts_count: int = 0
    joins_accepted_count: int = 0
    joins_approved_count: int = 0
    joins_refused_count: int = 0
    joins_expired_count: int = 0
    refusals: Mapping[str, int] = field(default_factory=dict, hash=False)
    join_approval_s: float = 0.0
    join_accept_s: float = 0.0
    join_sync_s: float = 0.0
    join_snapshot_bytes: int = 0
    looks_failed_count: int = 0
    events_dropped_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """One peer of a group as another one sees it. A peer that did not answer has zeros."""

    peer: PeerInfo
    role: str
    is_voter: bool
    is_healthy: bool
    term: int = 0
    applied_index: int = 0
    db_bytes: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatus:
    """A request to join and its state. `requested_at` is wall time."""

    peer: PeerInfo
    state: JoinState
    requested_at: float
    code: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group as one of its peers sees it. `leader` is a name, empty when it knows of none.

    `asked` is the name of that peer, and `stats` are its own numbers. `bootstrap` is None while nobody has
    written how the group began.
    """

    app: str
    cluster: str
    leader: str
    term: int
    record_version: int
    peers: tuple[PeerStatus, ...]
    group_id: str = ""
    resource_group: str = ""
    approval: Approval = Approval.AUTOMATIC
    bootstrap: Bootstrap | None = None
    requests: tuple[RequestStatus, ...] = ()
    asked: str = ""
    stats: RaftStats = RaftStats()
