"""Which simulated process a callback belongs to.

A `Life` is one run of a host's program, from start or restart to crash or end. It travels in the context of
every task and callback that the program creates, so the loop knows whose turn it holds back or drops without
the program's help.
"""

from __future__ import annotations

from contextvars import Context, ContextVar
from enum import Enum
from typing import TYPE_CHECKING

from hansa.errors import invariant

if TYPE_CHECKING:
    from hansa.testing.loop import ScheduledCall


class LifeState(Enum):
    """What becomes of a life's callbacks: they run, they wait, or they never run again."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Life:
    """One run of a host's program. The loop alone changes its state."""

    __slots__ = ("held", "name", "number", "resumed_s", "state")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.state = LifeState.RUNNING
        # What came due while paused, or can never run because of a crash; bounded by the loop's step limit.
        self.held: list[ScheduledCall] = []
        self.resumed_s: float | None = None
        """When its last pause ended, by the loop's time. What the pause held back runs at that instant."""

    def __repr__(self) -> str:
        return f"<Life {self} {self.state.value}>"

    def __str__(self) -> str:
        return f"{self.name}/{self.number}"

    def turn(self, state: LifeState) -> None:
        """Death is final; everything else may follow everything."""
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
    """From here on, what runs in this context belongs to the life."""
    _current_life.set(life)
