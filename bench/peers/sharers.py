"""hansa's workers on a `hansa store`, among which a group's partitions are shared out: kind "takeover".

Settings: the defaults, except for the session's time, and that a joining worker is given its share after 0.2
s. The messages come by the clock, and what is noted after each has 1 KiB; it is handed on through the store.
"""

import asyncio
import time
from collections.abc import AsyncIterator

from bench.job import Job
from bench.kinds.takeover import MESSAGES_PER_S, SESSION_S
from bench.link import Link
from bench.peers import store_server
from bench.peers.control import control
from hansa.assignment.assignments import Assignments
from hansa.assignment.partition import Partition
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo
from hansa.runtime.mailboxes import Waiters
from hansa.store import open_store

__all__ = ["broker", "control", "share"]

GROUP = "bench"
JOIN_DELAY_S = 0.2
STATE = bytes(number * 167 % 251 for number in range(1024))


def broker(job: Job, link: Link) -> None:
    """The store's process."""
    store_server.serve_hansa(job, link)


async def share(job: Job, link: Link) -> None:
    """Take a share of the partitions when told to, and give it up when told to."""
    async with open_store(f"etcd://{job.address}") as store:
        group = Assignments(store, GROUP)
        await group.configure(join_delay=JOIN_DELAY_S)
        await group.define(*(Partition(name=f"p{number:03}") for number in range(job.case.width)))
        node = NodeInfo(id=f"worker-{job.index}")
        async with (
            Members(store, node, heartbeat_timeout=SESSION_S / 2) as members,
            asyncio.TaskGroup() as tasks,
        ):
            sharer = _Sharer(members)
            link.ready()
            while True:
                match await link.order():
                    case ["join"]:
                        joined = asyncio.Event()
                        tasks.create_task(sharer.take_part(joined), name="share")
                        await joined.wait()
                        link.done()
                    case ["leave"]:
                        await sharer.leave()
                        link.done(**sharer.answer())
                    case ["await", count]:
                        await sharer.until(int(count))
                        link.done(**sharer.answer())


class _Sharer:
    """One process's share."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._worker: Worker
        self._left = asyncio.Event()
        self._has: dict[str, float] = {}
        self._given: dict[str, float] = {}
        self._changed = Waiters()

    async def take_part(self, joined: asyncio.Event) -> None:
        """Work until told to leave."""
        self._left.clear()
        async with Worker(self._members, GROUP, source=_messages) as worker:
            self._worker = worker
            joined.set()
            await worker.run(self._work)
        self._left.set()

    async def leave(self) -> None:
        await self._worker.leave()
        await self._left.wait()

    async def until(self, count: int) -> None:
        """Wait until it works on so many, and no more."""
        while len(self._has) != count:
            await self._changed.wait()

    def answer(self) -> dict[str, dict[str, float]]:
        given, self._given = self._given, {}
        return {"has": dict(self._has), "given": given}

    async def _work(self, work: Work) -> None:
        name, last_s = work.partition, 0.0
        try:
            async with work:
                async for number in work:
                    last_s = time.monotonic()
                    if name not in self._has:
                        self._has[name] = last_s
                        self._changed.wake_all()
                    work.note(state=STATE, last_offset=number)
        finally:
            if self._has.pop(name, None) is not None:
                self._given[name] = last_s
            self._changed.wake_all()


async def _messages(work: Work) -> AsyncIterator[int]:
    """By the clock of the machine: what was not read yet has waited."""
    number = int(time.monotonic() * MESSAGES_PER_S)
    while True:
        number += 1
        await asyncio.sleep(max(number / MESSAGES_PER_S - time.monotonic(), 0.0))
        yield number
