"""Latencies in a form that is small, can be added up over processes, and still knows its percentiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import log2

# Neighbouring buckets differ by 9 %, which is finer than what changes from run to run.
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
        """The latency that this share of all stayed below, to within one bucket; None when there are none."""
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
