"""Members as a table for people and as JSON for programs, and their events as lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from hansa.cli.log_lines import LogLines, visible
from hansa.coordination.member import Member
from hansa.coordination.member_events import (
    Expelled,
    LoopLagged,
    MemberDown,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MembersEvent,
    MemberSuspected,
    MemberUpdated,
    Rejoined,
)
from hansa.coordination.node_info import MemberStatus
from hansa.coordination.roster import Roster

_STYLES: Final = {
    MemberStatus.JOINING: "cyan",
    MemberStatus.UP: "green",
    MemberStatus.SUSPECT: "bold yellow",
    MemberStatus.DOWN: "bold red",
    MemberStatus.LEFT: "dim",
    MemberStatus.DRAINING: "magenta",
}
_WORDS: Final[Mapping[type[MembersEvent], tuple[str, str]]] = {
    MemberJoined: ("member-joined", "joined"),
    MemberUpdated: ("member-updated", "is"),
    MemberSuspected: ("member-suspected", "is suspected"),
    MemberRefuted: ("member-refuted", "is back"),
    MemberDown: ("member-down", "is down"),
    MemberLeft: ("member-left", "left"),
    Rejoined: ("rejoined", "(this process) had to join again"),
    Expelled: ("expelled", "(this process) is a member no more"),
    LoopLagged: ("loop-lagged", "this process was late"),
}


def as_table(roster: Roster, silences_s: Mapping[str, float]) -> Table:
    """A row per member, a column for what any of them has; the age of a heartbeat where it is known."""
    ages = {name: f"{silence_s:.1f} s" for name, silence_s in silences_s.items()}
    columns: dict[str, Callable[[Member], str]] = {
        "address": lambda one: one.address,
        "roles": lambda one: ", ".join(sorted(one.roles)),
        "zone": lambda one: one.zone,
        "version": lambda one: one.version,
        "since": since,
        "heartbeat": lambda one: ages.get(one.id, ""),
        "reason": lambda one: one.reason,
    }
    columns = {title: of for title, of in columns.items() if any(of(one) for one in roster.values())}
    table = Table(expand=False)
    for title in ("id", "status", *columns):
        # What is short stays in one piece on a narrow terminal.
        table.add_column(
            title,
            overflow="fold",
            no_wrap=title in ("status", "since", "heartbeat"),
            justify="right" if title == "heartbeat" else "left",
        )
    for one in roster.values():
        table.add_row(
            # Text and not str: what a member says of itself is never markup.
            Text(visible(one.id), "bold"),
            Text(one.status.value, _STYLES[one.status]),
            *(Text(visible(of(one)) or "-") for of in columns.values()),
        )
    return table


def as_object(
    roster: Roster, silences_s: Mapping[str, float], *, cluster: str, is_stale: bool
) -> dict[str, Any]:
    """Everything as one JSON object."""
    return {
        "cluster": cluster,
        "is_stale": is_stale,
        "members": [facts(one) | {"heartbeat_age_s": silences_s.get(one.id)} for one in roster.values()],
    }


def facts(member: Member) -> dict[str, Any]:
    """A member as JSON."""
    return member.to_object() | {"address": member.address}


def since(member: Member) -> str:
    """When its status changed last, in local time; empty when that is not known."""
    if not member.since:
        return ""
    try:
        moment = datetime.fromtimestamp(member.since)
    except (OverflowError, OSError, ValueError):  # A member's clock may say anything.
        return "?"
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def summary(roster: Roster, *, cluster: str, stale_s: float) -> str:
    """All of it in one sentence."""
    counts = [
        f"{count} {status.value}" for status in MemberStatus if (count := len(roster.with_status(status)))
    ]
    stale = f"; the store has not answered for {stale_s:.0f} s" if stale_s else ""
    return f"cluster {cluster}: {', '.join(counts) or 'no members'}{stale}"


def tell_event(log: LogLines, event: MembersEvent) -> None:
    """One event as a line."""
    name, words = _WORDS[type(event)]
    if isinstance(event, LoopLagged):
        log.tell(name, f"{words}: {event.reason}", lag_s=event.lag_s, reason=event.reason)
        return
    member = event.member
    if isinstance(event, MemberUpdated):
        words = f"{words} {member.status.value}"
    # A reason that says no more than the event is not said twice.
    why = "" if event.reason in (words, member.status.value.lower()) else f": {event.reason}"
    revision = {} if isinstance(event, Rejoined | Expelled) else {"revision": event.revision}
    log.tell(name, f"{member.id} {words}{why}", reason=event.reason, member=facts(member), **revision)
