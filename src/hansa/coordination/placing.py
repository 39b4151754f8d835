"""How placed entries are handed over from node to node: drivers of `handover` for leaders and for nodes.

`Placer` is the leader's side. It must: compare its leadership in every transaction, and the record whenever
it writes an entry, so that a placement never bypasses a sealed hand-over; give the sealed state to the node
on which it places the entry; and withdraw hand-overs that cannot go on.

`PlacedMoves` is a node's side, for all entries that are placed there. It must: prepare on the session that
the entry will name; stop acting before the seal is sent; from then on go on in the background whoever is
cancelled; and end with TAKEN or WITHDRAWN.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from hansa.coordination.following import TROUBLE, Following, changes, patient_backoff, patiently
from hansa.coordination.handed import HandedState, as_state, blobs_of, dropped, handover_blobs, read_state
from hansa.coordination.handover import (
    Actor,
    Facts,
    Handover,
    HandoverStep,
    advanced,
    decide,
    offered,
)
from hansa.coordination.placed import PlacedClaim, PlacedClaims, Placement
from hansa.coordination.session import SessionKeeper
from hansa.coordination.succession import checked_offer, withdrawn
from hansa.errors import (
    BadRecord,
    Conflict,
    Fenced,
    HandoverWithdrawn,
    HansaError,
    NoOwner,
    NoSuccessor,
    NotHeld,
    StoreCorrupt,
)
from hansa.keys import Keys, quoted, unquoted
from hansa.limits import HANDOVER_S
from hansa.runtime.mailboxes import Waiters
from hansa.runtime.tasks import GuardedBlock, again
from hansa.store.store import Store
from hansa.store.values import Compare, Delete, Get, KeyValue, Operation, Put
from hansa.transport.environment import Environment

logger = logging.getLogger(__name__)


class Placer:
    """What a leader does with the entries below a prefix, whose hand-overs are of one `kind`.

    `guard` is the guard of the leadership; without one it can only `offer`, as anybody may from outside.
    Every call raises what the store raises, and `Fenced` once this leader no longer leads; the request may
    have been carried out then, and repeating it does no harm.
    """

    def __init__(
        self,
        store: Store,
        prefix: bytes,
        *,
        kind: str,
        guard: Compare | None,
        node: str = "",
        cluster: str = "default",
    ) -> None:
        self._store = store
        self._keys = Keys(cluster)
        self._blobs = handover_blobs(store, cluster, Environment().chance)
        self._prefix = prefix
        self._kind = kind
        self._guard = guard
        self._node = node
        # For each record: the number of its hand-over, and when it was first seen.
        self._seen: dict[bytes, tuple[int, float]] = {}

    async def nodes(self) -> dict[str, int]:
        """The nodes that are there, with the leases of their records."""
        scan = await self._store.scan(self._keys.nodes, keys_only=True)
        return {item.key.removeprefix(self._keys.nodes).decode(): item.lease for item in scan.items}

    async def place(
        self,
        entry: bytes,
        node: str,
        *,
        body: bytes | None = None,
        over: int | None = None,
        is_handed: bool = False,
        is_vacant: bool = False,
        besides: Sequence[Compare] = (),
    ) -> int:
        """Give an entry to a node now, whoever has it; returns the revision of the write.

        The node is given what the last owner has sealed. A hand-over that was not sealed is withdrawn.
        Returns 0, and does nothing, if the node is not there, or something has changed meanwhile: then look
        again.

        A leader may hear of one thing later than of another, so it may add conditions. With `over`, the epoch
        of the previous owner (0: there was none), it replaces no other owner. With `is_handed` it places only
        together with a sealed state. With `is_vacant` it does not place while the session of the previous
        owner lives. `besides` are further comparisons: an entry that was deleted looks like one that never
        existed, and a late request must not bring it back.
        """
        item, record, revision, lease = await self._look(entry, node)
        before = None if item is None else Placement.decode(item.value)
        epoch = 0 if before is None else before.epoch
        is_sealed = record is not None and record.step is HandoverStep.SEALED
        if not lease or over not in (None, epoch) or (is_handed and not is_sealed):
            return 0
        kept = b"" if before is None else before.body
        placement = Placement(node=node, lease=lease, epoch=revision + 1, body=kept if body is None else body)
        key, at = self._record_key(entry), self._store.clock.wall()
        puts: list[Operation] = [Put(entry, placement.encode())]
        if record is not None and record.step.is_early:
            trouble = f"it was placed on {node!r} meanwhile"
            puts.append(Put(key, advanced(record, HandoverStep.WITHDRAWN, at=at, trouble=trouble).encode()))
        elif record is not None and record.is_open:
            taken = advanced(
                record,
                HandoverStep.TAKEN,
                at=at,
                target_key=str(lease),
                taken_by=node,
                next_epoch=placement.epoch,
            )
            puts.append(Put(key, taken.encode()))
        compares = [
            Compare.revision(entry, "=", 0 if item is None else item.mod_revision),
            Compare.revision(key, "=", 0 if record is None else record.revision),
            Compare.lease(self._keys.node(node), "=", lease),
            *besides,
        ]
        if is_vacant and before is not None and before.node:
            compares.append(Compare.lease(self._keys.node(before.node), "!=", before.lease))
        return await self._commit(compares, puts)

    async def clear(self, entry: bytes, *, body: bytes = b"") -> int:
        """Leave an entry without an owner from now on, because nobody may have it; returns as `place`.

        A hand-over that was not sealed is withdrawn. A sealed one stays: its state must go to somebody.
        """
        item, record, revision, _ = await self._look(entry)
        nobody = Placement(node="", lease=0, epoch=revision + 1, body=body)
        return await self._end(entry, item, record, Put(entry, nobody.encode()), "nobody may have it now")

    async def remove(self, entry: bytes) -> int:
        """Delete an entry, and so take it from its owner. Otherwise as `clear`."""
        item, record, _, _ = await self._look(entry)
        return await self._end(entry, item, record, Delete(entry), "it is no longer there")

    async def _end(
        self, entry: bytes, item: KeyValue | None, record: Handover | None, last: Operation, trouble: str
    ) -> int:
        key, at = self._record_key(entry), self._store.clock.wall()
        operations = [last]
        if record is not None and record.is_open:
            if not record.step.is_early:
                return 0
            ended = advanced(record, HandoverStep.WITHDRAWN, at=at, trouble=trouble)
            operations.append(Put(key, ended.encode()))
        compares = [
            Compare.revision(entry, "=", 0 if item is None else item.mod_revision),
            Compare.revision(key, "=", 0 if record is None else record.revision),
        ]
        return await self._commit(compares, operations)

    async def offer(
        self,
        entry: bytes,
        to: str,
        *,
        timeout: float = HANDOVER_S,
        reason: str = "",
        besides: Sequence[Compare] = (),
    ) -> Handover:
        """Ask the owner of an entry to hand it over to a node; `drive` does the rest.

        `besides` are comparisons of the leader's own: what comes late must not offer what it does not mean
        any more. Raises `NoOwner`, `NoSuccessor` for a node that is not there, `Conflict` while another one
        is open or when something has changed meanwhile, `BadArgument`.
        """
        checked_offer(to, timeout, reason)
        item, before, _, lease = await self._look(entry, to)
        if item is None:
            raise NoOwner(f"entry {entry!r} is placed nowhere")
        if not lease:
            raise NoSuccessor(f"entry {entry!r} stays where it is: node {to!r} is not there")
        if before is not None and before.is_open:
            raise Conflict(
                f"entry {entry!r}: its hand-over to {before.target!r} is open ({before.step.value})"
            )
        placement = Placement.decode(item.value)
        key = self._record_key(entry)
        offer = offered(
            before,
            kind=self._kind,
            name=self._name(entry),
            source=placement.node,
            target=to,
            epoch=placement.epoch,
            owner_key=str(placement.lease),
            timeout=timeout,
            at=self._store.clock.wall(),
            asked_by=self._node or "the leader",
            reason=reason,
        )
        compares = [
            Compare.revision(entry, "=", item.mod_revision),
            Compare.revision(key, "=", 0 if before is None else before.revision),
            *besides,
        ]
        revision = await self._commit(compares, [Put(key, offer.encode())])
        if not revision:
            raise Conflict(f"entry {entry!r} was changed meanwhile")
        return replace(offer, revision=revision)

    async def drive(self, choose: Callable[[Handover], str | None]) -> int:
        """Do what the leader must for each open hand-over; returns how many are open.

        `choose` names the node for a sealed state when no participant is left; None: not yet.
        """
        scan = await self._store.scan(self._keys.handovers_of(self._kind))
        nodes = await self.nodes()
        open_count = 0
        for item in scan.items:
            try:
                record = Handover.decode(item.value, revision=item.mod_revision)
            except BadRecord as error:
                logger.warning("%r: %s", item.key, error)
                continue
            if record.is_open:
                open_count += 1
                await self._drive(item.key, record, nodes, choose)
            else:
                self._seen.pop(item.key, None)
        return open_count

    async def _drive(
        self,
        key: bytes,
        record: Handover,
        nodes: Mapping[str, int],
        choose: Callable[[Handover], str | None],
    ) -> None:
        now = self._store.clock.monotonic()
        if self._seen.get(key, (0, 0.0))[0] != record.number:
            self._seen[key] = record.number, now
        is_taken = record.step is HandoverStep.TAKEN
        target_lease = str(nodes.get(record.taken_by if is_taken else record.target, 0))
        is_offered = record.step is HandoverStep.OFFERED
        facts = Facts(
            is_owner_here=str(nodes.get(record.source, 0)) == record.owner_key,
            is_target_here=target_lease != "0" and (is_offered or target_lease == record.target_key),
            is_over_time=now >= self._seen[key][1] + record.timeout,
        )
        decision = decide(record, Actor.LEADER, facts)
        if decision is None:
            return
        if decision.step is HandoverStep.WITHDRAWN:
            await self.withdraw(record, decision.trouble)
            return
        node = record.target if facts.is_target_here and not is_taken else choose(record)
        if node is not None:
            await self.place(self._entry(record), node)

    async def withdraw(self, record: Handover, trouble: str) -> int:
        """End a hand-over, when `decide` says so; returns the revision, 0 if it has made a step meanwhile."""
        key, at = self._keys.handover(record.kind, record.name), self._store.clock.wall()
        ended = advanced(record, HandoverStep.WITHDRAWN, at=at, trouble=trouble)
        puts = [Put(key, ended.encode()), *dropped(self._blobs, record, ended)]
        return await self._commit([Compare.revision(key, "=", record.revision)], puts)

    async def _look(self, entry: bytes, node: str = "") -> tuple[KeyValue | None, Handover | None, int, int]:
        """The entry, its record, the store's revision, and the node's lease; 0 if the node is not there."""
        keys = [entry, self._record_key(entry), *([self._keys.node(node)] if node else [])]
        outcome = await self._store.commit([], then=[Get(key) for key in keys])
        found = {item.key: item for item in outcome.items}
        item, written, here = found.get(keys[0]), found.get(keys[1]), found.get(keys[-1]) if node else None
        record = None if written is None else Handover.decode(written.value, revision=written.mod_revision)
        return item, record, outcome.revision, 0 if here is None else here.lease

    async def _commit(self, compares: list[Compare], puts: list[Operation]) -> int:
        """Returns the revision; 0 if something has changed meanwhile."""
        guards = () if self._guard is None else (self._guard,)
        reads = [Get(guard.key, keys_only=True) for guard in guards]
        outcome = await self._store.commit([*guards, *compares], then=puts, otherwise=reads)
        if outcome.is_success:
            return outcome.revision
        if not all(any(guard.holds(item) for item in outcome.items) for guard in guards):
            raise Fenced(f"entries below {self._prefix!r}: this leader no longer leads")
        return 0

    def _name(self, entry: bytes) -> str:
        return quoted(entry.removeprefix(self._prefix).decode())

    def _entry(self, record: Handover) -> bytes:
        return self._prefix + unquoted(record.name).encode()

    def _record_key(self, entry: bytes) -> bytes:
        return self._keys.handover(self._kind, self._name(entry))


class PlacedMoves:
    """The hand-overs, of one `kind`, of what is placed on one node. For `PlacedClaims` of the same prefix.

    `on_wanted` is given a claim and its record when the new owner is ready: stop the work, then `seal`.
    `refuse` returns a reason not to take what is offered to this node; empty if the node is willing.
    """

    def __init__(
        self,
        keeper: SessionKeeper,
        node: str,
        claims: PlacedClaims,
        *,
        kind: str,
        on_wanted: Callable[[PlacedClaim, Handover], None],
        refuse: Callable[[Handover], str] = lambda record: "",
    ) -> None:
        self._keeper = keeper
        self._node = node
        self._claims = claims
        self._kind = kind
        self._on_wanted = on_wanted
        self._refuse = refuse
        self._following = Following(
            keeper.store, keeper.keys.handovers_of(kind), environment=keeper.environment
        )
        self._records: dict[bytes, Handover] = {}
        # For each record: the hand-over of which the owner was told; and when each hand-over was first seen.
        self._told: dict[bytes, int] = {}
        self._seen: dict[bytes, tuple[int, float]] = {}
        self._changes_count = 0
        self._news = Waiters()

    async def run(self) -> None:
        """Follow the records until cancelled. Raises `AlreadyClosed`."""
        try:
            async for news in self._following:
                puts, deletes = changes(news)
                for item in deletes:
                    self._records.pop(item.key, None)
                for item in puts:
                    self._hear(item)
                self._changed()
                for item in puts:
                    if (record := self._records.get(item.key)) is not None:
                        await self._heed(item.key, record)
        finally:
            self._following.close()

    async def seal(self, claim: PlacedClaim, state: bytes) -> Handover:
        """Hand it over, with a state: from now on nobody may act under the claim. Returns the record.

        Raises `HandoverWithdrawn`: then it is owned as before. Raises the loss, `NotHeld` when no new owner
        is ready, `BadArgument`. Cancelling it lets the hand-over come to its end.
        """
        claim.check()
        as_state(state)
        key = self._key(claim)
        record = self._records.get(key)
        if record is None or record.step is not HandoverStep.PREPARED or record.epoch != claim.epoch:
            raise NotHeld(f"{claim.what}: nobody is ready to be given it")
        claim.is_sealed = True
        outcome: list[Handover | HansaError] = []
        sealing = claim.session.spawn(
            self._to_the_end(claim, key, record, state, outcome), f"hands over {claim.what}"
        )
        await asyncio.wait((sealing,))
        if not outcome:
            claim.check()
            raise NotHeld(f"{claim.what} was left while it was handed over")
        (found,) = outcome
        if isinstance(found, Fenced):
            raise again(found)
        if isinstance(found, HansaError):
            raise found
        return found

    async def handed_state(self, claim: PlacedClaim) -> bytes:
        """The state that the last owner handed on to this claim; empty if there was no hand-over.

        It waits for the store, and raises the loss if the entry is another node's by now: the next owner may
        have read the state already, and an empty state must not look like a beginning to this one. Raises
        `StoreCorrupt` when the state is gone or damaged; `finish` writes that into the record.
        """
        record = await self._read(claim)
        if record is None or not _is_taken_by(record, claim):
            return b""
        try:
            return await read_state(self._keeper, record)
        except StoreCorrupt as lost:
            logger.warning("%s", lost)
            claim.state_trouble = str(lost)
            raise

    async def finish(self, claim: PlacedClaim) -> None:
        """Write that the state was read. Waits for the store. Raises the loss."""
        backoff = patient_backoff(self._keeper.environment.chance)
        key = self._key(claim)
        while (record := await self._read(claim)) is not None and _is_taken_by(record, claim):
            claim.check()
            at = self._keeper.store.clock.wall()
            done = advanced(record, HandoverStep.DONE, at=at, trouble=claim.state_trouble or record.trouble)
            with suppress(*TROUBLE):
                if await self._write(key, record, done, *claim.guards):
                    return
            await asyncio.sleep(backoff.next_s())

    def _hear(self, item: KeyValue) -> None:
        try:
            record = Handover.decode(item.value, revision=item.mod_revision)
        except BadRecord as error:
            logger.warning("%r: %s", item.key, error)
            self._records.pop(item.key, None)
            return
        self._records[item.key] = record
        if self._seen.get(item.key, (0, 0.0))[0] != record.number:
            self._seen[item.key] = record.number, self._keeper.store.clock.monotonic()

    def _changed(self) -> None:
        self._changes_count += 1
        self._news.wake_all()

    async def _heed(self, key: bytes, record: Handover) -> None:
        session = self._keeper.session
        if session is None:
            return
        if record.target == self._node and record.step is HandoverStep.OFFERED:
            facts = Facts(refusal=self._refuse(record), is_over_time=self._is_over_time(key, record))
            decision = decide(record, Actor.PLACED, facts)
            if decision is not None:
                following = (
                    withdrawn(record, decision, session)
                    if decision.step is HandoverStep.WITHDRAWN
                    else advanced(
                        record,
                        decision.step,
                        at=self._keeper.store.clock.wall(),
                        target_key=str(session.lease),
                    )
                )
                here = Compare.lease(self._keeper.keys.node(self._node), "=", session.lease)
                write = partial(self._write, key, record, following, here)
                await patiently(write, self._keeper.environment.chance)
        if record.source == self._node and record.step is HandoverStep.PREPARED:
            claim = self._claims.get(self._claims.prefix + unquoted(record.name).encode())
            if claim is not None and claim.epoch == record.epoch and self._told.get(key) != record.number:
                self._told[key] = record.number
                self._on_wanted(claim, record)

    async def _to_the_end(
        self,
        claim: PlacedClaim,
        key: bytes,
        record: Handover,
        state: bytes,
        outcome: list[Handover | HansaError],
    ) -> None:
        handed = HandedState(claim.session, state, self._changed)
        try:
            async with GuardedBlock(claim.loss):
                outcome.append(await self._seal(claim, key, record, handed))
        except HansaError as error:
            # A loss after the end does not change the outcome.
            if not outcome:
                outcome.append(error)
        finally:
            handed.close(key, is_given=any(isinstance(found, Handover) for found in outcome))

    async def _seal(self, claim: PlacedClaim, key: bytes, record: Handover, handed: HandedState) -> Handover:
        session = claim.session
        backoff = patient_backoff(session.environment.chance)
        while True:
            since, now = self._changes_count, self._records.get(key)
            if now is None or now.number != record.number:
                if now is not None and (ended := _past_of(now, record)) is not None:
                    claim.handed_over()
                    return ended
                raise self._unsealed(claim, record, "its record is gone")
            if now.step in (HandoverStep.TAKEN, HandoverStep.DONE):
                claim.handed_over()
                return now
            if now.step is HandoverStep.WITHDRAWN:
                raise self._unsealed(claim, now, now.trouble)
            facts = Facts(is_over_time=self._is_over_time(key, now), refusal=handed.refusal)
            decision = decide(now, Actor.OWNER, facts)
            is_sealing = decision is not None and decision.step is HandoverStep.SEALED
            if is_sealing and not handed.is_ready:
                handed.prepare(self._seen[key][1] + now.timeout)
                decision = None
            try:
                if decision is None:
                    await self._wait(since, self._seen[key][1] + now.timeout)
                    continue
                following = (
                    withdrawn(now, decision, session)
                    if decision.step is HandoverStep.WITHDRAWN
                    else advanced(now, decision.step, at=session.store.clock.wall(), **handed.fields)
                )
                guards = [*claim.guards, *(handed.guards if is_sealing else ())]
                if not await self._write(key, now, following, *guards):
                    await self._believe(key)
                    await handed.look()
            except TROUBLE:
                await asyncio.sleep(backoff.next_s())

    def _unsealed(self, claim: PlacedClaim, record: Handover, trouble: str) -> HandoverWithdrawn:
        claim.is_sealed = False
        reached = record.reached.value
        return HandoverWithdrawn(
            f"{claim.what} stays here: its hand-over to {record.target!r} was withdrawn when it was"
            f" {reached}: {trouble}",
            reached,
            trouble,
        )

    async def _wait(self, since: int, until_s: float) -> None:
        if self._changes_count != since:
            return
        try:
            async with asyncio.timeout(max(until_s - self._keeper.store.clock.monotonic(), 0.001)):
                await self._news.wait()
        except TimeoutError:
            return

    async def _write(self, key: bytes, before: Handover, after: Handover, *compares: Compare) -> bool:
        outcome = await self._keeper.store.commit(
            [Compare.revision(key, "=", before.revision), *compares],
            then=[Put(key, after.encode()), *dropped(blobs_of(self._keeper), before, after)],
        )
        if outcome.is_success:
            self._keep(key, replace(after, revision=outcome.revision))
        return outcome.is_success

    def _keep(self, key: bytes, record: Handover) -> None:
        known = self._records.get(key)
        if known is None or known.revision < record.revision:
            self._records[key] = record
            self._changed()

    async def _believe(self, key: bytes) -> None:
        """After a refused write: read the record, and wait a moment for news of the entry."""
        item = await self._keeper.store.get(key)
        if item is None:
            self._records.pop(key, None)
        else:
            self._keep(key, Handover.decode(item.value, revision=item.mod_revision))
        await self._wait(self._changes_count, self._keeper.store.clock.monotonic() + 0.1)

    async def _read(self, claim: PlacedClaim) -> Handover | None:
        """The record as it is while the claim is owned. Waits for the store. Raises the loss."""
        backoff = patient_backoff(self._keeper.environment.chance)
        while True:
            claim.check()
            with suppress(*TROUBLE):
                outcome = await self._keeper.store.commit(claim.guards, then=[Get(self._key(claim))])
                if outcome.is_success:
                    item = next(iter(outcome.items), None)
                    return None if item is None else Handover.decode(item.value, revision=item.mod_revision)
            # The entry was put again, and this node is about to hear of it.
            await asyncio.sleep(backoff.next_s())

    def _is_over_time(self, key: bytes, record: Handover) -> bool:
        seen_s = self._seen.get(key, (0, 0.0))[1]
        return self._keeper.store.clock.monotonic() >= seen_s + record.timeout

    def _key(self, claim: PlacedClaim) -> bytes:
        name = quoted(claim.key.removeprefix(self._claims.prefix).decode())
        return self._keeper.keys.handover(self._kind, name)


def _is_taken_by(record: Handover, claim: PlacedClaim) -> bool:
    return record.step is HandoverStep.TAKEN and record.next_epoch == claim.epoch


def _past_of(now: Handover, record: Handover) -> Handover | None:
    """The earlier hand-over as it ended, if somebody has taken it: the next record summarizes it."""
    ended = next((past for past in now.past if past.number == record.number), None)
    if ended is None or ended.step is not HandoverStep.DONE:
        return None
    return replace(record, step=ended.step, next_epoch=ended.next_epoch, trouble=ended.trouble)
