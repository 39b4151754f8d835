"""The machine that knows who is a member, step by step and against a naive model."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hansa.coordination.member import (
    MemberDown,
    MemberEvent,
    MemberJoined,
    MemberLeft,
    MemberRefuted,
    MemberStatus,
    MemberSuspected,
    MemberUpdated,
    NodeInfo,
    NodeRecord,
)
from hansa.coordination.roster import TRANSITIONS, RosterBook, Suspicion
from hansa.store.values import KeyValue

S = MemberStatus
HERE = (S.JOINING, S.UP, S.DRAINING)
GONE_S_MAX, GONE_COUNT_MAX = 100.0, 3


class Bench:
    """A book, and words for what happens to it."""

    def __init__(self) -> None:
        self.book = RosterBook(gone_s_max=GONE_S_MAX, gone_count_max=GONE_COUNT_MAX)
        self.now = 1_000.0
        self.revision = 10

    def put(
        self, name: str, status: S = S.UP, *, stay: int = 1, lease: int = 7, reason: str = "", zone: str = ""
    ) -> list[MemberEvent]:
        info = NodeInfo(id=name, status=status, zone=zone)
        record = NodeRecord(info=info, incarnation=stay, joined_at=5.0, reason=reason)
        return self.records([(name, self.item(record.encode(), lease))], [])

    def delete(self, name: str, *, is_after_gap: bool = False) -> list[MemberEvent]:
        return self.records([], [name], is_after_gap=is_after_gap)

    def records(
        self, puts: list[tuple[str, KeyValue]], deletes: list[str], *, is_after_gap: bool = False
    ) -> list[MemberEvent]:
        self.revision += 1
        return self.book.change_records(
            puts,
            deletes,
            revision=self.revision,
            is_after_gap=is_after_gap,
            now=self.now,
            wall=self.now,
        )

    def suspect(
        self, name: str, is_suspect: bool = True, *, stay: int = 1, lease: int = 7
    ) -> list[MemberEvent]:
        value = Suspicion(incarnation=stay, is_suspect=is_suspect, by="w", silence_s=5.0).encode()
        return self.book.change_suspicions([(name, self.item(value, lease))], [], now=self.now, wall=self.now)

    def forget_suspicion(self, name: str) -> list[MemberEvent]:
        return self.book.change_suspicions([], [name], now=self.now, wall=self.now)

    def item(self, value: bytes, lease: int) -> KeyValue:
        self.revision += 1
        return KeyValue(
            key=b"k", value=value, create_revision=1, mod_revision=self.revision, version=1, lease=lease
        )

    def status(self, name: str) -> S:
        return self.book.roster[name].status


def kinds(events: list[MemberEvent]) -> list[type[MemberEvent]]:
    return [type(event) for event in events]


@pytest.mark.spec("CRD-05")
def test_the_table_of_transitions_is_whole() -> None:
    """Every step that can be made is in it, by one rule each; and no other."""
    for before in (None, *S):
        for after in S:
            kind: type[MemberEvent] | None
            if after is S.DOWN:
                kind = MemberDown if before is not None and before.is_here else None
            elif after is S.LEFT:
                kind = None if before is S.LEFT else MemberLeft
            elif before is None or not before.is_here:
                kind = MemberJoined
            elif after is S.SUSPECT:
                kind = MemberUpdated if before is S.SUSPECT else MemberSuspected
            else:
                kind = MemberRefuted if before is S.SUSPECT else MemberUpdated
            assert TRANSITIONS.get((before, after)) is kind, (before, after)


@pytest.mark.parametrize("status", HERE)
def test_a_record_is_a_member(status: S) -> None:
    bench = Bench()
    (joined,) = bench.put("a", status, reason="joined")
    assert isinstance(joined, MemberJoined)
    assert (joined.member.status, joined.reason, joined.revision) == (status, "joined", 11)
    assert joined.member.since == 5.0
    assert bench.book.roster["a"] is joined.member


@pytest.mark.spec("CRD-06")
@pytest.mark.parametrize("status", HERE)
def test_a_suspicion_comes_and_is_refuted(status: S) -> None:
    bench = Bench()
    bench.put("a", status)
    bench.now += 7
    (suspected,) = bench.suspect("a")
    assert isinstance(suspected, MemberSuspected)
    assert suspected.reason == "no heartbeat for 5.0 s, seen by w"
    assert (suspected.member.since, suspected.member.info.status) == (bench.now, status)
    assert bench.suspect("a") == []
    (refuted,) = bench.suspect("a", False)
    assert isinstance(refuted, MemberRefuted)
    assert bench.status("a") is status
    assert bench.suspect("a", False) == []


def test_a_suspicion_of_another_stay_says_nothing() -> None:
    bench = Bench()
    bench.put("a", stay=4)
    assert bench.suspect("a", stay=3) == []
    assert bench.suspect("a", stay=5) == []
    assert bench.status("a") is S.UP
    # The record of the suspected stay comes later: two watches keep no order.
    assert kinds(bench.put("a", stay=5)) == [MemberDown, MemberJoined]
    assert bench.status("a") is S.SUSPECT


def test_a_suspicion_that_vanishes_is_no_refutation() -> None:
    bench = Bench()
    bench.put("a")
    bench.suspect("a")
    assert bench.book.suspicion_revision("a") > 0
    assert bench.forget_suspicion("a") == []
    assert bench.book.suspicion_revision("a") == 0
    assert bench.status("a") is S.SUSPECT
    assert kinds(bench.delete("a")) == [MemberDown]
    assert bench.suspect("a", False) == []
    assert bench.status("a") is S.DOWN


def test_a_suspect_that_says_something_stays_suspected() -> None:
    bench = Bench()
    bench.put("a")
    bench.suspect("a")
    assert kinds(bench.put("a", S.DRAINING)) == [MemberUpdated]
    assert bench.status("a") is S.SUSPECT
    bench.suspect("a", False)
    assert bench.status("a") is S.DRAINING


@pytest.mark.spec("CRD-05")
def test_who_leaves_has_left_and_does_not_die_as_well() -> None:
    bench = Bench()
    bench.put("a")
    (left,) = bench.put("a", S.LEFT, reason="new version")
    assert isinstance(left, MemberLeft)
    assert left.reason == "new version"
    assert bench.delete("a") == []
    assert bench.status("a") is S.LEFT
    assert kinds(bench.put("a", stay=2)) == [MemberJoined]


@pytest.mark.parametrize(
    ("gap", "reason"), [(False, "its lease ended"), (True, "it left, or its lease ended")]
)
def test_a_record_that_is_gone_is_a_member_that_is_down(gap: bool, reason: str) -> None:
    bench = Bench()
    bench.put("a")
    bench.now += 1
    (down,) = bench.delete("a", is_after_gap=gap)
    assert isinstance(down, MemberDown)
    assert reason in down.reason
    assert down.revision == bench.revision
    assert bench.delete("a") == []
    assert bench.book.roster["a"].since == bench.now


def test_a_newer_process_ends_the_stay_of_the_former_one() -> None:
    bench = Bench()
    bench.put("a", stay=1)
    down, joined = bench.put("a", stay=2, lease=8)
    assert isinstance(down, MemberDown)
    assert isinstance(joined, MemberJoined)
    assert "incarnation 2" in down.reason
    assert (down.member.incarnation, joined.member.incarnation) == (1, 2)
    assert down.revision == joined.revision
    # One that has left is not down as well.
    bench.put("a", S.LEFT, stay=2)
    assert kinds(bench.put("a", stay=3)) == [MemberJoined]


def test_a_record_that_moves_to_another_lease_is_no_event() -> None:
    bench = Bench()
    bench.put("a", lease=7)
    assert bench.put("a", lease=8) == []
    assert bench.book.roster["a"].lease == 8
    assert kinds(bench.put("a", lease=8, zone="east")) == [MemberUpdated]
    # Nor when something else was said of it meanwhile than it said itself.
    bench.suspect("a", lease=8)
    (refuted,) = bench.suspect("a", False, lease=8)
    assert bench.put("a", lease=9, zone="east", reason="joined") == []
    assert bench.book.roster["a"].reason == refuted.reason


def test_a_suspicion_holds_for_the_lease_that_it_hangs_on() -> None:
    bench = Bench()
    bench.put("a", lease=7)
    bench.suspect("a", lease=7)
    (refuted,) = bench.put("a", lease=8)
    assert isinstance(refuted, MemberRefuted)
    assert refuted.reason == "it has a new lease"
    # Two watches keep no order: what is told of the old lease comes too late.
    assert bench.suspect("a", lease=7) == []
    assert bench.status("a") is S.UP
    assert kinds(bench.suspect("a", lease=8)) == [MemberSuspected]
    # And the other way round.
    bench.suspect("b", lease=9)
    assert kinds(bench.put("b", lease=8)) == [MemberJoined]
    assert bench.status("b") is S.UP
    bench.put("b", lease=9)
    assert bench.status("b") is S.SUSPECT


def test_deletes_come_before_puts() -> None:
    bench = Bench()
    bench.put("a")
    record = NodeRecord(info=NodeInfo(id="a"), incarnation=1)
    events = bench.records([("a", bench.item(record.encode(), 9))], ["a"], is_after_gap=True)
    assert kinds(events) == [MemberDown, MemberJoined]


def test_what_cannot_be_read_is_counted_and_changes_nothing() -> None:
    bench = Bench()
    bench.put("a")
    bench.suspect("a")
    assert bench.records([("a", bench.item(b"{", 7))], []) == []
    assert bench.book.change_suspicions([("a", bench.item(b"{", 7))], [], now=0.0, wall=0.0) == []
    other = NodeRecord(info=NodeInfo(id="b"))
    assert bench.records([("a", bench.item(other.encode(), 7))], []) == []
    assert bench.book.bad_records_count == 3
    assert list(bench.book.roster) == ["a"]
    assert bench.status("a") is S.SUSPECT


def test_the_gone_are_forgotten_after_a_while_and_when_they_are_too_many() -> None:
    bench = Bench()
    for name in "abcde":
        bench.put(name)
        bench.delete(name)
        bench.now += 10
    assert list(bench.book.roster) == ["c", "d", "e"]
    assert bench.book.forgotten_count == 2
    bench.book.tick(now=bench.now + GONE_S_MAX - 31)
    assert list(bench.book.roster) == ["c", "d", "e"]
    bench.book.tick(now=bench.now + GONE_S_MAX - 29)
    assert list(bench.book.roster) == ["d", "e"]
    bench.put("d", stay=2)
    bench.book.tick(now=bench.now + 10 * GONE_S_MAX)
    assert list(bench.book.roster) == ["d"]
    assert kinds(bench.put("e", stay=2)) == [MemberJoined]


def test_a_roster_never_changes() -> None:
    bench = Bench()
    bench.put("b")
    before = bench.book.roster
    bench.put("a")
    assert list(before) == ["b"]
    assert list(bench.book.roster) == ["a", "b"]
    assert bench.book.roster is bench.book.roster


# ---- against a naive model ----------------------------------------------------------------------


@dataclass
class Model:
    """What the two prefixes hold, and what was said last of those that are gone."""

    records: dict[str, tuple[S, int]] = field(default_factory=dict)
    suspicions: dict[str, tuple[bool, int]] = field(default_factory=dict)
    # Whether a stay is suspected goes on being believed when the suspicion vanishes.
    suspected: dict[str, int] = field(default_factory=dict)
    gone: dict[str, S] = field(default_factory=dict)

    def status(self, name: str) -> S | None:
        if name not in self.records:
            return self.gone.get(name)
        said, stay = self.records[name]
        return S.SUSPECT if said.is_here and self.suspected.get(name) == stay else said


NAMES = st.sampled_from("abc")
STAYS = st.integers(1, 3)
ACTIONS = st.one_of(
    st.tuples(st.just("put"), NAMES, st.sampled_from((*HERE, S.LEFT)), STAYS),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("suspect"), NAMES, st.booleans(), STAYS),
    st.tuples(st.just("vanish"), NAMES),
)


@settings(max_examples=300)
@given(st.lists(ACTIONS, max_size=40))
def test_the_book_says_what_a_naive_model_says(actions: list[tuple[str, ...]]) -> None:
    bench, model = Bench(), Model()
    told: dict[str, list[MemberEvent]] = {name: [] for name in "abc"}
    for action in actions:
        name = action[1]
        before = model.status(name)
        events = act(bench, model, action)
        after = model.status(name)
        if name in bench.book.roster:
            assert bench.status(name) is after, action
        else:
            assert after is None
        # No event without a reason, and of nobody else; a change of status is always told.
        assert {event.member.id for event in events} <= {name}
        assert all(event.reason for event in events)
        assert events or before is after or (before is S.DOWN and after is S.LEFT), action
        told[name] += events
    for events in told.values():
        assert_a_story(events)


def act(bench: Bench, model: Model, action: tuple[str, ...]) -> list[MemberEvent]:
    match action:
        case ("put", name, status, stay):
            assert isinstance(status, S)
            assert isinstance(stay, int)
            model.records[name] = (status, stay)
            suspicion = model.suspicions.get(name)
            # A record is read with the suspicion that is known then.
            model.suspected.pop(name, None)
            if suspicion == (True, stay):
                model.suspected[name] = stay
            return bench.put(name, status, stay=stay)
        case ("delete", name):
            if name in model.records:
                left = model.records.pop(name)[0] is S.LEFT
                model.gone[name] = S.LEFT if left else S.DOWN
            return bench.delete(name)
        case ("suspect", name, is_suspect, stay):
            assert isinstance(stay, int)
            model.suspicions[name] = (bool(is_suspect), stay)
            if name in model.records and model.records[name][1] == stay:
                model.suspected.pop(name, None)
                if is_suspect:
                    model.suspected[name] = stay
            return bench.suspect(name, bool(is_suspect), stay=stay)
    model.suspicions.pop(action[1], None)
    return bench.forget_suspicion(action[1])


def assert_a_story(events: list[MemberEvent]) -> None:
    """What is told of one member makes sense to who hears nothing else."""
    status: S | None = None
    revision = 0
    for event in events:
        assert TRANSITIONS[status, event.member.status] is type(event), events
        assert event.revision >= revision or isinstance(event, MemberSuspected | MemberRefuted)
        status, revision = event.member.status, max(event.revision, revision)
