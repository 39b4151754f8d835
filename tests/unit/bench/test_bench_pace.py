"""The pace of an owner that waits for those who run."""

import pytest

from bench.peers.mesh_nodes import Pace


def test_owner_waits_for_the_slowest() -> None:
    pace = Pace(3)
    for index, sequence in enumerate((700, 500, 900)):
        pace.told(index, sequence)
    assert pace.slowest == 500
    assert pace.news.is_set()


def test_one_that_is_left_is_not_waited_for_until_all_are_admitted_again() -> None:
    pace = Pace(2)
    pace.told(0, 5_000)
    assert pace.slowest == 0
    pace.leave(1)
    assert pace.slowest == 5_000
    pace.admit(9_000)
    assert pace.slowest == 9_000
    pace.told(0, 9_500)
    assert pace.slowest == 9_000


@pytest.mark.parametrize("change", ["told", "leave"])
def test_whoever_waits_for_news_hears_of_it(change: str) -> None:
    pace = Pace(2)
    if change == "told":
        pace.told(1, 1)
    else:
        pace.leave(1)
    assert pace.news.is_set()
