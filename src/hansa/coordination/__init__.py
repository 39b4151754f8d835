"""What processes agree on through a store: sessions, locks, elections and who is there.

async with Session(store, ttl=10) as session:
    async with Lock(session, "nightly") as hold:
        await files.write(fence=hold.fence, report=report)

- `session`: one lease, kept alive, how long its owner may believe in it, and the keeper, which opens another
  one when it was lost.
- `line`: who stands where in a line of claims. `claim`: what is owned through a session, from taking it to
  losing it or giving it back. `placed`: what is owned because a leader says so. `held`: a claim as its users
  see it.
- `handover`: the steps by which something passes from one owner to the next, and who may write them.
  `giving`: how an owner carries them out. `handed`: what is handed on, small or large. `succession`: how
  those who wait do. `placing`: how leaders and nodes do it with placed entries. `handovers`: all of a
  cluster, to see them and to ask for one.
- `lock` (with the semaphore), `election`, `barrier`: what is taken in turns.
- `following`: what a prefix of the store holds, kept up to date, and keys that are looked after.
- `fencing`: storage that only the newest owner writes.
- `member`: a node, how others see it, what happens to it. `roster`: who is a member, and who is suspected.
- `members`: this process's place in a cluster and its view of the others. `stay`: its record in the store.
  `lookout`: looks after others, and says who is overdue.
- `nodes`: smaller parts of the same: a registry and a watcher. `routing_table`: who has which partition.
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
