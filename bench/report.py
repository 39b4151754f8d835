"""The results for people: one overview, the goals, and every case in full, as markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.case import Case, size_text
from bench.goals import Outcome, outcomes
from bench.measurement import Spread, Summary, find, is_latency, ratio
from bench.peers import PEERS

ABSENT = ""


def case_title(case: Case) -> str:
    """The case in words."""
    size = size_text(case.size_bytes).replace("KiB", " KiB").replace("B", " B").replace("Ki B", "KiB")
    if case.kind == "rr":
        return f"request/reply, {size}, {case.width} in flight"
    return f"publish 1->{case.width}, {size}"


def peer_title(name: str) -> str:
    """The peer in words; a name that is no longer in the table stands for itself."""
    return PEERS[name].title if name in PEERS else name


def rate_text(rate_per_s: float) -> str:
    """Three significant digits: 812/s, 43.9 k/s, 2.31 M/s."""
    for limit, unit in ((1e6, "M/s"), (1e3, "k/s")):
        if rate_per_s >= limit * 0.9995:
            return f"{_three(rate_per_s / limit)} {unit}"
    return f"{rate_per_s:.0f}/s"


def time_text(time_us: float) -> str:
    """Three significant digits: 98.7 us, 1.25 ms."""
    return f"{_three(time_us / 1e3)} ms" if time_us >= 999.5 else f"{_three(time_us)} us"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def headline_text(summary: Summary) -> str:
    """The number that the case is about."""
    if summary.headline is None:
        return "failed"
    show = time_text if is_latency(summary.case) else rate_text
    return show(summary.headline.median)


def markdown(summaries: Sequence[Summary], *, baseline: str, run: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = [
        "# Benchmark results",
        "",
        "Written by `python -m bench`; how to read and rerun it: [README](README.md).",
        "",
        *_machine_lines(run),
        "",
        f"In brackets: the multiple of {peer_title(baseline)} in the same run.",
        "",
        *_overview(summaries, baseline),
        "",
    ]
    if reached := outcomes(summaries):
        parts += ["## Goals", "", *_goals(reached), ""]
    for case in dict.fromkeys(summary.case for summary in summaries):
        of_case = [summary for summary in summaries if summary.case == case]
        parts += [
            f"## {case_title(case)[0].upper()}{case_title(case)[1:]}",
            "",
            *_details(of_case, baseline),
            "",
        ]
    return "\n".join(parts)


def _machine_lines(run: Mapping[str, Any]) -> list[str]:
    machine, settings = run["machine"], run["settings"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    compiled = run["peers"].get("hansa", {}).get("compiled")
    parser = {True: "compiled", False: "not compiled", None: "not measured"}[compiled]
    return [
        f"- {machine['cores']} cores, {machine['processor']}, {machine['memory_gib']} GiB,"
        f" {machine['system']}, {machine['python']}; load {machine['load_1min_at_start']} at the start",
        f"- {versions}",
        f"- hansa's hot modules: {parser}",
        f"- {settings['rounds']} rounds of {settings['measured_s']:g} s after {settings['warmup_s']:g} s of"
        " warm-up; loopback TCP, each party a process; medians, (lowest to highest)",
    ]


def _overview(summaries: Sequence[Summary], baseline: str) -> list[str]:
    cases = list(dict.fromkeys(summary.case for summary in summaries))
    rows = []
    for peer in dict.fromkeys(summary.peer for summary in summaries):
        cells = [peer_title(peer)]
        for case in cases:
            summary = find(summaries, case.name, peer)
            if summary is None:
                cells.append(ABSENT)
                continue
            multiple = ratio(summary, find(summaries, case.name, baseline))
            cells.append(headline_text(summary) + (f" ({_three(multiple)})" if multiple else ""))
        rows.append(cells)
    return table(["", *(case_title(case) for case in cases)], rows)


def _goals(reached: Iterable[Outcome]) -> list[str]:
    rows = []
    for outcome in reached:
        goal = outcome.goal
        wanted = f">= {goal.at_least}" if goal.at_least is not None else f"<= {goal.at_most}"
        named = f"{case_title(Case.parse(goal.case))}, against {peer_title(goal.against)}"
        rows.append([named, wanted, _three(outcome.reached), "yes" if outcome.met else "no"])
    return table(["goal", "wanted", "reached", "met"], rows)


def _details(summaries: Sequence[Summary], baseline: str) -> list[str]:
    case = summaries[0].case
    reference = find(summaries, case.name, baseline)
    heads = ["", *(("p50", "p99") if is_latency(case) else ()), "rate", "multiple", "CPU a message"]
    heads += ["lost"] if case.kind == "pub" else []
    rows = []
    for summary in summaries:
        multiple = ratio(summary, reference)
        cells = [peer_title(summary.peer)]
        if is_latency(case):
            cells += [_spread(summary.p50_us, time_text), _spread(summary.p99_us, time_text)]
        cells += [_spread(summary.rate_per_s, rate_text), _three(multiple) if multiple else ABSENT]
        cells += [_spread(summary.cpu_us, time_text)]
        cells += [f"{summary.lost_share:.1%}" if summary.lost_share else "0"] if case.kind == "pub" else []
        if summary.failed_count:
            cells[0] += f" ({summary.failed_count} of {summary.round_count} rounds failed)"
        rows.append(cells)
    return table(heads, rows)


def _spread(spread: Spread | None, show: Any) -> str:
    return f"{show(spread.median)} ({show(spread.low)} to {show(spread.high)})" if spread else ABSENT


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A markdown table; the first column is text, the others are numbers."""
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]
