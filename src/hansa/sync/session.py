"""The session for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from hansa.chance import Chance
from hansa.coordination.session import Session as AsyncSession
from hansa.errors import SessionLost, TimedOut
from hansa.keys import Keys
from hansa.limits import STORE_TIMEOUT_S
from hansa.sync.ending_mirror import EndingMirror
from hansa.sync.store import Store

T = TypeVar("T")


class Session(EndingMirror):
    """One lease in a store, renewed until the block is left; locks and leaderships hang on it.

    As the asynchronous session, for any number of threads, which may share one. It is lost when the store
    ends the lease, or when no renewal was answered until shortly (`margin_s`) before the lease could end:
    then for good, and users open another one. `is_live`, `deadline_s`, `remaining_s` and `check` ask nobody:
    they are true at any moment and never wait.

    Entering raises StoreUnavailable and TimedOut. Leaving ends the lease, in a bounded time, or lets it end
    by itself; calls that wait for something of this session end with AlreadyClosed.
    """

    def __init__(
        self,
        store: Store,
        ttl: float = 10.0,
        *,
        cluster: str = "default",
        margin_s: float | None = None,
        name: str = "",
        renew_interval_s: float | None = None,
        loop_silence_s_max: float | None = None,
        chance: Chance | None = None,
    ) -> None:
        """Raises BadArgument."""
        super().__init__(f"session {name}" if name else "session")
        self.store = store
        self._inner = AsyncSession(
            store._inner,
            ttl,
            cluster=cluster,
            margin_s=margin_s,
            name=name,
            renew_interval_s=renew_interval_s,
            loop_silence_s_max=loop_silence_s_max,
            chance=chance,
        )

    def __enter__(self) -> Self:
        self._open(self._inner.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(lambda: self._inner.__aexit__(kind, error, trace))

    def close(self) -> None:
        """Own nothing any more, then end the lease. Closing twice does no harm."""
        self.__exit__(None, None, None)

    @property
    def keys(self) -> Keys:
        """Where what hangs on this session stands in the store."""
        return self._inner.keys

    @property
    def lease(self) -> int:
        """The lease's number in the store. Raises UsageError before the session was entered."""
        return self._entered().lease

    @property
    def ttl_s(self) -> float:
        return self._inner.ttl_s

    @property
    def margin_s(self) -> float:
        """So long before the lease's end the session is lost."""
        return self._inner.margin_s

    @property
    def is_live(self) -> bool:
        """Whether what hangs on this session is still owned. False from the deadline on, and ever after."""
        self._check_process()
        return self._inner.is_live

    @property
    def deadline_s(self) -> float:
        """When it is lost unless it is renewed, on the store's clock; each renewal moves it on."""
        return self._entered().deadline_s

    @property
    def remaining_s(self) -> float:
        """How long it surely lives from now on; 0.0 once it is lost."""
        return self._entered().remaining_s

    @property
    def vacant_until_s(self) -> float:
        """Until when nobody else can own what hangs on this session: its lease's end; 0.0 once that ended.

        Who stops its work because the session was lost has until then.
        """
        return self._entered().vacant_until_s

    @property
    def loop_lag_s(self) -> float:
        """How late the thread behind hansa.sync was when the keeper last looked; grows while it is stuck."""
        return self._entered().loop_lag_s

    @property
    def failures_count(self) -> int:
        """Renewals in a row that the store did not answer; 0 when all is well."""
        return self._entered().failures_count

    def check(self) -> None:
        """Raise SessionLost, with the reason, unless it lives. Raises UsageError when not entered."""
        self._entered().check()

    def lost(self, timeout: float | None = None) -> SessionLost:
        """Wait until it is lost; gives the reason. Raises TimedOut, and AlreadyClosed when it is closed."""
        return self._call(
            lambda: within(timeout, self._inner.lost, f"{self.name} still lives after {timeout} s"), "lost"
        )

    def renew(self, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """Renew the lease now, besides the renewals in the background.

        Raises SessionLost; also TimedOut and StoreUnavailable, which lose nothing by themselves.
        """
        self._call(lambda: self._inner.renew(timeout=timeout), "renew")

    def _entered(self) -> AsyncSession:
        """What any thread may read. Raises UsageError before the block, and in another process."""
        self._check_process()
        if not self._was_open:
            self._held()
        return self._inner


async def within(timeout: float | None, wait: Callable[[], Coroutine[Any, Any, T]], otherwise: str) -> T:
    """What it gives. Raises TimedOut with this text."""
    try:
        async with asyncio.timeout(timeout):
            return await wait()
    except TimeoutError:
        raise TimedOut(otherwise) from None
