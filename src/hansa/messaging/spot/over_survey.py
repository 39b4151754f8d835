"""One question to all nodes: how are your topics?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from hansa.messaging.spot.stats import TopicReport
from hansa.wire.spot import QueryResp, TopicCounts


class Survey:
    """Collects the answers until all have come, or the time is up. Who does not answer is left out."""

    def __init__(self, node: bytes, own: Iterable[tuple[str, TopicCounts]], peers: Iterable[bytes]) -> None:
        self._missing = dict.fromkeys(peers)
        self._reports = [_report(topic, node, counts) for topic, counts in own]
        self._all_there = asyncio.Event()
        self._look()

    def hear(self, peer: bytes, answer: QueryResp, *, is_hansa: bool) -> None:
        # An answer without a report is one to an earlier question, unless the peer gives none.
        if peer not in self._missing or (is_hansa and answer.report is None):
            return
        counts = answer.report or (None,) * len(answer.topics)
        self._reports += [_report(topic, peer, one) for topic, one in zip(answer.topics, counts, strict=True)]
        self.left(peer)

    def left(self, peer: bytes) -> None:
        self._missing.pop(peer, None)
        self._look()

    def end(self) -> None:
        self._all_there.set()

    async def result(self, timeout_s: float) -> tuple[TopicReport, ...]:
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_there.wait()
        except TimeoutError:
            pass  # Who has not answered by now is left out.
        return tuple(sorted(self._reports, key=lambda report: (report.topic, report.owner)))

    def _look(self) -> None:
        if not self._missing:
            self._all_there.set()


def _report(topic: str, owner: bytes, counts: TopicCounts | None) -> TopicReport:
    return TopicReport(
        topic=topic,
        owner=owner,
        subscribers_count=None if counts is None else counts.subscribers_count,
        published_count=None if counts is None else counts.published_count,
        dropped_count=None if counts is None else counts.dropped_count,
    )
