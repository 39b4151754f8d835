"""What a component needs from the world around it, as one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hansa.chance import Chance
from hansa.clock import Clock, SystemClock
from hansa.transport.options import SocketOptions, Tls

if TYPE_CHECKING:
    from hansa.transport.network import Network


class Environment:
    """Network, clock, chance, TLS and socket options. What is not given is the system's own.

    A process usually has one and gives it to all its components; in the simulator each host has one. It never
    changes: `fork` and `but` give another one.
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
        """What sockets stand on: the one that was given, or a new one that has read the files of `tls` now.

        So a component that begins after certificates were renewed uses the new ones. Raises BadArgument for
        files that cannot be read.
        """
        if self._network is not None:
            return self._network
        from hansa.transport.system_network import SystemNetwork  # It loads ssl.

        return SystemNetwork(self.tls, handshake_s_max=self.options.handshake_s_max)

    def fork(self, name: str) -> Environment:
        """The same world, with draws of its own: they depend on the seed and on this name alone."""
        return self._but(self.options, self.chance.fork(name))

    def but(self, *, options: SocketOptions) -> Environment:
        """The same world, with other socket options."""
        return self._but(options, self.chance)

    def _but(self, options: SocketOptions, chance: Chance) -> Environment:
        return Environment(
            tls=self.tls, options=options, network=self._network, clock=self.clock, chance=chance
        )
