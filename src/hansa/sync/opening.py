"""How a blocking store is opened: by an address, and again after it was closed. The rest is in `store`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from hansa.errors import AlreadyClosed
from hansa.store.opening import open_store as open_async_store
from hansa.store.store import Store as AsyncStore
from hansa.sync.mirror import EndingMirror
from hansa.transport import Environment

if TYPE_CHECKING:
    from hansa.sync.store import Store

# Threads that open one name at a time must find one store.
_turn = threading.Lock()


def open_store(address: str, *, environment: Environment | None = None, **options: Any) -> Store:
    """The store at an address, for threads; open it with `with`.

    Addresses and options are those of the asynchronous `open_store`. A `memory://name` is shared by all who
    open it here. Raises BadEndpoint, which says what to write, and never a password.
    """
    from hansa.sync.store import Store  # It stands on this module.

    def make() -> AsyncStore:
        with _turn:
            return open_async_store(address, environment=environment, **options)

    scheme, _, rest = address.partition("://")
    return Store(make, name=f"{scheme}://{rest.rpartition('@')[2]}")


class OpeningStore(EndingMirror):
    """The part of a blocking store that makes the asynchronous one, and enters and leaves it."""

    def __init__(self, make: Callable[[], AsyncStore], *, name: str = "store") -> None:
        """`make` gives the asynchronous store; it is called now, and when a closed one is opened again."""
        super().__init__(name)
        self._make = make
        self._inner = make()

    def __enter__(self) -> Self:
        self._open(self._enter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it here: who waits gets AlreadyClosed, watches end. Closing twice does no harm.

        A store that others have entered too, such as a `memory://name`, lives on with them.
        """
        self._close(lambda: self._inner.__aexit__(None, None, None))

    async def _enter(self) -> None:
        try:
            await self._inner.__aenter__()
        except AlreadyClosed:
            # Another thread has closed what both had found under one name.
            self._inner = self._make()
            await self._inner.__aenter__()


def _after_fork_in_child() -> None:
    global _turn
    # Whoever held the lock is a thread of the parent.
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
