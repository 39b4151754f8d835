"""The keys in the store: the one place that knows their names.

All keys of a cluster are below `/hansa/<cluster>/`. A prefix that is followed ends with a slash, so that a
follower of the lock "a" does not see the keys of the lock "ab".
"""

from typing import Final

from hansa.errors import BadArgument
from hansa.limits import COORDINATION_NAME_BYTES_MAX

_CONTROLS: Final = bytes((*range(0x20), 0x7F))


class Keys:
    """The keys and prefixes of one cluster. All take names as text and raise `BadArgument` for bad ones."""

    __slots__ = ("cluster", "prefix")

    def __init__(self, cluster: str = "default") -> None:
        self.cluster = cluster
        self.prefix = b"/hansa/" + as_name(cluster, "a cluster") + b"/"

    @property
    def nodes(self) -> bytes:
        """The prefix of all node records."""
        return self.prefix + b"nodes/"

    def node(self, node_id: str) -> bytes:
        """The record of one node."""
        return self.nodes + as_name(node_id, "a node")

    @property
    def suspects(self) -> bytes:
        """The prefix of all suspicions."""
        return self.prefix + b"suspects/"

    def suspect(self, node_id: str) -> bytes:
        """The suspicion of one node, or its refutation."""
        return self.suspects + as_name(node_id, "a node")

    @property
    def routing(self) -> bytes:
        """The routing table."""
        return self.prefix + b"routing"

    def leader(self, name: str) -> bytes:
        """The prefix of the candidates in an election."""
        return self.prefix + b"leader/" + as_name(name, "an election") + b"/"

    def lock(self, name: str) -> bytes:
        """The prefix of the holder of a lock and its waiters."""
        return self.prefix + b"locks/" + as_name(name, "a lock") + b"/"

    def semaphore(self, name: str) -> bytes:
        """The prefix of the holders of a semaphore and its waiters."""
        return self.prefix + b"semaphores/" + as_name(name, "a semaphore") + b"/"

    def barrier(self, name: str) -> bytes:
        """The prefix of the parties that wait at a barrier."""
        return self.prefix + b"barriers/" + as_name(name, "a barrier") + b"/"

    def topic(self, service: str, topic: str) -> bytes:
        """The prefix of the claims to a topic of a mesh: a name that the mesh allows, slashes included."""
        return self.prefix + b"topics/" + _topic_name(topic_name(service, topic)) + b"/"

    def line(self, kind: str, name: str) -> bytes:
        """The prefix of the owner of a "lock", a "leader"'s office or a "topic", and its waiters.

        The name is that of its hand-overs: for a topic the result of `topic_name`.
        """
        if kind == "lock":
            return self.lock(name)
        if kind == "leader":
            return self.leader(name)
        if kind == "topic":
            return self.prefix + b"topics/" + _topic_name(name) + b"/"
        raise BadArgument(f"nobody stands in line for a {kind!r}: give lock, leader or topic")

    @property
    def handovers(self) -> bytes:
        """The prefix of the records of all hand-overs."""
        return self.prefix + b"handovers/"

    def handovers_of(self, kind: str) -> bytes:
        """The prefix of the records of hand-overs of one kind of things."""
        return self.handovers + as_name(kind, "a kind of things") + b"/"

    def topic_handovers(self, service: str) -> bytes:
        """The prefix of the records of the topics of one mesh."""
        return self.handovers_of("topic") + as_name(service, "a service") + b"/"

    def handover(self, kind: str, name: str) -> bytes:
        """The record of the hand-overs of one thing. The name of a topic is the result of `topic_name`."""
        named = _topic_name(name) if kind == "topic" else as_name(name, f"a {kind}")
        return self.handovers_of(kind) + named

    def assignments(self, group: str) -> bytes:
        """The prefix of the entries that say which worker has which partition of a group."""
        return self.prefix + b"assignments/" + as_name(group, "a group") + b"/"

    def assignment(self, group: str, partition: str) -> bytes:
        """The entry that says which worker has one partition."""
        return self.assignments(group) + as_name(partition, "a partition")

    def handoffs(self, group: str) -> bytes:
        """The prefix of the handoffs that owners of a group's partitions left behind."""
        return self.prefix + b"handoffs/" + as_name(group, "a group") + b"/"

    def handoff(self, group: str, partition: str) -> bytes:
        """The handoff that the last owner of one partition left behind."""
        return self.handoffs(group) + as_name(partition, "a partition")

    @property
    def all_partitions(self) -> bytes:
        """The prefix of the definitions of the partitions of all groups."""
        return self.prefix + b"partitions/"

    def partitions(self, group: str) -> bytes:
        """The prefix of the definitions of a group's partitions."""
        return self.all_partitions + as_name(group, "a group") + b"/"

    def partition(self, group: str, partition: str) -> bytes:
        """The definition of one partition."""
        return self.partitions(group) + as_name(partition, "a partition")

    @property
    def groups(self) -> bytes:
        """The prefix of the settings of all groups."""
        return self.prefix + b"groups/"

    def group(self, group: str) -> bytes:
        """The settings of one group."""
        return self.groups + as_name(group, "a group")

    def plans(self, group: str) -> bytes:
        """The prefix of a group's plan: its head, and its moves in parts."""
        return self.prefix + b"plans/" + as_name(group, "a group") + b"/"

    def resources(self, group: str) -> bytes:
        """The prefix of a group's resources that were assigned one by one."""
        return self.prefix + b"resources/" + as_name(group, "a group") + b"/"

    def resource(self, group: str, resource: str) -> bytes:
        """The entry that says where one resource was assigned."""
        return self.resources(group) + as_name(resource, "a resource")

    def handoff_sweep(self, group: str) -> bytes:
        """The note of a sweep of a group's handoffs for the next one."""
        return self.prefix + b"handoff-sweep/" + as_name(group, "a group")

    def left(self, lease: int, number: int) -> bytes:
        """The mark that a session's entry into a line is over for good, even if a request for it is late."""
        return self.prefix + b"left/%016x-%d" % (lease, number)

    def blobs(self, space: str) -> bytes:
        """The prefix of all blobs of one space."""
        return self.prefix + b"blobs/" + as_name(space, "a space of blobs") + b"/"

    def blob(self, space: str, name: str) -> bytes:
        """The prefix of the pieces of one blob."""
        return self.blobs(space) + as_name(name, "a blob") + b"/"

    def blob_sweep(self, space: str) -> bytes:
        """The note of a sweep of the blobs of one space for the next one."""
        return self.prefix + b"blob-sweep/" + as_name(space, "a space of blobs")

    def join_requests(self, app: str) -> bytes:
        """The prefix of the requests to join an application's raft group."""
        return self.prefix + b"join-requests/" + as_name(app, "an application") + b"/"

    def join_request(self, app: str, node_id: str) -> bytes:
        """One node's request to join an application's raft group."""
        return self.join_requests(app) + as_name(node_id, "a node")

    def raft_group(self, app: str) -> bytes:
        """The record of an application's raft group."""
        return self.prefix + b"raft/groups/" + as_name(app, "an application")

    def raft_metadata(self, app: str) -> bytes:
        """The record of how an application's raft group began."""
        return self.prefix + b"raft/metadata/" + as_name(app, "an application")


def topic_name(service: str, topic: str) -> str:
    """The name of a topic among all things of one kind: one slash, between service and topic."""
    return service + "/" + quoted(topic)


def quoted(name: str) -> str:
    """The name without slashes, for a name that may have some."""
    return name.replace("%", "%25").replace("/", "%2F")


def unquoted(name: str) -> str:
    """The name from which `quoted` made this one."""
    return name.replace("%2F", "/").replace("%25", "%")


def _topic_name(name: str) -> bytes:
    service, slash, topic = name.partition("/")
    if not slash or not topic or "/" in topic:
        raise BadArgument(f"a topic is named by its service, a slash, and itself without any: not {name!r}")
    return as_name(service, "a service") + b"/" + topic.encode()


def as_name(name: str, what: str) -> bytes:
    """One name in a key, as bytes. `what` names it in the error. Raises `BadArgument`."""
    if not isinstance(name, str):
        raise BadArgument(f"the name of {what} is text, not {type(name).__name__}")
    try:
        found = name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadArgument(f"the name of {what}: {name!r} cannot be written as UTF-8") from error
    if not 1 <= len(found) <= COORDINATION_NAME_BYTES_MAX:
        raise BadArgument(
            f"the name of {what} has 1 to {COORDINATION_NAME_BYTES_MAX} bytes, not {len(found)}:"
            f" {name[:40]!r}"
        )
    if "/" in name:
        raise BadArgument(f"the name of {what}: {name!r} has a slash, which parts the names in a key")
    if len(found.translate(None, _CONTROLS)) < len(found):
        raise BadArgument(f"the name of {what}: {name!r} has a control character")
    return found
