"""`hansa dev kafka` as a user runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from tests.support.commands import Command, run_here
from tests.support.kafka_program import FOLDER
from tests.support.kafka_servers import Kafka, needs_real
from tests.support.kafka_talk import consume, produce
from tests.support.process_ends import has_ended, wait_for_end


@pytest.fixture
def folder(kafka: Kafka) -> str:
    """Where Kafka is already."""
    needs_real(kafka, "is no broker of its own")
    return str(FOLDER)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_until_it_is_stopped_and_leaves_nothing(folder: str, number: int) -> None:
    with Command("dev", "kafka", "--port", "0", "--folder", folder, "--json") as command:
        ready = await asyncio.to_thread(command.event, "ready")
        assert ready["pid"] == command.process.pid
        assert ready["version"] == "4.1.0"
        assert not has_ended(ready["broker_pid"])
        # As for a first look round, topics come into being when they are used.
        await asyncio.to_thread(produce, ready["address"], "orders", b"one")
        assert await consume(ready["address"], "orders", "group", 1) == [b"one"]
        status, out, err = await asyncio.to_thread(command.stop, number)
    assert (status, err) == (0, "")
    assert json.loads(out.splitlines()[-1]) == {"event": "stopped"}
    assert has_ended(ready["broker_pid"])
    assert not Path(ready["log"]).parent.exists()


def test_ctrl_c_in_a_terminal_is_the_commands_alone(folder: str, tmp_path: Path) -> None:
    """A terminal sends it to the whole group of processes; the broker ends in order all the same."""
    with Command(
        "dev", "kafka", "--port", "0", "--folder", folder, "--data", str(tmp_path), group=True
    ) as command:
        lines = [command.line(), command.line(), command.line()]
        assert lines[0] == "Apache Kafka 4.1.0 is starting"
        assert lines[1].startswith("broker ready: 127.0.0.1:")
        assert lines[1].endswith(f", Apache Kafka 4.1.0, its data is kept in {tmp_path}")
        assert lines[2].startswith("programs use it as bootstrap.servers=127.0.0.1:")
        os.killpg(command.process.pid, signal.SIGINT)
        assert command.end() == (0, "broker stopped\n", "")
    # A broker that ends in order writes down that it did.
    assert list((tmp_path / "data").glob("**/.kafka_cleanshutdown"))


def test_a_command_that_is_killed_takes_the_broker_with_it(folder: str) -> None:
    with Command("dev", "kafka", "--port", "0", "--folder", folder, "--json") as command:
        broker_pid = command.event("ready")["broker_pid"]
        command.process.kill()
        command.end()
        wait_for_end(broker_pid)


def test_a_port_that_is_taken_is_told_in_a_sentence(folder: str, kafka: Kafka) -> None:
    port = kafka.address.rpartition(":")[2]
    status, _, err = run_here("dev", "kafka", "--folder", folder, "--port", port)
    assert status == 1
    assert err.startswith(f"hansa dev kafka: port {port} of 127.0.0.1 cannot be used")


def test_a_machine_without_maven_is_told_what_to_install(tmp_path: Path, kafka: Kafka) -> None:
    needs_real(kafka, "needs no Java")
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"17\"' >&2\n")
    java.chmod(0o755)
    status, _, err = run_here("dev", "kafka", "--folder", str(tmp_path / "none"), env={"PATH": str(tmp_path)})
    assert status == 2
    assert "there is no mvn on the PATH; install it" in err
