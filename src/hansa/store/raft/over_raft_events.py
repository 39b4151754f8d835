"""The events of a peer, for any number of readers that take their time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from hansa.errors import AlreadyClosed
from hansa.limits import EVENTS_COUNT_MAX
from hansa.store.raft.raft_events import RaftEvent
from hansa.transport.over_mailbox import Mailbox


class RaftEvents:
    """An async iterator over events, from the call that made it on; it ends when its peer has stopped.

    When too many wait the oldest goes, counted. Cancelling a step takes nothing out.
    """

    def __init__(self, on_drop: Callable[[], None], on_close: Callable[[RaftEvents], None]) -> None:
        self._mailbox: Mailbox[RaftEvent] = Mailbox("events of a raft peer")
        self._on_drop = on_drop
        self._on_close = on_close
        self.dropped_count = 0

    def put(self, event: RaftEvent) -> None:
        if len(self._mailbox) >= EVENTS_COUNT_MAX:
            self._mailbox.drop_oldest()
            self.dropped_count += 1
            self._on_drop()
        self._mailbox.put(event)

    def close(self) -> None:
        """Listen no more; what was kept can still be read."""
        self._on_close(self)
        self._mailbox.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RaftEvent:
        try:
            return await self._mailbox.get()
        except AlreadyClosed:
            raise StopAsyncIteration from None
