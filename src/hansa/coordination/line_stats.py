"""How much waiting there is for something that one, or a few, may have at a time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LineStats:
    """What one lock, semaphore or election object has seen so far.

    `waited_s` is the sum over all that were acquired, `waited_s_max` the longest of them.
    """

    acquired_count: int
    timed_out_count: int
    lost_count: int
    waited_s: float
    waited_s_max: float


class LineTally:
    """Counts it."""

    def __init__(self) -> None:
        self._acquired_count = 0
        self._timed_out_count = 0
        self._lost_count = 0
        self._waited_s = 0.0
        self._waited_s_max = 0.0

    def stats(self) -> LineStats:
        return LineStats(
            acquired_count=self._acquired_count,
            timed_out_count=self._timed_out_count,
            lost_count=self._lost_count,
            waited_s=self._waited_s,
            waited_s_max=self._waited_s_max,
        )

    def acquired(self, waited_s: float) -> None:
        self._acquired_count += 1
        self._waited_s += waited_s
        self._waited_s_max = max(self._waited_s_max, waited_s)

    def timed_out(self) -> None:
        self._timed_out_count += 1

    def lost(self) -> None:
        self._lost_count += 1
