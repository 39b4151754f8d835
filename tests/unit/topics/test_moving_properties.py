"""A topic that moves from node to node under any order of events: nothing is lost, doubled or out of order."""

import random

import pytest

from tests.support.spot_moves import MovingCluster

STEPS = {"send": 8, "deliver": 10, "offer": 2, "take": 3, "withdraw": 1, "pass_time": 1}


def step(cluster: MovingCluster, chance: random.Random) -> None:
    count = len(cluster.nodes)
    name = chance.choices(list(STEPS), list(STEPS.values()))[0]
    if name == "send":
        cluster.send(chance.randrange(count))
    elif name == "deliver":
        cluster.deliver(chance.randrange(count), chance.randrange(count), chance.choice([1, 1, 2, 5, 1_000]))
    elif name == "offer":
        cluster.offer(chance.randrange(count))
    elif name == "take":
        cluster.take()
    elif name == "withdraw":
        cluster.withdraw()
    else:
        cluster.pass_time(chance.choice([0.0, 0.001]))


@pytest.mark.spec("OWN-03")
@pytest.mark.parametrize("first", range(0, 400, 50))
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
            for node in cluster.nodes:
                moves = node.mesh.moves
                assert (moves.holds, moves.leaving, moves.arrivals, moves.adoptions) == ({}, {}, {}, {})
                assert node.mesh.owner(b"t:1") == cluster.nodes[cluster.owner].id
        except Exception as error:
            error.add_note(f"the seed was {seed}")
            raise
        moves_count += cluster.moves_count
    assert moves_count > 100, "hardly anything moved"
