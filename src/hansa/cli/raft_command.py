"""`hansa raft`: peers of a raft group as processes, and questions to a group."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final, Literal, TypeAlias

from hansa.cli.arguments import Parameter
from hansa.cli.log_lines import LogLines, visible
from hansa.cli.raft_board import (
    as_table,
    beginnings,
    figures,
    requests_table,
    store_address,
    summary,
    told,
)
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
from hansa.store.raft.raft_events import RaftEvent

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


# ---- commands ----------------------------------------------------------------------------------------


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

    Its ports trust whoever can reach them: nothing is encrypted, nobody logs in, and who reaches one can
    read, change and end the whole group. Keep all three to a network of your own.

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

    Its ports trust whoever can reach them: nothing is encrypted, nobody logs in, and who reaches one can
    read, change and end the whole group. Keep all three to a network of your own.

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


async def _serve(peer: raft.RaftPeer, *, as_json: bool) -> None:
    """Run a peer until a signal says stop or its group no longer has it. Raises what starting it raises."""
    with LogLines(as_json=as_json) as log:
        telling = TaskScope("hansa raft", _raise)
        telling.spawn(_tell(peer.events(), log), "events")
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


async def _tell(events: EventStream[RaftEvent], log: LogLines) -> None:
    async for event in events:
        name, sentence, facts = told(event)
        log.tell(name, sentence, **facts)


def _raise(error: BaseException) -> None:
    raise error
