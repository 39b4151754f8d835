"""`hansa raft`: peers of a raft group as processes, questions to a group, and the answers."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from hansa.cli.arguments import Parameter
from hansa.cli.log_lines import LogLines, size, visible
from hansa.cli.registry_options import SECONDS, AsJson, Whole
from hansa.cli.standard_streams import console
from hansa.cli.stop_signals import Interruption, until_stopped
from hansa.cli.store_options import ClusterName
from hansa.errors import BadArgument
from hansa.limits import (
    RAFT_APPROVAL_TIMEOUT_S,
    RAFT_CALL_S_MAX,
    RAFT_JOIN_TIMEOUT_S,
    RAFT_REACH_S_MAX,
    RAFT_START_S_MAX,
)
from hansa.runtime.loops import run
from hansa.runtime.mailboxes import EventStream
from hansa.runtime.tasks import TaskScope
from hansa.store import raft
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

ADDRESS: Final = {"metavar": "HOST:PORT"}
App: TypeAlias = Annotated[str, Parameter(metavar="NAME", about="The application whose group it is.")]
_VIA: Final = "The join address of any peer that runs; repeat it for each that you know."
Via: TypeAlias = Annotated[tuple[str, ...], Parameter(**ADDRESS, about=_VIA)]
Who: TypeAlias = Literal["automatic", "manual"]


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """What one peer is.

    Parameters
    ----------
    name
        The peer's name in its group.
    data
        Its own folder; it remembers everything from one start to the next.
    client
        Where its store is reached; port 0 takes any free one, and the folder remembers which.
    join_at
        Where other peers ask to join, and `--via` of the other commands finds it.
    listen
        The IP to listen at, where it is another one than that which others dial. Without it a name listens at
        all IPs of the machine, an IP at itself.
    cluster
        The cluster whose keys the group's records stand under; the same at all its peers.
    zone
        Where the peer is, told to all.
    role
        What the peer is for, told to all; repeat it for each.
    metadata
        More about the peer, as name=text; repeat it for each.
    etcd
        The etcd program; else that of HANSA_ETCD, else the one on the PATH.
    heartbeat_ms
        How often the leader's etcd says that it is there; the same at all peers.
    election_ms
        How long the leader may be silent before another one is elected; the same at all peers.
    snapshot_count
        Writes between two snapshots of the log.
    history
        How much of the past watches may still read, such as 90m or 1h.
    rpc_timeout
        A member that does not say how it is in this time is away.
    replication_timeout
        How long a change may take to be on more than half of the peers.
    approval_timeout
        How long a request waits for a person, where one is needed, while this peer's etcd leads.
    """

    name: Annotated[str, Parameter(metavar="NAME")]
    data: Annotated[str, Parameter(metavar="FOLDER")]
    client: Annotated[str, Parameter(**ADDRESS)] = ""
    join_at: Annotated[str, Parameter(**ADDRESS)] = ""
    listen: Annotated[str, Parameter(metavar="IP")] = ""
    cluster: ClusterName = "default"
    zone: str = ""
    role: tuple[str, ...] = ()
    metadata: Annotated[tuple[str, ...], Parameter(metavar="NAME=TEXT")] = ()
    etcd: Annotated[str | None, Parameter(metavar="FILE")] = None
    heartbeat_ms: Whole = 100
    election_ms: Whole = 1000
    snapshot_count: Whole = 10_000
    history: Annotated[str, Parameter(metavar="TIME")] = "1h"
    rpc_timeout: Annotated[float, SECONDS] = RAFT_REACH_S_MAX
    replication_timeout: Annotated[float, SECONDS] = RAFT_CALL_S_MAX
    approval_timeout: Annotated[float, SECONDS] = RAFT_APPROVAL_TIMEOUT_S
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """Whom to ask about a group, and how the answer is told.

    Parameters
    ----------
    timeout
        How long it may take; etcd changes a group only some 5 s after its last trouble.
    as_json
        One JSON object for programs.
    """

    via: Via
    timeout: Annotated[float, SECONDS] = 30.0
    as_json: AsJson = False


# ---- commands -----------------------------------------------------------------------------------------


def start(
    app: App,
    /,
    *,
    peers: Annotated[tuple[str, ...], Parameter(metavar="NAME=HOST:PORT")] = (),
    approval: Who | None = None,
    resource_group: Annotated[str, Parameter(metavar="NAME")] = "",
    timeout: Annotated[float, SECONDS] = RAFT_START_S_MAX,
    join_timeout: Annotated[float, SECONDS] = RAFT_JOIN_TIMEOUT_S,
    peer: PeerOptions,
) -> None:
    """Run a peer of a group that begins with these peers, or of one that its folder knows.

    Start every one of them; a group begins when more than half are there. It runs until SIGTERM or Ctrl-C.

    Its ports trust everyone who can reach them: nothing is encrypted, nobody logs in, and anyone who reaches
    one can read, change and end the whole group. Keep all three to a network of your own.

    Example, a group of one on this machine, to which others join:

        hansa raft start orders --name n1 --data n1 --peers n1=127.0.0.1:2380 --join-at 127.0.0.1:2390
        hansa raft join orders --name n2 --data n2 --via 127.0.0.1:2390
        hansa raft status orders --via 127.0.0.1:2390

    Parameters
    ----------
    peers
        All peers that the group begins with, as name=host:port of their peer addresses; with commas between,
        or repeated. Not needed where the folder knows the group already.
    approval
        Who lets peers join a group that begins: automatic, or manual for a person; `hansa raft approval`
        changes it later.
    resource_group
        What the application of a group that begins works on, such as a zone or a line of machines.
    timeout
        How long to wait for the group to have a leader.
    join_timeout
        How long joining may take, approval aside, while this peer's etcd leads.
    """
    made = peer_of(
        app,
        peer,
        peers=founders_of(peers),
        approval=approval,
        resource_group=resource_group,
        start_timeout=timeout,
        join_timeout=join_timeout,
    )
    run(_serve(made, as_json=peer.as_json))


def join(
    app: App,
    /,
    *,
    via: Via,
    address: Annotated[str, Parameter(name="--peer", **ADDRESS)] = "127.0.0.1:0",
    timeout: Annotated[float, SECONDS] = RAFT_JOIN_TIMEOUT_S,
    peer: PeerOptions,
) -> None:
    """Join a running group with a new peer, and run it until SIGTERM or Ctrl-C.

    The group is asked, the peer catches up without a vote, and then gets it. Where a person lets peers join,
    it waits for `hansa raft approve`. With a folder that has joined already it only goes on.

    Its ports trust everyone who can reach them: nothing is encrypted, nobody logs in, and anyone who reaches
    one can read, change and end the whole group. Keep all three to a network of your own.

    Example, on this machine, and from another one:

        hansa raft join orders --name n4 --data n4 --via 127.0.0.1:2390
        hansa raft join orders --name n5 --data n5 --via host-a:2390 --peer host-e:2380

    Parameters
    ----------
    via
        The join address of a peer that runs; repeat it for each that you know.
    address
        Where the other peers reach this one's log; a group on other machines cannot reach 127.0.0.1.
    timeout
        How long joining may take; the time that a person has for the approval is not counted.
    """
    made = peer_of(app, peer, join=via, peer_address=address, join_timeout=timeout)
    run(_serve(made, as_json=peer.as_json))


def leave(app: App, /, *, name: Annotated[str, Parameter(metavar="NAME")], options: AskOptions) -> None:
    """Take a peer out of its group, for good: one that runs ends by itself, one that is lost is forgotten.

    It is refused when the others would not keep a quorum that answers.

    Example:

        hansa raft leave orders --name n4 --via 127.0.0.1:2390

    Parameters
    ----------
    name
        The peer that leaves.
    """
    facts = {"event": "left", "name": name}
    _order(
        app, options, lambda one: one.leave(name, timeout=options.timeout), facts, f"{name} has left {app}"
    )


def approve(app: App, /, *, name: Annotated[str, Parameter(metavar="NAME")], options: AskOptions) -> None:
    """Let a peer join that waits for a person's approval; `hansa raft status` lists those.

    Example:

        hansa raft approve orders --name n4 --via 127.0.0.1:2390

    Parameters
    ----------
    name
        The peer that asks to join.
    """
    facts = {"event": "approved", "name": name}
    _order(
        app, options, lambda one: one.approve(name, timeout=options.timeout), facts, f"{name} may join {app}"
    )


def refuse(
    app: App,
    /,
    *,
    name: Annotated[str, Parameter(metavar="NAME")],
    reason: Annotated[str, Parameter(metavar="TEXT")],
    options: AskOptions,
) -> None:
    """Do not let a peer join that waits for a person's approval; it ends, and tells why.

    Example:

        hansa raft refuse orders --name n4 --reason "it is in the wrong zone" --via 127.0.0.1:2390

    Parameters
    ----------
    name
        The peer that asks to join.
    reason
        Why not, in a sentence; the peer is told it.
    """
    facts = {"event": "refused", "name": name, "reason": reason}
    said = f"{name} may not join {app}"
    _order(app, options, lambda one: one.refuse(name, reason, timeout=options.timeout), facts, said)


def approval(app: App, who: Who, /, *, options: AskOptions) -> None:
    """Say who lets peers join a group from now on: `automatic`, or `manual` for a person.

    Requests that wait for a person go on by themselves when it becomes automatic.

    Example:

        hansa raft approval orders manual --via 127.0.0.1:2390

    Parameters
    ----------
    who
        automatic or manual.
    """
    facts = {"event": "approval-changed", "approval": who}
    said = f"{app}: approval is {who}"
    _order(app, options, lambda one: one.set_approval(who, timeout=options.timeout), facts, said)


def status(
    app: App, /, *, via: Via, timeout: Annotated[float, SECONDS] = 5.0, as_json: AsJson = False
) -> None:
    """Show a group: its peers, who leads, who answers, who asks to join, and what the asked peer counted.

    Example:

        hansa raft status orders --via 127.0.0.1:2390

    Parameters
    ----------
    timeout
        How long to wait for an answer.
    as_json
        One JSON object for programs.
    """

    async def ask() -> None:
        async with raft.JoinClient(app, via) as client:
            group = await client.describe(timeout=timeout)
        if as_json:
            print(json.dumps(asdict(group)), flush=True)
            return
        out = console()
        out.print(as_table(group))
        out.print(summary(group), markup=False)
        out.print(beginnings(group), markup=False)
        if group.requests:
            out.print(requests_table(group))
        out.print(figures(group), markup=False)
        if address := store_address(group):
            # On one line, however long, so that it can be copied.
            out.print(f"its store: {visible(address)}", markup=False, soft_wrap=True)

    run(ask())


def _order(
    app: str,
    options: AskOptions,
    order: Callable[[raft.JoinClient], Awaitable[None]],
    facts: dict[str, str],
    sentence: str,
) -> None:
    """Send the group an order, and report that it was done."""

    async def ask() -> None:
        async with raft.JoinClient(app, options.via) as client:
            await order(client)

    run(ask())
    print(json.dumps(facts) if options.as_json else visible(sentence), flush=True)


# ---- a peer that runs ---------------------------------------------------------------------------------


def peer_of(app: str, options: PeerOptions, **more: object) -> raft.RaftPeer:
    """The peer that the options describe. Raises `BadArgument`, which names the setting."""
    return raft.RaftPeer(
        app,
        options.name,
        data=options.data,
        client_address=options.client,
        join_address=options.join_at,
        listen_host=options.listen,
        cluster=options.cluster,
        zone=options.zone,
        roles=options.role,
        metadata=_pairs(options.metadata, "--metadata"),
        program=options.etcd,
        timings=raft.RaftTimings(
            heartbeat_ms=options.heartbeat_ms,
            election_ms=options.election_ms,
            snapshot_count=options.snapshot_count,
            history_kept=options.history,
            rpc_timeout=options.rpc_timeout,
            replication_timeout=options.replication_timeout,
        ),
        approval_timeout=options.approval_timeout,
        **more,  # type: ignore[arg-type]  # Each command gives its own few.
    )


def founders_of(texts: tuple[str, ...]) -> dict[str, str]:
    """`n1=host:port,n2=host:port`, also in several pieces. Raises `BadArgument`."""
    return _pairs([one for text in texts for one in text.split(",") if one], "--peers")


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadArgument(f"{option} {text!r}: write it as name=value")
        if name in pairs:
            raise BadArgument(f"{option}: {name} is there twice")
        pairs[name] = value
    return pairs


async def _serve(peer: raft.RaftPeer, *, as_json: bool) -> None:
    """Run a peer until a signal says stop or its group no longer has it. Raises what starting it raises."""
    with LogLines(as_json=as_json) as log:
        telling = TaskScope("hansa raft", _raise)
        telling.spawn(_tell_events(peer.events(), log), "events")
        # Until it is ready it may wait long for the others, and would seem to do nothing.
        log.tell("starting", f"{peer.name} of {peer.app} is starting", app=peer.app, name=peer.name)
        try:
            async with until_stopped() as cut, peer:
                _say_ready(peer, log)
                await peer.wait_left()
            _say_stopped(peer, log, cut)
        finally:
            await telling.close()


def _say_ready(peer: raft.RaftPeer, log: LogLines) -> None:
    info = peer.info
    log.tell(
        "ready",
        f"{peer.name} of {peer.app} ready: peer {info.peer_address} client {info.client_address} "
        f"join {info.join_address}",
        app=peer.app,
        **asdict(info),
        pid=os.getpid(),
        etcd_pid=peer.pid,
    )


def _say_stopped(peer: raft.RaftPeer, log: LogLines, cut: Interruption) -> None:
    how = "has left the group" if peer.is_left else "stopped" if cut.was_made else "ended"
    log.tell("stopped", f"{peer.name} of {peer.app} {how}", is_left=peer.is_left, stats=asdict(peer.stats))


async def _tell_events(events: EventStream[RaftEvent], log: LogLines) -> None:
    async for event in events:
        name, sentence, facts = told(event)
        log.tell(name, sentence, **facts)


def _raise(error: BaseException) -> None:
    raise error


# ---- a group as tables, and its events as lines -------------------------------------------------------


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
