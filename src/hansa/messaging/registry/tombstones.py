"""What was removed, so that a registry that has not heard of it does not bring it back."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeAlias

from hansa.limits import TOMBSTONES_MAX
from hansa.messaging.registry.claim import Key
from hansa.wire.listing import Tombstone

NEVER = -1
"""Below every epoch."""

# Epoch and end by key. All stand equally long, so they are in the order of their ends; an OrderedDict finds
# its first item at once, where a dict would pass over all that were removed before it.
_Stones: TypeAlias = OrderedDict[Key, tuple[int, float]]


class Tombstones:
    """Own ones, which are told to the peers, and those heard from peers. The oldest go first.

    Each stands for `keep_s` from when it was first known. Methods that let some go give back their keys:
    what these hid may have to be shown again.
    """

    def __init__(self, *, keep_s: float, count_max: int = TOMBSTONES_MAX) -> None:
        self._keep_s = keep_s
        self._count_max = count_max
        self._own: _Stones = OrderedDict()
        self._heard: _Stones = OrderedDict()
        self.evicted_count = 0
        self.is_changed = False
        """Whether there is one to tell that was not there when this was last set to False."""

    def __len__(self) -> int:
        return len(self._own) + len(self._heard)

    def epoch(self, key: Key) -> int:
        """Claims of this key up to this epoch are dead; NEVER when none are."""
        own, heard = self._own.get(key), self._heard.get(key)
        return max(own[0] if own else NEVER, heard[0] if heard else NEVER)

    def bury(self, key: Key, epoch: int, now: float) -> list[Key]:
        """An entry was removed here."""
        self.is_changed = True
        return self._put(self._own, key, epoch, now)

    def hear(self, tombstone: Tombstone, now: float) -> list[Key]:
        """A peer says that an entry was removed; its own key is among those given back if that is news."""
        key = (tombstone.service, tombstone.endpoint)
        if tombstone.epoch <= self.epoch(key):
            return []
        return [key, *self._put(self._heard, key, tombstone.epoch, now)]

    def expire(self, now: float) -> list[Key]:
        """Let those go that have stood long enough."""
        gone = []
        for stones in (self._own, self._heard):
            while stones and next(iter(stones.values()))[1] <= now:
                gone.append(stones.popitem(last=False)[0])
        return gone

    def deadline(self) -> float | None:
        """When the first one goes."""
        ends = [next(iter(stones.values()))[1] for stones in (self._own, self._heard) if stones]
        return min(ends, default=None)

    def own(self) -> list[Tombstone]:
        """What this registry itself removed, for its peers."""
        return [Tombstone(service=s, endpoint=e, epoch=at[0]) for (s, e), at in self._own.items()]

    def all(self) -> list[Tombstone]:
        """Everything known to be removed, each key once, for discoveries."""
        if not self._heard:
            return self.own()
        keys = dict.fromkeys((*self._own, *self._heard))
        return [Tombstone(service=key[0], endpoint=key[1], epoch=self.epoch(key)) for key in keys]

    def _put(self, stones: _Stones, key: Key, epoch: int, now: float) -> list[Key]:
        former = stones.pop(key, (NEVER, 0.0))
        stones[key] = (max(epoch, former[0]), now + self._keep_s)
        evicted = []
        while len(self) > self._count_max:
            evicted.append(self._evict())
        return evicted

    def _evict(self) -> Key:
        fronts = [(next(iter(s.values()))[1], s) for s in (self._own, self._heard) if s]
        stones = min(fronts, key=lambda front: front[0])[1]
        self.evicted_count += 1
        return stones.popitem(last=False)[0]
