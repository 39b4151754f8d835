"""The facts by which a group that shares work out is judged: by the work itself, and by the store's keys.

The work on a partition is a running sum over its messages, with one state for each last offset
(`RunningSums`): so a saved state shows whether it includes each message once, and in order. What a handoff
and a node's record say is read here, by rules of its own.

A leader decides by what it has heard, and its requests may come late: it may still act on what a judge knows
to be over. So facts that leaders go by are kept with their late values (`Lately`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import shake_256
from typing import Final, Generic, TypeVar

from hansa.assignment.partition import Partition
from hansa.assignment.topology import WorkerInfo
from hansa.coordination.member import NodeInfo
from hansa.store.values import KeyValue

__all__ = ["GRACE_S", "KnownNode", "Lately", "RunningSums", "SavedHead", "saved_state"]

T = TypeVar("T")

# The time for a leader to hear, decide, send and be late: longer than any lease, and any message's way.
GRACE_S: Final = 6.0
# So large that no record holds the state.
LARGE_BYTES: Final = 9_000


class RunningSums:
    """The work: each partition's messages, and the state after each. `large` partitions have large states."""

    def __init__(self, large: Iterable[str]) -> None:
        self._large = frozenset(large)
        self._states: dict[str, list[bytes]] = {}

    def after(self, partition: str, last_offset: int) -> bytes:
        """The only right state after this offset; empty before the first message."""
        if last_offset < 0:
            return b""
        states = self._states.setdefault(partition, [])
        while len(states) <= last_offset:
            states.append(self.step(partition, states[-1] if states else b"", len(states)))
        return states[last_offset]

    def step(self, partition: str, state: bytes, offset: int) -> bytes:
        """Do the work for one message: the sum, and a check of the order."""
        count, total, order = map(int, state.split(b" ")[:3]) if state else (0, 0, 0)
        message = f"{partition}:{offset}".encode()
        total += zlib.crc32(message) % 1000
        order = zlib.crc32(message, order)
        stem = b"%d %d %d " % (count + 1, total, order)
        return stem + (shake_256(stem).digest(LARGE_BYTES) if partition in self._large else b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHead:
    """What a handoff says of itself: who saved it, as an epoch and a number, and up to which message."""

    epoch: int = 0
    number: int = 0
    last_offset: int = -1

    @classmethod
    def of(cls, item: KeyValue) -> SavedHead:
        head = json.loads(item.value.partition(b"\n")[0])
        return cls(epoch=head["epoch"], number=head["number"], last_offset=head["lastOffset"])


def saved_state(item: KeyValue) -> tuple[str, bytes | None]:
    """The node that saved a handoff, and its state; None if the state is in a blob."""
    first, _, body = item.value.partition(b"\n")
    head = json.loads(first)
    if head["blob"]:
        return head["node"], None
    content = zlib.decompress(body) if head["isCompressed"] else body
    return head["node"], content.partition(b"\n")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNode:
    """What the store says of a node: the lease of its record, and whether it works for the group."""

    lease: int = 0
    info: NodeInfo | None = None
    worker: WorkerInfo | None = None

    def may_own(self, partition: Partition | None) -> bool:
        """Whether the node may have a partition, by its role, resource group and pin."""
        if partition is None or self.info is None or self.worker is None:
            return False
        return (
            partition.role in ("", *self.info.roles)
            and partition.resource_group in ("", *self.worker.resource_groups)
            and partition.pinned in ("", self.info.id)
        )

    @property
    def is_willing(self) -> bool:
        return self.worker is not None and not self.worker.is_draining


class Lately(Generic[T]):
    """A value, and the values that it had a while ago."""

    def __init__(self, value: T) -> None:
        self.now = value
        self._past: list[tuple[T, float]] = []

    def set(self, value: T, *, at_s: float) -> None:
        self._past = [(old, until_s) for old, until_s in self._past if until_s >= at_s - GRACE_S]
        self._past.append((self.now, at_s))
        self.now = value

    def all(self, *, at_s: float) -> Iterator[T]:
        """The values of the last while, the newest first."""
        yield self.now
        for old, until_s in reversed(self._past):
            if until_s >= at_s - GRACE_S:
                yield old
