"""Worker processes of a Kafka group (`kafka_peer.py`), a stream of numbers for them, and what they tell."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from tests.support.peer_process import PeerProcess

SCRIPT = "assignment/kafka_peer.py"
WAIT_S_MAX = 60.0
_TURN_S = 0.05


class Peer:
    """One worker process: `async with Peer(...) as peer` waits until it is open."""

    def __init__(self, name: str, broker: str, store: str, topic: str, group: str, *options: str) -> None:
        self.name = name
        self._process = PeerProcess(SCRIPT, broker, store, topic, group, name, *options)
        self.told: list[dict[str, Any]] = []
        self._changed = asyncio.Event()
        self._hearing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._process.__aenter__()
        self._hearing = asyncio.create_task(self._hear())
        await self.until(lambda: self.events("open"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    @property
    def owned(self) -> list[str]:
        """The partitions that it told last to have."""
        found = self.events("owns")
        partitions: list[str] = found[-1]["partitions"] if found else []
        return partitions

    def events(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self.told if each["event"] == name]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until what it told fulfils this."""
        async with asyncio.timeout(WAIT_S_MAX):
            while not condition():
                ended = self._process.process.returncode
                assert ended is None, f"{self.name} ended with {ended}: {self.told[-3:]}"
                self._changed.clear()
                await self._changed.wait()

    async def leave(self) -> dict[str, Any]:
        """Have it leave in order; gives what it counted."""
        await self._process.say("leave")
        await self.until(lambda: self.events("left"))
        return self.events("left")[-1]

    def freeze(self) -> None:
        self._process.freeze()

    def thaw(self) -> None:
        self._process.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        if self._hearing is not None:
            hearing, self._hearing = self._hearing, None
            if self._process.process.returncode is None:
                self._process.process.kill()
            await hearing
            await self._process.kill()

    async def _hear(self) -> None:
        output = self._process.process.stdout
        assert output is not None
        while line := await output.readline():
            self.told.append(json.loads(line))
            self._changed.set()
        self._changed.set()


class Numbers:
    """Writes so many numbers a second to each partition, from 0 on, until it is stopped. In a thread.

    Each is written once and in order, whatever the broker goes through.
    """

    def __init__(self, address: str, topic: str, *, partitions: int, rate: float) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self.topic = topic
        self._rate = rate
        self.counts = [0] * partitions
        self.failed: list[KafkaError] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="numbers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """Write no more, and wait until the broker has all."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)
        left = await asyncio.to_thread(self._producer.flush, 60.0)
        assert (left, self.failed) == (0, []), f"{left} were not written: {self.failed[:3]}"

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._stop.wait(_TURN_S):
            wanted = int((time.monotonic() - began_s) * self._rate)
            for partition, count in enumerate(self.counts):
                for number in range(count, wanted):
                    self._produce(partition, number)
            self._producer.poll(0)

    def _produce(self, partition: int, number: int) -> None:
        while True:
            try:
                self._producer.produce(
                    self.topic, b"%d" % number, partition=partition, on_delivery=self._told
                )
            except BufferError:
                # The broker is away: what waits for it has a bound.
                self._producer.poll(0.1)
            else:
                self.counts[partition] = number + 1
                return

    def _told(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed.append(error)
