"""For every test: the report of proved requirements, a Kafka, and no limit of time for a random example."""

import pytest
from hypothesis import settings

pytest_plugins = ["tests.requirement_report", "tests.support.kafka_fixture"]

# How long an example takes says something of the machine, and not of what is tested.
settings.register_profile("hansa", deadline=None)
settings.load_profile("hansa")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without-servers", action="store_true", help="of the stores only the one in memory")
    parser.addoption(
        "--all-transports", action="store_true", help="of the conformance suite every test in every lane"
    )
