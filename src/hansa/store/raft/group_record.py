"""What a group writes about itself into its own store: peers, beginning, requests to join. Pure.

`encode` and `decode` turn these records, and the messages between peers (`join_messages`), into JSON and
back. A field is text, a whole number, a float, a bool, an enum of texts, a tuple of texts or of such
dataclasses, a mapping of texts, or such a dataclass. Unknown fields are ignored, so that a newer peer may say
more; a missing one takes its default.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from ipaddress import ip_address
from types import UnionType
from typing import Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from hansa.endpoint import Endpoint
from hansa.errors import BadArgument, BadEndpoint, BadRecord
from hansa.keys import Keys
from hansa.limits import RAFT_NAME_CHARS_MAX, RAFT_PEER_NOTES_BYTES_MAX, RAFT_PEERS_MAX

V = TypeVar("V")
_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{RAFT_NAME_CHARS_MAX - 1}}}\Z")


class Approval(StrEnum):
    """Who lets a peer join: the leader's peer, when all checks pass, or a person besides."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


class JoinState(StrEnum):
    """The state of a request to join. `PENDING` waits for a person, `APPROVED` has that person's yes."""

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
    """The peers that have a vote, and the settings of the whole group.

    `version` grows by one with each change. `group_id` is etcd's number of the group in hexadecimal; empty in
    a record that nobody has begun. `resource_group` names what the group's application works on (a zone, a
    line of machines), fixed when the group begins.
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
        """The record with this peer in it, which replaces a peer of the same name."""
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
    """How a group began: written once, with the first version of its record, and never changed.

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
    """The settings that a peer was given for a new group. A group that exists keeps those in its record."""

    founders: Mapping[str, str] = field(default_factory=dict, hash=False)
    resource_group: str = ""
    approval: Approval | None = None

    def begun(self, record: GroupRecord, group_id: str) -> GroupRecord:
        """The first record of a group, with the settings of the whole group."""
        return replace(
            record,
            group_id=group_id,
            resource_group=self.resource_group,
            approval=self.approval or Approval.AUTOMATIC,
        )

    def misfit(self, resource_group: str, approval: Approval) -> str:
        """Which of these settings differ from the group's; empty when none does."""
        differing = []
        if self.resource_group and self.resource_group != resource_group:
            differing.append(f"the resource group {resource_group!r}, not {self.resource_group!r}")
        if self.approval is not None and self.approval is not approval:
            differing.append(f"the approval {approval.value!r}, not {self.approval.value!r}")
        return f"the group has {' and '.join(differing)}" if differing else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRecord:
    """A request to join, as the store keeps it until it is done, refused or expired.

    `ticket` distinguishes one request of a peer from the next: a peer that asks again has an empty data
    folder. `requested_at` is the wall time of the peer that wrote the request.
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
    """The keys of one group. Raises `BadArgument` for names that a group cannot have."""

    def __init__(self, cluster: str, app: str) -> None:
        check_name("cluster", cluster)
        check_name("application", app)
        self._app = app
        self._keys = keys = Keys(cluster)
        self.group = keys.raft_group(app)
        self.metadata = keys.raft_metadata(app)
        self.requests = keys.join_requests(app)

    def request(self, name: str) -> bytes:
        return self._keys.join_request(self._app, name)


def check_name(what: str, name: str) -> str:
    """Return the name, or raise `BadArgument`."""
    if _NAME.match(name) is None:
        raise BadArgument(
            f"{what} {name!r}: a name has 1 to {RAFT_NAME_CHARS_MAX} letters, digits, dots, hyphens or "
            "underscores, and begins with a letter or a digit"
        )
    return name


def read_approval(text: str) -> Approval:
    """The approval that is written so. Raises `BadArgument` for any other word."""
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
    # If the peer is alone, nobody else needs its address.
    read = {
        check_name("peer", one): read_address("the peer address", at, any_port=len(peers) == 1)
        for one, at in peers.items()
    }
    if len(set(read.values())) < len(read):
        raise BadArgument("two peers have one peer address")
    return read


def read_address(what: str, text: str, *, any_port: bool = False) -> str:
    """An address in its one spelling, `host:port`. Raises `BadEndpoint` if nobody could dial it."""
    endpoint = Endpoint.parse(f"tcp://{text.removeprefix('tcp://').removeprefix('http://')}")
    if endpoint.is_wildcard or (endpoint.port == 0 and not any_port):
        raise BadEndpoint(f"{what} {text!r}: give the host and the port that others reach, such as host:2380")
    return str(endpoint).removeprefix("tcp://")


def is_loopback(address: str) -> bool:
    """Whether only this machine itself can reach it."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_peer(peer: PeerInfo) -> PeerInfo:
    """Return the peer, or raise `BadArgument` or `BadEndpoint` for impossible fields."""
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


def encode(value: Any) -> bytes:
    """A dataclass as JSON, with its keys in order: equal values are equal bytes."""
    return json.dumps(asdict(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def decode(kind: type[V], data: bytes) -> V:
    """The dataclass that was encoded. Raises `BadRecord`."""
    try:
        return cast(V, _read(kind, json.loads(data), kind.__name__))
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"not a {kind.__name__}: {error}") from error


def _read(kind: Any, found: Any, where: str) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        return _read_fields(kind, found, where)
    origin = get_origin(kind)
    if origin is tuple:
        if not isinstance(found, list):
            raise ValueError(f"{where} is not a list")
        return tuple(_read(get_args(kind)[0], item, where) for item in found)
    if origin is not None and origin is not UnionType:
        if not isinstance(found, dict):
            raise ValueError(f"{where} is not an object")
        return {str(key): _read(get_args(kind)[1], item, where) for key, item in found.items()}
    if origin is UnionType:
        (inner,) = (one for one in get_args(kind) if one is not type(None))
        return None if found is None else _read(inner, found, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return kind(found)
    if kind is float and isinstance(found, int) and not isinstance(found, bool):
        return float(found)
    # A bool is an int to Python, and not to the writer of the record.
    if not isinstance(found, kind) or (isinstance(found, bool) and kind is not bool):
        raise ValueError(f"{where} is not {kind.__name__}")
    return found


def _read_fields(kind: type, found: Any, where: str) -> Any:
    if not isinstance(found, dict):
        raise ValueError(f"{where} is not an object")
    hints = get_type_hints(kind)
    given = {}
    for one in fields(kind):
        if one.name in found:
            given[one.name] = _read(hints[one.name], found[one.name], f"{where}.{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise ValueError(f"{where}.{one.name} is missing")
    return kind(**given)
