"""Sessions in a store, and what keeps one open, for threads."""

# Written by `python -m mirrors.build` from the asynchronous classes: change those, or mirrors/plan.py.

from __future__ import annotations

from hansa.coordination.session import Session as AsyncSession
from hansa.coordination.session import SessionKeeper as AsyncSessionKeeper
from hansa.errors import SessionLost
from hansa.keys import Keys
from hansa.limits import MEMBER_HEARTBEAT_TIMEOUT_S, STORE_TIMEOUT_S
from hansa.sync.mirror import EndingMirror, within
from hansa.sync.store import Store
from hansa.transport.environment import Environment


class Session(EndingMirror[AsyncSession]):
    """One lease in a store, renewed until the block is left; locks and leaderships hang on it.

    As the asynchronous session, for any number of threads, which may share one. It is lost when the store
    ends the lease, or when no renewal was answered until shortly (`margin`) before the lease could end: then
    for good, and users open another one. If the store cannot be reached and comes back before that, nothing
    is lost. `is_live`, `deadline_s`, `remaining_s` and `check` ask nobody: they are true at any moment and
    never wait.

    Entering raises StoreUnavailable and TimedOut. Leaving ends the lease, in a bounded time, or lets it end
    by itself; calls that wait for something of this session end with AlreadyClosed.
    """

    def __init__(
        self,
        store: Store,
        ttl: float = 10.0,
        *,
        cluster: str = "default",
        node: str = "",
        margin: float | None = None,
        name: str = "",
        renew_interval: float | None = None,
        loop_silence_s_max: float | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Raises BadArgument."""
        super().__init__(
            f"session {name}" if name else "session",
            AsyncSession(
                store._inner,
                ttl,
                cluster=cluster,
                node=node,
                margin=margin,
                name=name,
                renew_interval=renew_interval,
                loop_silence_s_max=loop_silence_s_max,
                environment=environment,
            ),
        )
        self.store = store

    @property
    def keys(self) -> Keys:
        """Where what hangs on this session stands in the store."""
        return self._inner.keys

    @property
    def lease(self) -> int:
        """The lease's number in the store. Raises `UsageError` before the session was entered."""
        self._check_entered()
        return self._inner.lease

    @property
    def ttl_s(self) -> float:
        """How long the lease lives without a renewal."""
        return self._inner.ttl_s

    @property
    def margin_s(self) -> float:
        """How long before the lease's end the session is lost."""
        return self._inner.margin_s

    @property
    def is_live(self) -> bool:
        """Whether what hangs on this session is still owned. False from the deadline on, for ever.

        Asks nobody, and never waits.
        """
        self._check_process()
        return self._inner.is_live

    @property
    def deadline_s(self) -> float:
        """When the session is lost unless it is renewed, on the store's clock; each renewal moves it on."""
        self._check_entered()
        return self._inner.deadline_s

    @property
    def remaining_s(self) -> float:
        """How long the session surely lives from now on; 0.0 once it is lost."""
        self._check_entered()
        return self._inner.remaining_s

    @property
    def vacant_until_s(self) -> float:
        """Until when nobody else can own what hangs on this session: its lease's end; 0.0 once that ended.

        An owner that must stop its work because the session was lost has until then.
        """
        self._check_entered()
        return self._inner.vacant_until_s

    @property
    def loop_lag_s(self) -> float:
        """How late hansa's thread was when the keeper last looked; grows while it is stuck."""
        self._check_entered()
        return self._inner.loop_lag_s

    @property
    def failures_count(self) -> int:
        """Renewals in a row that the store did not answer; 0 when all is well."""
        self._check_entered()
        return self._inner.failures_count

    def check(self) -> None:
        """Raise `SessionLost`, with the reason, unless it lives. Raises `UsageError` when not open."""
        self._check_entered()
        self._inner.check()

    def lost(self, timeout: float | None = None) -> SessionLost:
        """Wait until it is lost; returns the reason. Raises TimedOut, and AlreadyClosed when it is closed."""
        return self._call(lambda: within(timeout, self._inner.lost, f"{self.name} still lives"), "lost")

    def renew(self, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """Renew the lease now, besides the renewals in the background.

        Raises `SessionLost`; also `TimedOut` and `StoreUnavailable`, which lose nothing by themselves.
        """
        self._call(lambda: self._inner.renew(timeout=timeout), "renew")

    def close(self) -> None:
        """End the lease, as leaving the block does. Closing twice does no harm."""
        self.__exit__(None, None, None)


class SessionKeeper(EndingMirror[AsyncSessionKeeper]):
    """Keeps a session open in a store: opens another one whenever one was lost. One serves a process.

    As the asynchronous keeper, for any number of threads, which share it: locks, semaphores, barriers,
    elections, members and topic nodes take it as they take a session. What hangs on a session is lost with
    it, and must be taken again on the next one.

    Entering begins to open the first session, and waits for no store; `live` waits. Leaving ends the lease of
    the last session as leaving a `Session` does; calls that wait for something of it end with AlreadyClosed.
    """

    def __init__(
        self,
        store: Store,
        *,
        cluster: str = "default",
        node: str = "",
        ttl: float = 2 * MEMBER_HEARTBEAT_TIMEOUT_S,
        margin: float | None = None,
        name: str = "",
        renew_interval: float | None = None,
        loop_silence_s_max: float | None = None,
        environment: Environment | None = None,
    ) -> None:
        """Raises BadArgument."""
        super().__init__(
            f"the keeper of session {name}" if name else "the keeper of a session",
            AsyncSessionKeeper(
                store._inner,
                cluster=cluster,
                node=node,
                ttl=ttl,
                margin=margin,
                name=name,
                renew_interval=renew_interval,
                loop_silence_s_max=loop_silence_s_max,
                environment=environment,
            ),
        )
        self.store = store

    @property
    def keys(self) -> Keys:
        """Where what hangs on its sessions stands in the store."""
        return self._inner.keys

    @property
    def ttl_s(self) -> float:
        """How long the lease of each session lives without a renewal."""
        return self._inner.ttl_s

    @property
    def loop_lag_s(self) -> float:
        """How late hansa's thread was when the session was last kept; grows while it is stuck.

        Asks nobody, and never waits.
        """
        self._check_process()
        return self._inner.loop_lag_s

    def live(self, timeout: float | None = None) -> KeptSession:
        """Wait for a session that lives.

        Raises TimedOut, or StoreUnavailable if the store is why; AlreadyClosed; UsageError before entering.
        """
        return KeptSession(self, self._call(lambda: self._inner.live(timeout), "live"))

    def close(self, reason: str = "") -> None:
        """End the lease, and open no other; later calls raise this reason. Closing twice does no harm."""
        self._close(lambda: self._inner.close(reason))


class KeptSession:
    """One session of a `SessionKeeper`, which opens and ends it. `live` returns it.

    It behaves as a `Session` does. When it is lost, the keeper opens another one: ask for that with `live`.
    """

    def __init__(self, keeper: SessionKeeper, inner: AsyncSession) -> None:
        self._keeper = keeper
        self._inner = inner

    @property
    def lease(self) -> int:
        """The lease's number in the store. Asks nobody, and never waits."""
        self._keeper._check_process()
        return self._inner.lease

    @property
    def ttl_s(self) -> float:
        """How long the lease lives without a renewal."""
        return self._inner.ttl_s

    @property
    def margin_s(self) -> float:
        """How long before the lease's end the session is lost."""
        return self._inner.margin_s

    @property
    def is_live(self) -> bool:
        """Whether what hangs on this session is still owned. False from the deadline on, for ever.

        Asks nobody, and never waits.
        """
        self._keeper._check_process()
        return self._inner.is_live

    @property
    def deadline_s(self) -> float:
        """When the session is lost unless it is renewed, on the store's clock; each renewal moves it on.

        Asks nobody, and never waits.
        """
        self._keeper._check_process()
        return self._inner.deadline_s

    @property
    def remaining_s(self) -> float:
        """How long the session surely lives from now on; 0.0 once it is lost.

        Asks nobody, and never waits.
        """
        self._keeper._check_process()
        return self._inner.remaining_s

    @property
    def vacant_until_s(self) -> float:
        """Until when nobody else can own what hangs on this session: its lease's end; 0.0 once that ended.

        An owner that must stop its work because the session was lost has until then. Asks nobody, and never
        waits.
        """
        self._keeper._check_process()
        return self._inner.vacant_until_s

    @property
    def loop_lag_s(self) -> float:
        """How late hansa's thread was when the keeper last looked; grows while it is stuck.

        Asks nobody, and never waits.
        """
        self._keeper._check_process()
        return self._inner.loop_lag_s

    @property
    def failures_count(self) -> int:
        """Renewals in a row that the store did not answer; 0 when all is well.

        Asks nobody, and never waits.
        """
        self._keeper._check_process()
        return self._inner.failures_count

    def check(self) -> None:
        """Raise SessionLost, with the reason, unless it lives. Asks nobody, and never waits."""
        self._keeper._check_process()
        self._inner.check()

    def lost(self, timeout: float | None = None) -> SessionLost:
        """Wait until it is lost; returns the reason.

        Raises TimedOut, and AlreadyClosed when the keeper is closed.
        """
        return self._keeper._call(
            lambda: within(timeout, self._inner.lost, "the session still lives"), "lost of a kept session"
        )

    def renew(self, *, timeout: float | None = STORE_TIMEOUT_S) -> None:
        """Renew the lease now, besides the renewals in the background.

        Raises `SessionLost`; also `TimedOut` and `StoreUnavailable`, which lose nothing by themselves.
        """
        self._keeper._call(lambda: self._inner.renew(timeout=timeout), "renew of a kept session")
