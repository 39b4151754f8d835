"""The environment of a component: how its sockets behave, and what it needs from the world, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from hansa import limits
from hansa.chance import Chance
from hansa.clock import Clock, SystemClock
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
    in use replace the first; otherwise it is refused. `linger` bounds how long `close` waits until posted
    messages are written and confirmed. Messages posted in one turn of the loop leave in one write at its end,
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


if TYPE_CHECKING:
    from hansa.transport.network import Network


class Environment:
    """Network, clock, chance, TLS and socket options. Parts that are not given are the system's own.

    A process usually has one and gives it to all its components; in the simulator each host has one. It never
    changes: `fork` and `but` return another one.
    """

    __slots__ = ("_network", "chance", "clock", "options", "tls")

    def __init__(
        self,
        *,
        tls: Tls | None = None,
        options: SocketOptions | None = None,
        network: Network | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        self.tls = tls
        self.options = options or SocketOptions()
        self.clock = clock or SystemClock()
        self.chance = chance or Chance.system()
        self._network = network

    @property
    def network(self) -> Network:
        """The network for sockets: the given one, or a new one that has just read the files of `tls`.

        So a component that starts after certificates were renewed uses the new ones. Raises BadArgument for
        files that cannot be read.
        """
        if self._network is not None:
            return self._network
        from hansa.transport.system_network import SystemNetwork  # Imported here because it loads ssl.

        return SystemNetwork(self.tls, handshake_s_max=self.options.handshake_s_max)

    def fork(self, name: str) -> Environment:
        """The same environment, with random draws of its own: they depend on the seed and this name alone."""
        return self._but(self.options, self.chance.fork(name))

    def but(self, *, options: SocketOptions) -> Environment:
        """The same environment, with other socket options."""
        return self._but(options, self.chance)

    def _but(self, options: SocketOptions, chance: Chance) -> Environment:
        return Environment(
            tls=self.tls, options=options, network=self._network, clock=self.clock, chance=chance
        )
