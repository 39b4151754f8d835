"""Blocking iterators for threads, made of asynchronous ones; several threads may share one.

`EventStream` keeps events until they are read. `News` follows something in a store. `Watch` tells every
change in a store.
"""

from __future__ import annotations

import asyncio
from typing import Any, Generic, Protocol, Self, TypeVar

from hansa.errors import AlreadyClosed, TimedOut, WouldBlock
from hansa.limits import STORE_TIMEOUT_S
from hansa.runtime.steps import LooseStep
from hansa.services.discovery.events import DiscoveryEvent
from hansa.store.store import Watch as AsyncWatch
from hansa.store.values import WatchBatch
from hansa.sync.mirror import Mirror

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class EventSource(Protocol[E_co]):
    """An asynchronous stream of events. Cancelling a step loses no event."""

    @property
    def dropped_count(self) -> int: ...

    async def __anext__(self) -> E_co: ...

    def get_nowait(self) -> E_co: ...

    def close(self) -> None: ...


class Pieces(Generic[E]):
    """The base of them: an iterator that takes one piece after the other until there are no more."""

    def get(self, timeout: float | None = None) -> E:
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> E:
        try:
            return self.get()
        except AlreadyClosed:
            raise StopIteration from None


class EventStream(Pieces[E]):
    """A blocking iterator over events, from the call that made it on.

    It ends after `close`, or when its source closes, once what it kept is read. Several threads may share
    one: each event goes to one of them. An interrupted step loses no event.
    """

    def __init__(self, source: Mirror[Any], inner: EventSource[E]) -> None:
        self._source = source
        self._inner = inner

    def get(self, timeout: float | None = None) -> E:
        """The next event. Raises TimedOut, and AlreadyClosed after the end."""
        try:
            return self._source._call(lambda: self._get(timeout), "events")
        except AlreadyClosed:
            # The loop may have ended, with events left.
            return self._source._ask(self._get_kept)

    @property
    def dropped_count(self) -> int:
        """Events that were dropped because too many waited."""
        return self._inner.dropped_count

    def close(self) -> None:
        """Stop listening; kept events can still be read. A thread that waits in it gets the end."""
        self._source._ask(self._inner.close)

    def __del__(self) -> None:
        # The loop's thread may be iterating over the listeners: a dropped one is removed there.
        steps = self._source._steps
        if steps is not None:
            steps.post(LooseStep(self._inner.close))

    async def _get(self, timeout: float | None) -> E:
        try:
            async with asyncio.timeout(timeout):
                return await self._inner.__anext__()
        except TimeoutError:
            raise TimedOut(f"nothing happened at {self._source.name} within {timeout} s") from None
        except StopAsyncIteration:
            raise AlreadyClosed(f"the events of {self._source.name} have ended") from None

    def _get_kept(self) -> E:
        try:
            return self._inner.get_nowait()
        except WouldBlock:
            raise AlreadyClosed(f"the events of {self._source.name} have ended") from None


class DiscoveryEvents(EventStream[DiscoveryEvent]):
    """A blocking iterator over a discovery's events, from the call that made it on.

    It ends after `close`, or when the discovery closes, once what it kept is read. Several threads may share
    one: each event goes to one of them. An interrupted step loses no event.
    """


class Followed(Protocol[E_co]):
    """An asynchronous iterator that follows something. Cancelling a step loses nothing."""

    async def __anext__(self) -> E_co: ...

    def close(self) -> None: ...


class News(Pieces[E]):
    """A blocking iterator over news from a store.

    It waits for a store that cannot be reached, and then tells what it missed. It ends after `close`, or when
    the store is closed. Several threads may share one: each piece goes to one of them. An interrupted step
    loses nothing.
    """

    def __init__(self, store: Mirror[Any], inner: Followed[E], what: str) -> None:
        self._store = store
        self._inner = inner
        self._what = what
        # The asynchronous iterator is for one reader.
        self._turn = asyncio.Lock()

    def get(self, timeout: float | None = None) -> E:
        """The next piece. Raises TimedOut, which loses nothing, and AlreadyClosed after the end."""
        return self._store._call(lambda: self._get(timeout), self._what)

    def close(self) -> None:
        """Stop following. A thread that waits in it gets the end."""
        self._store._ask(self._inner.close)

    async def _get(self, timeout: float | None) -> E:
        try:
            async with asyncio.timeout(timeout), self._turn:
                return await self._inner.__anext__()
        except TimeoutError:
            raise TimedOut(f"{self._what} of {self._store.name}: nothing new within {timeout} s") from None
        except StopAsyncIteration:
            raise AlreadyClosed(f"{self._what} of {self._store.name}: it is closed") from None


class Watch(Pieces[WatchBatch]):
    """Changes as they happen: a blocking iterator of batches, one per revision, without gaps or repeats.

    A step raises Compacted when the history it should read is gone, WatchOverrun when it read too slowly; and
    the same error in all later steps. It ends after `close`, or when the store is closed. Several threads may
    share one: each batch goes to one of them. An interrupted step loses nothing.
    """

    def __init__(self, store: Mirror[Any], inner: AsyncWatch) -> None:
        self._store = store
        self._inner = inner

    def get(self, timeout: float | None = None) -> WatchBatch:
        """The next batch. Raises TimedOut, which loses nothing, and AlreadyClosed after the end."""
        return self._store._call(lambda: self._get(timeout), "watch")

    def ready(self, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Wait until the store has the watch; returns its first revision. Raises as a step does.

        A change that is made after that is surely told.
        """
        return self._store._call(lambda: self._inner.ready(timeout=timeout), "ready")

    def close(self) -> None:
        """Stop watching; changes that were not read are dropped. A thread that waits in it gets the end."""
        steps = self._store._steps
        if steps is None:
            return  # It has ended with the store.
        try:
            steps.run(self._inner.close)
        except AlreadyClosed:
            return

    async def _get(self, timeout: float | None) -> WatchBatch:
        try:
            async with asyncio.timeout(timeout):
                return await anext(self._inner)
        except TimeoutError:
            raise TimedOut(f"nothing changed in {self._store.name} within {timeout} s") from None
        except StopAsyncIteration:
            raise AlreadyClosed(f"this watch of {self._store.name} is closed") from None
