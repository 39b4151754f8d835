"""A value and its late values: a leader may still act on what a judge knows to be over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# The time for a leader to hear, decide, send and be late: longer than any lease, and any message's way.
GRACE_S: Final = 6.0


class Lately(Generic[T]):
    """A value, and the values that it had a while ago."""

    def __init__(self, value: T) -> None:
        self.now = value
        self._past: list[tuple[T, float]] = []

    def set(self, value: T, *, at_s: float) -> None:
        self._past = [(old, until_s) for old, until_s in self._past if until_s >= at_s - GRACE_S]
        self._past.append((self.now, at_s))
        self.now = value

    def all(self, *, at_s: float) -> Iterator[T]:
        """The values of the last while, the newest first."""
        yield self.now
        for old, until_s in reversed(self._past):
            if until_s >= at_s - GRACE_S:
                yield old
