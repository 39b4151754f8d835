"""Work that is shared out among processes: how long a partition stands still when it goes to another one.

Three processes share `width` partitions, each of which has a message every 5 ms. One leaves in order and
comes back, again and again; at last some are killed. A partition's pause goes from its last message at one
process to its first one at another.

A peer has the role `share`, with the orders `join`, `leave`, and `await N SINCE`: until it works on N
partitions. `leave` and `await` are answered with `has`, the partitions that are there with the time of their
first message since they came, and `given`, those that were given up since the last answer, with the time of
their last one; by the clock that all processes of a machine share. After a kill only messages that came into
being since then count: what is done again is no progress.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping

from bench.kinds.move import Control, Times
from bench.measurement import Measurement
from bench.stage import Stage, Worker
from bench.window import Window

MESSAGES_PER_S = int(os.environ.get("HANSA_BENCH_MESSAGES_PER_S", 200))
"""Of one partition. Who only wants to know whether it runs may ask for fewer."""
SESSION_S = 6.0
"""Of a process that says nothing more: the shortest that a Kafka broker grants by default."""
HEARTBEAT_S = 0.5
"""Of consumers in a Kafka group; they hear by it that others have come or gone."""
PROCESSES_COUNT = 3
LEAVES_PER_S = 15
"""Leaves, and as many joins, for each second of the window."""
LEAVES_S_MAX = 25.0
"""After that no more: a group in Kafka takes its time for each."""
KILLS_PER_S = 3
STEP_S_MAX = 60.0


async def measure(stage: Stage, window: Window) -> Measurement:
    """Leaves and joins in order, then kills."""
    trial = _Trial(stage)
    await trial.begin()
    ends_at_s = time.monotonic() + LEAVES_S_MAX
    for _ in range(max(round(window.measured_s * LEAVES_PER_S), 1)):
        await trial.leave_and_join()
        if time.monotonic() > ends_at_s:
            break
    for number in range(max(round(window.measured_s * KILLS_PER_S), 1)):
        await trial.kill(PROCESSES_COUNT + number)
    return Measurement(figures=trial.figures())


class _Trial:
    """The processes, and the times so far."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._workers: list[Worker] = []
        self._left, self._killed = Times("takeover_left"), Times("takeover_killed")
        self._pause = Times("handed_pause")
        self._moves_count = self._apart_count = 0

    async def begin(self) -> None:
        self._control = Control(await self._stage.start("control"))
        for index in range(PROCESSES_COUNT):
            await self._join(await self._stage.start("share", index))
            await self._shared()

    async def leave_and_join(self) -> None:
        """Who has been there for longest goes, and comes back."""
        await self._control.was_late()
        worker, at_s = self._workers.pop(0), time.monotonic()
        left = await worker.do("leave", s_max=STEP_S_MAX)
        firsts, given = await self._shared()
        is_apart = await self._control.was_late()
        self._left.add([_last(firsts, left["given"]) - at_s], is_apart=is_apart)
        # Where all is given up at each rebalance, the others have paused too.
        self._pauses(left["given"] | given, firsts, is_apart=is_apart)
        await self._join(worker)
        firsts, given = await self._shared()
        self._pauses(given, firsts, is_apart=await self._control.was_late())

    async def kill(self, index: int) -> None:
        """Who has been there for longest is killed; then another one comes."""
        worker = self._workers.pop(0)
        had = (await worker.do(f"await {self._share} 0", s_max=STEP_S_MAX))["has"]
        at_s = await self._stage.kill(worker)
        firsts, _ = await self._shared(since_s=at_s)
        # None is told apart: in seconds the machine is late now and then, and that is little of them.
        self._killed.add([_last(firsts, had) - at_s], is_apart=False)
        await self._join(await self._stage.start("share", index))
        await self._shared()

    async def _join(self, worker: Worker) -> None:
        await worker.do("join", s_max=STEP_S_MAX)
        self._workers.append(worker)

    @property
    def _share(self) -> int:
        """What each has while all are there."""
        return self._stage.case.width // PROCESSES_COUNT

    async def _shared(self, *, since_s: float = 0.0) -> tuple[dict[str, float], dict[str, float]]:
        """Wait until those that are there share all; when each partition began, and what was given up."""
        count = self._stage.case.width // len(self._workers)
        order = f"await {count} {since_s}"
        found = await asyncio.gather(*(one.do(order, s_max=STEP_S_MAX) for one in self._workers))
        firsts = {name: at_s for one in found for name, at_s in one["has"].items()}
        return firsts, {name: at_s for one in found for name, at_s in one["given"].items()}

    def _pauses(self, given: Mapping[str, float], firsts: Mapping[str, float], *, is_apart: bool) -> None:
        self._moves_count += len(given)
        self._apart_count += len(given) * is_apart
        self._pause.add([firsts[name] - at_s for name, at_s in given.items()], is_apart=is_apart)

    def figures(self) -> dict[str, float]:
        found: dict[str, float] = {"handed_moves": self._moves_count, "handed_apart": self._apart_count}
        for times in (self._left, self._killed, self._pause):
            found |= times.figures()
        return found | self._pause.apart()


def _last(firsts: Mapping[str, float], names: Iterable[str]) -> float:
    """When all of these were worked on again."""
    return max(firsts[name] for name in names)
