"""In which order a parallel run plays its tests: there is always something to compute, but not too much.

xdist cuts the list into a slice for each process, and takes from the end of the longest for whoever has
nothing left. Simulations compute: the first slice begins with all of them. Tests with servers and other
processes mostly wait: each other slice begins with its share of the integration tests, and goes on with its
share of the conformance tests. The thousands of short tests are what is left over in the end. A file of
integration tests stays together, and so does each share of the conformance tests: they share servers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")

COMPUTING = "simulation"
WAITING = "integration"
ALSO_WAITING = "conformance"


def in_order(
    tests: Sequence[T], files: Sequence[Hashable], folders: Sequence[str], slices_count: int
) -> list[T]:
    """The same tests in another order, of which each has a file and a folder."""
    kinds: dict[str, list[T]] = {COMPUTING: [], ALSO_WAITING: []}
    waiting: dict[Hashable, list[T]] = {}
    short: list[T] = []
    for test, file, folder in zip(tests, files, folders, strict=True):
        if folder == WAITING:
            waiting.setdefault(file, []).append(test)
        else:
            kinds.get(folder, short).append(test)
    beginnings = [kinds[COMPUTING], *_waiting_shares([*waiting.values()], kinds[ALSO_WAITING], slices_count)]
    ordered: list[T] = []
    left_count = len(tests)
    for number, begun in enumerate(beginnings):
        # As xdist cuts.
        length = left_count // (slices_count - number) if number < slices_count else 0
        left_count -= length
        filling = max(length - len(begun), 0)
        ordered += [*begun, *short[:filling]]
        short = short[filling:]
    return ordered + short


def _waiting_shares(files: list[list[T]], others: list[T], slices_count: int) -> list[list[T]]:
    """What each slice but the first begins with; of a single slice, what follows its beginning."""
    count = max(slices_count - 1, 1)
    bounds = [len(others) * number // count for number in range(count + 1)]
    return [
        [
            *(test for file in files[number::count] for test in file),
            *others[bounds[number] : bounds[number + 1]],
        ]
        for number in range(count)
    ]
