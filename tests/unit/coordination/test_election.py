"""An election: one leads, terms grow, observers see every change."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hansa.coordination.election import Election, LeaderInfo
from hansa.coordination.session import Session
from hansa.errors import LeadershipLost, NotHeld, SessionLost, TimedOut, UsageError
from hansa.store.values import Put
from tests.support.virtual_store import TroubledStore, virtual


@pytest.mark.spec("CRD-08")
@virtual
async def test_one_leads_and_the_next_term_is_higher(store: TroubledStore) -> None:
    async with Session(store) as first, Session(store) as second:
        one, other = Election(first, "harbour", value=b"one"), Election(second, "harbour", value=b"other")
        assert await one.leader() is None
        async with one.campaign() as leadership:
            assert leadership.is_leading
            waiter = asyncio.ensure_future(other.win())
            await asyncio.sleep(60.0)
            assert not waiter.done()
            leader = await other.leader()
            assert leader == LeaderInfo(
                term=leadership.term, value=b"one", lease=first.lease, since=store.clock.wall() - 60.0
            )
            assert (await store.commit([leadership.guard], then=[Put("k", b"")])).is_success
        assert not leadership.is_leading
        assert not (await store.commit([leadership.guard], then=[Put("k", b"")])).is_success
        next_leadership = await waiter
        assert next_leadership.term > leadership.term
        await next_leadership.resign()
        await next_leadership.resign()
        assert not next_leadership.is_leading
        with pytest.raises(NotHeld):
            next_leadership.check()
        assert await store.keys("/") == []
        assert one.stats.acquired_count == other.stats.acquired_count == 1


@pytest.mark.spec("CRD-08")
@virtual
async def test_a_leader_that_cannot_renew_steps_down_before_another_leads(store: TroubledStore) -> None:
    stopped_s = 0.0

    async def lead(session: Session) -> None:
        nonlocal stopped_s
        with pytest.raises(LeadershipLost, match="could not renew"):
            async with Election(session, "harbour").campaign():
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped_s = store.now

    async with Session(store, ttl=10.0) as first, Session(store, ttl=60.0) as second:
        leader = asyncio.ensure_future(lead(first))
        await asyncio.sleep(1.0)
        waiter = asyncio.ensure_future(Election(second, "harbour").win())
        await asyncio.sleep(1.0)
        store.pause()
        await leader
        store.resume()
        await waiter
        assert stopped_s == pytest.approx(1_009.0)
        assert store.now >= stopped_s + first.margin_s - 1e-6


async def _collect(news: AsyncIterator[LeaderInfo | None], into: list[LeaderInfo | None]) -> None:
    async for each in news:
        into.append(each)


@pytest.mark.spec("CRD-08")
@virtual
async def test_observers_see_the_leader_first_and_then_every_change(store: TroubledStore) -> None:
    seen: list[LeaderInfo | None] = []
    late: list[LeaderInfo | None] = []
    async with Session(store) as session, Session(store) as watching, asyncio.TaskGroup() as tasks:
        observer = Election(watching, "harbour")
        watchers = [tasks.create_task(_collect(observer.observe(), seen))]
        await asyncio.sleep(1.0)
        assert seen == [None]
        first = await Election(session, "harbour", value=b"a").win()
        await asyncio.sleep(1.0)
        watchers.append(tasks.create_task(_collect(observer.observe(), late)))
        second = asyncio.ensure_future(Election(session, "harbour", value=b"b").win())
        await asyncio.sleep(1.0)
        await first.proclaim(b"a again")
        await asyncio.sleep(1.0)
        await first.resign()
        leadership = await second
        await asyncio.sleep(1.0)
        await leadership.resign()
        await asyncio.sleep(1.0)
        assert [None if each is None else (each.term, each.value) for each in seen] == [
            None,
            (first.term, b"a"),
            (first.term, b"a again"),
            (leadership.term, b"b"),
            None,
        ]
        assert late == seen[1:]
        for watcher in watchers:
            watcher.cancel()


@virtual
async def test_observers_outlive_compaction_and_a_store_that_was_away(store: TroubledStore) -> None:
    seen: list[LeaderInfo | None] = []
    async with Session(store, ttl=600.0) as session, asyncio.TaskGroup() as tasks:
        watcher = tasks.create_task(_collect(Election(session, "harbour").observe(), seen))
        first = await Election(session, "harbour").win()
        await asyncio.sleep(1.0)
        store.pause()
        await asyncio.sleep(30.0)
        store.resume()
        await first.resign()
        second = await Election(session, "harbour").win()
        await store.compact((await store.status()).revision)
        await asyncio.sleep(5.0)
        terms = [each.term for each in seen if each is not None]
        assert terms == sorted(terms)
        assert terms[-1] == second.term
        watcher.cancel()


@virtual
async def test_a_leader_that_somebody_deposed_is_told(store: TroubledStore) -> None:
    async with Session(store) as session:
        election = Election(session, "harbour")
        with pytest.raises(LeadershipLost, match="somebody deleted"):
            async with election.campaign() as leadership:
                await store.delete(leadership.guard.key)
                await asyncio.Event().wait()
        leadership = await election.win()
        await store.delete(leadership.guard.key)
        with pytest.raises(LeadershipLost):
            await leadership.proclaim(b"still me")
        assert not leadership.is_leading
        assert isinstance(await leadership.lost(), LeadershipLost)
        assert not await leadership.resign()
        assert election.stats.lost_count == 2


@virtual
async def test_campaigns_end_in_time_and_are_entered_once(store: TroubledStore) -> None:
    async with Session(store) as session:
        election = Election(session, "harbour")
        campaign = election.campaign()
        with pytest.raises(UsageError):
            await campaign.__aexit__(None, None, None)
        async with campaign:
            with pytest.raises(TimedOut):
                async with election.campaign(timeout=3.0):
                    pass
            with pytest.raises(UsageError, match="once"):
                await campaign.__aenter__()
    with pytest.raises(SessionLost):
        await election.win()


@virtual
async def test_what_a_leader_proclaims_stays_on_its_lease(store: TroubledStore) -> None:
    async with Session(store) as session:
        leadership = await Election(session, "harbour").win()
        await leadership.proclaim(b"new")
        await leadership.refresh()
        leader = await Election(session, "harbour").leader()
        assert leader == LeaderInfo(
            term=leadership.term, value=b"new", lease=session.lease, since=store.clock.wall()
        )
    assert await store.keys() == []


@virtual
async def test_a_proclamation_that_was_given_up_does_not_come_late_over_a_newer_one(
    store: TroubledStore,
) -> None:
    async with Session(store) as session:
        leadership = await Election(session, "harbour").win()
        commit, sent = store.commit, []

        async def keeps_it(compares: Any, then: Any = (), otherwise: Any = (), **options: Any) -> Any:
            sent.append((compares, then))
            raise TimedOut("it waits in the network")

        store.commit = keeps_it  # type: ignore[method-assign]
        with pytest.raises(TimedOut):
            await leadership.proclaim(b"old")
        store.commit = commit  # type: ignore[method-assign]
        await leadership.proclaim(b"new")
        assert not (await commit(*sent[0])).is_success
        store.lost_answers_count = 1
        with pytest.raises(TimedOut):
            await leadership.proclaim(b"newer")
        await leadership.proclaim(b"newest")
        leader = await Election(session, "harbour").leader()
        assert leader is not None
        assert leader.value == b"newest"
