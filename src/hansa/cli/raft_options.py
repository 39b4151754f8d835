"""Options of `hansa raft`: what a peer is, and whom to ask about a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from hansa.cli.arguments import Parameter
from hansa.cli.registry_options import SECONDS, AsJson, Whole
from hansa.cli.session_options import ClusterName
from hansa.errors import BadArgument
from hansa.limits import RAFT_APPROVAL_TIMEOUT_S, RAFT_CALL_S_MAX, RAFT_REACH_S_MAX
from hansa.store import raft

ADDRESS: Final = {"metavar": "HOST:PORT"}
Name: TypeAlias = Annotated[str, Parameter(metavar="NAME")]
Via: TypeAlias = Annotated[tuple[str, ...], Parameter(**ADDRESS, negative="")]
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
    via
        The join address of any peer that runs; repeat it for each that you know.
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
