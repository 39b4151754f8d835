"""There and back: one server, one client that keeps `width` requests in flight and waits for each answer."""

import asyncio

from bench.measurement import Measurement
from bench.stage import Stage, TrialFailed, Worker, cpu_us_by_role
from bench.window import Window


async def measure(stage: Stage, window: Window) -> Measurement:
    """Requests, each with a reply that is matched to its caller."""
    return await _measure(stage, window, ("serve", "call"))


async def measure_topics(stage: Stage, window: Window) -> Measurement:
    """A message on one topic, answered with a message on another: each side publishes and subscribes."""
    return await _measure(stage, window, ("bounce", "throw"))


async def _measure(stage: Stage, window: Window, roles: tuple[str, str]) -> Measurement:
    server_role, client_role = roles
    await stage.start(server_role)
    return await replies(stage, window, await stage.start(client_role))


async def replies(stage: Stage, window: Window, client: Worker) -> Measurement:
    """Replies seen by the client in the window, and what they cost all processes."""
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
