"""Leases that the store renews by itself, on every engine; and beside a stuck event loop where it can."""

import asyncio
import time
from collections.abc import Callable

import pytest

from hansa.store.store import Keeping, Store
from hansa.store.values import EventKind
from tests.conformance.store.engines import StoreEngine

pytestmark = pytest.mark.spec("CRD-01")

# Leases no shorter than this, so that a machine with other work to do does not lose them.
TTL_S_MIN = 0.6


class Kept:
    """A lease with a key on it, kept by the store; and what the store said of it."""

    def __init__(self, store: Store, ttl_s: float, interval_s: float, loop_silence_s_max: float) -> None:
        self.store = store
        self.ttl_s = ttl_s
        self.lease = 0
        self.told_count = 0
        # The longest lag of the loop, as it was when something was told.
        self.lag_s_max = 0.0
        self._interval_s = interval_s
        self._loop_silence_s_max = loop_silence_s_max
        self._told = asyncio.Event()
        self._keeping: Keeping | None = None

    async def begin(self) -> "Kept":
        granted_s = self.store.clock.monotonic()
        self.lease = await self.store.grant(self.ttl_s)
        await self.store.put("kept", b"", lease=self.lease)
        self._keeping = self.store.keep(
            self.lease,
            ttl=self.ttl_s,
            granted_s=granted_s,
            interval=self._interval_s,
            loop_silence_s_max=self._loop_silence_s_max,
            on_change=self._changed,
        )
        assert self._keeping.kept_until_s == granted_s + self.ttl_s
        assert not self._keeping.is_lost
        return self

    @property
    def keeping(self) -> Keeping:
        assert self._keeping is not None
        return self._keeping

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something that is told."""
        while not holds():
            self._told.clear()
            await self._told.wait()

    async def is_there(self) -> bool:
        return await self.store.get("kept") is not None

    def _changed(self) -> None:
        self.told_count += 1
        self.lag_s_max = max(self.lag_s_max, self.keeping.loop_lag_s)
        self._told.set()


async def kept(
    store: Store, ttl_s: float, *, interval_s: float | None = None, loop_silence_s_max: float | None = None
) -> Kept:
    silence_s_max = 10 * ttl_s if loop_silence_s_max is None else loop_silence_s_max
    return await Kept(store, ttl_s, ttl_s / 6 if interval_s is None else interval_s, silence_s_max).begin()


def be_stuck(duration_s: float) -> None:
    """What a handler does that computes, or waits, without giving the loop a turn."""
    time.sleep(duration_s)


@pytest.fixture
def ttl_s(engine: StoreEngine) -> float:
    return max(engine.ttl_s_min, TTL_S_MIN)


async def test_a_kept_lease_outlives_its_time_and_tells_until_when_it_is_kept(
    store: Store, ttl_s: float
) -> None:
    clock = store.clock
    # Renewed so often that most of a lease's time may pass without an answer, on a machine with other work.
    ttl_s *= 3
    lease = await kept(store, ttl_s, interval_s=ttl_s / 18)
    began_s, untils_s = clock.monotonic(), [lease.keeping.kept_until_s]
    end_s = began_s + 1.4 * ttl_s
    while clock.monotonic() < end_s:
        count = lease.told_count
        await lease.until(lambda count=count: lease.told_count > count)  # type: ignore[misc]
        # Reckoned from when the renewal was sent, which was before now.
        assert lease.keeping.kept_until_s < clock.monotonic() + ttl_s
        untils_s.append(lease.keeping.kept_until_s)
    assert untils_s == sorted(untils_s)
    assert untils_s[-1] > end_s
    assert await lease.is_there()
    await lease.until(lambda: lease.keeping.failures_count == 0)
    assert not lease.keeping.is_lost
    lease.keeping.stop()


async def test_a_lease_that_is_kept_no_more_ends_and_not_before_it_was_said_to(
    store: Store, ttl_s: float
) -> None:
    lease = await kept(store, ttl_s)
    watch = store.watch("kept", exact=True)
    await watch.ready()
    await lease.until(lambda: lease.told_count >= 2)
    lease.keeping.stop()
    assert (await anext(watch)).events[0].kind is EventKind.DELETE
    assert store.clock.monotonic() >= lease.keeping.kept_until_s
    assert not lease.keeping.is_lost, "who stopped keeping does not look any more"
    lease.keeping.stop()
    watch.close()


async def test_a_revoked_lease_is_lost_to_its_keeper(store: Store, ttl_s: float) -> None:
    lease = await kept(store, ttl_s)
    await lease.until(lambda: lease.told_count >= 1)
    await store.revoke(lease.lease)
    await lease.until(lambda: lease.keeping.is_lost)
    # It asks no more: another one, which is renewed meanwhile, tells the time. What the keeper had to tell of
    # the lost one has been told when it tells of the other.
    other = await kept(store, ttl_s)
    await other.until(lambda: other.told_count >= 1)
    told_count = lease.told_count
    await other.until(lambda: other.told_count >= 3)
    assert (lease.told_count, lease.keeping.is_lost) == (told_count, True)
    for each in (lease, other):
        each.keeping.stop()


async def test_a_store_that_does_not_answer_is_counted_and_asked_again(
    store: Store, engine: StoreEngine
) -> None:
    lease = await kept(store, 20.0, interval_s=0.1)
    await lease.until(lambda: lease.told_count >= 1)
    engine.pause(store)
    # One renewal may have been answered and not been told yet.
    await lease.until(lambda: lease.keeping.failures_count >= 1)
    until_s = lease.keeping.kept_until_s
    await lease.until(lambda: lease.keeping.failures_count >= 3)
    assert lease.keeping.kept_until_s == until_s
    engine.resume(store)
    await lease.until(lambda: lease.keeping.failures_count == 0)
    assert lease.keeping.kept_until_s > until_s
    assert await lease.is_there()
    lease.keeping.stop()


async def test_a_late_answer_keeps_a_lease_no_longer_than_an_early_one(
    store: Store, engine: StoreEngine
) -> None:
    clock, loop = store.clock, asyncio.get_running_loop()
    lease = await kept(store, 20.0, interval_s=1.0)
    await lease.until(lambda: lease.told_count >= 1)
    sent_s = lease.keeping.kept_until_s - lease.ttl_s
    engine.pause(store)
    # The next renewal goes out a second after the last one, and is answered half a second later.
    loop.call_later(sent_s + 1.5 - clock.monotonic(), engine.resume, store)
    count = lease.told_count
    await lease.until(lambda: lease.told_count > count)
    assert lease.keeping.failures_count == 0, "it was under way for half a second only"
    answered_s = clock.monotonic()
    assert answered_s >= sent_s + 1.5
    assert lease.keeping.kept_until_s < sent_s + 1.5 + lease.ttl_s - 0.2
    lease.keeping.stop()


async def test_closing_the_store_ends_the_keeping(
    make_store: Callable[[], Store], engine: StoreEngine, ttl_s: float
) -> None:
    async with make_store() as store:
        lease = await kept(store, ttl_s)
        await lease.until(lambda: lease.told_count >= 1)
    told_count = lease.told_count
    if engine.is_remote:
        async with make_store() as other:
            item = await other.get("kept")
            assert item is not None
            watch = other.watch("kept", start_revision=item.mod_revision + 1)
            assert (await anext(watch)).events[0].kind is EventKind.DELETE
    assert lease.told_count == told_count


@pytest.mark.spec("CRD-07")
async def test_a_stuck_loop_is_told(store: Store) -> None:
    lease = await kept(store, 20.0, interval_s=0.05)
    await lease.until(lambda: lease.told_count >= 2)
    await lease.until(lambda: lease.keeping.loop_lag_s < 0.4)
    lease.lag_s_max = 0.0
    be_stuck(0.5)
    await lease.until(lambda: lease.lag_s_max > 0.4)
    await lease.until(lambda: lease.keeping.loop_lag_s < 0.4)
    lease.keeping.stop()


@pytest.mark.spec("CRD-07")
@pytest.mark.usefixtures("heart")
async def test_a_stuck_loop_does_not_lose_its_lease(store: Store, ttl_s: float) -> None:
    lease = await kept(store, ttl_s, loop_silence_s_max=10 * ttl_s)
    await lease.until(lambda: lease.told_count >= 1)
    be_stuck(2 * ttl_s + 0.6)
    stuck_until_s = store.clock.monotonic()
    # Read before the loop has run at all.
    assert lease.keeping.kept_until_s > stuck_until_s
    assert lease.keeping.loop_lag_s > ttl_s
    assert not lease.keeping.is_lost
    assert await lease.is_there()
    count = lease.told_count
    await lease.until(lambda: lease.told_count > count)
    assert await lease.is_there()
    lease.keeping.stop()


@pytest.mark.spec("CRD-07")
@pytest.mark.usefixtures("heart")
async def test_a_loop_that_is_stuck_for_too_long_loses_its_lease(store: Store, ttl_s: float) -> None:
    lease = await kept(store, ttl_s, loop_silence_s_max=ttl_s / 2)
    await lease.until(lambda: lease.told_count >= 1)
    # Silent for as long as it may be, then the lease's own time, and what a server takes to notice.
    be_stuck(ttl_s / 2 + ttl_s / 6 + ttl_s + 1.5)
    assert lease.keeping.kept_until_s < store.clock.monotonic()
    assert not await lease.is_there()
    await lease.until(lambda: lease.keeping.is_lost)
    lease.keeping.stop()
