"""Messages to and from a broker, as few lines of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.aio import AIOConsumer

READ_S_MAX = 30.0
# The two ways to be a member of a group. With the new one the broker says how long a session is.
PROTOCOLS = {
    "classic": {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": "2000",
        "heartbeat.interval.ms": "500",
    },
    "consumer": {"group.protocol": "consumer"},
}


def produce(address: str, topic: str, *values: bytes, partition: int = 0) -> None:
    """Write messages, and wait until the broker has them."""
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=told)
    left = producer.flush(READ_S_MAX)
    assert (left, failed) == (0, []), f"{left} messages were not written: {failed}"


async def consume(
    address: str, topic: str, group: str, count: int, settings: Mapping[str, str] | None = None
) -> list[bytes]:
    """Read so many messages as a member of a group, commit what was read, and leave the group."""
    config = {
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **(settings or {}),
    }
    consumer = AIOConsumer(config)
    try:
        await consumer.subscribe([topic])
        values: list[bytes] = []
        async with asyncio.timeout(READ_S_MAX):
            while len(values) < count:
                message: Message | None = await consumer.poll(timeout=0.1)
                if message is not None:
                    assert message.error() is None, message.error()
                    values.append(message.value() or b"")
        await consumer.commit(asynchronous=False)
        return values
    finally:
        await consumer.close()
