"""The routing table in the store, for threads."""

from __future__ import annotations

from hansa.chance import Chance
from hansa.coordination.routing_table import RoutingTable
from hansa.coordination.routing_table import RoutingTableStore as AsyncRoutingTableStore
from hansa.limits import STORE_TIMEOUT_S
from hansa.sync.news import News
from hansa.sync.store import Store


class RoutingTableStore:
    """The one routing table of a cluster. It hangs on no lease: it stays when whoever saved it is gone."""

    def __init__(self, store: Store, *, cluster: str = "default", chance: Chance | None = None) -> None:
        """Raises BadArgument."""
        self._store = store
        self._inner = AsyncRoutingTableStore(store._inner, cluster=cluster, chance=chance)

    def save(self, table: RoutingTable, *, expected: int | None, timeout: float = STORE_TIMEOUT_S) -> int:
        """Save a table over the one of revision `expected` (0: over none); gives the new revision.

        None saves over whatever is there, if that is of a lower version. Raises Conflict when another table
        is there or its version is not lower; BadArgument for one that is too large; BadRecord when what is
        there is no table; TimedOut, after which it may have been saved; StoreUnavailable.
        """
        return self._store._call(
            lambda: self._inner.save(table, expected=expected, timeout=timeout), "save of the routing table"
        )

    def load(self, *, timeout: float = STORE_TIMEOUT_S) -> RoutingTable | None:
        """The table, with its revision; None without one. Raises BadRecord and what the store raises."""
        return self._store._call(lambda: self._inner.load(timeout=timeout), "load of the routing table")

    def watch(self) -> News[RoutingTable]:
        """The current table, if there is one, then each new one. Who reads slowly gets the latest."""
        return News(self._store, self._store._held().run(self._inner.watch), "the routing tables")
