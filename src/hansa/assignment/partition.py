"""A partition, the part of a group's work that one worker has, and the settings of a group: values. Pure.

A group is a name that workers share. The store has a record for each partition, written by whoever knows what
work there is, and a record of the group's settings. The planner goes by both.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from hansa.coordination.member import from_json
from hansa.errors import BadArgument, BadRecord
from hansa.keys import as_name
from hansa.limits import (
    ASSIGNMENT_JOIN_DELAY_S,
    ASSIGNMENT_MOVES_AT_ONCE,
    ASSIGNMENT_REBALANCE_S,
    ASSIGNMENT_RESOURCES_COUNT_MAX,
    BLOB_BYTES_MAX,
    HANDOFF_INLINE_BYTES_MAX,
    HANDOVER_S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A part of a group's work that one worker has at a time. Raises `BadArgument` for impossible values.

    `weight` is how much work it is, compared with the others. Only workers with the `role` and in the
    `resource_group` may have it; workers in the `zone` are preferred. `pinned` names the only node that may
    have it: while that node is away, nobody has the partition. `resources` are the ids of what belongs to it,
    for example machines; a worker gets them with the partition.
    """

    name: str
    weight: int = 1
    role: str = ""
    zone: str = ""
    resource_group: str = ""
    pinned: str = ""
    resources: tuple[str, ...] = ()
    revision: int = field(default=0, compare=False)
    """The revision of its record, if it was read from the store."""

    def __post_init__(self) -> None:
        as_name(self.name, "a partition")
        if not isinstance(self.weight, int) or isinstance(self.weight, bool) or self.weight < 1:
            raise BadArgument(f"partition {self.name}: weight {self.weight!r}; give a number from 1 on")
        if isinstance(self.resources, str):
            raise BadArgument(f"partition {self.name}: resources are ids: write ({self.resources!r},)")
        object.__setattr__(self, "resources", tuple(sorted(set(self.resources))))
        for text in (self.role, self.zone, self.resource_group, self.pinned, *self.resources):
            if not isinstance(text, str):
                raise BadArgument(f"partition {self.name}: {text!r} is no text")
        if len(self.resources) > ASSIGNMENT_RESOURCES_COUNT_MAX:
            raise BadArgument(
                f"partition {self.name}: {len(self.resources)} resources;"
                f" it has at most {ASSIGNMENT_RESOURCES_COUNT_MAX}"
            )

    def to_object(self) -> dict[str, Any]:
        """The object that becomes JSON."""
        return {
            "name": self.name,
            "weight": self.weight,
            "role": self.role,
            "zone": self.zone,
            "resourceGroup": self.resource_group,
            "pinned": self.pinned,
            "resources": list(self.resources),
        }

    def encode(self) -> bytes:
        """As JSON, compressed if it has very many resources."""
        plain = json.dumps(self.to_object(), separators=(",", ":")).encode()
        return plain if len(plain) <= HANDOFF_INLINE_BYTES_MAX else zlib.compress(plain)

    @classmethod
    def decode(cls, value: bytes, *, revision: int = 0) -> Partition:
        """Unknown fields are ignored: newer versions may write more. Raises `BadRecord`."""
        found = from_json(_plain(value), "a partition")
        try:
            return cls(
                name=found["name"],
                weight=found.get("weight", 1),
                role=found.get("role", ""),
                zone=found.get("zone", ""),
                resource_group=found.get("resourceGroup", ""),
                pinned=found.get("pinned", ""),
                resources=tuple(found.get("resources", ())),
                revision=revision,
            )
        except (BadArgument, KeyError, TypeError) as error:
            raise BadRecord(f"no record of a partition: {error!r:.200}") from error


def _plain(value: bytes) -> bytes:
    """The JSON of a record, unpacked: it begins with a brace, zlib output never does. Raises `BadRecord`."""
    if value[:1] == b"{":
        return value
    try:
        return zlib.decompressobj().decompress(value, BLOB_BYTES_MAX)
    except zlib.error as error:
        raise BadRecord(f"no record of a partition: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """How a group's work is shared out. Raises `BadArgument` for impossible values.

    At most `moves_at_once` partitions move from one working owner to another at a time. A node has at most
    `per_node_max` partitions (None: no limit). Nothing moves for the sake of balance until `join_delay`
    seconds after the last join; a partition without an owner is placed at once. Every `rebalance_interval`
    seconds the leader checks again whether all is as planned. `handover_timeout` limits one move. Nodes in
    `draining` are to give everything up.
    """

    moves_at_once: int = ASSIGNMENT_MOVES_AT_ONCE
    per_node_max: int | None = None
    join_delay: float = ASSIGNMENT_JOIN_DELAY_S
    rebalance_interval: float = ASSIGNMENT_REBALANCE_S
    handover_timeout: float = HANDOVER_S
    draining: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "draining", frozenset(self.draining))
        if self.moves_at_once < 1:
            raise BadArgument(f"moves_at_once {self.moves_at_once}: give 1 or more")
        if self.per_node_max is not None and self.per_node_max < 1:
            raise BadArgument(f"per_node_max {self.per_node_max}: give 1 or more, or None for no limit")
        for name in ("join_delay", "rebalance_interval", "handover_timeout"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0.0) or (value == 0.0 and name != "join_delay"):
                raise BadArgument(f"{name} {value}: give seconds")

    def with_draining(self, nodes: Iterable[str]) -> GroupSettings:
        """These settings, with exactly these nodes draining."""
        return replace(self, draining=frozenset(nodes))

    def to_object(self) -> dict[str, Any]:
        """The object that becomes JSON."""
        return {
            "movesAtOnce": self.moves_at_once,
            "perNodeMax": self.per_node_max,
            "joinDelay": self.join_delay,
            "rebalanceInterval": self.rebalance_interval,
            "handoverTimeout": self.handover_timeout,
            "draining": sorted(self.draining),
        }

    def encode(self) -> bytes:
        return json.dumps(self.to_object(), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> GroupSettings:
        """Unknown fields are ignored. Raises `BadRecord`."""
        found = from_json(value, "a group's settings")
        names: Mapping[str, str] = {
            "movesAtOnce": "moves_at_once",
            "perNodeMax": "per_node_max",
            "joinDelay": "join_delay",
            "rebalanceInterval": "rebalance_interval",
            "handoverTimeout": "handover_timeout",
            "draining": "draining",
        }
        try:
            return cls(**{field_: found[name] for name, field_ in names.items() if name in found})
        except (BadArgument, TypeError, ValueError) as error:
            raise BadRecord(f"no settings of a group: {error!r:.200}") from error
