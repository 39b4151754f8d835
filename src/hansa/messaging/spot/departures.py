"""What this node of a PUB/SUB mesh has published: a count for every topic, under an epoch.

A number must never come twice, or receivers take it for one that they have. So a topic that had to be
forgotten begins at 1 again under a later epoch: epochs are raised whenever topics are forgotten. The memory
is bounded in two generations, as that of `arrivals`.
"""

from __future__ import annotations

from hansa.errors import invariant
from hansa.limits import DEPARTURES_MAX
from hansa.messaging.epoch import EPOCH_MAX
from hansa.messaging.spot.names import check_topic
from hansa.wire.publication import encode_origin


class Departure:
    """One topic's count."""

    __slots__ = ("frame", "origin", "sequence")

    def __init__(self, frame: bytes, origin: bytes) -> None:
        self.frame = frame
        self.origin = origin
        self.sequence = 0


class Departures:
    """The topics that this node publishes, at most `count_max` of them."""

    def __init__(self, node: bytes, epoch: int, count_max: int = DEPARTURES_MAX) -> None:
        self._node = node
        self._epoch = epoch
        self._origin = encode_origin(node, epoch)
        self._generation_max = max(1, count_max // 2)
        self._young: dict[str, Departure] = {}
        self._old: dict[str, Departure] = {}
        self.forgotten_count = 0
        """Topics that had to go for others."""

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    @property
    def counts(self) -> dict[str, int]:
        """How many of each topic were published, in the order of their names."""
        both = {**self._old, **self._young}
        return {topic: both[topic].sequence for topic in sorted(both)}

    def count(self, topic: str) -> Departure:
        """The topic's count, one higher than before: the number of this publication. Raises BadArgument."""
        departure = self._young.get(topic)
        if departure is None:
            departure = self._find_rare(topic)
        departure.sequence += 1
        return departure

    def _find_rare(self, topic: str) -> Departure:
        departure = self._old.pop(topic, None)
        if departure is None:
            departure = Departure(check_topic(topic), self._origin)
        if len(self._young) >= self._generation_max:
            self._age()
        self._young[topic] = departure
        return departure

    def _age(self) -> None:
        if self._old:
            self.forgotten_count += len(self._old)
            self._epoch += 1
            invariant(self._epoch <= EPOCH_MAX, "there are no epochs left")
            self._origin = encode_origin(self._node, self._epoch)
        self._old, self._young = self._young, {}
