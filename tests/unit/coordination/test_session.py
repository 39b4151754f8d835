"""A session: from its lease's beginning to its end, in virtual time."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from hansa.coordination.session import Session
from hansa.errors import BadArgument, SessionLost, TimedOut, UsageError
from hansa.store.memory import MemoryStore
from tests.support.virtual_store import TroubledStore, virtual


@virtual
async def test_a_session_lives_as_long_as_its_lease_is_renewed(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0, name="crane") as session:
        await store.put("k", b"", lease=session.lease)
        for _ in range(20):
            await asyncio.sleep(7.0)
            assert session.is_live
            assert 9.0 - 10.0 / 3 - 0.1 <= session.remaining_s <= 9.0
            session.check()
        assert await store.get("k") is not None
        assert session.failures_count == 0
    assert await store.get("k") is None
    assert not session.is_live
    assert session.remaining_s == 0.0
    assert "was left" in str(await session.lost())


@virtual
async def test_a_store_that_comes_back_before_the_deadline_costs_nothing(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        await asyncio.sleep(4.0)
        store.pause()
        await asyncio.sleep(7.5)
        assert session.is_live
        assert session.failures_count > 0
        store.resume()
        await asyncio.sleep(20.0)
        assert session.is_live
        assert session.failures_count == 0


@pytest.mark.spec("CRD-08")
@virtual
async def test_it_is_lost_at_its_deadline_before_the_store_ends_the_lease(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        await store.put("k", b"", lease=session.lease)
        await asyncio.sleep(5.0)
        watch = store.watch("k")
        deadline_s = session.deadline_s
        store.pause()
        lost = await session.lost()
        assert store.now == pytest.approx(deadline_s)
        assert "could not renew for 9.0 s" in str(lost)
        assert not session.is_live
        with pytest.raises(SessionLost, match="could not renew"):
            session.check()
        store.resume()
        await anext(watch)
        assert store.now == pytest.approx(deadline_s + session.margin_s)
        watch.close()


@virtual
async def test_once_lost_it_stays_lost_though_the_store_answers_again(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        store.pause()
        await asyncio.sleep(9.5)
        assert not session.is_live
        store.resume()
        # The lease still lives in the store, and a renewal would even succeed.
        assert await store.lease_info(session.lease) is not None
        with pytest.raises(SessionLost):
            await session.renew()
        await asyncio.sleep(30.0)
        assert not session.is_live
        assert await store.lease_info(session.lease) is None


@virtual
async def test_a_lease_that_the_store_ended_ends_the_session_at_the_next_renewal(
    store: TroubledStore,
) -> None:
    async with Session(store, ttl=9.0) as session:
        await store.revoke(session.lease)
        lost = await session.lost()
        assert store.now == pytest.approx(1_003.0)
        assert "the store ended the lease" in str(lost)


@virtual
async def test_renewing_now_finds_out_at_once_and_moves_the_deadline(store: TroubledStore) -> None:
    async with Session(store, ttl=9.0, renew_interval=8.0) as session:
        await asyncio.sleep(5.0)
        await session.renew()
        assert session.deadline_s == pytest.approx(1_000.0 + 5.0 + 8.1)
        store.pause()
        with pytest.raises(TimedOut):
            await session.renew(timeout=1.0)
        assert session.is_live
        store.resume()
        await store.revoke(session.lease)
        with pytest.raises(SessionLost, match="ended the lease"):
            await session.renew()
        assert not session.is_live


@virtual
async def test_a_stuck_loop_finds_it_lost_by_the_clock_alone(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        await asyncio.sleep(1.0)
        store.process_stops(20.0)
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(session.is_live))
        thread.start()
        thread.join()
        assert seen == [False]
        assert not session.is_live
        lost = await session.lost()
        assert "the event loop, or the whole process, was stuck for 21.0 s" in str(lost)


@virtual
async def test_a_lease_is_believed_in_from_when_it_was_asked_for(store: TroubledStore) -> None:
    """The store began to count before its answer came."""
    store.answers_late_s = 3.0
    asked_s = store.now
    async with Session(store, ttl=10.0, margin=1.0) as session:
        assert store.now == asked_s + 3.0
        assert session.deadline_s == pytest.approx(asked_s + 9.0)


class HandKeeping:
    """A `Keeping` that says what the test tells it to."""

    def __init__(self, kept_until_s: float, on_change: Callable[[], None]) -> None:
        self.kept_until_s = kept_until_s
        self.on_change = on_change
        self.is_lost = False
        self.failures_count = 0
        self.loop_lag_s = 0.0
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True

    async def stopped(self) -> None:
        self.stop()


@virtual
async def test_a_loop_that_is_told_of_its_own_lateness_says_so_and_not_that_the_store_was_away(
    store: TroubledStore,
) -> None:
    """The keeper tells the loop that it was late: that is the first that the session hears of it."""
    made: list[HandKeeping] = []

    def keep(lease: int, *, ttl: float, granted_s: float, on_change: Callable[[], None], **_: Any) -> Any:
        made.append(HandKeeping(granted_s + ttl, on_change))
        return made[0]

    store.keep = keep  # type: ignore[method-assign]
    async with Session(store, ttl=10.0) as session:
        store.process_stops(12.0)
        made[0].on_change()
        assert "was stuck for 12.0 s" in str(session.loss.error)
        assert made[0].is_stopped


@virtual
async def test_a_renewal_that_is_answered_after_the_deadline_says_that_it_is_lost(
    store: TroubledStore,
) -> None:
    async with Session(store, ttl=10.0, renew_interval=8.0) as session:
        store.answers_late_s = 9.5
        with pytest.raises(SessionLost):
            await session.renew(timeout=None)
        store.answers_late_s = 0.0


@virtual
async def test_who_finds_the_lease_gone_tells_all_at_once(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0) as session:
        waiting = asyncio.ensure_future(session.lost())
        await asyncio.sleep(0.1)
        await store.revoke(session.lease)
        found_s = store.now
        with pytest.raises(SessionLost):
            await session.renew()
        await waiting
        assert store.now == found_s


@virtual
async def test_slow_answers_make_renewals_no_rarer(store: TroubledStore) -> None:
    """An interval is from one question to the next."""
    asked_s: list[float] = []
    keep_alive = store.keep_alive

    async def noted(lease: int, *, timeout: float | None = None) -> float:
        asked_s.append(store.now)
        return await keep_alive(lease, timeout=timeout)

    store.keep_alive = noted  # type: ignore[method-assign]
    began_s = store.now
    async with Session(store, ttl=10.0, renew_interval=3.0):
        store.answers_late_s = 2.0
        await asyncio.sleep(13.0)
    assert [at_s - began_s for at_s in asked_s] == pytest.approx([3.0, 6.0, 9.0, 12.0])


async def test_no_timer_holds_a_session_that_was_left() -> None:
    async with MemoryStore() as store:
        async with Session(store, ttl=60.0) as session:
            pass
        known = weakref.ref(session)
        del session
        gc.collect()
        assert known() is None


@virtual
async def test_a_renewal_is_believed_in_from_when_it_was_asked_for(store: TroubledStore) -> None:
    async with Session(store, ttl=10.0, margin=1.0, renew_interval=3.0) as session:
        granted_s, store.answers_late_s = store.now, 2.0
        # Asked at 3 s, and answered at 5 s.
        await asyncio.sleep(5.5)
        assert session.deadline_s == pytest.approx(granted_s + 3.0 + 9.0)
        asked_s = store.now
        await session.renew()
        assert store.now == asked_s + 2.0
        assert session.deadline_s == pytest.approx(asked_s + 9.0)


@pytest.mark.parametrize("is_lost_before", [False, True])
def test_leaving_while_the_store_is_away_takes_a_bounded_time(
    is_lost_before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def live(store: TroubledStore) -> None:
        async with Session(store, ttl=10.0) as session:
            store.pause()
            if is_lost_before:
                await session.lost()
            left_s = store.now
        assert store.now - left_s <= 2.0 + 1e-6
        assert not session.is_live

    virtual(live)()
    # Who lost it to a store that is away is not told the same again.
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == (not is_lost_before)


@virtual
async def test_leaving_says_that_it_is_lost_before_the_lease_ends(store: TroubledStore) -> None:
    seen: list[bool] = []
    async with Session(store, ttl=10.0) as session:
        await store.put("k", b"", lease=session.lease)
        watch = store.watch("k")

        async def look() -> None:
            await anext(watch)
            seen.append(session.is_live)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(look())
            await session.__aexit__(None, None, None)
    assert seen == [False]


@virtual
async def test_a_store_that_does_not_answer_lets_nobody_enter(store: TroubledStore) -> None:
    store.pause()
    for ttl_s, waited_s in ((2.0, 1.8), (10.0, 5.0)):
        began_s = store.now
        session = Session(store, ttl=ttl_s)
        with pytest.raises(TimedOut):
            await session.__aenter__()
        # Not for longer than the lease would have been believed in.
        assert store.now - began_s == pytest.approx(waited_s)
        assert not session.is_live
    with pytest.raises(UsageError, match="not open"):
        session.check()


@virtual
async def test_what_cannot_be_says_so(store: TroubledStore) -> None:
    session = Session(store)
    for attribute in ("lease", "deadline_s", "failures_count", "loop_lag_s"):
        with pytest.raises(UsageError, match="not open"):
            getattr(session, attribute)
    assert not session.is_live
    assert "not open" in repr(session)
    async with session:
        assert "live" in repr(session)
        with pytest.raises(UsageError, match="once"):
            await session.__aenter__()
    assert "lost" in repr(session)
    with pytest.raises(BadArgument):
        Session(store, ttl=0)
    with pytest.raises(BadArgument):
        Session(store, cluster="a/b")


@virtual
async def test_nothing_of_it_is_left_behind(store: TroubledStore) -> None:
    before = asyncio.all_tasks()
    for _ in range(3):
        async with Session(store, ttl=10.0):
            await asyncio.sleep(5.0)
    assert asyncio.all_tasks() == before
    assert store.counts["watch exact"] == 0
