"""Every test of stores runs on every engine. A server that an engine needs serves all tests of a process."""

import importlib.util
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hansa.store.store import Store
from tests.conformance.store.engines import ENGINES, StoreEngine

LOOPS = ["asyncio", "uvloop"] if importlib.util.find_spec("uvloop") is not None else ["asyncio"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave each engine what it is run on: event loops, random histories, and what needs a heart."""
    # Also of the neighbours that run on these engines.
    here = Path(__file__).parents[1]
    left_out = [item for item in items if here in item.path.parents and not is_run(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        kept = set(items).difference(left_out)
        items[:] = [item for item in items if item in kept]


def is_run(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return True
    params: dict[str, Any] = dict(item.callspec.params)
    if params.get("engine") not in ENGINES:
        return True
    engine = ENGINES[params["engine"]]
    loops = [loop for loop in engine.loops if loop in LOOPS] or LOOPS[:1]
    return (
        any(loop in item.callspec.id.split("-") for loop in loops)
        and params.get("seed", 0) < engine.histories_count
        and (engine.has_heart or "heart" not in item.fixturenames)
    )


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
