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
_ALWAYS: Final = ("what", "from", "to", "step")
# The columns whose texts may take several lines, and their least width.
_SENTENCES: Final = ("then", "asked by", "why", "trouble")
_SENTENCE_WIDTH: Final = 22


def as_table(records: Sequence[Handover], width: int) -> Table:
    """A row for each thing, with the columns that any has; if that is too wide, a row for each value."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    columns: dict[str, Callable[[Handover], str]] = {
        "what": named,
        "from": lambda one: one.source,
        "to": lambda one: one.target,
        "step": lambda one: one.step.value,
        "epochs": epochs,
        "offered": lambda one: moment_of(one.times.get(HandoverStep.OFFERED, 0.0)),
        "then": _steps_after,
        "size": lambda one: size(one.size) if one.size else "",
        "asked by": lambda one: one.asked_by,
        "why": lambda one: one.reason,
        "trouble": lambda one: one.trouble,
    }
    columns = {
        title: of for title, of in columns.items() if title in _ALWAYS or any(of(one) for one in records)
    }
    # Text and not str: names come from peers, and are never markup.
    rows = [
        {title: Text(visible(of(one)) or "-", _style(title, one)) for title, of in columns.items()}
        for one in sorted(records, key=_latest_first)
    ]
    widths = {title: max(cell_len(title), *(row[title].cell_len for row in rows)) for title in columns}
    widths |= {title: min(widths[title], _SENTENCE_WIDTH) for title in _SENTENCES if title in widths}
    if sum(widths.values()) + 3 * len(widths) + 1 <= width:
        table = Table(expand=False)
        for title, of_column in widths.items():
            table.add_column(title, overflow="fold", min_width=of_column)
        for row in rows:
            table.add_row(*row.values())
        return table
    table = Table(expand=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        for title, text in row.items():
            if title in _ALWAYS or text.plain != "-":
                table.add_row(title, text)
        table.add_section()
    return table


def _style(title: str, record: Handover) -> str:
    if title == "step":
        return _STYLES.get(record.step, _OPEN_STYLE)
    return "bold" if title == "what" else ""


def named(record: Handover) -> str:
    """The thing that is handed over, in a few words."""
    return f"{record.kind} {record.name}"


def epochs(record: Handover) -> str:
    """The old owner's epoch, and the new one's once there is one."""
    return f"{record.epoch} -> {record.next_epoch}" if record.next_epoch else str(record.epoch)


def took_s(record: Handover) -> float:
    """The time from the first step to the current one, by the clocks of those who wrote them."""
    return record.times.get(record.step, 0.0) - record.times.get(HandoverStep.OFFERED, 0.0)


def pause_s(record: Handover) -> float:
    """How long nobody acted: from sealed to taken, by the clocks of those who wrote them."""
    return record.times.get(HandoverStep.TAKEN, 0.0) - record.times.get(HandoverStep.SEALED, 0.0)


def _steps_after(record: Handover) -> str:
    """The times of the steps after the first one, counted from it."""
    began = record.times.get(HandoverStep.OFFERED, 0.0)
    order = list(HandoverStep)
    later = [step for step in sorted(record.times, key=order.index) if step is not HandoverStep.OFFERED]
    return ", ".join(f"{step.value} {record.times[step] - began:+.3f} s" for step in later)


def _latest_first(record: Handover) -> tuple[bool, float, str, str]:
    """Open hand-overs come before ended ones."""
    return not record.is_open, -max(record.times.values(), default=0.0), record.kind, record.name


def facts(record: Handover) -> dict[str, Any]:
    """A hand-over as JSON. Its state is private to the owners; only its size is shown."""
    return {name: value for name, value in record.to_object().items() if name != "state"}


def as_object(records: Sequence[Handover], *, cluster: str) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {"cluster": cluster, "handovers": [facts(one) for one in sorted(records, key=_latest_first)]}


def summary(records: Sequence[Handover], *, cluster: str) -> str:
    """A summary of all of them in one sentence."""
    if not records:
        return f"cluster {cluster}: no hand-overs"
    ways = Counter("open" if one.is_open else one.step.value for one in records)
    counts = [f"{ways[way]} {way}" for way in ("open", "done", "withdrawn") if ways[way]]
    return f"cluster {cluster}: {counted(len(records), 'hand-over')}, {', '.join(counts)}"


def sentence(record: Handover) -> str:
    """The current step as a sentence for people."""
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
