"""In a parallel run something computes from the beginning, and what waits does not wait until the end."""

from itertools import groupby

from tests.support.running_order import ALSO_WAITING, COMPUTING, WAITING, in_order

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


def test_the_first_slice_computes_and_the_others_begin_with_their_shares_of_what_waits() -> None:
    found, length = ordered(TESTS, 4), len(TESTS) // 4
    slices = [[folder for folder, _, _ in found[n * length : (n + 1) * length]] for n in range(4)]
    kinds = [[kind for kind, _ in groupby(folders)] for folders in slices]
    assert kinds == [[COMPUTING, "unit"], *[[WAITING, ALSO_WAITING, "unit"]] * 3]
    for waiting in (WAITING, ALSO_WAITING):
        counts = [folders.count(waiting) for folders in slices[1:]]
        assert max(counts) < 1.5 * min(counts)


def test_a_file_of_integration_tests_and_a_share_of_conformance_tests_stay_together() -> None:
    found = ordered(TESTS, 4)
    files = [file for file, _ in groupby(test[:2] for test in found)]
    integration = [file for file in files if file[0] == WAITING]
    assert len(integration) == len(set(integration)) == FILES_COUNTS[WAITING]
    assert sum(kind == ALSO_WAITING for kind, _ in groupby(test[0] for test in found)) == 3


def test_without_long_ones_the_order_stays() -> None:
    short = [test for test in TESTS if test[0] == "unit"]
    assert ordered(short, 3) == short
