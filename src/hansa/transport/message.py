"""A received message."""

from __future__ import annotations

from typing import NamedTuple


class Message(NamedTuple):
    """The parts that a peer sent together, and the peer's id. A tuple, because one is made per message."""

    peer: bytes
    parts: list[bytes]
