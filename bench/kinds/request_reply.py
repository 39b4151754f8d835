"""Request/reply: one server, one client that keeps `width` requests in flight, each matched to its caller."""

import asyncio

from bench.measurement import Measurement
from bench.stage import Stage, TrialFailed, cpu_us_by_role
from bench.window import Window


async def measure(stage: Stage, window: Window) -> Measurement:
    """Replies seen by the client in the window, and what they cost both processes."""
    await stage.start("serve")
    client = await stage.start("call")
    await asyncio.sleep(window.warmup_s)
    before = await stage.samples()
    await asyncio.sleep(window.measured_s)
    after = await stage.samples()
    count = after[client].count - before[client].count
    if not count:
        raise TrialFailed("no reply in the whole window")
    cpu_us = cpu_us_by_role(before, after, count)
    return Measurement(
        rate_per_s=count / (after[client].at_s - before[client].at_s),
        cpu_us=sum(cpu_us.values()),
        cpu_us_by_role=cpu_us,
        p50_us=after[client].p50_us,
        p99_us=after[client].p99_us,
    )
