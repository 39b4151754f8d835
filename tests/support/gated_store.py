"""A store in which steps of hand-overs are held or lost, for one of those who take part."""

import asyncio
from collections.abc import Sequence
from typing import Any

from hansa.coordination.handover import Handover, HandoverStep
from hansa.errors import TimedOut
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.store import Store
from hansa.store.values import Compare, Operation, Outcome, Put


class GatedStore:
    """Another store, in which steps of hand-overs are held, or lost with or without their effect."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[HandoverStep, asyncio.Event] = {}
        self._reached: dict[HandoverStep, asyncio.Event] = {}
        self.lost_answers: set[HandoverStep] = set()
        self.lost_requests: set[HandoverStep] = set()
        # So long the answer to a step is under way, when the store has carried it out.
        self.slow_answers: dict[HandoverStep, float] = {}
        # Each step that was asked for, as often as it was.
        self.asked: list[HandoverStep] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def hold(self, step: HandoverStep) -> None:
        """From now on this step is not sent, until `open`."""
        self._held[step] = asyncio.Event()

    def open(self, step: HandoverStep) -> None:
        """Let it go on."""
        self._held.pop(step).set()

    async def reached(self, step: HandoverStep) -> None:
        """Wait until this step was asked for."""
        await self._reached.setdefault(step, asyncio.Event()).wait()

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        step = step_in(then)
        if step is not None:
            self.asked.append(step)
            self._reached.setdefault(step, asyncio.Event()).set()
            if (gate := self._held.get(step)) is not None:
                await gate.wait()
            if step in self.lost_requests:
                self.lost_requests.remove(step)
                raise TimedOut("the request was lost")
        outcome = await self._store.commit(compares, then, otherwise, timeout=timeout)
        if step is not None:
            await asyncio.sleep(self.slow_answers.pop(step, 0.0))
        if step in self.lost_answers:
            self.lost_answers.remove(step)
            raise TimedOut("the answer was lost")
        return outcome


def step_in(then: Sequence[Operation]) -> HandoverStep | None:
    """The step of a hand-over that a transaction makes, if it makes one."""
    record = record_in(then)
    return None if record is None else record.step


def record_in(then: Sequence[Operation]) -> Handover | None:
    """The record of a hand-over that a transaction writes, if it writes one."""
    for operation in then:
        if isinstance(operation, Put) and b"/handovers/" in operation.key:
            return Handover.decode(operation.value)
    return None
