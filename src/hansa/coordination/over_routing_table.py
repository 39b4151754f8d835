"""The routing table in the store: saved by one who decides, watched by all who follow."""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from hansa.chance import Chance
from hansa.coordination.following import Changed, Snapshot
from hansa.coordination.keys import Keys
from hansa.coordination.over_following import Following
from hansa.coordination.routing_table import RoutingTable
from hansa.errors import BadRecord, Conflict
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.store import Store
from hansa.store.values import Compare, Put

logger = logging.getLogger(__name__)


class RoutingTableStore:
    """The one routing table of a cluster. It hangs on no lease: it stays when whoever saved it is gone."""

    def __init__(self, store: Store, *, cluster: str = "default", chance: Chance | None = None) -> None:
        self._store = store
        self._key = Keys(cluster).routing
        self._chance = chance

    async def save(
        self, table: RoutingTable, *, expected: int | None, timeout: float = STORE_TIMEOUT_S
    ) -> int:
        """Save a table over the one of revision `expected` (0: over none); gives the new revision.

        None saves over whatever is there, if that is of a lower version. Raises `Conflict` when another table
        is there or its version is not lower; `BadArgument` for one that is too large; `BadRecord` when what
        is there is no table; `TimedOut`, after which it may have been saved; `StoreUnavailable`.
        """
        put = Put(self._key, table.encode())
        found = await self._store.get(self._key, timeout=timeout)
        revision = 0 if found is None else found.mod_revision
        if expected is not None and expected != revision:
            raise Conflict(f"the routing table is of revision {revision}, not {expected}: load it again")
        if found is not None:
            before = RoutingTable.decode(found.value)
            if table.version <= before.version:
                raise Conflict(f"the routing table has version {before.version}; {table.version} is no newer")
        # An absent key has revision 0.
        same = Compare.revision(self._key, "=", revision)
        outcome = await self._store.commit([same], [put], timeout=timeout)
        if not outcome.is_success:
            raise Conflict("another routing table was saved at the same time: load it again")
        return outcome.revision

    async def load(self, *, timeout: float = STORE_TIMEOUT_S) -> RoutingTable | None:
        """The table, with its revision; None without one. Raises `BadRecord` and what the store raises."""
        found = await self._store.get(self._key, timeout=timeout)
        return None if found is None else RoutingTable.decode(found.value, revision=found.mod_revision)

    def watch(self) -> RoutingTables:
        """The current table, if there is one, then each new one."""
        return RoutingTables(Following(self._store, self._key, exact=True, chance=self._chance))


class RoutingTables:
    """An async iterator of routing tables. Made by `RoutingTableStore.watch`, for one reader.

    Who reads slowly gets the latest: tables in between are left out, and counted. So are those that cannot be
    read. A step raises `AlreadyClosed` when the store was closed, and ends after `close`. Cancelling it takes
    nothing out.
    """

    def __init__(self, following: Following) -> None:
        self._following = following
        self._next: RoutingTable | None = None
        self.skipped_count = 0
        self.bad_records_count = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RoutingTable:
        while self._next is None:
            self._take(await anext(self._following))
        await self._hurry()
        table, self._next = self._next, None
        return table

    def close(self) -> None:
        """Watch no more."""
        self._following.close()

    async def _hurry(self) -> None:
        """Take what waits already."""
        try:
            async with asyncio.timeout(0):
                while True:
                    self._take(await anext(self._following))
        except (TimeoutError, StopAsyncIteration):
            return

    def _take(self, news: Snapshot | Changed) -> None:
        for item in news.items.values() if isinstance(news, Snapshot) else news.puts:
            try:
                table = RoutingTable.decode(item.value, revision=item.mod_revision)
            except BadRecord as error:
                self.bad_records_count += 1
                logger.warning("revision %d: %s", item.mod_revision, error)
                continue
            if self._next is not None:
                self.skipped_count += 1
            self._next = table
