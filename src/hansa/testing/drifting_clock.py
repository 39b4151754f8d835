"""A host's clock that runs a little fast or slow, as crystals do."""

from __future__ import annotations

from hansa.clock import Clock

__all__ = ["DriftingClock"]


class DriftingClock:
    """Begins with another clock and goes at `rate` times its pace.

    Timers of the simulator's loop go by true time: by this clock they come up to `1 - rate` early or late.
    """

    def __init__(self, clock: Clock, *, rate: float) -> None:
        self.rate = rate
        self._clock = clock
        self._start_s = clock.monotonic()

    def monotonic(self) -> float:
        return self._start_s + (self._clock.monotonic() - self._start_s) * self.rate

    def wall(self) -> float:
        return self._clock.wall()
