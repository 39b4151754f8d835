"""Events for threads that read them when they get to it."""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, Self, TypeVar

from hansa.errors import AlreadyClosed, TimedOut, WouldBlock
from hansa.runtime.steps import Order
from hansa.sync.mirror import Mirror

E = TypeVar("E")
E_co = TypeVar("E_co", covariant=True)


class Feed(Protocol[E_co]):
    """What an asynchronous stream of events is like. Cancelling a step takes nothing out."""

    @property
    def dropped_count(self) -> int: ...

    async def __anext__(self) -> E_co: ...

    def get_nowait(self) -> E_co: ...

    def close(self) -> None: ...


class EventStream(Generic[E]):
    """A blocking iterator over events, from the call that made it on.

    It ends after `close`, or when what it listens to closes, once what it kept is read. Several threads may
    share one: each event goes to one of them. An interrupted step takes nothing out.
    """

    def __init__(self, source: Mirror, inner: Feed[E]) -> None:
        self._source = source
        self._inner = inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> E:
        try:
            return self.get()
        except AlreadyClosed:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> E:
        """The next event. Raises TimedOut, and AlreadyClosed after the end."""
        try:
            return self._source._call(lambda: self._get(timeout), "events")
        except AlreadyClosed:
            # There may be no loop any more, and something left.
            return self._source._ask(self._get_kept)

    @property
    def dropped_count(self) -> int:
        """Events that went unread because too many waited."""
        return self._inner.dropped_count

    def close(self) -> None:
        """Listen no more; what was kept can still be read. A thread that waits in it gets the end."""
        self._source._ask(self._inner.close)

    def __del__(self) -> None:
        # The loop's thread may be going over those who listen: what is thrown away leaves them there.
        steps = self._source._steps
        if steps is not None:
            steps.post(Order(self._inner.close))

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
