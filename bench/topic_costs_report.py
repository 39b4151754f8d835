"""The costs of a mesh for people: the tables of docs/explanation/topic-costs.md, and the plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import plot
from bench.report import table
from bench.topic_costs_flow import Flow, Share, Traffic
from bench.topic_costs_formula import (
    GREETING_BYTES,
    PING_BYTES,
    PONG_BYTES,
    QUERY_BYTES,
    READY_BYTES,
    UNCHANGED_BYTES,
    Shape,
    answer_bytes,
    asking_bytes,
    marked_bytes,
)
from bench.topic_costs_mesh import Costs
from bench.units import bytes_text, count_text, three

# The column of topics that the table of changes shows.
SHOWN_TOPICS_COUNT: Final = 10_000

CHANGES: Final = {
    "create": "it creates a topic",
    "destroy": "it destroys a topic",
    "create elsewhere": "another node creates one",
    "destroy elsewhere": "another node destroys one",
    "subscribe 1": "it subscribes a topic",
    "subscribe 100": "it subscribes a pattern, 100 topics match",
    "unsubscribe 100": "it unsubscribes that pattern",
    "other joins": "another node joins, without topics",
    "other is lost": "another node dies",
    "other leaves": "another node leaves in good order",
    "leave": "it leaves in good order",
}


def sections(costs: Sequence[Costs]) -> dict[str, list[str]]:
    """What stands between the page's marks."""
    return {
        "sizes": _sizes(),
        "steady": _steady(_own(costs)),
        "join": _join(_own(costs)),
        "change": _change(_own(costs)),
        "full": _full(costs),
        "checked": [_checked(costs)],
    }


def fill(page: str, told: Mapping[str, Sequence[str]]) -> str:
    """The page with these lines between its marks. Raises ValueError for a mark that is not there."""
    for name, lines in told.items():
        before, begin, rest = page.partition(f"<!-- costs:{name} -->\n")
        _, end, after = rest.partition(f"<!-- /costs:{name} -->")
        if not begin or not end:
            raise ValueError(f"the page has no place for {name!r}")
        page = before + begin + "\n".join([*lines, ""]) + end + after
    return page


def deviation(counted: Traffic, predicted: Traffic) -> float:
    """The largest difference of any kind, as a share of what was predicted."""
    pairs = ((counted.sent, predicted.sent), (counted.received, predicted.received))
    return max((_deviation(*pair) for pair in pairs), default=0.0)


def deviations(costs: Costs) -> dict[str, float]:
    """Of the steady state and of each change."""
    predicted = costs.shape.changes()
    found = {change: deviation(traffic, predicted[change]) for change, traffic in costs.changes.items()}
    return {"steady": deviation(costs.steady, costs.shape.steady())} | found


def _deviation(counted: Flow, predicted: Flow) -> float:
    worst, nothing = 0.0, Share(0, 0)
    for kind in {*counted.by_kind, *predicted.by_kind}:
        one, other = counted.by_kind.get(kind, nothing), predicted.by_kind.get(kind, nothing)
        worst = max(
            worst,
            abs(one.count - other.count) / max(other.count, 1),
            abs(one.size_bytes - other.size_bytes) / max(other.size_bytes, 1),
        )
    return worst


# -- tables


def _own(costs: Sequence[Costs]) -> list[Costs]:
    return [one for one in costs if not one.is_full]


def _sizes() -> list[str]:
    topic_bytes = Shape(nodes_count=2, topics_count=1).topic_bytes
    rows = [
        ["greeting and READY", str(GREETING_BYTES + READY_BYTES), ""],
        ["PING", str(PING_BYTES), ""],
        ["PONG", str(PONG_BYTES), ""],
        ["QUERY", str(QUERY_BYTES), ""],
        ["QUERY_RESP, unchanged or empty", str(UNCHANGED_BYTES), ""],
        [
            "QUERY_RESP with t topics",
            f"{UNCHANGED_BYTES} + t (L + {answer_bytes(1, 0) - UNCHANGED_BYTES:.0f})",
            f"{answer_bytes(1, topic_bytes):.0f} for one",
        ],
        ["TOPIC_ANNOUNCE, TOPIC_REMOVE", f"L + {marked_bytes(0)}", str(marked_bytes(topic_bytes))],
        ["SUBSCRIBE, UNSUBSCRIBE", f"L + {asking_bytes(0)}", str(asking_bytes(topic_bytes))],
    ]
    return table(["", "bytes", f"with L = {topic_bytes}"], rows)


def _steady(costs: Sequence[Costs]) -> list[str]:
    rows = []
    for nodes_count in _nodes_counts(costs):
        alike = [one.steady for one in costs if one.shape.nodes_count == nodes_count]
        flows = [flow for traffic in alike for flow in (traffic.sent, traffic.received)]
        rows.append(
            [
                count_text(nodes_count),
                _range([flow.messages_count for flow in flows]),
                _range([flow.commands_count for flow in flows]),
                _range([flow.size_bytes for flow in flows]),
            ]
        )
    return table(["nodes", "messages a second", "PING and PONG a second", "bytes a second"], rows)


def _range(values: Sequence[float]) -> str:
    """One number if all are the same to three digits."""
    low, high = three(min(values)), three(max(values))
    return f"{float(low):,g}" if low == high else f"{float(low):,g} to {float(high):,g}"


def _join(costs: Sequence[Costs]) -> list[str]:
    topics_counts = sorted({one.shape.topics_count for one in costs})
    rows = []
    for nodes_count in _nodes_counts(costs):
        joins = {
            one.shape.topics_count: one.changes["join"]
            for one in costs
            if one.shape.nodes_count == nodes_count
        }
        cells = [bytes_text(joins[count].received.size_bytes) for count in topics_counts]
        rows.append([count_text(nodes_count), count_text(2 * (nodes_count - 1)), *cells])
    heads = [f"{count_text(count)} topics" for count in topics_counts]
    return table(["nodes", "messages", *heads], rows)


def _change(costs: Sequence[Costs]) -> list[str]:
    shown = [one for one in costs if one.shape.topics_count == SHOWN_TOPICS_COUNT]
    rows = []
    for change, title in CHANGES.items():
        for way in ("sent", "received"):
            flows: list[Flow] = [getattr(one.changes[change], way) for one in shown]
            if any(flow.by_kind for flow in flows):
                rows.append([f"{title}: {way}", *map(_flow_text, flows)])
        if not any(one.changes[change].sent.by_kind or one.changes[change].received.by_kind for one in shown):
            rows.append([title, *["nothing"] * len(shown)])
    return table(["", *(f"{count_text(one.shape.nodes_count)} nodes" for one in shown)], rows)


def _full(costs: Sequence[Costs]) -> list[str]:
    rows = []
    for full in costs:
        if not full.is_full:
            continue
        own = next(one for one in _own(costs) if one.shape == full.shape)
        worst = max(
            deviation(full.steady, own.steady),
            *(deviation(full.changes[change], own.changes[change]) for change in own.changes),
        )
        shape = f"{count_text(full.shape.nodes_count)} nodes, {count_text(full.shape.topics_count)} topics"
        pair = (full, own)
        rows.append(
            [
                shape,
                " / ".join(f"{one.steady.sent.size_bytes:,.1f}" for one in pair),
                " / ".join(f"{one.changes['join'].received.size_bytes:,.0f}" for one in pair),
                " / ".join(f"{one.changes['leave'].sent.size_bytes:,.0f}" for one in pair),
                f"{worst:.1%}",
            ]
        )
    heads = ["full / own only", "bytes a second", "joining: bytes received", "leaving: bytes sent"]
    return table([*heads, "largest difference of any kind"], rows)


def _checked(costs: Sequence[Costs]) -> str:
    worst = max(max(deviations(one).values()) for one in costs)
    counted = sum(1 + len(one.changes) for one in costs)
    return (
        f"In {len(costs)} meshes {counted} costs were counted, each by kind and direction. The largest "
        f"difference between a count and the formula was {worst:.1%}."
    )


def _flow_text(flow: Flow) -> str:
    """Messages, and the bytes of everything."""
    return f"{count_text(flow.messages_count)} ({bytes_text(flow.size_bytes)})" if flow.by_kind else "nothing"


def _nodes_counts(costs: Sequence[Costs]) -> list[int]:
    return sorted({one.shape.nodes_count for one in costs})


# -- the plot


def draw(costs: Sequence[Costs], path: Path) -> None:
    """Points are counted, lines are the formula. Needs matplotlib."""
    pyplot = plot.load_pyplot()
    figure, grid = pyplot.subplots(2, 2, figsize=(12, 9), layout="constrained")
    own = _own(costs)
    _draw_steady(own, grid[0][0], grid[0][1])
    _draw_change(own, grid[1][0])
    _draw_join(own, grid[1][1])
    for panel in grid.flat:
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.grid(visible=True, alpha=0.3)
        panel.legend(frameon=False, loc="upper left", ncols=2 if panel is grid[1][0] else 1)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle("The control plane of topics, one node: points were counted, lines are the formula")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _draw_steady(costs: Sequence[Costs], counts: Any, sizes: Any) -> None:
    nodes = [one.shape.nodes_count for one in costs]
    flows = [one.steady.sent for one in costs]
    line = _nodes_counts(costs)
    formula = [Shape(nodes_count=count, topics_count=1).steady().sent for count in line]
    counts.set_title("steady: a second, sent (received is the same)", loc="left")
    points = counts.plot(nodes, [flow.commands_count for flow in flows], "o", label="PING and PONG")
    counts.plot(line, [flow.commands_count for flow in formula], color=points[0].get_color())
    points = counts.plot(nodes, [flow.messages_count for flow in flows], "o", label="QUERY and its answer")
    counts.plot(line, [flow.messages_count for flow in formula], color=points[0].get_color())
    counts.set_xlabel("nodes")
    sizes.set_title("steady: bytes a second, sent (received is the same)", loc="left")
    for rank, topics_count in enumerate(sorted({one.shape.topics_count for one in costs})):
        chosen = [one for one in costs if one.shape.topics_count == topics_count]
        # All lie on each other: the later ones are smaller, so that each is seen.
        sizes.plot(
            [one.shape.nodes_count for one in chosen],
            [one.steady.sent.size_bytes for one in chosen],
            "o",
            markersize=14 - 2.5 * rank,
            label=f"{topics_count:,} topics",
        )
    sizes.plot(line, [flow.size_bytes for flow in formula], color="#444")
    sizes.set_xlabel("nodes")


def _draw_change(costs: Sequence[Costs], panel: Any) -> None:
    chosen = [one for one in costs if one.shape.topics_count == SHOWN_TOPICS_COUNT]
    nodes = [one.shape.nodes_count for one in chosen]
    panel.set_title(f"a change: bytes sent and received, {SHOWN_TOPICS_COUNT:,} topics", loc="left")
    # Room for the names above.
    panel.margins(y=0.3)
    for change in ("leave", "create", "other leaves", "subscribe 100", "other joins", "create elsewhere"):
        counted = [one.changes[change] for one in chosen]
        predicted = [one.shape.changes()[change] for one in chosen]
        points = panel.plot(nodes, [_both(one) for one in counted], "o", label=CHANGES[change])
        panel.plot(nodes, [_both(one) for one in predicted], color=points[0].get_color())
    panel.set_xlabel("nodes")


def _draw_join(costs: Sequence[Costs], panel: Any) -> None:
    panel.set_title("it joins: bytes received", loc="left")
    for nodes_count in _nodes_counts(costs):
        chosen = [one for one in costs if one.shape.nodes_count == nodes_count]
        topics = [one.shape.topics_count for one in chosen]
        sizes = [one.changes["join"].received.size_bytes for one in chosen]
        predicted = [one.shape.changes()["join"].received.size_bytes for one in chosen]
        points = panel.plot(topics, sizes, "o", label=f"{nodes_count:,} nodes")
        panel.plot(topics, predicted, color=points[0].get_color())
    panel.set_xlabel("topics")


def _both(traffic: Traffic) -> float:
    return traffic.sent.size_bytes + traffic.received.size_bytes
