"""`python -m hansa.testing`: play scenarios over many seeds, show progress, and print what failed.

Exits with 0 when every run kept its invariants, 1 when one did not, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hansa.testing.scenarios import SCENARIOS
from hansa.testing.simulation import Outcome, Scenario, Simulation, SimulationFailed

FAILURES_SHOWN_MAX = 3
PLAIN_REPORTS_COUNT = 10


@dataclass(slots=True, kw_only=True)
class RunTotals:
    """The sums over all runs of one scenario."""

    scenario: str
    outcomes_count: int = 0
    steps_count: int = 0
    faults_count: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    failed_seeds: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.outcomes_count += 1
        self.steps_count += outcome.steps_count
        self.faults_count += outcome.faults_count
        self.virtual_s += outcome.virtual_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hansa.testing", description="Simulate clusters from seeds."
    )
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, counting up (1)")
    parser.add_argument("--scenario", choices=sorted(SCENARIOS), help="which scenario (all of them)")
    parser.add_argument("--list", action="store_true", help="list the scenarios and stop")
    asked = parser.parse_args(arguments)
    console = Console(highlight=False)
    # What programs log about the faults would bury what matters; the history has it.
    logging.getLogger("hansa").addHandler(logging.NullHandler())
    if asked.list:
        for name in sorted(SCENARIOS):
            console.print(
                f"{name}: {(SCENARIOS[name].__doc__ or '').splitlines()[0]}", markup=False, soft_wrap=True
            )
        return 0
    if asked.seeds < 1:
        parser.error(f"--seeds is {asked.seeds}; play at least one")
    chosen = (
        [SCENARIOS[asked.scenario]] if asked.scenario else [SCENARIOS[name] for name in sorted(SCENARIOS)]
    )
    tallies = [_play(console, scenario, range(asked.seed, asked.seed + asked.seeds)) for scenario in chosen]
    console.print(_table(tallies))
    return 1 if any(tally.failed_seeds for tally in tallies) else 0


def _play(console: Console, scenario: type[Scenario], seeds: range) -> RunTotals:
    """Play the seeds in turn; stop early when enough of them failed to keep a reader busy."""
    tally = RunTotals(scenario=scenario.name)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TimeRemainingColumn(),
    )
    started = perf_counter()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task(scenario.name, total=len(seeds), failed="")
        for count, seed in enumerate(seeds, 1):
            try:
                tally.add(Simulation(seed, scenario).run())
            except SimulationFailed as failure:
                tally.failed_seeds.append(seed)
                console.print(f"\n{failure}\n", markup=False, soft_wrap=True)
            progress.update(
                bar, advance=1, failed=f"{len(tally.failed_seeds)} failed" if tally.failed_seeds else ""
            )
            if not console.is_terminal and (count % max(1, len(seeds) // PLAIN_REPORTS_COUNT) == 0):
                failed = f", {len(tally.failed_seeds)} failed" if tally.failed_seeds else ""
                console.print(f"{scenario.name}: {count} of {len(seeds)} seeds{failed}")
            if len(tally.failed_seeds) >= FAILURES_SHOWN_MAX:
                break
    tally.real_s = perf_counter() - started
    return tally


def _table(tallies: Sequence[RunTotals]) -> Table:
    table = Table(title="simulations")
    for heading in ("scenario", "passed", "failed", "faults", "steps", "virtual time", "real time"):
        table.add_column(heading, justify="left" if heading == "scenario" else "right", no_wrap=True)
    for tally in tallies:
        table.add_row(
            tally.scenario,
            str(tally.outcomes_count),
            str(len(tally.failed_seeds)),
            str(tally.faults_count),
            f"{tally.steps_count:,}",
            f"{tally.virtual_s:,.0f} s",
            f"{tally.real_s:,.1f} s",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
