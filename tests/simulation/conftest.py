"""What failed simulations leave behind goes with the test that made them fail."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def throws_away(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that lets runs fail, and says so by its filter, throws away what they left itself."""
    yield
    if request.node.get_closest_marker("filterwarnings") is not None:
        gc.collect()
