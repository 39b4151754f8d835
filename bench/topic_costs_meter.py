"""Counts what simulated connections carry: each ZMTP message and command, by kind, when it leaves its writer.

What flies when a window ends is therefore in the count of both sides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.topic_costs_flow import ANNOUNCE, ANSWER, CONFIRM, GREETING, UNCHANGED, Flow, Share, Traffic
from hansa.testing import World
from hansa.testing.network import HostView, NetworkSettings, SimConnection, SimNetwork, SimWire
from hansa.transport.memory_network import MemoryListener, MemoryTransport, Wire
from hansa.wire import topics
from hansa.wire.commands import GREETING_BYTES
from hansa.wire.frames import COMMAND, LONG, MORE

KINDS = {
    topics.PUBLISH: "PUBLISH",
    topics.SUBSCRIBE: "SUBSCRIBE",
    topics.UNSUBSCRIBE: "UNSUBSCRIBE",
    topics.QUERY: "QUERY",
    topics.QUERY_RESP: ANSWER,
    topics.TOPIC_ANNOUNCE: ANNOUNCE,
    topics.TOPIC_REMOVE: "TOPIC_REMOVE",
    topics.MESSAGE: "MESSAGE",
}

# An even network: costs do not depend on its faults, and a window's border should cut nothing.
EVEN = NetworkSettings(
    delay_s_min=0.000_2, delay_s_max=0.001, spike_probability=0.0, split_probability=0.0, window_bytes=2**20
)


class Tally:
    """Running counts of one direction of one node."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, kind: str, size_bytes: int) -> None:
        self._counts[kind] += 1
        self._bytes[kind] += size_bytes

    @property
    def flow(self) -> Flow:
        return Flow({kind: Share(count, self._bytes[kind]) for kind, count in self._counts.items()})


class StreamMeter:
    """Reads one direction of a connection from its first byte on, and adds to the tallies of its two ends."""

    def __init__(self, tallies: Sequence[Tally]) -> None:
        self._tallies = tallies
        self._unread = b""
        self._is_greeted = False
        self._parts: list[bytes] = []
        self._message_bytes = 0

    def feed(self, data: bytes) -> None:
        self._unread += data
        if not self._is_greeted:
            if len(self._unread) < GREETING_BYTES:
                return
            self._is_greeted = True
            self._unread = self._unread[GREETING_BYTES:]
            self._add(GREETING, GREETING_BYTES)
        data, at = self._unread, 0
        while len(data) - at >= 2:
            header_bytes = 9 if data[at] & LONG else 2
            start = at + header_bytes
            if start > len(data):
                break
            end = start + int.from_bytes(data[at + 1 : start], "big")
            if end > len(data):
                break
            self._read(data[at], data[start:end], end - at)
            at = end
        self._unread = data[at:]

    def _read(self, flags: int, body: bytes, frame_bytes: int) -> None:
        if flags & COMMAND:
            self._add(body[1 : 1 + body[0]].decode(), frame_bytes)
            return
        self._parts.append(body)
        self._message_bytes += frame_bytes
        if not flags & MORE:
            self._add(_kind(self._parts), self._message_bytes)
            self._parts, self._message_bytes = [], 0

    def _add(self, kind: str, size_bytes: int) -> None:
        for tally in self._tallies:
            tally.add(kind, size_bytes)


def _kind(parts: list[bytes]) -> str:
    command = topics.decode(parts)
    if isinstance(command, topics.QueryResp) and command.is_unchanged:
        return UNCHANGED
    if isinstance(command, topics.TopicAnnounce) and command.mark is not None and command.mark.confirm:
        return CONFIRM
    return KINDS[parts[0]]


class MeteredNetwork(SimNetwork):
    """A simulated network that counts for some of its hosts."""

    def __init__(self, world: World, measured: Sequence[str]) -> None:
        super().__init__(world.loop, world.chance.fork("network"), world.history, EVEN)
        self._measured = frozenset(measured)
        self._metered: dict[str, MeteredView] = {}
        self._sent: dict[str, Tally] = {host: Tally() for host in measured}
        self._received: dict[str, Tally] = {host: Tally() for host in measured}

    def traffic(self, host: str) -> Traffic:
        """All that this host has sent and was sent so far."""
        return Traffic(self._sent[host].flow, self._received[host].flow)

    def meter(self, source: str, target: str) -> StreamMeter | None:
        """For one direction of a connection, if anybody asked for it."""
        tallies = [self._sent[source]] if source in self._measured else []
        tallies += [self._received[target]] if target in self._measured else []
        return StreamMeter(tallies) if tallies else None

    def view(self, host: str) -> HostView:
        if host not in self._metered:
            # The names that can be dialled are the ones that were asked for here.
            super().view(host)
            self._metered[host] = MeteredView(self, host)
        return self._metered[host]


class MeteredView(HostView):
    """What one host calls its network."""

    def __init__(self, network: MeteredNetwork, host: str) -> None:
        super().__init__(network, host)
        self._meters = network

    def join(
        self, near: MemoryTransport, far: MemoryTransport, listener: MemoryListener
    ) -> tuple[Wire, Wire]:
        here, there = self._host, listener.place[1]
        to = MeteredWire(self._meters, near, far, here, there)
        back = MeteredWire(self._meters, far, near, there, here)
        self._meters.add(SimConnection(there=to, back=back))
        return to, back


class MeteredWire(SimWire):
    """One direction of a connection, whose bytes are counted as they leave."""

    def __init__(
        self,
        network: MeteredNetwork,
        source: MemoryTransport,
        target: MemoryTransport,
        source_host: str,
        target_host: str,
    ) -> None:
        super().__init__(network, source, target, source_host=source_host, target_host=target_host)
        self._meter = network.meter(source_host, target_host)

    def take(self) -> bytes | None:
        data = super().take()
        if data and self._meter is not None:
            self._meter.feed(data)
        return data
