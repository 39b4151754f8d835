"""Which node has which partition, as one value."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hansa.coordination.node_info import from_json
from hansa.errors import BadArgument, BadRecord

__all__ = ["RouteEntry", "RoutingTable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteEntry:
    """A partition: its keys from `key_range_start` to before `key_range_end` ("": no end), and its node."""

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

    `revision` is the store's when the table was read from it, 0 for one that was made here; it is no part of
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
