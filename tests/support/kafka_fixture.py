"""As a pytest plugin: the fixture `kafka`, and which Kafka the tests ran on, at the end of their output."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import kafka_program

if TYPE_CHECKING:
    from tests.support.kafka_servers import Kafka, RunningKafka

_TOLD = "kafka"
_ABOUT = pytest.StashKey[set[str]]()


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[Kafka]:
    """The broker that all tests share: leave it alone, and have topics and groups of your own (`unused`)."""
    # Loaded when it is needed: most processes of tests never are a client of Kafka.
    from tests.support.kafka_servers import shared_kafka

    with shared_kafka() as kafka:
        tell_kafka(pytestconfig, kafka.about)
        yield kafka


@pytest.fixture
async def own_kafka(pytestconfig: pytest.Config) -> AsyncIterator[RunningKafka]:
    """A broker of the test's own, to be killed, frozen and started again."""
    from tests.support.kafka_servers import RunningKafka

    async with RunningKafka() as running:
        tell_kafka(pytestconfig, running.about)
        yield running


def tell_kafka(config: pytest.Config, about: str) -> None:
    """Say at the end of the output what tests ran on: for those that start a broker of their own."""
    told = config.stash[_ABOUT]
    told.add(about)
    # A process of a parallel run has this, and sends it to the one that started it.
    output: dict[str, Any] | None = getattr(config, "workeroutput", None)
    if output is not None:
        output[_TOLD] = sorted(told)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_ABOUT] = set()
    if config.getoption("--without-servers"):
        os.environ[kafka_program.VARIABLE] = "mock"


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_ABOUT].update(getattr(node, "workeroutput", {}).get(_TOLD, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    told = config.stash[_ABOUT]
    for about in sorted(told):
        terminalreporter.write_line(f"Kafka: {about}")
