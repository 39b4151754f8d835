"""A memory store in virtual time, that can lose answers and counts what it is asked."""

from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hansa.chance import Chance
from hansa.errors import TimedOut
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.on_memory import MemoryStore, MemoryWatch
from hansa.store.values import Compare, Operation, Outcome, Scan, WatchBatch
from hansa.testing.host import SimClock
from hansa.testing.loop import SimLoop


class CountedWatch(MemoryWatch):
    """Counts the events that it gives, in its store."""

    troubled: "TroubledStore"

    @classmethod
    def of(cls, watch: MemoryWatch) -> "CountedWatch":
        watch.__class__ = cls
        assert isinstance(watch, cls)
        return watch

    async def __anext__(self) -> WatchBatch:
        batch = await super().__anext__()
        self.troubled.events_given_count += len(batch.events)
        return batch


class TroubledStore(MemoryStore):
    """A memory store whose answers get lost when told so."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        super().__init__(clock=SimClock(loop), chance=Chance.seeded(seed))
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.lost_answers_count = 0
        self.lost_requests_count = 0
        self.events_given_count = 0

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        self.counts["commit"] += 1
        if self.lost_requests_count:
            self.lost_requests_count -= 1
            raise TimedOut("the request was lost")
        outcome = await super().commit(compares, then, otherwise, timeout=timeout)
        if self.lost_answers_count:
            self.lost_answers_count -= 1
            raise TimedOut("the answer was lost")
        return outcome

    async def scan(
        self,
        prefix_or_key: bytes | str,
        range_end: bytes | str | None = None,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Scan:
        self.counts["scan"] += 1
        return await super().scan(
            prefix_or_key, range_end, limit=limit, revision=revision, keys_only=keys_only, timeout=timeout
        )

    def watch(
        self, prefix: bytes | str, *, start_revision: int = 0, before: bool = False, exact: bool = False
    ) -> MemoryWatch:
        self.counts["watch exact" if exact else "watch prefix"] += 1
        watch = CountedWatch.of(
            super().watch(prefix, start_revision=start_revision, before=before, exact=exact)
        )
        watch.troubled = self
        return watch

    async def keys(self, prefix: str = "") -> list[bytes]:
        """All keys that are there."""
        return [item.key for item in (await super().scan(prefix)).items]


def virtual(
    test: Callable[[TroubledStore], Coroutine[Any, Any, None]], *, seeds: Sequence[int] = (1,)
) -> Callable[[], None]:
    """The test in virtual time, with an open store of its own, once per seed."""

    def run() -> None:
        for seed in seeds:
            loop = SimLoop(Chance.seeded(seed))
            try:
                loop.run_until_complete(_live(test, loop, seed))
            finally:
                loop.close()

    run.__name__ = run.__qualname__ = test.__name__
    run.__module__ = test.__module__
    return run


async def _live(test: Callable[[TroubledStore], Coroutine[Any, Any, None]], loop: SimLoop, seed: int) -> None:
    async with TroubledStore(loop, seed) as store:
        await test(store)
