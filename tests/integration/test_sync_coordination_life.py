"""Coordination from threads where it hurts: a stuck loop, closing meanwhile, misuse, interrupts, forks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import hansa
from hansa import sync
from hansa.clock import ManualClock
from hansa.coordination import NodeInfo, Roster
from hansa.errors import AlreadyClosed, LeadershipLost, LockLost, SessionLost, UsageError
from hansa.runtime.steps import LooseStep
from hansa.store import MemoryStore
from hansa.sync.ownership import _Observing
from hansa.transport import Environment
from tests.support.interrupts import interrupted_after
from tests.support.leftovers import no_thread_is_left
from tests.support.sync_stage import WITHIN_S

__all__ = ["no_thread_is_left"]

SOURCE = {**os.environ, "PYTHONPATH": str(Path(hansa.__file__).resolve().parents[1])}


@pytest.fixture
def store() -> Iterator[sync.Store]:
    with sync.open_store("memory://docks") as store:
        yield store


@pytest.fixture
def session(store: sync.Store) -> Iterator[sync.Session]:
    with sync.Session(store) as session:
        yield session


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def waiting_calls(mirror: sync.Session | sync.Store | sync.Members, count: int) -> None:
    """Return when so many calls of it wait in the loop."""
    while mirror._steps is not None and mirror._steps.run(lambda: len(mirror._calls)) < count:
        pass


# ---- the truth at any moment -------------------------------------------------------------------


@pytest.mark.spec("CRD-09")
def test_a_hold_is_not_held_from_the_deadline_on_even_while_everything_is_stuck() -> None:
    clock = ManualClock()
    with (
        sync.Store(lambda: MemoryStore(environment=Environment(clock=clock)), name="docks") as store,
        sync.Session(store, ttl=10.0, margin=1.0, loop_silence_s_max=60.0) as session,
        sync.Session(store, ttl=10.0, margin=1.0) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        hold = sync.Lock(session, "nightly").acquire()
        leadership = sync.Election(other, "captain").win()
        stuck, go_on = threading.Event(), threading.Event()
        told: list[bool] = []

        def stick() -> None:
            stuck.set()
            told.append(go_on.wait(WITHIN_S))

        assert session._steps is not None
        session._steps.post(LooseStep(stick))
        try:
            assert stuck.wait(WITHIN_S)
            clock.advance(8.9)
            assert hold.is_held
            assert session.is_live
            assert leadership.is_leading
            assert session.remaining_s == pytest.approx(0.1)
            clock.advance(0.2)
            assert not hold.is_held
            assert not session.is_live
            assert not leadership.is_leading
            assert session.remaining_s == 0.0
            assert session.deadline_s == pytest.approx(9.0)
            for check, error in (
                (hold.check, LockLost),
                (session.check, SessionLost),
                (leadership.check, LeadershipLost),
            ):
                # In another thread too, and without waiting for the one that is stuck.
                assert isinstance(pool.submit(check).exception(WITHIN_S), error)
            assert told == []
        finally:
            go_on.set()
        with pytest.raises(LockLost), hold:
            raise AssertionError("it was lost before")


# ---- closing while others wait -----------------------------------------------------------------


def test_closing_a_session_ends_all_calls_that_wait_for_something_of_it(
    store: sync.Store, session: sync.Session, pool: ThreadPoolExecutor
) -> None:
    with sync.Session(store) as closing:
        lock = sync.Lock(session, "nightly").acquire()
        leading = sync.Election(session, "captain").win()
        released = sync.Lock(closing, "other").acquire()
        released.release()
        seen = sync.Election(closing, "captain").observe()
        assert seen.get(WITHIN_S) is not None
        calls: list[Callable[[], object]] = [
            sync.Lock(closing, "nightly").acquire,
            sync.Election(closing, "captain").win,
            sync.Barrier(closing, "tide", 2).wait,
            closing.lost,
            released.lost,
            seen.get,
        ]
        waiting = [pool.submit(call) for call in calls]
        iterating = pool.submit(list, seen)
        waiting_calls(closing, len(calls) + 1)
        closing.close()
        assert [type(each.exception(WITHIN_S)) for each in waiting] == [AlreadyClosed] * len(calls)
        assert iterating.result(WITHIN_S) == []
    assert sync.Lock(session, "nightly").waiting() == ()
    assert lock.release()
    assert leading.resign()
    with pytest.raises(AlreadyClosed):
        sync.Lock(closing, "nightly").acquire()


def test_a_block_whose_session_another_thread_closes_raises_when_it_is_left(
    store: sync.Store, pool: ThreadPoolExecutor
) -> None:
    session = sync.Session(store).__enter__()
    kept = sync.Lock(session, "kept").acquire()
    with pytest.raises(LockLost), sync.Lock(session, "nightly") as hold:
        pool.submit(session.close).result(WITHIN_S)
        assert not hold.is_held
    assert not kept.release()
    assert not session.is_live
    with pytest.raises(SessionLost):
        session.check()
    with sync.Session(store) as other:
        for name in ("kept", "nightly"):
            assert sync.Lock(other, name).try_acquire() is not None


def test_closing_one_of_two_users_of_a_store_ends_its_own_calls_alone(pool: ThreadPoolExecutor) -> None:
    with sync.open_store("memory://shared") as one, sync.open_store("memory://shared") as two:
        ending, staying = one.watch("berth/"), two.watch("berth/")
        waiting = pool.submit(ending.get)
        waiting_calls(one, 1)
        one.close()
        assert isinstance(waiting.exception(WITHIN_S), AlreadyClosed)
        with pytest.raises(AlreadyClosed):
            one.get("berth/1")
        revision = two.put("berth/1", b"cog")
        assert staying.get(WITHIN_S).revision == revision
        with one:  # It may come back, as long as the store is there.
            found = one.get("berth/1")
            assert found is not None
            assert found.value == b"cog"


def test_a_store_that_another_thread_has_closed_meanwhile_is_made_anew() -> None:
    early = sync.open_store("memory://docks")
    with sync.open_store("memory://docks") as store:
        store.put("berth/1", b"cog")
    with early:
        assert early.get("berth/1") is None


def test_many_threads_that_open_one_name_find_one_store(pool: ThreadPoolExecutor) -> None:
    together = threading.Barrier(8, timeout=WITHIN_S)

    def count(name: str) -> int:
        together.wait()
        with sync.open_store(name) as store:
            store.put(f"berth/{threading.get_ident()}", b"")
            together.wait()
            found = store.scan("berth/").count
            together.wait()
            return found

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(50):
            assert list(pool.map(count, [f"memory://docks-{number}"] * 8)) == [8] * 8
    finally:
        sys.setswitchinterval(interval_s)


def test_who_observes_slowly_misses_nothing_and_who_stops_costs_nothing(session: sync.Session) -> None:
    def observing() -> int:
        assert session._steps is not None
        return session._steps.run(
            lambda: sum("observes" in task.get_name() for task in asyncio.all_tasks() if not task.done())
        )

    election = sync.Election(session, "captain", value=b"0")
    slow, thrown_away = election.observe(), election.observe()
    assert slow.get(WITHIN_S) is None
    with election.campaign() as leadership:
        for number in range(1, 10):
            leadership.proclaim(b"%d" % number)
        # The store keeps what is not read, within its bounds; here waits one at most.
        assert isinstance(slow._inner, _Observing)
        assert len(slow._inner._told) <= 1
        told = [slow.get(WITHIN_S) for _ in range(10)]
    assert [leader and leader.value for leader in told] == [b"%d" % number for number in range(10)]
    assert slow.get(WITHIN_S) is None
    assert observing() == 2
    slow.close()
    del thrown_away
    while observing():
        pass
    assert list(slow) == []


def test_closing_members_ends_what_waits_and_what_listens(
    store: sync.Store, pool: ThreadPoolExecutor
) -> None:
    with sync.Members(store, NodeInfo(id="keeper")) as members:
        events = members.events()
        waiting = pool.submit(members.until, lambda view: False)
        listening = pool.submit(list, events)
        waiting_calls(members, 2)
        members.close()
        members.close()
        assert isinstance(waiting.exception(WITHIN_S), AlreadyClosed)
        assert listening.result(WITHIN_S) == []
    assert "keeper" in members.view
    with pytest.raises(AlreadyClosed):
        members.update(zone="east")
    with pytest.raises(UsageError, match="once"):
        members.__enter__()


# ---- misuse ------------------------------------------------------------------------------------


def test_objects_are_used_inside_their_blocks_only(store: sync.Store) -> None:
    closed = sync.open_store("memory://elsewhere")
    session = sync.Session(store)
    lock = sync.Lock(session, "nightly")
    uses: list[Callable[[], object]] = [
        lambda: closed.get("a"),
        lambda: closed.watch("a"),
        lock.acquire,
        lock.__enter__,
        session.check,
        lambda: session.lease,
        lambda: session.remaining_s,
        sync.Election(session, "captain").observe,
        sync.Barrier(session, "tide", 1).wait,
        lambda: sync.Members(store).until(lambda view: True),
        sync.Members(store).events,
    ]
    for use in uses:
        with pytest.raises(UsageError, match="write `with`"):
            use()
    assert not session.is_live
    with pytest.raises(UsageError, match="not open"), sync.Session(closed):
        pass
    with session, pytest.raises(UsageError, match="open already"):
        session.__enter__()
    with pytest.raises(UsageError, match="once"), session:
        pass


def test_a_thread_does_not_wait_for_itself(session: sync.Session, pool: ThreadPoolExecutor) -> None:
    for line in (sync.Lock(session, "nightly"), sync.Semaphore(session, "cranes", 1)):
        with line as hold:
            with pytest.raises(UsageError, match="already"):
                line.__enter__()
            leaving = pool.submit(line.__exit__, None, None, None)
            assert isinstance(leaving.exception(WITHIN_S), UsageError)
            assert hold.is_held
        with line as again:
            assert again.is_held
    with pytest.raises(UsageError):
        sync.Election(session, "captain").campaign().__exit__(None, None, None)


def test_a_condition_may_look_but_not_wait(store: sync.Store, session: sync.Session) -> None:
    hold = sync.Lock(session, "nightly").acquire()
    caught: list[UsageError] = []

    def condition(view: Roster) -> bool:
        for call in (lambda: store.get("a"), hold.release, session.close, lambda: members.until(condition)):
            try:
                call()
            except UsageError as error:
                caught.append(error)
        return hold.is_held and session.is_live and members.view is view

    with sync.Members(store, NodeInfo(id="keeper")) as members:
        members.until(condition, timeout=WITHIN_S)
        with pytest.raises(SystemExit):
            members.until(lambda view: sys.exit(3), timeout=WITHIN_S)
        assert members.is_member
    assert len(caught) == 4
    assert all("callback" in str(error) for error in caught)


# ---- interrupts and forks ----------------------------------------------------------------------


@pytest.mark.spec("CRD-09")
def test_an_interrupt_of_a_wait_leaves_the_line(store: sync.Store, session: sync.Session) -> None:
    lock, election = sync.Lock(session, "nightly"), sync.Election(session, "captain")
    waits: list[tuple[Callable[[], object], bytes]] = [
        (lock.acquire, session.keys.lock("nightly")),
        (lock.__enter__, session.keys.lock("nightly")),
        (election.win, session.keys.leader("captain")),
    ]
    hold, leadership = lock.acquire(), election.win()
    for wait, prefix in waits:
        watch = store.watch(prefix)
        with interrupted_after(partial(watch.get, WITHIN_S)):  # It stands in the line.
            wait()
        watch.get(WITHIN_S)  # It has left the line.
        assert store.scan(prefix).count == 1
    assert (hold.release(), leadership.resign()) == (True, True)
    with lock, election.campaign() as again:
        assert again.is_leading


def test_an_interrupt_that_comes_too_late_gives_back_what_was_acquired(
    session: sync.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, election = sync.Lock(session, "nightly"), sync.Election(session, "captain")
    call = session._call

    def interrupted(make_work: Callable[[], object], what: str) -> object:
        value = call(make_work, what)  # type: ignore[arg-type,var-annotated]
        if not what.startswith("giving"):
            raise KeyboardInterrupt
        return value

    with monkeypatch.context() as patch:
        patch.setattr(session, "_call", interrupted)
        for acquire in (lock.acquire, lock.try_acquire, lock.__enter__, election.win):
            with pytest.raises(KeyboardInterrupt):
                acquire()
    assert lock.holder() is None
    assert election.leader() is None
    with lock as hold:
        assert hold.is_held


def test_an_interrupted_step_of_a_watch_takes_nothing_out(store: sync.Store) -> None:
    watch = store.watch("berth/")
    watch.ready()
    with interrupted_after(partial(waiting_calls, store, 1)):
        next(watch)
    revision = store.put("berth/1", b"")
    assert watch.get(WITHIN_S).revision == revision


FORKING = """
import os, sys
from hansa import sync
from hansa.coordination import NodeInfo
from hansa.errors import UsageError

with sync.open_store("memory://docks") as store, sync.Session(store) as session:
    members = sync.Members(store, NodeInfo(id="keeper")).__enter__()
    hold = sync.Lock(session, "nightly").acquire()
    leadership = sync.Election(session, "captain").win()
    watch = store.watch("a")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for call in (
                lambda: store.get("a"), watch.get, hold.check, hold.release, session.check, session.renew,
                lambda: hold.is_held, lambda: leadership.is_leading, lambda: session.is_live,
                lambda: session.remaining_s, lambda: members.is_member, lambda: members.view,
            ):
                try:
                    call()
                except UsageError as error:
                    assert "fork" in str(error), error
                else:
                    raise AssertionError(call)
            with sync.open_store("memory://mine") as mine, sync.Session(mine) as other:
                with sync.Lock(other, "nightly") as held:
                    assert held.is_held
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert hold.is_held and hold.release() and members.is_member
    members.close()
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_after_a_fork_nothing_is_held_in_the_child_and_new_objects_work() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING],
        env=SOURCE,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
