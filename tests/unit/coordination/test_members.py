"""Members in virtual time: every status, how it comes and how it goes."""

from typing import Any

import pytest

from hansa.coordination.member import (
    Expelled,
    MemberDown,
    MemberLeft,
    MemberStatus,
    MemberSuspected,
    NodeInfo,
    Rejoined,
)
from hansa.coordination.members import Members
from hansa.coordination.roster import Suspicion
from hansa.errors import AlreadyClosed, BadArgument, Conflict, TimedOut, UsageError
from hansa.keys import Keys
from hansa.store.values import LeaseInfo, Put
from tests.support.member_stage import MemberStage, brief, told

INTERVAL_S, TIMEOUT_S = 1.0, 5.0
# A look comes once an interval, moved by a fifth, and the store's answers take no time here.
LATE_S = 1.25 * INTERVAL_S


@pytest.mark.spec("CRD-05")
def test_members_know_each_other_by_id_role_and_zone() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a", node=NodeInfo(id="a", host="10.0.0.1", port=7, roles=frozenset({"pm"})))
        b = await stage.join(
            "b",
            node=NodeInfo(
                id="b", roles=frozenset({"ps"}), zone="east", version="2", metadata={"disk": "ssd"}
            ),
        )
        for members in (a, b):
            view = await members.until(lambda view: len(view.up()) == 2, timeout=1)
            assert list(view) == ["a", "b"]
            assert view["a"].address == "10.0.0.1:7"
            assert (view["b"].version, dict(view["b"].metadata)) == ("2", {"disk": "ssd"})
            assert [one.id for one in view.by_role("ps")] == ["b"]
            assert [one.id for one in view.by_zone("east")] == ["b"]
            assert {one.reason for one in view.values()} == {"joined"}
        assert (a.me.id, b.me.id) == ("a", "b")
        assert b.me.incarnation > a.me.incarnation
        assert a.is_member

    MemberStage.play(scene)


@pytest.mark.spec("CRD-06")
def test_a_silent_member_is_suspected_after_the_timeout_and_down_after_twice_that() -> None:
    async def scene(stage: MemberStage) -> None:
        views = [await stage.join(name) for name in "abcde"]
        for view in views:
            await view.until(lambda view: len(view.up()) == 5, timeout=1)
        events = views[0].events()
        stage.kill("e")
        began_s = stage.loop.time()
        for view in views[:4]:
            await view.until(lambda view: view["e"].status is MemberStatus.SUSPECT, timeout=60)
        # Its last heartbeat was up to an interval before its end.
        assert TIMEOUT_S - INTERVAL_S <= stage.loop.time() - began_s <= TIMEOUT_S + LATE_S
        for view in views[:4]:
            await view.until(lambda view: view["e"].status is MemberStatus.DOWN, timeout=60)
        assert 2 * TIMEOUT_S - INTERVAL_S <= stage.loop.time() - began_s <= 2 * TIMEOUT_S + 0.1
        suspected, down = told(events)
        assert isinstance(suspected, MemberSuspected)
        assert isinstance(down, MemberDown)
        assert suspected.reason.startswith("no heartbeat for 5.")
        assert down.reason == "its lease ended"
        assert views[0].view["e"].reason == down.reason
        # One of them was the first, and only that one counts it.
        assert sum(view.stats.suspicions_count for view in views[:4]) == 1
        assert {len(view.view.here()) for view in views[:4]} == {4}

    MemberStage.play(scene)


def test_the_well_are_asked_for_only_when_they_could_be_overdue() -> None:
    async def scene(stage: MemberStage) -> None:
        asked: list[int] = []
        lease_info = stage.store.lease_info

        async def counted(lease: int, **options: Any) -> LeaseInfo | None:
            asked.append(lease)
            return await lease_info(lease, **options)

        stage.store.lease_info = counted  # type: ignore[method-assign]
        views = [await stage.join(name) for name in "abcde"]
        await stage.passed(100)
        # Each looks after three others, whose last heartbeat was up to an interval before.
        assert len(asked) / 100 <= 5 * 3 / (TIMEOUT_S - INTERVAL_S)
        assert set(asked) == {view.me.lease for view in views}
        assert all(len(view.heartbeats_s) == 3 for view in views)
        assert not any(view.stats.suspicions_count or view.is_stale for view in views)

    MemberStage.play(scene)


@pytest.mark.spec("CRD-06")
def test_who_comes_later_is_looked_after_too() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        await stage.passed(10)
        await stage.join("b", heartbeat_interval=5.0, heartbeat_timeout=30.0)
        await stage.passed(10)
        # Under the same id, and with less patience.
        await stage.join("b")
        await a.until(lambda view: view["b"].is_here, timeout=1)
        stage.kill("b")
        took_s = await stage.took_s(a, lambda view: view["b"].status is MemberStatus.SUSPECT)
        assert took_s <= TIMEOUT_S + LATE_S

    MemberStage.play(scene)


def test_a_suspicion_without_cause_is_refuted_at_the_next_look() -> None:
    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        suspicion = Suspicion(incarnation=b.me.incarnation, is_suspect=True, by="x", silence_s=9.0)
        for _ in range(5):
            await stage.passed(1.3)
            # It cannot say so itself.
            stage.pause("b")
            await stage.store.put(Keys().suspect("b"), suspicion.encode(), lease=b.me.lease)
            await a.until(lambda view: view["b"].status is MemberStatus.SUSPECT, timeout=1)
            took_s = await stage.took_s(a, lambda view: view["b"].status is MemberStatus.UP)
            assert took_s <= LATE_S
            stage.resume("b")

    MemberStage.play(scene)


def test_whose_heartbeats_are_answered_has_no_stale_view(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(stage: MemberStage) -> None:
        await stage.join("a")
        await stage.join("b")
        await stage.passed(200)

    MemberStage.play(scene)
    assert "stale" not in caplog.text


@pytest.mark.spec("CRD-06")
def test_a_late_heartbeat_refutes_a_suspicion() -> None:
    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        incarnation, events = b.me.incarnation, a.events()
        stage.pause("b")
        await a.until(lambda view: view["b"].status is MemberStatus.SUSPECT, timeout=10)
        stage.resume("b")
        took_s = await stage.took_s(a, lambda view: view["b"].status is MemberStatus.UP)
        assert took_s <= LATE_S
        assert brief(told(events)) == [("MemberSuspected", "b"), ("MemberRefuted", "b")]
        assert a.view["b"].reason.startswith("a heartbeat ")
        assert a.stats.false_suspicions_count == 1
        await b.until(lambda view: view["b"].status is MemberStatus.UP, timeout=5)
        assert b.me.incarnation == incarnation
        assert b.stats.rejoins_count == 0
        # Once more: a refutation is no pardon.
        stage.pause("b")
        await a.until(lambda view: view["b"].status is MemberStatus.SUSPECT, timeout=10)
        stage.resume("b")
        await a.until(lambda view: view["b"].status is MemberStatus.UP, timeout=10)

    MemberStage.play(scene)


@pytest.mark.spec("CRD-06")
def test_a_member_that_was_away_for_too_long_joins_again_and_tells_itself() -> None:
    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        first, seen, own = b.me.incarnation, a.events(), b.events()
        stage.pause("b")
        await a.until(lambda view: view["b"].status is MemberStatus.DOWN, timeout=20)
        stage.resume("b")
        await a.until(lambda view: view["b"].status is MemberStatus.UP, timeout=5)
        assert brief(told(seen)) == [("MemberSuspected", "b"), ("MemberDown", "b"), ("MemberJoined", "b")]
        assert a.view["b"].incarnation > first
        await b.until(lambda view: view["b"].status is MemberStatus.UP, timeout=5)
        rejoined = [event for event in told(own) if isinstance(event, Rejoined)]
        assert [event.reason.split(":")[0] for event in rejoined] == ["joined again"]
        assert b.stats.rejoins_count == 1
        assert b.is_member

    MemberStage.play(scene)


@pytest.mark.spec("CRD-06")
def test_a_member_whose_record_was_deleted_joins_again() -> None:
    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        first, events = b.me.incarnation, a.events()
        await stage.store.delete("/hansa/default/nodes/b")
        await a.until(lambda view: view["b"].incarnation > first, timeout=5)
        assert brief(told(events)) == [("MemberDown", "b"), ("MemberJoined", "b")]
        assert a.view["b"].reason == "joined again: its record was gone"

    MemberStage.play(scene)


@pytest.mark.spec("CRD-05")
def test_a_member_that_leaves_is_seen_so_at_once() -> None:
    async def scene(stage: MemberStage) -> None:
        a, _ = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        events = a.events()
        began_s = stage.loop.time()
        await stage.leave("b")
        await a.until(lambda view: view["b"].status is MemberStatus.LEFT, timeout=1)
        assert stage.loop.time() == began_s
        (left,) = told(events)
        assert isinstance(left, MemberLeft)
        assert left.reason == "left"
        assert (await stage.store.scan("/hansa/")).count == 1
        # Long after that it is still to be seen, and still has not died.
        await stage.passed(50)
        assert a.view["b"].status is MemberStatus.LEFT

    MemberStage.play(scene)


@pytest.mark.spec("CRD-05")
def test_a_member_says_that_it_drains_and_what_it_has() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        b = await stage.join("b", node=NodeInfo(id="b", status=MemberStatus.JOINING))
        await a.until(lambda view: "b" in view, timeout=1)
        events = a.events()
        assert a.view["b"].status is MemberStatus.JOINING
        await b.set_status(MemberStatus.UP)
        await b.set_status(MemberStatus.UP)
        await b.set_status(MemberStatus.DRAINING, reason="new version")
        await b.update(metadata={"queue": "3"}, zone="west", roles=frozenset({"ps"}), version="9")
        await a.until(lambda view: view["b"].zone == "west", timeout=1)
        assert brief(told(events)) == [("MemberUpdated", "b")] * 3
        drained = a.view["b"]
        assert drained.status is MemberStatus.DRAINING
        assert (dict(drained.metadata), drained.roles, drained.version) == (
            {"queue": "3"},
            frozenset({"ps"}),
            "9",
        )
        assert a.view.up() == (a.view["a"],)
        for wrong in (MemberStatus.JOINING, MemberStatus.SUSPECT, MemberStatus.DOWN, MemberStatus.LEFT):
            with pytest.raises(BadArgument, match="cannot say"):
                await b.set_status(wrong)

    MemberStage.play(scene)


def test_a_draining_member_that_is_suspected_drains_on_when_it_is_refuted() -> None:
    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await b.set_status(MemberStatus.DRAINING)
        await a.until(lambda view: view["b"].status is MemberStatus.DRAINING, timeout=1)
        stage.pause("b")
        await a.until(lambda view: view["b"].status is MemberStatus.SUSPECT, timeout=10)
        stage.resume("b")
        await a.until(lambda view: view["b"].status is MemberStatus.DRAINING, timeout=10)

    MemberStage.play(scene)


def test_the_latest_process_with_an_id_wins_and_the_former_one_stops() -> None:
    async def scene(stage: MemberStage) -> None:
        a, old = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        seen, own = a.events(), old.events()
        began_s = stage.loop.time()
        new = await stage.join("b")
        assert stage.loop.time() == began_s
        await a.until(lambda view: view["b"].incarnation == new.me.incarnation, timeout=1)
        down, joined = told(seen)
        assert brief([down, joined]) == [("MemberDown", "b"), ("MemberJoined", "b")]
        assert down.reason == f"followed by a newer stay (incarnation {new.me.incarnation}): joined"
        while old.is_member:
            await old._changed.wait()
        expelled = [event for event in told(own) if isinstance(event, Expelled)]
        assert [event.reason for event in expelled] == [
            f"replaced by a newer process (incarnation {new.me.incarnation})"
        ]
        # The former one takes nothing along when it goes.
        await stage.passed(30)
        assert told(seen) == []
        assert new.is_member

    MemberStage.play(scene)


def test_a_restarted_process_does_not_wait_for_its_predecessors_lease() -> None:
    async def scene(stage: MemberStage) -> None:
        a, _ = await stage.join("a"), await stage.join("b")
        stage.kill("b")
        began_s = stage.loop.time()
        new = await stage.join("b")
        assert stage.loop.time() == began_s
        await a.until(lambda view: view["b"].incarnation == new.me.incarnation, timeout=1)
        events = a.events()
        # Nothing happens when the old lease ends.
        await stage.passed(30)
        assert told(events) == []

    MemberStage.play(scene)


def test_without_takeover_an_id_that_is_there_is_refused() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        with pytest.raises(Conflict, match="node a is there already"):
            await stage.join("a", takeover=False)
        assert a.is_member
        assert (await stage.store.scan("/hansa/")).count == 1
        await stage.leave("a")
        again = await stage.join("a", takeover=False)
        assert again.is_member

    MemberStage.play(scene)


@pytest.mark.spec("CRD-11")
def test_while_the_store_is_away_nobody_is_declared_dead_and_the_view_says_that_it_is_old() -> None:
    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        incarnation, events = b.me.incarnation, a.events()
        stage.store.pause()
        assert TIMEOUT_S < await stage.took_s(a, lambda view: a.is_stale) < TIMEOUT_S + LATE_S
        await stage.passed(2)
        assert a.stale_s > TIMEOUT_S + 2
        assert told(events) == []
        assert len(a.view.up()) == 2
        # Before the leases ended: nothing has happened to anybody.
        stage.store.resume()
        await stage.took_s(a, lambda view: not a.is_stale)
        assert a.stale_s == 0.0
        await stage.passed(20)
        assert told(events) == []
        assert b.me.incarnation == incarnation
        assert a.stats.store_errors_count > 0

    MemberStage.play(scene)


@pytest.mark.spec("CRD-11")
def test_after_a_long_absence_of_the_store_all_join_again_by_themselves() -> None:
    async def scene(stage: MemberStage) -> None:
        a, b = await stage.join("a"), await stage.join("b")
        await a.until(lambda view: len(view.up()) == 2, timeout=1)
        first = {members.me.incarnation for members in (a, b)}
        stage.store.pause()
        await stage.passed(60)
        assert (len(a.view.up()), a.is_stale, a.is_member) == (2, True, False)
        # The memory store lets leases end while it is away: all records are gone when it is back.
        stage.store.resume()
        for members in (a, b):
            await members.until(
                lambda view: len([one for one in view.up() if one.incarnation not in first]) == 2, timeout=10
            )
            assert members.stats.rejoins_count == 1

    MemberStage.play(scene)


@pytest.mark.spec("CRD-03")
def test_a_compaction_during_the_watch_costs_nothing_that_matters() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        await stage.join("b")
        await a.until(lambda view: "b" in view, timeout=1)
        events = a.events()
        # While a stands still its watch falls behind, and the history behind it is forgotten.
        stage.pause("a")
        await stage.join("c")
        await stage.leave("b")
        watch = a._nodes._watch
        assert watch is not None
        watch.close()
        stage.resume("a")
        await a.until(lambda view: "c" in view and not view["b"].is_here, timeout=5)
        assert sorted(brief(told(events))) == [("MemberDown", "b"), ("MemberJoined", "c")]
        assert a.view["b"].reason == "it left, or its lease ended, where this view could not see it"

    MemberStage.play(scene)


def test_a_view_without_a_node_only_looks() -> None:
    async def scene(stage: MemberStage) -> None:
        await stage.join("a")
        async with Members(stage.store) as looker:
            assert list(looker.view) == ["a"]
            assert not looker.is_member
            with pytest.raises(UsageError, match="only looks"):
                _ = looker.me
            with pytest.raises(UsageError, match="only looks"):
                await looker.set_status(MemberStatus.DRAINING)
            stage.kill("a")
            took_s = await stage.took_s(looker, lambda view: view["a"].status is MemberStatus.DOWN)
            assert took_s <= 2 * TIMEOUT_S
            # Nobody was there to suspect it, and a looker does not.
            assert (await stage.store.scan("/hansa/")).count == 0
        with pytest.raises(AlreadyClosed):
            await looker.until(lambda view: False)

    MemberStage.play(scene)


def test_a_store_that_does_not_answer_cannot_be_joined() -> None:
    async def scene(stage: MemberStage) -> None:
        stage.store.pause()
        began_s = stage.loop.time()
        with pytest.raises(TimedOut, match="did not answer within 3"):
            await stage.join("a", timeout=3.0)
        assert stage.loop.time() - began_s < 3.0 + 2 * 2.0
        stage.store.resume()
        assert (await stage.store.scan("/hansa/")).count == 0

    MemberStage.play(scene)


def test_wrong_times_are_refused() -> None:
    async def scene(stage: MemberStage) -> None:
        for interval, timeout in ((0.0, 5.0), (3.0, 5.0), (-1.0, 1.0)):
            with pytest.raises(BadArgument, match="two intervals"):
                Members(stage.store, heartbeat_interval=interval, heartbeat_timeout=timeout)
        for status in (MemberStatus.LEFT, MemberStatus.DOWN, MemberStatus.SUSPECT):
            with pytest.raises(BadArgument, match="joins as"):
                Members(stage.store, NodeInfo(id="a", status=status))

    MemberStage.play(scene)


def test_a_record_that_nobody_can_read_is_counted_and_changes_nothing() -> None:
    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        await stage.store.commit(
            [],
            [
                Put("/hansa/default/nodes/x", b"{"),
                Put("/hansa/default/nodes/y", NodeInfo(id="z").encode()),
                Put("/hansa/default/nodes/\xff".encode("latin-1"), NodeInfo(id="z").encode()),
                Put("/hansa/default/suspects/a", b"[]"),
            ],
        )
        b = await stage.join("b")
        await a.until(lambda view: "b" in view, timeout=1)
        assert list(a.view) == ["a", "b"]
        assert a.stats.bad_records_count == 4
        assert b.stats.bad_records_count == 4

    MemberStage.play(scene)


def test_a_slow_reader_of_events_loses_the_oldest_and_is_told_how_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hansa.coordination.members.EVENTS_COUNT_MAX", 2)

    async def scene(stage: MemberStage) -> None:
        a = await stage.join("a")
        events = a.events()
        for name in "bcde":
            await stage.join(name)
        await a.until(lambda view: len(view) == 5, timeout=1)
        assert brief(told(events)) == [("MemberJoined", "d"), ("MemberJoined", "e")]
        assert events.dropped_count == 2
        assert a.stats.events_dropped_count == 2

    MemberStage.play(scene)
