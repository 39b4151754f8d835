"""The work of the simulated workers: sums over a partition's messages, with one right state after each."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from hashlib import shake_256
from typing import Final

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
