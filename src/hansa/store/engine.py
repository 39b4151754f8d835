"""The whole store as one machine: keys, leases and watchers, kept in step with each other. Pure.

The caller passes the time to every call. Leases whose time is over end before anything else is done, so
nobody sees a key of an expired lease, however late the driver's timer is. All changes go through one place,
which tells the leases and the watchers of them. After each call the driver asks `news` which watchers to
wake, and `deadline` when to call `tick` next.
"""

from collections.abc import Sequence

from hansa.chance import Chance
from hansa.errors import BadArgument
from hansa.store.leases import Leases, check_ttl
from hansa.store.mvcc import Mvcc
from hansa.store.values import Compare, Get, KeyValue, LeaseInfo, Operation, Outcome, Scan, WatchBatch
from hansa.store.watching import Watcher, Watchers, WatchInterest


class Engine:
    """A store without a driver: the memory store drives it on an event loop."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._mvcc = Mvcc()
        self._leases = Leases()
        self._watchers = Watchers(self._mvcc)
        self._news: list[Watcher] = []

    @property
    def revision(self) -> int:
        return self._mvcc.revision

    def deadline(self) -> float | None:
        """When the next lease expires; None without one."""
        return self._leases.deadline()

    def tick(self, *, now: float) -> None:
        """End the leases whose time is over, each with all its keys in one revision."""
        for keys in self._leases.tick(now=now):
            self._changed(self._mvcc.remove(keys))

    def news(self) -> list[Watcher]:
        """The watchers that have something to read, and had nothing at the last call."""
        news, self._news = self._news, []
        return news

    def get(self, key: bytes, *, revision: int, now: float) -> KeyValue | None:
        """See `Mvcc.get`."""
        self.tick(now=now)
        return self._mvcc.get(key, revision=revision)

    def scan(self, what: Get, *, revision: int, now: float) -> Scan:
        """See `Mvcc.scan`."""
        self.tick(now=now)
        return self._mvcc.scan(what, revision=revision)

    def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation],
        otherwise: Sequence[Operation],
        *,
        now: float,
    ) -> Outcome:
        """See `Mvcc.commit`."""
        self.tick(now=now)
        outcome, batch = self._mvcc.commit(compares, then, otherwise, self._leases)
        self._changed(batch)
        return outcome

    def compact(self, revision: int, *, now: float) -> None:
        """See `Mvcc.compact`."""
        self.tick(now=now)
        self._mvcc.compact(revision)

    def grant(self, ttl_s: float, *, now: float) -> int:
        """A new lease, under a number that nobody can guess. Raises `BadArgument`, `StoreUnavailable`."""
        check_ttl(ttl_s)
        self.tick(now=now)
        lease = self._leases.free_number(self._chance)
        self._leases.grant(lease, ttl_s, now=now)
        return lease

    def renew(self, lease: int, *, now: float) -> float:
        """See `Leases.renew`."""
        self.tick(now=now)
        return self._leases.renew(lease, now=now)

    def revoke(self, lease: int, *, now: float) -> None:
        """End a lease with all its keys, in one revision. Raises `LeaseLost`."""
        self.tick(now=now)
        self._changed(self._mvcc.remove(self._leases.revoke(lease)))

    def lease_info(self, lease: int, *, now: float) -> LeaseInfo | None:
        """See `Leases.info`."""
        self.tick(now=now)
        return self._leases.info(lease, now=now)

    def watch(self, interest: WatchInterest, start_revision: int, *, now: float) -> Watcher:
        """See `Watchers.add`. Raises `BadArgument` too."""
        if start_revision < 0:
            raise BadArgument(f"watch from revision {start_revision}: give a revision, or 0 for from now on")
        self.tick(now=now)
        return self._watchers.add(interest, start_revision)

    def take(self, watcher: Watcher) -> WatchBatch | None:
        """See `Watchers.take`."""
        return self._watchers.take(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """See `Watchers.remove`."""
        self._watchers.remove(watcher)

    def _changed(self, batch: WatchBatch | None) -> None:
        if batch is not None:
            self._leases.follow(batch)
            self._news += self._watchers.publish(batch)
