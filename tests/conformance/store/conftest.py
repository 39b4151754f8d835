"""Every test of stores runs on every engine."""

from collections.abc import AsyncIterator, Callable

import pytest

from hansa.store.store import Store
from tests.conformance.store.engines import ENGINES, StoreEngine


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> StoreEngine:
    """One engine."""
    return ENGINES[request.param]


@pytest.fixture
def make_store(engine: StoreEngine) -> Callable[[], Store]:
    """Makes empty stores of the engine; the test opens and closes them."""
    return engine.make


@pytest.fixture
async def store(make_store: Callable[[], Store]) -> AsyncIterator[Store]:
    """An open and empty store."""
    async with make_store() as store:
        yield store
