"""A scenario, and playing it from a seed; a failure is made small enough to read.

A run has a chaotic phase, in which faults come and go and only safety is checked, and a quiet phase, in which
everything is healed and liveness is checked: everything that had to happen in the end has happened.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from textwrap import indent
from typing import ClassVar

from hansa.chance import Chance
from hansa.errors import InvariantBroken
from hansa.testing.faults import Fault, FaultPlan, draw_plan
from hansa.testing.loop import Deadlocked, Stuck
from hansa.testing.world import Broken, World

HISTORY_SHOWN_COUNT = 40
SHRINK_TRIES_MAX = 40
SETTLE_POLL_S = 0.25
STOP_S_MAX = 60.0


class Scenario:
    """The part of a simulation that you write. One object plays one run."""

    name: ClassVar[str]
    chaos_s: ClassVar[float] = 20.0
    quiet_s: ClassVar[float] = 120.0

    def __init__(self, world: World) -> None:
        self.world = world

    def begin(self) -> None:
        """Add hosts to the world and start them. Draw only from streams forked off the world's chance."""
        raise NotImplementedError

    def pairs(self) -> Sequence[tuple[str, str]] | None:
        """Hosts that talk to each other, or None for all: a fault between others would harm nothing."""
        return None

    def plan(self, chance: Chance) -> FaultPlan:
        """The faults of this run, drawn from this stream alone, after `begin`."""
        return draw_plan(chance, list(self.world.hosts), chaos_s=self.chaos_s, pairs=self.pairs())

    def check(self) -> None:
        """Raise through `world.fail` if something is wrong now. Called after each fault and at the end."""

    def calm(self) -> None:
        """The quiet phase begins: all faults are over and all hosts are up."""

    def unsettled(self) -> str:
        """What is still missing, or the empty string. Called again and again in the quiet phase."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run that kept every invariant. Not the outcome of a transaction, which is `hansa.store.Outcome`."""

    scenario: str
    seed: int
    digest: str
    steps_count: int
    facts_count: int
    faults_count: int
    virtual_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A run that broke an invariant: which one, under which faults, and what happened last. Not an error."""

    broken: Broken
    plan: FaultPlan
    tail: str


class SimulationFailed(InvariantBroken):
    """A run broke an invariant. The text says which, how it came to it, and how to see it again."""

    code = "simulation-failed"

    def __init__(self, *, scenario: str, seed: int, failure: Failure, planned_count: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.failure = failure
        self.replay_command = f"make sim SEED={seed} SEEDS=1 SCENARIO={scenario}"
        faults = "\n".join(f"  {fault}" for fault in failure.plan) or "  none"
        super().__init__(
            f"scenario {scenario} failed with seed {seed}\n"
            f"broken: {failure.broken.invariant}\n{indent(failure.broken.detail, '  ')}\n"
            f"faults, {len(failure.plan)} of the {planned_count} planned:\n{faults}\n"
            f"history:\n{failure.tail}\n"
            f"replay: {self.replay_command}"
        )


class Simulation:
    """One scenario under one seed. `run` may be called again and again, and always has the same outcome."""

    def __init__(
        self, seed: int, scenario: type[Scenario], *, shrink_tries_max: int = SHRINK_TRIES_MAX
    ) -> None:
        self.seed = seed
        self.scenario = scenario
        self._shrink_tries_max = shrink_tries_max

    def run(self) -> Outcome:
        """Play the seed's plan. Raises `SimulationFailed` with the shortest plan that was found to fail."""
        result = self.play()
        if isinstance(result, Outcome):
            return result
        raise SimulationFailed(
            scenario=self.scenario.name,
            seed=self.seed,
            failure=self._shortest(result),
            planned_count=len(result.plan),
        )

    def play(self, plan: FaultPlan | None = None) -> Outcome | Failure:
        """Play once, with these faults or, for None, with those of the seed, and return the outcome."""
        with World(self.seed) as world:
            course = _Course(world, self.scenario(world), plan)
            try:
                world.run(course.play())
            except Broken:
                pass
            except (Deadlocked, Stuck) as error:
                world.broken = Broken("the run makes progress", str(error))
            except Exception as error:
                detail = "".join(traceback.format_exception(error))
                world.broken = Broken("the scenario itself raises nothing", detail)
            if world.broken is not None:
                return Failure(
                    broken=world.broken, plan=course.plan, tail=world.history.tail(HISTORY_SHOWN_COUNT)
                )
            return Outcome(
                scenario=self.scenario.name,
                seed=self.seed,
                digest=world.digest(),
                steps_count=world.loop.steps,
                facts_count=len(world.history),
                faults_count=len(course.plan),
                virtual_s=world.elapsed_s(),
            )

    def _shortest(self, failure: Failure) -> Failure:
        """Leave faults out, halves first and single ones last, as long as the same invariant breaks."""
        size = max(1, len(failure.plan) // 2)
        start = 0
        for _ in range(self._shrink_tries_max):
            if start >= len(failure.plan):
                if size == 1:
                    break
                size //= 2
                start = 0
            result = self.play(failure.plan[:start] + failure.plan[start + size :])
            if isinstance(result, Failure) and result.broken.invariant == failure.broken.invariant:
                failure = result
            else:
                start += size
        return failure


class _Course:
    """The course of one run: chaos, calm, the end."""

    def __init__(self, world: World, scenario: Scenario, plan: FaultPlan | None) -> None:
        self.world = world
        self.scenario = scenario
        self.plan: FaultPlan = plan or ()
        self._is_given = plan is not None

    async def play(self) -> None:
        """All phases, one after the other."""
        self.scenario.begin()
        if not self._is_given:
            self.plan = self.scenario.plan(self.world.chance.fork("faults"))
        await self._chaos()
        self.world.calm()
        self.scenario.calm()
        await self._settle()
        self.scenario.check()
        await self._stop_hosts()
        self.scenario.check()

    async def _chaos(self) -> None:
        """Begin and end the faults at their times."""
        start_s = self.world.elapsed_s()
        agenda: list[tuple[float, int, Fault, bool]]
        agenda = [(fault.at_s, number, fault, True) for number, fault in enumerate(self.plan)]
        heapify(agenda)
        while agenda:
            at_s, number, fault, is_beginning = heappop(agenda)
            if at_s > self.scenario.chaos_s:
                break
            await self._sleep_until(start_s + at_s)
            if not is_beginning:
                fault.end(self.world)
            elif fault.begin(self.world):
                heappush(agenda, (at_s + fault.lasting_s, number, fault, False))
            self.scenario.check()
        await self._sleep_until(start_s + self.scenario.chaos_s)

    async def _settle(self) -> None:
        deadline_s = self.world.elapsed_s() + self.scenario.quiet_s
        while missing := self.scenario.unsettled():
            if self.world.elapsed_s() >= deadline_s:
                self.world.fail(f"all is well {self.scenario.quiet_s:g} s after the last fault", missing)
            await asyncio.sleep(SETTLE_POLL_S)

    async def _stop_hosts(self) -> None:
        for name, host in self.world.hosts.items():
            try:
                async with asyncio.timeout(STOP_S_MAX):
                    await host.stop()
            except TimeoutError:
                self.world.fail(
                    "a host stops when it is asked to", f"{name} is still up after {STOP_S_MAX:g} s"
                )

    async def _sleep_until(self, at_s: float) -> None:
        await asyncio.sleep(max(0.0, at_s - self.world.elapsed_s()))
