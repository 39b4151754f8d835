"""A store to which some steps of some hand-overs are sent late, whatever has become of who sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from hansa.coordination.handover import Handover, HandoverStep
from hansa.errors import HansaError
from hansa.limits import STORE_TIMEOUT_S
from hansa.store import Store
from hansa.store.values import Compare, Operation, Outcome
from tests.support.gated_store import record_in


class Tell(Protocol):
    """Where somebody tells what happens."""

    def __call__(self, event: str, entry: str = "", **found: Any) -> None: ...


class HeldStore:
    """Another store, to which a step of each of these, by its record's name, is sent only after `open`.

    It tells that the step is `held`, and of the one that was sent `late` what came of it.
    """

    def __init__(self, store: Store, held: Mapping[str, HandoverStep], tell: Tell) -> None:
        self._store = store
        self._held = held
        self._tell = tell
        self._opened = asyncio.Event()
        self._sending: set[asyncio.Task[Outcome]] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def open(self) -> None:
        self._opened.set()

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        send = partial(self._store.commit, compares, then, otherwise, timeout=timeout)
        record = record_in(then)
        if record is None or self._held.get(record.name) is not record.step or self._opened.is_set():
            return await send()
        sending = asyncio.create_task(self._send_late(record, send), name=f"sends {record.what} late")
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        return await asyncio.shield(sending)

    async def _send_late(self, record: Handover, send: Callable[[], Awaitable[Outcome]]) -> Outcome:
        self._tell("held", record.name)
        await self._opened.wait()
        try:
            outcome = await send()
        except HansaError as error:
            self._tell("late", record.name, outcome=error.code)
            raise
        self._tell("late", record.name, outcome="done" if outcome.is_success else "refused")
        return outcome
