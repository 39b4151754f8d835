"""Every test of stores runs on every engine. A server that an engine needs serves all tests of a process."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from hansa.store.store import Store
from tests.conformance.store.engines import ENGINES, StoreEngine
from tests.conformance.store.selection import select


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    select(config, items, Path(__file__).parent)


# For the whole session, so that the tests of one engine follow each other and few processes start servers.
@pytest.fixture(scope="session", params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Iterator[StoreEngine]:
    """One engine."""
    with ENGINES[request.param]() as engine:
        yield engine


@pytest.fixture
def heart() -> None:
    """What a test asks for that is true only of engines which renew leases beside the event loop."""


@pytest.fixture
def make_store(engine: StoreEngine) -> Callable[[], Store]:
    """Makes stores of the engine, which are empty; the test opens and closes them."""
    engine.reset()
    return engine.make


@pytest.fixture
async def store(make_store: Callable[[], Store]) -> AsyncIterator[Store]:
    """An open and empty store."""
    async with make_store() as store:
        yield store
