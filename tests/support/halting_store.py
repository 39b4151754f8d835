"""A store over another one that acts before a call: for what happens between two steps."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from hansa.store.store import Store
from hansa.store.values import Compare, Operation, Outcome, Scan


class HaltingStore:
    """What is given is called ahead of each such call, with how many there were before."""

    def __init__(
        self,
        store: Store,
        *,
        commit: Callable[[int], Awaitable[None]] | None = None,
        scan: Callable[[int], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._before = {"commit": commit, "scan": scan}
        self.counts = {"commit": 0, "scan": 0}

    @classmethod
    def of(cls, store: Store, **before: Callable[[int], Awaitable[None]]) -> Store:
        return cast(Store, cls(store, **before))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(
        self, compares: Sequence[Compare], then: Sequence[Operation] = (), *others: Any, **options: Any
    ) -> Outcome:
        await self._halt("commit")
        return await self._store.commit(compares, then, *others, **options)

    async def scan(self, *what: Any, **options: Any) -> Scan:
        await self._halt("scan")
        return await self._store.scan(*what, **options)

    async def _halt(self, call: str) -> None:
        before, count = self._before[call], self.counts[call]
        self.counts[call] += 1
        if before is not None:
            await before(count)
