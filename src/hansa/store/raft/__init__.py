"""Raft mode: a group of peers per application, each with an etcd member that hansa starts and watches.

async with RaftPeer("orders", "n1", data="n1", peers={"n1": "host-a:2380", "n2": ..., "n3": ...}) as peer:
    await peer.store.put("berth/1", b"cog")

- `peer`: a peer from start to end. `peer_home`: its folder and addresses.
- `etcd_program`: which etcd may be used, and how it is started.
- `member_process`: runs the member, and decides when it is started again.
- `group`: questions to members, and the group as one peer reads it.
- `peer_watch`: what a peer does while its member runs. `steward`: what the leader's peer does for the group.
- `join_client`, `join_service`, `join_messages`, `join_steps`: how a peer joins and leaves.
- `group_record`, `raft_events`: what the group writes into its own store, and what a peer reports.
- `raft_store`: the store that the group keeps, through its current members.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.store.raft.etcd_program import RaftTimings
    from hansa.store.raft.group_record import Approval, Bootstrap, JoinState, PeerInfo
    from hansa.store.raft.join_client import JoinClient
    from hansa.store.raft.join_messages import JoinAcceptance, JoinTicket
    from hansa.store.raft.peer import RaftPeer
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
        PeerStatus,
        RaftEvent,
        RaftPeerJoined,
        RaftPeerLeft,
        RaftStats,
        RequestStatus,
        SnapshotTaken,
    )
    from hansa.store.raft.raft_store import RaftStore
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.store.raft.group_record": "Approval Bootstrap JoinState PeerInfo",
            "hansa.store.raft.join_client": "JoinClient",
            "hansa.store.raft.join_messages": "JoinAcceptance JoinTicket",
            "hansa.store.raft.etcd_program": "RaftTimings",
            "hansa.store.raft.peer": "RaftPeer",
            "hansa.store.raft.raft_events": (
                "ApprovalAwaited CatchingUp GroupStatus JoinAccepted JoinApproved JoinExpired "
                "JoinRequestRefused JoinRequested LeaderChanged MemberFailing MemberRestarted "
                "PeerStatus RaftEvent RaftPeerJoined RaftPeerLeft RaftStats RequestStatus "
                "SnapshotTaken"
            ),
            "hansa.store.raft.raft_store": "RaftStore",
        },
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
    "PeerStatus",
    "RaftEvent",
    "RaftPeer",
    "RaftPeerJoined",
    "RaftPeerLeft",
    "RaftStats",
    "RaftStore",
    "RaftTimings",
    "RequestStatus",
    "SnapshotTaken",
]
