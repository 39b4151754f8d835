"""A local node in a loop of its own thread, with spots for the test's threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hansa.topics import SpotNode
from hansa.topics.threads import ThreadsafeSpot
from tests.support.loop_thread import WITHIN_S, LoopThread, loop_thread


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSpots:
    """One spot that owns the topic `t`, and one that is subscribed to nothing yet."""

    loop: LoopThread
    node: SpotNode
    owner: ThreadsafeSpot
    reader: ThreadsafeSpot

    def post(self, *payloads: bytes, topic: str = "t") -> None:
        """All of them in one step: no reader gets in between."""

        def post() -> None:
            for payload in payloads:
                self.owner._inner.post(topic, payload)

        self.loop.inside(post)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn until it holds."""

        async def wait() -> None:
            async with asyncio.timeout(WITHIN_S):
                while not condition():
                    await asyncio.sleep(0)

        self.loop.awaited(wait)

    def until_waiting(self, count: int, spot: ThreadsafeSpot | None = None) -> None:
        """Until so many threads stand at the spot, and the loop waits for them."""
        tap = (spot or self.reader)._tap
        self.until(lambda: len(tap._line) == count and tap._task is not None)


@contextmanager
def thread_spots() -> Iterator[ThreadSpots]:
    with loop_thread() as loop:
        node = SpotNode()
        loop.awaited(node.__aenter__)
        owner, reader = (
            loop.inside(lambda: ThreadsafeSpot(node.spot("owner"), loop.steps)),
            loop.inside(lambda: ThreadsafeSpot(node.spot("reader"), loop.steps)),
        )
        owner.create_topic("t")
        try:
            yield ThreadSpots(loop=loop, node=node, owner=owner, reader=reader)
        finally:
            loop.awaited(node.close)
