"""Simulations give way to other tests, and what failed ones leave behind goes with their tests."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.priority import giving_way

_IS_LAST = pytest.StashKey[bool]()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    item.stash[_IS_LAST] = nextitem is None or not lets_fail(nextitem)


@pytest.fixture(autouse=True)
def gives_way() -> Iterator[None]:
    """In virtual time nothing is late."""
    with giving_way():
        yield


@pytest.fixture(autouse=True)
def throws_away(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that let runs fail, and say so by their filter, throw away what these left: the last of a row.

    Looking for it takes time for all that the process holds, in a process full of tests longer than a run.
    """
    yield
    if lets_fail(request.node) and request.node.stash[_IS_LAST]:
        gc.collect()


def lets_fail(item: pytest.Item) -> bool:
    is_here = item.path.parent == Path(__file__).parent
    return is_here and item.get_closest_marker("filterwarnings") is not None
