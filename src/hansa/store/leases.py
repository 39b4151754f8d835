"""Leases: rights that end by themselves unless they are renewed, and the keys that end with them. Pure.

The driver passes the time, asks for the `deadline`, and calls `tick` when it has come. Which keys are on a
lease follows from the store's changes alone (`follow`): a put moves its key from one lease to another.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from math import isfinite

from hansa.chance import Chance
from hansa.errors import BadArgument, InvariantBroken, LeaseLost, StoreUnavailable, invariant
from hansa.limits import ID_DRAWS_MAX, STORE_LEASE_TTL_S_MAX, STORE_LEASES_MAX
from hansa.store.values import EventKind, LeaseInfo, WatchBatch


@dataclass(slots=True)
class _Lease:
    number: int
    ttl_s: float
    deadline_s: float
    keys: set[bytes] = field(default_factory=set)


class Leases:
    """Every lease of a store. `in` tests whether one is alive, as of the last `tick`."""

    def __init__(self, *, count_max: int = STORE_LEASES_MAX) -> None:
        self._count_max = count_max
        self._leases: dict[int, _Lease] = {}
        self._granted_count = 0
        # One place per lease: the deadline it had when it was put there, which grant it was, and its id.
        # Renewing does not touch it: it is put further back once it comes up, so keep-alives cost nothing
        # here. The grant's number distinguishes it from an older lease under the same id.
        self._line: list[tuple[float, int, int]] = []

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, lease: object) -> bool:
        return lease in self._leases

    def free_number(self, chance: Chance) -> int:
        """A number for a lease that is free, and that nobody can guess."""
        for _ in range(ID_DRAWS_MAX):
            lease = chance.uint64() >> 1
            if lease and lease not in self._leases:
                return lease
        raise InvariantBroken("no free number for a lease was drawn: the randomness is broken")

    def grant(self, lease: int, ttl_s: float, *, now: float) -> None:
        """Add a lease under a free number.

        Raises `BadArgument` for an impossible time, `StoreUnavailable` when there are too many leases.
        """
        check_ttl(ttl_s)
        invariant(lease > 0 and lease not in self._leases, f"lease {lease} was granted twice")
        if len(self._leases) >= self._count_max:
            raise StoreUnavailable(f"the store has {self._count_max} leases and grants no more")
        self._granted_count += 1
        self._leases[lease] = _Lease(number=self._granted_count, ttl_s=ttl_s, deadline_s=now + ttl_s)
        heappush(self._line, (now + ttl_s, self._granted_count, lease))

    def renew(self, lease: int, *, now: float) -> float:
        """Start the lease's time again; returns how long it is. Raises `LeaseLost`."""
        found = self._find(lease)
        found.deadline_s = now + found.ttl_s
        return found.ttl_s

    def renew_all(self, *, now: float) -> None:
        """Start the time of every lease again."""
        for lease in self._leases.values():
            lease.deadline_s = now + lease.ttl_s

    def revoke(self, lease: int) -> tuple[bytes, ...]:
        """End a lease; returns the keys that end with it, in order. Raises `LeaseLost`."""
        found = self._find(lease)
        del self._leases[lease]
        # A lease may be renewed for years and then revoked: its place must not stay behind for that long.
        if len(self._line) > 2 * len(self._leases) + 16:
            self._line = sorted((kept.deadline_s, kept.number, id_) for id_, kept in self._leases.items())
        return tuple(sorted(found.keys))

    def info(self, lease: int, *, now: float) -> LeaseInfo | None:
        """The state of a lease; None when it is gone."""
        found = self._leases.get(lease)
        if found is None:
            return None
        return LeaseInfo(
            lease=lease,
            ttl_s=max(0.0, found.deadline_s - now),
            granted_ttl_s=found.ttl_s,
            keys=tuple(sorted(found.keys)),
        )

    def follow(self, batch: WatchBatch) -> None:
        """Move keys between leases as the changes of this revision did."""
        for event in batch.events:
            if event.before is not None and event.before.lease in self._leases:
                self._leases[event.before.lease].keys.discard(event.item.key)
            if event.kind is EventKind.PUT and event.item.lease:
                self._leases[event.item.lease].keys.add(event.item.key)

    def deadline(self) -> float | None:
        """When the next lease expires unless it is renewed; None without a lease."""
        while self._line:
            deadline_s, number, lease = self._line[0]
            found = self._leases.get(lease)
            if found is None or found.number != number:
                heappop(self._line)
            elif found.deadline_s == deadline_s:
                return deadline_s
            else:
                heapreplace(self._line, (found.deadline_s, number, lease))
        return None

    def tick(self, *, now: float) -> list[tuple[bytes, ...]]:
        """End the leases whose time is over; returns the keys of each, in order, the first to end first."""
        expired = []
        while (deadline_s := self.deadline()) is not None and deadline_s <= now:
            expired.append(self.revoke(self._line[0][2]))
        return expired

    def _find(self, lease: int) -> _Lease:
        found = self._leases.get(lease)
        if found is None:
            raise LeaseLost(f"there is no lease {lease}: it expired, was revoked, or never was")
        return found


def check_ttl(ttl_s: float) -> None:
    """Raise `BadArgument` unless a lease can have this time."""
    if not (isfinite(ttl_s) and 0.0 < ttl_s <= STORE_LEASE_TTL_S_MAX):
        raise BadArgument(f"a lease of {ttl_s} s: give more than 0 and at most {STORE_LEASE_TTL_S_MAX:.0f} s")
