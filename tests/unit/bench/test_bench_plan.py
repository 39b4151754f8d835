"""The benchmark of planning asks what it says it asks, and draws it."""

from bench.figures import PLAN_FIGURES
from bench.peers import planner
from hansa.assignment.planner import share_out


def test_every_partition_of_the_benchmark_finds_a_worker() -> None:
    for count in (100, 1_000):
        for workers, partitions in (planner.all_alike(count), planner.ruled(count)):
            sharing = share_out(workers, partitions, {})
            assert len(sharing.owners) == len(partitions) == count
    assert planner.planned("alike", *planner.all_alike(100)).keys() <= PLAN_FIGURES.keys()


def test_ruled_workers_and_partitions_combine_all_weights_roles_and_zones() -> None:
    workers, partitions = planner.ruled(10_000)
    assert len({(each.weight, each.zone) for each in workers}) == 9
    assert {role for each in workers for role in each.roles} == set(planner.ROLES)
    assert len({each.weight for each in partitions}) == 100
    assert len({(each.role, each.zone) for each in partitions}) == 9 * 3
