"""Owners that stop, of all programs: at random it would hardly ever be the one that matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hansa.chance import Chance
from hansa.testing.faults import FaultPlan
from hansa.testing.scenarios.claims import owners_of
from hansa.testing.world import World

__all__ = ["OwnerPause", "draw_owner_pauses"]

PAUSES_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerPause:
    """Whoever owns something then stops for a while, and does not notice."""

    at_s: float
    lasting_s: float
    prefix: bytes

    def begin(self, world: World) -> bool:
        owners = owners_of(world, self.prefix)
        return bool(owners) and world.pause(owners[0])

    def end(self, world: World) -> None:
        # Whichever of them it was: those that are not paused do not mind.
        for name in owners_of(world, self.prefix):
            world.resume(name)


def draw_owner_pauses(
    chance: Chance, prefixes: Sequence[bytes], *, chaos_s: float, ttl_s: float
) -> FaultPlan:
    """Some, in every other seed: for about as long as a lease lasts, and for longer."""
    if chance.flip(0.5):
        return ()
    return tuple(
        OwnerPause(
            at_s=chance.uniform(0.0, chaos_s),
            lasting_s=chance.uniform(0.5, 3.0) * ttl_s,
            prefix=chance.choose(prefixes),
        )
        for _ in range(1 + chance.below(PAUSES_MAX))
    )
