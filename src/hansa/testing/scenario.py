"""A scenario: the hosts of a simulation, their work, and the invariants that must hold.

A run has a chaotic phase, in which faults come and go and only safety is checked, and a quiet phase, in which
everything is healed and liveness is checked: everything that had to happen in the end has happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from hansa.chance import Chance
from hansa.testing.faults import FaultPlan, draw_plan
from hansa.testing.world import World


class Scenario:
    """The part of a simulation that you write. One object plays one run."""

    name: ClassVar[str]
    chaos_s: ClassVar[float] = 20.0
    quiet_s: ClassVar[float] = 120.0

    def __init__(self, world: World) -> None:
        self.world = world

    def begin(self) -> None:
        """Add hosts to the world and start them. Draw only from streams forked off the world's chance."""
        raise NotImplementedError

    def pairs(self) -> Sequence[tuple[str, str]] | None:
        """Hosts that talk to each other, or None for all: a fault between others would harm nothing."""
        return None

    def plan(self, chance: Chance) -> FaultPlan:
        """The faults of this run, drawn from this stream alone, after `begin`."""
        return draw_plan(chance, list(self.world.hosts), chaos_s=self.chaos_s, pairs=self.pairs())

    def check(self) -> None:
        """Raise through `world.fail` if something is wrong now. Called after each fault and at the end."""

    def calm(self) -> None:
        """The quiet phase begins: all faults are over and all hosts are up."""

    def unsettled(self) -> str:
        """What is still missing, or the empty string. Called again and again in the quiet phase."""
        return ""
