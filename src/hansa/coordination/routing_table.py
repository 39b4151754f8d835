"""The routing table: which node has which partition; one process saves it, and all others watch it."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field
from typing import Any, Self

from hansa.coordination.following import Changed, Following, Snapshot
from hansa.coordination.member import from_json
from hansa.errors import BadArgument, BadRecord, Conflict
from hansa.keys import Keys
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.store import Store
from hansa.store.values import Compare, Put
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEntry:
    """A partition and its node: the keys from `key_range_start` to before `key_range_end` ("": no end)."""

    partition_id: str
    key_range_start: str = ""
    key_range_end: str = ""
    node_id: str = ""
    node_address: str = ""
    node_status: int = 0

    def __post_init__(self) -> None:
        texts = (self.partition_id, self.key_range_start, self.key_range_end, self.node_id, self.node_address)
        if not all(isinstance(text, str) for text in texts) or not self.partition_id:
            raise BadArgument(f"a route has texts, and a partition's id: {texts!r:.200}")
        if not isinstance(self.node_status, int) or isinstance(self.node_status, bool):
            raise BadArgument(f"partition {self.partition_id}: a node's status is a number")
        if self.key_range_end and self.key_range_end <= self.key_range_start:
            raise BadArgument(f"partition {self.partition_id}: its range ends before it begins")

    def to_object(self) -> dict[str, Any]:
        return {
            "partitionId": self.partition_id,
            "keyRangeStart": self.key_range_start,
            "keyRangeEnd": self.key_range_end,
            "nodeId": self.node_id,
            "nodeAddress": self.node_address,
            "nodeStatus": self.node_status,
        }

    @classmethod
    def from_object(cls, found: Any) -> RouteEntry:
        """Raises `BadRecord`."""
        if not isinstance(found, dict):
            raise BadRecord(f"no route: {found!r:.200}")
        try:
            return cls(
                partition_id=found["partitionId"],
                key_range_start=found.get("keyRangeStart", ""),
                key_range_end=found.get("keyRangeEnd", ""),
                node_id=found.get("nodeId", ""),
                node_address=found.get("nodeAddress", ""),
                node_status=found.get("nodeStatus", 0),
            )
        except (BadArgument, KeyError) as error:
            raise BadRecord(f"no route: {error!r:.200}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingTable:
    """All partitions. `version` grows with every table that is saved.

    `revision` is the store's when the table was read from it, 0 for one that was made here; it is not part of
    the table itself.
    """

    version: int
    entries: tuple[RouteEntry, ...] = ()
    revision: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "entries", tuple(self.entries))
        if not isinstance(self.version, int) or isinstance(self.version, bool) or self.version < 0:
            raise BadArgument(f"a table's version is a number from 0 on, not {self.version!r}")
        names = [entry.partition_id for entry in self.entries]
        if len(set(names)) < len(names):
            raise BadArgument(f"version {self.version}: a partition is in the table twice")

    def encode(self) -> bytes:
        """As JSON, for people to read in the store."""
        found = {"version": self.version, "entries": [entry.to_object() for entry in self.entries]}
        try:
            return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadArgument(f"version {self.version}: a text that cannot be written as UTF-8") from error

    @classmethod
    def decode(cls, value: bytes, *, revision: int = 0) -> RoutingTable:
        """Unknown fields are ignored. Raises `BadRecord`."""
        found = from_json(value, "the routing table")
        entries = found.get("entries", [])
        if not isinstance(entries, list):
            raise BadRecord("the routing table's entries are no list")
        try:
            return cls(
                version=found["version"],
                entries=tuple(RouteEntry.from_object(entry) for entry in entries),
                revision=revision,
            )
        except (BadArgument, KeyError) as error:
            raise BadRecord(f"no routing table: {error!r:.200}") from error


class RoutingTableStore:
    """The one routing table of a cluster. It is on no lease: it stays when the process that saved it ends."""

    def __init__(
        self, store: Store, *, cluster: str = "default", environment: Environment | None = None
    ) -> None:
        self._store = store
        self._key = Keys(cluster).routing
        self._environment = environment

    async def save(
        self, table: RoutingTable, *, expected: int | None, timeout: float = STORE_TIMEOUT_S
    ) -> int:
        """Save a table over the one of revision `expected` (0: there must be none); returns the new revision.

        With None it replaces any table of a lower version. Raises `Conflict` when another table is there or
        its version is not lower; `BadArgument` for one that is too large; `BadRecord` when what is there is
        no table; `TimedOut`, after which it may have been saved; `StoreUnavailable`.
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
        return RoutingTables(Following(self._store, self._key, exact=True, environment=self._environment))


class RoutingTables:
    """An async iterator of routing tables. Made by `RoutingTableStore.watch`, for one reader.

    A slow reader gets the latest: tables in between are left out, and counted. So are those that cannot be
    read. A step raises `AlreadyClosed` when the store was closed, and ends after `close`. Cancelling it loses
    no table.
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
        """Stop watching."""
        self._following.close()

    async def _hurry(self) -> None:
        """Take all tables that already wait."""
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
