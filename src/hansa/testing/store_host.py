"""A store on a simulated host, which programs on other hosts use through a `StoreLink`.

Its contents survive crashes and restarts, as if each change had been written to a disk before it was
answered. Its time stands still meanwhile, and afterwards each lease has all its time again. While its host is
paused nothing is answered and no lease ends. Now and then it forgets its history. When an older copy of its
disk is put back (`Rewind`), it has lost all later changes. As `hansa store` does, it begins each start beyond
all revisions that it ever issued.

`RestorableEngine` is the store's engine with copies that can be put back. `DriftingClock` gives a host a
clock that runs a little fast or slow, as crystals do, and whose date is changed to and fro.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Final, TypeVar

from hansa.chance import Chance
from hansa.clock import Clock
from hansa.errors import HansaError, UsageError, WatchOverrun
from hansa.store.engine import Engine
from hansa.store.served.recorded import RestorableKeys, RestorableLeases, image_of, set_up
from hansa.store.served.records import Image
from hansa.store.values import KeyValue, WatchBatch
from hansa.store.watching import Watcher, Watchers, WatcherStage, WatchInterest
from hansa.testing.host import Host, SimClock
from hansa.testing.life import Life
from hansa.testing.loop import ScheduledCall
from hansa.testing.world import World

# The date is put forward by this much, and back again, each for this long: code that measures with it fails.
WALL_STEP_S: Final = 3600.0
WALL_STEP_EVERY_S: Final = 5.0

T = TypeVar("T")

DRIFT_MAX = 0.01
# How far a start leaps beyond all that was ever issued.
LEAP_COUNT = 1_000
# The longest time that a history lasts in a run in which it is forgotten at all.
HISTORY_S_MAX = 6.0

Polled = tuple[list[WatchBatch], int]
"""The news for a watcher, and the revision from which it continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTrouble:
    """The trouble of a store without any fault."""

    loss_probability: float = 0.0
    """How often a message is lost with its connection."""
    overrun_probability: float = 0.0
    """How often a watcher is told that it read too slowly, instead of its news."""
    forgets: bool = False
    """Whether the history is forgotten, every few seconds."""
    drift_max: float = 0.0
    """How much faster or slower than the truth a clock runs, the store's and all others."""

    @classmethod
    def drawn(cls, chance: Chance) -> StoreTrouble:
        """Another one for every seed. All clocks drift, because the margins of leases must cover it."""
        return cls(
            loss_probability=chance.choose((0.0, 0.002, 0.02)),
            overrun_probability=chance.choose((0.0, 0.0, 0.1)),
            forgets=chance.flip(0.5),
            drift_max=DRIFT_MAX,
        )


class StoreHost:
    """The store's side. `witness` is told of each revision at once, with the host that caused it.

    No host (""): a lease ended. `rewound` is told when an older copy was put back, with all keys that are
    there now and the revision at which it begins. `start` adds its host to the world; start it after its
    clients, and in the end it is stopped after them too.
    """

    def __init__(
        self,
        world: World,
        name: str = "store",
        *,
        trouble: StoreTrouble | None = None,
        witness: Callable[[WatchBatch, str], None] | None = None,
        rewound: Callable[[Sequence[KeyValue], int], None] | None = None,
    ) -> None:
        chance = world.chance.fork(f"store {name}")
        self.world = world
        self.name = name
        self.lease_hosts: dict[int, str] = {}
        """The host that was granted each lease, also when the lease is gone."""
        self._witness = witness
        self._rewound = rewound
        self._chance = chance.fork("overruns")
        self.trouble = StoreTrouble.drawn(chance.fork("trouble")) if trouble is None else trouble
        self._engine = RestorableEngine(chance.fork("leases"))
        self._all = self._engine.watch(WatchInterest(b"", before=True), 0, now=0.0)
        self._copy: Image = self._engine.image()
        self._peak = self._run_revision = self._engine.revision
        self.term = 0
        """How often it was started."""
        self._host: Host | None = None
        self._clock = self._clock_at(name, SimClock(world.loop))
        self._seen_s = self._clock.monotonic()
        # The time in which it did not run.
        self._missing_s = 0.0
        self._serving: Life | None = None
        self._context: Context | None = None
        self._timer: ScheduledCall | None = None
        self._timer_s = 0.0
        self._parked: dict[Watcher, tuple[object, Callable[[Polled | HansaError], None]]] = {}
        self._parked_by_watch: dict[object, Watcher] = {}

    @property
    def revision(self) -> int:
        return self._engine.revision

    @property
    def host(self) -> Host:
        """Raises `UsageError` before the start."""
        if self._host is None:
            raise UsageError(f"store {self.name} was never started")
        return self._host

    def start(self) -> None:
        """Begin to serve."""
        self._host = self.world.host(self.name, self._serve)
        self._host.disk = self
        self._host.start()

    def clock_of(self, host: Host) -> DriftingClock:
        """The clock of a host, which goes at the same rate in all its lives."""
        return self._clock_at(host.name, host.clock)

    # Its disk.

    def save(self) -> None:
        """Copy everything."""
        self._copy = self._engine.image()

    def go_back(self) -> None:
        """Use the copy, from the next start on."""
        for watcher in list(self._parked):
            self._unpark(watcher)
        self._peak = max(self._peak, self._engine.revision)
        self._engine = self._engine.restored(self._copy, now=self._seen_s)
        self._leap()
        self._all = self._engine.watch(WatchInterest(b"", before=True), 0, now=self._seen_s)
        if self._rewound is not None:
            self._rewound(self._engine.items, self._engine.revision)

    # The truth, for judges. Reading it changes nothing.

    def item(self, key: bytes) -> KeyValue | None:
        """A key as it is at this instant; also one whose lease is overdue and has not been ended."""
        return self._engine.get(key, revision=0, now=self._seen_s)

    def living_leases(self) -> dict[int, str]:
        """The leases that have not ended, and the host of each."""
        return {
            lease: host
            for lease, host in self.lease_hosts.items()
            if self._engine.lease_info(lease, now=self._seen_s) is not None
        }

    # What arrives over the network.

    def receive(self, work: Callable[[], None], refuse: Callable[[], None]) -> None:
        """A message has come to the host: it is handled, refused, waits for the program, or is lost."""
        if self.world.network.is_refusing(self.name) or self._serving is not self.host.life:
            refuse()
        elif self.host.is_paused:
            self.world.loop.call_soon(work, context=self._context)
        elif self.host.is_up:
            work()
        else:
            refuse()

    def handle(
        self, origin: str, act: Callable[[Engine, float], T], answer: Callable[[T | HansaError], None]
    ) -> None:
        """Carry out a request, at once."""
        self._end_leases()
        answered: T | HansaError
        try:
            answered = act(self._engine, self._seen_s)
        except HansaError as error:
            answered = error
        self._acted(origin)
        answer(answered)

    def grant(self, origin: str, ttl_s: float, now: float) -> int:
        """Grant a new lease, and note its host."""
        lease = self._engine.grant(ttl_s, now=now)
        self.lease_hosts[lease] = origin
        return lease

    def poll(
        self,
        watch: object,
        interest: WatchInterest,
        next_revision: int,
        answer: Callable[[Polled | HansaError], None],
    ) -> None:
        """Answer with the news from a revision on, or as soon as there is some.

        The next poll of the same watch replaces one that waits.
        """
        self._end_leases()
        self._unpark(self._parked_by_watch.get(watch))
        try:
            watcher = self._engine.watch(interest, next_revision, now=self._seen_s)
        except HansaError as error:
            answer(error)
            return
        batches = self._take_all(watcher)
        if batches:
            self._engine.unwatch(watcher)
            answer(self._told(batches))
        else:
            self._parked[watcher] = (watch, answer)
            self._parked_by_watch[watch] = watcher

    # The program, and its own actions.

    async def _serve(self, host: Host) -> None:
        self._context = copy_context()
        self._missing_s = self._clock.monotonic() - self._seen_s
        for watcher in list(self._parked):
            self._unpark(watcher)
        self.term += 1
        if self.term > 1:
            self._leap()
        self._serving = host.life
        # The timer of the life before never rings.
        self._timer = None
        self._arm()
        try:
            await self._forget_now_and_then(host)
        finally:
            self._serving = None
            self._disarm()

    async def _forget_now_and_then(self, host: Host) -> None:
        chance = host.chance.fork("compactions")
        while self.trouble.forgets:
            await asyncio.sleep(chance.uniform(0.0, HISTORY_S_MAX))
            self._end_leases()
            self._acted("")
            kept_count = chance.choose((0, 0, 3, 20))
            revision = self._engine.revision - kept_count
            # Not a revision that a start leapt over.
            if revision >= self._run_revision and revision > self._engine.compacted_revision:
                host.record(f"forgets what was before revision {revision}")
                self._engine.compact(revision, now=self._seen_s)
        await asyncio.Event().wait()

    def _leap(self) -> None:
        self._peak = max(self._peak, self._engine.revision) + LEAP_COUNT
        self._run_revision = self._peak
        self._engine.begin_run(self._peak, now=self._seen_s)

    def _end_leases(self) -> None:
        self._seen_s = self._clock.monotonic() - self._missing_s
        self._engine.tick(now=self._seen_s)
        self._acted("")

    def _acted(self, origin: str) -> None:
        for watcher in self._engine.news():
            if watcher in self._parked:
                _, answer = self._parked[watcher]
                batches = self._take_all(watcher)
                self._unpark(watcher)
                answer(self._told(batches))
        while (batch := self._engine.take(self._all)) is not None:
            self.host.record(_shown(batch, origin))
            if self._witness is not None:
                self._witness(batch, origin)
        self._arm()

    def _take_all(self, watcher: Watcher) -> list[WatchBatch]:
        batches = []
        while True:
            batch = self._engine.take(watcher)
            if batch is not None:
                batches.append(batch)
            elif watcher.stage is not WatcherStage.CATCHING_UP:
                return batches

    def _told(self, batches: list[WatchBatch]) -> Polled | HansaError:
        if self._chance.flip(self.trouble.overrun_probability):
            first = batches[0].revision
            return WatchOverrun(f"a watcher was ended before revision {first}", first)
        return batches, self._engine.revision + 1

    def _unpark(self, watcher: Watcher | None) -> None:
        if watcher is not None:
            watch, _ = self._parked.pop(watcher)
            del self._parked_by_watch[watch]
            self._engine.unwatch(watcher)

    def _clock_at(self, name: str, clock: Clock) -> DriftingClock:
        chance = self.world.chance.fork(f"rate of {name}")
        drift = self.trouble.drift_max
        return DriftingClock(clock, rate=1.0 + chance.choose((-drift, drift, chance.uniform(-drift, drift))))

    def _arm(self) -> None:
        """Set a timer for the next lease that ends. A timer that comes too early looks again."""
        deadline_s = self._engine.deadline()
        if deadline_s is None or self._serving is None:
            return
        if self._timer is not None:
            if self._timer_s <= deadline_s:
                return
            self._disarm()
        self._timer_s = deadline_s
        # A moment later, because the loop does not follow this clock.
        delay_s = max(deadline_s - self._seen_s, 0.0) / self._clock.rate + 1e-6
        self._timer = self.world.loop.call_later(delay_s, self._wake, context=self._context)

    def _wake(self) -> None:
        self._timer = None
        self._end_leases()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class RestorableEngine(Engine):
    """An `Engine`, and its contents on a disk: all but its watchers and the time of its leases."""

    def __init__(self, chance: Chance) -> None:
        super().__init__(chance)
        self._mvcc: RestorableKeys = RestorableKeys()
        self._leases: RestorableLeases = RestorableLeases()
        self._watchers = Watchers(self._mvcc)

    @property
    def items(self) -> Sequence[KeyValue]:
        """All keys as they are now."""
        return self._mvcc.live_items()

    @property
    def compacted_revision(self) -> int:
        return self._mvcc.compacted_revision

    def image(self) -> Image:
        """A copy of everything."""
        return image_of(self._mvcc, self._leases)

    def restored(self, image: Image, *, now: float) -> RestorableEngine:
        """A new engine with the contents of the image, which draws other numbers than this one did."""
        engine = RestorableEngine(self._chance)
        set_up(engine._mvcc, engine._leases, image.stored(0), now=now)
        return engine

    def begin_run(self, revision: int, *, now: float) -> None:
        """A start: continue from this revision, beyond all former ones. Leases have all their time."""
        self._mvcc.begin_run(revision)
        self._leases.renew_all(now=now)


class DriftingClock:
    """Begins at another time and goes at `rate` times its clock's pace; its date is right half of the time.

    Timers of the simulator's loop use true time: by this clock they come up to `1 - rate` early or late.
    """

    def __init__(self, clock: Clock, *, rate: float) -> None:
        self.rate = rate
        self._clock = clock
        self._start_s = clock.monotonic()

    def monotonic(self) -> float:
        return self._start_s + (self._clock.monotonic() - self._start_s) * self.rate

    def wall(self) -> float:
        steps_count = int((self._clock.monotonic() - self._start_s) / WALL_STEP_EVERY_S)
        return self._clock.wall() + WALL_STEP_S * (steps_count % 2)


def _shown(batch: WatchBatch, origin: str) -> str:
    events = ", ".join(
        f"{event.kind.value} {event.item.key.decode('utf-8', 'replace')}" for event in batch.events
    )
    return f"revision {batch.revision}: {events}{f' by {origin}' if origin else ''}"
