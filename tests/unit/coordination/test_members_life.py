"""Members on a real loop, and at the edges of their life."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from hansa.chance import Chance
from hansa.coordination import (
    Expelled,
    LoopLagged,
    MemberDown,
    MemberJoined,
    Members,
    MembershipWatcher,
    MemberStatus,
    MemberSuspected,
    NodeInfo,
    NodeRegistry,
    Rejoined,
    RoutingTable,
    RoutingTableStore,
    Session,
)
from hansa.coordination.member import NodeRecord
from hansa.coordination.roster import Suspicion, is_overdue
from hansa.coordination.session import SessionKeeper
from hansa.coordination.stay import Stay
from hansa.errors import AlreadyClosed, BadArgument, Conflict, StoreUnavailable, TimedOut, UsageError
from hansa.keys import Keys
from hansa.limits import GONE_MEMBER_S_MAX, STORE_TIMEOUT_S
from hansa.store.memory import MemoryStore
from hansa.store.values import Compare, LeaseInfo, Operation, Outcome
from hansa.transport import Environment
from tests.support.member_stage import MemberStage, told
from tests.support.virtual_store import TroubledStore, virtual

WAIT_S_MAX = 10.0
A = NodeInfo(id="a")


@pytest.mark.spec("CRD-07")
async def test_a_stuck_loop_is_told() -> None:
    async with (
        MemoryStore() as store,
        Members(store, A, heartbeat_interval=0.1, heartbeat_timeout=2.0) as members,
    ):
        events = members.events()
        time.sleep(0.3)  # noqa: ASYNC251
        async with asyncio.timeout(WAIT_S_MAX):
            lagged = await anext(events)
        assert isinstance(lagged, LoopLagged)
        assert lagged.lag_s > 0.1
        assert members.stats.loop_lag_s_max >= lagged.lag_s
        assert members.me.status is MemberStatus.UP


def test_a_loop_that_is_late_again_and_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: MemberStage) -> list[float]:
        members = await stage.join("a", heartbeat_interval=1.0)
        events = members.events()
        for late_s in (0.0, 0.9, 1.1, 2.0, 0.6, 3.0, 0.4, 1.0, 1.5, 0.0):
            members._tell_lag(late_s)
        assert members.loop_lag_s == 0.0
        assert members.stats.loop_lag_s_max == 3.0
        return [event.lag_s for event in told(events) if isinstance(event, LoopLagged)]

    assert MemberStage.play(scene) == [1.1, 1.5]
    stuck = [record for record in caplog.records if "was stuck for" in record.getMessage()]
    assert [record.levelno for record in stuck] == [logging.WARNING] * 2


async def test_a_store_that_is_closed_first_ends_the_view() -> None:
    members = Members(MemoryStore(), A)
    store = members.store
    assert isinstance(store, MemoryStore)
    async with store:
        await members.__aenter__()
        events = members.events()
    assert [event async for event in events] == []
    with pytest.raises(AlreadyClosed):
        await members.until(lambda view: False, timeout=WAIT_S_MAX)
    await members.__aexit__(None, None, None)
    assert not members.is_member
    with pytest.raises(UsageError, match="once"):
        await members.__aenter__()


async def test_who_fails_says_so_when_it_leaves() -> None:
    async with MemoryStore() as store, Members(store) as looker:
        with pytest.raises(KeyError):
            async with Members(store, A):
                raise KeyError("x")
        view = await looker.until(lambda view: not view["a"].is_here, timeout=WAIT_S_MAX)
        assert view["a"].reason == "left after KeyError"


def test_leaving_ends_everything_also_when_it_is_cancelled_and_the_store_is_away() -> None:
    async def scene(stage: MemberStage) -> None:
        tasks = asyncio.all_tasks()
        entered = asyncio.Event()

        async def live() -> None:
            async with Members(stage.store, A):
                entered.set()
                await asyncio.sleep(3_600)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(live())
            await entered.wait()
            stage.store.pause()
            task.cancel()
            await stage.passed(0.5)
            assert not task.done()
            task.cancel()
            await asyncio.wait([task])
            assert asyncio.all_tasks() == tasks

    MemberStage.play(scene)


def test_leaving_a_store_that_is_away_takes_a_bounded_time() -> None:
    async def scene(stage: MemberStage) -> float:
        await stage.join("a")
        stage.store.pause()
        began_s = stage.loop.time()
        await stage.leave("a")
        return stage.loop.time() - began_s

    assert MemberStage.play(scene) <= 2.0 + 2.0


@pytest.mark.spec("CRD-06")
def test_a_session_that_was_lost_is_followed_by_another_one_with_a_higher_incarnation() -> None:
    """Although its record never went away: what was owned on the former session is not owned any more."""

    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        incarnation, lease, events, own = b.me.incarnation, b.me.lease, a.events(), b.events()
        assert b._stay is not None
        session = b._stay.session
        assert isinstance(session, Session)
        # Its owner believes no more in it, and the store still does.
        session.end_lost("for the test")
        await a.until(lambda view: view["b"].lease != lease, timeout=5)
        down, joined = told(events)
        assert isinstance(down, MemberDown)
        assert isinstance(joined, MemberJoined)
        assert down.reason.startswith(f"followed by a newer stay (incarnation {b.me.incarnation}): joined ag")
        assert "for the test" in joined.reason
        assert incarnation < b.me.incarnation == a.view["b"].incarnation
        assert [event.reason for event in told(own) if isinstance(event, Rejoined)] == [joined.reason]
        assert b.stats.rejoins_count == 1
        # One put, over the former one.
        found = await stage.store.get(Keys().node("b"))
        assert found is not None
        assert (found.version, found.lease) == (2, b.me.lease)
        # The old lease is ended, and not left to end.
        await stage.passed(1)
        assert await stage.store.lease_info(lease) is None
        await stage.passed(30)
        assert told(events) == []

    MemberStage.play(scene)


def test_a_write_that_was_under_way_does_not_come_after_a_later_one() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        looker = await stage.join("b")
        key = Keys().node("a")
        under_way = await stage.store.get(key)
        assert under_way is not None
        await a.set_status(MemberStatus.DRAINING)
        assert a._stay is not None
        # What `set_status` would have sent before, and what arrives only now.
        with pytest.raises(Conflict):
            late = a._stay
            late._joined_revision = under_way.mod_revision
            late.hear = lambda item, *, revision: None  # type: ignore[method-assign]
            await late.write(lambda _: A, reason="late")
        await looker.until(lambda view: view["a"].status is MemberStatus.DRAINING, timeout=5)

    MemberStage.play(scene)


def test_a_write_of_which_no_answer_came_is_written_over() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        assert a._stay is not None
        before = a._stay._joined_revision
        await a.update(zone="east")
        # As if the answer had been lost, and the watch were late.
        a._stay._joined_revision = before
        await a.set_status(MemberStatus.DRAINING)
        view = await a.until(lambda view: view["a"].status is MemberStatus.DRAINING, timeout=5)
        assert view["a"].zone == "east"

    MemberStage.play(scene)


async def test_a_record_that_nobody_can_read_can_be_removed_and_written_over() -> None:
    async with MemoryStore() as store:
        registry, key = NodeRegistry(store), Keys().node("a")
        await store.put(key, b"nonsense")
        assert await registry.list_nodes() == []
        assert await registry.deregister("a")
        assert await store.get(key) is None
        await store.put(key, b"nonsense")
        async with Members(store, A) as members:
            assert members.me.status is MemberStatus.UP
            # Overwritten behind its back: it says again who it is.
            await store.put(key, b"nonsense")
            async with asyncio.timeout(WAIT_S_MAX):
                while await registry.list_nodes() != [A]:
                    await asyncio.sleep(0.01)


async def test_a_node_that_is_deregistered_while_it_is_a_member_is_told_so() -> None:
    async with MemoryStore() as store, Members(store, A) as members:
        events = members.events()
        assert await NodeRegistry(store).deregister("a")
        async with asyncio.timeout(WAIT_S_MAX):
            found = [await anext(events), await anext(events)]
        assert {(type(event).__name__, event.reason) for event in found} == {
            ("MemberLeft", "deregistered"),
            ("Expelled", "deregistered"),
        }
        assert not members.is_member
    assert members.view["a"].status is MemberStatus.LEFT


@pytest.mark.spec("CRD-06", "CRD-07")
def test_an_answer_that_waited_in_a_stuck_process_accuses_nobody() -> None:
    """It was true when the store gave it, and the heartbeat came before anybody read it."""

    async def scene(stage: MemberStage) -> None:
        await stage.join("a")
        b = await stage.join("b")
        ask, asked = stage.store.lease_info, asyncio.Event()

        async def stuck_with_an_answer(lease: int, *, timeout: float | None = None) -> LeaseInfo | None:
            answer = await ask(lease, timeout=timeout)
            if answer is not None and lease == b.me.lease and is_overdue(answer):
                stage.pause("a")
                asked.set()
                await asyncio.sleep(0)
            return answer

        stage.store.lease_info = stuck_with_an_answer  # type: ignore[method-assign]
        async with Members(stage.store, environment=Environment(chance=Chance.seeded(1))) as looker:
            events = looker.events()
            stage.pause("b")
            await asked.wait()
            stage.resume("b")
            await stage.passed(2.0)
            stage.resume("a")
            await stage.passed(5.0)
            assert not [event for event in told(events) if isinstance(event, MemberSuspected)]

    MemberStage.play(scene)


def test_who_is_suspected_and_reads_it_refutes_it_itself() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        suspicion = Suspicion(incarnation=a.me.incarnation, is_suspect=True, by="x", silence_s=9.0)
        await stage.store.put(Keys().suspect("a"), suspicion.encode(), lease=a.me.lease)
        await a.until(lambda view: view["a"].status is MemberStatus.SUSPECT, timeout=5)
        view = await a.until(lambda view: view["a"].status is MemberStatus.UP, timeout=5)
        assert view["a"].reason.endswith("seen by a")

    MemberStage.play(scene)


async def test_who_has_left_is_not_listed() -> None:
    async with MemoryStore() as store:
        await store.put(Keys().node("a"), NodeInfo(id="a", status=MemberStatus.LEFT).encode())
        assert await NodeRegistry(store).list_nodes() == []


async def test_who_was_about_to_go_when_the_watch_began_is_not_told() -> None:
    async with MemoryStore() as store:
        await store.put(Keys().node("a"), NodeInfo(id="a", status=MemberStatus.LEFT).encode())
        await store.put(Keys().node("b"), NodeInfo(id="b").encode())
        events = MembershipWatcher(store).watch()
        joined = await anext(events)
        assert isinstance(joined, MemberJoined)
        assert joined.member.info == NodeInfo(id="b")
        await store.delete(Keys().node("a"))
        await store.delete(Keys().node("b"))
        down = await anext(events)
        assert isinstance(down, MemberDown)
        assert (down.member.id, down.reason) == ("b", "its lease ended")
        await store.put(Keys().node("a"), NodeInfo(id="a").encode())
        joined = await anext(events)
        assert isinstance(joined, MemberJoined)
        assert joined.member.info == NodeInfo(id="a")
        events.close()


async def test_a_slow_reader_of_tables_gets_the_latest_at_once() -> None:
    async with MemoryStore() as store:
        routing = RoutingTableStore(store)
        tables = routing.watch()
        await routing.save(RoutingTable(version=1), expected=0)
        assert (await anext(tables)).version == 1
        for version in range(2, 11):
            await routing.save(RoutingTable(version=version), expected=None)
        assert (await anext(tables)).version == 10
        assert tables.skipped_count == 8
        tables.close()


class LosesAnswers(MemoryStore):
    """A store whose next commits happen, and are not answered."""

    lost_count = 0

    async def commit(
        self,
        compares: Sequence[Compare],
        then: Sequence[Operation] = (),
        otherwise: Sequence[Operation] = (),
        *,
        timeout: float | None = STORE_TIMEOUT_S,
    ) -> Outcome:
        outcome = await super().commit(compares, then, otherwise, timeout=timeout)
        if self.lost_count:
            self.lost_count -= 1
            raise TimedOut("the answer was lost")
        return outcome


@asynccontextmanager
async def staying(store: MemoryStore, joined: list[str], *, takeover: bool = True) -> AsyncGenerator[Stay]:
    """A stay that is told nothing by a watch: one that is late."""
    environment = Environment(chance=Chance.seeded(1))
    async with SessionKeeper(store, renew_interval=1.0, environment=environment) as keeper:
        yield Stay(keeper, A, takeover=takeover, on_joined=joined.append)


async def incarnations(store: MemoryStore) -> list[int]:
    """Those of all records that were ever written for the node."""
    watch, found = store.watch(Keys().node("a"), start_revision=1, exact=True), []
    last = (await store.status()).revision
    async for batch in watch:
        found += [NodeRecord.decode(event.item.value).incarnation for event in batch.events]
        if batch.revision == last:
            break
    watch.close()
    return found


async def test_who_gets_no_answer_to_its_joining_is_not_replaced_by_itself() -> None:
    async with LosesAnswers() as store:
        joined: list[str] = []
        async with staying(store, joined) as stay, asyncio.TaskGroup() as tasks:
            store.lost_count = 2
            running = tasks.create_task(stay.run())
            async with asyncio.timeout(WAIT_S_MAX):
                while not joined:
                    await asyncio.sleep(0.01)
            assert set(await incarnations(store)) == {stay.incarnation}
            running.cancel()


async def test_a_statement_never_goes_back_to_a_former_incarnation() -> None:
    async with LosesAnswers() as store:
        joined: list[str] = []
        async with staying(store, joined) as stay, asyncio.TaskGroup() as tasks:
            running = tasks.create_task(stay.run())
            async with asyncio.timeout(WAIT_S_MAX):
                while not joined:
                    await asyncio.sleep(0.01)
                first = stay.incarnation
                # It joins anew, hears nothing of it, and speaks before it has asked.
                store.lost_count = 1
                assert stay.session is not None
                await store.revoke(stay.session.lease)
                stay.session.end_lost("for the test")
                while store.lost_count:
                    await asyncio.sleep(0)
                await stay.write(lambda _: replace(A, status=MemberStatus.DRAINING), reason="winter")
            found = await store.get(Keys().node("a"))
            assert found is not None
            record = NodeRecord.decode(found.value)
            assert (record.info.status, record.reason) == (MemberStatus.DRAINING, "winter")
            assert record.incarnation > first
            running.cancel()


async def test_a_record_without_an_incarnation_is_somebody_too() -> None:
    async with MemoryStore() as store:
        await store.put(Keys().node("a"), A.encode())
        with pytest.raises(Conflict, match="there already"):
            async with asyncio.timeout(WAIT_S_MAX), staying(store, [], takeover=False) as stay:
                await stay.run()


async def test_what_cannot_be_registered_leaves_no_renewal_behind() -> None:
    async with MemoryStore() as store:
        tasks = asyncio.all_tasks()
        with pytest.raises(BadArgument, match="at most"):
            await NodeRegistry(store).register(NodeInfo(id="a", zone="x" * 100_000))
        assert asyncio.all_tasks() == tasks


async def test_statements_at_the_same_time_do_not_undo_each_other() -> None:
    async with MemoryStore() as store, Members(store, A) as members:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(members.update(metadata={"ship": "cog"}))
            tasks.create_task(members.set_status(MemberStatus.DRAINING))
            tasks.create_task(members.update(zone="east"))
        (said,) = await NodeRegistry(store).list_nodes()
        assert (said.metadata, said.status, said.zone) == ({"ship": "cog"}, MemberStatus.DRAINING, "east")


async def test_who_does_not_know_what_it_said_says_it_again() -> None:
    async with LosesAnswers() as store, Members(store, A) as members:
        # Its watch is late.
        members._tell_stay = lambda: None  # type: ignore[method-assign]
        store.lost_count = 1
        with pytest.raises(TimedOut):
            await members.set_status(MemberStatus.DRAINING)
        await members.set_status(MemberStatus.UP)
        (said,) = await NodeRegistry(store).list_nodes()
        assert said.status is MemberStatus.UP
        # And who knows it does not.
        revision = (await store.status()).revision
        await members.set_status(MemberStatus.UP)
        assert (await store.status()).revision == revision


async def test_who_is_replaced_is_told_that_it_is_down_and_speaks_no_more() -> None:
    async with MemoryStore() as store, Members(store, A) as former:
        events = former.events()
        async with Members(store, A) as later, asyncio.timeout(WAIT_S_MAX):
            while not isinstance(event := await anext(events), Expelled):
                pass
            assert event.member == former.me
            assert (former.me.status, former.me.reason) == (MemberStatus.DOWN, event.reason)
            assert former.me.incarnation < later.me.incarnation
            with pytest.raises(Conflict, match="no longer a member: replaced by a newer process"):
                await former.set_status(MemberStatus.DRAINING)
            assert later.me.status is MemberStatus.UP


def test_a_lease_that_is_not_granted_at_once_is_asked_for_again() -> None:
    class SlowToGrant(MemoryStore):
        """The next grants are never answered."""

        lost_count = 0

        async def grant(self, ttl: float, *, timeout: float | None = STORE_TIMEOUT_S) -> int:
            if self.lost_count:
                self.lost_count -= 1
                await asyncio.sleep(3_600)
            return await super().grant(ttl, timeout=timeout)

    async def scene(stage: MemberStage) -> None:
        store = stage.store = SlowToGrant(environment=Environment(clock=stage.store.clock))
        async with store:
            a = await stage.join("a", heartbeat_interval=0.5, heartbeat_timeout=2.0)
            b = await stage.join("b", heartbeat_interval=0.5, heartbeat_timeout=2.0)
            await a.until(lambda view: len(view.up()) == 2, timeout=1)
            assert b._stay is not None
            assert b._stay.session is not None
            store.lost_count = 2
            b._stay.session.end_lost("for the test")
            await stage.passed(10)
            # Two answers that are lost do not cost the record, though a lease lasts only four seconds.
            found = await store.get(Keys().node("b"))
            assert found is not None
            assert (found.version, b.is_member, a.stats.downs_count) == (2, True, 1)
            await stage.leave("a")
            await stage.leave("b")

    MemberStage.play(scene)


def test_a_record_that_was_put_again_after_a_gap_is_not_missed() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        first = await stage.store.get(Keys().node("a"))
        assert first is not None
        await stage.store.delete(Keys().node("a"))
        await a.until(lambda view: view["a"].incarnation > first.mod_revision, timeout=5)
        again = await stage.store.get(Keys().node("a"))
        assert again is not None
        later = await stage.store.put("something else", b"")
        # What a view is told that saw neither the end nor the return.
        a._my_stay().hear(again, revision=later)
        await stage.passed(5)
        assert await stage.store.get(Keys().node("a")) == again

    MemberStage.play(scene)


async def test_leaving_ends_those_who_wait_for_the_view() -> None:
    async with MemoryStore() as store:
        members = await Members(store, A).__aenter__()
        waiting = asyncio.ensure_future(members.until(lambda view: False))
        await asyncio.sleep(0)
        await members.__aexit__(None, None, None)
        async with asyncio.timeout(WAIT_S_MAX):
            with pytest.raises(AlreadyClosed):
                await waiting


def test_a_view_that_gets_news_is_not_stale_though_its_questions_are_not_answered() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")

        async def unanswered(*, timeout: float | None = None) -> Any:
            raise StoreUnavailable("no answer")

        stage.store.status = unanswered  # type: ignore[method-assign]
        async with Members(stage.store, environment=Environment(chance=Chance.seeded(1))) as looker:
            for number in range(10):
                await stage.passed(1.0)
                await a.update(metadata={"n": str(number)})
                assert not looker.is_stale
            await stage.passed(looker.heartbeat_timeout_s + 1.0)
            assert looker.is_stale

    MemberStage.play(scene)


def test_who_is_gone_for_long_is_forgotten() -> None:
    async def scene(stage: MemberStage) -> None:
        # Heartbeats are rare, so that an hour is cheap.
        a = await stage.join("a", heartbeat_interval=60.0, heartbeat_timeout=300.0)
        await stage.join("b", heartbeat_interval=60.0, heartbeat_timeout=300.0)
        await stage.leave("b")
        await a.until(lambda view: "b" in view and not view["b"].is_here, timeout=1)
        await stage.passed(GONE_MEMBER_S_MAX - 60.0)
        assert "b" in a.view
        await stage.passed(120.0)
        assert "b" not in a.view

    MemberStage.play(scene)


@virtual
async def test_who_is_seen_before_it_hears_that_it_joined_has_entered_then(store: TroubledStore) -> None:
    """The watch tells of the record while the answer to its writing is still under way."""
    commit = store.commit

    async def late(*arguments: Any, **settings: Any) -> Outcome:
        outcome = await commit(*arguments, **settings)
        await asyncio.sleep(0.5)
        return outcome

    store.commit = late  # type: ignore[method-assign]
    began_s = store.now
    async with Members(store, A, environment=Environment(chance=Chance.seeded(1))):
        assert store.now - began_s == pytest.approx(0.5, abs=0.01)


@virtual
async def test_leaving_closes_the_watches(store: TroubledStore) -> None:
    before_count = len(store._readers)
    async with Members(store, A, environment=Environment(chance=Chance.seeded(1))):
        assert len(store._readers) == before_count + 2
    assert len(store._readers) == before_count
