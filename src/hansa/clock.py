"""The only source of time. Deadlines and durations use `monotonic`; display and list numbers use `wall`."""

import time
from typing import Final, Protocol

from hansa.errors import BadArgument

# A clock that goes on while the machine is suspended, as leases elsewhere do: on Linux that is not the one of
# `time.monotonic`, on macOS it is.
_UNRESTING: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """A driver's source of time. Machines are given `now` and never see a clock."""

    def monotonic(self) -> float:
        """Seconds that never go back, and never stand still; their zero means nothing."""
        ...

    def wall(self) -> float:
        """Seconds since 1970 as the machine believes; may jump either way."""
        ...


class SystemClock:
    """The real time. Timers of an event loop use another clock: compare differences only."""

    __slots__ = ()

    def monotonic(self) -> float:
        return time.clock_gettime(_UNRESTING)

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """A clock that stands still until it is told to advance."""

    __slots__ = ("_monotonic_s", "_wall_s")

    def __init__(self, *, monotonic_s: float = 0.0, wall_s: float = 1_700_000_000.0) -> None:
        self._monotonic_s = monotonic_s
        self._wall_s = wall_s

    def monotonic(self) -> float:
        return self._monotonic_s

    def wall(self) -> float:
        return self._wall_s

    def advance(self, seconds: float) -> None:
        """Move both times forward. Raises `BadArgument` for a step back, which no monotonic clock takes."""
        if not seconds >= 0.0:
            raise BadArgument(f"advance({seconds}): a clock goes forward; give zero or more seconds")
        self._monotonic_s += seconds
        self._wall_s += seconds
