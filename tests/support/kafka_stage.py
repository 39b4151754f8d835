"""A member of a Kafka group by hand, and a worker on it: for tests of Kafka mode without a broker.

`HandMember` behaves as the client does: rebalances are told from within `receive`; what is assigned is paused
first; a seek decides what comes next, and a pause keeps it back. Tests say what the broker does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

from hansa.assignment.handoff import Handoffs, SavedHandoff
from hansa.assignment.kafka_entries import read_entry
from hansa.assignment.kafka_group import GroupView, KafkaSettings, Rebalanced
from hansa.assignment.kafka_mode import KafkaMode
from hansa.assignment.kafka_share import KafkaPart, Membership
from hansa.assignment.topology import EntryNote, TopologyEvent
from hansa.assignment.work import Work
from hansa.assignment.worker import Worker
from hansa.coordination import Members, NodeInfo, SessionKeeper
from hansa.coordination.placed import Placement
from hansa.errors import Fenced, HansaError, StoreUnavailable
from hansa.keys import Keys
from hansa.store.memory import MemoryStore
from hansa.store.store import Store

TOPIC = "orders"
GROUP = "g"
_BATCH_COUNT = 100


@dataclass(frozen=True, slots=True)
class HandMessage:
    """A message of a partition; its value is its offset."""

    part: KafkaPart
    at: int

    def topic(self) -> str:
        return self.part.topic

    def partition(self) -> int:
        return self.part.number

    def offset(self) -> int:
        return self.at


class FailingStore:
    """Another store, whose commits fail while it is `away`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.is_away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, *what: Any, **options: Any) -> Any:
        if self.is_away:
            raise StoreUnavailable("the store is away")
        return await self._store.commit(*what, **options)


class HandMember:
    """A member whose broker is the test."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.heard: Rebalanced | None = None
        # How many messages a partition has.
        self.logs: dict[KafkaPart, int] = {}
        self.firsts: dict[KafkaPart, int] = {}
        self.places: dict[KafkaPart, int | None] = {}
        self.paused: set[KafkaPart] = set()
        self.sought: list[tuple[KafkaPart, int]] = []
        self.pauses: list[KafkaPart] = []
        self.committed: dict[KafkaPart, int] = {}
        # Members that the broker names as the ones that have a partition.
        self.named: dict[KafkaPart, Membership] = {}
        # What it has assigned to this member without having told it.
        self.untold: set[KafkaPart] = set()
        self.late_count = 0
        self.views_count = 0
        self.strays: deque[HandMessage] = deque()
        self.kept_s: float | None = 1.0
        self.trouble: HansaError | None = None
        # The first seek of these sends the client elsewhere.
        self.strayed: set[KafkaPart] = set()
        self.is_closed = False
        self._membership = Membership("m", 1)
        self._orders: deque[tuple[Callable[[], Awaitable[None]], asyncio.Future[None]]] = deque()
        self._revoked_at_end: list[KafkaPart] = []

    # -- what the test says

    async def told(self, order: Callable[[], Awaitable[None]]) -> None:
        """Have this done within the next `receive`, and wait until it is."""
        done = asyncio.get_running_loop().create_future()
        self._orders.append((order, done))
        await done

    async def assign(self, *parts: KafkaPart, generation: int = 1, member: str = "m") -> None:
        async def order() -> None:
            for part in parts:
                self.places[part] = None
                self.paused.add(part)
            self._membership = Membership(member, generation)
            await self._listener.assigned(parts, self._membership)

        await self.told(order)

    async def revoke(self, *parts: KafkaPart) -> None:
        async def order() -> None:
            await self._listener.revoked(parts)
            self._unassign(parts)

        await self.told(order)

    async def lose(self, *parts: KafkaPart) -> None:
        async def order() -> None:
            await self._listener.lost(parts)
            self._unassign(parts)

        await self.told(order)

    def _unassign(self, parts: Collection[KafkaPart]) -> None:
        for part in parts:
            self.places.pop(part, None)
            self.paused.discard(part)

    @property
    def _listener(self) -> Rebalanced:
        assert self.heard is not None
        return self.heard

    # -- as a `GroupMember`

    async def join(self, topics: Sequence[str], heard: Rebalanced) -> None:
        self.heard = heard

    async def receive(self, timeout: float) -> Sequence[HandMessage]:
        await asyncio.sleep(0)
        while self._orders:
            order, done = self._orders.popleft()
            await order()
            done.set_result(None)
        found: list[HandMessage] = list(self.strays)
        self.strays.clear()
        for part, place in self.places.items():
            if place is None or part in self.paused:
                continue
            if place < self.firsts.get(part, 0) or place > self.logs.get(part, 0):
                # As `auto.offset.reset` has it.
                place = self.firsts.get(part, 0)
            end = min(self.logs.get(part, 0), place + _BATCH_COUNT)
            found += [HandMessage(part, offset) for offset in range(place, end)]
            self.places[part] = end
        if not found:
            await asyncio.sleep(min(timeout, 0.001))
        return found

    async def seek(self, part: KafkaPart, offset: int) -> None:
        if self.trouble is not None:
            raise self.trouble
        assert part in self.places, f"{part} is not assigned"
        # As the client does when the answer to an older question comes after the seek.
        self.places[part] = self.firsts.get(part, 0) if part in self.strayed else offset
        self.strayed -= {part}
        self.sought.append((part, offset))

    async def pause(self, parts: Collection[KafkaPart]) -> None:
        self.pauses += parts
        self.paused |= set(parts)

    async def resume(self, part: KafkaPart, offset: int) -> None:
        self.paused.discard(part)

    async def commit(self, offsets: Mapping[KafkaPart, int]) -> None:
        self.committed.update(offsets)

    async def close(self) -> None:
        if self.heard is not None and not self.is_closed:
            self.is_closed = True
            parts = list(self.places)
            await self._listener.revoked(parts)
            self._unassign(parts)

    async def start_of(self, part: KafkaPart) -> int:
        if self.trouble is not None:
            raise self.trouble
        if part in self.committed:
            return self.committed[part]
        first, end = await self.range_of(part)
        return end if self.settings.begins_at_end else first

    async def range_of(self, part: KafkaPart) -> tuple[int, int]:
        return self.firsts.get(part, 0), self.logs.get(part, 0)

    async def membership(self) -> Membership:
        return self._membership

    async def view(self, member: str) -> GroupView:
        self.views_count += 1
        named = {part for part, other in self.named.items() if other.member == member}
        others = {part for part, other in self.named.items() if other.member != member}
        return GroupView(2, frozenset(self.places.keys() | self.untold | named) - others)

    async def retention_s(self, topics: Sequence[str]) -> float | None:
        if self.trouble is not None:
            raise self.trouble
        return self.kept_s


class KafkaStage:
    """One worker in Kafka mode on a memory store, whose user adds up offsets: `async with KafkaStage()`.

    The state of a partition is the sum of the offsets of its messages.
    """

    def __init__(
        self,
        store: Store | None = None,
        *,
        name: str = "a",
        settings: Mapping[str, Any] | None = None,
        handoff_lifetime: float | None = None,
        revoke_timeout: float = 10.0,
        handler: Callable[[Work], Awaitable[None]] | None = None,
        through: Callable[[Store], Store] = lambda store: store,
        kept_s: float = 1.0,
        trouble: HansaError | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self._given_store = store
        self._through = through
        self._options = options
        self._kept_s = kept_s
        self._trouble = trouble
        self._handler = handler or self.add_up
        self.mode = KafkaMode(
            "broker",
            TOPIC,
            settings=settings,
            handoff_lifetime=handoff_lifetime,
            revoke_timeout=revoke_timeout,
            open_member=self._open,
        )
        self.works: dict[str, Work] = {}
        self.read: dict[str, list[int]] = {}
        self.began: list[tuple[str, int]] = []
        self.losses: list[str] = []
        self._stack = AsyncExitStack()
        self._running: asyncio.Task[None] | None = None

    def _open(self, settings: KafkaSettings) -> HandMember:
        before = getattr(self, "member", None)
        self.member = HandMember(settings)
        if before is not None:
            # What is the broker's.
            self.member.logs, self.member.committed = before.logs, before.committed
        self.member.kept_s, self.member.trouble = self._kept_s, self._trouble
        return self.member

    async def __aenter__(self) -> Self:
        store = self._given_store
        if store is None:
            store = await self._stack.enter_async_context(MemoryStore())
        self.store = store
        seen = self._through(store)
        self.keeper = await self._stack.enter_async_context(SessionKeeper(seen, ttl=20.0, node=self.name))
        self.members = await self._stack.enter_async_context(
            Members(seen, NodeInfo(id=self.name), session=self.keeper)
        )
        self.worker = Worker(self.members, GROUP, mode=self.mode, **self._options)
        await self._stack.enter_async_context(self.worker)
        self.events = self.worker.events()
        self._running = asyncio.create_task(self.worker.run(self._handler))
        while self.member.heard is None and self._trouble is None and not self._running.done():
            await asyncio.sleep(0.001)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        assert self._running is not None
        if error is not None:
            self._running.cancel()
        await asyncio.wait((self._running,))

    async def ended(self) -> BaseException | None:
        """What the worker's user was told at its end."""
        assert self._running is not None
        await asyncio.wait((self._running,))
        return None if self._running.cancelled() else self._running.exception()

    async def add_up(self, work: Work) -> None:
        name = work.partition
        self.began.append((name, work.handoff.last_offset))
        total = int(work.handoff.state or b"0")
        try:
            async with work:
                self.works[name] = work
                async for message in work:
                    total += message.offset()
                    self.read.setdefault(name, []).append(message.offset())
                    work.note(state=b"%d" % total, last_offset=message.offset())
        except Fenced:
            self.losses.append(name)
            raise
        finally:
            self.works.pop(name, None)

    async def entry(self, part: KafkaPart) -> tuple[Placement, EntryNote]:
        item = await self.store.get(Keys().assignment(GROUP, part.name))
        placement, note = read_entry(item)
        assert note is not None
        return placement, note

    async def handoff(self, part: KafkaPart) -> SavedHandoff | None:
        return await Handoffs(self.store, GROUP).load(part.name)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(20.0):
            while not condition():
                await asyncio.sleep(0.002)

    def told(self, kind: type[TopologyEvent]) -> list[Any]:
        """The events of this kind that were told since the last call."""
        found = []
        feed = cast(Any, self.events)
        while len(feed._feed):
            event = feed.get_nowait()
            if isinstance(event, kind):
                found.append(event)
        return found


def part(number: int = 0) -> KafkaPart:
    return KafkaPart(TOPIC, number)
