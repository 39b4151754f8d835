"""What processes agree on through a store: sessions, locks, elections and who is there.

async with Session(store, ttl=10) as session:
    async with Lock(session, "nightly") as hold:
        await files.write(fence=hold.fence, report=report)
"""

from hansa.coordination.following import Changed, Snapshot
from hansa.coordination.keys import Keys
from hansa.coordination.line_stats import LineStats
from hansa.coordination.member import Member
from hansa.coordination.member_events import (
    Expelled,
    LoopLagged,
    MemberDown,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MembersEvent,
    MemberSuspected,
    MemberUpdated,
    Rejoined,
)
from hansa.coordination.member_stats import MembersStats
from hansa.coordination.node_info import MemberStatus, NodeInfo
from hansa.coordination.on_fenced_file import FencedFile
from hansa.coordination.over_barrier import Barrier
from hansa.coordination.over_election import Election, LeaderInfo, Leadership
from hansa.coordination.over_fenced_key import FencedKey
from hansa.coordination.over_following import Following
from hansa.coordination.over_lock import Hold, HolderInfo, Lock
from hansa.coordination.over_members import Members
from hansa.coordination.over_membership_watcher import (
    MembershipWatcher,
    NodeEvent,
    NodeEvents,
    NodeJoined,
    NodeLeft,
)
from hansa.coordination.over_node_registry import NodeRegistry
from hansa.coordination.over_routing_table import RoutingTables, RoutingTableStore
from hansa.coordination.over_semaphore import Semaphore
from hansa.coordination.over_session import Session
from hansa.coordination.roster import Roster
from hansa.coordination.routing_table import RouteEntry, RoutingTable

__all__ = [
    "Barrier",
    "Changed",
    "Election",
    "Expelled",
    "FencedFile",
    "FencedKey",
    "Following",
    "Hold",
    "HolderInfo",
    "Keys",
    "LeaderInfo",
    "Leadership",
    "LineStats",
    "Lock",
    "LoopLagged",
    "Member",
    "MemberDown",
    "MemberEvent",
    "MemberJoined",
    "MemberLeft",
    "MemberRefuted",
    "MemberStatus",
    "MemberSuspected",
    "MemberUpdated",
    "Members",
    "MembersEvent",
    "MembersStats",
    "MembershipWatcher",
    "NodeEvent",
    "NodeEvents",
    "NodeInfo",
    "NodeJoined",
    "NodeLeft",
    "NodeRegistry",
    "Rejoined",
    "Roster",
    "RouteEntry",
    "RoutingTable",
    "RoutingTableStore",
    "RoutingTables",
    "Semaphore",
    "Session",
    "Snapshot",
]
