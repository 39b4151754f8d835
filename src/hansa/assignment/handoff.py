"""A handoff: what a worker saves of a partition for the next owner, and how it is stored.

The owner saves a handoff under the guards of its claim, in one transaction that succeeds only while it owns
the partition. So a save that an old owner sends late is refused, and the next owner reads the last handoff
that counted. A save also compares the handoff that was there before: if the owner has given up a save, and
the store carries it out late, it is refused when a newer handoff of the same owner is already there.

A save whose answer was lost may be sent again, at any later time (`HandoffSave`). It is carried out once,
with its operations: if the store has its value, it was carried out; if another value is there, a late try is
refused.

A small handoff is stored in its record. A large one is a blob, which the record names: the blob is put first,
the record's transaction compares that the blob is there, and deletes the blob of the previous record. Both
are compressed when that pays.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from hansa.coordination.following import TROUBLE, patient_backoff
from hansa.coordination.member import from_json
from hansa.coordination.placed import PlacedClaim, Placement
from hansa.errors import (
    BadArgument,
    BadRecord,
    Conflict,
    Fenced,
    HansaError,
    LimitExceeded,
    NotThere,
    StoreCorrupt,
    TimedOut,
    invariant,
)
from hansa.keys import Keys
from hansa.limits import (
    BLOB_BYTES_MAX,
    COMMIT_TRIES_MAX,
    HANDOFF_COMPRESSED_BYTES_MIN,
    HANDOFF_INLINE_BYTES_MAX,
    HANDOFF_SAVE_S,
    HANDOFFS_SWEPT_COUNT_MAX,
    STORE_TIMEOUT_S,
)
from hansa.store.ages import Ages
from hansa.store.blobs import Blobs
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, Get, KeyValue, Operation, Outcome, Put
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)

# Compressing pays if it leaves less than this share.
_PAYS_SHARE: Final = 0.9
_BLOB_SPACE: Final = "handoffs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """How far the work on a partition is. All of it is the user's own; hansa goes by `last_offset` alone.

    `checkpoint` names a place in the source that the work reads. `state` is the state of the work's steps.
    `last_offset` is the offset of the last message that `state` includes, -1 for none: the next owner reads
    on after it. `processed_at` is the wall time of the last message that was processed, for display.
    `resources` are those that the partition had then.
    """

    checkpoint: str = ""
    state: bytes = b""
    last_offset: int = -1
    processed_at: float = 0.0
    resources: tuple[str, ...] = ()

    @property
    def next_offset(self) -> int:
        """The offset at which the next owner reads on."""
        return self.last_offset + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHandoff:
    """A handoff as it is stored: who saved it, in which epoch and generation, and when.

    `epoch` is that of the claim under which it was saved, `number` counts the saves in that epoch,
    `generation` is that of the Kafka group, 0 without Kafka. `saved_at` is a wall time, for display. `size`
    is how many bytes it takes in the store, and `blob` names the blob that holds it if it is large.
    """

    handoff: Handoff
    node: str
    epoch: int
    number: int = 1
    generation: int = 0
    saved_at: float = 0.0
    size: int = 0
    blob: str = ""
    revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoffHead:
    """The record of a handoff, without its content."""

    node: str
    epoch: int
    number: int
    generation: int
    saved_at: float
    processed_at: float
    last_offset: int
    size: int
    is_compressed: bool
    blob: str
    revision: int

    @classmethod
    def of(cls, item: KeyValue) -> HandoffHead:
        """Raises `BadRecord`."""
        return _decoded(item)[0]


def _content(handoff: Handoff) -> bytes:
    words = {"checkpoint": handoff.checkpoint, "resources": list(handoff.resources)}
    return json.dumps(words, separators=(",", ":")).encode() + b"\n" + handoff.state


def _packed(content: bytes) -> tuple[bytes, bool]:
    """The content as it is stored, and whether it is compressed."""
    if len(content) >= HANDOFF_COMPRESSED_BYTES_MIN:
        # The fastest level: a checkpoint is compressed again and again, and read once.
        small = zlib.compress(content, 1)
        if len(small) < _PAYS_SHARE * len(content):
            return small, True
    return content, False


def _decoded(item: KeyValue) -> tuple[HandoffHead, bytes]:
    """The head, and the bytes that are in the record itself. Raises `BadRecord`."""
    first, _, body = item.value.partition(b"\n")
    found = from_json(first, "a handoff")
    try:
        head = HandoffHead(
            node=str(found["node"]),
            epoch=int(found["epoch"]),
            number=int(found["number"]),
            generation=int(found["generation"]),
            saved_at=float(found["savedAt"]),
            processed_at=float(found["lastProcessedAt"]),
            last_offset=int(found["lastOffset"]),
            size=int(found["size"]),
            is_compressed=bool(found["isCompressed"]),
            blob=str(found["blob"]),
            revision=item.mod_revision,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadRecord(f"{item.key!r} is no handoff: {error!r:.200}") from error
    return head, body


def _unpacked(head: HandoffHead, packed: bytes, what: str) -> Handoff:
    """Raises `StoreCorrupt`."""
    try:
        if head.is_compressed:
            unpacking = zlib.decompressobj()
            content = unpacking.decompress(packed, BLOB_BYTES_MAX + 1)
            if not unpacking.eof or unpacking.unused_data or len(content) > BLOB_BYTES_MAX:
                raise ValueError("it does not end where it should")
        else:
            content = packed
        words, _, state = content.partition(b"\n")
        found = json.loads(words)
        return Handoff(
            checkpoint=str(found["checkpoint"]),
            state=state,
            last_offset=head.last_offset,
            processed_at=head.processed_at,
            resources=tuple(str(each) for each in found["resources"]),
        )
    except (zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreCorrupt(
            f"the handoff of {what}, saved by {head.node!r} in epoch {head.epoch}, is damaged: {error}"
        ) from error


def checked(handoff: Handoff) -> Handoff:
    """Raises `BadArgument` for a handoff that cannot be saved."""
    if not isinstance(handoff.state, bytes):
        raise BadArgument(f"the state of a handoff is bytes, not {type(handoff.state).__name__}")
    if not isinstance(handoff.last_offset, int) or handoff.last_offset < -1:
        raise BadArgument(f"last_offset {handoff.last_offset!r}: give an offset, or -1 for none")
    if len(handoff.state) > BLOB_BYTES_MAX - HANDOFF_INLINE_BYTES_MAX:
        raise BadArgument(
            f"a handoff with a state of {len(handoff.state)} bytes: it has at most"
            f" {BLOB_BYTES_MAX - HANDOFF_INLINE_BYTES_MAX}; store it elsewhere, and hand on its name"
        )
    return handoff


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedHandoff:
    """A handoff that could not be saved, or read: what the user's `recover` is told.

    `is_reading` says which. `handoff` is what was to be saved; when reading failed, it is empty.
    """

    group: str
    partition: str
    epoch: int
    error: HansaError
    is_reading: bool
    handoff: Handoff = field(default_factory=Handoff)


Recover: TypeAlias = Callable[[FailedHandoff], Awaitable[Handoff | None]]
"""A way out, provided by the user, when a handoff has failed. Return None if there is no way out.

If it cannot be saved: store the state elsewhere, and return a small handoff that says where; that is saved
instead. If it cannot be read: find the state elsewhere, and return it.
"""


@dataclass(slots=True, kw_only=True)
class HandoffSave:
    """One save, from its first try to its answer: however often it is sent, it is carried out once."""

    saved: SavedHandoff
    """What is to be stored. Its number grows when another save of this owner was carried out before it."""
    packed: bytes
    is_compressed: bool
    operations: tuple[Operation, ...]
    known_revision: int
    """The revision that was there when it was last sent, 0 for none: it is carried out only over that one."""
    known_blob: str
    is_sent: bool = False
    """Whether it may be carried out, or was: it was sent, and nothing has shown that this try is refused."""

    @property
    def value(self) -> bytes:
        """The record to write."""
        return _encoded(self.saved, packed=self.packed, is_compressed=self.is_compressed)

    def come_after(self, revision: int, blob: str) -> None:
        """Another value is there: no earlier try can be carried out from now on."""
        self.known_revision, self.known_blob, self.is_sent = revision, blob, False


class Handoffs:
    """The handoffs of one group in a store. Every call ends by its deadline, as the calls of a `Store` do."""

    def __init__(
        self,
        store: Store,
        group: str,
        *,
        cluster: str = "default",
        environment: Environment | None = None,
    ) -> None:
        self._store = store
        self._group = group
        self._keys = Keys(cluster)
        environment = environment if environment is not None else Environment()
        self._chance = environment.chance
        self._blobs = Blobs(
            store,
            cluster=cluster,
            space=_BLOB_SPACE,
            environment=Environment(clock=store.clock, chance=environment.chance),
        )
        self.retries_count = 0
        """How often a save was sent again because the store did not answer."""

    def key(self, partition: str) -> bytes:
        """The key of a partition's handoff."""
        return self._keys.handoff(self._group, partition)

    async def load(self, partition: str, *, timeout: float | None = STORE_TIMEOUT_S) -> SavedHandoff | None:
        """The last saved handoff, None if there is none. For readers that do not own the partition.

        Raises `StoreCorrupt` when it is damaged or its blob is gone, `BadRecord`, and as the store does.
        """
        gone: StoreCorrupt | None = None
        for _ in range(COMMIT_TRIES_MAX):
            item = await self._store.get(self.key(partition), timeout=timeout)
            if item is None:
                return None
            try:
                return await self.read(item, timeout=timeout)
            except StoreCorrupt as error:
                # The owner may have replaced it between the two reads.
                if gone is not None and str(gone) == str(error):
                    raise
                gone = error
        raise Conflict(f"the handoff of {self._what(partition)} is replaced all the time")

    async def take(self, claim: PlacedClaim, partition: str) -> tuple[SavedHandoff | None, KeyValue | None]:
        """The last handoff, read while the claim holds, and the record that defines the partition.

        After that no earlier owner can save another handoff. Waits, however long the store cannot be reached.
        Raises the loss, `StoreCorrupt` and `BadRecord`.
        """
        backoff = patient_backoff(self._chance)
        keys = (self.key(partition), self._keys.partition(self._group, partition))
        while True:
            claim.check()
            try:
                guards = claim.guards
                reads = [Get(key) for key in keys]
                outcome = await self._store.commit(guards, reads, [Get(guard.key) for guard in guards])
                found = {item.key: item for item in outcome.items}
                if outcome.is_success:
                    item, definition = (found.get(key) for key in keys)
                    return (None if item is None else await self.read(item)), definition
                await self._believe(claim, partition, found.get(claim.key))
            except TROUBLE:
                await asyncio.sleep(backoff.next_s())

    async def read(self, item: KeyValue, *, timeout: float | None = STORE_TIMEOUT_S) -> SavedHandoff:
        """The handoff in this record. Raises as `load`."""
        what = self._what(item.key.removeprefix(self._keys.handoffs(self._group)).decode())
        head, packed = _decoded(item)
        if head.blob:
            try:
                packed = await self._blobs.get(head.blob, timeout=timeout)
            except (NotThere, StoreCorrupt, BadArgument) as error:
                raise StoreCorrupt(
                    f"the handoff of {what}, saved by {head.node!r} in epoch {head.epoch},"
                    f" {head.size} bytes, is lost: {error}"
                ) from error
        return SavedHandoff(
            handoff=_unpacked(head, packed, what),
            node=head.node,
            epoch=head.epoch,
            number=head.number,
            generation=head.generation,
            saved_at=head.saved_at,
            size=head.size,
            blob=head.blob,
            revision=head.revision,
        )

    async def save(
        self,
        claim: PlacedClaim,
        partition: str,
        handoff: Handoff,
        *,
        before: SavedHandoff | None,
        generation: int = 0,
        operations: Sequence[Operation] = (),
        timeout: float = HANDOFF_SAVE_S,
    ) -> SavedHandoff:
        """Save a handoff under the owner's claim, after `before`, the last one; returns it as it is stored.

        `operations` are carried out in the same transaction. A save without an answer is sent again, with
        growing pauses, until the timeout. Raises `Fenced` when another owner has the partition by now, and
        nothing was saved; `TimedOut` and `StoreUnavailable` when the store did not answer: then it may have
        been saved. Raises `BadArgument`, `LimitExceeded`.
        """
        save = self.prepared(claim, handoff, before=before, generation=generation, operations=operations)
        return await self.carry_out(claim, partition, save, timeout=timeout)

    def prepared(
        self,
        claim: PlacedClaim,
        handoff: Handoff,
        *,
        before: SavedHandoff | None,
        generation: int = 0,
        operations: Sequence[Operation] = (),
    ) -> HandoffSave:
        """A save that was not sent yet, for `carry_out`. Raises `BadArgument`, `LimitExceeded`."""
        packed, is_compressed = _packed(_content(checked(handoff)))
        if len(packed) > BLOB_BYTES_MAX:
            raise LimitExceeded(f"a handoff of {len(packed)} bytes: it has at most {BLOB_BYTES_MAX}")
        is_same_epoch = before is not None and before.epoch == claim.epoch
        saved = SavedHandoff(
            handoff=handoff,
            node=claim.placement.node,
            epoch=claim.epoch,
            number=before.number + 1 if before is not None and is_same_epoch else 1,
            generation=generation,
            saved_at=self._store.clock.wall(),
            size=len(packed),
        )
        return HandoffSave(
            saved=saved,
            packed=packed,
            is_compressed=is_compressed,
            operations=tuple(operations),
            known_revision=0 if before is None else before.revision,
            known_blob="" if before is None else before.blob,
        )

    async def carry_out(
        self, claim: PlacedClaim, partition: str, save: HandoffSave, *, timeout: float
    ) -> SavedHandoff:
        """Carry out a prepared save, or find that it was carried out; sends it again while no answer comes.

        No other save of the same owner may be under way. Raises as `save`: after an error, and when it is
        cancelled, `save.is_sent` tells whether the save may have been carried out.
        """
        clock = self._store.clock
        deadline_s = clock.monotonic() + timeout
        backoff = patient_backoff(self._chance)
        key = self.key(partition)
        while True:
            claim.check()
            left_s = deadline_s - clock.monotonic()
            try:
                if left_s <= 0.0:
                    raise TimedOut(f"the handoff of {self._what(partition)} could not be saved in time")
                if save.saved.size > HANDOFF_INLINE_BYTES_MAX and not save.saved.blob:
                    # The blob of a save that fails is left to the sweep: a late request may still name it.
                    blob = await self._blobs.put(save.packed, timeout=left_s)
                    save.saved = replace(save.saved, blob=blob)
                    continue
                guards, value = claim.guards, save.value
                outcome = await self._send(key, value, guards, save, min(left_s, STORE_TIMEOUT_S))
            except TROUBLE:
                pause_s = backoff.next_s()
                if clock.monotonic() + pause_s >= deadline_s:
                    raise
                self.retries_count += 1
                await asyncio.sleep(pause_s)
                continue
            except (BadArgument, LimitExceeded):
                # The store refuses such a request: no try of it can be carried out.
                save.is_sent = False
                raise
            if outcome.is_success:
                return replace(save.saved, revision=outcome.revision)
            found = {item.key: item for item in outcome.items}
            item = found.get(key)
            if item is not None and item.value == value:
                # The answer to an earlier try was lost; what it wrote as well may have ended the ownership.
                return replace(save.saved, revision=item.mod_revision)
            if not all(guard.holds(found.get(guard.key)) for guard in guards):
                await self._believe(claim, partition, found.get(claim.key))
            else:
                self._come_after(item, save, partition)

    async def _send(
        self, key: bytes, value: bytes, guards: Sequence[Compare], save: HandoffSave, timeout: float
    ) -> Outcome:
        blob = save.saved.blob
        compares = [*guards, Compare.revision(key, "=", save.known_revision)]
        if blob:
            compares.append(self._blobs.guard(blob))
        then: list[Operation] = [Put(key, value), *save.operations]
        if save.known_blob and save.known_blob != blob:
            then.append(self._blobs.deletion(save.known_blob))
        reads = [Get(key), *(Get(guard.key) for guard in guards)]
        save.is_sent = True
        return await self._store.commit(compares, then, reads, timeout=timeout)

    def _come_after(self, item: KeyValue | None, save: HandoffSave, partition: str) -> None:
        """The save was refused because of what is there now. Raises `Fenced`."""
        revision, blob = 0, ""
        if item is not None:
            revision = item.mod_revision
            # The owner may overwrite what cannot be read, for example when `recover` has found the state.
            with suppress(BadRecord):
                head = HandoffHead.of(item)
                blob = head.blob
                if head.epoch > save.saved.epoch:
                    raise Fenced(
                        f"{self._what(partition)}: {head.node!r} saved a handoff in epoch {head.epoch},"
                        f" which comes after epoch {save.saved.epoch}"
                    )
                if head.epoch == save.saved.epoch:
                    # A save that this owner has given up was carried out all the same.
                    save.saved = replace(save.saved, number=max(save.saved.number, head.number + 1))
        if revision == save.known_revision:
            # So the blob is missing: it was swept before a record named it.
            invariant(save.saved.blob != "", f"a save of {self._what(partition)} is refused for no reason")
            save.saved = replace(save.saved, blob="")
        save.come_after(revision, blob)

    async def _believe(self, claim: PlacedClaim, partition: str, item: KeyValue | None) -> None:
        """The guards do not hold: raise the loss, unless the leader wrote the entry again for this owner."""
        claim.check()
        who = "nobody"
        if item is not None:
            who = "what nobody can read"
            with suppress(BadRecord):
                placement = Placement.decode(item.value)
                mine = (claim.placement.node, claim.placement.lease, claim.epoch)
                if (placement.node, placement.lease, placement.epoch) == mine:
                    # The watch is about to report that; the node's own record may be on its way, too.
                    await asyncio.sleep(0.02)
                    return
                who = f"{placement.node!r} in epoch {placement.epoch}"
        raise Fenced(f"{self._what(partition)} belongs to {who} now; epoch {claim.epoch} is over")

    async def sweep(self, *, lifetime: float, kept: Collection[str] = ()) -> int:
        """Delete handoffs not saved for `lifetime` seconds, except of `kept` partitions; returns how many.

        The group's leader calls it now and then. The first call only begins the time: a handoff is deleted
        when it is between once and twice as old. Blobs that no handoff names are deleted after a day. Raises
        as the store does.
        """
        ages = Ages(self._store, self._keys.handoff_sweep(self._group))
        age = await ages.look(lifetime)
        prefix = self._keys.handoffs(self._group)
        swept_count = 0
        for item in (await self._store.scan(prefix)).items if age.old_revision else ():
            partition = item.key.removeprefix(prefix).decode()
            if item.mod_revision > age.old_revision or partition in kept:
                continue
            if swept_count >= HANDOFFS_SWEPT_COUNT_MAX:
                return swept_count
            same = Compare.revision(item.key, "=", item.mod_revision)
            swept_count += (await self._store.commit([same], [Delete(item.key)])).is_success
        if not age.is_running:
            await ages.begin(age, lifetime)
        await self._sweep_blobs()
        return swept_count

    async def _sweep_blobs(self) -> None:
        """The groups of a cluster keep their blobs in one space: a blob that any handoff names is kept."""
        named = set[str]()
        for item in (await self._store.scan(self._keys.prefix + b"handoffs/")).items:
            try:
                named.add(HandoffHead.of(item).blob)
            except BadRecord as error:
                logger.warning("%s", error)
        await self._blobs.sweep(kept=named)

    def _what(self, partition: str) -> str:
        return f"partition {partition!r} of {self._group!r}"


def _encoded(saved: SavedHandoff, *, packed: bytes, is_compressed: bool) -> bytes:
    head: dict[str, Any] = {
        "node": saved.node,
        "epoch": saved.epoch,
        "number": saved.number,
        "generation": saved.generation,
        "savedAt": saved.saved_at,
        "lastProcessedAt": saved.handoff.processed_at,
        "lastOffset": saved.handoff.last_offset,
        "size": saved.size,
        "isCompressed": is_compressed,
        "blob": saved.blob,
    }
    body = b"" if saved.blob else packed
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + body
