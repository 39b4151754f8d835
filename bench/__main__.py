"""The command: choose cases and peers, run, show the way, write the results."""

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench.case import Case
from bench.kinds import CASES
from bench.machine import installed_version, machine_facts
from bench.measurement import Trial, is_rated, summarise
from bench.peers import BASELINE, PEERS, Peer
from bench.report import case_title, headline_text, markdown
from bench.run import Run
from bench.window import Window
from tests.support.etcd_program import NoEtcd, etcd_program
from tests.support.kafka_program import choose_kafka

QUICK = Window(warmup_s=0.05, measured_s=0.15)
PUBLISHED = Path("docs/benchmarks")
PRIVATE = Path("build/bench")
ETCD_KINDS = frozenset(("put", "get", "lock", "fan", "failover", "beats", "start"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 1 if a trial failed."""
    options = _parser().parse_args(arguments)
    try:
        cases, peers = choose_cases(options.cases), choose_peers(options.peers)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(["cases:", *(f"  {case.name:16} {case_title(case)}" for case in CASES)]))
        print("\n".join(["peers:", *(f"  {peer.name:16} {peer.title}" for peer in PEERS.values())]))
        return 0
    is_whole = not (options.cases or options.peers or options.quick)
    out = options.out or (PUBLISHED if is_whole else PRIVATE)
    window = QUICK if options.quick else Window(warmup_s=options.warmup, measured_s=options.seconds)
    run = Run(cases=cases, peers=peers, round_count=1 if options.quick else options.rounds, window=window)
    if options.profile:
        run.profiles = out / "profiles"
        run.profiles.mkdir(parents=True, exist_ok=True)
    machine = machine_facts()
    _find_etcd(cases)
    _find_kafka(cases, peers)
    try:
        trials = asyncio.run(_show(run, Console()))
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return 130
    if options.profile:
        print(f"wrote the profiles under {run.profiles}, and no results: profiling slows what it measures")
        return 0
    _write(run, trials, machine, out, options.baseline)
    return 1 if any(trial.failure for trial in trials) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every trial (default 5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="measured time of a trial (default 1.0)")
    parser.add_argument("--warmup", type=float, default=0.4, help="load before it, in seconds (default 0.4)")
    parser.add_argument("--quick", action="store_true", help="one round of 0.15 s: does it run?")
    parser.add_argument("--cases", default="", help="names or beginnings of names, by commas: rr,pub-64B")
    parser.add_argument("--peers", default="", help="names, by commas; default: all that are installed")
    parser.add_argument("--baseline", default=BASELINE, choices=PEERS, help="the peer that counts as 1.0")
    parser.add_argument(
        "--out", type=Path, help=f"where to write (default {PUBLISHED}; {PRIVATE} for a part of the run)"
    )
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead of how much")
    parser.add_argument("--list", action="store_true", help="print the cases and peers, and stop")
    return parser


def _find_etcd(cases: Sequence[Case]) -> None:
    """Put the tests' etcd onto the PATH for cases of stores; without any these trials fail, and say so."""
    if any(case.kind in ETCD_KINDS for case in cases):
        try:
            print(f"stores are measured on {etcd_program()}")
        except NoEtcd as error:
            print(error, file=sys.stderr)


def _find_kafka(cases: Sequence[Case], peers: Sequence[Peer]) -> None:
    """Have the broker fetched before it is needed; without it its trials fail, and say why."""
    if any(case.kind == "takeover" for case in cases) and any(peer.program == "java" for peer in peers):
        choice = asyncio.run(choose_kafka())
        print(f"Kafka's groups are measured on {choice}" if choice.program else choice.why_not)


def choose_cases(text: str) -> list[Case]:
    """The cases with these names, or whose names begin with these words; all without any.

    Raises ValueError if a word fits none.
    """
    names = {case.name for case in CASES}
    chosen: set[str] = set()
    for word in filter(None, text.split(",")):
        # A whole name means that case alone: rr-64B-x1 is also the beginning of rr-64B-x100.
        fitting = {word} & names or {name for name in names if name.startswith(word)}
        if not fitting:
            raise ValueError(f"no case begins with {word!r}: see --list")
        chosen |= fitting
    return [case for case in CASES if not chosen or case.name in chosen]


def choose_peers(text: str) -> list[Peer]:
    """The peers named, or all whose libraries and programs are installed. ValueError if a name is unknown."""
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in PEERS]:
        raise ValueError(f"no peer is called {', '.join(unknown)}: see --list")
    if names:
        return [PEERS[name] for name in names]
    return [
        peer
        for peer in PEERS.values()
        if all(installed_version(name) for name in peer.requires)
        and (not peer.program or shutil.which(peer.program))
    ]


async def _show(run: Run, console: Console) -> list[Trial]:
    """Run it all, with a bar on a terminal and a line for each trial elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    trials: list[Trial] = []
    # Twice a second: drawing the bar takes time from what is measured.
    with Progress(
        *columns, console=console, refresh_per_second=2, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("starting", total=len(list(run.plan())))
        async for trial in run.trials():
            trials.append(trial)
            progress.update(task, advance=1, description=f"round {trial.round_number} {trial.case.name}")
            result = trial.failure or headline_text(summarise([trial])[0])
            progress.console.print(
                f"round {trial.round_number}  {trial.case.name:15} {trial.peer:14} {result}",
                style="red" if trial.failure else None,
                markup=False,
                highlight=False,
            )
    return trials


def _write(run: Run, trials: list[Trial], machine: dict[str, object], out: Path, baseline: str) -> None:
    summaries = summarise(trials)
    facts = {
        "machine": machine,
        "settings": {
            "rounds": run.round_count,
            "warmup_s": run.window.warmup_s,
            "measured_s": run.window.measured_s,
            "baseline": baseline,
        },
        "peers": run.facts,
    }
    out.mkdir(parents=True, exist_ok=True)
    results = facts | {"trials": [trial.as_json() for trial in trials]}
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (out / "results.md").write_text(markdown(summaries, baseline=baseline, run=facts), encoding="utf-8")
    written = ["results.json", "results.md"]
    if installed_version("matplotlib"):
        from bench.plot import draw, draw_plan, draw_scale

        rated = [one for one in summaries if is_rated(one.case)]
        topics = [one for one in rated if one.case.kind in ("topic", "routed", "pong", "local")]
        if services := [one for one in rated if one not in topics]:
            draw(services, out / "results.svg", baseline=baseline)
            written.append("results.svg")
        if topics:
            draw(topics, out / "topics.svg", baseline="nats")
            written.append("topics.svg")
        if scale := [one for one in summaries if one.case.kind == "scale"]:
            draw_scale(scale, out / "scale.svg")
            written.append("scale.svg")
        if plans := [one for one in summaries if one.case.kind == "plan"]:
            draw_plan(plans, out / "plan.svg")
            written.append("plan.svg")
    print("wrote " + ", ".join(os.path.join(out, name) for name in written))


if __name__ == "__main__":
    sys.exit(main())
