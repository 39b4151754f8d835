"""Writers and watchers on a store while things go wrong, and the proof afterwards that nothing did.

Each writer puts 1, 2, 3, … under its own key, some count together in one key by compare-and-set, and watchers
read along. Every call is measured. In the end three things are laid beside each other: what the writers were
told, what the store's own history says, and what each watcher saw. See `Load.check`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

from hansa.errors import StoreUnavailable, TimedOut
from hansa.store.store import Store, Watch
from hansa.store.values import Compare, Event, EventKind, Put
from tests.support.etcd_lag import LagMeter

T = TypeVar("T")

PREFIX = b"load/"
_COUNT = PREFIX + b"count"
_END = PREFIX + b"end"
# Calls end by their deadline and this; a loop that was late itself is not the store's fault.
_LATE_S_MAX = 0.1
# Short beside an election: soon after a kill a call of each is under way.
_REST_S = 0.01
_SETTLE_S_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One event, as it is compared: key, value (None: deleted) and the revision."""

    revision: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class Written:
    """What the writers were told."""

    done: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    unknown: set[tuple[bytes, bytes]] = field(default_factory=set)
    # What the store said did not happen.
    refused: set[tuple[bytes, bytes]] = field(default_factory=set)


class Load:
    """`async with Load(store) as load`: it works until the block ends. Then `check` is due."""

    def __init__(
        self,
        store: Store,
        *,
        writers_count: int = 4,
        counters_count: int = 3,
        watchers_count: int = 3,
        timeout_s: float = 2.0,
    ) -> None:
        self._store = store
        self._writers_count = writers_count
        self._counters_count = counters_count
        self._watchers_count = watchers_count
        self._timeout_s = timeout_s
        self._started_revision = 0
        self.written = Written()
        self.seen: list[list[Change]] = [[] for _ in range(watchers_count)]
        self.acknowledged: dict[str, int] = {}
        self.failures: list[Exception] = []
        self.late: list[str] = []
        self.call_s_max = 0.0
        self._news = asyncio.Event()
        self._is_ending = False
        self._held = AsyncExitStack()
        self._working: list[asyncio.Task[None]] = []
        self._watching: list[asyncio.Task[None]] = []
        self._lag = LagMeter()

    async def __aenter__(self) -> Self:
        self._started_revision = await self._store.put(_COUNT, b"0")
        tasks = await self._held.enter_async_context(asyncio.TaskGroup())
        await self._held.enter_async_context(self._lag)
        for number in range(self._watchers_count):
            watch = self._store.watch(PREFIX, start_revision=self._started_revision + 1)
            await watch.ready()
            self._watching.append(tasks.create_task(self._watch(number, watch)))
        for number in range(self._writers_count):
            name = f"writer {number}"
            self.acknowledged[name] = 0
            self._working.append(tasks.create_task(self._write(name, number), name=name))
        for number in range(self._counters_count):
            name = f"counter {number}"
            self.acknowledged[name] = 0
            self._working.append(tasks.create_task(self._count(name), name=name))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._end()
        finally:
            await self._held.__aexit__(kind, error, trace)

    # ---- what a test waits for ----

    async def progress(self, count: int, *, timeout_s: float = _SETTLE_S_MAX) -> None:
        """Wait until every writer and counter was told of so many more successes."""
        goals = {name: done + count for name, done in self.acknowledged.items()}
        await self._until(
            lambda: all(self.acknowledged[name] >= goal for name, goal in goals.items()), timeout_s
        )

    async def failing(self, count: int, *, timeout_s: float = _SETTLE_S_MAX) -> None:
        """Wait until so many more calls have failed."""
        goal = len(self.failures) + count
        await self._until(lambda: len(self.failures) >= goal, timeout_s)

    # ---- the proof ----

    async def check(self) -> None:
        """Nothing acknowledged is missing, nothing refused is there, no watcher missed or repeated anything.

        The history is read from the store, so it must not have been compacted: else use `check_watchers`.
        """
        truth = await self._history()
        self.check_calls()
        self.check_history(truth)
        for number, changes in enumerate(self.seen):
            assert changes == truth, _difference(f"watcher {number}", changes, truth)
        # Counted by the store and not by its history: how often each key was put.
        for item in (await self._store.scan(PREFIX)).items:
            if item.key != _END:
                puts_count = sum(change.key == item.key for change in truth)
                assert item.version - (item.key == _COUNT) == puts_count, item

    def check_calls(self) -> None:
        """Every call ended by its deadline, with a typed error if any."""
        assert not self.late, f"{len(self.late)} calls came late: {self.late[:5]}"
        assert all(isinstance(error, StoreUnavailable | TimedOut) for error in self.failures)

    def check_history(self, truth: list[Change]) -> None:
        """A history fits what the writers were told: once, in order, at the revision that they were told."""
        written = self.written
        found: dict[tuple[bytes, bytes], int] = {}
        last: dict[bytes, int] = {}
        for change in truth:
            assert change.value is not None
            if change.key == _END:
                continue
            pair = (change.key, change.value)
            assert pair not in found, f"{pair} was written at {found[pair]} and again at {change.revision}"
            assert pair not in written.refused, f"{pair} was refused, and is there"
            found[pair] = change.revision
            number, before = int(change.value.split()[0]), last.get(change.key, 0)
            if change.key == _COUNT:
                assert number == before + 1, f"{change} after {before}"
            elif pair in written.unknown:
                # What was given up may have been held up on its way, and come after what was sent later.
                continue
            else:
                assert number > before, f"{change} after {before}"
            last[change.key] = number
        for pair, revision in written.done.items():
            assert found.get(pair) == revision, f"{pair} was acknowledged at {revision}: {found.get(pair)}"
        extra = set(found) - set(written.done) - written.unknown
        assert not extra, f"nobody wrote {sorted(extra)[:5]}"

    # ---- at work ----

    async def _write(self, name: str, number: int) -> None:
        key, times = PREFIX + b"%d" % number, 0
        while not self._is_ending:
            times += 1
            pair = (key, b"%d" % times)
            revision = await self._tried(pair, self._store.put(*pair, timeout=self._timeout_s))
            if revision is not None:
                self.written.done[pair] = revision
                self._succeeded(name)
            await asyncio.sleep(_REST_S)

    async def _count(self, name: str) -> None:
        times = 0
        while not self._is_ending:
            times += 1
            item = await self._tried(None, self._store.get(_COUNT, timeout=self._timeout_s))
            if item is not None:
                # With name and number, so that no two tries write the same.
                pair = (_COUNT, b"%d %s %d" % (int(item.value.split()[0]) + 1, name.encode(), times))
                compare = Compare.revision(_COUNT, "=", item.mod_revision)
                outcome = await self._tried(
                    pair, self._store.commit([compare], [Put(*pair)], timeout=self._timeout_s)
                )
                if outcome is not None:
                    self._succeeded(name)
                    if outcome.is_success:
                        self.written.done[pair] = outcome.revision
                    else:
                        self.written.refused.add(pair)
            await asyncio.sleep(_REST_S)

    async def _tried(self, pair: tuple[bytes, bytes] | None, call: Coroutine[Any, Any, T]) -> T | None:
        """What a call gives, or None after a failure, which is noted, as is a call that ends late."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            return await call
        except (StoreUnavailable, TimedOut) as error:
            if pair is not None:
                refused = isinstance(error, StoreUnavailable)
                (self.written.refused if refused else self.written.unknown).add(pair)
            self.failures.append(error)
            self._news.set()
            return None
        finally:
            took_s = loop.time() - began_s
            self.call_s_max = max(self.call_s_max, took_s)
            lag_s = self._lag.lag_s_since(began_s + self._timeout_s)
            if took_s > self._timeout_s + _LATE_S_MAX + lag_s:
                self.late.append(f"{pair}: {took_s:.3f} s of {self._timeout_s} s, the loop {lag_s:.3f} s")

    def _succeeded(self, name: str) -> None:
        self.acknowledged[name] += 1
        self._news.set()

    async def _watch(self, number: int, watch: Watch) -> None:
        try:
            async for batch in watch:
                for event in batch.events:
                    self.seen[number].append(_change(event))
                    assert event.item.mod_revision == batch.revision
                if any(event.item.key == _END for event in batch.events):
                    return
        finally:
            watch.close()

    async def _end(self) -> None:
        self._is_ending = True
        async with asyncio.timeout(_SETTLE_S_MAX):
            await asyncio.wait(self._working)
            while True:
                try:
                    await self._store.put(_END, b"1", timeout=self._timeout_s)
                    break
                except (StoreUnavailable, TimedOut):
                    await asyncio.sleep(_REST_S)
            await asyncio.wait(self._watching)

    async def _history(self) -> list[Change]:
        truth: list[Change] = []
        watch = self._store.watch(PREFIX, start_revision=self._started_revision + 1)
        async with asyncio.timeout(_SETTLE_S_MAX):
            async for batch in watch:
                truth += [_change(event) for event in batch.events]
                if any(event.item.key == _END for event in batch.events):
                    break
        watch.close()
        return truth

    async def _until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while not holds():
                self._news.clear()
                await self._news.wait()


def _change(event: Event) -> Change:
    value = event.item.value if event.kind is EventKind.PUT else None
    return Change(revision=event.item.mod_revision, key=event.item.key, value=value)


def _difference(who: str, changes: list[Change], truth: list[Change]) -> str:
    missed, repeated = set(truth) - set(changes), len(changes) - len(set(changes))
    return f"{who} missed {len(missed)} of {len(truth)} ({list(missed)[:3]}), repeated {repeated}"
