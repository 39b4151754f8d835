"""The process behind Kafka peers of the benchmark: a broker, and who writes to its topic.

Each partition gets a message every 5 ms, which is the time at which it was sent, by the clock that all
processes of a machine share. Sessions last as long for all peers: in the classic protocol the client says how
long, in that of KIP-848 the broker does.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.job import Job
from bench.kinds.takeover import HEARTBEAT_S, MESSAGES_PER_S, SESSION_S
from bench.link import Link
from bench.peers import store_server
from hansa.cli.kafka_broker import KafkaBroker
from hansa.cli.kafka_jars import get_kafka
from tests.support.kafka_program import FOLDER

TOPIC = "bench"
SESSION: dict[str, Any] = {
    "session.timeout.ms": round(SESSION_S * 1e3),
    "heartbeat.interval.ms": round(HEARTBEAT_S * 1e3),
}
"""What a client of the classic protocol says."""
_SETTINGS = {
    f"group.consumer.{least}{name}": str(value) for least in ("", "min.") for name, value in SESSION.items()
}
FLUSH_S_MAX = 30.0


async def broker(job: Job, link: Link) -> None:
    """Kafka alone."""
    await serve(job, link)


async def serve(job: Job, link: Link, *, store_address: str = "") -> None:
    """Kafka, and a `hansa store` if it has an address."""
    folder = tempfile.mkdtemp(prefix="hansa-bench-")
    link.delete_at_end(folder)
    program = await get_kafka(FOLDER)
    port = int(job.address.rpartition(":")[2])
    async with KafkaBroker(program, folder=Path(folder, "kafka"), port=port, settings=_SETTINGS) as kafka:
        assert kafka.pid is not None
        link.count_in(kafka.pid)
        if store_address:
            store_server.start_hansa(store_address, link, Path(folder, "store"))
        await asyncio.to_thread(_write, job, link, kafka.version)


def _write(job: Job, link: Link, version: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    client: dict[str, Any] = {"bootstrap.servers": job.address}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(TOPIC, job.case.width, 1)])[TOPIC].result(FLUSH_S_MAX)
    producer = Producer(client | {"linger.ms": 1})
    # The first messages find out where to write to.
    for number in range(job.case.width):
        producer.produce(TOPIC, b"0", partition=number)
    if producer.flush(FLUSH_S_MAX):
        raise ChildProcessError("the broker takes no messages")
    link.ready(kafka=version)
    due_s = time.monotonic()
    while True:
        due_s += 1 / MESSAGES_PER_S
        time.sleep(max(due_s - time.monotonic(), 0.0))
        value = f"{time.monotonic()}"
        for number in range(job.case.width):
            producer.produce(TOPIC, value, partition=number)
        producer.poll(0)
