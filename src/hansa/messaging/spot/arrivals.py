"""Which publication of every origin and topic came last, so that what is missing can be counted.

Theory of operation. Publishers of a PUB/SUB mesh number what they publish, each topic by itself. The first
publication that comes of an origin (a node and its epoch) says where to begin; from then on a number that is
not the next one says how many were lost, whatever lost them.

The memory is bounded in generations, which cost nothing while it suffices: whatever arrives is in the young
one, or is moved there. When that is full it becomes the old one, and what was still in the old one, silent
for longer than anything else, is forgotten. Of that origin and topic counting begins anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hansa.limits import ARRIVALS_MAX
from hansa.messaging.spot.topic_index import TopicIndex

REPEATED: Final = -1
"""Instead of a count: this one, or one after it, has come already."""

# The last sequence by topic and origin.
_Generation: TypeAlias = dict[bytes, dict[bytes, int]]


class Arrivals:
    """The last sequences, at most `count_max` of them. Topics are frames; origins are compared whole."""

    def __init__(self, count_max: int = ARRIVALS_MAX) -> None:
        self._generation_max = max(1, count_max // 2)
        self._young: _Generation = {}
        self._young_count = 0
        self._old: _Generation = {}
        self._old_count = 0
        self._topics = TopicIndex()
        self.forgotten_count = 0
        """Origins of topics that had to go for others."""

    def __len__(self) -> int:
        return self._young_count + self._old_count

    def note(self, topic: bytes, origin: bytes, sequence: int) -> int:
        """This one came; how many are missing before it, or REPEATED."""
        known = self._young.get(topic)
        if known is not None:
            last = known.get(origin)
            if last is not None:
                if sequence <= last:
                    return REPEATED
                known[origin] = sequence
                return sequence - last - 1
        return self._note_rare(topic, origin, sequence)

    def forget(self, topic: bytes) -> None:
        """Nobody wants this topic any more: what comes meanwhile is not missing."""
        if topic in self._topics:
            self._topics.discard(topic)
            self._young_count -= len(self._young.pop(topic, ()))
            self._old_count -= len(self._old.pop(topic, ()))

    def forget_unwanted(self, prefix: bytes, is_wanted: Callable[[bytes], bool]) -> None:
        """A pattern is gone: forget the topics that begin so and that nobody else wants."""
        for topic in self._topics.starting_with(prefix):
            if not is_wanted(topic):
                self.forget(topic)

    def _note_rare(self, topic: bytes, origin: bytes, sequence: int) -> int:
        """One that is not in the young generation: it is new, or was silent for long."""
        older = self._old.get(topic)
        last = None if older is None else older.get(origin)
        if older is not None and last is not None:
            if sequence <= last:
                return REPEATED
            del older[origin]
            self._old_count -= 1
            if not older:
                del self._old[topic]
        if self._young_count >= self._generation_max:
            self._age()
        self._topics.add(topic)
        self._young.setdefault(topic, {})[origin] = sequence
        self._young_count += 1
        return 0 if last is None else sequence - last - 1

    def _age(self) -> None:
        self.forgotten_count += self._old_count
        for topic in self._old:
            if topic not in self._young:
                self._topics.discard(topic)
        self._old, self._old_count = self._young, self._young_count
        self._young, self._young_count = {}, 0
