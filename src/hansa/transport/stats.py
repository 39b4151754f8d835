"""What a socket has counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketStats:
    """A snapshot. `ended` counts connections by the reason of their end, refused ones included.

    `sent_count` messages were accepted for sending; of these `unsent_count` were lost in our buffer and
    `in_doubt_count` were handed to a connection that broke before they were confirmed. `dropped_count` were
    not accepted because a buffer was full. `ignored_count` arrived where nothing may (at a PUB), or after its
    subscription was cancelled (at a SUB).
    """

    sent_count: int
    received_count: int
    dropped_count: int
    unsent_count: int
    in_doubt_count: int
    ignored_count: int
    connections_count: int
    handshaking_count: int
    inbox_count: int
    events_dropped_count: int
    ended: dict[str, int]


@dataclass(slots=True, kw_only=True)
class Tally:
    """Running counts of what is no longer there to be asked: ended connections, closed lanes."""

    sent_count: int = 0
    received_count: int = 0
    dropped_count: int = 0
    unsent_count: int = 0
    in_doubt_count: int = 0
    ignored_count: int = 0
    events_dropped_count: int = 0
    ended: Counter[str] = field(default_factory=Counter)
