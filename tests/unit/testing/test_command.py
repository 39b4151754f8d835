"""`python -m hansa.testing`, as `make sim` calls it."""

import asyncio
from typing import ClassVar

import pytest

from hansa.testing import Host, Scenario
from hansa.testing.__main__ import main
from hansa.testing.scenarios import SCENARIOS


class Well(Scenario):
    """Nothing goes wrong here."""

    name: ClassVar[str] = "well"
    chaos_s: ClassVar[float] = 1.0

    def begin(self) -> None:
        self.world.host("alpha", self.idle).start()

    async def idle(self, host: Host) -> None:
        await asyncio.Event().wait()


class Ill(Well):
    """Everything does."""

    name: ClassVar[str] = "ill"

    def check(self) -> None:
        self.world.fail("it is well", "it is ill")


@pytest.fixture(autouse=True)
def _two_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(SCENARIOS):
        monkeypatch.delitem(SCENARIOS, name)
    monkeypatch.setitem(SCENARIOS, "well", Well)
    monkeypatch.setitem(SCENARIOS, "ill", Ill)


def test_runs_that_pass_exit_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", "--seeds", "20", "--scenario", "well"]) == 0
    shown = capsys.readouterr().out
    assert "well: 20 of 20 seeds" in shown
    assert "virtual time" in shown


def test_a_failure_is_printed_with_its_replay_command_and_exits_with_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seed", "5", "--scenario", "ill"]) == 1
    shown = capsys.readouterr().out
    assert "broken: it is well" in shown
    assert "replay: make sim SEED=5 SEEDS=1 SCENARIO=ill" in shown


def test_after_a_few_failures_it_stops(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "100", "--scenario", "ill"]) == 1
    assert capsys.readouterr().out.count("replay:") == 3


def test_without_a_name_all_scenarios_are_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 1
    shown = capsys.readouterr().out
    assert "well: 1 of 1" in shown
    assert "SCENARIO=ill" in shown


def test_scenarios_are_listed_with_their_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out == "ill: Everything does.\nwell: Nothing goes wrong here.\n"


@pytest.mark.parametrize("arguments", [["--scenario", "unknown"], ["--seeds", "0"], ["--seed", "x"]])
def test_wrong_arguments_exit_with_two(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "--s" in capsys.readouterr().err
