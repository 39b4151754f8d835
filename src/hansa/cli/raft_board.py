"""A raft group as a table for people and as JSON for programs, and its events as lines."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hansa.cli.log_lines import size, visible
from hansa.store.raft.group_record import JoinState
from hansa.store.raft.raft_events import (
    ApprovalAwaited,
    CatchingUp,
    GroupStatus,
    JoinAccepted,
    JoinApproved,
    JoinExpired,
    JoinRequested,
    JoinRequestRefused,
    LeaderChanged,
    MemberFailing,
    MemberRestarted,
    RaftEvent,
    RaftPeerJoined,
    RaftPeerLeft,
    SnapshotTaken,
)

if TYPE_CHECKING:
    from rich.table import Table


def as_table(group: GroupStatus) -> Table:
    """A row per peer."""
    from rich.table import Table
    from rich.text import Text

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


def requests_table(group: GroupStatus) -> Table:
    """A row per request to join."""
    from rich.table import Table
    from rich.text import Text

    table = Table(expand=False, title="requests to join", title_justify="left")
    for title in ("peer", "at", "zone", "roles"):
        table.add_column(title, overflow="fold")
    table.add_column("asked", no_wrap=True)
    table.add_column("state", overflow="fold")
    for one in group.requests:
        state = one.state.value
        if one.state is JoinState.PENDING:
            state = "waits for approval"
        elif one.reason:
            state = f"{state}: {one.reason} ({one.code})"
        table.add_row(
            Text(visible(one.peer.name), "bold"),
            Text(visible(one.peer.peer_address)),
            Text(visible(one.peer.zone or "-")),
            Text(visible(", ".join(one.peer.roles) or "-")),
            day_and_time(one.requested_at),
            Text(visible(state)),
        )
    return table


def beginnings(group: GroupStatus) -> str:
    """The settings of the whole group, and how it began."""
    parts = [f"group {group.group_id or '(not begun yet)'}", f"approval {group.approval.value}"]
    if group.resource_group:
        parts.insert(1, f"resource group {group.resource_group}")
    if began := group.bootstrap:
        founders = ", ".join(sorted(began.founders))
        parts.append(f"begun {day_and_time(began.began_at)} by {began.began_by} with {founders}")
    return visible("; ".join(parts))


def figures(group: GroupStatus) -> str:
    """The counts and measures of the peer that was asked, since it started."""
    stats = group.stats
    refused = ", ".join(f"{code} {count}" for code, count in sorted(stats.refusals.items()))
    joins = [f"{stats.joins_accepted_count} accepted"]
    if stats.joins_accepted_count:
        joins[0] += f" (the last after {stats.join_accept_s:.1f} s)"
    if stats.joins_approved_count:
        joins.append(f"{stats.joins_approved_count} approved (the last after {stats.join_approval_s:.1f} s)")
    joins.append(f"{stats.joins_refused_count} refused" + (f" ({refused})" if refused else ""))
    joins.append(f"{stats.joins_expired_count} expired")
    parts = [
        f"leader changes {stats.leader_changes_count}, etcd restarts {stats.restarts_count}",
        f"joins {', '.join(joins)}",
        _snapshots("snapshots written", stats.snapshots_count, stats.snapshot_s, stats.snapshot_bytes),
        _snapshots("received", stats.snapshots_received_count, stats.snapshot_received_s),
    ]
    if stats.join_sync_s:
        parts.append(f"joined itself with {size(stats.join_snapshot_bytes)} in {stats.join_sync_s:.1f} s")
    return visible(f"{group.asked} counted: {'; '.join(parts)}")


def _snapshots(what: str, count: int, seconds: float, bytes_count: int = 0) -> str:
    if not count:
        return f"{what} 0"
    of = f"{size(bytes_count)} in " if bytes_count else ""
    return f"{what} {count} (the last {of}{seconds:.3f} s)"


def day_and_time(wall_s: float) -> str:
    """A wall time for people, in UTC."""
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if wall_s else "-"


def summary(group: GroupStatus) -> str:
    """A summary of the group in one sentence."""
    voters = [one for one in group.peers if one.is_voter]
    healthy_count = sum(one.is_healthy for one in voters)
    spare = healthy_count - (len(voters) // 2 + 1)
    can = f"{spare} more may fail" if spare >= 0 else "no quorum"
    led = f"led by {group.leader} in term {group.term}" if group.leader else "without a leader"
    return f"{group.app}: {led}; {healthy_count} of {len(voters)} voters healthy, {can}"


def store_address(group: GroupStatus) -> str:
    """The address for `--store`; empty when no peer tells its join address."""
    joins = [one.peer.join_address for one in group.peers if one.is_voter and one.peer.join_address]
    return f"raft://{','.join(joins)}/{group.app}" if joins else ""


def told(event: RaftEvent) -> tuple[str, str, dict[str, Any]]:
    """An event as a log line: its name, its sentence, its facts."""
    return *_said(event), asdict(event)


def _said(event: RaftEvent) -> tuple[str, str]:
    match event:
        case LeaderChanged():
            leads = f"{event.leader} leads" if event.leader else "no leader is known"
            return "leader-changed", f"{leads}, term {event.term}"
        case RaftPeerJoined():
            return "peer-joined", f"{event.peer.name} is in the group"
        case RaftPeerLeft():
            return "peer-left", f"{event.peer.name} left the group"
        case MemberRestarted():
            return "member-restarted", f"etcd ended ({event.exit_status}) and was started again"
        case MemberFailing():
            said = f"etcd ended {event.crashes_count} times; the end of its log: {event.log_tail}"
            return "member-failing", said
        case CatchingUp():
            applied = min(event.applied_index, event.target_index)
            return "catching-up", f"caught up to {applied} of {event.target_index}"
        case JoinRequested():
            return "join-requested", f"{event.name} asks to join"
        case ApprovalAwaited():
            said = f"{event.name} waits for a person's approval, at most {event.timeout_s:.0f} s"
            return "approval-awaited", said
        case JoinApproved():
            return "join-approved", f"{event.name} was approved after {event.approval_s:.1f} s"
        case JoinAccepted():
            return "join-accepted", f"{event.name} was accepted as a learner after {event.accept_s:.1f} s"
        case JoinRequestRefused():
            return "join-refused", f"{event.name} was refused: {event.reason} ({event.code})"
        case JoinExpired():
            return "join-expired", f"the request of {event.name} has expired"
        case SnapshotTaken():
            said = f"{event.count} snapshots in {event.seconds:.3f} s; data {size(event.db_bytes)}"
            return "snapshot-taken", said
