"""In which order a parallel run plays its tests: what takes long comes first, so that nobody is left with it.

xdist cuts the list into a slice for each process, and takes from the end of the longest for whoever has
nothing left. Integration tests wait and simulations compute: each slice begins with files of both in turns,
and goes on with the thousands of short tests, which are what is left over in the end. A file of long ones
stays together, and shares its servers.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")

LONG_FOLDERS = ("integration", "simulation")


def in_turns(
    tests: Sequence[T], files: Sequence[Hashable], folders: Sequence[str], slices_count: int
) -> list[T]:
    """The same tests in another order, of which each has a file and a folder."""
    long: dict[str, dict[Hashable, list[T]]] = {folder: {} for folder in LONG_FOLDERS}
    short: list[T] = []
    for test, file, folder in zip(tests, files, folders, strict=True):
        (long[folder].setdefault(file, []) if folder in long else short).append(test)
    ordered: list[T] = []
    left_count = len(tests)
    for number in range(slices_count):
        # As xdist cuts.
        length = left_count // (slices_count - number)
        left_count -= length
        begun = _mixed([list(of_folder.values())[number::slices_count] for of_folder in long.values()])
        filling = max(length - len(begun), 0)
        ordered += [*begun, *short[:filling]]
        short = short[filling:]
    return ordered + short


def _mixed(kinds: Sequence[Sequence[Sequence[T]]]) -> list[T]:
    """The tests of these files, kind by kind in turns, so that all kinds end together."""
    shares = [(place / len(files), file) for files in kinds for place, file in enumerate(files)]
    shares.sort(key=lambda share: share[0])
    return [test for _, file in shares for test in file]
