"""The entries of a Kafka group's partitions in the store: each names its owner, as the members write it.

`KafkaEntries` must: look before it takes, and write only over what it saw, while the node's record hangs on
the same lease; take an epoch that is higher than all before; and release only what it still owns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hansa.assignment.kafka_share import Membership
from hansa.assignment.topology import EntryNote
from hansa.coordination.following import Following
from hansa.coordination.placed import PlacedClaim, Placement
from hansa.coordination.session import SessionKeeper
from hansa.errors import BadRecord, Conflict
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.values import Compare, Get, KeyValue, Operation, Put

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
