"""In which order a parallel run plays its tests: what takes long comes first, so that nobody is left with it.

xdist cuts the list into a slice for each process, and takes from the end of the longest for whoever has
nothing left. Simulations compute and integration tests wait: the first slice begins with all simulations,
and each other one with its share of the integration tests. So there is always something to compute, and never
more of it at a time than a machine with few cores can bear. Each slice goes on with the thousands of short
tests, which are what is left over in the end. A file of long ones stays together, and shares its servers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")

COMPUTING = "simulation"
WAITING = "integration"


def in_order(
    tests: Sequence[T], files: Sequence[Hashable], folders: Sequence[str], slices_count: int
) -> list[T]:
    """The same tests in another order, of which each has a file and a folder."""
    computing: list[T] = []
    waiting: dict[Hashable, list[T]] = {}
    short: list[T] = []
    for test, file, folder in zip(tests, files, folders, strict=True):
        if folder == COMPUTING:
            computing.append(test)
        elif folder == WAITING:
            waiting.setdefault(file, []).append(test)
        else:
            short.append(test)
    ordered: list[T] = []
    left_count = len(tests)
    for number in range(slices_count):
        # As xdist cuts.
        length = left_count // (slices_count - number)
        left_count -= length
        begun = computing if number == 0 else []
        if number or slices_count == 1:
            others_count = max(slices_count - 1, 1)
            shares = list(waiting.values())[max(number - 1, 0) :: others_count]
            begun = [*begun, *(test for share in shares for test in share)]
        filling = max(length - len(begun), 0)
        ordered += [*begun, *short[:filling]]
        short = short[filling:]
    return ordered + short
