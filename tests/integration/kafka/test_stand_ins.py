"""What tests run on: the mock cluster where there is no real Kafka, a shared broker, and how it is told."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import kafka_program
from tests.support.kafka_program import VARIABLE, KafkaChoice, choose_kafka
from tests.support.kafka_servers import ROOT, KafkaFailed, RunningKafka, shared_kafka
from tests.support.kafka_talk import PROTOCOLS, consume, produce

END_S_MAX = 30.0


@pytest.fixture
def _mock_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "mock")


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


async def test_without_maven_the_tests_run_on_the_mock_cluster_and_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_program, "FOLDER", tmp_path / "empty")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    choice = await choose_kafka()
    assert str(choice).startswith(
        "librdkafka's mock cluster, because Kafka needs Java 17 or newer, and there is"
    )
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17\"' >&2\n")
    java.chmod(0o755)
    assert "because Kafka is fetched through Maven, and there is no mvn on" in str(await choose_kafka())
    async with RunningKafka() as running:
        assert not running.is_real


def test_a_choice_says_what_it_is() -> None:
    assert str(KafkaChoice(program=None, why_not="of rain")) == "librdkafka's mock cluster, because of rain"


@pytest.mark.usefixtures("_mock_chosen")
async def test_the_mock_cluster_has_topics_and_both_protocols_of_groups() -> None:
    async with RunningKafka() as running:
        assert not running.is_real
        topic = await running.create_topic("orders", 12)
        with pytest.raises(KafkaFailed, match="refused the topic"):
            await running.create_topic("orders", 12)
        await asyncio.to_thread(produce, running.address, topic, b"one", partition=11)
        for protocol, settings in PROTOCOLS.items():
            assert await consume(running.address, topic, protocol, 1, settings) == [b"one"]


@pytest.mark.usefixtures("_mock_chosen")
async def test_the_mock_cluster_keeps_its_data_while_it_is_down() -> None:
    async with RunningKafka() as running:
        topic = await running.create_topic("orders", 1)
        await asyncio.to_thread(produce, running.address, topic, b"one")
        running.kill()
        reading = asyncio.create_task(consume(running.address, topic, "group", 1))
        await asyncio.wait([reading], timeout=0.3)
        assert not reading.done()
        await running.start()
        assert await reading == [b"one"]


@pytest.mark.usefixtures("_mock_chosen")
def test_all_share_one_broker_that_ends_with_the_last_of_them(tmp_path: Path) -> None:
    with shared_kafka(tmp_path) as one:
        with shared_kafka(tmp_path) as two:
            assert two == one
        assert answers(one.address)
        one.create_topic_now("orders", 2)
    until_s = time.monotonic() + END_S_MAX
    while answers(one.address):
        assert time.monotonic() < until_s
        time.sleep(0.02)
    # Whoever comes now has another one, also when the first is just ending.
    with shared_kafka(tmp_path) as three:
        assert answers(three.address)
        three.create_topic_now("orders", 2)


@pytest.mark.parametrize("jobs", ["0", "1"])
def test_the_output_of_tests_says_what_they_ran_on(jobs: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", jobs]
    done = subprocess.run(
        [*command, "tests/integration/kafka/test_broker.py", "-k", "test_what_is_written and classic"],
        cwd=ROOT,
        env={**os.environ, VARIABLE: "mock"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout
    assert f"\nKafka: librdkafka's mock cluster, because {VARIABLE} says so\n" in done.stdout
