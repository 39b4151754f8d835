"""A store of which only reads and watches are asked, and that says what the test tells it to."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from itertools import pairwise
from typing import Any, Self

from hansa.chance import Chance
from hansa.errors import HansaError, TimedOut
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.values import Event, EventKind, GetResult, KeyValue, Outcome, Scan, WatchBatch
from hansa.testing.loop import SimLoop


class ScriptedWatch:
    """Gives its steps, then waits for ever. If the first one is a timeout it never begins."""

    def __init__(self, steps: Iterable[WatchBatch | HansaError]) -> None:
        self._steps = deque(steps)
        self._is_due = False
        self._on_news: Callable[[], None]
        self.is_closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WatchBatch:
        await asyncio.sleep(0)
        if not self._steps:
            await asyncio.Event().wait()
        step = self._steps.popleft()
        if isinstance(step, HansaError):
            raise step
        return step

    def take(self) -> WatchBatch | None:
        """A step at each call back; the next is called back for when this one was taken."""
        if not self._is_due:
            return None
        self._is_due = False
        step = self._steps.popleft()
        self._call()
        if isinstance(step, HansaError):
            raise step
        return step

    def call_back(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self._call()

    def _call(self) -> None:
        if self._steps:
            asyncio.get_running_loop().call_soon(self._called)

    def _called(self) -> None:
        if not self.is_closed:
            self._is_due = True
            self._on_news()

    async def ready(self, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        await asyncio.sleep(0)
        if self._steps and isinstance(self._steps[0], TimedOut):
            raise self._steps[0]
        return 1

    def close(self) -> None:
        self.is_closed = True


class ScriptedStore:
    """Its `watches` and `scans` are given in order. What was asked is in `asked`, with the time of it."""

    def __init__(
        self, *, watches: Iterable[Iterable[WatchBatch | HansaError]], scans: Iterable[Scan | HansaError]
    ) -> None:
        self._watches = deque(watches)
        self._scans = deque(scans)
        self.asked: list[tuple[str, int, float]] = []
        self.opened: list[ScriptedWatch] = []

    def watch(self, prefix: bytes | str, *, start_revision: int = 0, **_: Any) -> ScriptedWatch:
        self.asked.append(("watch", start_revision, asyncio.get_running_loop().time()))
        self.opened.append(ScriptedWatch(self._watches.popleft()))
        return self.opened[-1]

    async def scan(self, *_: Any, **__: Any) -> Scan:
        return await self._read("scan")

    async def commit(self, *_: Any, **__: Any) -> Outcome:
        """Of which only one key is read."""
        scan = await self._read("commit")
        result = GetResult(items=scan.items, count=scan.count, more=scan.more)
        return Outcome(is_success=True, revision=scan.revision, results=(result,))

    async def _read(self, what: str) -> Scan:
        await asyncio.sleep(0)
        self.asked.append((what, 0, asyncio.get_running_loop().time()))
        found = self._scans.popleft()
        if isinstance(found, HansaError):
            raise found
        return found

    @property
    def pauses_s(self) -> list[float]:
        """The times between one question and the next."""
        times_s = [at_s for _, _, at_s in self.asked]
        return [later - earlier for earlier, later in pairwise(times_s)]


def item(value: bytes = b"", *, created: int = 5, modified: int = 5) -> KeyValue:
    """The one key of these tests."""
    return KeyValue(key=b"k", value=value, create_revision=created, mod_revision=modified, version=1)


def put(found: KeyValue) -> WatchBatch:
    event = Event(kind=EventKind.PUT, item=found)
    return WatchBatch(revision=found.mod_revision, events=(event,))


def read(revision: int, *items: KeyValue) -> Scan:
    return Scan(revision=revision, items=items, count=len(items), more=False)


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it in virtual time."""
    loop = SimLoop(Chance.seeded(1))
    try:
        loop.run_until_complete(scene())
    finally:
        loop.close()
