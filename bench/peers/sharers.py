"""hansa's workers, among which a group's partitions are shared out: kind "takeover".

By variant on a `hansa store`, whose leader shares them out, or in a Kafka group by one of its two protocols.
Settings: the defaults, except for the session's time, and that a worker that joins on a store is given its
share after 0.2 s. What is noted after each message has 1 KiB; it is handed on through the store. On a store
the messages come by the clock.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

from bench.job import Job
from bench.kinds.takeover import MESSAGES_PER_S, SESSION_S
from bench.link import Link
from bench.peers import kafka_broker, store_server
from bench.peers.control import control
from bench.peers.share import Share, obey
from hansa.assignment.assignments import Assignments
from hansa.assignment.kafka_group import Protocols
from hansa.assignment.kafka_mode import KafkaMode
from hansa.assignment.partition import Partition
from hansa.assignment.store_mode import StoreMode
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo
from hansa.store import open_store

__all__ = ["broker", "control", "share"]

GROUP = "bench"
JOIN_DELAY_S = 0.2
STATE = bytes(number * 167 % 251 for number in range(1024))


async def broker(job: Job, link: Link) -> None:
    """The store's process, and Kafka's."""
    if job.peer.variant:
        await kafka_broker.serve(job, link, store_address=job.second_address)
    else:
        store_server.serve_hansa(job, link)


async def share(job: Job, link: Link) -> None:
    """Take a share of the partitions when told to, and give it up when told to."""
    address = job.second_address if job.peer.variant else job.address
    async with open_store(f"etcd://{address}") as store:
        if not job.peer.variant:
            group = Assignments(store, GROUP)
            await group.configure(join_delay=JOIN_DELAY_S)
            await group.define(*(Partition(name=f"p{number:03}") for number in range(job.case.width)))
        node = NodeInfo(id=f"worker-{job.index}")
        async with Members(store, node, heartbeat_timeout=SESSION_S / 2) as members:
            await obey(link, partial(_take_part, job, members))


async def _take_part(job: Job, members: Members, share: Share, leaving: asyncio.Event) -> None:
    mode = _kafka_mode(job) if job.peer.variant else StoreMode()
    async with (
        Worker(members, GROUP, mode=mode, source=_clock) as worker,
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(worker.run(partial(_work, share)), name="works")
        await leaving.wait()
        await worker.leave()


def _kafka_mode(job: Job) -> KafkaMode:
    protocol = cast(Protocols, job.peer.variant)
    settings = kafka_broker.SESSION if protocol == "classic" else {}
    return KafkaMode(job.address, kafka_broker.TOPIC, protocol=protocol, settings=settings)


async def _work(share: Share, work: Work) -> None:
    try:
        async with work:
            async for message in work:
                number, sent_s = _read(message)
                share.worked(work.partition, sent_s)
                work.note(state=STATE, last_offset=number)
    finally:
        share.gave_up(work.partition)


def _read(message: Any) -> tuple[int, float]:
    """A message's place in its partition, and when it came into being."""
    if isinstance(message, int):
        return message, message / MESSAGES_PER_S
    return message.offset(), float(message.value())


async def _clock(_work: Work) -> AsyncIterator[int]:
    """By the clock of the machine: what was not read yet has waited."""
    number = int(time.monotonic() * MESSAGES_PER_S)
    while True:
        number += 1
        await asyncio.sleep(max(number / MESSAGES_PER_S - time.monotonic(), 0.0))
        yield number
