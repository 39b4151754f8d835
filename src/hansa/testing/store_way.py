"""How a store and its users reach each other in the simulator: whole messages, one by one.

A message takes the network's delay, and more on a slow link. If the way is cut when it arrives, it waits and
comes late, perhaps after its sender has given up, or it is lost with its connection. Now and then a message
is lost without any cut. A caller that waits for a lost message hears of the broken connection as soon as the
way is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hansa.chance import Chance
from hansa.testing.world import World

__all__ = ["MESSAGE_BYTES", "StoreWay"]

# What a message weighs on a slow link, with its headers; keys and values here are small.
MESSAGE_BYTES = 100
# No message is older than this when it arrives: somebody's buffer was dropped before.
UNDERWAY_S_MAX = 6.0
# A message that is in the other's buffer when the connection breaks may be read all the same, later.
STRAY_PROBABILITY = 0.5
STRAY_S_MAX = 3.0


class StoreWay:
    """One direction between two hosts."""

    def __init__(
        self, world: World, source: str, target: str, *, chance: Chance, loss_probability: float
    ) -> None:
        self._world = world
        self._network = world.network
        self._source = source
        self._target = target
        self._chance = chance
        self._loss_probability = loss_probability
        self._free_s = 0.0

    def carry(
        self, deliver: Callable[[], None], broken: Callable[[], None], *, size_bytes: int = MESSAGE_BYTES
    ) -> None:
        """Have `deliver` called on the other side, in time or late; else `broken` here, or neither."""
        delay_s = self._network.delay_s(self._source, self._target) + self._queued_s(size_bytes)
        if delay_s > UNDERWAY_S_MAX:
            return
        arrived = deliver
        if self._chance.flip(self._loss_probability):
            arrived = broken
            if self._chance.flip(STRAY_PROBABILITY):
                self._call_later(delay_s + self._chance.uniform(0.0, STRAY_S_MAX), deliver, broken)
        self._call_later(delay_s, arrived, broken)

    def _call_later(self, delay_s: float, arrived: Callable[[], None], broken: Callable[[], None]) -> None:
        self._world.loop.call_later(delay_s, self._arrive, arrived, broken, context=self._network.context)

    def _queued_s(self, size_bytes: int) -> float:
        rate = self._network.rate(self._source, self._target)
        now = self._world.loop.time()
        if rate is None:
            self._free_s = now
        else:
            self._free_s = min(max(self._free_s, now) + size_bytes / rate, now + 2 * UNDERWAY_S_MAX)
        return self._free_s - now

    def _arrive(self, arrived: Callable[[], None], broken: Callable[[], None]) -> None:
        if self._is_cut():
            late = broken if self._chance.flip(0.5) else arrived
            self._world.loop.spawn(self._arrive_late(late, broken), name="a late message", life=None)
        else:
            arrived()

    async def _arrive_late(self, arrived: Callable[[], None], broken: Callable[[], None]) -> None:
        deadline_s = self._world.loop.time() + UNDERWAY_S_MAX
        while self._is_cut():
            if self._world.loop.time() >= deadline_s:
                return
            await self._network.wait_for_change(deadline_s)
        # Sent again by a sender that looks ever more rarely.
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        self._arrive(arrived, broken)

    def _is_cut(self) -> bool:
        return self._network.is_cut(self._source, self._target) or self._network.is_dark(self._target)
