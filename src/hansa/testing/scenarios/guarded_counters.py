"""What was written under locks: each write carries a mark of its own, and all marks stay in what is written.

So a lost update is a mark that is missing in the end, by name, and not a number that is too small. What a
store forgets that goes back in time is no update that somebody else has lost.
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum

from hansa.testing.world import World

__all__ = ["GuardedCounters", "Mark"]

Mark = str


class _Fate(Enum):
    """What the writer was told of a write."""

    UNKNOWN = "unknown"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"


class GuardedCounters:
    """The books of all counters of a run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fates: dict[str, dict[Mark, _Fate]] = defaultdict(dict)
        # Begun before a store went back that does not have them.
        self._forgotten: set[tuple[str, Mark]] = set()

    def count(self, name: str) -> int:
        """How many writes of a counter were acknowledged."""
        return sum(fate is _Fate.ACKNOWLEDGED for fate in self._fates[name].values())

    def read(self, name: str, value: bytes | None) -> list[Mark]:
        """What a holder has read. Nothing that was refused may be in it, and nothing twice."""
        marks = value.decode().split() if value else []
        for mark in marks:
            if self._fates[name].get(mark, _Fate.REFUSED) is _Fate.REFUSED:
                self._world.fail("what was refused is not written", f"{name} has {mark}: {marks}")
        if len(set(marks)) != len(marks):
            self._world.fail("nothing is written twice", f"{name}: {marks}")
        return marks

    def check(self, name: str, value: bytes | None) -> None:
        """What is there now has all that was ever acknowledged, and nothing that was refused."""
        marks = self.read(name, value)
        acknowledged = [mark for mark, fate in self._fates[name].items() if fate is _Fate.ACKNOWLEDGED]
        if missing := sorted(set(acknowledged).difference(marks)):
            self._world.fail("no acknowledged update is lost", f"{name}: {missing} are missing in {marks}")

    def rewound(self, name: str, value: bytes | None) -> None:
        """The store went back: for what it does not have now, told or yet to be told, nobody is to blame."""
        marks = self.read(name, value)
        for mark, fate in self._fates[name].items():
            if fate is not _Fate.REFUSED and mark not in marks:
                self._fates[name][mark] = _Fate.UNKNOWN
                self._forgotten.add((name, mark))

    def begin(self, name: str, who: str) -> Mark:
        """A write is about to be sent; until its fate is told, it may have happened or not."""
        mark = f"{who}.{len(self._fates[name])}"
        self._fates[name][mark] = _Fate.UNKNOWN
        return mark

    def acknowledged(self, name: str, mark: Mark) -> None:
        if (name, mark) not in self._forgotten:
            self._fates[name][mark] = _Fate.ACKNOWLEDGED

    def refused(self, name: str, mark: Mark) -> None:
        self._fates[name][mark] = _Fate.REFUSED
