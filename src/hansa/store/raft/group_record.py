"""What a group writes about itself into its own store: its peers, how it began, the requests to join it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import ip_address
from typing import Final

from hansa.endpoint import Endpoint
from hansa.errors import BadArgument, BadEndpoint
from hansa.limits import RAFT_NAME_CHARS_MAX, RAFT_PEER_NOTES_BYTES_MAX, RAFT_PEERS_MAX
from hansa.store.raft.json_values import encode

_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{RAFT_NAME_CHARS_MAX - 1}}}\Z")


class Approval(StrEnum):
    """Who lets a peer join: the leader's peer, when all checks pass, or a person besides."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


class JoinState(StrEnum):
    """Where a request to join stands. `PENDING` waits for a person, `APPROVED` has that person's yes."""

    REQUESTED = "requested"
    PENDING = "pending"
    APPROVED = "approved"
    ADDING = "adding"
    ACCEPTED = "accepted"
    SYNCING = "syncing"
    PROMOTING = "promoting"
    DONE = "done"
    REFUSED = "refused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerInfo:
    """A peer as its group knows it. Addresses are `host:port`; `peer_id` is etcd's number of its member."""

    name: str
    peer_address: str
    client_address: str
    join_address: str
    peer_id: int = 0
    zone: str = ""
    roles: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """The peers that have a vote, and what holds for the whole group.

    `version` grows by one with each change.
    `group_id` is etcd's number of the group in hexadecimal; empty in a record that nobody has begun.
    `resource_group` names what the group's application works on (a zone, a line of machines), fixed when the
    group begins.
    """

    app: str
    version: int = 0
    group_id: str = ""
    resource_group: str = ""
    approval: Approval = Approval.AUTOMATIC
    peers: tuple[PeerInfo, ...] = ()

    def peer(self, name: str) -> PeerInfo | None:
        return next((peer for peer in self.peers if peer.name == name), None)

    def with_peer(self, peer: PeerInfo) -> "GroupRecord":
        """The record with this peer in it, in the place of one of the same name."""
        others = [one for one in self.peers if one.name != peer.name]
        peers = tuple(sorted([*others, peer], key=lambda one: one.name))
        return replace(self, version=self.version + 1, peers=peers)

    def without_peer(self, name: str) -> "GroupRecord":
        peers = tuple(one for one in self.peers if one.name != name)
        return replace(self, version=self.version + 1, peers=peers)

    def with_approval(self, approval: Approval) -> "GroupRecord":
        return replace(self, version=self.version + 1, approval=approval)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """How a group began: written once, with the first form of its record, and never changed.

    `founders` are the names and peer addresses that it began with, `began_at` is wall time.
    """

    app: str
    group_id: str
    founders: Mapping[str, str] = field(hash=False)
    began_by: str
    began_at: float
    etcd_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Charter:
    """What a peer was given for a group that begins. One that has begun keeps what stands in its record."""

    founders: Mapping[str, str] = field(default_factory=dict, hash=False)
    resource_group: str = ""
    approval: Approval | None = None

    def begun(self, record: GroupRecord, group_id: str) -> GroupRecord:
        """The record of a group that nobody has begun, with what holds for the whole of it."""
        return replace(
            record,
            group_id=group_id,
            resource_group=self.resource_group,
            approval=self.approval or Approval.AUTOMATIC,
        )

    def misfit(self, resource_group: str, approval: Approval) -> str:
        """What of it does not hold for a group that has these; empty when all of it does."""
        differing = []
        if self.resource_group and self.resource_group != resource_group:
            differing.append(f"the resource group {resource_group!r}, not {self.resource_group!r}")
        if self.approval is not None and self.approval is not approval:
            differing.append(f"the approval {approval.value!r}, not {self.approval.value!r}")
        return f"the group has {' and '.join(differing)}" if differing else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRecord:
    """A request to join, as the store keeps it until it is done, refused or expired.

    `ticket` tells one request of a peer from the next: a peer that asks again has an empty data folder.
    `requested_at` is the wall time of the peer that wrote the request.
    """

    app: str
    peer: PeerInfo
    ticket: str
    requested_at: float = 0.0
    lease: int = 0
    state: JoinState = JoinState.REQUESTED
    initial_cluster: Mapping[str, str] = field(default_factory=dict, hash=False)
    snapshot_bytes: int = 0
    effective_index: int = 0
    code: str = ""
    reason: str = ""


class RaftKeys:
    """The keys of a group, below its cluster's prefix."""

    def __init__(self, cluster: str, app: str) -> None:
        check_name("cluster", cluster)
        check_name("application", app)
        self.group = f"/hansa/{cluster}/raft/groups/{app}".encode()
        self.metadata = f"/hansa/{cluster}/raft/metadata/{app}".encode()
        self.requests = f"/hansa/{cluster}/join-requests/{app}/".encode()

    def request(self, name: str) -> bytes:
        return self.requests + name.encode()


def check_name(what: str, name: str) -> str:
    """Give the name back, or raise `BadArgument`."""
    if _NAME.match(name) is None:
        raise BadArgument(
            f"{what} {name!r}: a name has 1 to {RAFT_NAME_CHARS_MAX} letters, digits, dots, hyphens or "
            "underscores, and begins with a letter or a digit"
        )
    return name


def read_approval(text: str) -> Approval:
    """Raises `BadArgument` for a word that is neither."""
    try:
        return Approval(text)
    except ValueError:
        words = " or ".join(Approval)
        raise BadArgument(f"approval {text!r}: a group's approval is {words}") from None


def read_founders(name: str, peers: Mapping[str, str]) -> dict[str, str]:
    """The peers that a group begins with, `name` among them. Raises `BadArgument`, `BadEndpoint`."""
    if name not in peers:
        raise BadArgument(f"{name} is not among the peers {', '.join(sorted(peers))}")
    if len(peers) > RAFT_PEERS_MAX:
        raise BadArgument(f"{len(peers)} peers: a raft group has at most {RAFT_PEERS_MAX}")
    # Nobody else has to know the address of one who is alone.
    read = {
        check_name("peer", one): read_address("the peer address", at, any_port=len(peers) == 1)
        for one, at in peers.items()
    }
    if len(set(read.values())) < len(read):
        raise BadArgument("two peers have one peer address")
    return read


def read_address(what: str, text: str, *, any_port: bool = False) -> str:
    """An address in its one spelling, `host:port`. Raises `BadEndpoint` for one that nobody could dial."""
    endpoint = Endpoint.parse(f"tcp://{text.removeprefix('tcp://').removeprefix('http://')}")
    if endpoint.is_wildcard or (endpoint.port == 0 and not any_port):
        raise BadEndpoint(f"{what} {text!r}: give the host and the port that others reach, such as host:2380")
    return str(endpoint).removeprefix("tcp://")


def is_loopback(address: str) -> bool:
    """Whether only this machine itself reaches it."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_peer(peer: PeerInfo) -> PeerInfo:
    """Give the peer back, or raise `BadArgument` or `BadEndpoint`: what it says of itself cannot be."""
    check_name("peer", peer.name)
    read = {
        "peer_address": read_address("the peer address", peer.peer_address),
        "client_address": read_address("the client address", peer.client_address),
        "join_address": read_address("the join address", peer.join_address),
    }
    if len(set(read.values())) < len(read):
        raise BadArgument(f"peer {peer.name}: its three addresses are not three: {', '.join(read.values())}")
    notes = replace(peer, peer_address="", client_address="", join_address="")
    if len(encode(notes)) > RAFT_PEER_NOTES_BYTES_MAX:
        raise BadArgument(
            f"peer {peer.name}: zone, roles and metadata have more than {RAFT_PEER_NOTES_BYTES_MAX} bytes"
        )
    return peer
