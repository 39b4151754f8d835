"""One direction of a simulated connection: bytes take their time, in order, and get stuck at a cut.

Taken bytes fly until they land at the reader's machine, which keeps them until its program reads. The window
bounds what flies, lies unread or is not acknowledged. While the way is cut the first piece that should land
stalls, and all behind it. After the network's patience the sender's side of the connection breaks, and the
reader learns of it when the way is free again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from hansa.testing.loop import ScheduledCall, SimLoop
from hansa.transport.memory_network import END_OF_STREAM, MemoryTransport, Wire

if TYPE_CHECKING:
    from contextvars import Context

    from hansa.testing.network import NetworkSettings

__all__ = ["Path", "SimWire"]


class Path(Protocol):
    """What a wire asks of the network around it."""

    loop: SimLoop
    context: Context
    settings: NetworkSettings

    def is_cut(self, source: str, target: str) -> bool: ...
    def is_dark(self, host: str) -> bool: ...
    def rate(self, source: str, target: str) -> float | None: ...
    def delay_s(self, source: str, target: str) -> float: ...
    def chunks(self, data: bytes) -> list[bytes]: ...


class SimWire(Wire):
    """Carries from one host to another, as the path allows."""

    def __init__(
        self,
        path: Path,
        source: MemoryTransport,
        target: MemoryTransport,
        *,
        source_host: str,
        target_host: str,
    ) -> None:
        super().__init__(source, target)
        self.window_bytes = path.settings.window_bytes
        self.source_host = source_host
        self.target_host = target_host
        self._path = path
        self._loop = path.loop
        # When each piece lands; None is a reset.
        self._flight: deque[tuple[float, bytes | None]] = deque()
        self._last_landing_s = 0.0
        self._landing: ScheduledCall | None = None
        self._patience: ScheduledCall | None = None
        self._stalled = False
        self._unacknowledged_bytes = 0
        self._source_dead = False
        self._target_dead = False

    # What the transports do to the wire.

    def wake(self) -> None:
        taken = []
        while (data := self.take()) is not None:
            taken.append(data)
        ends = bool(taken) and taken[-1] == END_OF_STREAM
        stream = b"".join(taken)
        if stream:
            for chunk in self._path.chunks(stream):
                self._fly(chunk)
        if ends:
            self._fly(END_OF_STREAM)

    def reset(self) -> None:
        self._flight.clear()
        self._fly(None)

    def delivered(self, data: bytes) -> None:
        if self._path.is_cut(self.target_host, self.source_host):
            # The reader has it, and its acknowledgement does not get through.
            self._unacknowledged_bytes += len(data)
            self._lose_patience_later()
        else:
            super().delivered(data)

    # What the network does to the wire.

    def path_changed(self) -> None:
        """A fault ended: what was stalled lands, if the way is free."""
        if self._unacknowledged_bytes and not self._path.is_cut(self.target_host, self.source_host):
            self._carried_bytes -= self._unacknowledged_bytes
            self._unacknowledged_bytes = 0
            self._calm_down()
            self.wake()
        if self._flight and self._path.rate(self.source_host, self.target_host) is None:
            self._hurry()
        if self._stalled and not self._is_blocked():
            self._stalled = False
            self._calm_down()
            self._land_at(self._loop.time())

    def shatter(self) -> None:
        """Break the connection for the reader at once, whatever flies."""
        self._flight.clear()
        super().reset()

    def source_died(self, *, silent: bool, orderly: bool) -> None:
        """The writing program is gone. Its kernel says so, in order or not; without power nobody does."""
        was_lost = self.source.is_lost
        self.source.lose(None)
        self._source_dead = True
        if silent or was_lost:
            # Whatever was already said for a connection that the program had closed is still under way.
            return
        if orderly:
            self._fly(END_OF_STREAM)
        else:
            self.reset()

    def target_died(self, *, silent: bool) -> None:
        """The reading program is gone. Without power its machine does not even drop what comes."""
        self.target.lose(None)
        self._target_dead = silent

    # The flight.

    def _fly(self, data: bytes | None) -> None:
        now_s = self._loop.time()
        start_s = max(now_s, self._last_landing_s)
        rate = self._path.rate(self.source_host, self.target_host)
        landing_s = max(start_s, now_s + self._path.delay_s(self.source_host, self.target_host))
        if rate is not None and data:
            landing_s += len(data) / rate
        self._last_landing_s = landing_s
        self._flight.append((landing_s, data))
        self._land_at(self._flight[0][0])

    def _hurry(self) -> None:
        """What left while the way was slow does not stay slow when it no longer is."""
        soon_s = self._loop.time() + self._path.delay_s(self.source_host, self.target_host)
        self._flight = deque((min(landing_s, soon_s), data) for landing_s, data in self._flight)
        self._last_landing_s = self._flight[-1][0]
        if self._landing is not None:
            self._landing.cancel()
            self._landing = None
            self._land_at(self._flight[0][0])

    def _land_at(self, when_s: float) -> None:
        if self._landing is None and not self._stalled:
            self._landing = self._loop.call_at(when_s, self._land, context=self._path.context)

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
        if self._path.is_cut(self.source_host, self.target_host):
            return True
        return self._target_dead and (
            self._path.is_dark(self.target_host) or self._path.is_cut(self.target_host, self.source_host)
        )

    # Patience.

    def _lose_patience_later(self) -> None:
        if self._patience is None and not self._source_dead:
            self._patience = self._loop.call_later(
                self._path.settings.tcp_timeout, self._give_up, context=self._path.context
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
        # The reader hears of it when the way is free again: its machine asks after a connection that is gone.
        self.reset()

    def _time_out_source(self) -> None:
        if not self.source.is_lost:
            self.source.lose(TimeoutError("the other side did not acknowledge in time"))
