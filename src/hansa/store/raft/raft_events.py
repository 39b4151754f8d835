"""What a peer of a raft group tells: its events, its numbers, and the state of its group."""

from dataclasses import dataclass

from hansa.store.raft.group_record import PeerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChanged:
    """The group has another leader, or the same one for a new term. Empty: none that this peer knows of."""

    leader: str
    term: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJoined:
    """A peer has its vote and stands in the group's record."""

    peer: PeerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLeft:
    """A peer is no more in the group."""

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
    """A peer that joins has so much of the log, of what there was when it was accepted."""

    applied_index: int
    target_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequested:
    """The leader's peer has seen a request to join."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAccepted:
    """The peer was added as a learner, so long after its request was first seen."""

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
    """This peer's etcd wrote snapshots of its log: how many, in how long; `db_bytes` is all its data."""

    count: int
    seconds: float
    db_bytes: int


RaftEvent = (
    LeaderChanged
    | PeerJoined
    | PeerLeft
    | MemberRestarted
    | MemberFailing
    | CatchingUp
    | JoinRequested
    | JoinAccepted
    | JoinRequestRefused
    | JoinExpired
    | SnapshotTaken
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftStats:
    """Numbers of one peer, since it started. `_s` are of the last one; 0 where there was none."""

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
    joins_refused_count: int = 0
    joins_expired_count: int = 0
    join_accept_s: float = 0.0
    join_sync_s: float = 0.0
    looks_failed_count: int = 0
    events_dropped_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """One peer of a group as another one sees it. What did not answer has zeros."""

    peer: PeerInfo
    role: str
    is_voter: bool
    is_healthy: bool
    term: int = 0
    applied_index: int = 0
    db_bytes: int = 0
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """A group as one of its peers sees it. `leader` is a name, empty when it knows of none."""

    app: str
    cluster: str
    leader: str
    term: int
    record_version: int
    peers: tuple[PeerStatus, ...]
