"""The results as one picture: a panel a case, a bar a peer, whiskers from the lowest to the highest round."""

from collections.abc import Sequence
from pathlib import Path

from bench.measurement import Summary, is_latency, ratio
from bench.report import case_title, headline_text, peer_title

COLUMN_COUNT = 2
COLOURS = {"hansa": "#1b6ca8", "baseline": "#d1883a", "other": "#9aa5b1"}


def draw(summaries: Sequence[Summary], path: Path, *, baseline: str) -> None:
    """Write the picture as SVG. Needs matplotlib, which is imported only here."""
    import matplotlib  # type: ignore[import-not-found, unused-ignore]

    matplotlib.use("Agg")
    # No fresh ids and text as text: the file changes only where a number did.
    matplotlib.rcParams |= {"svg.hashsalt": "hansa", "svg.fonttype": "none", "font.size": 8}
    from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]

    cases = list(dict.fromkeys(summary.case for summary in summaries))
    row_count = -(-len(cases) // COLUMN_COUNT)
    figure, grid = pyplot.subplots(
        row_count, COLUMN_COUNT, figsize=(12, 2.6 * row_count), squeeze=False, layout="constrained"
    )
    for panel, case in zip(grid.flat, cases, strict=False):
        shown = [one for one in summaries if one.case == case and one.headline][::-1]
        reference = next((one for one in shown if one.peer == baseline), None)
        for position, summary in enumerate(shown):
            spread = summary.headline
            assert spread is not None
            whiskers = [[spread.median - spread.low], [spread.high - spread.median]]
            panel.barh(
                position, spread.median, color=_colour(summary.peer, baseline), xerr=whiskers, ecolor="#444"
            )
            multiple = ratio(summary, reference)
            text = headline_text(summary) + (f"  ({multiple:.2f})" if multiple else "")
            panel.annotate(text, (spread.high, position), xytext=(4, -3), textcoords="offset points")
        panel.set_yticks(range(len(shown)), [peer_title(summary.peer) for summary in shown])
        panel.set_title(case_title(case) + (", p50: less is better" if is_latency(case) else ""), loc="left")
        panel.set_xticks([])
        panel.margins(x=0.25)
        panel.spines[["top", "right", "bottom"]].set_visible(False)
    for panel in list(grid.flat)[len(cases) :]:
        panel.set_visible(False)
    figure.suptitle(f"In brackets: the multiple of {peer_title(baseline)} in the same run")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _colour(peer: str, baseline: str) -> str:
    if peer == baseline:
        return COLOURS["baseline"]
    return COLOURS["hansa" if peer.startswith("hansa") else "other"]
