"""A raft group as a table for people and as JSON for programs, and its events as lines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from hansa.cli.log_lines import visible
from hansa.store.raft.raft_events import (
    CatchingUp,
    GroupStatus,
    JoinAccepted,
    JoinExpired,
    JoinRequested,
    JoinRequestRefused,
    LeaderChanged,
    MemberFailing,
    MemberRestarted,
    PeerJoined,
    PeerLeft,
    RaftEvent,
    SnapshotTaken,
)


def as_table(group: GroupStatus) -> Table:
    """A row per peer."""
    table = Table(expand=False)
    table.add_column("peer", overflow="fold")
    for title in ("role", "vote"):
        table.add_column(title, no_wrap=True)
    for title in ("term", "index", "data"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("etcd", no_wrap=True)
    table.add_column("zone", overflow="fold")
    table.add_column("healthy", no_wrap=True)
    for one in group.peers:
        table.add_row(
            # Text and not str: what a peer wrote is never markup.
            Text(visible(one.peer.name or one.peer.peer_address), "bold"),
            one.role,
            "voter" if one.is_voter else "learner",
            str(one.term or "-"),
            str(one.applied_index or "-"),
            size(one.db_bytes) if one.db_bytes else "-",
            Text(visible(one.version or "-")),
            Text(visible(one.peer.zone or "-")),
            Text("yes", "green") if one.is_healthy else Text("no", "bold red"),
        )
    return table


def as_object(group: GroupStatus) -> dict[str, Any]:
    """Everything as one JSON object."""
    return asdict(group)


def summary(group: GroupStatus) -> str:
    """All of it in one sentence."""
    voters = [one for one in group.peers if one.is_voter]
    healthy_count = sum(one.is_healthy for one in voters)
    spare = healthy_count - (len(voters) // 2 + 1)
    can = f"{spare} more may fail" if spare >= 0 else "no quorum"
    led = f"led by {group.leader} in term {group.term}" if group.leader else "without a leader"
    return f"{group.app}: {led}; {healthy_count} of {len(voters)} voters healthy, {can}"


def store_address(group: GroupStatus) -> str:
    """What `--store` takes; empty when no peer says where it is asked."""
    joins = [one.peer.join_address for one in group.peers if one.is_voter and one.peer.join_address]
    return f"raft://{','.join(joins)}/{group.app}" if joins else ""


def size(count: int) -> str:
    """A number of bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def told(event: RaftEvent) -> tuple[str, str, dict[str, Any]]:
    """An event as a log line: its name, its sentence, its facts."""
    facts = asdict(event)
    if isinstance(event, LeaderChanged):
        leads = f"{event.leader} leads" if event.leader else "no leader is known"
        return "leader-changed", f"{leads}, term {event.term}", facts
    if isinstance(event, PeerJoined):
        return "peer-joined", f"{event.peer.name} is in the group", facts
    if isinstance(event, PeerLeft):
        return "peer-left", f"{event.peer.name} left the group", facts
    if isinstance(event, MemberRestarted):
        return "member-restarted", f"etcd ended ({event.exit_status}) and was started again", facts
    if isinstance(event, MemberFailing):
        said = f"etcd ended {event.crashes_count} times; the end of its log: {event.log_tail}"
        return "member-failing", said, facts
    if isinstance(event, CatchingUp):
        return (
            "catching-up",
            f"caught up to {min(event.applied_index, event.target_index)} of {event.target_index}",
            facts,
        )
    if isinstance(event, JoinRequested):
        return "join-requested", f"{event.name} asks to join", facts
    if isinstance(event, JoinAccepted):
        said = f"{event.name} was accepted as a learner after {event.accept_s:.1f} s"
        return "join-accepted", said, facts
    if isinstance(event, JoinRequestRefused):
        return "join-refused", f"{event.name} was refused: {event.reason} ({event.code})", facts
    if isinstance(event, JoinExpired):
        return "join-expired", f"the request of {event.name} has expired", facts
    return _snapshot(event, facts)


def _snapshot(event: SnapshotTaken, facts: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    said = f"{event.count} snapshots in {event.seconds:.3f} s; data {size(event.db_bytes)}"
    return "snapshot-taken", said, facts
