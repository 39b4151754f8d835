"""How a trial with one that stops is accounted for, with processes that only pretend."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from bench.case import Case
from bench.kinds import slow
from bench.stage import Sample, Stage, TrialFailed
from bench.window import Window

NODES = Case(kind="stop", size_bytes=64, width=3)
SPOTS = Case(kind="slow", size_bytes=64, width=100)
MOMENT = Window(warmup_s=0.0, measured_s=0.0)


@dataclass(kw_only=True)
class Pretender:
    """A worker whose counters follow the owner's as a test says."""

    role: str
    stage: "PretendedStage"
    index: int = 0
    is_frozen: bool = False
    told: list[str] = field(default_factory=list)
    share: float = 1.0
    """Of what was sent, what arrives."""
    is_told_all: bool = True

    async def do(self, order: str, *, s_max: float) -> dict[str, Any]:
        self.told.append(order)
        if self.stage.answers:
            return self.stage.answers.pop(0)
        return {"sent": self.stage.sent}

    async def sample(self) -> Sample:
        assert not self.is_frozen, "a frozen process does not answer"
        self.stage.now_s += 0.5
        if self.role == "flood":
            self.stage.sent += 1_000 if self.stage.anyone_frozen else 2_000
            self.stage.dropped += 400 if self.stage.anyone_frozen else 0
            return Sample(
                at_s=self.stage.now_s,
                count=self.stage.sent,
                cpu_s=self.stage.now_s,
                figures={"dropped": self.stage.dropped},
            )
        count = int(self.stage.sent * self.share)
        missed = self.stage.sent - count if self.is_told_all else 0
        return Sample(at_s=self.stage.now_s, count=count, cpu_s=0.0, figures={"missed": missed, "dropped": 0})

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        self.is_frozen = False


class PretendedStage:
    def __init__(self, case: Case, prepare: Callable[[Pretender], None] = lambda worker: None) -> None:
        self.case = case
        self.workers: list[Pretender] = []
        self.answers: list[dict[str, Any]] = []
        self.sent = 0
        self.dropped = 0
        self.now_s = 0.0
        self._prepare = prepare

    @property
    def anyone_frozen(self) -> bool:
        return any(worker.is_frozen for worker in self.workers)

    async def start(self, role: str, index: int = 0) -> Pretender:
        worker = Pretender(role=role, stage=self, index=index)
        self._prepare(worker)
        self.workers.append(worker)
        return worker

    def as_stage(self) -> Stage:
        return cast(Stage, self)


async def test_every_alternation_stops_the_last_node_alone_and_lets_it_go_on() -> None:
    stage = PretendedStage(NODES)
    figures = (await slow.measure_node(stage.as_stage(), MOMENT)).figures
    owner, *receivers = stage.workers
    assert [(worker.role, worker.index) for worker in receivers] == [
        ("follow", 0),
        ("follow", 1),
        ("follow", 2),
    ]
    assert owner.told == ["gather"] + ["run", "leave 2", "rest", "admit"] * slow.ALTERNATIONS_COUNT
    assert not stage.anyone_frozen
    assert (figures["others_lost"], figures["stopped_missed"], figures["stopped_untold"]) == (0, 0, 0)


async def test_rate_with_one_stopped_is_compared_with_the_rate_before() -> None:
    stage = PretendedStage(NODES)
    figures = (await slow.measure_node(stage.as_stage(), MOMENT)).figures
    assert figures["others_share"] == pytest.approx(0.5)
    assert figures["owner_cpu_share"] == pytest.approx(2.0)


async def test_what_the_others_lack_is_lost_even_if_they_know_it() -> None:
    def prepare(worker: Pretender) -> None:
        worker.share = 0.75 if worker.index == 1 else 1.0

    stage = PretendedStage(NODES, prepare)
    figures = (await slow.measure_node(stage.as_stage(), MOMENT)).figures
    assert figures["others_lost"] == stage.sent * 0.25
    assert figures["stopped_missed"] == 0


async def test_what_the_stopped_node_lacks_and_was_not_told_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slow, "DRAIN_S_MAX", 0.0)

    def prepare(worker: Pretender) -> None:
        if worker.index == 2:
            worker.share, worker.is_told_all = 0.5, False

    stage = PretendedStage(NODES, prepare)
    figures = (await slow.measure_node(stage.as_stage(), MOMENT)).figures
    assert figures["stopped_missed"] == figures["stopped_untold"] == stage.sent / 2
    assert figures["others_lost"] == 0


async def test_node_that_is_told_everything_has_nothing_untold() -> None:
    def prepare(worker: Pretender) -> None:
        worker.share = 0.5 if worker.index == 2 else 1.0

    stage = PretendedStage(NODES, prepare)
    figures = (await slow.measure_node(stage.as_stage(), MOMENT)).figures
    assert figures["stopped_missed"] == stage.sent / 2
    assert figures["stopped_untold"] == 0


async def test_node_that_receives_nothing_fails_the_trial_and_nobody_stays_frozen() -> None:
    def prepare(worker: Pretender) -> None:
        worker.share = 0.0 if worker.index == 1 else 1.0

    stage = PretendedStage(NODES, prepare)
    with pytest.raises(TrialFailed, match="no delivery"):
        await slow.measure_node(stage.as_stage(), MOMENT)
    assert not stage.anyone_frozen


async def test_spots_are_compared_by_pairs_and_counted_at_the_end() -> None:
    def answer(all_rate: float, stopped_rate: float, missed: int, told: int) -> dict[str, Any]:
        counts = {"others_lost": 7, "missed": missed, "told": told}
        return {"all_rate": all_rate, "stopped_rate": stopped_rate, **counts}

    stage = PretendedStage(SPOTS)
    # A minute in which everything is slow falls on both of a pair.
    pairs = [(100.0, 95.0), (10.0, 9.5), (100.0, 50.0), (100.0, 96.0), (100.0, 95.0)]
    warmup = answer(1.0, 1.0, 0, 0)
    stage.answers = [warmup, *(answer(*pair, 10 * turn, 9 * turn) for turn, pair in enumerate(pairs, 1))]
    figures = (await slow.measure_spot(stage.as_stage(), MOMENT)).figures
    assert figures["others_share"] == pytest.approx(0.95)
    assert figures["all_rate"] == 100.0
    assert (figures["others_lost"], figures["stopped_missed"], figures["stopped_untold"]) == (7, 50, 5)


async def test_node_stays_stopped_until_it_has_missed_something() -> None:
    stage = PretendedStage(NODES)
    await slow.measure_node(stage.as_stage(), MOMENT)
    assert stage.dropped >= slow.MISSED_COUNT_MIN


async def test_owner_that_drops_nothing_fails_the_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow, "MISSED_S_MAX", -1.0)
    monkeypatch.setattr(slow, "MISSED_COUNT_MIN", 1_000_000)
    stage = PretendedStage(NODES)
    with pytest.raises(TrialFailed, match="never dropped"):
        await slow.measure_node(stage.as_stage(), MOMENT)
    assert not stage.anyone_frozen
