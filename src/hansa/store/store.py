"""The one interface of every store, shaped like etcd's. Coordination needs nothing else from a store.

Every call ends by its deadline: `timeout` seconds from now (None waits for ever). Then it raises `TimedOut`,
and the request may or may not have been carried out; the same holds for a call that is cancelled.
`StoreUnavailable` says that nothing was done. After closing, calls raise `AlreadyClosed`. Wrong arguments
raise `BadArgument`. A store that went back in time behind what was seen of it can be read and not changed:
`StoreWentBack`.
"""

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from hansa.clock import Clock
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.values import Compare, KeyValue, LeaseInfo, Operation, Outcome, Scan, StoreStatus, WatchBatch


class Watch(Protocol):
    """Changes as they happen: an async iterator of batches, one per revision, without gaps or repeats.

    A step raises `Compacted` when the history it should read is gone, or when the store went back in time and
    never had it, `WatchOverrun` when it read too slowly, `AlreadyClosed` when the store was closed; and the
    same error in all later steps. Cancelling a step loses nothing. It ends after `close`. A change that is
    made after `ready` has returned is surely told.

    A reader of many watches needs no task for each: `call_back` says when there is something to `take`.
    """

    async def ready(self, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Wait until the store has the watch; returns its first revision. Raises as a step does."""

    def take(self) -> WatchBatch | None:
        """The next batch if it has come, else None. Raises as a step does, and never waits."""

    def call_back(self, on_news: Callable[[], None]) -> None:
        """Call `on_news` whenever there may be something to `take`: then take until there is nothing.

        It is called on the loop, in a turn of its own, also for changes that came before, and for errors that
        `take` raises; never after `close`. A watch that calls back must be closed: it does not end when it is
        only dropped.
        """

    def close(self) -> None:
        """Stop watching; changes that were not read are dropped."""

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> WatchBatch: ...


class Keeping(Protocol):
    """A lease that is renewed again and again, until it is stopped or lost. See `Store.keep`."""

    @property
    def kept_until_s(self) -> float:
        """When the lease may end, on the store's clock: its time after the last answered renewal was sent.

        True at any moment, also right after the event loop was stuck.
        """

    @property
    def is_lost(self) -> bool:
        """Whether the store said that the lease is gone, or went back in time. A lost lease stays lost."""

    @property
    def failures_count(self) -> int:
        """Renewals in a row that the store did not answer."""

    @property
    def loop_lag_s(self) -> float:
        """How late the event loop was when it was last checked; grows while it does not answer."""

    def stop(self) -> None:
        """Stop renewing. The lease is left to itself."""

    async def stopped(self) -> None:
        """Stop, and wait until no task of it is left. Cancelling it does not undo the stop."""


class Store(Protocol):
    """Keys with revisions, transactions, leases and watches. Use it with `async with`."""

    @property
    def clock(self) -> Clock:
        """The clock on which holders of leases count when they end."""

    async def get(
        self, key: bytes | str, *, revision: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> KeyValue | None:
        """A key now, or at a revision; None when it is not there. Raises `Compacted`, `FutureRevision`.

        etcd tells only watches, not reads, what it still remembers: `compacted_revision` is 0 there.
        """

    async def scan(
        self,
        prefix_or_key: bytes | str,
        range_end: bytes | str | None = None,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Scan:
        """All keys with a prefix, or from a key to `range_end`. Raises `Compacted`, `FutureRevision`."""

    async def put(
        self, key: bytes | str, value: bytes, *, lease: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> int:
        """Set a key; returns the revision. Raises `LeaseLost`."""

    async def delete(self, key: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> bool:
        """Delete a key; returns whether it was there."""

    async def delete_prefix(self, prefix: bytes | str, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Delete all keys with a prefix, in one revision; returns how many there were."""

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        """Carry out `then` if all compares hold, else `otherwise`; whole or not. Raises `LeaseLost`."""

    async def grant(self, ttl: float, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        """Grant a new lease; returns its number. An engine may grant it for longer: see `lease_info`."""

    async def keep_alive(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> float:
        """Start a lease's time again; returns how many seconds it has. Raises `LeaseLost`."""

    def keep(
        self,
        lease: int,
        *,
        ttl: float,
        granted_s: float,
        interval: float,
        loop_silence_s_max: float,
        on_change: Callable[[], None],
    ) -> Keeping:
        """Renew a lease at this interval, from a place that a busy event loop cannot starve, if there is one.

        `granted_s` is the store's clock before the lease was requested. While the loop has been silent for
        longer than `loop_silence_s_max` nothing is renewed: a program that is stuck must not look alive for
        ever. `on_change` is called on the loop, after each try.
        """

    async def revoke(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """End a lease and delete its keys, in one revision. Raises `LeaseLost`."""

    async def lease_info(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> LeaseInfo | None:
        """The remaining time of a lease, and its keys; None when it is gone."""

    async def compact(self, revision: int, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """Forget what no read at this revision or later sees. Raises `Compacted`, `FutureRevision`."""

    def watch(
        self, prefix: bytes | str, *, start_revision: int = 0, before: bool = False, exact: bool = False
    ) -> Watch:
        """The changes of all keys with a prefix, or of one key (`exact`), from a revision on (0: from now).

        `before` adds to each event the key as it was before. The watch raises errors, not this call.
        """

    async def status(self, *, timeout: float | None = STORE_TIMEOUT_S) -> StoreStatus:
        """Which store answers, and how far it is."""

    async def close(self) -> None:
        """Close it for all who entered it: waiting calls raise `AlreadyClosed`, watches end.

        Twice does no harm. Leaving the last `async with` does the same.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
