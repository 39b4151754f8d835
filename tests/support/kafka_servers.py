"""Kafka brokers for tests: one that all tests share, and others that a test kills, freezes and restarts.

Tests that leave the broker alone share one, with topics and groups of their own: the fixture `kafka`. Tests
that do not start their own: `async with RunningKafka() as kafka`. Both are real brokers, or librdkafka's mock
cluster where there is no real one (see `kafka_program`); `is_real` tells.

The shared one is started by the first process of the tests that needs it and ends with the last, whatever
ends them: a process in between, which this module is too, keeps it.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from hansa.cli.kafka_broker import KafkaBroker
from tests.support.kafka_program import FOLDER, choose_kafka, is_mock_chosen

ROOT = Path(__file__).parents[2]
# Members of groups that are gone are noticed soon: the least that clients may ask for, and what those of the
# new protocol are told.
SHORT_SESSIONS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
# A topic that is misspelt is an error, not a new topic.
SETTINGS = {**SHORT_SESSIONS, "auto.create.topics.enable": "false"}
_ASK_S_MAX = 30.0
_LOOK_S = 0.02


class KafkaFailed(Exception):
    """The broker, or what stands for it, did not do what a test needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kafka:
    """A broker that tests use and do not touch."""

    address: str
    # What it is, for the report of the tests.
    about: str
    # The mock cluster knows no configurations of topics, describes no groups, and forgets all when it ends.
    is_real: bool
    # Where the mock cluster takes orders.
    orders_port: int = 0

    async def create_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic, and wait until clients see it; gives its name.

        `config` is the topic's own, with underscores for dots: `retention_ms="1000"`.
        """
        await asyncio.to_thread(self.create_topic_now, name, partitions, **config)
        return name

    def create_topic_now(self, name: str, partitions: int = 1, **config: str) -> str:
        """As `create_topic`, and blocks."""
        client = AdminClient({"bootstrap.servers": self.address})
        if self.is_real:
            own = {key.replace("_", "."): value for key, value in config.items()}
            topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=own)
            client.create_topics([topic])[name].result(_ASK_S_MAX)
        elif code := order(self.orders_port, create=name, partitions=partitions):
            raise KafkaFailed(f"the mock cluster refused the topic {name}: {code}")
        until_s = time.monotonic() + _ASK_S_MAX
        while not _is_led(client, name, partitions):
            if time.monotonic() > until_s:
                raise KafkaFailed(f"the topic {name} has no leaders after {_ASK_S_MAX} s")
            time.sleep(_LOOK_S)
        return name


def _is_led(client: AdminClient, name: str, partitions: int) -> bool:
    topic = client.list_topics(name, timeout=_ASK_S_MAX).topics.get(name)
    return (
        topic is not None
        and topic.error is None
        and len(topic.partitions) == partitions
        and all(partition.leader >= 0 for partition in topic.partitions.values())
    )


def unused(name: str) -> str:
    """A name for a topic or a group that no other test has."""
    return f"{name}-{uuid4().hex[:12]}"


def needs_real(kafka: Kafka | RunningKafka, why: str) -> None:
    """Skip the test on the mock cluster."""
    if not kafka.is_real:
        pytest.skip(f"{kafka.about}, which {why}")


def order(port: int, **what: Any) -> int:
    """Tell a mock cluster what to do; gives librdkafka's number of an error, 0 for none."""
    with socket.create_connection(("127.0.0.1", port), _ASK_S_MAX) as peer, peer.makefile("rw") as lines:
        print(json.dumps(what), file=lines, flush=True)
        return int(lines.readline())


# ---- a broker of one's own -----------------------------------------------------------------------------


class RunningKafka:
    """A broker that a test may stop, kill, freeze and start again: `async with RunningKafka() as kafka`.

    It keeps its data and its address from one start to the next, and takes both with it when the block ends.
    The mock cluster keeps them too, in memory: killed, it breaks its connections and takes none. Not for
    several threads: it dies with the thread that started it.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self.broker: KafkaBroker | None = None
        self._mock: subprocess.Popen[str] | None = None
        self._kafka: Kafka | None = None

    async def __aenter__(self) -> Self:
        choice = await choose_kafka()
        about = str(choice)
        if choice.program is None:
            self._mock, address, port = await asyncio.to_thread(_start_mock)
            self._kafka = Kafka(address=address, about=about, is_real=False, orders_port=port)
        else:
            self.broker = KafkaBroker(choice.program, settings=self._settings)
            await self.broker.__aenter__()
            self._kafka = Kafka(address=self.broker.address, about=about, is_real=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A frozen broker would not hear that it is to end.
        self.thaw()
        if self.broker is not None:
            # Nobody needs what it would still write.
            self.broker.kill()
            await self.broker.__aexit__(kind, error, trace)
        if self._mock is not None:
            self._mock.kill()
            self._mock.communicate()

    @property
    def kafka(self) -> Kafka:
        """Its address and what it can do, as of the shared one."""
        assert self._kafka is not None, "the broker was not started"
        return self._kafka

    @property
    def address(self) -> str:
        return self.kafka.address

    @property
    def about(self) -> str:
        return self.kafka.about

    @property
    def is_real(self) -> bool:
        return self.kafka.is_real

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        if self.broker is not None:
            return self.broker.pid
        return self._mock.pid if self._mock is not None else None

    async def create_topic(self, name: str, partitions: int = 1, **config: str) -> str:
        return await self.kafka.create_topic(name, partitions, **config)

    async def stop(self) -> None:
        """End it in order."""
        if self.broker is not None:
            await self.broker.stop()
        else:
            self._turn_mock(down=True)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self.broker is not None:
            self.broker.kill()
        else:
            self._turn_mock(down=True)

    async def start(self) -> None:
        """Start it again, and wait until it answers."""
        if self.broker is not None:
            await self.broker.start()
        else:
            self._turn_mock(down=False)

    def freeze(self) -> None:
        """SIGSTOP: its connections stay, and nobody answers."""
        pid = self.pid
        assert pid is not None, "the broker does not run"
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        """SIGCONT."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGCONT)

    def _turn_mock(self, *, down: bool) -> None:
        if code := order(self.kafka.orders_port, down=down):
            raise KafkaFailed(f"the mock cluster refused an order: {code}")


def _start_mock() -> tuple[subprocess.Popen[str], str, int]:
    # Not tied to its starter, as this is another thread: it ends when its stdin does, which nobody else has.
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.kafka_mock"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise KafkaFailed(f"the mock cluster ended with {process.wait()}")
    told = json.loads(line)
    return process, told["address"], told["orders"]


@contextmanager
def fresh_kafka() -> Iterator[RunningKafka]:
    """For a test that is no coroutine. Topics come into being, with as many partitions as a mock's."""
    with asyncio.Runner() as runner:
        running = RunningKafka({"auto.create.topics.enable": "true", "num.partitions": "4"})
        runner.run(running.__aenter__())
        try:
            yield running
        finally:
            runner.run(running.__aexit__(None, None, None))


# ---- the shared one ------------------------------------------------------------------------------------


@contextmanager
def shared_kafka(folder: Path | None = None) -> Iterator[Kafka]:
    """The broker of all who give this folder, else of this tree's tests: it lives while one is in here."""
    folder = folder or FOLDER / ("shared-mock" if is_mock_chosen() else "shared")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "starting.lock").open("w") as starting, (folder / "users.lock").open("w") as users:
        fcntl.flock(starting, fcntl.LOCK_EX)
        # A keeper that is ending has this lock alone, until it has ended.
        fcntl.flock(users, fcntl.LOCK_SH)
        if not _has_keeper(folder):
            _start_keeper(folder)
        kafka = Kafka(**json.loads((folder / "kafka.json").read_text()))
        fcntl.flock(starting, fcntl.LOCK_UN)
        yield kafka


def _has_keeper(folder: Path) -> bool:
    with (folder / "keeper.lock").open("w") as keeper:
        try:
            fcntl.flock(keeper, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def _start_keeper(folder: Path) -> None:
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kafka_servers", str(folder)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            # It outlives the process of tests that happened to be the first.
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            if not process.stdout.readline():
                status = process.wait()
                said.seek(0)
                raise KafkaFailed(f"the shared broker was not started ({status}): {said.read()[-4000:]}")
        # Its end is nobody's to wait for; told so, Popen does not warn of it.
        process.returncode = 0


async def keep(folder: Path) -> None:
    """Run the shared broker until nobody uses it any more."""
    with (folder / "keeper.lock").open("w") as alone, (folder / "users.lock").open("w") as users:
        fcntl.flock(alone, fcntl.LOCK_EX)
        async with RunningKafka() as running:
            (folder / "kafka.json").write_text(json.dumps(asdict(running.kafka)))
            print("ready", flush=True)
            await asyncio.to_thread(fcntl.flock, users, fcntl.LOCK_EX)


if __name__ == "__main__":
    asyncio.run(keep(Path(sys.argv[1])))
