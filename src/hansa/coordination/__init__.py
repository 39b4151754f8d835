"""What processes agree on through a store: sessions, locks, elections and who is there.

    async with Session(store, ttl=10) as session:
        async with Lock(session, "nightly") as hold:
            await files.write(fence=hold.fence, report=report)

Not part of what `hansa` exports yet, so without a list of its own.
"""

from hansa.coordination.following import Changed as Changed
from hansa.coordination.following import Snapshot as Snapshot
from hansa.coordination.keys import Keys as Keys
from hansa.coordination.line_stats import LineStats as LineStats
from hansa.coordination.member import Member as Member
from hansa.coordination.member_events import Expelled as Expelled
from hansa.coordination.member_events import LoopLagged as LoopLagged
from hansa.coordination.member_events import MemberDown as MemberDown
from hansa.coordination.member_events import MemberEvent as MemberEvent
from hansa.coordination.member_events import MemberJoined as MemberJoined
from hansa.coordination.member_events import MemberLeft as MemberLeft
from hansa.coordination.member_events import MemberRefuted as MemberRefuted
from hansa.coordination.member_events import MembersEvent as MembersEvent
from hansa.coordination.member_events import MemberSuspected as MemberSuspected
from hansa.coordination.member_events import MemberUpdated as MemberUpdated
from hansa.coordination.member_events import Rejoined as Rejoined
from hansa.coordination.member_stats import MembersStats as MembersStats
from hansa.coordination.node_info import MemberStatus as MemberStatus
from hansa.coordination.node_info import NodeInfo as NodeInfo
from hansa.coordination.on_fenced_file import FencedFile as FencedFile
from hansa.coordination.over_barrier import Barrier as Barrier
from hansa.coordination.over_election import Election as Election
from hansa.coordination.over_election import LeaderInfo as LeaderInfo
from hansa.coordination.over_election import Leadership as Leadership
from hansa.coordination.over_fenced_key import FencedKey as FencedKey
from hansa.coordination.over_following import Following as Following
from hansa.coordination.over_lock import Hold as Hold
from hansa.coordination.over_lock import HolderInfo as HolderInfo
from hansa.coordination.over_lock import Lock as Lock
from hansa.coordination.over_members import Members as Members
from hansa.coordination.over_membership_watcher import MembershipWatcher as MembershipWatcher
from hansa.coordination.over_membership_watcher import NodeEvents as NodeEvents
from hansa.coordination.over_membership_watcher import NodeJoined as NodeJoined
from hansa.coordination.over_membership_watcher import NodeLeft as NodeLeft
from hansa.coordination.over_node_registry import NodeRegistry as NodeRegistry
from hansa.coordination.over_routing_table import RoutingTables as RoutingTables
from hansa.coordination.over_routing_table import RoutingTableStore as RoutingTableStore
from hansa.coordination.over_semaphore import Semaphore as Semaphore
from hansa.coordination.over_session import Session as Session
from hansa.coordination.roster import Roster as Roster
from hansa.coordination.routing_table import RouteEntry as RouteEntry
from hansa.coordination.routing_table import RoutingTable as RoutingTable
