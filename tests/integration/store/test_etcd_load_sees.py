"""The proof itself is put to the test: a store that does one thing wrong is found out."""

import asyncio

import pytest

from hansa.errors import StoreUnavailable, TimedOut
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.memory import MemoryStore, MemoryWatch
from hansa.store.store import Store
from hansa.store.values import WatchBatch
from tests.support.etcd_load import Load

WRONG_AT = 30
TIMEOUT_S = 0.2


class WrongWatch(MemoryWatch):
    """Forgets a batch, or tells one twice."""

    def __init__(self, watch: MemoryWatch, wrong: str) -> None:
        super().__init__(watch._store, watch._watcher, watch._error)
        self._wrong = wrong
        self._steps_count = 0
        # One that is thrown away is watched no more.
        self._original = watch
        self._last: WatchBatch | None = None

    async def __anext__(self) -> WatchBatch:
        self._steps_count += 1
        if self._steps_count == WRONG_AT and self._wrong == "an event is missing":
            await super().__anext__()
        if self._steps_count == WRONG_AT and self._wrong == "an event comes twice":
            assert self._last is not None
            return self._last
        self._last = await super().__anext__()
        return self._last


class WrongStore(MemoryStore):
    """Does one thing wrong, once."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self._wrong = wrong
        self._puts_count = 0
        self._watches_count = 0

    def watch(
        self, prefix: bytes | str, *, start_revision: int = 0, before: bool = False, exact: bool = False
    ) -> MemoryWatch:
        watch = super().watch(prefix, start_revision=start_revision, before=before, exact=exact)
        self._watches_count += 1
        return WrongWatch(watch, self._wrong) if self._watches_count == 2 else watch

    async def put(
        self, key: bytes | str, value: bytes, *, lease: int = 0, timeout: float | None = STORE_TIMEOUT_S
    ) -> int:
        self._puts_count += 1
        is_due = self._puts_count == WRONG_AT
        if is_due and self._wrong == "a write is lost":
            return (await self.status()).revision
        revision = await super().put(key, value, lease=lease, timeout=timeout)
        if is_due and self._wrong == "a refused write is there":
            raise StoreUnavailable("no")
        if is_due and self._wrong == "a write is repeated":
            return await super().put(key, value, lease=lease, timeout=timeout)
        if is_due and self._wrong == "an answer is late":
            await asyncio.sleep(TIMEOUT_S + 1.0)
            raise TimedOut("late")
        return revision


async def run(store: Store) -> None:
    async with store, Load(store, timeout_s=TIMEOUT_S) as load:
        await load.progress(WRONG_AT)
    await load.check()


async def test_a_store_that_does_nothing_wrong_passes() -> None:
    async with WrongStore("nothing") as store:
        await run(store)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("an event is missing", "missed 1 of"),
        ("an event comes twice", "repeated 1"),
        ("a write is lost", "was acknowledged at"),
        ("a refused write is there", "was refused, and is there"),
        ("a write is repeated", "and again at"),
        ("an answer is late", "came late"),
    ],
)
async def test_a_store_that_does_something_wrong_is_found_out(wrong: str, words: str) -> None:
    async with WrongStore(wrong) as store:
        with pytest.raises(AssertionError, match=words):
            await run(store)
