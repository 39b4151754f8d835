"""The loads that all asynchronous peers share, so that they do the same work around their own calls."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.job import Job
from bench.link import Link

BURST_COUNT = 100
"""Messages between two looks at the line; the same for blocking peers."""
BEACON_S = 0.005
SETTLE_S = 0.1
"""After the first answer to a beacon: the answers to the others have come by then."""


async def keep_in_flight(request: Callable[[bytes], Awaitable[bytes]], job: Job, link: Link) -> None:
    """As many callers as the case is wide, each waiting for its reply before it asks again, without end."""
    payload = job.payload

    async def timed() -> None:
        while True:
            begun_ns = time.perf_counter_ns()
            link.last = await request(payload)
            link.latencies_ns.append(time.perf_counter_ns() - begun_ns)
            link.count += 1

    async def untimed() -> None:
        while True:
            link.last = await request(payload)
            link.count += 1

    async with asyncio.TaskGroup() as callers:
        for number in range(job.case.width):
            callers.create_task(timed() if job.case.width == 1 else untimed(), name=f"caller-{number}")


async def keep_publishing(send_many: Callable[[int], Awaitable[None]], link: Link) -> None:
    """Publish beacons until the receivers are there, then as fast as the peer lets until halted, then drain.

    `send_many(count)` is the peer's own loop around its own send, so that nothing of this stands between, and
    it decides when the event loop may run: a fixed count here would fix the size of its writes.
    """
    while not link.hushed:
        await send_many(1)
        await asyncio.sleep(BEACON_S)
    await asyncio.to_thread(link.go.wait)
    while not link.halted:
        await send_many(BURST_COUNT)
        link.count += BURST_COUNT
    await asyncio.Event().wait()
