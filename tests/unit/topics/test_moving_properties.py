"""A topic that moves from node to node under any order of events: nothing is lost, doubled or out of
order."""

import random

import pytest

from tests.support.spot_moves import MovingCluster

STEPS = {"send": 8, "deliver": 16, "offer": 3, "take": 3, "withdraw": 1, "pass_time": 1}
CUTS = {"connect": 3, "disconnect": 1}


def step(cluster: MovingCluster, chance: random.Random, *, cuts: bool = False) -> None:
    count = len(cluster.nodes)
    steps = STEPS | CUTS if cuts else STEPS
    name = chance.choices(list(steps), list(steps.values()))[0]
    if name == "send":
        cluster.send(chance.randrange(count))
    elif name == "deliver":
        cluster.deliver(chance.randrange(count), chance.randrange(count), chance.choice([1, 2, 5, 1_000]))
    elif name == "offer":
        cluster.offer(chance.randrange(count))
    elif name == "take":
        cluster.take()
    elif name == "withdraw":
        cluster.withdraw()
    elif name == "connect":
        cluster.connect(chance.randrange(count), chance.randrange(count))
    elif name == "disconnect":
        cluster.disconnect(chance.randrange(count), chance.randrange(count))
    else:
        cluster.pass_time(chance.choice([0.0, 0.5, 3.0, 31.0] if cuts else [0.0, 0.001]))


@pytest.mark.spec("OWN-03")
@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_topic_that_moves_while_it_is_used_loses_doubles_and_reorders_nothing(first: int) -> None:
    moves_count = 0
    for seed in range(first, first + 50):
        chance = random.Random(seed)
        count = chance.randrange(2, 6)
        readers = [at for at in range(count) if chance.random() < 0.7] or [0]
        cluster = MovingCluster(count, readers=readers, retain=chance.random() < 0.3)
        try:
            for _ in range(chance.randrange(20, 300)):
                step(cluster, chance)
            cluster.take()
            cluster.come_to_rest()
            for at in range(count):
                cluster.send(at)
            cluster.come_to_rest()
            cluster.check_all_arrived()
            cluster.check_all_agree()
        except Exception as error:
            error.add_note(f"the seed was {seed}")
            raise
        moves_count += cluster.moves_count
    assert moves_count > 50, "hardly anything moved"


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_with_connections_that_break_meanwhile_all_agree_in_the_end_and_know_what_they_missed(
    first: int,
) -> None:
    moves_count = 0
    for seed in range(first, first + 50):
        chance = random.Random(seed)
        count = chance.randrange(2, 6)
        readers = [at for at in range(count) if chance.random() < 0.7] or [0]
        cluster = MovingCluster(count, readers=readers, retain=chance.random() < 0.3)
        try:
            for _ in range(chance.randrange(20, 300)):
                step(cluster, chance, cuts=True)
            cluster.take()
            cluster.come_to_rest()
            for at in range(count):
                cluster.send(at)
            cluster.come_to_rest()
            cluster.check_all_is_known()
            cluster.check_all_agree()
        except Exception as error:
            error.add_note(f"the seed was {seed}")
            raise
        moves_count += cluster.moves_count
    assert moves_count > 50, "hardly anything moved"
