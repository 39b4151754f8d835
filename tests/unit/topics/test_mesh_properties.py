"""Several mesh machines under any order of events: at rest they agree, and whatever was lost was reported."""

import random
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.spot_cluster import SPOTS_COUNT, Cluster

NODES_COUNT = 3
TOPICS = ("t:1", "t:2", "u")
TEXTS = (*TOPICS, "t:*", "*")
Step: TypeAlias = tuple[str, tuple[int | str | float, ...]]

node = st.integers(0, NODES_COUNT - 1)
spot = st.integers(0, SPOTS_COUNT - 1)
topic = st.sampled_from(TOPICS)
text = st.sampled_from(TEXTS)


def step(name: str, *arguments: st.SearchStrategy[int] | st.SearchStrategy[str]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.tuples(*arguments))


steps = st.one_of(
    step("connect", node, node),
    step("disconnect", node, node),
    step("create", node, topic, st.booleans()),
    step("destroy", node, topic),
    step("subscribe", node, spot, text),
    step("unsubscribe", node, spot, text),
    step("publish", node, topic),
    step("publish", node, topic),
    step("deliver", node, node, st.integers(1, 5)),
    step("deliver", node, node, st.just(1_000)),
    step("pass_time", st.sampled_from([0, 1, 31])),
)


@pytest.mark.spec("SPT-08")
@pytest.mark.spec("SPT-12")
@pytest.mark.spec("SPT-22")
@settings(max_examples=100)
@given(st.sampled_from([1, 4, 1_000]), st.booleans(), st.lists(steps, max_size=60))
def test_nodes_at_rest_agree_receive_and_have_reported_what_was_lost(
    outbox_count_max: int, starts_connected: bool, steps: list[Step]
) -> None:
    cluster = Cluster(NODES_COUNT, outbox_count_max=outbox_count_max)
    if starts_connected:
        cluster.come_to_rest()
    for name, arguments in steps:
        getattr(cluster, name)(*arguments)
    check_at_rest(cluster)


def check_at_rest(cluster: Cluster) -> None:
    cluster.come_to_rest()
    cluster.check()
    # And from now on everything arrives.
    for at in range(len(cluster.nodes)):
        for name in TOPICS:
            cluster.publish(at, name)
    cluster.come_to_rest()
    cluster.check()


# How often each may come in a longer history; a mesh that hardly delivers anything proves nothing.
WEIGHTS = {
    "deliver": 6,
    "publish": 4,
    "connect": 2,
    "create": 2,
    "subscribe": 3,
    "destroy": 1,
    "disconnect": 1,
    "pass_time": 1,
    "unsubscribe": 2,
}


def random_step(chance: random.Random, nodes_count: int) -> Step:
    name = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    one, other = chance.randrange(nodes_count), chance.randrange(nodes_count)
    arguments: dict[str, tuple[int | str | float, ...]] = {
        "deliver": (one, other, chance.choice([1, 2, 3, 1_000])),
        "publish": (one, chance.choice(TOPICS)),
        "connect": (one, other),
        "create": (one, chance.choice(TOPICS), chance.random() < 0.3),
        "subscribe": (one, chance.randrange(SPOTS_COUNT), chance.choice(TEXTS)),
        "destroy": (one, chance.choice(TOPICS)),
        "disconnect": (one, other),
        "pass_time": (chance.choice([0.0, 0.1, 1.0, 31.0]),),
        "unsubscribe": (one, chance.randrange(SPOTS_COUNT), chance.choice(TEXTS)),
    }
    return name, arguments[name]


@pytest.mark.spec("SPT-08")
@pytest.mark.spec("SPT-12")
@pytest.mark.spec("SPT-22")
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_long_histories_end_the_same_way(first: int) -> None:
    for seed in range(first, first + 50):
        chance = random.Random(seed)
        nodes_count = chance.randrange(2, 6)
        cluster = Cluster(nodes_count, outbox_count_max=chance.choice([1, 2, 4, 1_000]))
        if chance.random() < 0.5:
            cluster.come_to_rest()
        try:
            for _ in range(chance.randrange(10, 150)):
                name, arguments = random_step(chance, nodes_count)
                getattr(cluster, name)(*arguments)
            check_at_rest(cluster)
        except Exception as error:
            error.add_note(f"the seed was {seed}")
            raise
