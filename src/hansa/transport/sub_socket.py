"""SUB: messages whose first part starts with a wanted prefix."""

from __future__ import annotations

from collections import Counter
from typing import Unpack

from hansa.errors import BadArgument
from hansa.limits import TOPIC_BYTES_MAX
from hansa.transport.connection import Connection
from hansa.transport.lane import Lane
from hansa.transport.outbound_socket import Outbound
from hansa.transport.subscriptions import Subscriptions
from hansa.transport.zmtp_socket import SocketSettings, ZmtpSocket


class Sub(ZmtpSocket):
    """Subscribes at every publisher it is or will be connected to. The empty prefix wants everything."""

    socket_type = "SUB"
    peers_have_names = False

    def __init__(self, **settings: Unpack[SocketSettings]) -> None:
        super().__init__(**settings)
        self._wanted: Counter[bytes] = Counter()
        # The same, to match by: one look-up a length instead of one comparison a prefix.
        self._prefixes: Subscriptions[Sub] = Subscriptions()
        self._filtering = False

    def subscribe(self, prefix: bytes) -> None:
        """Counted: two equal subscriptions need two `unsubscribe`s. Raises BadArgument."""
        self._check_open()
        if len(prefix) > TOPIC_BYTES_MAX:
            raise BadArgument(f"a prefix has at most {TOPIC_BYTES_MAX} bytes, not {len(prefix)}")
        if prefix not in self._wanted and len(self._wanted) >= self.options.subscriptions_max:
            raise BadArgument(f"{self.name} has {len(self._wanted)} subscriptions, which is the most")
        self._wanted[prefix] += 1
        if self._wanted[prefix] == 1:
            self._prefixes.add(self, prefix)
            self._tell_all(prefix, wanted=True)

    def unsubscribe(self, prefix: bytes) -> None:
        """Raises BadArgument when there is no such subscription."""
        self._check_open()
        if prefix not in self._wanted:
            raise BadArgument(f"{self.name} has no subscription to {prefix!r}")
        self._wanted[prefix] -= 1
        if not self._wanted[prefix]:
            del self._wanted[prefix]
            self._prefixes.remove(self, prefix)
            self._filtering = True
            self._tell_all(prefix, wanted=False)

    def connection_received(self, connection: Connection, messages: list[list[bytes]]) -> None:
        """What was on its way when its subscription was cancelled is passed over, counted."""
        if self._filtering:  # Publishers filter, so only a socket that has ever unsubscribed needs to.
            wanted = [parts for parts in messages if self._prefixes.matching(parts[0])]
            self._tally.ignored_count += len(messages) - len(wanted)
            messages = wanted
        if messages:
            super().connection_received(connection, messages)

    def _tell_all(self, prefix: bytes, *, wanted: bool) -> None:
        for connection in self._connected.values():
            if connection.is_ready:
                connection.write(connection.link.subscription(prefix, wanted=wanted))

    def _lanes_all(self) -> list[Lane]:
        return []

    def _join(self, connection: Connection, outbound: Outbound | None, former: Lane | None) -> Lane:
        for prefix in self._wanted:
            connection.write(connection.link.subscription(prefix, wanted=True))
        return Lane(connection.peer, self.options)

    def _leave(self, connection: Connection, lane: Lane, outbound: Outbound | None) -> int:
        return 0
