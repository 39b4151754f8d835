"""The state that an owner hands on to the next one: in the record itself if it is small, else in a blob.

The record names the blob. A blob is put before the seal is sent, and the seal compares that it is there. A
transaction that replaces a record which names a blob by one which does not deletes the blob too: `dropped`
says how. So a blob goes with the DONE or WITHDRAWN that ends its hand-over. A blob that no record has named
is deleted by the owner that put it, if it still can, else by `Handovers.sweep` at the end of its lifetime.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from hansa.chance import Chance
from hansa.coordination.following import TROUBLE, patient_backoff, patiently
from hansa.coordination.handover import Handover
from hansa.coordination.session import Session, SessionKeeper
from hansa.errors import AlreadyClosed, BadArgument, BadRecord, HansaError, NotThere, StoreCorrupt
from hansa.limits import BLOB_BYTES_MAX, HANDOVER_INLINE_BYTES_MAX
from hansa.store.blobs import Blobs
from hansa.store.store import Store
from hansa.store.values import Compare, Operation
from hansa.transport.environment import Environment


def as_state(state: bytes) -> bytes:
    """Raises `BadArgument` for what cannot be handed on."""
    if not isinstance(state, bytes):
        raise BadArgument(f"what is handed on is bytes, not {type(state).__name__}")
    if len(state) > BLOB_BYTES_MAX:
        raise BadArgument(
            f"a state of {len(state)} bytes: at most {BLOB_BYTES_MAX} are handed on;"
            " store it elsewhere, and hand on its name"
        )
    return state


def dropped(blobs: Blobs, before: Handover | None, after: Handover | None) -> list[Operation]:
    """The operations that go along when `after` replaces `before`: delete a blob that is no longer named."""
    if before is None or not before.blob or (after is not None and after.blob == before.blob):
        return []
    try:
        return [blobs.deletion(before.blob)]
    except BadArgument:
        return []  # Somebody else wrote this name, and it is no blob's.


def handover_blobs(store: Store, cluster: str, chance: Chance) -> Blobs:
    """The blobs of hand-overs: a space of their own, which `Handovers.sweep` sweeps."""
    environment = Environment(clock=store.clock, chance=chance)
    return Blobs(store, cluster=cluster, space="handed", environment=environment)


def blobs_of(session: Session | SessionKeeper) -> Blobs:
    """The blobs of hand-overs in a session's store."""
    return handover_blobs(session.store, session.keys.cluster, session.environment.chance)


async def read_state(session: Session | SessionKeeper, record: Handover) -> bytes:
    """The state that the record hands on. Waits for the store.

    Raises `StoreCorrupt` for a blob that is gone or damaged.
    """
    if not record.blob:
        return record.state
    try:
        return await patiently(partial(blobs_of(session).get, record.blob), session.environment.chance)
    except (NotThere, StoreCorrupt, BadArgument) as error:
        raise StoreCorrupt(
            f"{record.what}: what {record.source!r} handed on, {record.size} bytes, is lost: {error}"
        ) from error


class HandedState:
    """The state of one hand-over, on its owner's side.

    `on_news` is called when the state is ready, or can never be.
    """

    def __init__(self, session: Session, data: bytes, on_news: Callable[[], None]) -> None:
        self._session = session
        self._data = data
        self._on_news = on_news
        self._blobs = blobs_of(session)
        self._blob = ""
        self._putting: asyncio.Task[None] | None = None
        self.refusal = ""
        """Why the state cannot be handed on; empty while it can."""

    @property
    def is_ready(self) -> bool:
        """Whether the state can be written into a record now."""
        return self._is_small or bool(self._blob)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the record that hold the state."""
        state = self._data if self._is_small else b""
        return {"state": state, "blob": self._blob, "size": len(self._data)}

    @property
    def guards(self) -> list[Compare]:
        """The comparisons that the seal needs."""
        return [self._blobs.guard(self._blob)] if self._blob else []

    @property
    def _is_small(self) -> bool:
        return len(self._data) <= HANDOVER_INLINE_BYTES_MAX

    def prepare(self, deadline_s: float) -> None:
        """Get the state ready in the background, by this time of the store's clock. Twice does no harm."""
        if self._putting is None:
            self._putting = self._session.spawn(self._put(deadline_s), "puts what is handed on")

    async def look(self) -> None:
        """After a refused seal: check that the blob is still there. Raises what the store raises."""
        for guard in self.guards:
            if await self._session.store.get(guard.key) is None:
                self._blob, self.refusal = "", "what it hands on was deleted before it was sealed"

    def close(self, key: bytes, *, is_given: bool) -> None:
        """End it. If the state was not given, delete its blob, unless the record with this key names it."""
        if self._putting is not None:
            self._putting.cancel()
        if self._blob and not is_given and self._session.is_live:
            self._session.spawn(self._discard(key), "deletes what was not handed on")

    async def _put(self, deadline_s: float) -> None:
        left_s = max(0.0, deadline_s - self._session.store.clock.monotonic())
        try:
            self._blob = await self._blobs.put(self._data, timeout=left_s)
        except HansaError as error:
            self.refusal = f"the {len(self._data)} bytes that it hands on could not be stored: {error}"
        self._on_news()

    async def _discard(self, key: bytes) -> None:
        """Delete together with a compare of the record: a seal on its way comes before it, or is refused."""
        session = self._session
        backoff = patient_backoff(session.environment.chance)
        while session.is_live:
            try:
                item = await session.store.get(key)
                if item is not None and _names(item.value, self._blob):
                    return
                revision = 0 if item is None else item.mod_revision
                outcome = await session.store.commit(
                    [Compare.revision(key, "=", revision)], then=[self._blobs.deletion(self._blob)]
                )
                if outcome.is_success:
                    return
            except TROUBLE:
                await asyncio.sleep(backoff.next_s())
            except AlreadyClosed:
                return


def _names(value: bytes, blob: str) -> bool:
    try:
        return Handover.decode(value).blob == blob
    except BadRecord:
        return False
