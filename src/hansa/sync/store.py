"""The store, and what a cluster keeps in it, for threads."""

# Written by `python -m mirrors.build` from the asynchronous classes: change those, or mirrors/plan.py.

from __future__ import annotations

from collections.abc import Sequence

from hansa.clock import Clock
from hansa.coordination.fencing import FencedKey as AsyncFencedKey
from hansa.coordination.member import MemberEvent, NodeInfo
from hansa.coordination.nodes import MembershipWatcher as AsyncMembershipWatcher
from hansa.coordination.nodes import NodeRegistry as AsyncNodeRegistry
from hansa.coordination.routing_table import RoutingTable
from hansa.coordination.routing_table import RoutingTableStore as AsyncRoutingTableStore
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.values import Compare, KeyValue, LeaseInfo, Operation, Outcome, Scan, StoreStatus
from hansa.sync.mirror import OpeningStore
from hansa.sync.streams import News, Watch
from hansa.transport.environment import Environment


class Store(OpeningStore):
    """Keys with revisions, transactions, leases and watches. `open_store` makes one; use it with `with`.

    As the asynchronous store, for any number of threads. Every call ends by its deadline: `timeout` seconds
    from now (None waits for ever), then TimedOut, and the request may or may not have been carried out; the
    same holds for a call that is interrupted. StoreUnavailable says that nothing was done. Wrong arguments
    raise BadArgument. When the store is closed, calls that wait end with AlreadyClosed.
    """

    @property
    def clock(self) -> Clock:
        """The clock on which holders of leases count when they end."""
        return self._inner.clock

    def get(
        self, key: bytes | str, *, revision: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> KeyValue | None:
        """A key now, or at a revision; None when it is not there. Raises `Compacted`, `FutureRevision`.

        etcd tells only watches, not reads, what it still remembers: `compacted_revision` is 0 there.
        """
        return self._call(lambda: self._inner.get(key, revision=revision, timeout=timeout), "get")

    def scan(
        self,
        prefix_or_key: bytes | str,
        range_end: bytes | str | None = None,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Scan:
        """All keys with a prefix, or from a key to `range_end`. Raises `Compacted`, `FutureRevision`."""
        return self._call(
            lambda: self._inner.scan(
                prefix_or_key, range_end, limit=limit, revision=revision, keys_only=keys_only, timeout=timeout
            ),
            "scan",
        )

    def put(
        self, key: bytes | str, value: bytes, *, lease: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> int:
        """Set a key; returns the revision. Raises `LeaseLost`."""
        return self._call(lambda: self._inner.put(key, value, lease=lease, timeout=timeout), "put")

    def delete(self, key: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> bool:
        """Delete a key; returns whether it was there."""
        return self._call(lambda: self._inner.delete(key, timeout=timeout), "delete")

    def delete_prefix(self, prefix: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Delete all keys with a prefix, in one revision; returns how many there were."""
        return self._call(lambda: self._inner.delete_prefix(prefix, timeout=timeout), "delete_prefix")

    def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        """Carry out `then` if all compares hold, else `otherwise`; whole or not. Raises `LeaseLost`."""
        return self._call(lambda: self._inner.commit(compares, then, otherwise, timeout=timeout), "commit")

    def grant(self, ttl: float, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Grant a new lease; returns its number. An engine may grant it for longer: see `lease_info`."""
        return self._call(lambda: self._inner.grant(ttl, timeout=timeout), "grant")

    def keep_alive(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> float:
        """Start a lease's time again; returns how many seconds it has. Raises `LeaseLost`."""
        return self._call(lambda: self._inner.keep_alive(lease, timeout=timeout), "keep_alive")

    def revoke(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """End a lease and delete its keys, in one revision. Raises `LeaseLost`."""
        self._call(lambda: self._inner.revoke(lease, timeout=timeout), "revoke")

    def lease_info(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> LeaseInfo | None:
        """The remaining time of a lease, and its keys; None when it is gone."""
        return self._call(lambda: self._inner.lease_info(lease, timeout=timeout), "lease_info")

    def compact(self, revision: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """Forget what no read at this revision or later sees. Raises `Compacted`, `FutureRevision`."""
        self._call(lambda: self._inner.compact(revision, timeout=timeout), "compact")

    def watch(
        self, prefix: bytes | str, *, start_revision: int = 0, before: bool = False, exact: bool = False
    ) -> Watch:
        """The changes of all keys with a prefix, or of one key (`exact`), from a revision on (0: from now).

        `before` adds to each event the key as it was before. The watch raises errors, not this call.
        """
        return self._held().run(
            lambda: Watch(
                self, self._inner.watch(prefix, start_revision=start_revision, before=before, exact=exact)
            )
        )

    def status(self, *, timeout: float | None = STORE_TIMEOUT_S) -> StoreStatus:
        """Which store answers, and how far it is."""
        return self._call(lambda: self._inner.status(timeout=timeout), "status")


class FencedKey:
    """A key in a store, and beside it, with `/fence` at its end, the highest fence that was shown.

    The fences of one key come from one lock or one election. The value is stored as it is, byte by byte:
    anybody can read it with `store.get`.
    """

    def __init__(self, store: Store, key: bytes | str) -> None:
        """Raises BadArgument."""
        self._store = store
        self._inner = AsyncFencedKey(store._inner, key)

    @property
    def key(self) -> bytes:
        """Where the value is."""
        return self._inner.key

    @property
    def fence_key(self) -> bytes:
        """Where the highest fence is."""
        return self._inner.fence_key

    def take(self, fence: int, *, timeout: float | None = STORE_TIMEOUT_S) -> bytes | None:
        """Raise the fence, then read the value, in one transaction; None when there is none yet.

        Taking again with the same fence is fine. Raises `StaleFence`; also `TimedOut` and `StoreUnavailable`:
        then take again.
        """
        return self._store._call(lambda: self._inner.take(fence, timeout=timeout), f"take of {self.key!r}")

    def write(self, fence: int, value: bytes, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Set the value, if it and the fence are as this object's last call left them; returns the revision.

        Raises `StaleFence` when a newer owner has raised the fence, `NotHeld` when this one was never taken
        here. After `TimedOut` the value may have been written, now or later: `take` with the same fence
        again, and write again. Then the write that was given up is refused if it arrives after the new one.
        `Conflict` says that it arrived in between, or that the store went back in time after the `take`: take
        again.
        """
        return self._store._call(
            lambda: self._inner.write(fence, value, timeout=timeout), f"write of {self.key!r}"
        )


class NodeRegistry:
    """The nodes of a cluster, each with a lease of `ttl` seconds.

    An id belongs to the process that registered it last: a restarted process does not wait for its
    predecessor's lease, and a predecessor that still lives stops. With `takeover=False` the id stays with the
    first process.
    """

    def __init__(
        self,
        store: Store,
        *,
        cluster: str = "default",
        ttl: float = 10.0,
        takeover: bool = True,
        environment: Environment | None = None,
    ) -> None:
        """Raises BadArgument."""
        self._store = store
        self._inner = AsyncNodeRegistry(
            store._inner, cluster=cluster, ttl=ttl, takeover=takeover, environment=environment
        )

    def register(self, node: NodeInfo) -> str:
        """Register a node and keep it registered: give it a thread of its own.

        It returns, with the reason, when the node was deregistered or replaced by a newer process. An
        interrupt stops the renewals, and the lease ends by itself; so does closing the store, with
        AlreadyClosed. When the lease is lost it registers again, however long the store was away. Raises
        Conflict for an id that is taken, without `takeover`; BadArgument.
        """
        return self._store._call(lambda: self._inner.register(node), "register of the node registry")

    def deregister(self, node_id: str) -> bool:
        """Remove a node at once, whoever registered it; returns whether it was there.

        Its `register` returns. Raises `StoreUnavailable` and `TimedOut`; `Conflict` when its record changes
        faster than it can be removed.
        """
        return self._store._call(lambda: self._inner.deregister(node_id), "deregister of the node registry")

    def list_nodes(self) -> list[NodeInfo]:
        """The nodes that are there, by id. A record that cannot be read is left out, and logged."""
        return self._store._call(self._inner.list_nodes, "list_nodes of the node registry")


class MembershipWatcher:
    """Reports the nodes that join and leave a cluster, as events of `Members`; it leaves suspicions out."""

    def __init__(
        self, store: Store, *, cluster: str = "default", environment: Environment | None = None
    ) -> None:
        """Raises BadArgument."""
        self._store = store
        self._inner = AsyncMembershipWatcher(store._inner, cluster=cluster, environment=environment)

    def watch(self) -> News[MemberEvent]:
        """Watch from now on; nodes that are there already are reported first, as joined."""
        return self._store._held().run(lambda: News(self._store, self._inner.watch(), "the events of nodes"))


class RoutingTableStore:
    """The one routing table of a cluster. It is on no lease: it stays when the process that saved it ends."""

    def __init__(
        self, store: Store, *, cluster: str = "default", environment: Environment | None = None
    ) -> None:
        """Raises BadArgument."""
        self._store = store
        self._inner = AsyncRoutingTableStore(store._inner, cluster=cluster, environment=environment)

    def save(self, table: RoutingTable, *, expected: int | None, timeout: float = STORE_TIMEOUT_S) -> int:
        """Save a table over the one of revision `expected` (0: there must be none); returns the new revision.

        With None it replaces any table of a lower version. Raises `Conflict` when another table is there or
        its version is not lower; `BadArgument` for one that is too large; `BadRecord` when what is there is
        no table; `TimedOut`, after which it may have been saved; `StoreUnavailable`.
        """
        return self._store._call(
            lambda: self._inner.save(table, expected=expected, timeout=timeout), "save of the routing table"
        )

    def load(self, *, timeout: float = STORE_TIMEOUT_S) -> RoutingTable | None:
        """The table, with its revision; None without one. Raises `BadRecord` and what the store raises."""
        return self._store._call(lambda: self._inner.load(timeout=timeout), "load of the routing table")

    def watch(self) -> News[RoutingTable]:
        """The current table, if there is one, then each new one. A slow reader gets the latest."""
        return self._store._held().run(lambda: News(self._store, self._inner.watch(), "the routing tables"))
