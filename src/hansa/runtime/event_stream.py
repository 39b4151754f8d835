"""Events for a task that reads them when it is ready.

A source has one `EventFeeds`. Each listener opens an `EventStream` with a bounded buffer of its own; a
listener that does not read loses its oldest events, counted, and slows nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar

from hansa.errors import AlreadyClosed
from hansa.runtime.mailboxes import Mailbox

E = TypeVar("E")


class EventFeed(Generic[E]):
    """A bounded buffer of events: when it is full the oldest goes, counted."""

    def __init__(self, what: str, *, count_max: int, on_drop: Callable[[], None]) -> None:
        self._events: Mailbox[E] = Mailbox(what)
        self._count_max = count_max
        self._on_drop = on_drop
        self.dropped_count = 0

    def put(self, event: E) -> None:
        if len(self._events) >= self._count_max:
            self._events.drop_oldest()
            self.dropped_count += 1
            self._on_drop()
        self._events.put(event)

    async def get(self) -> E:
        """Raises AlreadyClosed after the end, when all that was kept has been taken."""
        return await self._events.get()

    def get_nowait(self) -> E:
        """Raises WouldBlock, AlreadyClosed."""
        return self._events.get_nowait()

    def close(self) -> None:
        self._events.close()


class EventStream(Generic[E]):
    """An async iterator over events, from the call that made it on.

    It ends after `close`, or when what it listens to closes, once what it kept is read. Cancelling a step
    takes nothing out. One that is thrown away costs nothing more.
    """

    def __init__(self, feed: EventFeed[E], stop: Callable[[], object]) -> None:
        self._feed = feed
        self._stop = stop

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> E:
        try:
            return await self._feed.get()
        except AlreadyClosed:
            raise StopAsyncIteration from None

    def get_nowait(self) -> E:
        """The next event if one is there. Raises WouldBlock; AlreadyClosed after the end."""
        return self._feed.get_nowait()

    @property
    def dropped_count(self) -> int:
        """Events that went unread because too many waited."""
        return self._feed.dropped_count

    def close(self) -> None:
        """Listen no more; what was kept can still be read."""
        self._stop()
        self._feed.close()

    def __del__(self) -> None:
        # The source knows the feed and not this handle, so a forgotten iterator is not fed for ever.
        self._stop()


class EventFeeds(Generic[E]):
    """Everybody who listens to one source; each has a bounded buffer of its own."""

    def __init__(self, what: str, *, count_max: int) -> None:
        self._what = what
        self._count_max = count_max
        self._feeds: dict[EventFeed[E], None] = {}
        self._closed = False
        self.dropped_count = 0

    def open(self) -> EventStream[E]:
        """A new listener; one of a source that is closed has nothing to tell."""
        feed: EventFeed[E] = EventFeed(self._what, count_max=self._count_max, on_drop=self._dropped)
        if self._closed:
            feed.close()
        else:
            self._feeds[feed] = None
        return EventStream(feed, lambda: self._feeds.pop(feed, None))

    def put(self, event: E) -> None:
        # A copy: an iterator that the garbage collector takes meanwhile leaves by itself.
        for feed in tuple(self._feeds):
            feed.put(event)

    def close(self) -> None:
        """No more events; what was kept can still be read."""
        self._closed = True
        for feed in tuple(self._feeds):
            feed.close()
        self._feeds.clear()

    def _dropped(self) -> None:
        self.dropped_count += 1
