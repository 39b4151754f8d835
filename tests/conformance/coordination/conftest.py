"""Every recipe runs on every engine of the suite of stores, each on one event loop."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hansa.store.store import Store
from tests.conformance.store.engines import ENGINES, StoreEngine
from tests.conformance.store.selection import select


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # What differs here is the store, and not the loop.
    select(config, items, Path(__file__).parent, loops_max=1)


@pytest.fixture(scope="session", params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Iterator[StoreEngine]:
    """One engine; its servers serve all tests of a process."""
    with ENGINES[request.param]() as engine:
        yield engine


@pytest.fixture
async def store(engine: StoreEngine) -> AsyncIterator[Store]:
    """An open and empty store."""
    engine.reset()
    async with engine.make() as store:
        yield store


@pytest.fixture
async def other_store(engine: StoreEngine, store: Store) -> AsyncIterator[Store]:
    """Another client of the same store; the same, where the store is in the process."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(engine.make()) if engine.is_remote else store


@pytest.fixture
def ttl_s(engine: StoreEngine) -> float:
    """A short lease of this engine: long enough to be renewed on a busy machine."""
    return max(engine.ttl_s_min, 1.0)


@pytest.fixture
def away(engine: StoreEngine, store: Store) -> Iterator[Callable[[bool], None]]:
    """Call it with True and the store answers nobody, with False and it does again."""
    is_away = False

    def turn(to_away: bool) -> None:
        nonlocal is_away
        if to_away != is_away:
            (engine.pause if to_away else engine.resume)(store)
        is_away = to_away

    yield turn
    turn(False)
