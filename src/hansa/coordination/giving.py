"""How a taken claim is handed over by its owner: a driver of `handover`.

`Giving` must: offer, or adopt an offer from outside to the same node; when the new owner is prepared get the
state, and stop to act before the seal is sent; from then on go on in the background whoever is cancelled, ask
the store until it has answered, and end with TAKEN or WITHDRAWN; and before that withdraw, in the background
too, whatever ends it.

Every step compares the revision of the record that was decided on. So what is sent twice happens once, and a
lost answer is found by reading the record again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from hansa.coordination.following import TROUBLE, key_changed, patient_backoff, patiently
from hansa.coordination.handed import HandedState, as_state
from hansa.coordination.handover import (
    Actor,
    Decision,
    Facts,
    Handover,
    HandoverStep,
    PastHandover,
    advanced,
    decide,
    offered,
)
from hansa.coordination.line import Head, decode_signed, head_key
from hansa.coordination.succession import call_off, checked_offer, record_of, withdrawn
from hansa.errors import (
    AlreadyClosed,
    Conflict,
    Fenced,
    HandoverWithdrawn,
    HansaError,
    NoSuccessor,
    NotHeld,
)
from hansa.limits import FAREWELL_STORE_S_MAX
from hansa.runtime.tasks import GuardedBlock, again
from hansa.store.values import Compare, Get, KeyValue, Operation, Put, prefix_range

if TYPE_CHECKING:
    from hansa.coordination.claim import TakenClaim
    from hansa.coordination.session import Session


class Giving:
    """One hand-over, from its owner's side. Made once; `run` carries it out."""

    def __init__(
        self,
        claim: TakenClaim[Any],
        to: str | Handover,
        *,
        state: bytes | Callable[[], Awaitable[bytes]],
        timeout: float,
        reason: str,
    ) -> None:
        """Raises `UsageError` for what cannot be handed over, `BadArgument`."""
        self.record = record_of(claim)
        # What was asked for from outside, if it is to be this and no other.
        self._asked = to if isinstance(to, Handover) else None
        self.to = to.target if isinstance(to, Handover) else to
        checked_offer(self.to, timeout, reason)
        self._claim = claim
        claim.is_named = True
        self._session: Session = claim.session
        self._state = state if callable(state) else as_state(state)
        self._timeout_s = timeout
        self._reason = reason
        self._number = 0
        self._retries_count = 0
        self._is_target_here = True
        self._outcome: Handover | HansaError | None = None

    async def run(self) -> Handover:
        """Raises as `Held.hand_over`."""
        claim, record = self._claim, self.record
        is_following = False
        try:
            async with GuardedBlock(claim.loss):
                await record.follow()
                is_following = True
                await self._offer()
                prepared = await self._until_prepared()
                state = as_state(await self._state()) if callable(self._state) else self._state
            claim.check()
        except BaseException as error:
            if is_following:
                record.let_go()
            claim.giving = None
            await self._give_up(error)
            raise
        # From here on nobody acts under this claim. Then the seal is sent.
        claim.is_sealed = True
        sealing = self._session.spawn(self._carry_out(prepared, state), f"hands over {claim.what}")
        await asyncio.wait((sealing,))
        outcome = self._outcome
        if isinstance(outcome, Fenced):
            raise again(outcome)
        if isinstance(outcome, HansaError):
            raise outcome
        if outcome is None:
            # The session was left.
            claim.check()
            raise NotHeld(f"{claim.what} was left while it was handed over")
        if outcome.step is HandoverStep.WITHDRAWN:
            raise self._as_withdrawn(outcome)
        return outcome

    async def _offer(self) -> None:
        claim, record, session = self._claim, self.record, self._session
        deadline_s = session.store.clock.monotonic() + self._timeout_s
        backoff = patient_backoff(session.environment.chance)
        everybody = Get(*prefix_range(claim.prefix))
        while True:
            now = record.latest
            if self._asked is not None:
                self._number = self._as_asked(now, self._asked).number
                return
            # What this owner itself has offered before is replaced.
            is_mine = now is not None and now.is_open and now.is_of(claim.key, claim.epoch)
            if now is not None and is_mine and (now.asked_by or not now.step.is_early):
                if now.target == self.to and now.step.is_early:
                    self._number = now.number
                    return
                raise Conflict(
                    f"{claim.what}: hand-over {now.number} to {now.target!r} is open ({now.step.value})"
                )
            offer = offered(
                now,
                kind=record.movable.kind,
                name=record.movable.name,
                source=session.node,
                target=self.to,
                epoch=claim.epoch,
                owner_key=claim.key.decode(),
                timeout=self._timeout_s,
                reason=self._reason,
                at=session.store.clock.wall(),
            )
            self._number = offer.number
            try:
                outcome = await record.write(offer, claim.guards, reads=[everybody])
            except TROUBLE:
                self._retries_count += 1
                if session.store.clock.monotonic() >= deadline_s:
                    raise
                await asyncio.sleep(backoff.next_s())
                continue
            if outcome.is_success:
                self._check_waiting(outcome.items)
                return
            self._check_own(outcome.items)

    def _as_asked(self, now: Handover | None, asked: Handover) -> Handover:
        """Raises `HandoverWithdrawn` when it is over: whoever asked was told that it stays."""
        if now is not None and now.number == asked.number and now.step.is_early:
            return now
        if now is not None and now.number == asked.number and now.step is HandoverStep.WITHDRAWN:
            raise self._as_withdrawn(now)
        raise HandoverWithdrawn(f"{self._claim.what} stays here: its hand-over to {self.to!r} is over")

    def _check_waiting(self, items: Sequence[KeyValue]) -> None:
        claim = self._claim
        if not self.record.movable.is_plain:
            return
        others = [item for item in items if item.lease and item.key != claim.key]
        if not any(decode_signed(item.value).node == self.to for item in others):
            raise NoSuccessor(f"{claim.what} stays here: node {self.to!r} does not wait for it")

    def _check_own(self, items: Sequence[KeyValue]) -> None:
        """Raises the loss, if the key is gone and nobody has taken it by this hand-over."""
        claim, now = self._claim, self.record.latest
        is_here = any(item.key == claim.key for item in items)
        if not is_here and not (now is not None and self._was_taken(now)):
            claim.unseal()
            claim.deleted()
            claim.loss.check()

    async def _until_prepared(self) -> Handover:
        record = self.record
        while True:
            since, now = record.changes_count, record.latest
            if now is None or now.number != self._number:
                raise HandoverWithdrawn(f"{self._claim.what} stays here: the record of its hand-over is gone")
            if now.step is HandoverStep.PREPARED:
                return now
            if now.step is HandoverStep.WITHDRAWN:
                # Maybe because the key is gone: then that is what the caller must hear.
                await self._claim.look()
                raise self._as_withdrawn(now)
            late = decide(now, Actor.OWNER, Facts(is_over_time=record.is_over_time))
            if late is not None:
                raise self._as_withdrawn(withdrawn(now, late, self._session))
            await record.wait(since, record.deadline_s)

    async def _give_up(self, error: BaseException) -> None:
        if not self._number or not self._session.is_live:
            return
        why = str(error) if isinstance(error, HansaError) else f"the old owner gave up: {error!r:.200}"
        facts = Facts(refusal=why)
        giving_up = self._session.spawn(
            call_off(self.record, self._number, Actor.OWNER, facts), f"keeps {self._claim.what}"
        )
        if not isinstance(error, asyncio.CancelledError):
            await asyncio.wait((giving_up,), timeout=FAREWELL_STORE_S_MAX)

    async def _carry_out(self, prepared: Handover, state: bytes) -> None:
        """From the seal to the end, whoever is cancelled meanwhile."""
        claim, record = self._claim, self.record
        target = prepared.target_key.encode()
        watching = self._session.spawn(self._until_gone(target), f"watches {target!r}")
        handed = HandedState(self._session, state, record.wake)
        try:
            async with GuardedBlock(claim.loss):
                self._outcome = await self._to_the_end(prepared, handed)
        except HansaError as error:
            # A loss that comes after the end changes nothing of it.
            if self._outcome is None:
                self._outcome = error
        finally:
            watching.cancel()
            ended = self._outcome
            is_given = isinstance(ended, Handover) and ended.step is not HandoverStep.WITHDRAWN
            handed.close(record.key, is_given=is_given)
            record.let_go()
            claim.giving = None

    async def _until_gone(self, key: bytes) -> None:
        """Watch the new owner's key. When it is taken it is put anew, and still there."""
        session = self._session
        look = partial(session.store.scan, key, b"")
        try:
            scan = await patiently(look, session.environment.chance)
            if scan.items:
                known = scan.items[0]
                await key_changed(
                    session.store, known, revision=scan.revision, chance=session.environment.chance
                )
        except AlreadyClosed:
            return
        self._is_target_here = False
        self.record.wake()

    async def _to_the_end(self, known: Handover, handed: HandedState) -> Handover:
        """`known` is the record as it was known last, while it told of this hand-over."""
        claim, record = self._claim, self.record
        backoff = patient_backoff(self._session.environment.chance)
        while True:
            since, now = record.changes_count, record.latest
            if claim.has_left:
                raise NotHeld(f"{claim.what} was given back while it was handed over")
            if now is not None and now.number != self._number:
                return await self._overtaken(now, known)
            if now is not None and self._is_over(now):
                claim.handed_over()
                return now
            if now is not None and now.step is HandoverStep.WITHDRAWN:
                claim.unseal()
                return now
            known = now or known
            decision = self._decide(now, known, handed)
            if decision is not None and decision.step is HandoverStep.SEALED and not handed.is_ready:
                handed.prepare(record.deadline_s)
                decision = None
            if decision is None:
                await record.wait(since, record.deadline_s)
                continue
            try:
                await self._write(known, decision, handed)
            except TROUBLE:
                self._retries_count += 1
                await asyncio.sleep(backoff.next_s())

    async def _overtaken(self, now: Handover, known: Handover) -> Handover:
        """How it ended, when the next one is under way already: that tells of those before it in short."""
        claim = self._claim
        ended = self._ended(now)
        if self._was_taken(now):
            claim.handed_over()
        else:
            # This owner acts again only if its key is there.
            await claim.look()
            claim.unseal()
        step = HandoverStep.WITHDRAWN if ended is None else ended.step
        return replace(
            known,
            step=step,
            next_epoch=0 if ended is None else ended.next_epoch,
            times={**known.times, step: 0.0 if ended is None else ended.ended},
            trouble="another hand-over was begun" if ended is None else ended.trouble,
            state=b"",
            blob="",
        )

    def _ended(self, now: Handover) -> PastHandover | None:
        """How it ended, if the record tells of a later one."""
        return next((past for past in now.past if past.number == self._number), None)

    def _was_taken(self, now: Handover) -> bool:
        """Whether somebody has taken what this owner has given, lately or before something else began."""
        ended = self._ended(now)
        return self._is_over(now) or (ended is not None and ended.step is HandoverStep.DONE)

    def _is_over(self, now: Handover) -> bool:
        """Whether the record tells so."""
        return now.number == self._number and now.step in (HandoverStep.TAKEN, HandoverStep.DONE)

    def _decide(self, now: Handover | None, known: Handover, handed: HandedState) -> Decision | None:
        if now is None:
            return Decision(step=HandoverStep.WITHDRAWN, trouble="its record was deleted")
        facts = Facts(
            is_target_here=self._is_target_here,
            is_over_time=self.record.is_over_time,
            refusal=handed.refusal,
        )
        return decide(known, Actor.OWNER, facts)

    async def _write(self, now: Handover, decision: Decision, handed: HandedState) -> None:
        claim, session = self._claim, self._session
        target = now.target_key.encode()
        compares = list(claim.guards)
        also: list[Operation] = []
        if decision.step is HandoverStep.SEALED:
            compares += [Compare.exists(target), *handed.guards]
            head = Head(first=claim.key, epoch=claim.epoch, next=target, is_open=True)
            also += [Put(head_key(claim.prefix), head.encode()), *claim.puts_of_leaving()]
            record = advanced(
                now,
                HandoverStep.SEALED,
                at=session.store.clock.wall(),
                retries=now.retries + self._retries_count,
                **handed.fields,
            )
        else:
            if now.step is HandoverStep.SEALED:
                head = Head(first=claim.key, epoch=claim.epoch)
                also.append(Put(head_key(claim.prefix), head.encode()))
            record = withdrawn(now, decision, session)
        outcome = await self.record.write(record, compares, also, [Get(claim.key), Get(target)])
        if not outcome.is_success:
            self._is_target_here = any(item.key == target for item in outcome.items)
            self._check_own(outcome.items)
            await handed.look()

    def _as_withdrawn(self, record: Handover) -> HandoverWithdrawn:
        reached = record.reached.value
        return HandoverWithdrawn(
            f"{self._claim.what} stays here: its hand-over to {record.target!r} was withdrawn when it was"
            f" {reached}: {record.trouble}",
            reached,
            record.trouble,
        )
