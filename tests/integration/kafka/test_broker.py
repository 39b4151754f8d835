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


async def test_a_killed_broker_says_that_it_ended_and_comes_back_with_its_data_at_its_address(
    own_kafka: RunningKafka,
) -> None:
    topic = await own_kafka.create_topic("orders", 1)
    await asyncio.to_thread(produce, own_kafka.address, topic, b"one")
    assert await consume(own_kafka.address, topic, "group", 1) == [b"one"]
    address, broker, pid = own_kafka.address, own_kafka.broker, own_kafka.pid
    if broker is not None:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert "the Kafka broker ended" in str(await broker.ended())
        assert broker.pid is None
    else:
        own_kafka.kill()
    await own_kafka.start()
    assert own_kafka.address == address
    await asyncio.to_thread(produce, address, topic, b"two")
    assert await consume(address, topic, "group", 1) == [b"two"]
    await own_kafka.stop()
    await own_kafka.start()
    assert await consume(address, topic, "another", 2) == [b"one", b"two"]


async def test_a_broker_that_was_frozen_goes_on_and_leaves_no_process_and_no_folder() -> None:
    async with RunningKafka() as running:
        pid = running.pid
        assert pid is not None
        folder = None if running.broker is None else running.broker.folder
        topic = await running.create_topic("orders", 1)
        running.freeze()
        writing = asyncio.create_task(asyncio.to_thread(produce, running.address, topic, b"one"))
        await asyncio.wait([writing], timeout=0.3)
        assert not writing.done()
        running.thaw()
        await writing
        assert await consume(running.address, topic, "group", 1) == [b"one"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert folder is None or not folder.exists()


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
        with pytest.raises(AddressInUse):
            await KafkaBroker(program, port=int(broker.address.rpartition(":")[2])).__aenter__()
    # Elsewhere, and what it kept is there.
    async with KafkaBroker(program, folder=tmp_path) as broker:
        await asyncio.to_thread(produce, broker.address, "orders", b"one", partition=1)
        assert await consume(broker.address, "orders", "group", 1) == [b"one"]
    assert (tmp_path / "broker.log.before").exists()
