"""A registry of nodes, and a watcher: register, remove and list nodes, and watch which join and leave."""

from __future__ import annotations

import logging
from collections import deque
from typing import Self

from hansa.clock import Clock
from hansa.coordination.following import Changed, Following, Snapshot, changes
from hansa.coordination.member import MemberEvent, MemberJoined, NodeInfo
from hansa.coordination.roster import RosterBook
from hansa.coordination.session import SessionKeeper
from hansa.coordination.stay import Stay, deregister
from hansa.errors import BadRecord
from hansa.keys import Keys
from hansa.runtime.tasks import TaskScope
from hansa.store.store import Store
from hansa.store.values import KeyValue
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)


class MembershipWatcher:
    """Reports the nodes that join and leave a cluster, as events of `Members`; it leaves suspicions out."""

    def __init__(
        self, store: Store, *, cluster: str = "default", environment: Environment | None = None
    ) -> None:
        self._store = store
        self._keys = Keys(cluster)
        self._environment = environment

    def watch(self) -> MembershipWatch:
        """Watch from now on; nodes that are there already are reported first, as joined."""
        following = Following(self._store, self._keys.nodes, environment=self._environment)
        return MembershipWatch(following, self._keys.nodes, self._store.clock)


class MembershipWatch:
    """An async iterator of `MemberJoined`, `MemberLeft`, `MemberDown`. Made by `MembershipWatcher.watch`.

    It is for one reader. After a lost watch or a compaction it reads all nodes and reports what was missed,
    nothing twice. A node that came and went meanwhile is not reported. A step raises `AlreadyClosed` when the
    store was closed, and ends after `close`. Cancelling a step loses no event.
    """

    def __init__(self, following: Following, prefix: bytes, clock: Clock) -> None:
        self._following = following
        self._prefix = prefix
        self._clock = clock
        self._book = RosterBook()
        self._waiting: deque[MemberEvent] = deque()
        self._here: set[str] = set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MemberEvent:
        while not self._waiting:
            news = await anext(self._following)
            events = record_events(self._book, news, self._prefix, self._clock)
            self._waiting.extend(filter(self._comes_or_goes, events))
        return self._waiting.popleft()

    def close(self) -> None:
        """Stop watching."""
        self._following.close()

    def _comes_or_goes(self, event: MemberEvent) -> bool:
        name = event.member.id
        if isinstance(event, MemberJoined):
            self._here.add(name)
            return True
        # A node that was about to go when the watch began was never reported as here.
        if event.member.is_here or name not in self._here:
            return False
        self._here.remove(name)
        return True


def record_events(
    book: RosterBook, news: Snapshot | Changed, prefix: bytes, clock: Clock
) -> list[MemberEvent]:
    """The events that follow from changed records of nodes, by the roster."""
    puts, deletes = by_id(news, prefix)
    return book.change_records(
        puts,
        deletes,
        revision=news.revision,
        is_after_gap=isinstance(news, Changed) and news.is_after_gap,
        now=clock.monotonic(),
        wall=clock.wall(),
    )


def by_id(news: Snapshot | Changed, prefix: bytes) -> tuple[list[tuple[str, KeyValue]], list[str]]:
    """The records that were put, and the ids whose records were deleted before that.

    A key whose end is no text is no node's record.
    """
    puts, deletes = (
        [(item.key[len(prefix) :].decode("utf-8", "replace"), item) for item in items]
        for items in changes(news)
    )
    return puts, [name for name, _ in deletes]


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
        self._store = store
        self._keys = Keys(cluster)
        self._ttl_s = ttl
        self._takeover = takeover
        self._environment = environment

    async def register(self, node: NodeInfo) -> str:
        """Register a node and keep it registered until cancelled; then its lease ends by itself.

        To end it at once, call `deregister` first. When the lease is lost it registers again, however long
        the store was away. It returns, with the reason, when the node was deregistered or replaced by a newer
        process. Raises `Conflict` for an id that is taken, without `takeover`; `BadArgument`,
        `AlreadyClosed`.
        """
        keeper = SessionKeeper(
            self._store,
            cluster=self._keys.cluster,
            node=node.id,
            ttl=self._ttl_s,
            name=f"member {node.id}",
            environment=self._environment,
        )
        stay = Stay(
            keeper,
            node,
            takeover=self._takeover,
            on_joined=lambda reason: logger.info("node %s %s", node.id, reason),
        )
        tasks = TaskScope(f"node {node.id}", _failed)
        try:
            await keeper.__aenter__()
            tasks.spawn(self._follow(stay, node.id), "its record")
            reason = await stay.run()
            await keeper.close(reason)
            return reason
        finally:
            await keeper.abandon()
            await tasks.close()

    async def deregister(self, node_id: str) -> bool:
        """Remove a node at once, whoever registered it; returns whether it was there.

        Its `register` returns. Raises `StoreUnavailable` and `TimedOut`; `Conflict` when its record changes
        faster than it can be removed.
        """
        return await deregister(self._store, self._keys.node(node_id), f"node {node_id}")

    async def list_nodes(self) -> list[NodeInfo]:
        """The nodes that are there, by id. A record that cannot be read is left out, and logged."""
        nodes = []
        for item in (await self._store.scan(self._keys.nodes)).items:
            try:
                node = NodeInfo.decode(item.value)
            except BadRecord as error:
                logger.warning("%r: %s", item.key, error)
                continue
            if node.status.is_here:
                nodes.append(node)
        return nodes

    async def _follow(self, stay: Stay, node_id: str) -> None:
        key = self._keys.node(node_id)

        def tell_stay() -> None:
            stay.hear(following.items.get(key), revision=following.revision)

        following = Following(self._store, key, exact=True, environment=self._environment, on_read=tell_stay)
        async for _ in following:
            tell_stay()


def _failed(error: BaseException) -> None:
    # `register` itself fails in the same way, and raises the error.
    logger.debug("a registration no longer follows its record: %s", error)
