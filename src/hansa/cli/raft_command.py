"""`hansa raft`: peers of a raft group as processes, and questions to a group."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Final, TypeAlias

from cyclopts import App, Parameter
from rich.console import Console

from hansa.cli.exit_status import OK, complain, reader_left
from hansa.cli.fast_loop import run
from hansa.cli.log_lines import LogLines, visible
from hansa.cli.raft_board import as_object, as_table, store_address, summary, told
from hansa.cli.registry_options import SECONDS, AsJson
from hansa.cli.session_options import ClusterName
from hansa.cli.stop_signals import Cut, until_stopped
from hansa.errors import BadArgument, HansaError
from hansa.limits import RAFT_JOIN_TIMEOUT_S, RAFT_START_S_MAX
from hansa.store.raft import JoinClient, RaftPeer
from hansa.store.raft.raft_events import RaftEvent
from hansa.transport.over_events import EventStream
from hansa.transport.over_tasks import TaskScope

raft = App(
    name="raft",
    help="Raft groups: a store that several machines keep together, without an etcd of your own to run.",
    help_format="markdown",
)

ADDRESS: Final = {"metavar": "HOST:PORT"}
Name: TypeAlias = Annotated[str, Parameter(metavar="NAME")]
Via: TypeAlias = Annotated[tuple[str, ...], Parameter(**ADDRESS, negative="")]


@Parameter(name="*")
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
    as_json
        Tell everything as JSON, an object a line, for programs.
    """

    name: Annotated[str, Parameter(metavar="NAME")]
    data: Annotated[str, Parameter(metavar="FOLDER")]
    client: Annotated[str, Parameter(**ADDRESS, show_default=False)] = ""
    join_at: Annotated[str, Parameter(**ADDRESS, show_default=False)] = ""
    listen: Annotated[str, Parameter(metavar="IP", show_default=False)] = ""
    cluster: ClusterName = "default"
    zone: Annotated[str, Parameter(show_default=False)] = ""
    role: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    metadata: Annotated[tuple[str, ...], Parameter(metavar="NAME=TEXT", negative="", show_default=False)] = ()
    etcd: Annotated[str | None, Parameter(metavar="FILE", show_default=False)] = None
    as_json: AsJson = False


@raft.command
def start(
    app: Name,
    /,
    *,
    peers: Annotated[
        tuple[str, ...], Parameter(metavar="NAME=HOST:PORT", negative="", show_default=False)
    ] = (),
    timeout: Annotated[float, SECONDS] = RAFT_START_S_MAX,
    peer: PeerOptions,
) -> int:
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
    app
        The application whose group it is.
    peers
        All peers that the group begins with, as name=host:port of their peer addresses; with commas between,
        or repeated. Not needed where the folder knows the group already.
    timeout
        How long to wait for the group to have a leader.
    """
    try:
        made = _peer(app, peer, peers=_founders(peers), start_timeout_s=timeout)
        run(_serve(made, as_json=peer.as_json))
    except HansaError as error:
        return complain("raft start", error, as_json=peer.as_json)
    return OK


@raft.command
def join(
    app: Name,
    /,
    *,
    via: Via,
    address: Annotated[str, Parameter(name="--peer", **ADDRESS)] = "127.0.0.1:0",
    timeout: Annotated[float, SECONDS] = RAFT_JOIN_TIMEOUT_S,
    peer: PeerOptions,
) -> int:
    """Join a running group with a new peer, and run it until SIGTERM or Ctrl-C.

    The group is asked, the peer catches up without a vote, and then gets it. With a folder that has joined
    already it only goes on.

    Its ports trust whoever can reach them: nothing is encrypted, nobody logs in, and who reaches one can
    read, change and end the whole group. Keep all three to a network of your own.

    Example, on this machine, and from another one:

        hansa raft join orders --name n4 --data n4 --via 127.0.0.1:2390
        hansa raft join orders --name n5 --data n5 --via host-a:2390 --peer host-e:2380

    Parameters
    ----------
    app
        The application whose group it is.
    via
        The join address of a peer that runs; repeat it for each that you know.
    address
        Where the other peers reach this one's log; a group on other machines cannot reach 127.0.0.1.
    timeout
        How long joining may take.
    """
    try:
        made = _peer(app, peer, join=via, peer_address=address, join_timeout_s=timeout)
        run(_serve(made, as_json=peer.as_json))
    except HansaError as error:
        return complain("raft join", error, as_json=peer.as_json)
    return OK


@raft.command
def leave(
    app: Name,
    /,
    *,
    name: Annotated[str, Parameter(metavar="NAME")],
    via: Via,
    timeout: Annotated[float, SECONDS] = 30.0,
    as_json: AsJson = False,
) -> int:
    """Take a peer out of its group, for good: one that runs ends by itself, one that is lost is forgotten.

    It is refused when the others would not keep a quorum that answers.

    Example:

        hansa raft leave orders --name n4 --via 127.0.0.1:2390

    Parameters
    ----------
    app
        The application whose group it is.
    name
        The peer that leaves.
    via
        The join address of any peer that runs; repeat it for each that you know.
    timeout
        How long it may take; etcd changes a group only some 5 s after its last trouble.
    as_json
        One JSON object for programs.
    """

    async def ask() -> None:
        async with JoinClient(app, via) as client:
            await client.leave(name, timeout=timeout)

    try:
        run(ask())
    except HansaError as error:
        return complain("raft leave", error, as_json=as_json)
    print(json.dumps({"event": "left", "name": name}) if as_json else f"{name} has left {app}", flush=True)
    return OK


@raft.command
def status(
    app: Name, /, *, via: Via, timeout: Annotated[float, SECONDS] = 5.0, as_json: AsJson = False
) -> int:
    """Show a group: its peers, who leads, who answers.

    Example:

        hansa raft status orders --via 127.0.0.1:2390

    Parameters
    ----------
    app
        The application whose group it is.
    via
        The join address of any peer that runs; repeat it for each that you know.
    timeout
        How long to wait for an answer.
    as_json
        One JSON object for programs.
    """

    async def ask() -> None:
        async with JoinClient(app, via) as client:
            group = await client.describe(timeout=timeout)
        if as_json:
            print(json.dumps(as_object(group)), flush=True)
            return
        console = Console(highlight=False)
        console.print(as_table(group))
        console.print(summary(group), markup=False)
        if address := store_address(group):
            # In one piece, however long, so that it can be copied.
            console.print(f"its store: {visible(address)}", markup=False, soft_wrap=True)

    try:
        run(ask())
    except HansaError as error:
        return complain("raft status", error, as_json=as_json)
    except BrokenPipeError:
        reader_left()
    return OK


def _peer(app: str, options: PeerOptions, **more: object) -> RaftPeer:
    return RaftPeer(
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
        **more,  # type: ignore[arg-type]  # Each command gives its own few.
    )


def _founders(texts: tuple[str, ...]) -> dict[str, str]:
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


async def _serve(peer: RaftPeer, *, as_json: bool) -> None:
    """Run a peer until a signal says stop or its group has it no more. Raises what starting it raises."""
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


def _say_ready(peer: RaftPeer, log: LogLines) -> None:
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


def _say_stopped(peer: RaftPeer, log: LogLines, cut: Cut) -> None:
    how = "has left the group" if peer.is_left else "stopped" if cut.was_made else "ended"
    log.tell("stopped", f"{peer.name} of {peer.app} {how}", is_left=peer.is_left, stats=asdict(peer.stats))


async def _tell(events: EventStream[RaftEvent], log: LogLines) -> None:
    async for event in events:
        name, sentence, facts = told(event)
        log.tell(name, sentence, **facts)


def _raise(error: BaseException) -> None:
    raise error
