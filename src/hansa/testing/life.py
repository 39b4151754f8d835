"""A life: the simulated process to which a callback belongs.

A `Life` is one run of a host's program, from start or restart to crash or end. It travels in the context of
every task and callback that the program creates, so the loop knows whose callbacks to hold back or drop
without the program's help.
"""

from __future__ import annotations

from contextvars import Context, ContextVar
from enum import Enum
from typing import TYPE_CHECKING

from hansa.errors import invariant

if TYPE_CHECKING:
    from hansa.testing.loop import ScheduledCall


class LifeState(Enum):
    """The fate of a life's callbacks: they run, they wait, or they never run again."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Life:
    """One run of a host's program. Only the loop changes its state."""

    __slots__ = ("held", "name", "number", "resumed_s", "state", "title")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.title = f"{name}/{number}"
        self.state = LifeState.RUNNING
        # Callbacks that came due while it was paused, or never run because of a crash; the loop's step limit
        # bounds them.
        self.held: list[ScheduledCall] = []
        self.resumed_s: float | None = None
        """When its last pause ended, by the loop's time.

        Callbacks that the pause held back run at that instant.
        """

    def __repr__(self) -> str:
        return f"<Life {self} {self.state.value}>"

    def __str__(self) -> str:
        return self.title

    def turn(self, state: LifeState) -> None:
        """Death is final; every other state may follow any other."""
        invariant(
            self.state is not LifeState.DEAD or state is LifeState.DEAD, f"{self} cannot come back to life"
        )
        self.state = state


_current_life: ContextVar[Life | None] = ContextVar("hansa_life", default=None)


def current_life() -> Life | None:
    """The life that runs now, or None for the world outside all hosts: the network, the scenario."""
    return _current_life.get()


def life_of(context: Context) -> Life | None:
    """The life that a context belongs to."""
    return context.get(_current_life)


def enter(life: Life | None) -> None:
    """From here on, code in this context belongs to the life."""
    _current_life.set(life)
