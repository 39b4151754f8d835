"""For every test: the report of proved requirements, a Kafka, and no limit of time for a random example."""

import gc
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.running_order import in_order

pytest_plugins = ["tests.requirement_report", "tests.support.kafka_fixture"]

# How long an example takes says something of the machine, and not of what is tested. Examples are others in
# each run.
settings.register_profile("hansa", deadline=None, max_examples=50)
settings.load_profile("hansa")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-servers", action="store_true", help="of the stores only the one in memory")
    parser.addoption(
        "--all-transports", action="store_true", help="of the conformance suite every test in every lane"
    )


def pytest_configure() -> None:
    """Ten thousand tests are collected and stay until the end: the garbage collector need not search them."""
    gc.disable()


def pytest_collection_finish() -> None:
    """See `pytest_configure`."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a process of a parallel run: what takes long comes first."""
    worker: dict[str, int] | None = getattr(config, "workerinput", None)
    if worker is not None:
        here = Path(__file__).parent
        files = [item.path for item in items]
        folder_of = {file: file.relative_to(here).parts[0] for file in set(files)}
        items[:] = in_order(items, files, [folder_of[file] for file in files], worker["workercount"])
