"""A memory store in virtual time, that can lose answers or be slow with them, and counts what it is asked."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hansa.chance import Chance
from hansa.clock import Clock
from hansa.errors import TimedOut
from hansa.limits import STORE_TIMEOUT_S
from hansa.store.memory import MemoryStore, MemoryWatch
from hansa.store.values import Compare, Operation, Outcome, Scan, WatchBatch
from hansa.testing.host import SimClock
from hansa.testing.loop import SimLoop
from hansa.transport import Environment


class CountedWatch(MemoryWatch):
    """Counts the events that it gives, in its store."""

    troubled: "TroubledStore"

    @classmethod
    def of(cls, watch: MemoryWatch) -> "CountedWatch":
        watch.__class__ = cls
        assert isinstance(watch, cls)
        return watch

    def take(self) -> WatchBatch | None:
        batch = super().take()
        if batch is not None:
            self.troubled.events_given_count += len(batch.events)
        return batch


class JumpingClock:
    """A clock that jumps when told so: time has passed, and nothing of the loop has run in it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.jumped_s = 0.0

    def monotonic(self) -> float:
        return self._clock.monotonic() + self.jumped_s

    def wall(self) -> float:
        return self._clock.wall()


class TroubledStore(MemoryStore):
    """A memory store whose answers get lost, or come late, when told so."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self._jumping = JumpingClock(SimClock(loop))
        super().__init__(environment=Environment(clock=self._jumping, chance=Chance.seeded(seed)))
        self.seed = seed
        # So long the answer about a lease is under way. The store has acted when the question came.
        self.answers_late_s = 0.0
        # So long the process is stopped when the answer to the next commit has come, and nobody has read it.
        self.stops_after_commit_s = 0.0
        self.counts: Counter[str] = Counter()
        self.lost_answers_count = 0
        self.lost_requests_count = 0
        self.events_given_count = 0

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def process_stops(self, seconds: float) -> None:
        """As SIGSTOP and SIGCONT, of the process that asks: its clock has gone on."""
        self._jumping.jumped_s += seconds

    async def grant(self, ttl: float, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
        lease = await super().grant(ttl, timeout=timeout)
        await asyncio.sleep(self.answers_late_s)
        return lease

    async def keep_alive(self, lease: int, *, timeout: float | None = STORE_TIMEOUT_S) -> float:
        ttl_s = await super().keep_alive(lease, timeout=timeout)
        await asyncio.sleep(self.answers_late_s)
        return ttl_s

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
        self.process_stops(self.stops_after_commit_s)
        self.stops_after_commit_s = 0.0
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
