"""Several mesh machines under any order of events: at rest they agree, and whatever was lost was reported."""

from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.spot_cluster import Cluster

NODES_COUNT = 3
Step: TypeAlias = tuple[str, tuple[int | str | float, ...]]

node = st.integers(0, NODES_COUNT - 1)
topic = st.sampled_from(["t:1", "t:2", "u"])


def step(name: str, *arguments: st.SearchStrategy[int] | st.SearchStrategy[str]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.tuples(*arguments))


steps = st.one_of(
    step("connect", node, node),
    step("disconnect", node, node),
    step("create", node, topic),
    step("destroy", node, topic),
    step("subscribe", node, st.sampled_from(["t:1", "t:2", "u", "t:*", "*"])),
    step("unsubscribe", node, st.integers(0, 9)),
    step("publish", node, topic),
    step("publish", node, topic),
    step("deliver", node, node, st.integers(1, 5)),
    step("deliver", node, node, st.just(1_000)),
    step("pass_time", st.sampled_from([0, 1, 31])),
)


@pytest.mark.spec("SPT-08")
@pytest.mark.spec("SPT-12")
@pytest.mark.spec("SPT-22")
@settings(max_examples=300)
@given(st.sampled_from([1, 4, 1_000]), st.booleans(), st.lists(steps, max_size=60))
def test_nodes_at_rest_agree_receive_and_have_reported_what_was_lost(
    outbox_count_max: int, starts_connected: bool, steps: list[Step]
) -> None:
    cluster = Cluster(NODES_COUNT, outbox_count_max=outbox_count_max)
    if starts_connected:
        cluster.come_to_rest()
    for name, arguments in steps:
        getattr(cluster, name)(*arguments)
    cluster.come_to_rest()
    cluster.check()
    # And from now on everything arrives.
    for at in range(NODES_COUNT):
        for name in ("t:1", "t:2", "u"):
            cluster.publish(at, name)
    cluster.come_to_rest()
    cluster.check()
