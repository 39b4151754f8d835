"""How long to wait before the next try. Pure."""

from __future__ import annotations

from hansa.chance import Chance


class Backoff:
    """Exponential delays between two bounds, each moved by up to `jitter` of itself either way."""

    def __init__(self, *, s_min: float, s_max: float, jitter: float, chance: Chance) -> None:
        self._s_min = s_min
        self._s_max = s_max
        self._jitter = jitter
        self._chance = chance
        self._next_s = s_min

    def next_s(self) -> float:
        """The delay to wait now; the one after it is twice as long, up to the bound."""
        delay_s = self._next_s
        self._next_s = min(delay_s * 2, self._s_max)
        return delay_s * (1 + self._chance.uniform(-self._jitter, self._jitter))

    def reset(self) -> None:
        """Call on success: the next failure waits the shortest delay again."""
        self._next_s = self._s_min
