"""How a socket behaves: its bounds, its policies, its credentials."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hansa import limits
from hansa.errors import BadArgument


class Overflow(Enum):
    """What `send` does when a peer's outgoing buffer is full. `post` never waits: under BLOCK it fails."""

    BLOCK = "block"
    DROP = "drop"
    FAIL = "fail"


class Away(Enum):
    """What becomes of messages while the peer of a connecting socket is away."""

    WAIT = "wait"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files of a certificate, its key and the authority that both sides trust. TLS is always mutual."""

    cert: str
    key: str
    ca: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketOptions:
    """Bounds and policies of one socket; per peer unless the name says otherwise.

    An interval of None turns heartbeats off. A full inbox (`incoming_*`, of the whole socket) stops reading
    from the peers, so that they feel it and nothing is lost. `takeover` lets a second peer that claims an id
    in use replace the first; otherwise it is refused. `linger` bounds how long `close` waits for what was
    posted to be written and confirmed. What is posted in one turn of the loop leaves in one write at its end,
    but `burst_count` messages leave at once: fewer make the peer begin earlier, and cost more writes.
    """

    outgoing_bytes_max: int = limits.OUTGOING_BYTES_MAX
    outgoing_count_max: int = limits.OUTGOING_COUNT_MAX
    burst_count: int = limits.OUTGOING_COUNT_MAX
    overflow: Overflow = Overflow.BLOCK
    away: Away = Away.WAIT
    incoming_count_max: int = limits.INCOMING_COUNT_MAX
    incoming_bytes_max: int = limits.INCOMING_BYTES_MAX
    heartbeat_interval: float | None = limits.HEARTBEAT_INTERVAL_S
    heartbeat_timeout: float = limits.HEARTBEAT_TIMEOUT_S
    handshake_s_max: float = limits.HANDSHAKE_S_MAX
    reconnect_s_min: float = limits.RECONNECT_S_MIN
    reconnect_s_max: float = limits.RECONNECT_S_MAX
    reconnect_jitter: float = limits.RECONNECT_JITTER
    frame_bytes_max: int = limits.FRAME_BYTES_MAX
    message_bytes_max: int = limits.MESSAGE_BYTES_MAX
    parts_max: int = limits.PARTS_MAX
    subscriptions_max: int = limits.SUBSCRIPTIONS_MAX
    connections_max: int = limits.CONNECTIONS_MAX
    handshaking_max: int = limits.HANDSHAKING_MAX
    events_count_max: int = limits.EVENTS_COUNT_MAX
    takeover: bool = False
    linger: float = limits.LINGER_S

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool):
                continue
            if value < 0 or (value == 0 and name not in ("linger", "reconnect_jitter")):
                raise BadArgument(f"SocketOptions.{name} is {value}; it must be positive")
        if self.frame_bytes_max < 255:
            raise BadArgument(f"SocketOptions.frame_bytes_max is {self.frame_bytes_max}; 255 is the least")
        if self.heartbeat_interval is not None and self.heartbeat_timeout < self.heartbeat_interval:
            raise BadArgument(
                f"SocketOptions.heartbeat_timeout is {self.heartbeat_timeout}, shorter than "
                f"heartbeat_interval ({self.heartbeat_interval}): every quiet peer would be given up"
            )
