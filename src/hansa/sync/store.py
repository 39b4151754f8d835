"""The store for threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from hansa.clock import Clock
from hansa.errors import AlreadyClosed, TimedOut
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.opening import open_store as open_async_store
from hansa.store.store import Store as AsyncStore
from hansa.store.store import Watch as AsyncWatch
from hansa.store.values import (
    Compare,
    KeyValue,
    LeaseInfo,
    Operation,
    Outcome,
    Scan,
    StoreStatus,
    WatchBatch,
)
from hansa.sync.ending_mirror import EndingMirror
from hansa.transport import Tls

# Threads that open one name at a time must find one store.
_turn = threading.Lock()


def open_store(address: str, *, tls: Tls | None = None, **options: Any) -> Store:
    """The store at an address, for threads; open it with `with`.

    Addresses and options are those of the asynchronous `open_store`. A `memory://name` is shared by all who
    open it here. Raises BadEndpoint, which says what to write, and never a password.
    """

    def make() -> AsyncStore:
        with _turn:
            return open_async_store(address, tls=tls, **options)

    scheme, _, rest = address.partition("://")
    return Store(make, name=f"{scheme}://{rest.rpartition('@')[2]}")


class Store(EndingMirror):
    """Keys with revisions, transactions, leases and watches. `open_store` gives one; use it with `with`.

    As the asynchronous store, for any number of threads. Every call ends by its deadline: `timeout` seconds
    from now (None waits for ever), then TimedOut, and what was asked may or may not have happened; so it is
    with a call that is interrupted. StoreUnavailable says that nothing happened. Wrong arguments raise
    BadArgument. When the store is closed, calls that wait end with AlreadyClosed.
    """

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
        """End it: who waits gets AlreadyClosed, watches end. Closing twice does no harm."""
        self._close(lambda: self._inner.__aexit__(None, None, None))

    # -- keys

    def get(
        self, key: bytes | str, *, revision: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> KeyValue | None:
        """A key now, or at a revision; None when it is not there. Raises Compacted, FutureRevision."""
        return self._call(lambda: self._inner.get(key, revision=revision, timeout=timeout), "get")

    def scan(
        self,
        prefix_or_key: bytes | str,
        range_end: bytes | str | None = None,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Scan:
        """All keys with a prefix, or from a key to `range_end`. Raises Compacted, FutureRevision."""
        return self._call(
            lambda: self._inner.scan(
                prefix_or_key,
                range_end,
                limit=limit,
                revision=revision,
                keys_only=keys_only,
                timeout=timeout,
            ),
            "scan",
        )

    def put(
        self, key: bytes | str, value: bytes, *, lease: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> int:
        """Set a key; gives the revision. Raises LeaseLost."""
        return self._call(lambda: self._inner.put(key, value, lease=lease, timeout=timeout), "put")

    def delete(self, key: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> bool:
        """Delete a key; says whether it was there."""
        return self._call(lambda: self._inner.delete(key, timeout=timeout), "delete")

    def delete_prefix(self, prefix: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Delete all keys with a prefix, in one revision; gives how many there were."""
        return self._call(lambda: self._inner.delete_prefix(prefix, timeout=timeout), "delete_prefix")

    def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        """Carry out `then` if all compares hold, else `otherwise`; whole or not. Raises LeaseLost."""
        return self._call(lambda: self._inner.commit(compares, then, otherwise, timeout=timeout), "commit")

    def watch(
        self, prefix: bytes | str, *, start_revision: int = 0, before: bool = False, exact: bool = False
    ) -> Watch:
        """The changes of all keys with a prefix, or of one key (`exact`), from a revision on (0: from now).

        `before` adds to each event what the key was. Trouble is told by the watch, not by this call.
        """
        steps = self._held()
        return Watch(
            self,
            steps.run(
                lambda: self._inner.watch(prefix, start_revision=start_revision, before=before, exact=exact)
            ),
        )

    # -- leases

    def grant(self, ttl_s: float, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """A new lease. An engine may grant it for longer: see `lease_info`."""
        return self._call(lambda: self._inner.grant(ttl_s, timeout=timeout), "grant")

    def keep_alive(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> float:
        """Begin a lease's time anew; gives how many seconds it has. Raises LeaseLost.

        A `Session` does this by itself.
        """
        return self._call(lambda: self._inner.keep_alive(lease, timeout=timeout), "keep_alive")

    def revoke(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """End a lease and delete its keys, in one revision. Raises LeaseLost."""
        self._call(lambda: self._inner.revoke(lease, timeout=timeout), "revoke")

    def lease_info(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> LeaseInfo | None:
        """What is left of a lease, and its keys; None when it is gone."""
        return self._call(lambda: self._inner.lease_info(lease, timeout=timeout), "lease_info")

    # -- the store itself

    def compact(self, revision: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """Forget what no read at this revision or later sees. Raises Compacted, FutureRevision."""
        self._call(lambda: self._inner.compact(revision, timeout=timeout), "compact")

    def status(self, *, timeout: float | None = STORE_TIMEOUT_S) -> StoreStatus:
        """Which store answers, and how far it is."""
        return self._call(lambda: self._inner.status(timeout=timeout), "status")

    @property
    def clock(self) -> Clock:
        """What the ends of leases are reckoned on, by those who hold them."""
        return self._inner.clock

    async def _enter(self) -> None:
        try:
            await self._inner.__aenter__()
        except AlreadyClosed:
            # Another thread has closed what both had found under one name.
            self._inner = self._make()
            await self._inner.__aenter__()


class Watch:
    """Changes as they happen: a blocking iterator of batches, one per revision, without gap and repeat.

    A step raises Compacted when the history it should read is gone, WatchOverrun when it read too slowly; and
    the same ever after. It ends after `close`, or when the store is closed. Several threads may share one:
    each batch goes to one of them. An interrupted step takes nothing out.
    """

    def __init__(self, store: Store, inner: AsyncWatch) -> None:
        self._store = store
        self._inner = inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> WatchBatch:
        try:
            return self.get()
        except AlreadyClosed:
            raise StopIteration from None

    def get(self, timeout: float | None = None) -> WatchBatch:
        """The next batch. Raises TimedOut, which takes nothing out, and AlreadyClosed after the end."""
        return self._store._call(lambda: self._get(timeout), "watch")

    def ready(self, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Wait until the store has it; gives the first revision that it tells of. Raises as a step does.

        What is changed after that is surely told.
        """
        return self._store._call(lambda: self._inner.ready(timeout=timeout), "ready")

    def close(self) -> None:
        """Watch no more; what was not read is dropped. A thread that waits in it gets the end."""
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


def _after_fork_in_child() -> None:
    global _turn
    # Whoever held the lock is a thread of the parent.
    _turn = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
