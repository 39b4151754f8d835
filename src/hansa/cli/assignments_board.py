"""The assignments of a group: as tables for people, as JSON for programs, and each change as a sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hansa.assignment.planner import Candidate, Move, Sharing
from hansa.assignment.topology import (
    KINDS,
    Assignment,
    HandoffFailed,
    PartitionAssigned,
    PartitionLost,
    PartitionRevoked,
    PartitionUpdated,
    TopologyEvent,
)
from hansa.cli.log_lines import counted, moment_of, size, visible

if TYPE_CHECKING:
    from rich.table import Table

_ALWAYS: Final = ("partition", "owner")
# The columns that a narrow terminal omits, the first ones first.
_SPARED: Final = ("standby", "reason", "size", "resources", "epoch", "since", "processed", "last offset")
_NUMBERS: Final = ("epoch", "last offset", "processed", "size", "resources", "partitions", "weight")
# The columns whose texts may take several lines, and their least width.
_SENTENCES: Final = {"standby": 12, "reason": 20}
_STANDBY_TOLD_COUNT: Final = 3
_NAMES: Final = {kind: name for name, kind in KINDS.items()}

Workers = Mapping[str, Candidate]


# ---- tables -------------------------------------------------------------------------------------------


def as_table(assignments: Sequence[Assignment], width: int, *, now: float) -> Table:
    """A row for each partition, and the columns that any of them has and that the terminal has room for."""
    columns: dict[str, Callable[[Assignment], str]] = {
        "partition": lambda one: one.partition,
        "owner": lambda one: one.owner or "nobody",
        "epoch": lambda one: str(one.epoch) if one.owner else "",
        "since": lambda one: moment_of(one.since),
        "last offset": lambda one: str(one.last_offset) if one.last_offset >= 0 else "",
        "processed": lambda one: age(one.processed_at, now=now),
        "size": lambda one: size(one.handoff_size) if one.handoff_size else "",
        "resources": lambda one: f"{len(one.resources):,}" if one.resources else "",
        "standby": _standby,
        "reason": lambda one: one.reason,
    }
    rows = [{title: of(one) for title, of in columns.items()} for one in assignments]
    return _table(rows, width, style=_style)


def workers_table(assignments: Sequence[Assignment], workers: Workers, width: int) -> Table:
    """A row for each worker, and for each owner that no longer works: how many partitions it has."""
    counts = Counter(one.owner for one in assignments if one.owner)
    rows = []
    for node in sorted(workers.keys() | counts.keys()):
        worker = workers.get(node)
        rows.append(
            {
                "worker": node,
                "partitions": f"{counts[node]:,}",
                "weight": "" if worker is None or worker.weight == 1 else str(worker.weight),
                "zone": "" if worker is None else worker.zone,
                "is": _state(worker),
            }
        )
    return _table(rows, width, style=lambda title, _: "bold" if title == "worker" else "")


def groups_table(groups: Mapping[str, int], width: int) -> Table:
    """A row for each group: how many partitions it has."""
    rows = [{"group": name, "partitions": f"{count:,}"} for name, count in groups.items()]
    return _table(rows, width, style=lambda title, _: "bold" if title == "group" else "")


def moves_table(moves: Sequence[Move], width: int) -> Table:
    """A row for each move of a plan, in the order in which they are made."""
    rows = [
        {"partition": one.partition, "from": one.source or "-", "to": one.target, "reason": one.reason}
        for one in moves
    ]
    return _table(rows, width, style=lambda title, _: "bold" if title == "partition" else "")


def unplaced_table(unplaced: Mapping[str, str], width: int) -> Table:
    """A row for each partition that no worker may have, with the reason."""
    rows = [{"nobody may have": name, "because": why} for name, why in sorted(unplaced.items())]
    return _table(rows, width, style=lambda title, _: "bold red" if title != "because" else "")


def _table(rows: Sequence[Mapping[str, str]], width: int, *, style: Callable[[str, str], str]) -> Table:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    # Text and not str: names come from peers, and are never markup.
    shown = [{title: Text(visible(text), style(title, text)) for title, text in row.items()} for row in rows]
    titles = [
        title for title in (rows[0] if rows else ()) if title in _ALWAYS or any(row[title] for row in rows)
    ]
    widths = {title: max(cell_len(title), *(row[title].cell_len for row in shown)) for title in titles}
    for title, least in _SENTENCES.items():
        if title in widths:
            widths[title] = min(widths[title], least)
    for title in _SPARED:
        if sum(widths.values()) + 3 * len(widths) + 1 > width:
            widths.pop(title, None)
    table = Table(expand=False)
    for title, least in widths.items():
        justify = "right" if title in _NUMBERS else "left"
        table.add_column(title, overflow="fold", min_width=least, justify=justify)  # type: ignore[arg-type]
    for row in shown:
        table.add_row(*(row[title] if row[title].plain else "-" for title in widths))
    return table


def _style(title: str, text: str) -> str:
    if title == "owner" and text == "nobody":
        return "bold red"
    return "bold" if title == "partition" else ""


def _standby(one: Assignment) -> str:
    more = len(one.standby) - _STANDBY_TOLD_COUNT
    return ", ".join(one.standby[:_STANDBY_TOLD_COUNT]) + (f" and {more} more" if more > 0 else "")


def _state(worker: Candidate | None) -> str:
    if worker is None:
        return "not there"
    if worker.is_draining:
        return "draining"
    return "" if worker.takes_more else "given nothing more now"


def age(since: float, *, now: float) -> str:
    """How long ago a wall time was; empty when it is not known."""
    if not since:
        return ""
    # A time a little in the future comes from another machine's clock.
    seconds = max(now - since, 0.0)
    if seconds < 60.0:
        return f"{seconds:.1f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7_200.0 else f"{seconds / 3_600:.0f} h ago"


def in_order(assignments: Mapping[str, Assignment]) -> list[Assignment]:
    """The assignments in the order of their names, where p2 is before p10."""
    return [assignments[name] for name in sorted(assignments, key=_natural)]


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    parts = re.split(r"([0-9]+)", name)
    return tuple((part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts)


# ---- sentences ----------------------------------------------------------------------------------------


def summary(assignments: Sequence[Assignment], workers: Workers, *, group: str) -> str:
    """A summary of the group in one sentence."""
    owned = sum(bool(one.owner) for one in assignments)
    left = f", {len(assignments) - owned} without an owner" if owned < len(assignments) else ""
    return (
        f"group {group}: {counted(len(assignments), 'partition')} at {counted(len(workers), 'worker')}{left}"
    )


def plan_summary(plan: Sharing, *, group: str) -> str:
    """What a plan would do, in one sentence."""
    left = f", and {counted(len(plan.unplaced), 'partition')} that nobody may have" if plan.unplaced else ""
    if not plan.moves:
        return f"group {group}: nothing would move{left}"
    return f"group {group}: {counted(len(plan.moves), 'move')}{left}; nothing was done"


def sentence(event: TopologyEvent) -> str:
    """An event as a sentence for people."""
    offset = -1 if event.handoff is None else event.handoff.last_offset
    at = f", at offset {offset}" if offset >= 0 else ""
    why = f": {event.reason}" if event.reason else ""
    match event:
        case PartitionAssigned():
            return f"{event.partition}: {event.node} has it{at}, epoch {event.epoch}{why}"
        case PartitionRevoked():
            return f"{event.partition}: {event.node} has given it up{at}{why}"
        case PartitionLost():
            saved = f", saved last{at.lstrip(',')}" if at else ""
            return f"{event.partition}: {event.node} has lost it{saved}{why}"
        case PartitionUpdated() if event.reason == "handoff":
            return f"{event.partition}: {event.node} has saved how far it is{at}"
        case PartitionUpdated():
            return f"{event.partition}: it has {counted(len(event.resources), 'resource')} now"
        case HandoffFailed():
            return f"{event.partition}: what {event.node} wanted to hand on could not be saved{why}"


# ---- JSON ---------------------------------------------------------------------------------------------


def facts(one: Assignment) -> dict[str, Any]:
    """An assignment as JSON."""
    return {
        "partition": one.partition,
        "owner": one.owner,
        "epoch": one.epoch,
        "generation": one.generation,
        "since": one.since,
        "lastOffset": one.last_offset,
        "lastProcessedAt": one.processed_at,
        "handoffBytes": one.handoff_size,
        "resources": list(one.resources),
        "standby": list(one.standby),
        "reason": one.reason,
        "version": one.version,
        "updatedAt": one.updated_at,
    }


def worker_facts(worker: Candidate, count: int) -> dict[str, Any]:
    """A worker as JSON, with how many partitions it has."""
    return {
        "node": worker.node,
        "partitions": count,
        "weight": worker.weight,
        "zone": worker.zone,
        "roles": sorted(worker.roles),
        "resourceGroups": sorted(worker.resource_groups),
        "isDraining": worker.is_draining,
        "takesMore": worker.takes_more,
    }


def as_object(
    assignments: Sequence[Assignment], workers: Workers, *, cluster: str, group: str
) -> dict[str, Any]:
    """Everything as one JSON object."""
    counts = Counter(one.owner for one in assignments)
    return {
        "cluster": cluster,
        "group": group,
        "partitions": [facts(one) for one in assignments],
        "workers": [worker_facts(each, counts[each.node]) for each in workers.values()],
    }


def plan_object(plan: Sharing, *, cluster: str, group: str) -> dict[str, Any]:
    """A plan as one JSON object."""
    return {
        "cluster": cluster,
        "group": group,
        "moves": [
            {"partition": one.partition, "from": one.source, "to": one.target, "reason": one.reason}
            for one in plan.moves
        ],
        "unplaced": dict(sorted(plan.unplaced.items())),
    }


def event_facts(event: TopologyEvent) -> tuple[str, dict[str, Any]]:
    """An event's name, and its facts as JSON; without the handoff's state."""
    handoff = event.handoff
    found = {
        "group": event.group,
        "partition": event.partition,
        "node": event.node,
        "epoch": event.epoch,
        "resources": list(event.resources),
        "reason": event.reason,
        "version": event.version,
        "handoff": None
        if handoff is None
        else {
            "checkpoint": handoff.checkpoint,
            "lastOffset": handoff.last_offset,
            "lastProcessedAt": handoff.processed_at,
            "stateBytes": len(handoff.state),
        },
    }
    return _NAMES[type(event)], found
