"""Raft mode: a group of peers per application, each with an etcd member that hansa starts and watches.

async with RaftPeer("orders", "n1", data="n1", peers={"n1": "host-a:2380", "n2": ..., "n3": ...}) as peer:
    await peer.store.put("berth/1", b"cog")
"""

from hansa.store.raft.group_record import Approval, Bootstrap, JoinState, PeerInfo
from hansa.store.raft.join_messages import JoinAcceptance, JoinTicket
from hansa.store.raft.member_settings import RaftTimings
from hansa.store.raft.on_raft import RaftStore
from hansa.store.raft.over_join_client import JoinClient
from hansa.store.raft.over_raft_peer import RaftPeer
from hansa.store.raft.raft_events import (
    ApprovalAwaited,
    CatchingUp,
    GroupStatus,
    JoinAccepted,
    JoinApproved,
    JoinExpired,
    JoinRequested,
    JoinRequestRefused,
    LeaderChanged,
    MemberFailing,
    MemberRestarted,
    PeerJoined,
    PeerLeft,
    PeerStatus,
    RaftEvent,
    RaftStats,
    RequestStatus,
    SnapshotTaken,
)

__all__ = [
    "Approval",
    "ApprovalAwaited",
    "Bootstrap",
    "CatchingUp",
    "GroupStatus",
    "JoinAcceptance",
    "JoinAccepted",
    "JoinApproved",
    "JoinClient",
    "JoinExpired",
    "JoinRequestRefused",
    "JoinRequested",
    "JoinState",
    "JoinTicket",
    "LeaderChanged",
    "MemberFailing",
    "MemberRestarted",
    "PeerInfo",
    "PeerJoined",
    "PeerLeft",
    "PeerStatus",
    "RaftEvent",
    "RaftPeer",
    "RaftStats",
    "RaftStore",
    "RaftTimings",
    "RequestStatus",
    "SnapshotTaken",
]
