"""A store under load: operations, locks, a change told to many watchers, leaders killed, members that beat.

The store is the broker of the trial, a process of its own with its data on disk, except in memory. Everything
it does and its clients do is in the CPU time.
"""

import asyncio
import statistics

from bench.kinds.request_reply import replies
from bench.measurement import Measurement
from bench.stage import Stage, Worker
from bench.window import Window

STEP_S_MAX = 120.0
CANDIDATES_COUNT = 3
CROWDS_COUNT = 2
"""Processes that the members of a trial are spread over."""


async def measure(stage: Stage, window: Window) -> Measurement:
    """Operations of one client that keeps `width` of them in flight."""
    return await replies(stage, window, await stage.start(stage.case.kind))


async def measure_fan(stage: Stage, window: Window) -> Measurement:
    """Puts of one key, one after the other, each told to `width` watches: deliveries, the last one's time."""
    return await replies(stage, window, await stage.start("fan", s_max=STEP_S_MAX))


async def measure_failover(stage: Stage, _window: Window) -> Measurement:
    """`width` leaders in turn get a SIGKILL; how long until the next one leads."""
    leader, *waiting = [await _candidate(stage, index) for index in range(CANDIDATES_COUNT)]
    await _leads(leader)
    gaps_s = []
    for number in range(stage.case.width):
        killed_at_s = await stage.kill(leader)
        leader, *waiting = waiting
        gaps_s.append(await _leads(leader) - killed_at_s)
        waiting.append(await _candidate(stage, CANDIDATES_COUNT + number))
    return Measurement(
        figures={
            "failover_s_min": min(gaps_s),
            "failover_s": statistics.median(gaps_s),
            "failover_s_p95": sorted(gaps_s)[len(gaps_s) * 95 // 100],
            "failover_s_max": max(gaps_s),
        }
    )


async def _candidate(stage: Stage, index: int) -> Worker:
    """In line behind those that were there before."""
    candidate = await stage.start("candidate", index)
    await candidate.do("stand", s_max=STEP_S_MAX)
    candidate.tell("lead")
    return candidate


async def _leads(candidate: Worker) -> float:
    """When it began to lead, on the clock that all processes of a machine share."""
    figures = (await candidate.hear("done", s_max=STEP_S_MAX))["figures"]
    return float(figures["at_s"])


async def measure_beats(stage: Stage, window: Window) -> Measurement:
    """`width` members that do nothing but stay: what a second of that costs."""
    count = stage.case.width
    crowds = [await stage.start("crowd", index) for index in range(CROWDS_COUNT)]
    joined = await asyncio.gather(*(crowd.do("join", s_max=STEP_S_MAX) for crowd in crowds))
    before = await stage.samples()
    # Some beats of everyone, however short the window is.
    await asyncio.sleep(max(window.measured_s, 1.0) * 5)
    after = await stage.samples()
    seconds = after[crowds[0]].at_s - before[crowds[0]].at_s
    spent_s = {worker: after[worker].cpu_s - before[worker].cpu_s for worker in after}
    members_s = sum(spent_s[crowd] for crowd in crowds)
    return Measurement(
        figures={
            "views": sum(one["views"] for one in joined),
            "join_all_s": max(one["seconds"] for one in joined),
            "store_cpu_share": (sum(spent_s.values()) - members_s) / seconds,
            "member_cpu_us": members_s * 1e6 / seconds / count,
            "store_member_cpu_us": (sum(spent_s.values()) - members_s) * 1e6 / seconds / count,
            "false_suspicions": sum(after[crowd].figures["suspicions"] for crowd in crowds),
            "unseen_members": sum(after[crowd].figures["unseen"] for crowd in crowds),
        }
    )
