"""Free ports for processes that cannot choose one themselves and tell it."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress

from hansa.errors import AddressInUse
from hansa.store.raft.member_settings import listening


class HeldPorts:
    """Ports that nobody else gets: each is bound by a socket that never listens.

    The kernel gives such a port to nobody who asks for any port, and lets in those who ask for this one, as
    long as both say SO_REUSEADDR, which etcd does. So a member that is started again finds its port free.
    """

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def settle(self, address: str, listen_host: str = "") -> str:
        """Hold the address, with a real port if it had 0. Raises `AddressInUse`."""
        host = address.rpartition(":")[0]
        bound_host, _, port = listening(address, listen_host).rpartition(":")
        bound_host = bound_host.strip("[]")
        family = socket.AF_INET6 if ":" in bound_host else socket.AF_INET
        holding = socket.socket(family, socket.SOCK_STREAM)
        try:
            holding.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holding.bind((bound_host, int(port)))
        except OSError as error:
            holding.close()
            raise AddressInUse(f"nobody can listen at {bound_host}:{port} for {address}: {error}") from error
        if sys.platform == "linux":
            self._sockets.append(holding)
        else:
            # Elsewhere a bound socket keeps everybody out, also those it is held for.
            port = str(holding.getsockname()[1])
            holding.close()
            return f"{host}:{port}"
        return f"{host}:{holding.getsockname()[1]}"

    def close(self) -> None:
        for holding in self._sockets:
            with suppress(OSError):
                holding.close()
        self._sockets.clear()
