"""The registry of nodes and its watcher, for threads."""

from __future__ import annotations

from hansa.chance import Chance
from hansa.coordination.node_info import NodeInfo
from hansa.coordination.nodes import MembershipWatcher as AsyncMembershipWatcher
from hansa.coordination.nodes import NodeEvent
from hansa.coordination.nodes import NodeRegistry as AsyncNodeRegistry
from hansa.sync.news import News
from hansa.sync.store import Store


class NodeRegistry:
    """The nodes of a cluster, each with a lease of `ttl` seconds.

    An id belongs to the process that registered it last: a restarted process does not wait for its
    predecessor's lease, and a predecessor that still lives stops. With `takeover=False` the first one stays.
    """

    def __init__(
        self,
        store: Store,
        *,
        cluster: str = "default",
        ttl: float = 10.0,
        takeover: bool = True,
        chance: Chance | None = None,
    ) -> None:
        """Raises BadArgument."""
        self._store = store
        self._inner = AsyncNodeRegistry(
            store._inner, cluster=cluster, ttl=ttl, takeover=takeover, chance=chance
        )

    def register(self, node: NodeInfo) -> str:
        """Register a node and keep it registered: give it a thread of its own.

        It returns, with the reason, when the node was deregistered or replaced by a newer process. Who is
        interrupted stops renewing, and the lease ends by itself; so it is when the store is closed, with
        AlreadyClosed. When the lease is lost it registers again, however long the store was away. Raises
        Conflict for an id that is taken, without `takeover`; BadArgument.
        """
        return self._store._call(lambda: self._inner.register(node), f"register of node {node.id}")

    def deregister(self, node_id: str) -> bool:
        """Remove a node at once, whoever registered it; says whether it was there. Its `register` returns.

        Raises StoreUnavailable and TimedOut; Conflict when its record changes faster than it can be removed.
        """
        return self._store._call(lambda: self._inner.deregister(node_id), f"deregister of node {node_id}")

    def list_nodes(self) -> list[NodeInfo]:
        """The nodes that are there, by id. A record that cannot be read is left out, and logged."""
        return self._store._call(self._inner.list_nodes, "list_nodes")


class MembershipWatcher:
    """Tells of nodes that join and leave a cluster."""

    def __init__(self, store: Store, *, cluster: str = "default", chance: Chance | None = None) -> None:
        """Raises BadArgument."""
        self._store = store
        self._inner = AsyncMembershipWatcher(store._inner, cluster=cluster, chance=chance)

    def watch(self) -> News[NodeEvent]:
        """From now on; those that are there already are told first, as joined.

        After a lost watch or a compaction it tells what was missed, nothing twice.
        """
        return News(self._store, self._store._held().run(self._inner.watch), "the events of nodes")
