"""Fan-out inside one process: one publisher, `width` receivers with a task each, all on one event loop.

A delivery counts when the receiver's own task has it in hand. At the end the publisher stops and the tasks
drain, so what is missing then is lost.
"""

import asyncio

from bench.kinds.publish import settled
from bench.measurement import Measurement
from bench.stage import Stage, TrialFailed, cpu_us_by_role
from bench.window import Window


async def measure(stage: Stage, window: Window) -> Measurement:
    """Deliveries to all tasks in the window, and what was lost in the whole trial."""
    worker = await stage.start("publish_here")
    worker.tell("go")
    await asyncio.sleep(window.warmup_s)
    before = await stage.samples()
    await asyncio.sleep(window.measured_s)
    after = await stage.samples()
    worker.tell("halt")
    received = await settled([worker])
    sent = int((await worker.sample()).figures["published"]) * stage.case.width
    count = after[worker].count - before[worker].count
    if not count:
        raise TrialFailed("no delivery in the whole window")
    cpu_us = cpu_us_by_role(before, after, count)
    return Measurement(
        rate_per_s=count / (after[worker].at_s - before[worker].at_s),
        cpu_us=sum(cpu_us.values()),
        cpu_us_by_role=cpu_us,
        lost_count=sent - received,
        sent_count=sent,
    )
