"""Hand-overs as a table for people, as JSON for programs, and each step as a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hansa.cli.log_lines import counted, moment_of, size, visible
from hansa.coordination.handover import Handover, HandoverStep

if TYPE_CHECKING:
    from rich.table import Table

_STYLES: Final = {HandoverStep.DONE: "green", HandoverStep.WITHDRAWN: "bold red"}
_OPEN_STYLE: Final = "bold yellow"


def as_table(records: Sequence[Handover]) -> Table:
    """A row for each thing, a column for what any of them has."""
    from rich.table import Table
    from rich.text import Text

    columns: dict[str, Callable[[Handover], str]] = {
        "epochs": epochs,
        "offered": lambda one: moment_of(one.times.get(HandoverStep.OFFERED, 0.0)),
        "then": _steps_after,
        "size": lambda one: size(one.size) if one.size else "",
        "asked by": lambda one: one.asked_by,
        "why": lambda one: one.reason,
        "trouble": lambda one: one.trouble,
    }
    columns = {title: of for title, of in columns.items() if any(of(one) for one in records)}
    table = Table(expand=False)
    for title in ("what", "from", "to", "step", *columns):
        # What is short stays in one piece on a narrow terminal.
        short = title in ("step", "epochs", "offered", "size")
        table.add_column(title, overflow="fold", no_wrap=short)
    for one in sorted(records, key=_latest_first):
        table.add_row(
            # Text and not str: names come from peers, and are never markup.
            Text(visible(named(one)), "bold"),
            Text(visible(one.source) or "-"),
            Text(visible(one.target) or "-"),
            Text(one.step.value, _STYLES.get(one.step, _OPEN_STYLE)),
            *(Text(visible(of(one)) or "-") for of in columns.values()),
        )
    return table


def named(record: Handover) -> str:
    """What is handed over, in a few words."""
    return f"{record.kind} {record.name}"


def epochs(record: Handover) -> str:
    """The old owner's, and the new one's once there is one."""
    return f"{record.epoch} -> {record.next_epoch}" if record.next_epoch else str(record.epoch)


def took_s(record: Handover) -> float:
    """From the first step to the present one, by the clocks of those who wrote them."""
    return record.times.get(record.step, 0.0) - record.times.get(HandoverStep.OFFERED, 0.0)


def _steps_after(record: Handover) -> str:
    """When the steps after the first one were, counted from it."""
    began = record.times.get(HandoverStep.OFFERED, 0.0)
    order = list(HandoverStep)
    later = [step for step in sorted(record.times, key=order.index) if step is not HandoverStep.OFFERED]
    return ", ".join(f"{step.value} {record.times[step] - began:+.3f} s" for step in later)


def _latest_first(record: Handover) -> tuple[bool, float, str, str]:
    """What is open stands above what has ended."""
    return not record.is_open, -max(record.times.values(), default=0.0), record.kind, record.name


def facts(record: Handover) -> dict[str, Any]:
    """A hand-over as JSON. What is handed on is its owners' alone; its size is told."""
    return {name: value for name, value in record.to_object().items() if name != "state"}


def as_object(records: Sequence[Handover], *, cluster: str) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {"cluster": cluster, "handovers": [facts(one) for one in sorted(records, key=_latest_first)]}


def summary(records: Sequence[Handover], *, cluster: str) -> str:
    """All of them in one sentence."""
    if not records:
        return f"cluster {cluster}: no hand-overs"
    ways = Counter("open" if one.is_open else one.step.value for one in records)
    counts = [f"{ways[way]} {way}" for way in ("open", "done", "withdrawn") if ways[way]]
    return f"cluster {cluster}: {counted(len(records), 'hand-over')}, {', '.join(counts)}"


def sentence(record: Handover) -> str:
    """What its present step is, for people."""
    what, source, target = named(record), record.source or "its owner", record.target
    after = f"after {took_s(record):.3f} s"
    match record.step:
        case HandoverStep.OFFERED:
            by = f", asked by {record.asked_by}" if record.asked_by else ""
            why = f": {record.reason}" if record.reason else ""
            return f"{what} is offered by {source} to {target}{by}{why}"
        case HandoverStep.PREPARED:
            return f"{what}: {target} is ready {after}"
        case HandoverStep.SEALED:
            held = f", with {size(record.size)}" if record.size else ""
            return f"{what}: {source} has stopped {after}{held}"
        case HandoverStep.TAKEN:
            return f"{what}: {record.taken_by or target} owns it {after}, epoch {epochs(record)}"
        case HandoverStep.DONE:
            took = f"in {took_s(record):.3f} s, epoch {epochs(record)}"
            but = f", but {record.trouble}" if record.trouble else ""
            return f"{what}: handed over from {source} to {record.taken_by or target} {took}{but}"
        case HandoverStep.WITHDRAWN:
            return f"{what}: withdrawn {after}, when it was {record.reached.value}: {record.trouble}"
