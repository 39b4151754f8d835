"""The store as a program on a simulated host sees it: a `Store` whose every call crosses the network.

The link and the store send each other whole messages, one by one. A message takes the network's delay, and
more on a slow link. If the way is cut when it arrives, it waits and comes late, perhaps after its sender has
given up, or it is lost with its connection. Now and then a message is lost without any cut. A caller that
waits for a lost message hears of the broken connection as soon as the way is free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Self, TypeVar

from hansa.chance import Chance
from hansa.errors import (
    AlreadyClosed,
    Compacted,
    FutureRevision,
    HansaError,
    StoreUnavailable,
    TimedOut,
    WatchOverrun,
)
from hansa.limits import STORE_TIMEOUT_S
from hansa.runtime.mailboxes import Bell, Waiters
from hansa.runtime.tasks import TaskScope
from hansa.store.engine import Engine
from hansa.store.etcd.lineage import HistoryLost, Lineage
from hansa.store.memory import EngineStore
from hansa.store.values import WatchBatch
from hansa.store.watching import WatchInterest
from hansa.testing.host import Host
from hansa.testing.store_host import Polled, StoreHost
from hansa.testing.world import World

T = TypeVar("T")

# A call without a deadline ends when its connection is given up.
CONNECTION_S_MAX: Final = 20.0
# A watch that has heard nothing for this long asks again, from its current revision.
POLL_S: Final = 2.0
AGAIN_S_MIN: Final = 0.05
AGAIN_S_MAX: Final = 0.4
# The size of a message on a slow link, with its headers; keys and values here are small.
MESSAGE_BYTES = 100
# No message is older than this when it arrives: its sender's buffer was dropped before.
UNDERWAY_S_MAX = 6.0
# A message that is in the receiver's buffer when the connection breaks may be read all the same, later.
STRAY_PROBABILITY = 0.5
STRAY_S_MAX = 3.0


class StoreLink(EngineStore["LinkWatch"]):
    """A `Store` on another host. See `Store` for what the calls promise.

    A host that refuses raises `StoreUnavailable`, at once. All other failures on the way raise `TimedOut`, by
    the deadline or before it, when the connection breaks; the request may have been carried out then, or may
    be even later. Each answer says how often the store was started. After another start the link settles, as
    the client of etcd does, whether it is the store that was there before; if not, all its kept leases are
    lost.
    """

    def __init__(self, host: Host, store: StoreHost) -> None:
        super().__init__(name=store.name, clock=store.clock_of(host), kind="simulated")
        self.store = store
        self.chance = host.chance.fork("store link")
        self._host_name = host.name
        self._there, self._back = (
            StoreWay(
                store.world,
                source,
                target,
                chance=host.chance.fork(f"way {source} {target}"),
                loss_probability=store.trouble.loss_probability,
            )
            for source, target in ((host.name, store.name), (store.name, host.name))
        )
        self._users_count = 0
        self._closed = False
        # A dict as a set that keeps its order: one seed, one history.
        self._answers: dict[asyncio.Future[Any], None] = {}
        self._lineage = Lineage()
        self.tasks = TaskScope(f"the link of {host.name}", self._failed)
        self._is_settling = False

    def __repr__(self) -> str:
        return f"<StoreLink of {self._host_name}>"

    async def __aenter__(self) -> Self:
        self._check_usable()
        self._users_count += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users_count -= 1
        if not self._users_count:
            await self.close()

    async def close(self) -> None:
        self._closed = True
        for answer in self._answers:
            settle(answer, AlreadyClosed(f"the link of {self._host_name} is closed"))
        await self.tasks.close()

    async def grant(self, ttl: float, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        return await self._ask(lambda _, now: self.store.grant(self._host_name, ttl, now), timeout)

    def _watching(self, interest: WatchInterest, start_revision: int) -> LinkWatch:
        return LinkWatch(self, interest, start_revision)

    def _check_usable(self) -> None:
        if self._closed:
            raise AlreadyClosed(f"the link of {self._host_name} is closed")

    async def _ask(self, act: Callable[[Engine, float], T], timeout: float | None) -> T:
        """Have the store act, and wait for its answer. Raises its error, or `TimedOut`."""
        store = self.store

        def headed(answered: T | HansaError) -> tuple[T, int, int] | HansaError:
            return answered if isinstance(answered, HansaError) else (answered, store.term, store.revision)

        def do(answer: asyncio.Future[tuple[T, int, int] | HansaError]) -> None:
            if answer.done():
                store.host.record(f"does late what {self._host_name} has given up")
            store.handle(self._host_name, act, lambda answered: self.carry_back(answer, headed(answered)))

        def send(answer: asyncio.Future[tuple[T, int, int] | HansaError]) -> None:
            self.carry_there(
                lambda: store.receive(lambda: do(answer), lambda: self.refuse(answer)),
                lambda: self.breaks(answer),
            )

        mark = self._lineage.mark
        found, term, revision = await self.answered(send, timeout)
        self._lost(self._lineage.told(0, term, revision, since=mark))
        if self._lineage.is_doubtful and not self._is_settling and not self._closed:
            self._is_settling = True
            self.tasks.spawn(self._settle(), "settling")
        return found

    async def poll(self, watch: LinkWatch, interest: WatchInterest, next_revision: int) -> Polled:
        """Wait for news of a watch. Raises the store's error, or `TimedOut`."""

        def send(answer: asyncio.Future[Polled | HansaError]) -> None:
            self._there.carry(
                lambda: self.store.receive(
                    lambda: self.store.poll(
                        watch.number,
                        interest,
                        next_revision,
                        lambda polled: self.carry_back(answer, polled, weight=_weight(polled)),
                    ),
                    lambda: self.refuse(answer),
                ),
                lambda: self.breaks(answer),
            )

        return await self.answered(send, POLL_S, into=watch.answers)

    async def answered(
        self,
        send: Callable[[asyncio.Future[T | HansaError]], None],
        timeout: float | None,
        *,
        into: dict[asyncio.Future[Any], None] | None = None,
    ) -> T:
        """Send a request and wait for its answer, until the deadline, or until it is settled otherwise."""
        self._check_usable()
        if timeout is not None and not timeout > 0.0:
            raise TimedOut(f"store {self.store.name} was given no time to answer")
        wait_s = CONNECTION_S_MAX if timeout is None else timeout
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T | HansaError] = loop.create_future()
        late = TimedOut(f"store {self.store.name} did not answer within {wait_s:g} s")
        timer = loop.call_later(wait_s, settle, answer, late)
        places = [self._answers] if into is None else [self._answers, into]
        for place in places:
            place[answer] = None
        send(answer)
        try:
            found = await answer
        finally:
            timer.cancel()
            for place in places:
                del place[answer]
        if isinstance(found, HansaError):
            raise found
        return found

    def carry_there(self, deliver: Callable[[], None], broken: Callable[[], None]) -> None:
        """Send a request."""
        self._there.carry(deliver, broken)

    def carry_back(
        self, answer: asyncio.Future[T | HansaError], found: T | HansaError, *, weight: int = 1
    ) -> None:
        """Send an answer back."""
        self._back.carry(
            lambda: settle(answer, found), lambda: self.breaks(answer), size_bytes=weight * MESSAGE_BYTES
        )

    def breaks(self, answer: asyncio.Future[Any]) -> None:
        """The connection broke during a request: it may have been carried out or not."""
        settle(answer, TimedOut(f"the connection to store {self.store.name} broke"))

    def refuse(self, answer: asyncio.Future[Any]) -> None:
        """The host is up without a program, and refuses."""
        self.carry_back(answer, StoreUnavailable(f"store {self.store.name} refuses the connection"))

    async def _settle(self) -> None:
        """Check whether the store was ever where it was seen last."""
        asked = self._lineage.question
        try:
            await self._ask(lambda engine, now: engine.get(b"k", revision=asked.mark[1], now=now), POLL_S)
            self._lineage.confirmed(None, asked=asked)
        except FutureRevision:
            self._lost(self._lineage.denied(self.store.revision, asked=asked))
        except Compacted:
            self._lineage.unsettled(asked=asked)
        except (StoreUnavailable, TimedOut, AlreadyClosed):
            pass  # The next answer asks again.
        finally:
            self._is_settling = False

    def _lost(self, lost: HistoryLost | None) -> None:
        if lost is None:
            return
        self.store.world.history.record(self._host_name, f"finds that the store went back: {lost.why}")
        for keeping in list(self._keepings.values()):
            keeping.lose()

    def _failed(self, error: BaseException) -> None:
        self.store.world.complain(f"the link of {self._host_name} failed", error)


class LinkWatch:
    """A `Watch` over a link: see there.

    It asks from its current revision, again and again: so a break makes no gap and no repeat, and a watch
    that is dropped costs nothing. If it calls back, a task of the link asks.
    """

    def __init__(self, link: StoreLink, interest: WatchInterest, start_revision: int) -> None:
        self.number = object()
        self.answers: dict[asyncio.Future[Any], None] = {}
        self._link = link
        self._interest = interest
        self._start_revision = start_revision
        self._next_revision = 0
        self._batches: deque[WatchBatch] = deque()
        self._error: HansaError | None = None
        self._closed = False
        self._readers = Bell()
        self._taken = Waiters()

    async def ready(self, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        if self._closed:
            raise AlreadyClosed("this watch is closed")
        self._link._check_usable()
        if self._error is not None:
            raise self._error
        if not self._next_revision:
            await self._begin(timeout)
        return self._start_revision

    def take(self) -> WatchBatch | None:
        if self._closed:
            return None
        self._link._check_usable()
        if self._batches:
            self._taken.wake_all()
            return self._batches.popleft()
        if self._error is not None:
            raise self._error
        return None

    def call_back(self, on_news: Callable[[], None]) -> None:
        self._readers.call_back(on_news)
        self._link.tasks.spawn(self._hear_all(), "hearing")

    def close(self) -> None:
        self._closed = True
        self._readers.silence()
        self._taken.wake_all()
        for answer in self.answers:
            settle(answer, AlreadyClosed("this watch is closed"))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        while not self._closed:
            if (batch := self.take()) is not None:
                return batch
            await self._hear_some()
        raise StopAsyncIteration

    async def _hear_all(self) -> None:
        """For a watch that calls back: hear news, and again once it was taken."""
        while not self._closed and self._error is None:
            if self._batches:
                await self._taken.wait()
                continue
            try:
                await self._hear_some()
            except AlreadyClosed:
                return  # It ends with the link, which tells the callback.
            finally:
                self._readers.wake_all()

    async def _hear_some(self) -> None:
        try:
            await self._hear()
        except TimedOut:
            return
        except StoreUnavailable:
            await asyncio.sleep(self._link.chance.uniform(AGAIN_S_MIN, AGAIN_S_MAX))
        except AlreadyClosed:
            if not self._closed:
                raise

    async def _hear(self) -> None:
        if not self._next_revision:
            with suppress(Compacted):  # The error is remembered.
                await self._begin(POLL_S)
            return
        try:
            batches, next_revision = await self._link.poll(self, self._interest, self._next_revision)
        except (Compacted, WatchOverrun) as error:
            self._error = error
            return
        # Only received batches move it on: a cancelled step has taken nothing.
        self._batches.extend(batches)
        self._next_revision = next_revision

    async def _begin(self, timeout: float | None) -> None:
        try:
            self._start_revision = self._next_revision = await self._link._ask(self._place, timeout)
        except Compacted as error:
            self._error = error
            raise

    def _place(self, engine: Engine, now: float) -> int:
        watcher = engine.watch(self._interest, self._start_revision, now=now)
        engine.unwatch(watcher)
        return self._start_revision or engine.revision + 1


def settle(answer: asyncio.Future[T | HansaError], found: T | HansaError) -> None:
    """Pass errors as results: nobody may be left to look at an exception."""
    if not answer.done():
        answer.set_result(found)


def _weight(polled: Polled | HansaError) -> int:
    return 1 if isinstance(polled, HansaError) else 1 + len(polled[0])


class StoreWay:
    """One direction between two hosts."""

    def __init__(
        self, world: World, source: str, target: str, *, chance: Chance, loss_probability: float
    ) -> None:
        self._world = world
        self._network = world.network
        self._source = source
        self._target = target
        self._chance = chance
        self._loss_probability = loss_probability
        self._free_s = 0.0

    def carry(
        self, deliver: Callable[[], None], broken: Callable[[], None], *, size_bytes: int = MESSAGE_BYTES
    ) -> None:
        """Call `deliver` on the other side, in time or late; else `broken` here, or neither."""
        delay_s = self._network.delay_s(self._source, self._target) + self._queued_s(size_bytes)
        if delay_s > UNDERWAY_S_MAX:
            return
        arrived = deliver
        if self._chance.flip(self._loss_probability):
            arrived = broken
            if self._chance.flip(STRAY_PROBABILITY):
                self._call_later(delay_s + self._chance.uniform(0.0, STRAY_S_MAX), deliver, broken)
        self._call_later(delay_s, arrived, broken)

    def _call_later(self, delay_s: float, arrived: Callable[[], None], broken: Callable[[], None]) -> None:
        self._world.loop.call_later(delay_s, self._arrive, arrived, broken, context=self._network.context)

    def _queued_s(self, size_bytes: int) -> float:
        rate = self._network.rate(self._source, self._target)
        now = self._world.loop.time()
        if rate is None:
            self._free_s = now
        else:
            self._free_s = min(max(self._free_s, now) + size_bytes / rate, now + 2 * UNDERWAY_S_MAX)
        return self._free_s - now

    def _arrive(self, arrived: Callable[[], None], broken: Callable[[], None]) -> None:
        if self._is_cut():
            late = broken if self._chance.flip(0.5) else arrived
            self._world.loop.spawn(self._arrive_late(late, broken), name="a late message", life=None)
        else:
            arrived()

    async def _arrive_late(self, arrived: Callable[[], None], broken: Callable[[], None]) -> None:
        deadline_s = self._world.loop.time() + UNDERWAY_S_MAX
        while self._is_cut():
            if self._world.loop.time() >= deadline_s:
                return
            await self._network.wait_for_change(deadline_s)
        # Sent again by a sender that tries ever more rarely.
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        self._arrive(arrived, broken)

    def _is_cut(self) -> bool:
        return self._network.is_cut(self._source, self._target) or self._network.is_dark(self._target)
