"""What workers add up of each partition, so that everything that is lost, doubled or out of order shows.

A partition's messages are numbered, and message n has a value that is a function of the partition and n. A
worker keeps a running sum, and a running hash of the order. With each save it also writes a row into a
ledger, in the same transaction: which messages it has added since the save before. Sums alone would not show
everything: an old owner whose late save counts puts back a sum and an offset that belong together, and all
comes right again. Its row stays.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self
from zlib import crc32

PARTITIONS = tuple(f"p{number:02}" for number in range(12))
GROUP = "sums"
RATE_PER_S = 200
"""Messages of one partition."""


def value_of(partition: str, number: int) -> int:
    """What message `number` of a partition adds."""
    return crc32(b"%s %d" % (partition.encode(), number)) % 1_000


@dataclass(slots=True)
class Sums:
    """The sum of a partition's messages so far, and a hash in which their order counts."""

    partition: str
    next_number: int = 0
    total: int = 0
    order: int = 0

    def add(self, number: int) -> None:
        """One more message. A number that is not the next one counts too: the hash tells."""
        value = value_of(self.partition, number)
        self.total += value
        self.order = crc32(b"%d %d" % (number, value), self.order)
        self.next_number = number + 1

    def encode(self) -> bytes:
        return b"%d %d %d" % (self.next_number, self.total, self.order)

    @classmethod
    def decode(cls, partition: str, state: bytes) -> Self:
        next_number, total, order = map(int, state.split() or (0, 0, 0))
        return cls(partition, next_number, total, order)

    @classmethod
    def of_all(cls, partition: str, count: int) -> Self:
        """As it should be after so many messages."""
        sums = cls(partition)
        for number in range(count):
            sums.add(number)
        return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one save added. `revision` is where the store has it."""

    partition: str
    first: int
    last: int
    node: str
    epoch: int
    revision: int = field(default=0, compare=False)

    @staticmethod
    def prefix(cluster: str) -> bytes:
        return b"ledger/%s/" % cluster.encode()

    def key(self, cluster: str) -> bytes:
        """One of its own for each owner, so that nobody's row hides another's."""
        name = f"{self.partition}/{self.epoch:016}/{self.first:08}"
        return self.prefix(cluster) + name.encode()

    def encode(self) -> bytes:
        words: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "revision"}
        return json.dumps(words).encode()

    @classmethod
    def decode(cls, value: bytes, revision: int) -> Self:
        return cls(**json.loads(value), revision=revision)


@dataclass(slots=True)
class Books:
    """How often the effect of each message is in a ledger, and whether the order was kept."""

    doubled_count: int = 0
    lost_count: int = 0
    unordered: list[str] = field(default_factory=list)
    wrong_sums: list[str] = field(default_factory=list)

    def check(self, rows: Sequence[Row], sums: Iterable[Sums]) -> None:
        """`rows` of all partitions, and the sum of each at the end."""
        for found in sums:
            mine = sorted((row for row in rows if row.partition == found.partition), key=_revision)
            counts = [0] * found.next_number
            next_number = 0
            for row in mine:
                if row.first != next_number:
                    self.unordered.append(f"{row} came where {next_number} was next")
                next_number = row.last + 1
                for number in range(row.first, min(next_number, found.next_number)):
                    counts[number] += 1
            self.lost_count += counts.count(0)
            self.doubled_count += sum(count - 1 for count in counts if count > 1)
            if found != Sums.of_all(found.partition, found.next_number):
                self.wrong_sums.append(f"{found}")

    @property
    def are_right(self) -> bool:
        return self == Books()


def _revision(row: Row) -> int:
    return row.revision
