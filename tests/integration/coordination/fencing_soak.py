"""`make soak`: thousands of increments under a lock, by workers that are stopped for longer than a lease.

    python tests/integration/coordination/fencing_soak.py --operations 20000 [--seed 7] [--no-fence]

Five processes, leases of 2 s, stops of 3 to 5 s: most at random, and every so often between reading and
writing. One counter is a key in a real etcd, one a file. It prints how it goes, and at the end what was lost:
nothing, or it fails. Without fences it shows what fences are for, and fails if it cannot.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[3])

from hansa.chance import Chance  # noqa: E402
from tests.support.etcd_servers import EtcdGroup  # noqa: E402
from tests.support.fencing_stage import COUNTERS, Books, FencingStage  # noqa: E402

STOPPERS_COUNT = 2
REPORT_EVERY_S = 5.0
# Between a worker's stops, so that most of the time most of them work.
QUIET_S = (0.5, 2.0)


async def soak(operations_count: int, chance: Chance, folder: Path, address: str, *, is_fenced: bool) -> None:
    """Raises AssertionError when an acknowledged update is lost, or without fences when none is."""
    began_s = time.monotonic()
    async with FencingStage(address, folder, chance, is_fenced=is_fenced) as stage:
        async with asyncio.TaskGroup() as tasks:
            calm = asyncio.Event()
            for number in range(STOPPERS_COUNT):
                tasks.create_task(stop_at_random(stage, chance.fork(f"stopper {number}"), calm))
            tasks.create_task(stop_in_the_middle(stage, chance.fork("middle"), calm))
            while stage.operations_count < operations_count:
                await asyncio.sleep(REPORT_EVERY_S)
                print(f"  {time.monotonic() - began_s:5.0f} s: {so_far(stage)}", flush=True)
            # Whoever is stopped now goes on first: no stop is cut short.
            calm.set()
        books = await stage.end()
    lost_count = sum(one.lost_count for one in books.values())
    print(
        f"fencing{'' if is_fenced else ' switched off'}: {so_far(stage)},"
        f" {sum(len(one.unknown) for one in books.values())} unknown, {lost_count} acknowledged updates lost,"
        f" {time.monotonic() - began_s:.0f} s",
        flush=True,
    )
    check(books, is_fenced=is_fenced)


def so_far(stage: FencingStage) -> str:
    return (
        f"{stage.operations_count:,} operations, {stage.stops_count} stops,"
        f" {stage.told_count('refused'):,} refusals"
    )


def check(books: dict[str, Books], *, is_fenced: bool) -> None:
    for which, found in books.items():
        text = f"{which}: {len(found.acked)} acknowledged, {found.final} there, {len(found.unknown)} unknown"
        if is_fenced:
            assert found.lost_count == 0, text
            assert found.unexplained == [], f"{text}; nobody wrote {found.unexplained[:10]}"
        else:
            assert found.lost_count > 0, f"{text}: this soak cannot see losses"


async def stop_at_random(stage: FencingStage, chance: Chance, calm: asyncio.Event) -> None:
    while not calm.is_set():
        await stage.stop_somebody()
        await asyncio.sleep(chance.uniform(*QUIET_S))


async def stop_in_the_middle(stage: FencingStage, chance: Chance, calm: asyncio.Event) -> None:
    # Each counter at least once, however short the run is.
    for number, which in enumerate(itertools.cycle(COUNTERS)):
        if calm.is_set() and number >= len(COUNTERS):
            return
        await stage.stop_in_the_middle(which)
        await asyncio.sleep(chance.uniform(*QUIET_S))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-fence", action="store_true")
    given = parser.parse_args()
    with EtcdGroup() as group, tempfile.TemporaryDirectory(prefix="hansa-fencing-") as folder:
        print(f"fencing: 5 workers, {group.program}, {given.operations:,} operations", flush=True)
        chance = Chance.seeded(given.seed)
        asyncio.run(soak(given.operations, chance, Path(folder), group.address, is_fenced=not given.no_fence))


if __name__ == "__main__":
    main()
