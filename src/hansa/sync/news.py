"""What is followed in a store, for threads."""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, Self, TypeVar

from hansa.errors import AlreadyClosed, TimedOut
from hansa.sync.store import Store

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Source(Protocol[T_co]):
    """What an asynchronous iterator is like that follows something. Cancelling a step takes nothing out."""

    async def __anext__(self) -> T_co: ...

    def close(self) -> None: ...


class News(Generic[T]):
    """A blocking iterator over what is new in a store.

    It waits for a store that cannot be reached, and then tells what it missed. It ends after `close`, or when
    the store is closed. Several threads may share one: each piece goes to one of them. An interrupted step
    takes nothing out.
    """

    def __init__(self, store: Store, inner: Source[T], what: str) -> None:
        self._store = store
        self._inner = inner
        self._what = what
        # What it mirrors is for one reader.
        self._turn = asyncio.Lock()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return self.get()
        except AlreadyClosed:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> T:
        """The next piece. Raises TimedOut, which takes nothing out, and AlreadyClosed after the end."""
        return self._store._call(lambda: self._get(timeout), self._what)

    def close(self) -> None:
        """Follow no more. A thread that waits in it gets the end."""
        self._store._ask(self._inner.close)

    async def _get(self, timeout: float | None) -> T:
        try:
            async with asyncio.timeout(timeout), self._turn:
                return await self._inner.__anext__()
        except TimeoutError:
            raise TimedOut(f"{self._what} of {self._store.name}: nothing new within {timeout} s") from None
        except StopAsyncIteration:
            raise AlreadyClosed(f"{self._what} of {self._store.name}: it is closed") from None
