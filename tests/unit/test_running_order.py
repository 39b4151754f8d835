"""What takes long is played first, by every process of a parallel run."""

from itertools import groupby

from tests.support.running_order import LONG_FOLDERS, in_turns

FILES_COUNTS = {"conformance": 20, "integration": 30, "simulation": 9, "unit": 60}
TESTS = [
    (folder, number, test)
    for folder, files_count in FILES_COUNTS.items()
    for number in range(files_count)
    for test in range(1 + number % 7)
]


def ordered(tests: list[tuple[str, int, int]], slices_count: int) -> list[tuple[str, int, int]]:
    return in_turns(tests, [test[:2] for test in tests], [test[0] for test in tests], slices_count)


def test_each_test_is_there_once() -> None:
    for slices_count in range(1, 9):
        assert sorted(ordered(TESTS, slices_count)) == sorted(TESTS)


def test_each_slice_begins_with_long_ones_of_both_kinds_and_ends_with_short_ones() -> None:
    found, length = ordered(TESTS, 4), len(TESTS) // 4
    for start in range(0, 4 * length, length):
        kinds = [folder for folder, _, _ in found[start : start + length]]
        long_count = sum(kind in LONG_FOLDERS for kind in kinds)
        assert set(kinds[:long_count]) == set(LONG_FOLDERS)
        assert 10 < long_count < 2 * length / 3


def test_a_file_of_long_ones_stays_together() -> None:
    files = [file for file, _ in groupby(test[:2] for test in ordered(TESTS, 4))]
    long = [file for file in files if file[0] in LONG_FOLDERS]
    assert len(long) == len(set(long)) == 39


def test_without_long_ones_the_order_stays() -> None:
    short = [test for test in TESTS if test[0] not in LONG_FOLDERS]
    assert ordered(short, 3) == short
