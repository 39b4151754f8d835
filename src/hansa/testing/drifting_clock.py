"""A host's clock that runs a little fast or slow, as crystals do, and whose date somebody sets to and fro."""

from __future__ import annotations

from typing import Final

from hansa.clock import Clock

__all__ = ["DriftingClock"]

# The date is put on by so much, and back again, after so long each: whoever measures with it goes far wrong.
WALL_STEP_S: Final = 3600.0
WALL_STEP_EVERY_S: Final = 5.0


class DriftingClock:
    """Begins with another clock and goes at `rate` times its pace; its date is right half of the time.

    Timers of the simulator's loop go by true time: by this clock they come up to `1 - rate` early or late.
    """

    def __init__(self, clock: Clock, *, rate: float) -> None:
        self.rate = rate
        self._clock = clock
        self._start_s = clock.monotonic()

    def monotonic(self) -> float:
        return self._start_s + (self._clock.monotonic() - self._start_s) * self.rate

    def wall(self) -> float:
        steps_count = int((self._clock.monotonic() - self._start_s) / WALL_STEP_EVERY_S)
        return self._clock.wall() + WALL_STEP_S * (steps_count % 2)
