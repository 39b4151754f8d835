"""A run from chaos to judgement, and what a failure tells."""

import asyncio
from typing import ClassVar

import pytest

from hansa.chance import Chance
from hansa.testing import Broken, Failure, Host, Outcome, Scenario, Simulation, SimulationFailed
from hansa.testing.faults import Crash, Cut, FaultPlan, Pause, draw_plan


class Beacon(Scenario):
    """Two hosts that count seconds. Its subclasses each break something."""

    name: ClassVar[str] = "beacon"

    def begin(self) -> None:
        self.calls: list[str] = []
        for name in ("alpha", "beta"):
            self.world.host(name, self.program).start()

    async def program(self, host: Host) -> None:
        while True:
            await asyncio.sleep(1)
            host.record("second")

    def check(self) -> None:
        self.calls.append("check")

    def calm(self) -> None:
        self.calls.append("calm")


class CrashHater(Beacon):
    """Breaks when alpha ever lives a second time: one crash is enough, whatever else happens."""

    def check(self) -> None:
        if self.world.hosts["alpha"].life.number > 1:
            self.world.fail("alpha never dies", "it did")


class NeverSettled(Beacon):
    """Never reaches what it promises."""

    def unsettled(self) -> str:
        return "the harbour is still closed"


class Stubborn(Beacon):
    """Does not stop when it is told to."""

    async def program(self, host: Host) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                host.record("will not go")


class Buggy(Beacon):
    """Fails by itself."""

    def calm(self) -> None:
        raise ZeroDivisionError("in the scenario")


class Spinning(Beacon):
    """Waits without letting time pass."""

    async def program(self, host: Host) -> None:
        for _ in range(1_000_000):
            await asyncio.sleep(0)


def planned(seed: int) -> FaultPlan:
    """The plan that a seed gives to a beacon."""
    return draw_plan(Chance.seeded(seed).fork("faults"), ["alpha", "beta"], chaos_s=Beacon.chaos_s)


def seed_with_a_crash() -> int:
    """A seed that crashes alpha, among other things."""
    return next(
        seed
        for seed in range(1_000)
        if len(planned(seed)) > 4 and any(isinstance(f, Crash) and f.host == "alpha" for f in planned(seed))
    )


def test_the_same_seed_gives_the_same_outcome() -> None:
    outcomes = [Simulation(seed, Beacon).run() for seed in (1, 1, 2)]
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].digest != outcomes[2].digest
    assert outcomes[0].virtual_s >= Beacon.chaos_s


def test_safety_is_checked_through_the_chaos_and_once_more_at_the_end() -> None:
    scenarios: list[Beacon] = []

    class Kept(Beacon):
        def begin(self) -> None:
            super().begin()
            scenarios.append(self)

    plan = (Pause(at_s=1.0, lasting_s=2.0, host="alpha"),)
    assert isinstance(Simulation(1, Kept).play(plan), Outcome)
    assert scenarios[0].calls == ["check", "check", "calm", "check", "check"]
    whats = [fact.what for fact in scenarios[0].world.history.facts if fact.what != "second"]
    assert whats == [
        "starts life 1",
        "starts life 1",
        "is paused",
        "resumes",
        "calm",
        "ends life 1",
        "ends life 1",
    ]


def test_a_failure_names_seed_invariant_faults_history_and_the_replay_command() -> None:
    seed = seed_with_a_crash()
    with pytest.raises(SimulationFailed) as caught:
        Simulation(seed, CrashHater).run()
    text = str(caught.value)
    assert f"seed {seed}" in text
    assert "broken: alpha never dies\n  it did" in text
    assert "BROKEN: alpha never dies" in text
    assert text.splitlines()[-1] == f"replay: make sim SEED={seed} SEEDS=1 SCENARIO=beacon"


def test_a_failing_plan_is_shrunk_to_what_it_needs() -> None:
    seed = seed_with_a_crash()
    with pytest.raises(SimulationFailed) as caught:
        Simulation(seed, CrashHater).run()
    assert len(caught.value.failure.plan) == 1
    assert isinstance(caught.value.failure.plan[0], Crash)
    assert f"faults, 1 of the {len(planned(seed))} planned:" in str(caught.value)


def test_shrinking_is_bounded() -> None:
    seed = seed_with_a_crash()
    with pytest.raises(SimulationFailed) as caught:
        Simulation(seed, CrashHater, shrink_tries_max=0).run()
    assert caught.value.failure.plan == planned(seed)


@pytest.mark.parametrize(
    ("scenario", "invariant", "detail"),
    [
        (NeverSettled, "all is well 120 s after the last fault", "the harbour is still closed"),
        (Stubborn, "a host stops when it is asked to", "alpha is still up"),
        (Buggy, "the scenario itself raises nothing", "ZeroDivisionError: in the scenario"),
        (Spinning, "the run makes progress", "no time passed"),
    ],
)
def test_everything_that_goes_wrong_is_a_failure_of_its_own(
    scenario: type[Scenario], invariant: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansa.testing.loop.INSTANT_STEPS_MAX", 1_000)
    monkeypatch.setattr("hansa.testing.loop.DISMANTLE_STEPS_MAX", 1_000)
    result = Simulation(1, scenario).play(())
    assert isinstance(result, Failure)
    assert result.broken.invariant == invariant
    assert detail in result.broken.detail


def test_faults_that_outlast_the_chaos_are_over_in_the_quiet_phase() -> None:
    class Watching(Beacon):
        def calm(self) -> None:
            if self.world.network.is_cut("alpha", "beta") or not self.world.hosts["beta"].is_up:
                raise Broken("quiet is quiet", "it is not")

    plan = (
        Cut(at_s=19.0, lasting_s=1_000.0, source="alpha", target="beta", both_ways=True),
        Crash(at_s=19.5, lasting_s=1_000.0, host="beta", silent=True),
    )
    assert isinstance(Simulation(1, Watching).play(plan), Outcome)
