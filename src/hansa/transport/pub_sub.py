"""PUB: every message goes to all peers that subscribed to a prefix of its first part. SUB: receives those."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Unpack

from hansa.errors import BadArgument
from hansa.limits import TOPIC_BYTES_MAX, WRITE_TURN_BYTES
from hansa.transport.connection import Connection, Lane
from hansa.transport.events import CloseReason
from hansa.transport.outbound_socket import Outbound
from hansa.transport.outbox import BURST, FULL, ROUSE, Outbox
from hansa.transport.subscriptions import TURN_COUNT_MAX, Fan, Subscriptions
from hansa.transport.zmtp_socket import SocketSettings, ZmtpSocket

OnSubscription = Callable[[bytes, bytes, bool], None]


class Pub(ZmtpSocket):
    """Publishes. A subscriber that does not keep up loses messages, counted; the others do not notice.

    Overflow and Away do not apply: a publisher neither waits for a subscriber nor keeps for an absent one.
    `on_subscription(peer, prefix, wanted)` is called after each change of a subscription, so that a new
    subscriber can be given what the others have: `post_wire_to`.
    """

    socket_type = "PUB"
    peers_have_names = False

    def __init__(
        self, *, on_subscription: OnSubscription | None = None, **settings: Unpack[SocketSettings]
    ) -> None:
        super().__init__(**settings)
        self._on_subscription = on_subscription
        self._fan = Fan()
        self._lanes: dict[Outbox, Lane] = {}

    def post(self, parts: Sequence[bytes]) -> int:
        """Publish without waiting; returns to how many subscribers it is on its way. Raises BadArgument."""
        if self._closing:
            self._check_open()
        fan = self._fan
        count = fan.publish(parts if type(parts) is list else list(parts))
        if fan.roused:
            self._rouse()
        return count

    async def send(self, parts: Sequence[bytes]) -> int:
        """As `post`, and now and then lets the loop run: a busy publisher must not cause drops by itself."""
        # Not self.post: the hot path of publishing saves a call (`make bench`, case pub).
        fan = self._fan
        if fan.turn_count >= TURN_COUNT_MAX:
            fan.rest()
            await asyncio.sleep(0)
        if self._closing:
            self._check_open()
        count = fan.publish(parts if type(parts) is list else list(parts))
        if fan.roused:
            self._rouse()
        return count

    def post_wire(self, topic: bytes, pieces: list[bytes]) -> int:
        """As `post`, for one message that is in wire form already and whose first part is `topic`."""
        self._check_open()
        count = self._fan.publish_encoded(topic, pieces, sum(map(len, pieces)))
        self._rouse()
        return count

    def post_wire_to(self, peer: bytes, pieces: list[bytes]) -> bool:
        """Post a message in wire form to one subscriber; False when it left or its buffer is full.

        Such a message is counted.
        """
        connection = self._connected.get(peer)
        if connection is None or connection.lane is None:
            return False
        lane = connection.lane
        due = lane.outbox.put_encoded(pieces, sum(map(len, pieces)))
        if due == FULL:
            lane.outbox.drop()
            return False
        return lane.act(due)

    def subscribers_count(self, topic: bytes) -> int:
        """How many connections would get a message with this first part."""
        return len(self._fan.subscriptions.matching(topic))

    def _rouse(self) -> None:
        for outbox in self._fan.take_roused():
            self._lanes[outbox].act(BURST if outbox.held_bytes >= WRITE_TURN_BYTES else ROUSE)

    def connection_subscribed(self, connection: Connection, prefix: bytes, *, wanted: bool) -> None:
        lane, subscriptions = connection.lane, self._fan.subscriptions
        if lane is None:
            return
        if not wanted:
            subscriptions.remove(lane.outbox, prefix)
            self._tell_subscription(connection, prefix, wanted=False)
        elif (
            not subscriptions.has(lane.outbox, prefix)
            and subscriptions.count(lane.outbox) >= self.options.subscriptions_max
        ):
            connection.refuse(
                CloseReason.TOO_MANY_SUBSCRIPTIONS, f"{self.options.subscriptions_max} is the most per peer"
            )
        else:
            subscriptions.add(lane.outbox, prefix)
            self._tell_subscription(connection, prefix, wanted=True)

    def _tell_subscription(self, connection: Connection, prefix: bytes, *, wanted: bool) -> None:
        if self._on_subscription is None:
            return
        try:
            self._on_subscription(connection.peer, prefix, wanted)
        except Exception as error:  # The callback is the user's code; the subscriber has done nothing wrong.
            self._report(error, f"on_subscription of {self.name} failed")

    def connection_received(self, connection: Connection, messages: list[list[bytes]]) -> None:
        """A 3.0 peer subscribes with a message: 1 or 0, then the prefix."""
        for parts in messages:
            if len(parts) == 1 and parts[0][:1] in (b"\x00", b"\x01"):
                self.connection_subscribed(connection, parts[0][1:], wanted=parts[0][0] == 1)
            else:
                self._tally.ignored_count += 1

    def _lanes_all(self) -> list[Lane]:
        return list(self._lanes.values())

    def _join(self, connection: Connection, outbound: Outbound | None, former: Lane | None) -> Lane:
        lane = Lane(connection.peer, self.options)
        self._lanes[lane.outbox] = lane
        return lane

    def _leave(self, connection: Connection, lane: Lane, outbound: Outbound | None) -> int:
        self._fan.subscriptions.drop(lane.outbox)
        del self._lanes[lane.outbox]
        return self._close_lane(lane)


class Sub(ZmtpSocket):
    """Subscribes at every publisher to which it is or will be connected. The empty prefix means all."""

    socket_type = "SUB"
    peers_have_names = False

    def __init__(self, **settings: Unpack[SocketSettings]) -> None:
        super().__init__(**settings)
        self._wanted: Counter[bytes] = Counter()
        # The same, for matching: one look-up a length instead of one comparison a prefix.
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
        """Messages that were on their way when their subscription was cancelled are dropped, counted."""
        if self._filtering:  # Publishers filter, so only a socket that has ever unsubscribed must do so.
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
