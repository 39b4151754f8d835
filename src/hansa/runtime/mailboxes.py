"""Mailboxes: hand over what callbacks deliver to tasks that wait for it.

Tasks that wait for a change stand in a line of `Waiters`; a `Bell` also calls a callback that waits without a
task. A `Mailbox` adds a deque of items, and one wake-up per burst. A source with many listeners has one
`EventFeeds`: each listener opens an `EventStream` with a bounded buffer of its own. A listener that does not
read loses its oldest events, counted, and slows down nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from typing import Generic, Self, TypeVar

from hansa.errors import AlreadyClosed, WouldBlock


class Waiters:
    """A line of waiting tasks. Being woken promises nothing: look again at what you waited for.

    Cancelling `wait` leaves the line; a wake-up that the task got and did not use goes to the next one.
    """

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return len(self._line)

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in self._line:
                self._line.remove(waiter)
            else:
                self.wake(1)
            raise

    def wake(self, count: int) -> None:
        """Wake up to `count` tasks, those that came first."""
        for _ in range(min(count, len(self._line))):
            waiter = self._line.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def wake_all(self) -> None:
        self.wake(len(self._line))


class Bell(Waiters):
    """A line of waiting tasks, and one callback that waits without a task.

    The callback is called once for all rings since its last call, in a turn of its own of the loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self._on_ring: Callable[[], None] | None = None
        self._context: Context | None = None
        self._call: asyncio.Handle | None = None

    def call_back(self, on_ring: Callable[[], None]) -> None:
        """Call `on_ring` at each `wake_all` from now on, and now."""
        self._on_ring = on_ring
        # The waiter's own context: in the simulator the task that rings may be gone when the turn comes.
        self._context = copy_context()
        self.wake_all()

    def silence(self) -> None:
        """Stop calling back."""
        self._on_ring = None
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def wake_all(self) -> None:
        super().wake_all()
        if self._on_ring is not None and self._call is None:
            self._call = asyncio.get_running_loop().call_soon(self._ring, context=self._context)

    def _ring(self) -> None:
        self._call = None
        if self._on_ring is not None:
            self._on_ring()


T = TypeVar("T")


class Mailbox(Generic[T]):
    """An unbounded queue for one event loop; its owner bounds what it puts in.

    `asyncio.Queue` does the same with more per item. Cancelling `get` loses nothing.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._items: deque[T] = deque()
        self._getters = Waiters()
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def put_all(self, items: Iterable[T]) -> None:
        self._items.extend(items)
        self._getters.wake(len(self._items))

    def put(self, item: T) -> None:
        self._items.append(item)
        self._getters.wake(1)

    def drop_oldest(self) -> None:
        self._items.popleft()

    def get_nowait(self) -> T:
        """Raises WouldBlock when the mailbox is empty, AlreadyClosed when it is closed too."""
        if self._items:
            return self._items.popleft()
        if self._closed:
            raise AlreadyClosed(f"{self._what} is closed")
        raise WouldBlock(f"{self._what} has nothing yet")

    async def get(self) -> T:
        """Raises AlreadyClosed once the mailbox is closed and empty."""
        while not self._items and not self._closed:
            await self._getters.wait()
        return self.get_nowait()

    def close(self) -> None:
        """Items in it can still be taken; then getters end."""
        self._closed = True
        self._getters.wake_all()


E = TypeVar("E")


class EventFeed(Mailbox[E]):
    """A bounded buffer of events: when it is full the oldest is dropped, counted."""

    def __init__(self, what: str, *, count_max: int, on_drop: Callable[[], None]) -> None:
        super().__init__(what)
        self._count_max = count_max
        self._on_drop = on_drop
        self.dropped_count = 0

    def put(self, event: E) -> None:
        if len(self) >= self._count_max:
            self.drop_oldest()
            self.dropped_count += 1
            self._on_drop()
        super().put(event)


class EventStream(Generic[E]):
    """An async iterator over events, from the call that made it on.

    It ends after `close`, or when its source closes, once what it kept is read. Cancelling a step loses no
    event. If it is dropped without `close`, it costs nothing more.
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
        """Events that were dropped because too many waited."""
        return self._feed.dropped_count

    def close(self) -> None:
        """Stop listening; kept events can still be read."""
        self._stop()
        self._feed.close()

    def __del__(self) -> None:
        # The source knows the feed and not this handle, so a forgotten iterator is not fed for ever.
        self._stop()


class EventFeeds(Generic[E]):
    """All listeners of one source; each has a bounded buffer of its own."""

    def __init__(self, what: str, *, count_max: int) -> None:
        self._what = what
        self._count_max = count_max
        self._feeds: dict[EventFeed[E], None] = {}
        self._closed = False
        self.dropped_count = 0

    def open(self) -> EventStream[E]:
        """Add a listener; one of a closed source gets no events."""
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
        """No more events come; kept ones can still be read."""
        self._closed = True
        for feed in tuple(self._feeds):
            feed.close()
        self._feeds.clear()

    def _dropped(self) -> None:
        self.dropped_count += 1
