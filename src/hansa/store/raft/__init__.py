"""Raft mode: a group of peers per application, each with an etcd member that hansa starts and watches.

    async with RaftPeer("orders", "n1", data="n1", peers={"n1": "host-a:2380", "n2": ..., "n3": ...}) as peer:
        await peer.store.put("berth/1", b"cog")

Not part of what `hansa` exports yet, so without a list of its own.
"""

from hansa.store.raft.group_record import PeerInfo as PeerInfo
from hansa.store.raft.join_messages import JoinAcceptance as JoinAcceptance
from hansa.store.raft.join_messages import JoinTicket as JoinTicket
from hansa.store.raft.member_settings import RaftTimings as RaftTimings
from hansa.store.raft.on_raft import RaftStore as RaftStore
from hansa.store.raft.over_join_client import JoinClient as JoinClient
from hansa.store.raft.over_raft_peer import RaftPeer as RaftPeer
from hansa.store.raft.raft_events import CatchingUp as CatchingUp
from hansa.store.raft.raft_events import GroupStatus as GroupStatus
from hansa.store.raft.raft_events import JoinAccepted as JoinAccepted
from hansa.store.raft.raft_events import JoinExpired as JoinExpired
from hansa.store.raft.raft_events import JoinRequested as JoinRequested
from hansa.store.raft.raft_events import JoinRequestRefused as JoinRequestRefused
from hansa.store.raft.raft_events import LeaderChanged as LeaderChanged
from hansa.store.raft.raft_events import MemberFailing as MemberFailing
from hansa.store.raft.raft_events import MemberRestarted as MemberRestarted
from hansa.store.raft.raft_events import PeerJoined as PeerJoined
from hansa.store.raft.raft_events import PeerLeft as PeerLeft
from hansa.store.raft.raft_events import PeerStatus as PeerStatus
from hansa.store.raft.raft_events import RaftEvent as RaftEvent
from hansa.store.raft.raft_events import RaftStats as RaftStats
from hansa.store.raft.raft_events import SnapshotTaken as SnapshotTaken
