"""The lanes of the conformance suite: four transports, each on both event loops.

Most tests run in two lanes of the eight (`lane_choice`). Whatever is asked for by its whole name, or with
`--all-transports`, runs.
"""

import asyncio
import functools
import importlib.util
import inspect
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hansa.transport.memory_network import MemoryNetwork
from tests.conformance.lane_choice import left_out_of
from tests.support.certificates import Authority
from tests.support.lanes import Lane

# On a machine that does ten other things a test of a raft group takes twelve seconds.
TEST_S_MAX = 45.0


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """asyncio's own loop, and uvloop where it is installed."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop") is not None:
        import uvloop

        factories["uvloop"] = uvloop.new_event_loop
    return factories


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out most lanes, and give each test a deadline: what never happens fails instead of hanging."""
    here = Path(__file__).parent
    ours = [item for item in items if isinstance(item, pytest.Function) and item.path.is_relative_to(here)]
    if not (config.getoption("--all-transports") or any("[" in asked for asked in config.args)):
        left_out = left_out_of(
            (test, test.path.stem, test.originalname, test.callspec.id, str(test.callspec.params["lane"]))
            for test in ours
            if "lane" in test.fixturenames
        )
        config.hook.pytest_deselected(items=left_out)
        kept = set(items).difference(left_out)
        items[:] = [item for item in items if item in kept]
    for item in ours:
        if inspect.iscoroutinefunction(item.obj):
            item.obj = _with_deadline(item.obj)


def _with_deadline(test: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(test)
    async def limited(*arguments: Any, **named: Any) -> None:
        async with asyncio.timeout(TEST_S_MAX):
            await test(*arguments, **named)

    return limited


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who signs the certificates of this run."""
    return Authority.create(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def socket_folder() -> Iterator[Path]:
    """A folder with a short path: Unix socket paths end at 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="hansa-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def node_tls(authority: Authority) -> Any:
    """The certificate that a TLS lane uses unless a test brings another."""
    return authority.issue("node")


@pytest.fixture(params=["tcp", "ipc", "tls", "inproc"])
async def lane(request: pytest.FixtureRequest, socket_folder: Path) -> AsyncIterator[Lane]:
    """One transport."""
    name: str = request.param
    tls = request.getfixturevalue("node_tls") if name == "tls" else None
    memory = MemoryNetwork() if name == "inproc" else None
    lane = Lane(name=name, folder=socket_folder, tls=tls, memory=memory)
    yield lane
    await lane.end()
