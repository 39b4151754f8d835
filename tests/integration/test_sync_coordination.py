"""Stores, locks, elections and members from threads, in memory and in a real etcd."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from hansa import sync
from hansa.coordination import (
    MemberJoined,
    MemberLeft,
    MemberStatus,
    MemberUpdated,
    NodeInfo,
)
from hansa.errors import (
    BadArgument,
    BadEndpoint,
    Compacted,
    LeadershipLost,
    LeaseLost,
    LockLost,
    NoSuccessor,
    NotHeld,
    SessionLost,
    StaleFence,
    TimedOut,
    UsageError,
)
from hansa.store import Compare, EventKind, Put
from tests.support.etcd_servers import EtcdGroup
from tests.support.leftovers import no_thread_is_left
from tests.support.sync_stage import WITHIN_S

__all__ = ["no_thread_is_left"]

TTL_S = 10.0


@pytest.fixture(scope="module")
def group() -> Iterator[EtcdGroup]:
    with EtcdGroup() as group:
        yield group


@pytest.fixture(params=["memory", "etcd"])
def address(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory://docks"
    group: EtcdGroup = request.getfixturevalue("group")
    group.wipe()
    return group.address


@pytest.fixture
def store(address: str) -> Iterator[sync.Store]:
    with sync.open_store(address) as store:
        yield store


@pytest.fixture
def session(store: sync.Store) -> Iterator[sync.Session]:
    with sync.Session(store, ttl=TTL_S) as session:
        yield session


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def in_line(store: sync.Store, prefix: bytes, count: int) -> None:
    """Return when so many stand in a line."""
    watch = store.watch(prefix)
    watch.ready()
    while len(store.scan(prefix, keys_only=True).items) < count:
        watch.get(WITHIN_S)
    watch.close()


# ---- the store ---------------------------------------------------------------------------------


@pytest.mark.spec("CRD-01")
def test_a_store_answers_as_the_asynchronous_one_does(store: sync.Store) -> None:
    first = store.put("berth/1", b"cog")
    found = store.get("berth/1")
    assert found is not None
    assert (found.value, found.create_revision) == (b"cog", first)
    outcome = store.commit([Compare.absent("berth/2")], then=[Put("berth/2", b"hulk")])
    assert outcome.is_success
    assert [item.key for item in store.scan("berth/", keys_only=True).items] == [b"berth/1", b"berth/2"]
    assert [item.key for item in store.scan("berth/1", "berth/2").items] == [b"berth/1"]
    assert store.delete("berth/1")
    assert not store.delete("berth/1")
    assert store.get("berth/1", revision=first) == found
    assert store.delete_prefix("berth/") == 1
    status = store.status()
    store.compact(status.revision)
    with pytest.raises(Compacted):
        store.get("berth/1", revision=first)

    lease = store.grant(TTL_S)
    store.put("guest", b"", lease=lease)
    info = store.lease_info(lease)
    assert info is not None
    assert info.keys == (b"guest",)
    assert store.keep_alive(lease) == TTL_S
    store.revoke(lease)
    assert store.get("guest") is None
    assert store.lease_info(lease) is None
    with pytest.raises(LeaseLost):
        store.keep_alive(lease)
    with pytest.raises(TimedOut):
        store.get("guest", timeout=0.0)


def test_threads_that_compare_and_set_lose_no_update(store: sync.Store, pool: ThreadPoolExecutor) -> None:
    store.put("count", b"0")

    def count() -> None:
        for _ in range(10):
            while True:
                found = store.get("count")
                assert found is not None
                same = Compare.revision("count", "=", found.mod_revision)
                if store.commit([same], then=[Put("count", b"%d" % (int(found.value) + 1))]).is_success:
                    break

    for each in [pool.submit(count) for _ in range(4)]:
        each.result(WITHIN_S)
    found = store.get("count")
    assert found is not None
    assert found.value == b"40"


def test_a_watch_tells_in_order_and_a_step_that_times_out_takes_nothing(store: sync.Store) -> None:
    watch = store.watch("berth/", before=True)
    first = watch.ready()
    with pytest.raises(TimedOut, match="nothing changed"):
        watch.get(0.0)
    store.put("berth/1", b"cog")
    store.put("elsewhere", b"")
    store.delete("berth/1")
    put, deletion = next(watch), watch.get(WITHIN_S)
    assert put.revision >= first
    assert [event.kind for batch in (put, deletion) for event in batch.events] == [
        EventKind.PUT,
        EventKind.DELETE,
    ]
    assert deletion.events[0].before is not None
    assert deletion.events[0].before.value == b"cog"
    again = store.watch("berth/1", start_revision=put.revision, exact=True)
    assert [again.get(WITHIN_S).revision for _ in range(2)] == [put.revision, deletion.revision]


def test_a_watch_ends_for_all_who_wait_in_it_when_it_is_closed(
    store: sync.Store, pool: ThreadPoolExecutor
) -> None:
    watch = store.watch("berth/")
    watch.ready()
    waiting = [pool.submit(lambda: [batch.revision for batch in watch]) for _ in range(3)]
    told = [store.put("berth/1", b"%d" % number) for number in range(5)]
    rest = store.watch("berth/", start_revision=told[0])
    assert [rest.get(WITHIN_S).revision for _ in told] == told
    watch.close()
    watch.close()
    found = [revision for each in waiting for revision in each.result(WITHIN_S)]
    assert sorted(found) == sorted(set(found))
    assert set(found) <= set(told)
    assert list(watch) == []


def test_a_watch_ends_when_another_thread_closes_the_store(address: str, pool: ThreadPoolExecutor) -> None:
    with sync.open_store(address) as store:
        watch = store.watch("berth/")
        watch.ready()
        waiting = pool.submit(lambda: [batch.revision for batch in watch])
        revision = store.put("berth/1", b"")
    assert set(waiting.result(WITHIN_S)) <= {revision}
    watch.close()
    assert list(watch) == []


def test_what_cannot_be_an_address_is_refused_at_once_and_without_its_password() -> None:
    for wrong in ("docks", "boat://docks", "memory://", "etcd://me:secret@no port"):
        with pytest.raises(BadEndpoint) as caught:
            sync.open_store(wrong)
        assert "secret" not in str(caught.value)
    store = sync.open_store("etcd://me:secret@127.0.0.1:1")
    assert store.name == "etcd://127.0.0.1:1"


# ---- locks -------------------------------------------------------------------------------------


@pytest.mark.spec("CRD-09")
def test_threads_of_several_sessions_hold_a_lock_one_at_a_time(
    store: sync.Store, session: sync.Session, pool: ThreadPoolExecutor
) -> None:
    inside = threading.Lock()
    fences: list[int] = []
    with sync.Session(store, ttl=TTL_S) as other:
        # Two threads share each object.
        locks = [sync.Lock(session, "nightly"), sync.Lock(other, "nightly")] * 2

        def work(lock: sync.Lock) -> None:
            for _ in range(5):
                with lock as hold:
                    assert inside.acquire(blocking=False)
                    assert hold.is_held
                    fences.append(hold.fence)
                    inside.release()

        for each in [pool.submit(work, lock) for lock in locks]:
            each.result(WITHIN_S)
    assert len(fences) == 20
    assert fences == sorted(set(fences))
    assert sum(lock.stats.acquired_count for lock in locks[:2]) == 20


@pytest.mark.spec("CRD-09")
def test_a_lock_can_be_tried_waited_for_refreshed_and_looked_at(
    store: sync.Store, session: sync.Session, pool: ThreadPoolExecutor
) -> None:
    lock = sync.Lock(session, "nightly", note=b"me")
    hold = lock.acquire()
    assert lock.try_acquire() is None
    with pytest.raises(TimedOut):
        lock.acquire(timeout=0.05)
    waiting: Future[sync.Hold] = pool.submit(lock.acquire, WITHIN_S)
    in_line(store, session.keys.lock("nightly"), 2)
    holder = lock.holder()
    assert holder is not None
    assert (holder.fence, holder.note) == (hold.fence, b"me")
    assert len(lock.waiting()) == 1
    hold.refresh()
    hold.check()
    assert store.commit([hold.guard], then=[Put("report", b"mine")]).is_success
    assert hold.release()
    assert not hold.release()
    assert not hold.is_held
    with pytest.raises(NotHeld):
        hold.check()
    assert not store.commit([hold.guard], then=[Put("report", b"too late")]).is_success
    with waiting.result(WITHIN_S) as later:
        assert later.fence > hold.fence
    assert not later.is_held


@pytest.mark.spec("CRD-09")
def test_a_lock_is_lost_with_its_lease_and_the_block_raises_when_it_is_left(
    store: sync.Store, session: sync.Session, pool: ThreadPoolExecutor
) -> None:
    went_on = False
    with pytest.raises(LockLost, match="nightly"), sync.Lock(session, "nightly") as hold:
        waiting = pool.submit(hold.lost, WITHIN_S)
        store.revoke(session.lease)
        assert isinstance(waiting.result(WITHIN_S), LockLost)
        assert not hold.is_held
        with pytest.raises(LockLost):
            hold.check()
        with pytest.raises(LockLost):
            hold.refresh()
        assert not hold.release()
        went_on = True
    assert went_on
    with pytest.raises(SessionLost):
        session.renew()
    assert isinstance(session.lost(WITHIN_S), SessionLost)
    assert not session.is_live
    assert session.remaining_s == 0.0
    with pytest.raises(SessionLost):
        session.check()
    with pytest.raises(SessionLost):
        sync.Lock(session, "nightly").acquire()
    with sync.Session(store, ttl=TTL_S) as other, sync.Lock(other, "nightly") as next_hold:
        assert next_hold.fence > hold.fence


def test_an_error_of_the_block_goes_before_the_loss(store: sync.Store, session: sync.Session) -> None:
    with pytest.raises(ZeroDivisionError), sync.Lock(session, "nightly") as hold:
        store.delete_prefix(session.keys.lock("nightly"))
        hold.lost(WITHIN_S)
        raise ZeroDivisionError
    assert session.is_live


def test_a_loss_can_be_waited_for_and_the_wait_given_up(session: sync.Session) -> None:
    with sync.Lock(session, "nightly") as hold:
        with pytest.raises(TimedOut):
            hold.lost(0.05)
        with pytest.raises(TimedOut):
            session.lost(0.05)
        session.renew()
        assert hold.is_held
        assert 0.0 < session.remaining_s < session.ttl_s


@pytest.mark.spec("CRD-15")
def test_no_more_threads_than_the_limit_hold_a_semaphore(
    session: sync.Session, pool: ThreadPoolExecutor
) -> None:
    semaphore = sync.Semaphore(session, "cranes", 2)
    both_in = threading.Barrier(2, timeout=WITHIN_S)
    inside = threading.Semaphore(2)

    def load() -> None:
        with semaphore as hold:
            assert inside.acquire(blocking=False)
            both_in.wait()
            assert hold.is_held
            assert len(semaphore.holders()) == 2
            # So that nobody comes in before both have looked.
            both_in.wait()
            inside.release()

    for each in [pool.submit(load) for _ in range(6)]:
        each.result(WITHIN_S)
    first, second = semaphore.acquire(), semaphore.try_acquire()
    assert second is not None
    assert semaphore.try_acquire() is None
    assert semaphore.waiting() == ()
    with pytest.raises(BadArgument, match="limit"):
        sync.Semaphore(session, "cranes", 3).acquire()
    assert first.release()
    assert second.release()


@pytest.mark.spec("CRD-15")
def test_threads_pass_a_barrier_together(session: sync.Session, pool: ThreadPoolExecutor) -> None:
    barrier = sync.Barrier(session, "tide", parties=3)
    with pytest.raises(TimedOut):
        barrier.wait(timeout=0.05)

    def sail() -> list[int]:
        return [barrier.wait(WITHIN_S) for _ in range(3)]

    sailed = [each.result(WITHIN_S) for each in [pool.submit(sail) for _ in range(3)]]
    assert sailed[0] == sailed[1] == sailed[2] == sorted(set(sailed[0]))
    assert barrier.waiting_count() == 0


def test_a_former_holder_cannot_write_to_what_a_later_one_has_taken(
    store: sync.Store, session: sync.Session
) -> None:
    cargo = sync.FencedKey(store, "cargo")
    lock = sync.Lock(session, "cargo")
    with lock as former:
        assert cargo.take(former.fence) is None
        cargo.write(former.fence, b"10 barrels")
    with lock as hold:
        assert cargo.take(hold.fence) == b"10 barrels"
        with pytest.raises(StaleFence):
            cargo.write(former.fence, b"9 barrels")
        cargo.write(hold.fence, b"11 barrels")
    found = store.get(cargo.key)
    assert found is not None
    assert found.value == b"11 barrels"


# ---- elections ---------------------------------------------------------------------------------


@pytest.mark.spec("CRD-08")
def test_leadership_goes_from_one_thread_to_the_next_and_all_are_told(
    store: sync.Store, session: sync.Session, pool: ThreadPoolExecutor
) -> None:
    one, two = (sync.Election(session, "captain", value=name) for name in (b"one", b"two"))
    news = sync.Election(session, "captain").observe()
    assert news.get(WITHIN_S) is None
    with pytest.raises(TimedOut):
        news.get(0.05)  # And that did it no harm.
    with one.campaign() as leadership:
        told = news.get(WITHIN_S)
        assert told is not None
        assert (told.value, told.term) == (b"one", leadership.term)
        with pytest.raises(TimedOut), two.campaign(timeout=0.05):
            raise AssertionError("two lead")
        leadership.proclaim(b"one, aloud")
        told = news.get(WITHIN_S)
        assert told is not None
        assert told.value == b"one, aloud"
        winning = pool.submit(two.win, timeout=WITHIN_S)
        in_line(store, session.keys.leader("captain"), 2)
        assert two.leader() == told
        assert leadership.is_leading
    with winning.result(WITHIN_S) as later:
        assert later.is_leading
        assert not leadership.is_leading
        assert later.term > leadership.term
        told = next(news)
        while told is None:  # A moment in between may be seen, or not.
            told = next(news)
        assert (told.value, told.term) == (b"two", later.term)
        assert later.resign()
    assert news.get(WITHIN_S) is None
    assert one.leader() is None
    news.close()
    assert list(news) == []


@pytest.mark.spec("CRD-08")
def test_a_leader_whose_lease_ends_leads_no_more(store: sync.Store, session: sync.Session) -> None:
    campaign = sync.Election(session, "captain").campaign()
    with pytest.raises(LeadershipLost), campaign as leadership:
        store.revoke(session.lease)
        leadership.lost(WITHIN_S)
        assert not leadership.is_leading
        with pytest.raises(LeadershipLost):
            leadership.check()
    with pytest.raises(UsageError, match="once"):
        campaign.__enter__()


# ---- members -----------------------------------------------------------------------------------


@pytest.mark.spec("CRD-05")
def test_members_see_each_other_come_change_and_leave(store: sync.Store, pool: ThreadPoolExecutor) -> None:
    with sync.Members(store, NodeInfo(id="keeper")) as members:
        events = members.events()
        worker = NodeInfo(id="worker", host="10.0.0.2", port=7400, roles=frozenset({"worker"}))
        with sync.Members(store, worker) as other:
            view = members.until(lambda view: len(view.up()) == 2, timeout=WITHIN_S)
            assert [member.id for member in view.by_role("worker")] == ["worker"]
            assert other.is_member
            assert other.me.address == "10.0.0.2:7400"
            other.update(metadata={"ship": "cog"})
            other.set_status(MemberStatus.DRAINING, reason="winter")
        told = [events.get(WITHIN_S) for _ in range(4)]
        assert [type(event) for event in told] == [MemberJoined, MemberUpdated, MemberUpdated, MemberLeft]
        assert isinstance(told[1], MemberUpdated)
        assert told[1].member.metadata == {"ship": "cog"}
        assert isinstance(told[2], MemberUpdated)
        assert told[2].reason == "winter"
        assert members.view["worker"].status is MemberStatus.LEFT
        with pytest.raises(ValueError, match="overboard"), sync.Members(store, worker):
            raise ValueError("overboard")
        assert isinstance(events.get(WITHIN_S), MemberJoined)
        left = events.get(WITHIN_S)
        assert isinstance(left, MemberLeft)
        assert "ValueError" in left.reason
        assert not members.is_stale
        assert members.stale_s == 0.0
        assert members.loop_lag_s < WITHIN_S
        assert members.stats.here_count == 1
        assert members.heartbeats_s == {}
        with sync.Members(store) as looking, pytest.raises(UsageError, match="only looks"):
            assert "keeper" in looking.view
            print(looking.me)
        waiting = pool.submit(list, events)
    assert waiting.result(WITHIN_S) == []
    assert not members.is_member


@pytest.mark.spec("OWN-04")
def test_a_lock_and_an_office_are_handed_over_between_threads(store: sync.Store) -> None:
    with (
        sync.Session(store, TTL_S, node="cog") as first,
        sync.Session(store, TTL_S, node="hulk") as second,
        ThreadPoolExecutor() as threads,
    ):
        lock = sync.Lock(second, "dock")
        with sync.Lock(first, "dock") as hold:
            with pytest.raises(TimedOut, match="nobody asked for dock"):
                hold.wanted(timeout=0.05)
            waiting = threads.submit(lock.acquire)
            while not lock.waiting():
                pass
            record = hold.hand_over("hulk", state=b"so far", reason="for a test")
            assert not hold.is_held
            taken = waiting.result(WITHIN_S)
        assert (taken.state, taken.is_held) == (b"so far", True)
        assert taken.fence == record.next_epoch > hold.fence
        taken.release()
        leadership = sync.Election(first, "harbour").win()
        office = threads.submit(sync.Election(second, "harbour").win)
        while True:
            try:
                leadership.hand_over("hulk")
                break
            except NoSuccessor:
                continue  # It does not stand in the line yet.
        assert office.result(WITHIN_S).is_leading
        assert not leadership.is_leading
