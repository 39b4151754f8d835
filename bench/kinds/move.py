"""What changes its owner again and again while it is used: a topic under load, and a leadership.

A process beside them only sleeps (`bench.peers.control`). What happened while the machine woke that one up
much too late is told apart: it says how late the machine was, not how long a hand-over takes.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from bench.kinds.publish import settled
from bench.measurement import Measurement
from bench.stage import Stage, Worker
from bench.window import Window

RATE_PER_S = 100_000
PUBLISHERS_COUNT = 2
OWNERS_COUNT = 2
CANDIDATES_COUNT = 3
MOVES_PER_S = 100
"""Moves of a topic for each second of the window."""
LOOK_SHARE = 0.15
"""Of the window: so long everybody reads on after a move, before its gaps are looked at."""
STEP_S_MAX = 60.0
DRAIN_S_MAX = 20.0
"""Longer than an old owner passes on what still comes to it."""


@dataclass(slots=True)
class Times:
    """The same time, measured again and again: of all, and of those told apart."""

    name: str
    calm_s: list[float] = field(default_factory=list)
    apart_s: list[float] = field(default_factory=list)

    def add(self, values_s: Sequence[float], *, is_apart: bool) -> None:
        """One more, or one for each who measured it."""
        (self.apart_s if is_apart else self.calm_s).extend(values_s)

    def figures(self) -> dict[str, float]:
        """Of what is not told apart; nothing if there is none."""
        if not self.calm_s:
            return {}
        ordered = sorted(self.calm_s)
        p50_s, p99_s = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
        return {f"{self.name}_s": p50_s, f"{self.name}_p99_s": p99_s}

    def apart(self) -> dict[str, float]:
        """The longest of what is told apart."""
        return {f"{self.name}_apart_s": max(self.apart_s)} if self.apart_s else {}


class Control:
    """Who sleeps, and what it has counted."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._late_count = 0.0

    async def was_late(self) -> bool:
        """Whether the machine was late since this was asked last."""
        before, self._late_count = self._late_count, (await self._worker.sample()).figures["late"]
        return self._late_count > before


# -- a topic


async def measure_topic(stage: Stage, window: Window) -> Measurement:
    """A topic that two publish to goes to and fro between two owners, and `width` subscribers read on."""
    owners = [await stage.start("keep", index) for index in range(OWNERS_COUNT)]
    names = [(await owner.do("who", s_max=STEP_S_MAX))["node"] for owner in owners]
    await owners[0].do("create", s_max=STEP_S_MAX)
    readers = [await stage.start("hear", index) for index in range(stage.case.width)]
    publishers = [await stage.start("speak", index) for index in range(PUBLISHERS_COUNT)]
    control = Control(await stage.start("control"))
    for publisher in publishers:
        await publisher.do("run", s_max=STEP_S_MAX)
    await asyncio.sleep(window.warmup_s)
    trial = _TopicTrial(readers, control, window.measured_s * LOOK_SHARE)
    before = await _counts(readers)
    for number in range(max(round(window.measured_s * MOVES_PER_S), OWNERS_COUNT)):
        await trial.around(None)
        source, target = owners[number % OWNERS_COUNT], names[(number + 1) % OWNERS_COUNT]
        await trial.around(partial(source.do, f"give {target}", s_max=STEP_S_MAX))
    after = await _counts(readers)
    sent = [int((await publisher.do("rest", s_max=STEP_S_MAX))["sent"]) for publisher in publishers]
    rates = [(late[0] - early[0]) / (late[1] - early[1]) for early, late in zip(before, after, strict=True)]
    accounts = await _accounts(readers, publishers, sent)
    return Measurement(figures=trial.figures() | {"move_rate": sum(rates) / len(rates)} | accounts)


async def _accounts(
    readers: Sequence[Worker], publishers: Sequence[Worker], sent: Sequence[int]
) -> dict[str, float]:
    """What has become of each message, when all have come of which nobody knows that they do not."""
    ends_at_s = asyncio.get_running_loop().time() + DRAIN_S_MAX
    order = " ".join(["count", *map(str, sent)])
    while True:
        await settled(readers)
        counts = [await reader.do(order, s_max=STEP_S_MAX) for reader in readers]
        told = [(await reader.sample()).figures["told"] for reader in readers]
        refused = sum([(await publisher.sample()).figures["refused"] for publisher in publishers])
        unknown = sum(max(one["missed"] - lost - refused, 0) for one, lost in zip(counts, told, strict=True))
        if not unknown or asyncio.get_running_loop().time() > ends_at_s:
            return {
                "missed": sum(one["missed"] for one in counts),
                "unknown": unknown,
                "twice": sum(one["twice"] for one in counts),
                "disordered": sum(one["late"] for one in counts),
                "refused": refused,
            }


async def _counts(readers: Sequence[Worker]) -> list[tuple[int, float]]:
    samples = await asyncio.gather(*(reader.sample() for reader in readers))
    return [(sample.count, sample.at_s) for sample in samples]


class _TopicTrial:
    """The gaps so far, with a move and without one, in turns."""

    def __init__(self, readers: Sequence[Worker], control: Control, look_s: float) -> None:
        self._readers = readers
        self._control = control
        self._look_s = look_s
        self._still, self._pause, self._lane = Times("still"), Times("pause"), Times("lane_pause")
        self._sealed, self._whole = Times("sealed"), Times("whole")
        self._moves_count = self._apart_count = 0

    async def around(self, move: Callable[[], Awaitable[dict[str, float]]] | None) -> None:
        """Look at the gaps around a move, or for as long without one."""
        await self._look()
        await self._control.was_late()
        moved = await move() if move is not None else None
        await asyncio.sleep(self._look_s)
        seen = await self._look()
        is_apart = await self._control.was_late()
        gaps_s = [one["gap_s"] for one in seen]
        if moved is None:
            self._still.add(gaps_s, is_apart=is_apart)
            return
        self._moves_count += 1
        self._apart_count += is_apart
        self._pause.add(gaps_s, is_apart=is_apart)
        self._lane.add([one["lane_gap_s"] for one in seen], is_apart=is_apart)
        self._sealed.add([moved["sealed_s"]], is_apart=is_apart)
        self._whole.add([moved["whole_s"]], is_apart=is_apart)

    async def _look(self) -> list[dict[str, float]]:
        return list(await asyncio.gather(*(reader.do("look", s_max=STEP_S_MAX) for reader in self._readers)))

    def figures(self) -> dict[str, float]:
        found: dict[str, float] = {"moves": self._moves_count, "moves_apart": self._apart_count}
        for times in (self._pause, self._still, self._lane, self._sealed, self._whole):
            found |= times.figures()
        return found | self._pause.apart() | self._still.apart()


# -- a leadership


async def measure_leader(stage: Stage, _window: Window) -> Measurement:
    """A leadership goes `width` times to one of two who wait for it, by turns the first and the last one."""
    leader, *line = [await _candidate(stage, index) for index in range(CANDIDATES_COUNT)]
    control = Control(await stage.start("control"))
    await _leads(leader)
    gap, whole = Times("term_gap"), Times("term_whole")
    apart_count = 0
    for number in range(stage.case.width):
        after = line.pop(-(number % 2))
        await control.was_late()
        given = await leader.worker.do(f"give {after.name}", s_max=STEP_S_MAX)
        at_s = await _leads(after)
        is_apart = await control.was_late()
        apart_count += is_apart
        gap.add([at_s - given["stopped_s"]], is_apart=is_apart)
        whole.add([at_s - given["begun_s"]], is_apart=is_apart)
        await _stand(leader.worker)
        line.append(leader)
        leader = after
    figures = gap.figures() | whole.figures() | gap.apart()
    return Measurement(figures={"moves": stage.case.width, "moves_apart": apart_count} | figures)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    worker: Worker
    name: str


async def _candidate(stage: Stage, index: int) -> _Candidate:
    """In line behind those that were there before."""
    worker = await stage.start("successor", index)
    await _stand(worker)
    return _Candidate(worker=worker, name=f"{index}")


async def _stand(worker: Worker) -> None:
    await worker.do("stand", s_max=STEP_S_MAX)
    worker.tell("lead")


async def _leads(candidate: _Candidate) -> float:
    """When it began to lead, on the clock that all processes of a machine share."""
    figures = (await candidate.worker.hear("done", s_max=STEP_S_MAX))["figures"]
    return float(figures["at_s"])
