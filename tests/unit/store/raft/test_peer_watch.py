"""What a peer tells and writes of its group, from what its own member says at each look."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, cast

import pytest

from hansa.clock import ManualClock
from hansa.errors import HansaError, StoreUnavailable, TimedOut
from hansa.store.etcd import api_pb2 as api
from hansa.store.raft import peer_watch
from hansa.store.raft.etcd_program import RaftTimings
from hansa.store.raft.group import Group, GroupBook, Measures
from hansa.store.raft.group_record import Approval, Bootstrap, Charter, GroupRecord, PeerInfo
from hansa.store.raft.join_steps import MemberView
from hansa.store.raft.peer_watch import PeerWatch
from hansa.store.raft.raft_events import (
    GroupStatus,
    JoinAccepted,
    JoinApproved,
    JoinRequestRefused,
    LeaderChanged,
    RaftEvent,
    SnapshotTaken,
)

NOBODY = "127.0.0.1:1"
WITHIN_S = 20.0
NEVER_S = 3600.0


def peer_of(number: int) -> PeerInfo:
    return PeerInfo(
        name=f"n{number}", peer_address=NOBODY, client_address=NOBODY, join_address=NOBODY, peer_id=number
    )


class Member:
    """The peer's own member, number 1. It says what was laid down for it, the last thing for ever."""

    def __init__(self) -> None:
        self.says: list[tuple[int, int] | HansaError] = []
        self.timings = RaftTimings()
        self.is_learner = False
        self.asked_count = 0

    async def status(self, **_: Any) -> api.StatusResponse:
        self.asked_count += 1
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, HansaError):
            raise said
        leader, term = said
        return api.StatusResponse(
            header=api.ResponseHeader(member_id=1, cluster_id=0xC0),
            leader=leader,
            raftTerm=term,
            dbSize=10,
            version="3.4.23",
            isLearner=self.is_learner,
        )


class MadeUp:
    """A group whose record is read as long as it has a leader."""

    app = "orders"

    def __init__(self) -> None:
        self.local = Member()
        self.record = GroupRecord(
            app="orders", version=1, group_id="c0", peers=tuple(map(peer_of, (1, 2, 3)))
        )
        self.has_leader = True
        self.bootstrap: Bootstrap | None = None
        self.is_faster = False

    async def begin(self, book: GroupBook, record: GroupRecord, bootstrap: Bootstrap) -> bool:
        if self.is_faster:
            return False
        self.record, self.bootstrap = record, bootstrap
        return True

    async def status(self) -> GroupStatus:
        return GroupStatus(app="orders", cluster="default", leader="n1", term=2, record_version=1, peers=())

    async def book(self) -> GroupBook:
        if not self.has_leader:
            raise StoreUnavailable("no leader")
        return GroupBook(record=self.record, record_revision=1, requests=())

    async def members(self) -> tuple[list[MemberView], dict[int, Any]]:
        peers = self.record.peers
        return [
            MemberView(peer_id=one.peer_id, name=one.name, peer_address=one.peer_address) for one in peers
        ], {}

    async def change_record(self, change: Callable[[GroupRecord], GroupRecord | None]) -> None:
        self.record = change(self.record) or self.record


class Desk:
    def __init__(self, charter: Charter | None = None, *, look_s: float = 0.01) -> None:
        self.ready_count = 0
        self.group = MadeUp()
        self.clock = ManualClock()
        self.events: list[RaftEvent] = []
        self.watch = PeerWatch(
            peer_of(1),
            cast(Group, self.group),
            clock=self.clock,
            tell=self.events.append,
            on_ready=self.count_ready,
            figures=lambda: self.watch.stats,
            charter=charter or Charter(),
            look_s=look_s,
            measure_s=1.0,
            patience_s=1.0,
            join_timeout_s=30.0,
            approval_timeout_s=60.0,
        )

    def count_ready(self) -> None:
        self.ready_count += 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
            task = group.create_task(self.watch.run())
            yield
            task.cancel()

    async def look(self, *says: tuple[int, int] | HansaError) -> list[LeaderChanged]:
        """One look at a member that says these; gives what was told about leaders."""
        self.group.local.says = list(says)
        self.events.clear()
        with suppress(HansaError):
            await self.watch._look()
        return [event for event in self.events if isinstance(event, LeaderChanged)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_leader_and_its_term_are_told_once(desk: Desk) -> None:
    assert await desk.look((1, 2)) == [LeaderChanged(leader="n1", term=2)]
    assert await desk.look((1, 2)) == []
    assert desk.watch.is_leading
    assert await desk.look((1, 3)) == [LeaderChanged(leader="n1", term=3)]
    assert desk.watch.stats.leader_changes_count == 1


@pytest.mark.spec("CRD-12")
async def test_a_leader_is_told_with_its_own_term_and_not_with_the_one_before(desk: Desk) -> None:
    await desk.look((1, 2))
    # The member has heard of the new leader and has not applied anything of its term yet.
    assert await desk.look((3, 2), (3, 3)) == [LeaderChanged(leader="n3", term=3)]
    # Another one again, between the two questions: the next look tells.
    assert await desk.look((1, 3), (2, 4)) == []
    assert await desk.look((2, 5)) == [LeaderChanged(leader="n2", term=5)]
    assert desk.watch.stats.leader_changes_count == 3


@pytest.mark.spec("CRD-12")
async def test_a_leader_that_lost_its_quorum_leads_no_more_and_says_so(desk: Desk) -> None:
    await desk.look((1, 2))
    desk.group.has_leader = False
    assert await desk.look((0, 2)) == [LeaderChanged(leader="", term=2)]
    assert not desk.watch.is_leading
    assert await desk.look((0, 2)) == []
    desk.group.has_leader = True
    assert await desk.look((1, 3)) == [LeaderChanged(leader="n1", term=3)]
    assert desk.watch.is_leading
    # The same one as before.
    assert desk.watch.stats.leader_changes_count == 1


@pytest.mark.parametrize("silence", [StoreUnavailable("it was killed"), TimedOut("it stands still")])
async def test_a_peer_whose_own_member_is_silent_knows_of_no_leader(desk: Desk, silence: HansaError) -> None:
    await desk.look((1, 2))
    assert await desk.look(silence) == [LeaderChanged(leader="", term=2)]
    assert not desk.watch.is_leading
    assert await desk.look(silence) == []
    assert await desk.look((2, 3)) == [LeaderChanged(leader="n2", term=3)]


async def test_who_asks_for_the_leader_of_a_group_without_one_is_told_at_once(desk: Desk) -> None:
    desk.group.has_leader = False
    desk.group.local.says = [(0, 2)]
    with pytest.raises(StoreUnavailable, match="orders has no leader"):
        await desk.watch.leader_join_address()


# ---- what it writes ----------------------------------------------------------------------------

FOUNDERS = {"n1": "127.0.0.1:0", "n2": "h:2"}


@pytest.mark.spec("CRD-16")
async def test_the_first_peer_writes_what_holds_for_the_group_and_how_it_began() -> None:
    desk = Desk(Charter(founders=FOUNDERS, resource_group="north", approval=Approval.MANUAL))
    desk.group.record = GroupRecord(app="orders")
    await desk.look((1, 2))
    record = desk.group.record
    assert (record.group_id, record.resource_group, record.approval) == ("c0", "north", Approval.MANUAL)
    assert (record.version, record.peers) == (1, (peer_of(1),))
    assert desk.group.bootstrap == Bootstrap(
        app="orders",
        group_id="c0",
        # With the address that it really has.
        founders={"n1": NOBODY, "n2": "h:2"},
        began_by="n1",
        began_at=1_700_000_000.0,
        etcd_version="3.4.23",
    )
    desk.group.bootstrap = None
    await desk.look((1, 2))
    assert desk.group.bootstrap is None


async def test_a_group_from_before_there_were_such_records_gets_them() -> None:
    desk = Desk()
    desk.group.record = replace(desk.group.record, group_id="")
    await desk.look((1, 2))
    assert desk.group.record.group_id == "c0"
    assert desk.group.bootstrap is not None
    assert sorted(desk.group.bootstrap.founders) == ["n1", "n2", "n3"]


async def test_a_peer_that_was_not_the_first_takes_its_place_at_the_next_look() -> None:
    desk = Desk(Charter(founders=FOUNDERS))
    desk.group.record, desk.group.is_faster = GroupRecord(app="orders"), True
    await desk.look((2, 2))
    assert desk.group.record.peers == ()
    desk.group.record = GroupRecord(app="orders", version=1, group_id="c0", peers=(peer_of(2),))
    await desk.look((2, 2))
    assert desk.group.record.peers == (peer_of(1), peer_of(2))
    assert desk.group.bootstrap is None


@pytest.mark.spec("CRD-16")
async def test_a_setting_that_does_not_count_any_more_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk(Charter(resource_group="north", approval=Approval.MANUAL))
    with caplog.at_level(logging.WARNING):
        await desk.look((1, 2))
        await desk.look((1, 2))
    (said,) = caplog.messages
    assert "the resource group '', not 'north' and the approval 'automatic', not 'manual'" in said
    assert desk.group.record.approval is Approval.AUTOMATIC


# ---- what it counts ----------------------------------------------------------------------------


@pytest.mark.spec("CRD-16")
async def test_joins_are_counted_with_their_delay_and_refusals_by_their_reason(desk: Desk) -> None:
    desk.watch._tell(JoinApproved(name="n4", approval_s=40.0))
    desk.watch._tell(JoinAccepted(name="n4", peer_id=4, accept_s=45.0))
    for code in ("full", "refused", "full"):
        desk.watch.refused("n5", code, "because")
    stats = (await desk.watch.status()).stats
    assert (stats.joins_approved_count, stats.join_approval_s) == (1, 40.0)
    assert (stats.joins_accepted_count, stats.join_accept_s) == (1, 45.0)
    assert (stats.joins_refused_count, stats.refusals) == (3, {"full": 2, "refused": 1})
    assert desk.events.count(JoinRequestRefused(name="n5", code="full", reason="because")) == 2
    assert (await desk.watch.status()).asked == "n1"


@pytest.mark.spec("CRD-16")
async def test_snapshots_are_counted_over_restarts_of_the_member(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = [
        Measures(snapshots_count=2, snapshots_s=0.5, received_count=1, received_s=3.0),
        # The process was started again, and counts from zero.
        Measures(snapshots_count=1, snapshots_s=0.1),
        Measures(snapshots_count=1, snapshots_s=0.1, received_count=1, received_s=2.0),
    ]

    async def fetch(address: str) -> Measures:
        return pages.pop(0)

    monkeypatch.setattr(peer_watch, "fetch_measures", fetch)
    told = []
    for _ in range(3):
        await desk.look((1, 2))
        told += [event for event in desk.events if isinstance(event, SnapshotTaken)]
        desk.clock.advance(1.0)
    stats = desk.watch.stats
    assert (stats.snapshots_count, stats.snapshot_s, stats.snapshot_bytes) == (3, 0.1, 10)
    assert (stats.snapshots_received_count, stats.snapshot_received_s) == (2, 2.0)
    assert told == [
        SnapshotTaken(count=2, seconds=0.5, db_bytes=10),
        SnapshotTaken(count=1, seconds=0.1, db_bytes=10),
    ]


# ---- what it does at each look, and when it looks -----------------------------------------------


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)


async def turns() -> None:
    """Whatever was ready has run."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nobody is asked for measures; gives whom they were asked of."""
    asked: list[str] = []

    async def fetch(address: str) -> Measures:
        asked.append(address)
        return Measures()

    monkeypatch.setattr(peer_watch, "fetch_measures", fetch)
    return asked


@pytest.mark.usefixtures("unmeasured")
async def test_it_looks_when_it_is_kicked_and_else_rests() -> None:
    desk = Desk(look_s=NEVER_S)
    desk.group.local.says = [(2, 2)]
    async with desk.running():
        for _ in range(3):
            await turns()
            seen_count = desk.ready_count
            await turns()
            assert desk.ready_count == seen_count
            desk.watch.kick()
            await until(lambda: desk.ready_count > seen_count)  # noqa: B023 - awaited within its turn.
    assert desk.ready_count == 4


@pytest.mark.usefixtures("unmeasured")
async def test_what_it_registered_is_seen_at_once() -> None:
    desk = Desk(look_s=NEVER_S)
    desk.group.local.says = [(2, 2)]
    desk.group.record = desk.group.record.without_peer("n1")
    async with desk.running():
        await until(lambda: desk.watch.record.peer("n1") is not None)


@pytest.mark.usefixtures("unmeasured")
async def test_what_a_person_decides_is_acted_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(look_s=NEVER_S)
    desk.group.local.says = [(1, 2)]
    decided = []

    async def decide(what: object) -> None:
        decided.append(what)

    monkeypatch.setattr(desk.watch.steward, "approve", decide)
    monkeypatch.setattr(desk.watch.steward, "set_approval", decide)
    async with desk.running():
        for deed in (desk.watch.approve("n4"), desk.watch.set_approval(Approval.AUTOMATIC)):
            await turns()
            seen_count = desk.ready_count
            await deed
            await until(lambda: desk.ready_count > seen_count)  # noqa: B023 - awaited within its turn.
    assert decided == ["n4", Approval.AUTOMATIC]


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("leader", "more", "turns_count"), [(1, [True, True, False], 3), (1, [True] * 50, 20), (2, [False], 0)]
)
async def test_the_steward_has_its_turns_while_the_member_leads_and_not_for_ever(
    desk: Desk, leader: int, more: Iterable[bool], turns_count: int
) -> None:
    taken, answers = [], iter(more)

    async def turn() -> bool:
        taken.append("turn")
        return next(answers)

    desk.watch.steward.turn = turn  # type: ignore[method-assign]
    await desk.look((leader, 2))
    assert len(taken) == turns_count


@pytest.mark.usefixtures("unmeasured")
async def test_a_steward_that_leads_no_more_forgets(desk: Desk) -> None:
    forgotten = []
    desk.watch.steward.forget = lambda: forgotten.append("all")  # type: ignore[method-assign]
    await desk.look((1, 2))
    assert forgotten == []
    await desk.look((2, 3))
    await desk.look((2, 3))
    assert forgotten == ["all"]


@pytest.mark.usefixtures("unmeasured")
async def test_a_learner_does_not_stand_in_the_record_and_knows_its_number() -> None:
    desk = Desk()
    desk.watch.me = replace(peer_of(1), peer_id=0)
    desk.group.record = desk.group.record.without_peer("n1")
    desk.group.local.is_learner = True
    await desk.look((2, 2))
    assert desk.watch.me.peer_id == 1
    assert desk.group.record.peer("n1") is None


async def test_measures_are_asked_for_now_and_then(desk: Desk, unmeasured: list[str]) -> None:
    for advance_s in (0.0, 0.0, 1.0, 0.0, 0.0):
        desk.clock.advance(advance_s)
        await desk.look((2, 2))
    assert unmeasured == [NOBODY] * 2


async def test_a_member_without_a_page_of_measures_is_looked_at_all_the_same(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch(address: str) -> Measures:
        raise StoreUnavailable("no page")

    monkeypatch.setattr(peer_watch, "fetch_measures", fetch)
    desk.group.local.says = [(2, 2)]
    await desk.watch._look()
    assert desk.watch.leader_name == "n2"


class Others:
    """The other members, in place of `MemberCalls`: each says who is in the group, or nothing."""

    def __init__(self, said: dict[str, list[int] | None]) -> None:
        self.said = said
        self.open_count = 0
        self.asked: list[str] = []

    def __call__(self, address: str, timings: RaftTimings) -> "Others":
        self.open_count += 1
        self.asked.append(address)
        return self

    async def members(self, *, timeout_s: float) -> list[MemberView]:
        found = self.said[self.asked[-1]]
        if found is None:
            raise StoreUnavailable("it is silent")
        return [MemberView(peer_id=one, name=f"n{one}", peer_address=NOBODY) for one in found]

    async def close(self) -> None:
        self.open_count -= 1


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("members", "is_removed"), [([2, 3], True), ([1, 2, 3], False)], ids=["removed", "silent"]
)
async def test_a_peer_whose_member_is_silent_asks_the_others_whether_it_is_one_of_them(
    monkeypatch: pytest.MonkeyPatch, members: list[int], is_removed: bool
) -> None:
    desk = Desk(look_s=NEVER_S)
    desk.group.record = replace(
        desk.group.record, peers=tuple(replace(peer_of(n), client_address=f"h:{n}") for n in (1, 2, 3))
    )
    desk.watch.me = replace(desk.watch.me, client_address="h:1")
    # The first of the others is silent, too.
    others = Others({"h:2": None, "h:3": members})
    monkeypatch.setattr(peer_watch, "MemberCalls", others)
    await desk.look((2, 2))
    desk.group.local.says = [StoreUnavailable("it was ended")]
    async with desk.running():
        await until(lambda: len(others.asked) == 2)
        await turns()
    assert desk.watch.removed.is_set() == is_removed
    assert others.open_count == 0
    assert desk.watch.stats.looks_failed_count == 1
