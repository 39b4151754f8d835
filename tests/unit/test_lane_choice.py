"""A few lanes a case, and in every module all that there are."""

from itertools import product

import pytest

from tests.conformance.lane_choice import ALWAYS, EVERYWHERE, OTHERS, left_out_of

LANES = [ALWAYS, *OTHERS]
Lane = tuple[str, str]


def run_of(module: str, cases_count: int, lanes: list[Lane]) -> list[tuple[int, Lane]]:
    """What is left of so many cases with a parameter of their own."""
    tests = list(product(range(cases_count), lanes))
    left_out = left_out_of(
        ((case, lane), module, "test_it", f"{lane[0]}-{case}-{lane[1]}", lane[1]) for case, lane in tests
    )
    return [test for test in tests if test not in left_out]


@pytest.mark.parametrize("transports", [{"tcp", "ipc", "tls", "inproc"}, {"tcp", "inproc"}, {"tcp"}])
def test_a_case_has_two_lanes_and_three_cases_have_every_transport_and_both_loops(
    transports: set[str],
) -> None:
    lanes = [lane for lane in LANES if lane[1] in transports]
    run = run_of("test_peers", 3, lanes)
    assert [sum(case == one for one, _ in run) for case in range(3)] == [2, 2, 2]
    assert all((case, ALWAYS) in run for case in range(3))
    assert {transport for _, (_, transport) in run} == transports
    assert {loop for _, (loop, _) in run} == {"asyncio", "uvloop"}


def test_enough_cases_meet_every_lane() -> None:
    assert {lane for _, lane in run_of("test_peers", len(OTHERS), LANES)} == set(LANES)


@pytest.mark.parametrize("module", sorted(EVERYWHERE))
def test_what_a_lane_does_itself_is_tested_in_all(module: str) -> None:
    assert len(run_of(module, 2, LANES)) == 2 * len(LANES)


def test_without_uvloop_the_rest_is_run() -> None:
    lanes = [lane for lane in LANES if lane[0] == "asyncio"]
    assert {lane for _, lane in run_of("test_peers", 3, lanes)} == set(lanes)
