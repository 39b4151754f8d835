"""The Kafka that the tests run on: a real one, got once into build/kafka, or librdkafka's mock cluster.

`python -m tests.support.kafka_program` gets it and says which one it is; `make test` begins with that, so
that the processes of the tests find it ready. It is fetched through Maven and runs on Java: where one of the
two is missing, or there is no network, the tests run on the mock cluster instead, which is a part of
confluent-kafka. The end of their output says so, and why. `HANSA_TEST_KAFKA=mock` chooses it.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from hansa.cli.kafka_jars import KafkaProgram, get_kafka
from hansa.errors import KafkaRefused, KafkaUnavailable
from tests.support.etcd_program import BUILD

FOLDER = BUILD / "kafka"
VARIABLE = "HANSA_TEST_KAFKA"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaChoice:
    """A real Kafka, or why there is none."""

    program: KafkaProgram | None
    why_not: str = ""

    def __str__(self) -> str:
        if self.program is not None:
            return f"Apache Kafka {self.program.version}"
        return f"librdkafka's mock cluster, because {self.why_not}"


def is_mock_chosen() -> bool:
    return os.environ.get(VARIABLE) == "mock"


async def choose_kafka() -> KafkaChoice:
    """The real one if there is a way to it, which may take minutes the first time."""
    if is_mock_chosen():
        return KafkaChoice(program=None, why_not=f"{VARIABLE} says so")
    try:
        return KafkaChoice(program=await get_kafka(FOLDER))
    except (KafkaRefused, KafkaUnavailable) as error:
        return KafkaChoice(program=None, why_not=str(error))


if __name__ == "__main__":
    print(f"== Kafka: {asyncio.run(choose_kafka())}")
