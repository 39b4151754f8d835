"""A broker that is started, killed, frozen and started again, and clients that stay."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from hansa.cli.kafka_broker import KafkaBroker
from hansa.errors import AddressInUse, KafkaRefused, UsageError
from tests.support.kafka_program import choose_kafka
from tests.support.kafka_servers import Kafka, RunningKafka, needs_real, unused
from tests.support.kafka_talk import PROTOCOLS, consume, produce


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_is_written_is_read_by_a_group_of_either_protocol(kafka: Kafka, protocol: str) -> None:
    topic = await kafka.create_topic(unused("orders"), 3)
    await asyncio.to_thread(produce, kafka.address, topic, b"one", b"two", partition=2)
    group = unused("group")
    assert await consume(kafka.address, topic, group, 2, PROTOCOLS[protocol]) == [b"one", b"two"]
    # The group remembers how far it was.
    await asyncio.to_thread(produce, kafka.address, topic, b"three", partition=2)
    assert await consume(kafka.address, topic, group, 1, PROTOCOLS[protocol]) == [b"three"]


async def test_a_broker_that_is_frozen_killed_or_stopped_goes_on_with_its_data() -> None:
    async with RunningKafka() as running:
        folder = None if running.broker is None else running.broker.folder
        topic = await running.create_topic("orders", 1)
        await _freeze(running, topic)
        await _kill(running, topic)
        await running.stop()
        await running.start()
        assert await consume(running.address, topic, "another", 2) == [b"one", b"two"]
        pid = running.pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert folder is None or not folder.exists()


async def _freeze(running: RunningKafka, topic: str) -> None:
    """It goes on where it was."""
    running.freeze()
    writing = asyncio.create_task(asyncio.to_thread(produce, running.address, topic, b"one"))
    await asyncio.wait([writing], timeout=0.3)
    assert not writing.done()
    running.thaw()
    await writing
    assert await consume(running.address, topic, "group", 1) == [b"one"]


async def _kill(running: RunningKafka, topic: str) -> None:
    """It says that it ended, and comes back with its data at its address."""
    address, broker, pid = running.address, running.broker, running.pid
    if broker is not None:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert "the Kafka broker ended" in str(await broker.ended())
        assert broker.pid is None
    else:
        running.kill()
    await running.start()
    assert running.address == address
    await asyncio.to_thread(produce, address, topic, b"two")
    assert await consume(address, topic, "group", 1) == [b"two"]


async def test_a_folder_is_one_brokers_at_a_time_and_kept_for_the_next(kafka: Kafka, tmp_path: Path) -> None:
    needs_real(kafka, "keeps nothing")
    program = (await choose_kafka()).program
    assert program is not None
    async with KafkaBroker(program, folder=tmp_path) as broker:
        first = Kafka(address=broker.address, about="", is_real=True)
        await first.create_topic("orders", 2)
        with pytest.raises(UsageError, match="runs already"):
            await broker.start()
        with pytest.raises(KafkaRefused, match=f"another broker uses {tmp_path}"):
            await KafkaBroker(program, folder=tmp_path).__aenter__()
        # The one that is there has not suffered from it.
        assert not (tmp_path / "broker.log.before").exists()
        await first.create_topic("invoices")
        with pytest.raises(AddressInUse):
            await KafkaBroker(program, port=int(broker.address.rpartition(":")[2])).__aenter__()
    # Elsewhere, and what it kept is there.
    async with KafkaBroker(program, folder=tmp_path) as broker:
        await asyncio.to_thread(produce, broker.address, "orders", b"one", partition=1)
        assert await consume(broker.address, "orders", "group", 1) == [b"one"]
    assert (tmp_path / "broker.log.before").exists()
