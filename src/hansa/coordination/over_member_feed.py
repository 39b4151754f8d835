"""Events of members for tasks that read them when they get to it."""

from __future__ import annotations

import weakref
from typing import Self

from hansa.coordination.member_events import MembersEvent
from hansa.errors import AlreadyClosed
from hansa.transport.over_mailbox import Mailbox


class MemberEvents:
    """An async iterator of events, from the call that made it on. Made by `Members.events`.

    It keeps a bounded number for a slow reader; then the oldest go, counted. It ends after `close`, or when
    the view closes, once what it kept is read. Cancelling a step takes nothing out. One that is thrown away
    costs nothing more.
    """

    def __init__(self, feeds: MemberFeeds, count_max: int) -> None:
        self._feeds = feeds
        self._count_max = count_max
        self._waiting: Mailbox[MembersEvent] = Mailbox("the events of members")
        self.dropped_count = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MembersEvent:
        try:
            return await self._waiting.get()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    def get_nowait(self) -> MembersEvent:
        """The next event if one is there. Raises `WouldBlock`; `AlreadyClosed` after the end."""
        return self._waiting.get_nowait()

    def close(self) -> None:
        """Listen no more; what was kept can still be read."""
        self._feeds.forget(self)
        self._waiting.close()

    def put(self, event: MembersEvent) -> bool:
        """Says whether another one had to go for it."""
        is_full = len(self._waiting) >= self._count_max
        if is_full:
            self._waiting.drop_oldest()
            self.dropped_count += 1
        self._waiting.put(event)
        return is_full


class MemberFeeds:
    """Everybody who listens to one view."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        # Weakly: an iterator that its reader has forgotten is not fed for ever.
        self._feeds: weakref.WeakSet[MemberEvents] = weakref.WeakSet()
        self._closed = False
        self.dropped_count = 0

    def open(self) -> MemberEvents:
        feed = MemberEvents(self, self._count_max)
        if self._closed:
            feed.close()
        else:
            self._feeds.add(feed)
        return feed

    def put(self, event: MembersEvent) -> None:
        for feed in list(self._feeds):
            self.dropped_count += feed.put(event)

    def forget(self, feed: MemberEvents) -> None:
        self._feeds.discard(feed)

    def close(self) -> None:
        self._closed = True
        for feed in list(self._feeds):
            feed.close()
