"""The books of the demo's processes: counts that are small, can be sent as JSON, and added up.

Latencies still know their percentiles. What a reader of topics received does not depend on hansa's own
numbers: every message carries its source (a node in one of its lives), a number that counts from 1 for each
stream (one source in one topic), and when it was sent. So a reader finds out by itself what is missing
between the first and the last, and whether a message came twice or out of order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import log2

# Neighbouring buckets differ by 9 %, which is less than the differences from run to run.
_BUCKETS_PER_DOUBLING = 8


class Latencies:
    """Counts of latencies in buckets that grow by a constant factor."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self._counts: Counter[int] = Counter(counts)

    def note(self, latency_s: float) -> None:
        self._counts[int(_BUCKETS_PER_DOUBLING * log2(max(latency_s * 1e6, 1.0)))] += 1

    def add(self, other: Latencies) -> None:
        self._counts.update(other._counts)

    def clear(self) -> None:
        self._counts.clear()

    def quantile_s(self, share: float) -> float | None:
        """The latency below which this share of all stayed, to within one bucket; None if there are none."""
        rank = share * self._counts.total()
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                return float(2.0 ** ((bucket + 1) / _BUCKETS_PER_DOUBLING) / 1e6)
        return None

    def as_json(self) -> dict[str, int]:
        return {str(bucket): count for bucket, count in self._counts.items()}

    @classmethod
    def from_json(cls, plain: Mapping[str, int]) -> Latencies:
        return cls({int(bucket): count for bucket, count in plain.items()})


def write_message(source: str, number: int, sent_at: float) -> bytes:
    return f"{source} {number} {sent_at:.6f}".encode()


def stream_name(topic: str, source: str) -> str:
    return f"{topic} {source}"


@dataclass(slots=True)
class Stream:
    """One stream as a reader saw it: the first and the last number, and how many in all."""

    first: int
    last: int
    count: int


class ReaderLedger:
    """The streams of one reader."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.received_count = 0
        self.unordered_count = 0
        """Messages that came twice, or after later ones."""

    def note(self, topic: str, payload: bytes) -> float:
        """Enter a message; returns when it was sent."""
        source, number_text, sent_at = payload.decode().split(" ")
        name, number = stream_name(topic, source), int(number_text)
        self.received_count += 1
        stream = self.streams.get(name)
        if stream is None:
            self.streams[name] = Stream(number, number, 1)
        elif number <= stream.last:
            self.unordered_count += 1
        else:
            stream.last = number
            stream.count += 1
        return float(sent_at)

    def as_json(self) -> dict[str, list[int]]:
        return {name: [stream.first, stream.last, stream.count] for name, stream in self.streams.items()}


def streams_from_json(plain: Mapping[str, list[int]]) -> dict[str, Stream]:
    return {name: Stream(*numbers) for name, numbers in plain.items()}
