"""Drives the hand-overs of one node's topics: the record in the store, and the mesh's machine (`moving`).

What it owes both sides:

- a topic is closed when the new owner is prepared, and not before: until then everything may still end well
  without anybody having noticed;
- whatever becomes of the record, the machine hears it once: `taken`, or `stay`; also when the caller is
  cancelled, and goes on in the background when the topic was closed;
- an offer that names this node is answered at once: it stands in the line, or withdraws with the reason;
- one that asks this node to give a topic away is carried out;
- who stands in the line leaves it when the offer is withdrawn; else it owns the topic by a claim like any.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from hansa.coordination.claim import TakenClaim
from hansa.coordination.following import TROUBLE, Following, changes
from hansa.coordination.handover import Handover, HandoverStep
from hansa.coordination.handovers import Handovers
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    BadRecord,
    Conflict,
    Fenced,
    HansaError,
    NoSuccessor,
    NotOwner,
    PeerAway,
    StoreCorrupt,
    TimedOut,
    Unavailable,
)
from hansa.ids import format_id
from hansa.keys import topic_name, unquoted
from hansa.limits import (
    DRAIN_AT_ONCE_COUNT,
    SURVEY_S,
    TOPIC_FORWARD_S_MAX,
    TOPIC_HOLD_S_MAX,
    TOPIC_TAKEN_S_MAX,
)
from hansa.runtime.tasks import TaskScope
from hansa.topics.claims import TopicClaims
from hansa.topics.names import check_topic
from hansa.topics.router_mesh import RouterMesh, Taker
from hansa.topics.topic_state import TopicState
from hansa.transport.environment import Environment

if TYPE_CHECKING:
    from hansa.topics.spot import Spot


class TopicMover:
    """The hand-overs of one node. `heir` gives the spot that owns what comes here."""

    def __init__(
        self,
        claims: TopicClaims,
        mesh: RouterMesh,
        *,
        node: bytes,
        heir: Callable[[], Spot],
        environment: Environment,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._claims = claims
        self._mesh = mesh
        self._node = node
        self._heir = heir
        self._environment = environment
        self._name = f"hand-overs of node {format_id(node)}"
        self._handovers = Handovers(
            claims.store, cluster=claims.keys.cluster, name=claims.taker, environment=environment
        )
        self._tasks = TaskScope(self._name, on_failure)
        self._prefix = topic_name(claims.service, "")
        # By topic: what is given away, and what is waited for, each with the number of its hand-over.
        self._giving: dict[str, asyncio.Task[None]] = {}
        self._taking: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._is_leaving = False

    # -- life

    def start(self, *, takes_topics: bool) -> None:
        """Follow what is offered. With `takes_topics` others may hand topics over to this node."""
        if takes_topics:
            self._mesh.take_topics(self._claims.taker)
        else:
            self._is_leaving = True
        self._tasks.spawn(self._follow(), f"follows the {self._name}")
        self._tasks.spawn(self._handovers.keep_swept(), f"sweeps the {self._name}")

    def shut(self) -> None:
        """Give and take nothing any more. What is not sealed is withdrawn."""
        self._is_leaving = True
        self._tasks.cancel()

    async def close(self) -> None:
        """The same, and wait until it is so."""
        self._is_leaving = True
        await self._tasks.close()

    # -- giving away

    async def hand_over(self, topic: str, to: str | bytes, *, timeout: float, reason: str) -> Handover:
        """Raises as `Spot.hand_over`."""
        target, name = self._taker(topic, to)
        return await self._give(topic, target, name, timeout, reason)

    async def drain(self, timeout: float) -> dict[str, bytes]:
        """Hand everything over to the least loaded takers; gives who has got what."""
        self._is_leaving = True
        self._mesh.take_topics("")
        moved: dict[str, bytes] = {}
        try:
            async with asyncio.timeout(timeout):
                waiting = list(self._claims.topics)
                loads: dict[bytes, int] = {}
                async with asyncio.TaskGroup() as group:
                    for _ in range(DRAIN_AT_ONCE_COUNT):
                        group.create_task(
                            self._drain(waiting, loads, moved, timeout), name=f"drains for {self._name}"
                        )
                # Those too that were handed over a moment before.
                await self._mesh.until_settled([*map(check_topic, moved), *self._mesh.leaving])
                # Who answers has got all that this node has sent: what is on its way when a connection is
                # closed may be lost.
                await self._mesh.survey(SURVEY_S)
        except TimeoutError:
            pass  # What is left is destroyed when the node closes.
        return moved

    async def _drain(
        self, waiting: list[str], loads: dict[bytes, int], moved: dict[str, bytes], timeout: float
    ) -> None:
        """Hand over what waits, one after the other. `loads` has what each taker owns or is being given."""
        while waiting:
            topic = waiting.pop(0)
            if (giving := self._giving.get(topic)) is not None:
                # Somebody has asked for it already; it may stay all the same.
                await asyncio.wait([giving])
            if self._claims.of(topic) is None:
                continue
            # One that cannot take it says so; then it is the next one's turn, once each.
            refused: set[bytes] = set()
            while (taker := self._least_loaded(loads, refused)) is not None:
                loads[taker.node] += 1
                try:
                    await self._give(topic, taker.node, taker.name, timeout, "the node leaves")
                except (Conflict, Unavailable):
                    loads[taker.node] -= 1
                    refused.add(taker.node)
                except (Fenced, NotOwner, BadArgument):
                    # Lost meanwhile, or more than can be handed on: the others go on.
                    loads[taker.node] -= 1
                    break
                else:
                    moved[topic] = taker.node
                    break

    def _least_loaded(self, loads: dict[bytes, int], refused: set[bytes]) -> Taker | None:
        takers = [one for one in self._mesh.takers() if one.node not in refused]
        for one in takers:
            # Counted here from then on: what is on its way there has not been announced.
            loads.setdefault(one.node, one.owned_count)
        return min(takers, key=lambda one: loads[one.node], default=None)

    def _taker(self, topic: str, to: str | bytes) -> tuple[bytes, str]:
        for taker in self._mesh.takers():
            if to in (taker.node, taker.name, format_id(taker.node)):
                return taker.node, taker.name
        whom = format_id(to) if isinstance(to, bytes) else repr(to)
        raise NoSuccessor(
            f"topic {topic!r} stays here: {whom} is no connected node with a store that takes topics"
        )

    async def _give(self, topic: str, target: bytes, name: str, timeout: float, reason: str) -> Handover:
        if topic in self._giving:
            raise Conflict(f"topic {topic!r} is being handed over already")
        outcome: asyncio.Future[Handover] = asyncio.get_running_loop().create_future()
        work = self._carry_out(outcome, topic, target, name, timeout, reason)
        task = self._giving[topic] = self._tasks.spawn(work, f"hands over {topic}")
        task.add_done_callback(lambda _: self._given(outcome, topic))
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            # A topic that is closed must not stay so, and one that is another's must be forgotten: then it
            # goes on in the background.
            if self._mesh.is_open(check_topic(topic)):
                task.cancel()
            raise

    async def _carry_out(
        self,
        outcome: asyncio.Future[Handover],
        topic: str,
        target: bytes,
        name: str,
        timeout: float,
        reason: str,
    ) -> None:
        try:
            record = await self._seal(topic, target, name, timeout, reason)
        except HansaError as error:
            if not outcome.done():
                outcome.set_exception(error)
                outcome.exception()  # Who asked may not wait for it any more.
        else:
            if not outcome.done():
                outcome.set_result(record)

    def _given(self, outcome: asyncio.Future[Handover], topic: str) -> None:
        del self._giving[topic]
        if not outcome.done():
            outcome.set_exception(AlreadyClosed(f"{self._name}: the node is closed, and {topic!r} with it"))
            outcome.exception()

    async def _seal(self, topic: str, target: bytes, name: str, timeout: float, reason: str) -> Handover:
        frame = check_topic(topic)
        claim = self._claims.of(topic)
        if claim is None:
            raise NotOwner(f"topic {topic!r} is not claimed by this node: it cannot be handed over")
        # It may have come here a moment ago.
        with suppress(TimeoutError):
            async with asyncio.timeout(TOPIC_FORWARD_S_MAX):
                await self._mesh.until_settled([frame])

        async def close() -> bytes:
            record = claim.record.latest if claim.record is not None else None
            number = 0 if record is None else record.number
            try:
                return self._mesh.close_topic(frame, target, number=number).encode()
            except PeerAway as error:
                raise NoSuccessor(str(error)) from error

        try:
            record = await claim.hand_over(name, state=close, timeout=timeout, reason=reason)
        except Exception:
            # Not when this is cancelled: then the node ends, and the record may go on without it.
            self._mesh.stay(frame)
            raise
        self._mesh.taken(frame)
        self._claims.forget(topic, claim)
        with suppress(TimeoutError):
            async with asyncio.timeout(2 * TOPIC_TAKEN_S_MAX):
                await self._mesh.until_owned_elsewhere(frame)
        return record

    # -- what the records say

    async def _follow(self) -> None:
        prefix = self._claims.keys.topic_handovers(self._claims.service)
        following = Following(self._claims.store, prefix, environment=self._environment)
        try:
            async for news in following:
                puts, deletes = changes(news)
                for item in puts:
                    with suppress(BadRecord):  # Whoever wrote it is told by those who wait for it.
                        self._hear(Handover.decode(item.value, revision=item.mod_revision))
                for item in deletes:
                    self._stop_taking(item.key.decode().rpartition("/")[2], 0)
        except AlreadyClosed:
            return  # The store was closed before the node.
        finally:
            following.close()

    def _hear(self, record: Handover) -> None:
        topic = _unquoted(record.name)
        if record.step is HandoverStep.OFFERED and record.target == self._claims.taker:
            self._stop_taking(topic, record.number)
            if topic not in self._taking:
                self._begin_taking(topic, record)
        elif record.step is HandoverStep.WITHDRAWN:
            self._stop_taking(topic, record.number + 1)
        claim = self._claims.of(topic)
        is_asked = bool(record.asked_by) and record.step.is_early and topic not in self._giving
        if is_asked and claim is not None and record.is_of(claim.key, claim.epoch):
            self._tasks.spawn(self._give_as_asked(topic, record), f"hands over {topic}")

    async def _give_as_asked(self, topic: str, record: Handover) -> None:
        try:
            target, name = self._taker(topic, record.target)
            await self._give(topic, target, name, record.timeout, record.reason)
        except NoSuccessor as error:
            await self._refuse(record, str(error))
        except HansaError:
            pass  # The record says why.

    # -- taking

    def _begin_taking(self, topic: str, record: Handover) -> None:
        try:
            if self._is_leaving:
                raise BadArgument("this node takes no topics: it is closing, or was told not to")
            self._mesh.check_room()
        except BadArgument as error:
            self._tasks.spawn(self._refuse(record, str(error)), f"refuses {topic}")
            return
        task = self._tasks.spawn(self._take(topic, record), f"takes {topic}")
        self._taking[topic] = record.number, task
        task.add_done_callback(partial(self._taken, topic))

    def _stop_taking(self, topic: str, number: int) -> None:
        """Leave the line, unless it is for this hand-over or a later one."""
        taking = self._taking.get(topic)
        if taking is not None and (not number or taking[0] < number):
            del self._taking[topic]
            taking[1].cancel()

    def _taken(self, topic: str, task: asyncio.Task[None]) -> None:
        taking = self._taking.get(topic)
        if taking is not None and taking[1] is task:
            del self._taking[topic]

    async def _take(self, topic: str, record: Handover) -> None:
        # If its owner dies before it has sealed anything, that much is known: it goes on as what it was.
        retain = self._mesh.retains(check_topic(topic))
        try:
            claim = await self._claims.take_over(topic, record.timeout + TOPIC_HOLD_S_MAX)
        except (AlreadyClosed, TimedOut, Fenced):
            return
        # It owns now: what becomes of the record from here on does not make it leave the line, and a node
        # that closes gives it back with all others.
        self._taking.pop(topic, None)
        self._claims.keep(topic, claim)
        try:
            await claim.finish_handover()
            heir = self._heir()
            self.own(topic, heir, claim, retain=retain)
            heir.inherit(topic)
        except HansaError as error:
            # If this claim was lost, the topic may have come here once more, under another one.
            if self._claims.of(topic) is claim:
                self._claims.release_later(topic)
            # A claim that was lost meanwhile is nothing to be told: nobody has heard of it.
            if not isinstance(error, Fenced):
                self._report(topic, error)

    def own(self, topic: str, spot: object, claim: TakenClaim[Fenced], *, retain: bool) -> None:
        """The store says that it is ours: open it, with what was handed on.

        The hand-over must be done in the record by then. Else somebody might be given the same state again,
        and number its own messages as this node has numbered others. Raises as `RouterMesh.create`, and the
        loss.
        """
        frame = check_topic(topic)
        claim.check()
        handover = claim.handover
        state = None
        if handover is not None:
            try:
                state = TopicState.decode(claim.state)
            except (BadRecord, StoreCorrupt) as error:
                self._report(topic, error)
        if handover is None or state is None:
            # Nothing was handed on: a topic that begins anew.
            self._mesh.create(frame, spot, retain=retain, claim=claim.epoch)
        else:
            self._mesh.adopt(frame, spot, state, claim=claim.epoch, number=handover.number)

    def _report(self, topic: str, error: HansaError) -> None:
        message = f"{self._name}: topic {topic!r} came here, and cannot be opened as it was"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})

    async def _refuse(self, record: Handover, reason: str) -> None:
        # Who asked finds the reason; when the store does not answer it ends by its deadline.
        with suppress(*TROUBLE, HansaError):
            await self._handovers.withdraw(record.kind, record.name, reason=reason)


def _unquoted(name: str) -> str:
    return unquoted(name.partition("/")[2])
