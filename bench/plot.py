"""The results as pictures: a panel a case with a bar a peer, and how registries and plans grow dearer.

Whiskers go from the lowest to the highest round.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measurement import Summary, baseline_of, is_latency, ratio
from bench.report import case_title, headline_text, peer_title

COLUMN_COUNT = 2
COLOURS = {"hansa": "#1b6ca8", "baseline": "#d1883a", "other": "#9aa5b1"}


def draw(summaries: Sequence[Summary], path: Path, *, baseline: str) -> None:
    """Write the bars as SVG. Needs matplotlib, which is imported only when something is drawn."""
    pyplot = load_pyplot()
    cases = list(dict.fromkeys(summary.case for summary in summaries))
    row_count = -(-len(cases) // COLUMN_COUNT)
    figure, grid = pyplot.subplots(
        row_count, COLUMN_COUNT, figsize=(12, 2.6 * row_count), squeeze=False, layout="constrained"
    )
    for panel, case in zip(grid.flat, cases, strict=False):
        shown = [one for one in summaries if one.case == case and one.headline][::-1]
        against = baseline_of(case, baseline)
        reference = next((one for one in shown if one.peer == against), None)
        for position, summary in enumerate(shown):
            spread = summary.headline
            assert spread is not None
            whiskers = [[spread.median - spread.low], [spread.high - spread.median]]
            panel.barh(
                position, spread.median, color=_colour(summary.peer, against), xerr=whiskers, ecolor="#444"
            )
            multiple = ratio(summary, reference)
            text = headline_text(summary) + (f"  ({multiple:.2f})" if multiple else "")
            panel.annotate(text, (spread.high, position), xytext=(4, -3), textcoords="offset points")
        panel.set_yticks(range(len(shown)), [peer_title(summary.peer) for summary in shown])
        title = case_title(case) + (", p50: less is better" if is_latency(case) else "")
        panel.set_title(title + (f" [{peer_title(against)}]" if against != baseline else ""), loc="left")
        panel.set_xticks([])
        panel.margins(x=0.25)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    for panel in list(grid.flat)[len(cases) :]:
        panel.set_visible(False)
    figure.suptitle(
        f"In brackets: the multiple of {peer_title(baseline)}, or of whom the title names, in the same run"
    )
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _colour(peer: str, baseline: str) -> str:
    if peer == baseline:
        return COLOURS["baseline"]
    return COLOURS["hansa" if peer.startswith("hansa") else "other"]


@dataclass(frozen=True, slots=True)
class Curves:
    """One panel of the plot of scale: what it shows, and its figures in words."""

    title: str
    labels: dict[str, str]


SCALE_PANELS = (
    Curves(
        "registry CPU, us",
        {
            "register_cpu_us": "a new provider and its list",
            "weight_cpu_us": "a new weight and its list",
            "broadcast_cpu_us": "a list told again",
            "burst_cpu_us": "a new weight of a burst",
            "heartbeat_cpu_us": "a heartbeat",
        },
    ),
    Curves("bytes a list", {"broadcast_bytes": "a list"}),
    Curves(
        "discovery, us",
        {
            "register_delay_us": "until it has a new provider",
            "weight_delay_us": "until it has a new weight",
            "weight_list_cpu_us": "CPU, a list with a new weight",
            "list_cpu_us": "CPU, a list that is the same",
        },
    ),
    Curves(
        "all at once, s",
        {
            "restart_s": "restart, until a discovery has all again",
            "restart_cpu_s": "registry CPU for it",
            "join_s": "the first time: connect and register",
        },
    ),
)


PLAN_PANELS = tuple(
    Curves(
        f"{title}, s",
        {
            f"{label}_first_s": "the first plan",
            f"{label}_leave_s": "a worker has left",
            f"{label}_join_s": "it is back",
            f"{label}_same_s": "nothing has changed",
        },
    )
    for label, title in (("alike", "all alike"), ("ruled", "weights, roles and zones"))
)


def draw_scale(summaries: Sequence[Summary], path: Path) -> None:
    """Write how a registry's costs grow with the providers as SVG."""
    title = "One registry, ten providers a service: medians, from the lowest to the highest round"
    _draw_growth(summaries, path, SCALE_PANELS, (2, 2), "providers", title)


def draw_plan(summaries: Sequence[Summary], path: Path) -> None:
    """Write how the time of planning grows with the partitions as SVG."""
    title = "Plans for ten partitions a worker: medians, from the lowest to the highest round"
    _draw_growth(summaries, path, PLAN_PANELS, (1, 2), "partitions", title)


def _draw_growth(
    summaries: Sequence[Summary],
    path: Path,
    panels: Sequence[Curves],
    shape: tuple[int, int],
    counted: str,
    title: str,
) -> None:
    """Curves over the width of the cases, both axes logarithmic."""
    pyplot = load_pyplot()
    rows, columns = shape
    figure, grid = pyplot.subplots(
        rows, columns, figsize=(12, 4.5 * rows), squeeze=False, layout="constrained"
    )
    by_width = sorted(summaries, key=lambda summary: summary.case.width)
    for panel, curves in zip(grid.flat, panels, strict=True):
        for name, label in curves.labels.items():
            points = [(one.case.width, one.figures[name]) for one in by_width if name in one.figures]
            if not points:
                continue
            widths = [width for width, _ in points]
            medians = [spread.median for _, spread in points]
            whiskers = [
                [spread.median - spread.low for _, spread in points],
                [spread.high - spread.median for _, spread in points],
            ]
            panel.errorbar(widths, medians, yerr=whiskers, marker="o", capsize=3, label=label)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(curves.title, loc="left")
        panel.set_xlabel(counted)
        panel.grid(visible=True, alpha=0.3)
        panel.legend(frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def load_pyplot() -> Any:
    """The drawing library, set up for files that change only where a number did."""
    import matplotlib  # type: ignore[import-not-found, unused-ignore]

    matplotlib.use("Agg")
    # No fresh ids and text as text.
    matplotlib.rcParams |= {"svg.hashsalt": "hansa", "svg.fonttype": "none", "font.size": 8}
    from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]

    return pyplot
