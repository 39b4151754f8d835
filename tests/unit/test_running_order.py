"""What takes long is played first, by every process of a parallel run."""

from itertools import groupby

from tests.support.running_order import COMPUTING, WAITING, in_order

FILES_COUNTS = {"conformance": 20, "integration": 30, "simulation": 9, "unit": 60}
TESTS = [
    (folder, number, test)
    for folder, files_count in FILES_COUNTS.items()
    for number in range(files_count)
    for test in range(1 + number % 7)
]


def ordered(tests: list[tuple[str, int, int]], slices_count: int) -> list[tuple[str, int, int]]:
    return in_order(tests, [test[:2] for test in tests], [test[0] for test in tests], slices_count)


def test_each_test_is_there_once() -> None:
    for slices_count in range(1, 9):
        assert sorted(ordered(TESTS, slices_count)) == sorted(TESTS)


def test_the_first_slice_begins_with_what_computes_and_each_other_with_its_share_of_what_waits() -> None:
    found, length = ordered(TESTS, 4), len(TESTS) // 4
    for start in range(0, 4 * length, length):
        kinds = [kind for kind, _ in groupby(folder for folder, _, _ in found[start : start + length])]
        assert kinds[0] == (WAITING if start else COMPUTING)
        assert not {WAITING, COMPUTING} & set(kinds[1:])
    long = [sum(folder == WAITING for folder, _, _ in found[n * length : (n + 1) * length]) for n in range(4)]
    assert max(long) < 1.5 * min(long[1:])


def test_a_file_of_long_ones_stays_together() -> None:
    files = [file for file, _ in groupby(test[:2] for test in ordered(TESTS, 4))]
    long = [file for file in files if file[0] in (COMPUTING, WAITING)]
    assert len(long) == len(set(long)) == 39


def test_without_long_ones_the_order_stays() -> None:
    short = [test for test in TESTS if test[0] not in (COMPUTING, WAITING)]
    assert ordered(short, 3) == short
