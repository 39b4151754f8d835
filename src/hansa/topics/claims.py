"""Topics claimed in a store: of all nodes that ask there first, one at a time may own a topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from hansa.chance import Chance
from hansa.coordination.entry import Entry
from hansa.coordination.line import LineTally
from hansa.coordination.lock import line_of
from hansa.coordination.loss import again
from hansa.coordination.ownership import acquired_at_once
from hansa.coordination.session import Session
from hansa.errors import AlreadyClosed, Fenced, TopicExists
from hansa.ids import format_id
from hansa.keys import Keys
from hansa.runtime.tasks import TaskScope
from hansa.store.store import Store


class TopicClaims:
    """The claims of one node, all on one lease: opened with the first, and anew after it was lost.

    `on_lost` is called with a topic and the reason before anybody else can claim it.
    """

    def __init__(
        self,
        store: Store,
        *,
        cluster: str,
        service: str,
        node: bytes,
        ttl_s: float,
        chance: Chance,
        on_lost: Callable[[str, str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Raises BadArgument."""
        self._store = store
        self._keys = Keys(cluster)
        self._service = service
        self._node = node
        self._name = f"topics of node {format_id(node)}"
        self._ttl_s = ttl_s
        self._chance = chance
        self._on_lost = on_lost
        self._tally = LineTally()
        self._session: Session | None = None
        self._opening = asyncio.Lock()
        # Of topics that the node owns.
        self._entries: dict[str, Entry[Fenced]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._tasks = TaskScope(self._name, on_failure)
        self._is_closed = False

    async def claim(self, topic: str) -> Entry[Fenced]:
        """Claim it for a spot that is about to create it, and then calls `keep` or `give_up_later`.

        Cancelling it claims nothing. Raises TopicExists; AlreadyClosed; StoreUnavailable and TimedOut when
        the store cannot be asked; Fenced, mostly as SessionLost, when the claim is lost at once.
        """
        while (leaving := self._leaving.get(topic)) is not None:
            await asyncio.wait([leaving])
        session = await self._live_session()
        prefix = self._keys.topic(self._service, topic)
        entry = Entry(session, prefix, what=f"topic {topic!r}", error=Fenced, value=self._node)
        if not await acquired_at_once(entry, self._tally):
            line = await line_of(session, prefix)
            whose = f"node {format_id(line[0].note)}" if line else "another node"
            raise TopicExists(f"topic {topic!r} is owned by {whose} already, as the store has it")
        return entry

    @staticmethod
    def check(entry: Entry[Fenced]) -> None:
        """Raises Fenced, with the reason, unless the claim still stands."""
        if (lost := entry.as_lost()) is not None:
            raise again(lost)

    def keep(self, topic: str, entry: Entry[Fenced]) -> None:
        """The topic was created under this claim, just now: tell when it is lost."""
        self._entries[topic] = entry
        entry.loss.call_back(partial(self._lost, topic, entry))

    def give_up_later(self, topic: str, entry: Entry[Fenced]) -> asyncio.Task[None]:
        """Let others claim it. When the store does not answer soon, that goes on in the background."""
        self._leaving[topic] = task = self._tasks.spawn(_leave(entry), f"gives up topic {topic}")
        task.add_done_callback(partial(self._left, topic))
        return task

    async def release(self, topic: str) -> None:
        """The topic is destroyed: let others claim it. Cancelling it lets that go on in the background."""
        leaving = self.release_later(topic)
        if leaving is not None:
            await asyncio.wait([leaving])

    def release_later(self, topic: str) -> asyncio.Task[None] | None:
        """The same, without waiting for it."""
        entry = self._entries.pop(topic, None)
        return None if entry is None else self.give_up_later(topic, entry)

    async def close(self) -> None:
        """Release everything at once, by ending the lease, and claim nothing any more.

        Cancelling it lets the lease end by itself, when nobody has renewed it for its time.
        """
        self._is_closed = True
        self._entries.clear()
        try:
            await self._tasks.close()
        finally:
            await self._close_session()

    async def _live_session(self) -> Session:
        async with self._opening:
            if self._is_closed:
                raise AlreadyClosed(f"{self._name}: the node is closed")
            if self._session is None or not self._session.is_live:
                await self._close_session()
                session = Session(
                    self._store, self._ttl_s, cluster=self._keys.cluster, name=self._name, chance=self._chance
                )
                self._session = await session.__aenter__()
                if self._is_closed:
                    # While the store was asked: whoever closed saw no session to end.
                    await self._close_session()
                    raise AlreadyClosed(f"{self._name}: the node was closed meanwhile")
            return self._session

    async def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.__aexit__(None, None, None)

    def _lost(self, topic: str, entry: Entry[Fenced]) -> None:
        if self._entries.get(topic) is entry:
            del self._entries[topic]
            self._on_lost(topic, str(entry.loss.error))

    def _left(self, topic: str, leaving: asyncio.Task[None]) -> None:
        if self._leaving.get(topic) is leaving:
            del self._leaving[topic]


async def _leave(entry: Entry[Fenced]) -> None:
    # Whoever has closed the store renews no lease: the claim ends with it.
    with suppress(AlreadyClosed):
        await entry.leave()
