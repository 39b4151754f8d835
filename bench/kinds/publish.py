"""Publishing: one publisher, `width` receivers in processes of their own, each counting every message.

The publisher sends as fast as its library lets it, with the library's own back-pressure or losses. Beacons go
first, until every receiver has heard one: no message of the count was sent before its receiver was there. At
the end the publisher stops and the receivers drain, so what is missing then is lost.
"""

import asyncio
from collections.abc import Sequence

from bench.measurement import Measurement
from bench.stage import Stage, TrialFailed, Worker, cpu_us_by_role
from bench.window import Window

JOIN_S_MAX = 10.0
DRAIN_S_MAX = 20.0
QUIET_S = 0.1
POLL_S = 0.02


async def measure(stage: Stage, window: Window) -> Measurement:
    """Deliveries seen by all receivers in the window, and what was lost in the whole trial."""
    publisher = await stage.start("publish")
    receivers = [await stage.start("receive", index) for index in range(stage.case.width)]
    await _joined(receivers)
    publisher.tell("hush")
    beacons = await settled(receivers)
    publisher.tell("go")
    await asyncio.sleep(window.warmup_s)
    before = await stage.samples()
    await asyncio.sleep(window.measured_s)
    after = await stage.samples()
    publisher.tell("halt")
    received = await settled(receivers) - beacons
    sent = (await publisher.sample()).count * len(receivers)
    count = sum(after[one].count - before[one].count for one in receivers)
    if not count:
        raise TrialFailed("no delivery in the whole window")
    cpu_us = cpu_us_by_role(before, after, count)
    return Measurement(
        rate_per_s=sum(
            (after[one].count - before[one].count) / (after[one].at_s - before[one].at_s) for one in receivers
        ),
        cpu_us=sum(cpu_us.values()),
        cpu_us_by_role=cpu_us,
        lost_count=sent - received,
        sent_count=sent,
    )


async def measure_routed(stage: Stage, window: Window) -> Measurement:
    """The same with the topic's owner in a process of its own, between the publisher and the receivers."""
    await stage.start("own")
    return await measure(stage, window)


async def _joined(receivers: Sequence[Worker]) -> None:
    try:
        async with asyncio.timeout(JOIN_S_MAX):
            for receiver in receivers:
                while not (await receiver.sample()).count:  # noqa: ASYNC110 - another process's counter
                    await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise TrialFailed("a receiver heard no beacon") from None


async def settled(receivers: Sequence[Worker]) -> int:
    """What all have received when no more comes; after DRAIN_S_MAX what they have then."""
    count, ends_at_s = -1, asyncio.get_running_loop().time() + DRAIN_S_MAX
    while asyncio.get_running_loop().time() < ends_at_s:
        now = sum([(await receiver.sample()).count for receiver in receivers])
        if now == count:
            break
        count = now
        await asyncio.sleep(QUIET_S)
    return count
