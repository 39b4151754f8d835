"""Tombstones that nobody tells any more, kept for a while: another registry may not have heard them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from hansa.limits import TOMBSTONES_MAX
from hansa.wire.listing import ProviderEntry, Tombstone


class Buried:
    """By service and endpoint the highest epoch. Each stands for `keep_s`; beyond a bound the oldest go."""

    def __init__(self, *, keep_s: float, count_max: int = TOMBSTONES_MAX) -> None:
        self._keep_s = keep_s
        self._count_max = count_max
        # All stand equally long, so they are in the order of their ends.
        self._stones: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    def remember(self, stones: Iterable[Tombstone], *, now: float) -> set[str]:
        """These are told no longer. Services of which older ones had to go."""
        for stone in stones:
            key = (stone.service, stone.endpoint)
            epoch, _ = self._stones.pop(key, (stone.epoch, now))
            self._stones[key] = max(epoch, stone.epoch), now + self._keep_s
        return {self._stones.popitem(last=False)[0][0] for _ in range(len(self._stones) - self._count_max)}

    def expire(self, *, now: float) -> set[str]:
        """Services of which some have stood long enough and are gone."""
        gone: set[str] = set()
        while self._stones and next(iter(self._stones.values()))[1] <= now:
            gone.add(self._stones.popitem(last=False)[0][0])
        return gone

    def hides(self, service: str, entry: ProviderEntry) -> bool:
        stone = self._stones.get((service, entry.endpoint))
        return stone is not None and stone[0] >= entry.epoch
