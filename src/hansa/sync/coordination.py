"""What hangs on a session, and the members of a cluster, for threads."""

# Written by `python -m mirrors.build` from the asynchronous classes: change those, or mirrors/plan.py.

from __future__ import annotations

from collections.abc import Callable, Mapping

from hansa.coordination.barrier import Barrier as AsyncBarrier
from hansa.coordination.election import Election as AsyncElection
from hansa.coordination.election import LeaderInfo
from hansa.coordination.election import Leadership as AsyncLeadership
from hansa.coordination.handover import Handover
from hansa.coordination.line import LineStats
from hansa.coordination.lock import Hold as AsyncHold
from hansa.coordination.lock import HolderInfo
from hansa.coordination.lock import Lock as AsyncLock
from hansa.coordination.lock import Semaphore as AsyncSemaphore
from hansa.coordination.member import Member, MembersEvent, MembersStats, MemberStatus, NodeInfo
from hansa.coordination.members import Members as AsyncMembers
from hansa.coordination.roster import Roster
from hansa.errors import LeadershipLost, LockLost
from hansa.limits import MEMBER_HEARTBEAT_INTERVAL_S, MEMBER_HEARTBEAT_TIMEOUT_S, STORE_TIMEOUT_S
from hansa.store.values import Compare
from hansa.sync.mirror import EndingMirror, within
from hansa.sync.ownership import Contest, Line, Ownership, check_outside, obtained
from hansa.sync.sessions import Session, SessionKeeper
from hansa.sync.store import Store
from hansa.sync.streams import EventStream
from hansa.transport.environment import Environment


class Hold(Ownership):
    """A lock, or a place in a semaphore, that is held. Give it back with `release`, or use `with hold:`.

    A thread cannot be cancelled when the hold is lost: ask `is_held`, or call `check`, between the steps of
    long work. A `with` block gives back when it is left, and raises LockLost if the hold was lost by then.
    """

    def __init__(self, session: Session | SessionKeeper, inner: AsyncHold) -> None:
        super().__init__(session, inner, inner.release)
        self._inner = inner

    @property
    def name(self) -> str:
        """The name of the lock or semaphore."""
        return self._inner.name

    @property
    def guard(self) -> Compare:
        """A compare that holds as long as this owner owns. Put it into your own `commit` in this store."""
        return self._inner.guard

    def check(self) -> None:
        """Raise the loss, with its reason, or `NotHeld` once it was given back. Asks nobody, and never waits.

        It asks nobody. It knows the session's end at any moment. That somebody deleted the key, it knows as
        soon as the store has told: the store is asked when the key is 0.05 s old, for all changes to it.
        """
        self._session._check_process()
        self._inner.check()

    def refresh(self) -> None:
        """Renew the session's lease now. Raises the loss; `TimedOut` and `StoreUnavailable` lose nothing."""
        self._session._call(self._inner.refresh, f"refresh of {self.name!r}")

    def lost(self, timeout: float | None = None) -> LockLost:
        """Wait until it is lost; returns the reason. Something that was given back is never lost.

        Raises TimedOut, and AlreadyClosed when the session is closed.
        """
        return self._session._call(
            lambda: within(timeout, self._inner.lost, f"{self.name} is still owned"), f"lost of {self.name!r}"
        )

    @property
    def state(self) -> bytes:
        """The state that the previous owner handed on; empty if there was no hand-over, or no state.

        Raises `StoreCorrupt` for a state that is lost: a large one is a blob in the store, which somebody may
        delete or damage. Then it is held all the same, and the record says so as its `trouble`.
        """
        return self._inner.state

    def wanted(self, timeout: float | None = None) -> Handover:
        """Wait until somebody asks to move it to another node, as `hansa lead --move` does.

        Returns the record. Then stop the work, and `hand_over(record)`: the record says how long it may take.
        An owner that does not hand over keeps it, and the hand-over ends by its deadline. Raises the loss,
        `NotHeld` and `UsageError`. Raises TimedOut, and AlreadyClosed when the session is closed.
        """
        return self._session._call(
            lambda: within(timeout, self._inner.wanted, f"nobody asked for {self.name}"),
            f"wanted of {self.name!r}",
        )

    @property
    def fence(self) -> int:
        """Grows from holder to holder: guarded storage refuses lower fences than it has seen."""
        return self._inner.fence

    @property
    def is_held(self) -> bool:
        """Whether it is held now: False from the session's deadline on, also while hansa's thread is stuck.

        Asks nobody, and never waits.
        """
        self._session._check_process()
        return self._inner.is_held

    def release(self) -> bool:
        """Give it back: from now on it is not held. Returns whether it was held; never raises a loss.

        Deletes this holder's own key and nothing else. When the store does not answer soon, that goes on in
        the background, as it does when this is interrupted.
        """
        return self._give_back()


class Lock(Line):
    """A lock by name. Every `acquire` stands in line for itself, also with the same object.

    `with Lock(session, name) as hold:` waits for its turn, and gives back at the end. It raises LockLost when
    it is left after the lock was lost; until then the body has `hold.is_held` and `hold.check()`.
    """

    def __init__(self, session: Session | SessionKeeper, name: str, *, note: bytes = b"") -> None:
        """Raises BadArgument for what cannot be a name."""
        super().__init__(f"lock {name!r}")
        self._session = session
        self._inner = AsyncLock(session._inner, name, note=note)

    @property
    def name(self) -> str:
        """The name under which all processes know it."""
        return self._inner.name

    @property
    def stats(self) -> LineStats:
        """What this object has seen so far."""
        return self._session._ask(lambda: self._inner.stats)

    def acquire(self, timeout: float | None = None) -> Hold:
        """Wait in line, and hold. A store that cannot be reached is waited for.

        Raises TimedOut, SessionLost, and LockLost when somebody took this waiter out of the line; UsageError
        without a timeout in a thread that is in a block of this lock: it would wait for itself. Interrupting
        it leaves the line.
        """
        check_outside(self._session, self._inner._line, timeout)
        return obtained(
            self._session,
            lambda: self._inner.acquire(timeout),
            lambda inner: Hold(self._session, inner),
            f"acquire of lock {self.name!r}",
        )

    def try_acquire(self) -> Hold | None:
        """Hold, if there is room and nobody waits for it; else return None.

        Raises `SessionLost`, `TimedOut`, `StoreUnavailable`, and `BadArgument` as `acquire`. Interrupting it
        leaves the line.
        """
        return obtained(
            self._session,
            self._inner.try_acquire,
            lambda inner: None if inner is None else Hold(self._session, inner),
            f"try_acquire of lock {self.name!r}",
        )

    def holder(self) -> HolderInfo | None:
        """Who holds it now. Raises what the store raises."""
        return self._session._call(self._inner.holder, f"holder of lock {self.name!r}")

    def waiting(self) -> tuple[HolderInfo, ...]:
        """Who waits for it, in order. Raises what the store raises."""
        return self._session._call(self._inner.waiting, f"waiting of lock {self.name!r}")


class Semaphore(Line):
    """Up to `limit` holders at once. All who use a name at a time give the same limit, else BadArgument.

    `with semaphore as hold:` is as that of a `Lock`.
    """

    def __init__(self, session: Session | SessionKeeper, name: str, limit: int, *, note: bytes = b"") -> None:
        """Raises BadArgument."""
        super().__init__(f"semaphore {name!r}")
        self._session = session
        self._inner = AsyncSemaphore(session._inner, name, limit, note=note)

    @property
    def name(self) -> str:
        """The name under which all processes know it."""
        return self._inner.name

    @property
    def limit(self) -> int:
        """How many may hold it at once."""
        return self._inner.limit

    @property
    def stats(self) -> LineStats:
        """What this object has seen so far."""
        return self._session._ask(lambda: self._inner.stats)

    def acquire(self, timeout: float | None = None) -> Hold:
        """Wait in line, and hold. A store that cannot be reached is waited for.

        Raises TimedOut, SessionLost, BadArgument for another limit than the others', and LockLost when
        somebody took this waiter out of the line; UsageError without a timeout in a thread whose blocks have
        all the places. Interrupting it leaves the line.
        """
        check_outside(self._session, self._inner._line, timeout)
        return obtained(
            self._session,
            lambda: self._inner.acquire(timeout),
            lambda inner: Hold(self._session, inner),
            f"acquire of semaphore {self.name!r}",
        )

    def try_acquire(self) -> Hold | None:
        """Hold, if there is room and nobody waits for it; else return None.

        Raises `SessionLost`, `TimedOut`, `StoreUnavailable`, and `BadArgument` as `acquire`. Interrupting it
        leaves the line.
        """
        return obtained(
            self._session,
            self._inner.try_acquire,
            lambda inner: None if inner is None else Hold(self._session, inner),
            f"try_acquire of semaphore {self.name!r}",
        )

    def holders(self) -> tuple[HolderInfo, ...]:
        """Who holds it now, the oldest first. Raises what the store raises."""
        return self._session._call(self._inner.holders, f"holders of semaphore {self.name!r}")

    def waiting(self) -> tuple[HolderInfo, ...]:
        """Who waits for it, in order. Raises what the store raises."""
        return self._session._call(self._inner.waiting, f"waiting of semaphore {self.name!r}")


class Leadership(Ownership):
    """The leadership of this process. Give it back with `resign`, or use `with leadership:`.

    A thread cannot be cancelled when leadership is lost: ask `is_leading`, or call `check`, between the steps
    of long work. A `with` block resigns when it is left, and raises LeadershipLost if it was lost by then.
    """

    def __init__(self, session: Session | SessionKeeper, inner: AsyncLeadership) -> None:
        super().__init__(session, inner, inner.resign)
        self._inner = inner

    @property
    def name(self) -> str:
        """The name of the election."""
        return self._inner.name

    @property
    def guard(self) -> Compare:
        """A compare that holds as long as this owner owns. Put it into your own `commit` in this store."""
        return self._inner.guard

    def check(self) -> None:
        """Raise the loss, with its reason, or `NotHeld` once it was given back. Asks nobody, and never waits.

        It asks nobody. It knows the session's end at any moment. That somebody deleted the key, it knows as
        soon as the store has told: the store is asked when the key is 0.05 s old, for all changes to it.
        """
        self._session._check_process()
        self._inner.check()

    def refresh(self) -> None:
        """Renew the session's lease now. Raises the loss; `TimedOut` and `StoreUnavailable` lose nothing."""
        self._session._call(self._inner.refresh, f"refresh of leadership of {self.name!r}")

    def lost(self, timeout: float | None = None) -> LeadershipLost:
        """Wait until it is lost; returns the reason. Something that was given back is never lost.

        Raises TimedOut, and AlreadyClosed when the session is closed.
        """
        return self._session._call(
            lambda: within(timeout, self._inner.lost, f"{self.name} is still owned"),
            f"lost of leadership of {self.name!r}",
        )

    @property
    def state(self) -> bytes:
        """The state that the previous owner handed on; empty if there was no hand-over, or no state.

        Raises `StoreCorrupt` for a state that is lost: a large one is a blob in the store, which somebody may
        delete or damage. Then it is held all the same, and the record says so as its `trouble`.
        """
        return self._inner.state

    def wanted(self, timeout: float | None = None) -> Handover:
        """Wait until somebody asks to move it to another node, as `hansa lead --move` does.

        Returns the record. Then stop the work, and `hand_over(record)`: the record says how long it may take.
        An owner that does not hand over keeps it, and the hand-over ends by its deadline. Raises the loss,
        `NotHeld` and `UsageError`. Raises TimedOut, and AlreadyClosed when the session is closed.
        """
        return self._session._call(
            lambda: within(timeout, self._inner.wanted, f"nobody asked for {self.name}"),
            f"wanted of leadership of {self.name!r}",
        )

    @property
    def term(self) -> int:
        """Grows from leader to leader: guarded storage refuses lower terms than it has seen."""
        return self._inner.term

    @property
    def is_leading(self) -> bool:
        """Whether it leads now: False from the session's deadline on, also while hansa's thread is stuck.

        Asks nobody, and never waits.
        """
        self._session._check_process()
        return self._inner.is_leading

    def proclaim(self, value: bytes) -> None:
        """Change what the leader says of itself; observers are told. Raises `LeadershipLost`.

        Raises `TimedOut` and `StoreUnavailable` too: then try again, it does no harm.
        """
        self._session._call(lambda: self._inner.proclaim(value), f"proclaim of leadership of {self.name!r}")

    def resign(self) -> bool:
        """Stop leading now. Returns whether this process led until now; never raises a loss.

        When the store does not answer soon it is told in the background, as it is when this is interrupted.
        """
        return self._give_back()


class Election(Contest):
    """An election by name. `value` is what this candidate says of itself, an address for example."""

    def __init__(self, session: Session | SessionKeeper, name: str, *, value: bytes = b"") -> None:
        """Raises BadArgument for what cannot be a name."""
        super().__init__(session, AsyncElection(session._inner, name, value=value))

    @property
    def name(self) -> str:
        """The name under which all processes know it."""
        return self._inner.name

    @property
    def stats(self) -> LineStats:
        """What this object has seen so far."""
        return self._session._ask(lambda: self._inner.stats)

    def win(self, *, timeout: float | None = None) -> Leadership:
        """Wait until this process leads. A store that cannot be reached is waited for.

        Raises TimedOut, SessionLost, and LeadershipLost when somebody took this candidate out of the line;
        UsageError without a timeout in a thread that leads, in a block. Interrupting it leaves the line.
        """
        check_outside(self._session, self._inner._line, timeout)
        return obtained(
            self._session,
            lambda: self._inner.win(timeout=timeout),
            lambda inner: Leadership(self._session, inner),
            f"win of election {self.name!r}",
        )

    def leader(self) -> LeaderInfo | None:
        """Who leads now; None for nobody. Raises what the store raises."""
        return self._session._call(self._inner.leader, f"leader of election {self.name!r}")


class Barrier:
    """A meeting of `parties` processes, again and again. All who use a name at a time give one number."""

    def __init__(self, session: Session | SessionKeeper, name: str, parties: int) -> None:
        """Raises BadArgument."""
        self._session = session
        self._inner = AsyncBarrier(session._inner, name, parties)

    @property
    def name(self) -> str:
        """The name under which all processes know it."""
        return self._inner.name

    @property
    def parties(self) -> int:
        """How many meet."""
        return self._inner.parties

    def wait(self, timeout: float | None = None) -> int:
        """Wait until all parties have come. Returns the generation: one number for all that passed together.

        The generation grows from one opening to the next. Raises `TimedOut` and `SessionLost`, and
        `BadArgument` for another number of parties than the others'. A party that gives up, or is
        interrupted, is no longer counted once the store has heard of it: the others may pass with it before
        that.
        """
        return self._session._call(lambda: self._inner.wait(timeout), f"wait of barrier {self.name!r}")

    def waiting_count(self) -> int:
        """How many parties wait now. Raises what the store raises."""
        return self._session._call(self._inner.waiting_count, f"waiting_count of barrier {self.name!r}")


class Members(EndingMirror[AsyncMembers]):
    """A view of a cluster's members, and with `node` a place in it. Use it with `with`.

    Entering reads who is there and joins; when this process leaves, the others see LEFT at once. While it is
    open its lease is renewed every `heartbeat_interval`; without a renewal for `heartbeat_timeout` it is
    SUSPECT to all, after twice that time DOWN. When its session was lost, or its record is gone, it joins
    again, with a higher incarnation. The latest process with an id wins, and the former one is told by
    `Expelled`; with `takeover=False` entering raises `Conflict` instead. Without `node` it only looks.

    When the store is away the view stays as it was, and `is_stale` is True; nobody is declared dead because
    of that. Entering raises `StoreUnavailable` or `TimedOut` when the store does not answer, `BadArgument`,
    `AlreadyClosed`.
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
        session: SessionKeeper | None = None,
        environment: Environment | None = None,
    ) -> None:
        """With `session` its record is on that keeper's sessions, and the keeper's times count.

        So one lease serves a whole process. The keeper is closed when the process is replaced, or its node
        deregistered. Raises `BadArgument`.
        """
        super().__init__(
            f"members of {cluster}" + (f" at {node.id}" if node is not None else ""),
            AsyncMembers(
                store._inner,
                node,
                cluster=cluster,
                heartbeat_interval=heartbeat_interval,
                heartbeat_timeout=heartbeat_timeout,
                takeover=takeover,
                timeout=timeout,
                session=None if session is None else session._inner,
                environment=environment,
            ),
        )
        self.store = store
        self.cluster = cluster

    @property
    def view(self) -> Roster:
        """All members as last heard. The view is replaced, never changed."""
        return self._ask(lambda: self._inner.view)

    @property
    def me(self) -> Member:
        """This process as the view shows it; before it is in the view, as it describes itself.

        DOWN when a newer process has its id. Raises `UsageError` without a node.
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
        """How late hansa's thread is; while it is stuck, other threads see it grow.

        Asks nobody, and never waits.
        """
        self._check_process()
        return self._inner.loop_lag_s

    @property
    def heartbeats_s(self) -> Mapping[str, float]:
        """How long ago each member that this process watches renewed its lease, at the last look."""
        return self._ask(lambda: dict(self._inner.heartbeats_s))

    @property
    def stats(self) -> MembersStats:
        """What it has counted."""
        return self._ask(lambda: self._inner.stats)

    def events(self) -> EventStream[MembersEvent]:
        """All events from this call on. Members that are there already are in `view`."""
        return self._held().run(lambda: EventStream(self, self._inner.events()))

    def until(self, condition: Callable[[Roster], bool], *, timeout: float | None = None) -> Roster:
        """Wait until the view fulfils a condition; returns the view. Raises `TimedOut`, `AlreadyClosed`.

        The function runs in hansa's thread, which all calls wait for: it must be quick and must not wait.
        """
        return self._call(lambda: self._inner.until(condition, timeout=timeout), "until")

    def set_status(self, status: MemberStatus, *, reason: str = "") -> None:
        """Set the status of this node: JOINING, UP or DRAINING, as `SAID` allows. Twice does no harm.

        Raises `BadArgument`, `UsageError` without a node, `Conflict` while it is not joined, and what the
        store raises.
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
        """Change what this node says of itself, where arguments are given. Raises as `set_status`."""
        self._call(
            lambda: self._inner.update(metadata=metadata, roles=roles, zone=zone, version=version), "update"
        )

    def note(self, key: str, value: str | None) -> None:
        """Set one key of this node's metadata, or remove it with None. Raises as `set_status`."""
        self._call(lambda: self._inner.note(key, value), "note")

    def close(self) -> None:
        """Leave, and stop looking, as leaving the block does. Closing twice does no harm."""
        self.__exit__(None, None, None)
