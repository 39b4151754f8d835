"""Members for threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from hansa.chance import Chance
from hansa.coordination.member import Member, MembersEvent, MembersStats
from hansa.coordination.members import Members as AsyncMembers
from hansa.coordination.node_info import MemberStatus, NodeInfo
from hansa.coordination.roster import Roster
from hansa.limits import MEMBER_HEARTBEAT_INTERVAL_S, MEMBER_HEARTBEAT_TIMEOUT_S, STORE_TIMEOUT_S
from hansa.sync.ending_mirror import EndingMirror
from hansa.sync.event_stream import EventStream
from hansa.sync.store import Store


class Members(EndingMirror):
    """A view of a cluster's members, and with `node` a place in it. Use it once, with `with`.

    As the asynchronous one, for threads. Entering reads who is there and joins; leaving says so, and the
    others see LEFT at once. While it is open its lease is renewed every `heartbeat_interval`; without a
    renewal for `heartbeat_timeout` it is SUSPECT to all, for twice that DOWN. A record that is gone is put
    there again, with a higher incarnation. The latest process with an id wins, and the former one is told by
    `Expelled`; with `takeover=False` entering raises Conflict instead. Without `node` it only looks.

    When the store is away the view stays as it was, and `is_stale` says so; nobody is declared dead for it.
    Entering raises StoreUnavailable or TimedOut when the store does not answer, BadArgument, AlreadyClosed.
    Heartbeats come from the threads of hansa: work of yours, however long, does not hold them up.
    """

    def __init__(
        self,
        store: Store,
        node: NodeInfo | None = None,
        *,
        cluster: str = "default",
        heartbeat_interval: float = MEMBER_HEARTBEAT_INTERVAL_S,
        heartbeat_timeout: float = MEMBER_HEARTBEAT_TIMEOUT_S,
        takeover: bool = True,
        timeout: float = 2 * STORE_TIMEOUT_S,
        chance: Chance | None = None,
    ) -> None:
        """Raises BadArgument."""
        super().__init__(f"members of {cluster}" + (f" at {node.id}" if node is not None else ""))
        self.store = store
        self.cluster = cluster
        self._inner = AsyncMembers(
            store._inner,
            node,
            cluster=cluster,
            heartbeat_interval=heartbeat_interval,
            heartbeat_timeout=heartbeat_timeout,
            takeover=takeover,
            timeout=timeout,
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
        """Leave, and look no more: iterators end, who waits gets AlreadyClosed. Twice does no harm."""
        self.__exit__(None, None, None)

    # -- what is so now

    @property
    def view(self) -> Roster:
        """All members as last heard. It is replaced, never changed."""
        return self._ask(lambda: self._inner.view)

    @property
    def me(self) -> Member:
        """This process as a member, as it is in the view; before that, as it says of itself.

        Raises UsageError without a node.
        """
        return self._ask(lambda: self._inner.me)

    @property
    def is_member(self) -> bool:
        """Whether this process is joined now, with a lease that lives. Asks nobody, and never waits."""
        self._check_process()
        return self._inner.is_member

    @property
    def is_stale(self) -> bool:
        """Whether the store has not answered for the heartbeat timeout: the view may be old."""
        return self._ask(lambda: self._inner.is_stale)

    @property
    def stale_s(self) -> float:
        """How old the view may be; 0.0 while it is not stale."""
        return self._ask(lambda: self._inner.stale_s)

    @property
    def loop_lag_s(self) -> float:
        """How late the thread behind hansa.sync is; while it is stuck, others see it grow."""
        self._check_process()
        return self._inner.loop_lag_s

    @property
    def heartbeats_s(self) -> Mapping[str, float]:
        """How long ago those members renewed that this process looks after, at the last look."""
        return self._ask(lambda: dict(self._inner.heartbeats_s))

    @property
    def stats(self) -> MembersStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)

    # -- what happens

    def events(self) -> EventStream[MembersEvent]:
        """An iterator over all events from this call on; it blocks for more. Who is there is in `view`.

        It keeps a bounded number of events for a slow reader; then the oldest go, counted.
        """
        return EventStream(self, self._held().run(self._inner.events))

    def until(self, condition: Callable[[Roster], bool], *, timeout: float | None = None) -> Roster:
        """Wait until the view fulfils a condition; gives the view. Raises TimedOut, AlreadyClosed.

        The condition is called in the thread of the event loop: it must be quick, and must not wait.
        """
        return self._call(lambda: self._inner.until(condition, timeout=timeout), "until")

    # -- what this process says of itself

    def set_status(self, status: MemberStatus, *, reason: str = "") -> None:
        """Say JOINING, UP or DRAINING of oneself. Twice does no harm.

        Raises BadArgument for what cannot follow the present one, UsageError without a node, Conflict while
        it is not joined, and what the store raises.
        """
        self._call(lambda: self._inner.set_status(status, reason=reason), "set_status")

    def update(
        self,
        *,
        metadata: Mapping[str, str] | None = None,
        roles: frozenset[str] | None = None,
        zone: str | None = None,
        version: str | None = None,
    ) -> None:
        """Say something else of oneself. What is not given stays as it is. Raises as `set_status`."""
        self._call(
            lambda: self._inner.update(metadata=metadata, roles=roles, zone=zone, version=version), "update"
        )
