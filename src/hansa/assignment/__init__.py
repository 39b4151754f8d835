"""Work that is shared out: who has which partition, and what is handed on when that changes.

async with Members(store, NodeInfo(id="a")) as members, Worker(members, "orders") as worker:
    async for work in worker:
        async with work:
            ...

- `partition`: what a group's work is divided into, and how the group wants it shared out.
- `planner`: who should have what, and which moves bring that about. `plan`: such moves as a record.
- `rebalancing`: what the leader of a group does next. `assigner`: carries it out.
- `handoff`: what a worker leaves behind of a partition, and where it stands.
- `topology`: who works for a group, who has which partition, and what happens to that.
- `assignments`: a group from outside, to change and to follow it. `topology_bridge`: its events on a topic.
- `work`: a partition that this process works on. `worker`: a process that takes its share.
- `store_mode`: how partitions come and go where a leader places them.
- `kafka_mode`: how they do in a Kafka group. `kafka_group`: a member of such a group, and its messages.
  `kafka_share`: what the member does about each partition. `kafka_entries`: who has which, in the store.
"""
