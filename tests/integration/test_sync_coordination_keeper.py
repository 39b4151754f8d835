"""One keeper of sessions for all that threads have in a store: locks, elections, members, topics."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from hansa import sync
from hansa.coordination import MemberDown, MemberJoined, NodeInfo, Rejoined
from hansa.errors import (
    AlreadyClosed,
    BadArgument,
    LeadershipLost,
    LockLost,
    NotHeld,
    SessionLost,
    StoreUnavailable,
    TimedOut,
    UsageError,
)
from hansa.keys import Keys
from hansa.store import MemoryStore
from tests.support.etcd_servers import EtcdGroup
from tests.support.leftovers import no_thread_is_left
from tests.support.sync_stage import WITHIN_S

__all__ = ["no_thread_is_left"]

TTL_S = 10.0
COG = NodeInfo(id="cog", host="10.0.0.1", port=7400)


@pytest.fixture(scope="module")
def group() -> Iterator[EtcdGroup]:
    with EtcdGroup() as group:
        yield group


@pytest.fixture(params=["memory", "etcd"])
def store(request: pytest.FixtureRequest) -> Iterator[sync.Store]:
    address = "memory://docks"
    if request.param == "etcd":
        group: EtcdGroup = request.getfixturevalue("group")
        group.wipe()
        address = group.address
    with sync.open_store(address) as store:
        yield store


@pytest.fixture
def keeper(store: sync.Store) -> Iterator[sync.SessionKeeper]:
    with sync.SessionKeeper(store, node="cog", ttl=TTL_S) as keeper:
        yield keeper


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.mark.spec("OWN-02")
def test_threads_share_one_lease_for_all_that_they_hold(
    store: sync.Store, keeper: sync.SessionKeeper, pool: ThreadPoolExecutor
) -> None:
    session = keeper.live(WITHIN_S)
    assert session.is_live
    session.check()
    session.renew()
    assert 0.0 < session.remaining_s < session.ttl_s == keeper.ttl_s == TTL_S
    with (
        sync.Members(store, COG, session=keeper) as members,
        sync.SpotNode(session=keeper) as node,
        node.spot() as spot,
        ThreadPoolExecutor(4) as threads,
    ):
        spot.create_topic("tide")
        holds = list(
            threads.map(lambda number: sync.Lock(keeper, f"dock-{number}").acquire(WITHIN_S), range(4))
        )
        with (
            sync.Lock(keeper, "nightly") as hold,
            sync.Semaphore(keeper, "berths", 2) as berth,
            sync.Election(keeper, "captain", value=b"cog").campaign() as leadership,
        ):
            assert members.is_member
            keys = store.lease_info(session.lease)
            assert keys is not None
            standing = sorted(key.rsplit(b"/", 1)[0] for key in keys.keys)
            assert standing == sorted(
                key.rstrip(b"/")
                for key in (
                    *(Keys().lock(f"dock-{number}") for number in range(4)),
                    Keys().lock("nightly"),
                    Keys().semaphore("berths"),
                    Keys().leader("captain"),
                    Keys().node("cog").rsplit(b"/", 1)[0],
                    Keys().topic(node.service, "tide"),
                )
            )
            assert all(one.is_held for one in (*holds, hold, berth))
            assert leadership.is_leading
            holder = sync.Lock(keeper, "nightly").holder()
            assert holder is not None
            assert (holder.node, holder.lease) == ("cog", session.lease)
        # Parties of a barrier, too.
        barrier = sync.Barrier(keeper, "gate", 2)
        for party in [pool.submit(barrier.wait, timeout=WITHIN_S) for _ in range(2)]:
            party.result(WITHIN_S)
        assert [one.release() for one in holds] == [True] * 4


@pytest.mark.spec("OWN-02")
def test_after_a_loss_all_are_told_and_take_it_again_on_the_next_session(
    store: sync.Store, keeper: sync.SessionKeeper
) -> None:
    lock, election = sync.Lock(keeper, "nightly"), sync.Election(keeper, "captain")
    with sync.Members(store, COG, session=keeper) as members, sync.Members(store) as others:
        others.until(lambda view: "cog" in view, timeout=WITHIN_S)
        former, incarnation = keeper.live(WITHIN_S), members.me.incarnation
        own, seen = members.events(), others.events()
        leadership = election.win(timeout=WITHIN_S)
        with pytest.raises(LockLost), lock as hold:
            store.revoke(former.lease)
            lost = former.lost(WITHIN_S)
            assert isinstance(lost, SessionLost)
            assert not hold.is_held
            assert isinstance(leadership.lost(WITHIN_S), LeadershipLost)
        with pytest.raises(SessionLost):
            former.check()
        assert not former.is_live
        later = keeper.live(WITHIN_S)
        assert later.lease != former.lease
        # The same objects, on the next session.
        with lock as hold, election.campaign(timeout=WITHIN_S):
            assert hold.is_held
            holder = lock.holder()
            assert holder is not None
            assert holder.lease == later.lease
        while not isinstance(own.get(WITHIN_S), Rejoined):
            pass
        assert [type(seen.get(WITHIN_S)) for _ in range(2)] == [MemberDown, MemberJoined]
        assert members.me.incarnation > incarnation


def test_a_thread_that_would_wait_for_itself_is_told_so_on_a_keeper_too(keeper: sync.SessionKeeper) -> None:
    lock = sync.Lock(keeper, "nightly")
    with lock:
        with pytest.raises(UsageError, match="might wait for itself"):
            sync.Lock(keeper, "nightly").acquire()
        with pytest.raises(TimedOut):
            sync.Lock(keeper, "nightly").acquire(timeout=0.05)
    with lock as hold:
        assert hold.is_held


def test_closing_a_keeper_ends_what_waits_and_what_is_held(
    store: sync.Store, pool: ThreadPoolExecutor
) -> None:
    keeper = sync.SessionKeeper(store, name="dock", ttl=TTL_S).__enter__()
    other = sync.Session(store, ttl=TTL_S).__enter__()
    theirs = sync.Lock(other, "nightly").acquire()
    hold = sync.Lock(keeper, "mine").acquire()
    session = keeper.live(WITHIN_S)
    waiting: list[Future[Any]] = [
        pool.submit(sync.Lock(keeper, "nightly").acquire),
        pool.submit(sync.Election(keeper, "nightly").win),
        pool.submit(session.lost),
    ]
    waiting[1].result(WITHIN_S)
    news = sync.Election(keeper, "another").observe()
    assert news.get(WITHIN_S) is None
    observing = pool.submit(list, news)
    steps = keeper._steps
    assert steps is not None
    while steps.run(lambda: len(keeper._calls)) < 3:
        pass
    keeper.close("the harbour freezes")
    keeper.close()
    for each in (waiting[0], waiting[2]):
        with pytest.raises(AlreadyClosed):
            each.result(WITHIN_S)
    assert observing.result(WITHIN_S) == []
    assert not hold.is_held
    assert not hold.release()
    with pytest.raises(AlreadyClosed, match="is closed"):
        keeper.live(WITHIN_S)
    with pytest.raises(SessionLost):
        session.check()
    assert store.lease_info(session.lease) is None
    assert theirs.release()
    other.close()


def test_a_keeper_is_used_inside_its_block_only(store: sync.Store) -> None:
    with pytest.raises(BadArgument):
        sync.SessionKeeper(store, ttl=-1.0)
    keeper = sync.SessionKeeper(store)
    with pytest.raises(UsageError, match="before it was entered"):
        keeper.live()
    with pytest.raises(UsageError, match="before it was entered"):
        sync.Lock(keeper, "nightly").acquire()
    with keeper:
        assert keeper.live(WITHIN_S).is_live
    with pytest.raises(UsageError, match="once"):
        keeper.__enter__()


def test_who_asks_for_a_session_of_a_store_that_is_away_is_told_in_time() -> None:
    with sync.open_store("memory://far") as store:
        inner, steps = store._inner, store._steps
        assert isinstance(inner, MemoryStore)
        assert steps is not None
        steps.run(inner.pause)
        with sync.SessionKeeper(store, ttl=TTL_S) as keeper:
            with pytest.raises((TimedOut, StoreUnavailable), match="has none after"):
                keeper.live(0.05)
            steps.run(inner.resume)
            assert keeper.live(WITHIN_S).is_live
            hold = sync.Lock(keeper, "nightly").acquire(timeout=WITHIN_S)
            hold.release()
            with pytest.raises(NotHeld):
                hold.check()


def test_the_last_process_with_an_id_closes_the_keeper_of_the_one_before(store: sync.Store) -> None:
    with (
        sync.SessionKeeper(store, ttl=TTL_S) as keeper,
        sync.Members(store, COG, session=keeper) as former,
        sync.Members(store, COG) as later,
    ):
        later.until(lambda view: view["cog"].incarnation == later.me.incarnation, timeout=WITHIN_S)
        with pytest.raises(AlreadyClosed, match="replaced by a newer process"):
            while True:
                keeper.live(WITHIN_S)
        assert not former.is_member
        assert later.is_member
