"""One that stops among many that run: what it costs the others, and whether it learns what it missed.

A trial alternates: all run, then one is stopped, then it goes on and everything drains. So the two rates that
are compared come from the same second. In the end every message is accounted for: received by the others, and
received or known as lost by the one that was stopped.
"""

import asyncio
import statistics
from collections.abc import Sequence

from bench.measurement import Measurement
from bench.stage import Stage, TrialFailed, Worker
from bench.window import Window

ALTERNATIONS_COUNT = 5
ALTERNATION_SHARE = 0.5
"""Of the trial's window: each alternation has two of them."""
STEP_S_MAX = 60.0
MISSED_COUNT_MIN = 1_000
"""So much the stopped node misses at least once, however slow the machine is, within this time."""
MISSED_S_MAX = 20.0
DRAIN_S_MAX = 5.0
POLL_S = 0.02


async def measure_spot(stage: Stage, window: Window) -> Measurement:
    """A spot whose task does not read, among `width` spots of one process."""
    worker = await stage.start("slow_spots")
    seconds = window.measured_s * ALTERNATION_SHARE
    await worker.do(f"alternate {window.warmup_s}", s_max=STEP_S_MAX)
    rounds = [await worker.do(f"alternate {seconds}", s_max=STEP_S_MAX) for _ in range(ALTERNATIONS_COUNT)]
    # Counts are totals of the whole trial.
    last = rounds[-1]
    return Measurement(
        figures={
            "others_share": _share(
                [one["stopped_rate"] for one in rounds], [one["all_rate"] for one in rounds]
            ),
            "all_rate": statistics.median(one["all_rate"] for one in rounds),
            "others_lost": last["others_lost"],
            "stopped_missed": last["missed"],
            "stopped_untold": abs(last["missed"] - last["told"]),
        }
    )


async def measure_node(stage: Stage, window: Window) -> Measurement:
    """A node whose process is stopped (SIGSTOP) among `width` nodes that subscribe to one topic."""
    owner = await stage.start("flood")
    trial = _NodeTrial(owner, [await stage.start("follow", index) for index in range(stage.case.width)])
    await owner.do("gather", s_max=STEP_S_MAX)
    seconds = window.measured_s * ALTERNATION_SHARE
    for number in range(1, ALTERNATIONS_COUNT + 1):
        await trial.alternate(window.warmup_s, seconds, until_missed=number == ALTERNATIONS_COUNT)
    return Measurement(figures=trial.figures())


class _NodeTrial:
    """The alternations so far: rates of each, and the counts of all."""

    def __init__(self, owner: Worker, receivers: Sequence[Worker]) -> None:
        self._owner = owner
        self._receivers = receivers
        *self._others, self._stopped = receivers
        self._all: list[tuple[float, float]] = []
        self._without: list[tuple[float, float]] = []
        self._others_lost = self._missed = self._told = 0

    async def alternate(self, warmup_s: float, seconds: float, *, until_missed: bool) -> None:
        """All run, the last is stopped, it goes on and all drain."""
        await self._owner.do("run", s_max=STEP_S_MAX)
        await asyncio.sleep(warmup_s)
        self._all.append(await self._window(seconds))
        # The owner keeps to the pace of those who run: from here on that is not the last one's.
        await self._owner.do(f"leave {len(self._others)}", s_max=STEP_S_MAX)
        self._stopped.freeze()
        try:
            self._without.append(await self._window(seconds))
            if until_missed:
                await self._overflow()
        finally:
            self._stopped.thaw()
        sent = (await self._owner.do("rest", s_max=STEP_S_MAX))["sent"]
        await self._account(sent)
        await self._owner.do("admit", s_max=STEP_S_MAX)

    def figures(self) -> dict[str, float]:
        rates, costs = zip(*self._all, strict=True)
        rates_without, costs_without = zip(*self._without, strict=True)
        return {
            "others_share": _share(rates_without, rates),
            "owner_cpu_share": _share(costs_without, costs),
            "all_rate": statistics.median(rates),
            "others_lost": self._others_lost,
            "stopped_missed": self._missed,
            "stopped_untold": abs(self._missed - self._told),
        }

    async def _window(self, seconds: float) -> tuple[float, float]:
        """Deliveries a second to those who are never stopped, and the owner's CPU time a message."""
        asked = [self._owner, *self._others]
        before = await asyncio.gather(*(one.sample() for one in asked))
        await asyncio.sleep(seconds)
        after = await asyncio.gather(*(one.sample() for one in asked))
        sent, *received = (late.count - early.count for early, late in zip(before, after, strict=True))
        if not sent or not all(received):
            raise TrialFailed("no delivery in the whole window")
        rate = sum(received) / (after[0].at_s - before[0].at_s)
        return rate, (after[0].cpu_s - before[0].cpu_s) * 1e6 / sent

    async def _overflow(self) -> None:
        """Until the stopped node's buffers, the kernel's among them, are full and it has missed something."""
        ends_at_s = asyncio.get_running_loop().time() + MISSED_S_MAX
        while (await self._owner.sample()).figures["dropped"] < MISSED_COUNT_MIN:
            if asyncio.get_running_loop().time() > ends_at_s:
                raise TrialFailed("the owner never dropped anything for the stopped node")
            await asyncio.sleep(POLL_S)

    async def _account(self, sent: int) -> None:
        """Wait until everybody has each message or knows that it was lost; then note who has what."""
        ends_at_s = asyncio.get_running_loop().time() + DRAIN_S_MAX
        while True:
            samples = [await receiver.sample() for receiver in self._receivers]
            told = [int(one.figures["missed"] + one.figures["dropped"]) for one in samples]
            is_known = all(one.count + lost >= sent for one, lost in zip(samples, told, strict=True))
            if is_known or asyncio.get_running_loop().time() > ends_at_s:
                break
            await asyncio.sleep(POLL_S)
        self._others_lost = sum(sent - one.count for one in samples[:-1])
        self._missed, self._told = sent - samples[-1].count, told[-1]


def _share(some: Sequence[float], all_of_them: Sequence[float]) -> float:
    """The median of what neighbours are of each other: a slow second falls on both."""
    return statistics.median(one / other for one, other in zip(some, all_of_them, strict=True))
