"""Work that is shared out among processes: which worker has which partition, and what it hands on.

async with Members(store, NodeInfo(id="a")) as members, Worker(members, "orders") as worker:
    async for work in worker:
        async with work:
            ...

- `partition`: a part of a group's work, which one worker has at a time, and the settings of a group.
- `planner`: which worker should have which partition, and the moves to get there. `plan`: moves as a record.
- `rebalancing`: what the leader of a group does next. `assigner`: carries it out.
- `handoff`: what a worker saves of a partition for the next owner.
- `topology`: the workers of a group, the owner of each partition, and the events that report changes.
- `assignments`: a group from outside, to change and to follow it. `topology_bridge`: its events on a topic.
- `work`: a partition that this process works on. `worker`: a process that takes its share.
- `store_mode`: what a worker needs of its mode, and how partitions come and go when a leader places them.
- `kafka_mode`: how they come and go in a Kafka group. `kafka_group`: a member of such a group and its
  messages, and whether it has missed an assignment. `kafka_share`: decides what the member does about each
  partition. `kafka_entries`: the entries in the store, which name the owners, and how long handoffs are kept.
"""

from typing import TYPE_CHECKING

from hansa.exports import on_first_use

if TYPE_CHECKING:
    from hansa.assignment.assigner import Assigner
    from hansa.assignment.assignments import Assignments, AssignmentView, all_groups
    from hansa.assignment.handoff import FailedHandoff, Handoff, Handoffs, SavedHandoff
    from hansa.assignment.kafka_mode import KafkaMode, KafkaModeStats
    from hansa.assignment.partition import GroupSettings, Partition
    from hansa.assignment.plan import Plan, PlanState
    from hansa.assignment.planner import Candidate, Move, Sharing, may_have, share_out
    from hansa.assignment.rebalancing import RebalancingStats
    from hansa.assignment.store_mode import Mode, StoreMode
    from hansa.assignment.topology import (
        Assignment,
        HandoffFailed,
        PartitionAssigned,
        PartitionLost,
        PartitionRevoked,
        PartitionUpdated,
        TopologyBook,
        TopologyEvent,
        WorkerInfo,
    )
    from hansa.assignment.topology_bridge import (
        BridgedTopology,
        TopologyBridge,
        bridged_topology,
        topology_topic,
    )
    from hansa.assignment.work import Messages, Work, WorkState
    from hansa.assignment.worker import Worker, WorkerStats
else:
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "hansa.assignment.assigner": "Assigner",
            "hansa.assignment.assignments": "AssignmentView Assignments all_groups",
            "hansa.assignment.handoff": "FailedHandoff Handoff Handoffs SavedHandoff",
            "hansa.assignment.kafka_mode": "KafkaMode KafkaModeStats",
            "hansa.assignment.partition": "GroupSettings Partition",
            "hansa.assignment.plan": "Plan PlanState",
            "hansa.assignment.planner": "Candidate Move Sharing may_have share_out",
            "hansa.assignment.rebalancing": "RebalancingStats",
            "hansa.assignment.store_mode": "Mode StoreMode",
            "hansa.assignment.topology": (
                "Assignment HandoffFailed PartitionAssigned PartitionLost PartitionRevoked PartitionUpdated "
                "TopologyBook TopologyEvent WorkerInfo"
            ),
            "hansa.assignment.topology_bridge": (
                "BridgedTopology TopologyBridge bridged_topology topology_topic"
            ),
            "hansa.assignment.work": "Messages Work WorkState",
            "hansa.assignment.worker": "Worker WorkerStats",
        },
    )

__all__ = [
    "Assigner",
    "Assignment",
    "AssignmentView",
    "Assignments",
    "BridgedTopology",
    "Candidate",
    "FailedHandoff",
    "GroupSettings",
    "Handoff",
    "HandoffFailed",
    "Handoffs",
    "KafkaMode",
    "KafkaModeStats",
    "Messages",
    "Mode",
    "Move",
    "Partition",
    "PartitionAssigned",
    "PartitionLost",
    "PartitionRevoked",
    "PartitionUpdated",
    "Plan",
    "PlanState",
    "RebalancingStats",
    "SavedHandoff",
    "Sharing",
    "StoreMode",
    "TopologyBook",
    "TopologyBridge",
    "TopologyEvent",
    "Work",
    "WorkState",
    "Worker",
    "WorkerInfo",
    "WorkerStats",
    "all_groups",
    "bridged_topology",
    "may_have",
    "share_out",
    "topology_topic",
]
