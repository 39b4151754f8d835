"""hansa's planner, called as the leader of a group calls it."""

import statistics
import time
from collections.abc import Mapping, Sequence

from bench.job import Job
from bench.link import Link
from hansa.assignment.partition import Partition
from hansa.assignment.planner import Candidate, Sharing, share_out

PARTITIONS_A_WORKER = 10
REPEATS_COUNT = 3
ROLES = tuple(f"role-{number}" for number in range(8))
ZONES = ("north", "south", "west")


async def plan(job: Job, link: Link) -> None:
    """Makes all plans for so many partitions as the case is wide."""
    link.ready()
    await link.order()
    count = job.case.width
    link.done(**planned("alike", *all_alike(count)), **planned("ruled", *ruled(count)))


def all_alike(count: int) -> tuple[list[Candidate], list[Partition]]:
    """Workers and partitions without weights, roles or zones."""
    workers = [Candidate(node=f"worker-{number}") for number in range(max(2, count // PARTITIONS_A_WORKER))]
    return workers, [Partition(name=f"part-{number}") for number in range(count)]


def ruled(count: int) -> tuple[list[Candidate], list[Partition]]:
    """With weights and zones for all, two of eight roles a worker, and a role for four of five partitions."""
    # The strides share no divisor with what they are counted by, so that all combinations occur.
    workers = [
        Candidate(
            node=f"worker-{number}",
            weight=1 + number // 3 % 3,
            zone=ZONES[number % 3],
            roles=frozenset((ROLES[number % 8], ROLES[number * 5 % 7])),
        )
        for number in range(max(2 * len(ROLES), count // PARTITIONS_A_WORKER))
    ]
    partitions = [
        Partition(
            name=f"part-{number}",
            weight=1 + number * 37 % 100,
            role=(*ROLES, "", "")[number % 10],
            zone=ZONES[number * 11 // 10 % 3],
        )
        for number in range(count)
    ]
    return workers, partitions


def planned(label: str, workers: Sequence[Candidate], partitions: Sequence[Partition]) -> dict[str, float]:
    """The seconds that each plan took, and the moves of the last two."""
    first_s, first = timed(workers, partitions, {})
    same_s, _ = timed(workers, partitions, first.owners)
    leave_s, left = timed(workers[1:], partitions, first.owners)
    join_s, joined = timed(workers, partitions, left.owners)
    return {
        f"{label}_first_s": first_s,
        f"{label}_same_s": same_s,
        f"{label}_leave_s": leave_s,
        f"{label}_join_s": join_s,
        f"{label}_leave_moves": float(len(left.moves)),
        f"{label}_join_moves": float(len(joined.moves)),
    }


def timed(
    workers: Sequence[Candidate], partitions: Sequence[Partition], owners: Mapping[str, str]
) -> tuple[float, Sharing]:
    """The median of some times that one plan took, and the plan."""
    times: list[float] = []
    for _ in range(REPEATS_COUNT):
        began_s = time.perf_counter()
        sharing = share_out(workers, partitions, owners)
        times.append(time.perf_counter() - began_s)
    return statistics.median(times), sharing
