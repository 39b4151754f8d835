"""The results for people: one overview, the goals, and every case in full, as markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.case import Case, size_text
from bench.figures import (
    BEAT_FIGURES,
    FAILOVER_FIGURES,
    FIGURES,
    LEAD_FIGURES,
    MEMORY_FIGURES,
    MOVE_FIGURES,
    PLAN_FIGURES,
    SCALE_FIGURES,
    SLOW_FIGURES,
    START_FIGURES,
    TAKEOVER_FIGURES,
    TOPIC_MEMORY_FIGURES,
    Figure,
)
from bench.goals import Outcome, outcomes
from bench.measurement import Spread, Summary, baseline_of, find, is_latency, is_rated, may_lose, ratio
from bench.peers import PEERS
from bench.units import rate_text, three, time_text

ABSENT = ""

GATEWAY_TEXT = """\
One client, one service, one provider with an async handler, found through a registry: hansa by
`await gateway.request(...)`. The others have no such layer: they are the programs of request/reply."""
BLOCKING_TEXT = """\
The same request through `hansa.sync`, from so many threads, beside as many tasks of the asynchronous
gateway. In brackets: the multiple of the latter."""
TOPICS_TEXT = """\
One topic, its owner and each receiver a node in a process of its own, found through a registry: hansa by
`await spot.publish(...)` and `async for message in spot`. Routed: the publisher is a third node, and the
owner passes on. There and back: one message in flight on two topics, each node owning one of them. The others
are the programs of publishing; `hansa, uvloop` is the bare PUB socket. In brackets: the multiple of nats-py.
[The same as a plot](topics.svg)."""
LOCAL_TEXT = """\
One process: published by one spot, received by the task of each of so many others. The bare mailboxes are a
deque and a task each, without topics, numbers or bounds. In brackets: the multiple of these."""
SLOW_TEXT = """\
One of so many spots does not read, or the process of one of so many nodes is stopped, and later goes on. The
two rates are those of neighbouring seconds."""
STORE_TEXT = """\
One client with so many operations in flight. etcd and `hansa store` are one process each and confirm a write
when it is on disk, the raft group when it is on the disks of two of its three members, all of this machine;
in memory nothing leaves the process. A lock is taken and given back. A change is one put, told to so many
watches of another client: deliveries. In brackets: the multiple of bare calls to etcd."""
FAILOVER_TEXT = """\
Three candidates with sessions of 2 s, the shortest that etcd grants. The leader gets SIGKILL; another one
comes and stands in line."""
MOVE_TEXT = """\
Two publishers, nodes that do not own the topic, send 100,000 messages a second in all; two nodes with a
`hansa store` own it in turns; so many subscribers read, and each looks at its gaps. All are processes.
Told apart is what happened while a process that only sleeps was woken up more than 50 ms too late."""
LEAD_TEXT = """\
Three candidates, each a process. The leader hands over to one of the two that wait, by turns the first and
the last in the line, and stands in line again. Nobody leads from the moment at which the old leader has
stopped until the new one's `win()` returns. Told apart as above."""
TAKEOVER_TEXT = """\
Three processes with sessions of 6 s share so many partitions, each of which has 200 messages a second. One
leaves in order and comes back, again and again; at last some get SIGKILL, and only messages sent since then
count. A pause goes from a partition's last message at one process to its first one at the next. Told apart as
above."""
BEATS_TEXT = """\
Members in two processes that only stay. At most a hundred have a view of all, renew every second and look
after others. The rest, registered nodes, renew every 3.3 s: two processes cannot hold a thousand views."""
TOPIC_MEMORY_TEXT = """\
As above: growth of resident memory divided by the spots or topics that a process holds."""
MEMORY_TEXT = """\
Growth of a process's resident memory divided by what it holds; the kernel's buffers are not in it."""
START_TEXT = """\
User and system time of a process of its own, from its start until it has loaded, or until its first bytes
reach whom it talks to. In turns with a bare interpreter."""
PLAN_TEXT = """\
So many partitions on a tenth as many workers, planned in one process; nothing is carried out.
[The same as a plot](plan.svg)."""
SCALE_TEXT = """\
One registry, ten providers a service unless it says otherwise, and one discovery that follows all of them.
[The same as a plot](scale.svg)."""


def case_title(case: Case) -> str:
    """The case in words."""
    size = size_text(case.size_bytes).replace("KiB", " KiB").replace("B", " B").replace("Ki B", "KiB")
    match case.kind:
        case "rr":
            return f"request/reply, {size}, {case.width} in flight"
        case "gw":
            return f"gateway request, {size}, {case.width} in flight"
        case "sync":
            return f"blocking request, {size}, {case.width} {'thread' if case.width == 1 else 'threads'}"
        case "topic":
            return f"topic 1->{case.width}, {size}"
        case "routed":
            return f"routed topic 1->{case.width}, {size}"
        case "pong":
            return f"two topics, there and back, {size}"
        case "local":
            return f"topic to {case.width:,} spots, {size}"
        case "slow":
            return f"one of {case.width:,} spots stopped, {size}"
        case "stop":
            return f"one of {case.width:,} nodes stopped, {size}"
        case "spots":
            return f"{case.width:,} spots"
        case "known":
            return f"{case.width:,} topics"
        case "put" | "get":
            return f"{case.kind}, {size}, {case.width} in flight"
        case "lock":
            return "lock and release" + (f", {case.width} contenders" if case.width > 1 else "")
        case "fan":
            return f"a change told to {case.width:,} watches, {size}"
        case "failover":
            return f"{case.width:,} leaders killed"
        case "move":
            return f"a topic that moves, 2->{case.width}, {size}"
        case "lead":
            return f"{case.width:,} leaderships handed over"
        case "start":
            return f"median of {case.width:,} starts"
        case "beats":
            return f"{case.width:,} members"
        case "takeover":
            return f"{case.width:,} partitions shared"
        case "plan":
            return f"{case.width:,} partitions"
        case "scale":
            return f"{case.width:,} providers"
        case "single":
            return f"{case.width:,} providers of one service"
        case "idle":
            return f"{case.width:,} idle connections"
        case "pending":
            return f"{case.width:,} pending requests, {size}"
        case _:
            return f"publish 1->{case.width}, {size}"


def peer_title(name: str) -> str:
    """The peer in words; a name that is no longer in the table stands for itself."""
    return PEERS[name].title if name in PEERS else name


def headline_text(summary: Summary) -> str:
    """The number that the case is about, or the main ones if it is about many."""
    if summary.figures:
        shown = [(FIGURES[name], one) for name, one in summary.figures.items() if FIGURES[name].is_headline]
        return ", ".join(f"{figure.title} {figure.show(one.median)}" for figure, one in shown)
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
    ]
    if transport := _of_kinds(summaries, "rr", "pub"):
        parts += [*_overview(transport, baseline), ""]
    if reached := outcomes(summaries):
        parts += ["## Goals", "", *_goals(reached), ""]
    if gateway := _of_kinds(summaries, "gw"):
        parts += ["## Gateway", "", GATEWAY_TEXT, "", *_overview(gateway, baseline), ""]
    if blocking := _of_kinds(summaries, "sync"):
        parts += ["## Blocking", "", BLOCKING_TEXT, "", *_overview(blocking, "hansa-gateway"), ""]
    if topics := _of_kinds(summaries, "topic", "routed", "pong"):
        parts += ["## Topics", "", TOPICS_TEXT, "", *_overview(topics, baseline), ""]
    if local := _of_kinds(summaries, "local"):
        parts += ["## Topics in one process", "", LOCAL_TEXT, "", *_overview(local, baseline), ""]
    if slow := _of_kinds(summaries, "slow", "stop"):
        parts += ["## Slow subscribers", "", SLOW_TEXT, "", *_figures(slow, SLOW_FIGURES), ""]
    if memory := _of_kinds(summaries, "idle", "pending"):
        parts += ["## Memory", "", MEMORY_TEXT, "", *_figures(memory, MEMORY_FIGURES), ""]
    if memory := _of_kinds(summaries, "spots", "known"):
        parts += [
            "## Memory of topics",
            "",
            TOPIC_MEMORY_TEXT,
            "",
            *_figures(memory, TOPIC_MEMORY_FIGURES),
            "",
        ]
    if scale := _of_kinds(summaries, "scale", "single"):
        parts += ["## Registry at scale", "", SCALE_TEXT, "", *_figures(scale, SCALE_FIGURES), ""]
    if store := _of_kinds(summaries, "put", "get", "lock", "fan"):
        parts += ["## Store and locks", "", STORE_TEXT, "", *_overview(store, baseline), ""]
    if failover := _of_kinds(summaries, "failover"):
        parts += ["## Failover of a leader", "", FAILOVER_TEXT, "", *_figures(failover, FAILOVER_FIGURES), ""]
    if moves := _of_kinds(summaries, "move"):
        parts += ["## A topic that moves", "", MOVE_TEXT, "", *_figures(moves, MOVE_FIGURES), ""]
    if leads := _of_kinds(summaries, "lead"):
        parts += ["## A leadership that moves", "", LEAD_TEXT, "", *_figures(leads, LEAD_FIGURES), ""]
    if takeovers := _of_kinds(summaries, "takeover"):
        figures = _figures(takeovers, TAKEOVER_FIGURES)
        parts += ["## Work that goes to another process", "", TAKEOVER_TEXT, "", *figures, ""]
    if beats := _of_kinds(summaries, "beats"):
        parts += ["## Heartbeats", "", BEATS_TEXT, "", *_figures(beats, BEAT_FIGURES), ""]
    if plans := _of_kinds(summaries, "plan"):
        parts += ["## Plans of who works on what", "", PLAN_TEXT, "", *_figures(plans, PLAN_FIGURES), ""]
    if starts := _of_kinds(summaries, "start"):
        parts += ["## Starting", "", START_TEXT, "", *_figures(starts, START_FIGURES), ""]
    rated = [summary for summary in summaries if is_rated(summary.case)]
    for case in dict.fromkeys(summary.case for summary in rated):
        of_case = [summary for summary in rated if summary.case == case]
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


def _of_kinds(summaries: Sequence[Summary], *kinds: str) -> list[Summary]:
    return [summary for summary in summaries if summary.case.kind in kinds]


def _figures(summaries: Sequence[Summary], figures: Mapping[str, Figure]) -> list[str]:
    """A row a figure, a column a case: where a case does not have the figure, nothing."""
    rows = []
    for name, figure in figures.items():
        cells = [_spread(summary.figures.get(name), figure.show) for summary in summaries]
        if any(cells):
            rows.append([figure.title, *cells])
    several = len({summary.case for summary in summaries}) < len(summaries)
    heads = [
        case_title(summary.case) + (f", {peer_title(summary.peer)}" if several else "") + _failures(summary)
        for summary in summaries
    ]
    return table(["", *heads], rows)


def _failures(summary: Summary) -> str:
    failed, rounds = summary.failed_count, summary.round_count
    return f" ({failed} of {rounds} rounds failed)" if failed else ""


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
            multiple = ratio(summary, find(summaries, case.name, baseline_of(case, baseline)))
            cells.append(headline_text(summary) + (f" ({three(multiple)})" if multiple else ""))
        rows.append(cells)
    return table(["", *(case_title(case) for case in cases)], rows)


def _goals(reached: Iterable[Outcome]) -> list[str]:
    rows = []
    for outcome in reached:
        goal = outcome.goal
        show, show_bound = (FIGURES[goal.figure].show,) * 2 if goal.figure else (three, str)
        about = f": {FIGURES[goal.figure].title}" if goal.figure else f", against {peer_title(goal.against)}"
        bounds = ((">=", goal.at_least), ("<=", goal.at_most))
        wanted = " and ".join(f"{sign} {show_bound(bound)}" for sign, bound in bounds if bound is not None)
        named = case_title(Case.parse(goal.case)) + about
        rows.append([named, wanted, show(outcome.reached), "yes" if outcome.met else "no"])
    return table(["goal", "wanted", "reached", "met"], rows)


def _details(summaries: Sequence[Summary], baseline: str) -> list[str]:
    case = summaries[0].case
    reference = find(summaries, case.name, baseline_of(case, baseline))
    heads = ["", *(("p50", "p99") if is_latency(case) else ()), "rate", "multiple", "CPU a message"]
    heads += ["lost"] if may_lose(case) else []
    rows = []
    for summary in summaries:
        multiple = ratio(summary, reference)
        cells = [peer_title(summary.peer)]
        if is_latency(case):
            cells += [_spread(summary.p50_us, time_text), _spread(summary.p99_us, time_text)]
        cells += [_spread(summary.rate_per_s, rate_text), three(multiple) if multiple else ABSENT]
        cells += [_spread(summary.cpu_us, time_text)]
        cells += [f"{summary.lost_share:.1%}" if summary.lost_share else "0"] if may_lose(case) else []
        cells[0] += _failures(summary)
        rows.append(cells)
    return table(heads, rows)


def _spread(spread: Spread | None, show: Any) -> str:
    if spread is None:
        return ABSENT
    median, low, high = show(spread.median), show(spread.low), show(spread.high)
    return median if low == high else f"{median} ({low} to {high})"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A markdown table; the first column is text, the others are numbers."""
    lines = [heads, ["---", *("---:" for _ in heads[1:])], *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]
