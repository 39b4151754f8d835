"""The lookout: watches the leases of the next few members in the ring, and reports which are overdue.

The remaining time of a lease says when its holder can be overdue at the earliest: the lookout asks for the
lease again then, and not at every interval. So a member is suspected as early as if it asked all the time.

It must: count from when it asked, since the lease ran on while the answer was on its way; believe no answer
that waited in this process for longer than an interval; look at the view again before it reports anything;
overwrite only what it has read; note that the store answered; and forget members that it no longer watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hansa.chance import Chance
from hansa.coordination.member import Member, MemberStatus
from hansa.coordination.roster import (
    Roster,
    RosterBook,
    Suspicion,
    is_overdue,
    overdue_in_s,
    silence_s,
    successors,
)
from hansa.errors import LeaseLost, StoreUnavailable, TimedOut
from hansa.keys import Keys
from hansa.limits import RECONNECT_JITTER, WATCHED_COUNT
from hansa.store.store import Store
from hansa.store.values import Compare, LeaseInfo, Put

logger = logging.getLogger(__name__)


class Looker(Protocol):
    """The owner of a lookout: the view of a process, which may be a member itself."""

    store: Store
    heartbeat_interval_s: float

    @property
    def view(self) -> Roster: ...

    @property
    def me(self) -> Member: ...

    @property
    def is_member(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a look at a member's lease has shown."""

    lease: int
    silence_s: float
    # On the store's clock: the member cannot be overdue before that.
    due_s: float


class Lookout:
    """Suspects members whose leases are overdue, and refutes the suspicion of members that renew again.

    A process that only looks, or is not joined, reports nothing, and only asks whether the store answers.
    """

    def __init__(self, looker: Looker, book: RosterBook, keys: Keys, *, chance: Chance) -> None:
        self._looker = looker
        self._store = looker.store
        self._book = book
        self._keys = keys
        self._chance = chance
        # The ids of the members to watch, and the view in which they were found.
        self._ring: tuple[str, ...] = ()
        self._ring_view: Roster | None = None
        self._looks: dict[str, _Look] = {}
        self.heard_s = self._store.clock.monotonic()
        self.latency_s = self.latency_s_max = 0.0
        self.suspicions_count = 0
        self.errors_count = 0

    @property
    def silences_s(self) -> Mapping[str, float]:
        """The silence of each watched member at the last look, in seconds."""
        return {member_id: look.silence_s for member_id, look in self._looks.items()}

    def heard(self) -> None:
        """The store has told something."""
        self.heard_s = self._store.clock.monotonic()

    async def run(self) -> None:
        """Watch other members until cancelled. Raises `AlreadyClosed` when the store was closed."""
        interval_s = self._looker.heartbeat_interval_s
        while True:
            # Not at the same time as the other members, nor in step with the whole seconds of a store.
            await asyncio.sleep(interval_s * (1 + self._chance.uniform(-RECONNECT_JITTER, RECONNECT_JITTER)))
            await self._look()

    async def _look(self) -> None:
        watched = self._watched()
        self._looks = {one.id: self._looks[one.id] for one in watched if one.id in self._looks}
        if not watched:
            await self._ask_status()
            return
        for member in watched:
            if self._due_s(member) <= self._store.clock.monotonic():
                await self._examine(member)

    def _watched(self) -> list[Member]:
        if not self._looker.is_member:
            return []
        me, view = self._looker.me, self._looker.view
        if view is not self._ring_view:
            self._ring = successors((one.id for one in view.here()), me.id, WATCHED_COUNT)
            self._ring_view = view
        watched = [view[one] for one in self._ring]
        # A suspected member that reads so knows best whether it is alive: it looks at its own lease too.
        return [*watched, me] if me.status is MemberStatus.SUSPECT else watched

    def _due_s(self, member: Member) -> float:
        """When to ask for a member's lease: at once if the lease is new, or if the member is suspected."""
        look = self._looks.get(member.id)
        if look is None or look.lease != member.lease or member.status is MemberStatus.SUSPECT:
            return 0.0
        return look.due_s

    async def _ask_status(self) -> None:
        asked_s = self._store.clock.monotonic()
        try:
            await self._store.status(timeout=self._looker.heartbeat_interval_s)
        except (StoreUnavailable, TimedOut):
            self.errors_count += 1
        else:
            self._answered(asked_s)

    async def _examine(self, member: Member) -> None:
        """Ask for a member's lease, and report if it is overdue, or no longer so."""
        interval_s = self._looker.heartbeat_interval_s
        asked_s = self._store.clock.monotonic()
        try:
            lease = await self._store.lease_info(member.lease, timeout=interval_s)
            took_s = self._answered(asked_s)
            # A lease that is gone takes the record with it, which the watch reports. And an answer that took
            # long, because this process was stuck, is no longer true.
            if lease is None or took_s > interval_s:
                return
            self._looks[member.id] = _Look(
                lease=lease.lease, silence_s=silence_s(lease), due_s=asked_s + overdue_in_s(lease)
            )
            await self._say(member, lease)
        except (StoreUnavailable, TimedOut):
            self.errors_count += 1
        except LeaseLost:
            logger.debug("%s is gone before it was suspected", member.id)

    async def _say(self, member: Member, lease: LeaseInfo) -> None:
        now = self._looker.view.get(member.id)
        if now is None or not now.is_here or now.lease != lease.lease:
            return
        is_suspect = is_overdue(lease)
        if is_suspect == (now.status is MemberStatus.SUSPECT):
            return
        suspicion = Suspicion(
            incarnation=now.incarnation,
            is_suspect=is_suspect,
            by=self._looker.me.id,
            silence_s=silence_s(lease),
        )
        key = self._keys.suspect(member.id)
        outcome = await self._store.commit(
            [
                Compare.lease(self._keys.node(member.id), "=", lease.lease),
                # Nobody else has written a suspicion meanwhile. An absent key has revision 0.
                Compare.revision(key, "=", self._book.suspicion_revision(member.id)),
            ],
            [Put(key, suspicion.encode(), lease.lease)],
            timeout=self._looker.heartbeat_interval_s,
        )
        self.suspicions_count += is_suspect and outcome.is_success

    def _answered(self, asked_s: float) -> float:
        self.heard()
        self.latency_s = self.heard_s - asked_s
        self.latency_s_max = max(self.latency_s_max, self.latency_s)
        return self.latency_s
