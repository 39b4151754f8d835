"""Entries that a leader moves from node to node, and trouble at each step of that.

The nodes are those of `placements`, and the store never goes back. Each seed has a strike of its own, at a
step of a hand-over (`strikes`): 240 seeds in a row have all of them. In some runs there is trouble at random
besides.

Always, besides what `placements` says: the steps of a record follow each other, and each is written by the
right node; no node believes that it owns an entry that is sealed; the sealed state goes to the next owner,
once and unchanged, or the old owner keeps the entry; and the record says what happened.

When the faults are over: no hand-over is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Final

from hansa.chance import Chance
from hansa.coordination.handover import Handover, HandoverStep
from hansa.store.values import EventKind, KeyValue, WatchBatch
from hansa.testing.faults import FaultPlan, draw_store_plan
from hansa.testing.host import Host
from hansa.testing.life import LifeState
from hansa.testing.scenarios.handover_truth import FOLLOWERS
from hansa.testing.scenarios.placements import ENTRIES, KEYS, PREFIX, RECORDS, TIMEOUT_S, Placements
from hansa.testing.scenarios.strikes import StruckStore, Victim, cells, draw_strike
from hansa.testing.store_link import StoreLink
from hansa.testing.world import World

__all__ = ["CELLS", "PlacedHandovers"]

OFFICE: Final = KEYS.leader("placer")
CELLS: Final = cells(Victim.OLD, Victim.NEW, Victim.LEADER, Victim.STORE)


class PlacedHandovers(Placements):
    """Entries that a leader moves: one owner, and nothing sealed is lost, whoever dies whenever."""

    name: ClassVar[str] = "placed_handovers"
    chaos_s: ClassVar[float] = 8.0

    store: StruckStore

    def __init__(self, world: World) -> None:
        super().__init__(world)
        # One node is left when both participants are gone.
        self.names = self.names[:3]
        self.cell = CELLS[world.seed % len(CELLS)]
        self.store = StruckStore(world, witness=self._witness, hosts_of=self._hosts_of)
        self.steps: Counter[HandoverStep] = Counter()
        """How often each step was taken."""
        self._records: dict[bytes, Handover] = {}
        self._candidates: dict[bytes, KeyValue] = {}
        # States that were sealed and not read, by the entry.
        self._unread: dict[bytes, bytes] = {}

    def plan(self, chance: Chance) -> FaultPlan:
        strike = draw_strike(chance.fork("strike"), self.cell, self.store.name)
        if chance.flip(0.6):
            return (strike,)
        ttl_s = 2 * TIMEOUT_S
        trouble = draw_store_plan(chance, self.names, self.store.name, chaos_s=self.chaos_s, ttl_s=ttl_s)
        return (strike, *trouble)

    def calm(self) -> None:
        self.store.calm()
        super().calm()

    def unsettled(self) -> str:
        for record in self._records.values():
            if record.is_open:
                return f"a hand-over is open: {record}"
        return super().unsettled()

    def _link(self, host: Host) -> StoreLink:
        return self.store.link(host)

    # The judge, and the aim.

    def _witness(self, batch: WatchBatch, origin: str) -> None:
        super()._witness(batch, origin)
        for event in batch.events:
            if event.item.key.startswith(OFFICE) and event.kind is EventKind.PUT:
                self._candidates[event.item.key] = event.item
            else:
                self._candidates.pop(event.item.key, None)
        placed = {event.item.key for event in batch.events if event.item.key.startswith(PREFIX)}
        for event in batch.events:
            if event.kind is EventKind.PUT and event.item.key.startswith(RECORDS):
                entry = PREFIX + event.item.key.removeprefix(RECORDS)
                now = Handover.decode(event.item.value, revision=event.item.mod_revision)
                self._check_step(entry, now, origin)
                if now.step is HandoverStep.TAKEN:
                    placed.discard(entry)
        for entry in placed:
            if entry in self._unread:
                self.world.fail("no sealed state is lost", f"{self._placement(entry)} of {entry!r}")
        for entry in ENTRIES:
            self._check_believers(entry)

    def _check_step(self, entry: bytes, now: Handover, origin: str) -> None:
        before = self._records.get(entry)
        self._records[entry] = now
        self.steps[now.step] += 1
        if before is None or before.number != now.number:
            follows = now.step is HandoverStep.OFFERED and (before is None or not before.is_open)
        else:
            follows = now.step in FOLLOWERS.get(before.step, ())
        if not follows:
            self.world.fail("steps follow each other", f"{now} after {before}")
        placement = self._placement(entry)
        owner = "" if placement is None else str(placement.lease)
        epoch = 0 if placement is None else placement.epoch
        is_true, writer = (owner, epoch) == (now.owner_key, now.epoch), origin
        match now.step:
            case HandoverStep.PREPARED:
                is_true, writer = True, now.target
            case HandoverStep.SEALED:
                writer = now.source
                self._unread[entry] = now.state
            case HandoverStep.TAKEN:
                is_true = (owner, epoch) == (now.target_key, now.next_epoch)
                if self._unread.get(entry) != now.state:
                    self.world.fail("no sealed state is lost", f"{now}: {self._unread.get(entry)!r}")
            case HandoverStep.DONE:
                is_true, writer = (owner, epoch) == (now.target_key, now.next_epoch), now.taken_by
                del self._unread[entry]
            case HandoverStep.WITHDRAWN:
                # The owner may have changed before it was sealed: that is why.
                is_true = is_true or entry not in self._unread
                self._unread.pop(entry, None)
        if not is_true:
            self.world.fail("the record says what happened", f"{now}, and it is {placement}")
        if writer != origin:
            self.world.fail("each step is written by whose it is", f"{origin} wrote {now}")

    def _check_believers(self, entry: bytes) -> None:
        """The holder of an older claim may not have heard yet of the new owner: its guards say so."""
        record = self._records.get(entry)
        if record is None or record.step is not HandoverStep.SEALED:
            return
        for name, (life, claims) in self._claims.items():
            claim = claims.claims.get(entry)
            if claim is not None and claim.epoch == record.epoch and life.state is not LifeState.DEAD:
                self.world.fail("who has sealed acts no more", f"{name} owns {entry!r}: {record}")

    def _hosts_of(self, victim: Victim, record: Handover) -> Sequence[str]:
        match victim:
            case Victim.OLD:
                name = record.source
            case Victim.NEW:
                name = record.target
            case Victim.STORE:
                name = self.store.name
            case _:
                name = self._leader()
        return [name] if name in self.world.hosts else []

    def _leader(self) -> str:
        """The leader's host, by the store."""
        if not self._candidates:
            return ""
        first = min(self._candidates.values(), key=lambda item: item.create_revision)
        return self.store.lease_hosts[first.lease]
