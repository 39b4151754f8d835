"""Bare consumers of a Kafka group, among which a topic's partitions are shared out: kind "takeover".

Settings: the defaults, except for the session's time. They keep no state: Kafka has the offsets, which are
committed every five seconds, when partitions are given up, and at the end. By variant aiokafka, which knows
the classic protocol and gives all up at each rebalance; or confluent-kafka by either protocol, cooperative.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.job import Job
from bench.link import Link
from bench.peers.control import control
from bench.peers.kafka_broker import SESSION, TOPIC, broker
from bench.peers.share import Share, TakePart, obey

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

__all__ = ["broker", "control", "share"]

GROUP = "bench"
RECEIVE_S = 0.02
BATCH_COUNT = 500


async def share(job: Job, link: Link) -> None:
    """Take a share of the partitions when told to, and give it up when told to."""
    take_part: TakePart = partial(_consume_by_aiokafka if job.peer.variant == "aiokafka" else _consume, job)
    await obey(link, take_part)


async def _consume(job: Job, share: Share, leaving: asyncio.Event) -> None:
    from confluent_kafka.aio import AIOConsumer

    async def given(_consumer: object, spots: Iterable[TopicPartition]) -> None:
        for spot in spots:
            share.gave_up(f"{spot.partition}")

    protocol = job.peer.variant
    settings: dict[str, Any] = {"group.protocol": protocol, "auto.offset.reset": "earliest"}
    if protocol == "classic":
        settings |= {"partition.assignment.strategy": "cooperative-sticky", **SESSION}
    consumer = AIOConsumer({"bootstrap.servers": job.address, "group.id": GROUP, **settings})
    await consumer.subscribe([TOPIC], on_revoke=given, on_lost=given)
    while not leaving.is_set():
        for message in await consumer.consume(BATCH_COUNT, RECEIVE_S):
            if message.error() is None:
                share.worked(f"{message.partition()}", float(message.value()))
    await consumer.close()
    share.gave_up_all()


async def _consume_by_aiokafka(job: Job, share: Share, leaving: asyncio.Event) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # It is not typed.
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            for spot in revoked:
                share.gave_up(f"{spot.partition}")

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            pass

    async with AIOKafkaConsumer(
        bootstrap_servers=job.address,
        group_id=GROUP,
        auto_offset_reset="earliest",
        partition_assignment_strategy=(StickyPartitionAssignor,),
        **{name.replace(".", "_"): value for name, value in SESSION.items()},
    ) as consumer:
        consumer.subscribe([TOPIC], listener=Listener())
        while not leaving.is_set():
            found = await consumer.getmany(timeout_ms=round(RECEIVE_S * 1e3), max_records=BATCH_COUNT)
            for spot, messages in found.items():
                for message in messages:
                    share.worked(f"{spot.partition}", float(message.value))
    share.gave_up_all()
