"""What processes agree on through a store: sessions, locks, elections and membership.

async with Session(store, ttl=10) as session:
    async with Lock(session, "nightly") as hold:
        await files.write(fence=hold.fence, report=report)

- `session`: one lease that is kept alive, how long its owner may believe in it, and the keeper, which opens
  another session when one was lost.
- `line`: the order of the claims in a line. `claim`: what a process owns through its session, from taking it
  to losing it or giving it back. `placed`: what a node owns because a leader says so. `held`: a claim as its
  users see it.
- `handover`: the steps by which something passes from one owner to the next, and who may write them.
  `giving`: the owner's side. `handed`: the state that is handed on, small or large. `succession`: the
  waiter's side. `placing`: hand-overs of placed entries, by leaders and nodes. `handovers`: all hand-overs
  of a cluster, to see them and to ask for one.
- `lock` (with the semaphore), `election`, `barrier`: what is taken in turns.
- `following`: a copy of the keys below a prefix, kept up to date, and keys that are guarded.
- `fencing`: storage that only the newest owner writes.
- `member`: a node, how others see it, what happens to it. `roster`: who is a member, and who is suspected.
- `members`: this process's place in a cluster and its view of the others. `stay`: its record in the store.
  `lookout`: watches the leases of other members, and reports which are overdue.
- `nodes`: smaller parts of the same: a registry and a watcher. `routing_table`: the node of each partition.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.coordination.barrier import Barrier
    from hansa.coordination.election import Election, LeaderInfo, Leadership
    from hansa.coordination.fencing import FencedFile, FencedKey
    from hansa.coordination.following import Changed, Following, Snapshot
    from hansa.coordination.handover import Handover, HandoverStep, PastHandover
    from hansa.coordination.handovers import HandoverAdvanced, Handovers, HandoversStats, HandoverStuck
    from hansa.coordination.line import LineStats
    from hansa.coordination.lock import Hold, HolderInfo, Lock, Semaphore
    from hansa.coordination.member import (
        Expelled,
        LoopLagged,
        Member,
        MemberDown,
        MemberEvent,
        MemberJoined,
        MemberLeft,
        MemberRefuted,
        MembersEvent,
        MembersStats,
        MemberStatus,
        MemberSuspected,
        MemberUpdated,
        NodeInfo,
        Rejoined,
    )
    from hansa.coordination.members import Members
    from hansa.coordination.nodes import MembershipWatch, MembershipWatcher, NodeRegistry
    from hansa.coordination.placed import PlacedClaim, PlacedClaims, Placement
    from hansa.coordination.placing import PlacedMoves, Placer
    from hansa.coordination.roster import Roster
    from hansa.coordination.routing_table import RouteEntry, RoutingTable, RoutingTables, RoutingTableStore
    from hansa.coordination.session import Session, SessionKeeper
    from hansa.keys import Keys
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.coordination.barrier": "Barrier",
            "hansa.coordination.election": "Election LeaderInfo Leadership",
            "hansa.coordination.fencing": "FencedFile FencedKey",
            "hansa.coordination.following": "Changed Following Snapshot",
            "hansa.coordination.handover": "Handover HandoverStep PastHandover",
            "hansa.coordination.handovers": "HandoverAdvanced Handovers HandoversStats HandoverStuck",
            "hansa.coordination.line": "LineStats",
            "hansa.coordination.lock": "Hold HolderInfo Lock Semaphore",
            "hansa.coordination.member": (
                "Expelled LoopLagged Member MemberDown MemberEvent MemberJoined MemberLeft MemberRefuted "
                "MembersEvent MembersStats MemberStatus MemberSuspected MemberUpdated NodeInfo Rejoined"
            ),
            "hansa.coordination.members": "Members",
            "hansa.coordination.nodes": "MembershipWatch MembershipWatcher NodeRegistry",
            "hansa.coordination.placed": "PlacedClaim PlacedClaims Placement",
            "hansa.coordination.placing": "PlacedMoves Placer",
            "hansa.coordination.roster": "Roster",
            "hansa.coordination.routing_table": "RouteEntry RoutingTable RoutingTables RoutingTableStore",
            "hansa.coordination.session": "Session SessionKeeper",
            "hansa.keys": "Keys",
        },
    )

__all__ = [
    "Barrier",
    "Changed",
    "Election",
    "Expelled",
    "FencedFile",
    "FencedKey",
    "Following",
    "Handover",
    "HandoverAdvanced",
    "HandoverStep",
    "HandoverStuck",
    "Handovers",
    "HandoversStats",
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
    "MembershipWatch",
    "MembershipWatcher",
    "NodeInfo",
    "NodeRegistry",
    "PastHandover",
    "PlacedClaim",
    "PlacedClaims",
    "PlacedMoves",
    "Placement",
    "Placer",
    "Rejoined",
    "Roster",
    "RouteEntry",
    "RoutingTable",
    "RoutingTableStore",
    "RoutingTables",
    "Semaphore",
    "Session",
    "SessionKeeper",
    "Snapshot",
]
