"""A group's events on a topic: what they look like there, and that a reader is told each once."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansa.assignment.assignments import Assignments
from hansa.assignment.handoff import Handoff
from hansa.assignment.partition import Partition
from hansa.assignment.topology import (
    KINDS,
    PartitionAssigned,
    PartitionLost,
    PartitionUpdated,
)
from hansa.assignment.topology_bridge import (
    TopologyBridge,
    bridged_topology,
    decode_event,
    encode_event,
    topology_topic,
)
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo
from hansa.errors import BadRecord
from hansa.limits import HANDOFF_INLINE_BYTES_MAX
from hansa.store.memory import MemoryStore
from hansa.topics.node import SpotNode

HANDOFFS = st.builds(
    Handoff,
    checkpoint=st.text(max_size=20),
    state=st.binary(max_size=100),
    last_offset=st.integers(min_value=-1, max_value=2**60),
    processed_at=st.floats(allow_nan=False, allow_infinity=False),
    resources=st.lists(st.text(max_size=8), max_size=3).map(tuple),
)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    handoff=st.none() | HANDOFFS,
    resources=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    epoch=st.integers(min_value=0, max_value=2**60),
)
def test_an_event_is_the_same_on_the_other_side(
    kind: str, handoff: Handoff | None, resources: tuple[str, ...], epoch: int
) -> None:
    event = KINDS[kind](
        group="g",
        partition="p1",
        node="a",
        epoch=epoch,
        resources=resources,
        handoff=handoff,
        reason="b joined",
        version=7,
    )
    assert decode_event(encode_event(event)) == event


def test_a_large_state_does_not_go_along() -> None:
    handoff = Handoff(state=b"x" * (HANDOFF_INLINE_BYTES_MAX + 1), last_offset=5)
    event = PartitionAssigned(group="g", partition="p", node="a", epoch=1, handoff=handoff)
    found = decode_event(encode_event(event)).handoff
    assert found == Handoff(last_offset=5)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'{"kind":"assigned"}',
        b'{"kind":"eaten","group":"g","partition":"p","node":"a","epoch":1,"resources":[],"reason":"","version":1}',
    ],
)
def test_what_is_no_event_is_refused(payload: bytes) -> None:
    with pytest.raises(BadRecord):
        decode_event(payload)


@pytest.mark.spec("CRD-14")
async def test_a_node_without_a_store_is_told_who_has_what() -> None:
    async with AsyncExitStack() as stack, asyncio.timeout(20.0):
        store = await stack.enter_async_context(MemoryStore())
        group = Assignments(store, "g")
        await group.configure(join_delay=0.0)
        await group.define(Partition(name="p", resources=("press",)))
        node = await stack.enter_async_context(SpotNode(bind="inproc://bridge"))
        view = await stack.enter_async_context(group.view())
        await stack.enter_async_context(TopologyBridge(view, node))
        spot = await stack.enter_async_context(node.spot())
        events = await bridged_topology(spot, "g")
        members = await stack.enter_async_context(Members(store, NodeInfo(id="a")))
        worker = await stack.enter_async_context(Worker(members, "g"))
        work = await anext(worker)
        async with work:
            await work.save(Handoff(state=b"sum", last_offset=4))
        assigned, updated = await anext(events), await anext(events)
        assert isinstance(assigned, PartitionAssigned)
        assert (assigned.node, assigned.resources) == ("a", ("press",))
        assert isinstance(updated, PartitionUpdated)
        assert updated.handoff is not None
        assert (updated.handoff.state, updated.handoff.last_offset) == (b"sum", 4)
        assert topology_topic("g") in node.topics
        await group.undefine("p")
        gone = await anext(events)
        assert isinstance(gone, PartitionLost)
        assert events.bad_count == events.repeated_count == 0
