"""The simulated network: streams between named hosts, and everything that can happen to them.

It behaves as TCP does over a bad path. Bytes of one connection never change their order and are never lost
without the connection breaking; between connections nothing is promised. A cut stalls bytes and dials; they
go on when it heals, unless the side that waits for an acknowledgement gave up before. Hosts are named by
their endpoints: `tcp://name:port`; `*`, `localhost` and loopback addresses mean the host itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hansa.chance import Chance
from hansa.endpoint import Endpoint
from hansa.errors import BadEndpoint, Unavailable
from hansa.testing.life import Life, life_of
from hansa.testing.loop import ScheduledCall, SimLoop
from hansa.transport.memory_network import (
    END_OF_STREAM,
    Factory,
    MemoryListener,
    MemoryNetwork,
    MemoryTransport,
    Place,
    Wire,
)

if TYPE_CHECKING:
    from hansa.testing.world import History

OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """How the network behaves without faults, and how patient its ends are."""

    delay_s_min: float = 0.000_2
    delay_s_max: float = 0.005
    # Now and then a packet is lost and sent again: everything behind it waits.
    spike_probability: float = 0.01
    spike_s_max: float = 0.3
    split_probability: float = 0.3
    window_bytes: int = 64 * 1024
    # How long bytes may stay unacknowledged before the sender's connection breaks.
    tcp_timeout: float = 20.0
    dial_timeout: float = 5.0

    @classmethod
    def drawn(cls, chance: Chance) -> NetworkSettings:
        """Another network for every seed: near or far, even or bumpy, with whole or cut-up streams."""
        return cls(
            delay_s_max=chance.choose((0.000_5, 0.005, 0.05)),
            spike_probability=chance.choose((0.0, 0.01, 0.05)),
            split_probability=chance.choose((0.0, 0.3, 0.9)),
            window_bytes=chance.choose((512, 16 * 1024, 64 * 1024)),
            tcp_timeout=chance.choose((8.0, 20.0, 120.0)),
            dial_timeout=chance.choose((2.0, 5.0)),
        )


class SimWire(Wire):
    """One direction of a connection: bytes take their time, in order, and get stuck at a cut.

    Taken bytes fly until they land at the reader's machine, which keeps them until its program reads. The
    window bounds the bytes that fly, lie unread or are not acknowledged. While the way is cut the first piece
    that should land stalls, and all behind it. After the network's patience the sender's side of the
    connection breaks, and the reader learns of it when the way is free again.
    """

    def __init__(
        self,
        network: SimNetwork,
        source: MemoryTransport,
        target: MemoryTransport,
        *,
        source_host: str,
        target_host: str,
    ) -> None:
        super().__init__(source, target)
        self.window_bytes = network.settings.window_bytes
        self.source_host = source_host
        self.target_host = target_host
        self._network = network
        self._loop = network.loop
        # When each piece lands; None is a reset.
        self._flight: deque[tuple[float, bytes | None]] = deque()
        self._last_landing_s = 0.0
        self._landing: ScheduledCall | None = None
        self._patience: ScheduledCall | None = None
        self._stalled = False
        self._unacknowledged_bytes = 0
        self._source_dead = False
        self._target_dead = False

    # Called by the transports.

    def wake(self) -> None:
        taken = []
        while (data := self.take()) is not None:
            taken.append(data)
        ends = bool(taken) and taken[-1] == END_OF_STREAM
        stream = b"".join(taken)
        if stream:
            for chunk in self._network.chunks(stream):
                self._fly(chunk)
        if ends:
            self._fly(END_OF_STREAM)

    def reset(self) -> None:
        self._flight.clear()
        self._fly(None)

    def delivered(self, data: bytes) -> None:
        if self._network.is_cut(self.target_host, self.source_host):
            # The reader has them, and its acknowledgement does not get through.
            self._unacknowledged_bytes += len(data)
            self._lose_patience_later()
        else:
            super().delivered(data)

    # Called by the network.

    def path_changed(self) -> None:
        """A fault ended: stalled bytes land, if the way is free."""
        if self._unacknowledged_bytes and not self._network.is_cut(self.target_host, self.source_host):
            self._carried_bytes -= self._unacknowledged_bytes
            self._unacknowledged_bytes = 0
            self._calm_down()
            self.wake()
        if self._flight and self._network.rate(self.source_host, self.target_host) is None:
            self._hurry()
        if self._stalled and not self._is_blocked():
            self._stalled = False
            self._calm_down()
            self._land_at(self._loop.time())

    def shatter(self) -> None:
        """Break the connection for the reader at once, whatever is in flight."""
        self._flight.clear()
        super().reset()

    def source_died(self, *, silent: bool, orderly: bool) -> None:
        """The writing program is gone. Its kernel says so, in order or not; without power nothing does."""
        was_lost = self.source.is_lost
        self.source.lose(None)
        self._source_dead = True
        if silent or was_lost:
            # The end of a connection that the program itself had closed is still on its way.
            return
        if orderly:
            self._fly(END_OF_STREAM)
        else:
            self.reset()

    def target_died(self, *, silent: bool) -> None:
        """The reading program is gone. Without power its machine does not even drop arriving bytes."""
        self.target.lose(None)
        self._target_dead = silent

    # The flight.

    def _fly(self, data: bytes | None) -> None:
        now_s = self._loop.time()
        start_s = max(now_s, self._last_landing_s)
        rate = self._network.rate(self.source_host, self.target_host)
        landing_s = max(start_s, now_s + self._network.delay_s(self.source_host, self.target_host))
        if rate is not None and data:
            landing_s += len(data) / rate
        self._last_landing_s = landing_s
        self._flight.append((landing_s, data))
        self._land_at(self._flight[0][0])

    def _hurry(self) -> None:
        """Bytes that left while the way was slow land sooner when it is no longer slow."""
        soon_s = self._loop.time() + self._network.delay_s(self.source_host, self.target_host)
        self._flight = deque((min(landing_s, soon_s), data) for landing_s, data in self._flight)
        self._last_landing_s = self._flight[-1][0]
        if self._landing is not None:
            self._landing.cancel()
            self._landing = None
            self._land_at(self._flight[0][0])

    def _land_at(self, when_s: float) -> None:
        if self._landing is None and not self._stalled:
            self._landing = self._loop.call_at(when_s, self._land, context=self._network.context)

    def _land(self) -> None:
        self._landing = None
        now_s = self._loop.time()
        while self._flight and self._flight[0][0] <= now_s:
            if self._is_blocked():
                self._stalled = True
                self._lose_patience_later()
                return
            _, data = self._flight.popleft()
            if self._target_dead:
                # The machine is back and does not know this connection.
                self._flight.clear()
                self._loop.call_soon(self.break_source, context=self.source.context)
            elif data is None:
                super().reset()
            else:
                self.arrive(data)
        if self._flight:
            self._land_at(self._flight[0][0])

    def _is_blocked(self) -> bool:
        if self._network.is_cut(self.source_host, self.target_host):
            return True
        return self._target_dead and (
            self._network.is_dark(self.target_host)
            or self._network.is_cut(self.target_host, self.source_host)
        )

    # Patience.

    def _lose_patience_later(self) -> None:
        if self._patience is None and not self._source_dead:
            self._patience = self._loop.call_later(
                self._network.settings.tcp_timeout, self._give_up, context=self._network.context
            )

    def _calm_down(self) -> None:
        if self._patience is not None and not self._stalled and not self._unacknowledged_bytes:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._patience = None
        if not (self._stalled or self._unacknowledged_bytes):
            return
        self._loop.call_soon(self._time_out_source, context=self.source.context)
        # The reader hears of it when the way is free again: its machine asks about a connection that is gone.
        self.reset()

    def _time_out_source(self) -> None:
        if not self.source.is_lost:
            self.source.lose(TimeoutError("the other side did not acknowledge in time"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SimConnection:
    """Two ends and the two wires between them."""

    there: SimWire
    back: SimWire

    @property
    def is_over(self) -> bool:
        return self.there.source.is_lost and self.there.target.is_lost

    def joins(self, a: str, b: str) -> bool:
        return {self.there.source_host, self.there.target_host} == {a, b}


class SimNetwork:
    """Shared by all hosts; each uses it through its own `view`. Faults are started and ended here."""

    def __init__(self, loop: SimLoop, chance: Chance, history: History, settings: NetworkSettings) -> None:
        self.loop = loop
        self.settings = settings
        # The network's callbacks belong to no host: they go on while all hosts are paused.
        self.context = Context()
        self.listeners: dict[Place, MemoryListener] = {}
        self._chance = chance
        self._history = history
        self._views: dict[str, HostView] = {}
        self._connections: list[SimConnection] = []
        # Cuts are counted, because two faults may cut the same way.
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._rates: dict[tuple[str, str], float] = {}
        self._refusing: Counter[str] = Counter()
        self._dark: set[str] = set()
        self._change: asyncio.Future[None] = loop.create_future()

    def view(self, host: str) -> HostView:
        """The network as one host sees it. Raises `BadEndpoint` for a name that no endpoint can carry."""
        if host not in self._views:
            Endpoint.parse(f"tcp://{host}:1")
            self._views[host] = HostView(self, host)
        return self._views[host]

    # Faults.

    def cut(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """Let no bytes get from source to target (nor back) until `heal`."""
        self._history.record("", f"cut {source} {'<->' if both_ways else '->'} {target}")
        self._cuts[source, target] += 1
        if both_ways:
            self._cuts[target, source] += 1

    def heal(self, source: str, target: str, *, both_ways: bool = True) -> None:
        """End one cut of the same kind."""
        self._history.record("", f"heal {source} {'<->' if both_ways else '->'} {target}")
        self._cuts[source, target] = max(0, self._cuts[source, target] - 1)
        if both_ways:
            self._cuts[target, source] = max(0, self._cuts[target, source] - 1)
        self._changed()

    def slow(self, source: str, target: str, *, bytes_per_s: float | None) -> None:
        """Bound the rate from source to target; None removes the bound."""
        self._history.record("", f"{source} -> {target} at {bytes_per_s or 'full'} bytes/s")
        if bytes_per_s is None:
            self._rates.pop((source, target), None)
            self._changed()
        else:
            self._rates[source, target] = bytes_per_s

    def refuse(self, host: str, *, refusing: bool) -> None:
        """Refuse new connections to the host, or stop refusing. Existing ones are left alone."""
        self._history.record("", f"{host} {'refuses' if refusing else 'accepts'} dials")
        self._refusing[host] = max(0, self._refusing[host] + (1 if refusing else -1))

    def reset(self, a: str, b: str) -> int:
        """Break every connection between two hosts, as a router that forgot them does. Returns how many."""
        broken = [one for one in self._living() if one.joins(a, b)]
        self._history.record("", f"reset {len(broken)} connections of {a} and {b}")
        for one in broken:
            one.there.shatter()
            one.back.shatter()
        return len(broken)

    def ends(self, host: str, peer: str) -> list[MemoryTransport]:
        """The host's ends of its connections with a peer, for a program that stops reading on purpose."""
        wires = [wire for one in self._living() for wire in (one.there, one.back)]
        return [wire.target for wire in wires if (wire.target_host, wire.source_host) == (host, peer)]

    def heal_all(self) -> None:
        """End all faults of the network."""
        self._cuts.clear()
        self._rates.clear()
        self._refusing.clear()
        self._changed()

    # Called by hosts and wires.

    def is_cut(self, source: str, target: str) -> bool:
        return self._cuts[source, target] > 0

    def is_dark(self, host: str) -> bool:
        """Whether the machine has no power: not even a refusal comes from it."""
        return host in self._dark

    def rate(self, source: str, target: str) -> float | None:
        """Bytes per second from source to target, or None for no bound."""
        return self._rates.get((source, target))

    def delay_s(self, source: str, target: str) -> float:
        """Draw the delay of the next packet."""
        if source == target:
            return 0.000_01
        settings = self.settings
        if self._chance.flip(settings.spike_probability):
            return self._chance.uniform(settings.delay_s_max, settings.spike_s_max)
        return self._chance.uniform(settings.delay_s_min, settings.delay_s_max)

    def chunks(self, data: bytes) -> list[bytes]:
        """Draw the places at which the stream is cut into the reader's pieces."""
        pieces: list[bytes] = []
        while len(data) > 1 and len(pieces) < 16 and self._chance.flip(self.settings.split_probability):
            size = 1 + self._chance.below(min(len(data) - 1, self._chance.choose((1, 8, 64, len(data)))))
            pieces.append(data[:size])
            data = data[size:]
        pieces.append(data)
        return pieces

    def open_ends(self, life: Life) -> list[str]:
        """The life's connections that it has not closed, by name."""
        ends = [end for one in self._living() for end in (one.there.source, one.there.target)]
        return [repr(end) for end in ends if life_of(end.context) is life and not end.is_closing()]

    def open_doors(self, life: Life) -> list[str]:
        """The endpoints at which the life still listens."""
        return [str(one.endpoint) for one in self.listeners.values() if life_of(one.context) is life]

    def forget_life(self, life: Life, *, silent: bool) -> None:
        """The life is over: its listeners vanish and its connections break, or fall silent with its power."""
        if silent:
            self._dark.add(life.name)
        for listener in list(self.listeners.values()):
            if life_of(listener.context) is life:
                listener.is_open = False
                del self.listeners[listener.place]
        wires = [wire for one in self._living() for wire in (one.there, one.back)]
        for wire in wires:
            if life_of(wire.source.context) is life:
                # A kernel ends a killed process's streams in either way, depending on unread bytes.
                wire.source_died(silent=silent, orderly=self._chance.flip(0.5))
        for wire in wires:
            if life_of(wire.target.context) is life:
                wire.target_died(silent=silent)

    def power_on(self, host: str) -> None:
        """The machine is back: it resets connections that it does not know."""
        if host in self._dark:
            self._dark.discard(host)
            self._changed()

    async def wait_for_change(self, deadline_s: float) -> None:
        """Wait until a fault ends or the deadline comes."""
        delay_s = deadline_s - self.loop.time()
        if delay_s > 0:
            await asyncio.wait([self._change], timeout=delay_s)

    def add(self, connection: SimConnection) -> None:
        """Remember a connection, to break it when its time comes."""
        self._connections = self._living()
        self._connections.append(connection)

    def has_host(self, name: str) -> bool:
        return name in self._views

    def is_refusing(self, host: str) -> bool:
        return self._refusing[host] > 0

    def _living(self) -> list[SimConnection]:
        return [one for one in self._connections if not one.is_over]

    def _changed(self) -> None:
        for one in self._living():
            one.there.path_changed()
            one.back.path_changed()
        change, self._change = self._change, self.loop.create_future()
        change.set_result(None)


class HostView(MemoryNetwork):
    """The network of one host: `listen` and `dial` as everywhere."""

    def __init__(self, network: SimNetwork, host: str) -> None:
        super().__init__()
        self._network = network
        self._host = host
        self._listeners = network.listeners

    async def listen(self, endpoint: Endpoint, factory: Factory) -> MemoryListener:
        """Raises `BadEndpoint` for another host's name, otherwise as `MemoryNetwork.listen`."""
        if self.place_of(endpoint)[1] != self._host:
            raise BadEndpoint(
                f"{endpoint} is not an address of {self._host}: use *, localhost or {self._host}"
            )
        return await super().listen(endpoint, factory)

    def place_of(self, endpoint: Endpoint) -> Place:
        if endpoint.scheme not in ("tcp", "tls"):
            # Paths and names belong to the host.
            return (str(endpoint), self._host, 0)
        is_own = endpoint.is_wildcard or endpoint.host in OWN_NAMES
        return ("port", self._host if is_own else endpoint.host, endpoint.port)

    async def reach(self, endpoint: Endpoint) -> MemoryListener | None:
        """Take a round trip. Raises `Unavailable` when the way stays cut or the other machine is off."""
        network, here = self._network, self._host
        place = self.place_of(endpoint)
        there = place[1]
        if not network.has_host(there):
            raise Unavailable(f"there is no host {there}")
        deadline_s = network.loop.time() + network.settings.dial_timeout
        await asyncio.sleep(network.delay_s(here, there) + network.delay_s(there, here))
        while network.is_dark(there) or network.is_cut(here, there) or network.is_cut(there, here):
            if network.loop.time() >= deadline_s:
                raise Unavailable(f"dialling {endpoint} from {here} timed out")
            await network.wait_for_change(deadline_s)
        return None if network.is_refusing(there) else self._living(place)

    def join(
        self, near: MemoryTransport, far: MemoryTransport, listener: MemoryListener
    ) -> tuple[Wire, Wire]:
        there = SimWire(self._network, near, far, source_host=self._host, target_host=listener.place[1])
        back = SimWire(self._network, far, near, source_host=listener.place[1], target_host=self._host)
        self._network.add(SimConnection(there=there, back=back))
        return there, back

    def name_of_dialler(self, endpoint: Endpoint, number: int) -> str:
        return f"{self._host}#{number}"
