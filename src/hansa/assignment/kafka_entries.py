"""What a Kafka group keeps in the store: an entry for each partition, and the handoffs, which are swept.

Each entry names its partition's owner, as the members write it. `KafkaEntries` must: look before it takes,
and write only over what it saw, while the node's record hangs on the same lease; take an epoch that is higher
than all before; and release only what it still owns.

Handoffs are kept for longer than the topics keep messages. `KafkaSweep` must: refuse a lifetime that is not
longer, because there would be messages to read and no state to go on from; have one worker of the group, by
an `Election`, delete older handoffs; look at the retention again before each sweep, since it may have
changed; and keep the handoffs of partitions that a worker has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hansa.assignment.handoff import Handoffs
from hansa.assignment.kafka_share import Membership
from hansa.assignment.topology import EntryNote, election_of
from hansa.coordination.election import Election
from hansa.coordination.following import TROUBLE, Following, patient_backoff
from hansa.coordination.placed import PlacedClaim, Placement
from hansa.coordination.session import SessionKeeper
from hansa.errors import BadRecord, Conflict, Fenced, GroupRefused, KafkaUnavailable, UsageError
from hansa.limits import ASSIGNMENT_SWEEP_S, STORE_TIMEOUT_S
from hansa.store.values import Compare, Get, KeyValue, Operation, Put

if TYPE_CHECKING:
    from hansa.assignment.worker import Worker

logger = logging.getLogger(__name__)

_NOBODY = Placement(node="", lease=0, epoch=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEntry:
    """An entry as it was at a revision of the store. `note` is None if it cannot be read."""

    item: KeyValue | None
    placement: Placement
    note: EntryNote | None
    revision: int


class KafkaEntries:
    """The entries of one group, for one node."""

    def __init__(self, keeper: SessionKeeper, node: str, group: str) -> None:
        self._keeper = keeper
        self._store = keeper.store
        self._node = node
        self._group = group
        self._prefix = keeper.keys.assignments(group)

    async def look(self, partition: str) -> SeenEntry:
        """The entry as it is now. Raises what the store raises."""
        outcome = await self._store.commit([], [Get(self._prefix + partition.encode())])
        item = next(iter(outcome.items), None)
        placement, note = read_entry(item)
        return SeenEntry(item=item, placement=placement, note=note, revision=outcome.revision)

    async def take(self, partition: str, seen: SeenEntry, mine: Membership) -> PlacedClaim:
        """Write this node into the entry; returns the claim to it.

        Raises `Conflict` when the entry, or this node's record, was changed after the entry was seen; and
        what the store raises: then it may have been written. Looking and taking again does no harm.
        """
        session = self._keeper.session
        if session is None:
            raise Conflict("this process has no session in the store now")
        item, before, note = seen.item, seen.placement, seen.note or EntryNote()
        key = self._keeper.keys.assignment(self._group, partition)
        now = EntryNote(
            reason=f"assigned in generation {mine.generation}",
            since=self._store.clock.wall(),
            previous=before.node or note.previous,
            is_handed=note.is_handed and not before.node,
            generation=mine.generation,
            member=mine.member,
        )
        placement = Placement(
            node=self._node, lease=session.lease, epoch=seen.revision + 1, body=now.encode()
        )
        outcome = await self._store.commit(
            [
                Compare.lease(self._keeper.keys.node(self._node), "=", session.lease),
                Compare.revision(key, "=", 0 if item is None else item.mod_revision),
            ],
            [Put(key, placement.encode())],
        )
        if not outcome.is_success:
            raise Conflict("its entry, or this node's record, was changed meanwhile")
        written = KeyValue(
            key=key,
            value=placement.encode(),
            create_revision=outcome.revision if item is None else item.create_revision,
            mod_revision=outcome.revision,
            version=1 if item is None else item.version + 1,
        )
        return PlacedClaim(session, written, placement)

    def release_of(self, claim: PlacedClaim) -> Sequence[Operation]:
        """Operations after which nobody owns the entry; commit them under the guards of its claim."""
        note = EntryNote.decode(claim.placement.body)
        free = EntryNote(
            reason="given up in order",
            since=self._store.clock.wall(),
            previous=claim.placement.node,
            is_handed=True,
            generation=note.generation,
            member=note.member,
        )
        return [Put(claim.key, Placement(node="", lease=0, epoch=claim.epoch, body=free.encode()).encode())]

    async def release(self, claim: PlacedClaim) -> bool:
        """Stop owning an entry; returns whether it was owned until now. Raises what the store raises."""
        outcome = await self._store.commit(claim.guards, self.release_of(claim), timeout=STORE_TIMEOUT_S)
        return outcome.is_success

    def follow(self) -> Following:
        """All entries of the group as they change."""
        environment = self._keeper.environment.fork(f"entries of {self._group}")
        return Following(self._store, self._prefix, environment=environment)

    async def owned(self) -> set[str]:
        """Partitions whose entries name an owner, also one that has died. Raises what the store raises."""
        items = (await self._store.scan(self._prefix)).items
        return {item.key.removeprefix(self._prefix).decode() for item in items if read_entry(item)[0].node}


def read_entry(item: KeyValue | None) -> tuple[Placement, EntryNote | None]:
    """An entry and its note. Without an item both are empty; the note is None if it cannot be read."""
    if item is None:
        return _NOBODY, EntryNote()
    try:
        placement = Placement.decode(item.value)
        return placement, EntryNote.decode(placement.body)
    except BadRecord:
        return _NOBODY, None


def revision_of(claim: PlacedClaim) -> int:
    """The revision at which the claim's entry was written."""
    return int(claim.guards[-1].operand)


class KafkaSweep:
    """The sweep of a group's handoffs, run by one worker. `ask` tells how long the topics keep messages."""

    def __init__(
        self,
        worker: Worker,
        entries: KafkaEntries,
        *,
        topics: Sequence[str],
        lifetime_s: float,
        ask: Callable[[], Awaitable[float | None]],
    ) -> None:
        self._worker = worker
        self._entries = entries
        self._topics = ", ".join(topics)
        self._lifetime_s = lifetime_s
        self._ask = ask
        self._name = f"the sweep of {worker.group} at {worker.node}"
        self.is_leading = False
        """Whether this worker is the one that deletes."""

    async def is_needed(self) -> bool:
        """Whether handoffs are deleted at all: not if messages stay for ever.

        Raises `UsageError` for a lifetime that is too short, or that cannot be compared; `KafkaUnavailable`.
        """
        try:
            retention_s = await self._ask()
        except GroupRefused as refused:
            raise UsageError(
                f"it may not be looked up how long {self._topics} keep messages ({refused}):"
                " grant it, or have handoffs kept for ever with handoff_lifetime=None"
            ) from refused
        if retention_s is not None and self._lifetime_s <= retention_s:
            raise UsageError(
                f"handoffs are kept for {self._lifetime_s:g} s, but messages of {self._topics} for"
                f" {retention_s:g} s: there would be some to read, and no state to go on from. Give a longer"
                " handoff_lifetime, or None"
            )
        return retention_s is not None

    async def run(self) -> None:
        """Delete old handoffs now and then, whenever this worker leads the group, until cancelled."""
        worker = self._worker
        environment = worker.environment.fork("kafka sweep")
        election = Election(worker.sessions, election_of(worker.group))
        handoffs = Handoffs(
            worker.store, worker.group, cluster=worker.members.cluster, environment=environment
        )
        backoff = patient_backoff(environment.chance)
        while True:
            try:
                async with election.campaign():
                    self.is_leading = True
                    while True:
                        await asyncio.sleep(environment.chance.uniform(0.5, 1.5) * ASSIGNMENT_SWEEP_S)
                        if await self._may_sweep():
                            with suppress(*TROUBLE, BadRecord):
                                kept = await self._entries.owned()
                                await handoffs.sweep(lifetime=self._lifetime_s, kept=kept)
            except* (*TROUBLE, Fenced, Conflict) as errors:
                logger.info("%s no longer leads: %s", self._name, errors.exceptions[0])
            finally:
                self.is_leading = False
            await asyncio.sleep(backoff.next_s())

    async def _may_sweep(self) -> bool:
        """Whether handoffs are still kept for longer than messages."""
        why: object = "messages stay for ever by now"
        try:
            if await self.is_needed():
                return True
        except (UsageError, KafkaUnavailable) as error:
            why = error
        logger.error("%s deletes no handoffs: %s", self._name, why)
        return False
