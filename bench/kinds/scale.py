"""A registry with `width` providers: what a heartbeat, a change, a list, a burst and a restart cost it.

One process is the registry, one the crowd of providers, one a discovery that follows every service. The CPU
time of a step is the process's own, read before and after. A list that was told in between for another reason
is taken off at the price of a repeated one, which is measured first.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from bench.measurement import Measurement
from bench.scale_plan import (
    BEATS_COUNT,
    BURST_COUNT,
    STEADY_S,
    changes_count,
    pause_s,
    repeats_watched_s,
)
from bench.stage import Stage, TrialFailed, Worker
from bench.window import Window

STEP_S_MAX = 180.0
PEAK_S = 0.2
FIRST_WEIGHT = 1_000_000
"""Above what a burst gives, and each once: so a discovery knows which change it sees."""


async def measure(stage: Stage, _window: Window) -> Measurement:
    """Every step, and at the end another registry in the place of the first."""
    registry, crowd, watch = await _cast(stage)
    figures = await _costs(stage, registry, crowd, watch)
    await stage.end(registry)
    figures |= await _restart(stage, crowd, watch)
    return Measurement(figures=figures)


async def measure_changes(stage: Stage, _window: Window) -> Measurement:
    """All but the restart."""
    return Measurement(figures=await _costs(stage, *await _cast(stage)))


async def _cast(stage: Stage) -> tuple[Worker, Worker, Worker]:
    return await stage.start("registry", 1), await stage.start("crowd"), await stage.start("watch")


async def _costs(stage: Stage, registry: Worker, crowd: Worker, watch: Worker) -> dict[str, float]:
    count = stage.case.width
    meter, watcher = _Meter(registry, "broadcasts"), _Meter(watch, "lists")
    await meter.calibrate()
    await watcher.calibrate()
    joined = await crowd.do("join", s_max=STEP_S_MAX)
    figures = {
        "connections": joined["connections"],
        "join_s": joined["end_s"] - joined["at_s"],
    }
    await watch.do(f"complete {count} 0", s_max=STEP_S_MAX)
    spent = await meter.read()
    figures |= {"join_cpu_us": spent.cpu_us / count, "join_broadcasts": spent.events}
    figures["registry_bytes"] = (await registry.do("weigh", s_max=STEP_S_MAX))["bytes"]

    await _quiet(registry, count)
    await meter.read()
    await watcher.read()
    await asyncio.sleep(repeats_watched_s(count))
    told, read = await meter.read(), await watcher.read()
    if not told.events or not read.events:
        raise TrialFailed("no list was repeated")
    repeat_us = told.cpu_us / told.events
    figures["broadcast_bytes"] = (await registry.sample()).figures["broadcast_bytes"]
    figures["broadcast_cpu_us"] = repeat_us
    figures["list_cpu_us"] = read.cpu_us / read.events
    figures |= await _one_by_one(count, crowd, watch, meter, watcher, repeat_us)

    await _quiet(registry, count)
    await meter.read()
    begun = await crowd.do(f"burst {BURST_COUNT} {FIRST_WEIGHT - 1}", s_max=STEP_S_MAX)
    seen = await watch.do(f"expect {FIRST_WEIGHT - 1}", s_max=STEP_S_MAX)
    spent = await meter.read()
    figures["burst_broadcasts"] = spent.events
    figures["burst_s"] = seen["at_s"] - begun["at_s"]
    figures["burst_cpu_us"] = spent.cpu_us / BURST_COUNT

    await _quiet(registry, count)
    await meter.read()
    beats = (await crowd.do(f"beat {BEATS_COUNT}", s_max=STEP_S_MAX))["beats"]
    spent = await meter.read()
    figures["heartbeat_cpu_us"] = (spent.cpu_us - spent.events * repeat_us) / beats
    return figures


async def _one_by_one(
    count: int, crowd: Worker, watch: Worker, meter: "_Meter", watcher: "_Meter", repeat_us: float
) -> dict[str, float]:
    """New weights, then new providers, each when the list before has been told and its pause is over."""
    figures: dict[str, float] = {}
    weights = iter(range(FIRST_WEIGHT, FIRST_WEIGHT + changes_count(count)))

    async def weigh() -> tuple[float, str]:
        weight = next(weights)
        return (await crowd.do(f"weigh {weight}", s_max=STEP_S_MAX))["at_s"], str(weight)

    async def enter() -> tuple[float, str]:
        entered = await crowd.do("enter", s_max=STEP_S_MAX)
        return entered["at_s"], entered["endpoint"]

    steps: tuple[tuple[str, Callable[[], Awaitable[tuple[float, str]]]], ...] = (
        ("weight", weigh),
        ("register", enter),
    )
    for name, change in steps:
        delays_s = []
        await meter.read()
        await watcher.read()
        for _ in range(changes_count(count)):
            await asyncio.sleep(pause_s(count + changes_count(count)))
            at_s, what = await change()
            delays_s.append((await watch.do(f"expect {what}", s_max=STEP_S_MAX))["at_s"] - at_s)
        told, read, changes = await meter.read(), await watcher.read(), len(delays_s)
        figures[f"{name}_cpu_us"] = (told.cpu_us - (told.events - changes) * repeat_us) / changes
        figures[f"{name}_delay_us"] = sorted(delays_s)[changes // 2] * 1e6
        figures[f"{name}_delay_us_max"] = max(delays_s) * 1e6
        figures[f"{name}_list_cpu_us"] = read.cpu_us / max(1.0, read.events)
    return figures


async def _restart(stage: Stage, crowd: Worker, watch: Worker) -> dict[str, float]:
    """The registry's process has ended without a word; another one begins with nothing."""
    count = stage.case.width
    # Wall time, as entries have it: a discovery may keep what it knew until it hears better.
    ended_at_s = time.time()
    registry = await stage.start("registry", 2)
    begun = before = await registry.sample()
    dials_before = (await crowd.sample()).figures["failed_dials"]
    shares: list[float] = []
    waiting = asyncio.gather(
        watch.do(f"complete {count} {ended_at_s}", s_max=STEP_S_MAX), crowd.do("return", s_max=STEP_S_MAX)
    )
    while not waiting.done():
        await asyncio.sleep(PEAK_S)
        after = await registry.sample()
        shares.append((after.cpu_s - before.cpu_s) / (after.at_s - before.at_s))
        before = after
    seen, returned = await waiting
    figures = {
        "restart_s": seen["at_s"] - begun.at_s,
        "restart_registered_s": returned["end_s"] - begun.at_s,
        "restart_cpu_s": before.cpu_s - begun.cpu_s,
        "restart_cpu_share_max": max(shares),
        "restart_broadcasts": before.figures["broadcasts"],
        "restart_failed_dials": (await crowd.sample()).figures["failed_dials"] - dials_before,
    }
    meter = _Meter(registry, "broadcasts")
    await meter.read()
    await asyncio.sleep(STEADY_S)
    spent = await meter.read()
    figures["steady_cpu_share"] = spent.cpu_us / 1e6 / spent.seconds
    return figures


async def _quiet(registry: Worker, count: int) -> None:
    """Until the last change has been told: lists come only as repetitions then."""
    while True:
        told = (await registry.sample()).figures["broadcasts"]
        await asyncio.sleep(pause_s(count))
        if (await registry.sample()).figures["broadcasts"] == told:
            break


class _Spent:
    def __init__(self, cpu_us: float, seconds: float, events: float) -> None:
        self.cpu_us = cpu_us
        self.seconds = seconds
        self.events = events


class _Meter:
    """What a worker has spent and counted since it was read last."""

    def __init__(self, worker: Worker, counter: str) -> None:
        self._worker = worker
        self._counter = counter
        self._cpu_s = self._at_s = self._count = 0.0
        self._own_us = 0.0

    async def calibrate(self) -> None:
        """Learn what reading itself costs the worker, while it does nothing else."""
        await self.read()
        self._own_us = statistics.median([(await self.read()).cpu_us for _ in range(9)])

    async def read(self) -> _Spent:
        sample = await self._worker.sample()
        count = sample.figures[self._counter]
        cpu_us = (sample.cpu_s - self._cpu_s) * 1e6 - self._own_us
        spent = _Spent(cpu_us, sample.at_s - self._at_s, count - self._count)
        self._cpu_s, self._at_s, self._count = sample.cpu_s, sample.at_s, count
        return spent
