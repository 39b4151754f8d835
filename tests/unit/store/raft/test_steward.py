"""The leader's peer at work, on a group that is made up."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from hansa.clock import ManualClock
from hansa.errors import BadArgument, Conflict, RaftRefused, StoreUnavailable
from hansa.limits import RAFT_DENIAL_S, RAFT_REASON_CHARS_MAX, RAFT_REFUSAL_S
from hansa.store.raft.group import Group, GroupBook, JoinRequest
from hansa.store.raft.group_record import Approval, GroupRecord, JoinRecord, JoinState, PeerInfo
from hansa.store.raft.join_steps import MemberView
from hansa.store.raft.raft_events import (
    ApprovalAwaited,
    JoinAccepted,
    JoinApproved,
    JoinExpired,
    JoinRequested,
    JoinRequestRefused,
    RaftEvent,
)
from hansa.store.raft.steward import Steward

S = JoinState


def peer_of(number: int) -> PeerInfo:
    return PeerInfo(
        name=f"n{number}",
        peer_address=f"h:{number}",
        client_address=f"h:{number}0",
        join_address=f"h:{number}00",
        peer_id=number,
    )


class Status:
    dbSize = 4096
    raftIndex = 77


class Member:
    """The leader's own member: changes the list of members, or says no."""

    def __init__(self, group: "MadeUp") -> None:
        self.group = group
        self.refusal: Exception | None = None
        self.moved_to: list[int] = []
        self.granted: dict[int, float] = {}

    async def status(self) -> Status:
        return Status()

    async def grant(self, ttl_s: float) -> int:
        lease = 99 + len(self.granted)
        self.granted[lease] = ttl_s
        return lease

    async def add_learner(self, peer_address: str) -> int:
        if self.refusal is not None:
            raise self.refusal
        number = int(peer_address.removeprefix("h:"))
        self.group.views.append(
            MemberView(peer_id=number, name="", peer_address=peer_address, is_learner=True)
        )
        return number

    async def promote(self, peer_id: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.group.views = [
            replace(one, is_learner=one.is_learner and one.peer_id != peer_id) for one in self.group.views
        ]

    async def remove(self, peer_id: int) -> None:
        self.group.views = [one for one in self.group.views if one.peer_id != peer_id]

    async def move_leader(self, peer_id: int) -> None:
        self.moved_to.append(peer_id)


class MadeUp:
    """A group of three in memory, with the calls of a `Group`."""

    app = "orders"

    def __init__(self) -> None:
        self.local = Member(self)
        self.record = GroupRecord(app="orders", version=1, peers=tuple(map(peer_of, (1, 2, 3))))
        self.views = [
            MemberView(peer_id=n, name=f"n{n}", peer_address=f"h:{n}", applied_index=n) for n in (1, 2, 3)
        ]
        self.requests: dict[str, JoinRequest] = {}
        self.reads: list[str] = []
        self.readers_count = self.readers_count_max = 0

    def ask(self, number: int = 4, ticket: str = "t1", requested_at: float = 0.0) -> None:
        record = JoinRecord(
            app="orders",
            peer=replace(peer_of(number), peer_id=0),
            ticket=ticket,
            requested_at=requested_at,
            lease=7,
        )
        self.requests[record.peer.name] = JoinRequest(record=record, revision=1)

    async def members(self) -> tuple[list[MemberView], dict[int, Any]]:
        self.reads.append("members")
        return list(self.views), {}

    async def book(self) -> GroupBook:
        self.reads.append("book")
        self.readers_count += 1
        self.readers_count_max = max(self.readers_count, self.readers_count_max)
        await asyncio.sleep(0)
        self.readers_count -= 1
        return GroupBook(record=self.record, record_revision=1, requests=tuple(self.requests.values()))

    async def write_request(self, record: JoinRecord, revision: int) -> bool:
        before = self.requests[record.peer.name]
        if before.revision != revision:
            return False
        self.requests[record.peer.name] = JoinRequest(record=record, revision=revision + 1)
        return True

    async def finish_request(self, book: GroupBook, request: JoinRequest, peer: PeerInfo) -> bool:
        del self.requests[peer.name]
        self.record = book.record.with_peer(peer)
        return True

    async def change_record(self, change: Callable[[GroupRecord], GroupRecord | None]) -> None:
        self.record = change(self.record) or self.record


class Desk:
    """A steward, its group, its clock, and what it told."""

    def __init__(self) -> None:
        self.group = MadeUp()
        self.clock = ManualClock()
        self.told: list[RaftEvent] = []
        self.steward = self.stewards()

    def stewards(self) -> Steward:
        """That of the leader, or of the next one: it knows nothing but what is in the store."""
        return Steward(
            cast(Group, self.group),
            self.clock,
            self.told.append,
            patience_s=10.0,
            join_timeout_s=120.0,
            approval_timeout_s=600.0,
        )

    async def work_of_next_leader(self) -> None:
        self.steward = self.stewards()
        await self.work()

    def lease_s(self) -> float:
        """The time that the request's lease was granted for."""
        return self.group.local.granted[self.group.requests["n4"].record.lease]

    async def work(self) -> None:
        """Until there is nothing more to do."""
        for _ in range(20):
            if not await self.steward.turn():
                return
        pytest.fail("it never rests")

    def state(self) -> JoinState:
        return self.group.requests["n4"].record.state

    def report(self) -> None:
        request = self.group.requests["n4"]
        record = replace(request.record, state=S.SYNCING)
        self.group.requests["n4"] = JoinRequest(record=record, revision=request.revision + 1)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_request_is_taken_to_its_end(desk: Desk) -> None:
    desk.group.ask()
    await desk.work()
    accepted = desk.group.requests["n4"].record
    assert (accepted.state, accepted.peer.peer_id) == (S.ACCEPTED, 4)
    assert (accepted.snapshot_bytes, accepted.effective_index, accepted.lease) == (4096, 77, 7)
    desk.report()
    await desk.work()
    assert desk.group.requests == {}
    assert desk.group.record.peer("n4") == peer_of(4)
    assert [type(event) for event in desk.told] == [JoinRequested, JoinAccepted]


async def test_a_learner_that_lags_is_promoted_later(desk: Desk) -> None:
    desk.group.ask()
    await desk.work()
    desk.report()
    desk.group.local.refusal = Conflict("can only promote a learner member which is in sync with leader")
    await desk.work()
    assert desk.state() is S.PROMOTING
    desk.group.local.refusal = None
    await desk.work()
    assert desk.group.record.peer("n4") is not None


@pytest.mark.parametrize("refusal", [Conflict("too many learners"), StoreUnavailable("unhealthy cluster")])
async def test_what_etcd_denies_for_long_is_refused_with_its_words(desk: Desk, refusal: Exception) -> None:
    desk.group.ask()
    desk.group.local.refusal = refusal
    await desk.work()
    desk.clock.advance(RAFT_DENIAL_S - 1)
    await desk.work()
    assert desk.state() is S.ADDING
    desk.clock.advance(1)
    await desk.work()
    record = desk.group.requests["n4"].record
    assert (record.state, record.code, record.lease) == (S.REFUSED, "denied", 99)
    assert str(refusal) in record.reason
    event = desk.told[-1]
    assert isinstance(event, JoinRequestRefused)
    assert event.code == "denied"


async def test_a_group_has_its_time_to_become_healthy_and_it_begins_anew_each_time(desk: Desk) -> None:
    desk.group.ask()
    # So that the request stays where it is while the group is healthy.
    desk.group.local.refusal = Conflict("not yet")
    healthy = list(desk.group.views)
    unhealthy = [healthy[0], replace(healthy[1], is_reachable=False), healthy[2]]
    await desk.work()
    for advance_s in (9.9, 4.0):
        desk.group.views = list(unhealthy)
        await desk.work()
        desk.clock.advance(advance_s)
        await desk.work()
        assert desk.state() is S.ADDING
        desk.group.views = list(healthy)
        await desk.work()
    desk.group.views = list(unhealthy)
    await desk.work()
    desk.clock.advance(10.1)
    await desk.work()
    assert desk.group.requests["n4"].record.code == "unhealthy"


async def test_a_group_that_was_unhealthy_for_a_former_request_has_its_time_again(desk: Desk) -> None:
    healthy = list(desk.group.views)
    unhealthy = [healthy[0], replace(healthy[1], is_reachable=False), healthy[2]]
    desk.group.ask()
    desk.group.views = list(unhealthy)
    await desk.work()
    desk.clock.advance(10.1)
    await desk.work()
    assert desk.group.requests["n4"].record.code == "unhealthy"
    # The lost peer is started again, and while nobody asks nobody looks whether it answers.
    desk.group.views = list(healthy)
    await desk.work()
    desk.group.ask(5)
    desk.group.views = list(unhealthy)  # One answer of it comes too late.
    await desk.work()
    states = [desk.group.requests["n5"].record.state]
    desk.group.views = list(healthy)
    await desk.work()
    assert [*states, desk.group.requests["n5"].record.state] == [S.REQUESTED, S.ACCEPTED]


async def test_an_orphan_is_removed_at_the_second_look_and_not_at_the_first(desk: Desk) -> None:
    desk.group.views.append(MemberView(peer_id=4, name="n4", peer_address="h:4", is_learner=True))
    assert not await desk.steward.turn()
    assert len(desk.group.views) == 4
    assert await desk.steward.turn()
    assert len(desk.group.views) == 3


async def test_a_new_leader_has_not_looked_before(desk: Desk) -> None:
    desk.group.views.append(MemberView(peer_id=4, name="n4", peer_address="h:4", is_learner=True))
    await desk.steward.turn()
    desk.steward.forget()
    await desk.steward.turn()
    assert len(desk.group.views) == 4


async def test_a_request_that_went_by_itself_has_expired(desk: Desk) -> None:
    desk.group.ask()
    await desk.work()
    desk.group.requests.clear()
    await desk.steward.turn()
    assert desk.told[-1] == JoinExpired(name="n4")
    await desk.work()
    assert len(desk.group.views) == 3


async def test_one_that_asks_again_has_not_expired(desk: Desk) -> None:
    desk.group.ask()
    await desk.work()
    desk.group.ask(ticket="t2")
    await desk.work()
    assert not any(isinstance(event, JoinExpired) for event in desk.told)


async def test_a_leader_that_leaves_hands_over_to_the_one_that_has_the_most(desk: Desk) -> None:
    assert await desk.steward.remove("n1", "n1") == "h:300"
    assert desk.group.local.moved_to == [3]
    assert len(desk.group.views) == 3


async def test_a_removal_takes_the_member_and_its_place_in_the_record(desk: Desk) -> None:
    assert await desk.steward.remove("n2", "n1") == ""
    assert [one.name for one in desk.group.views] == ["n1", "n3"]
    assert desk.group.record.peer("n2") is None
    # Again, because an answer was lost: it is out, as asked.
    assert await desk.steward.remove("n2", "n1") == ""


async def test_who_was_removed_by_a_leader_that_died_is_taken_out_of_the_record_by_the_next(
    desk: Desk,
) -> None:
    await desk.group.local.remove(2)
    # Not at the first look: it may have read the members before somebody joined, and the record afterwards.
    await desk.work()
    assert desk.group.record.peer("n2") is not None
    desk.steward.forget()
    await desk.work()
    assert desk.group.record.peer("n2") is not None
    await desk.work()
    assert [peer.name for peer in desk.group.record.peers] == ["n1", "n3"]


async def test_who_joined_again_under_its_name_is_not_taken_out_of_the_record(desk: Desk) -> None:
    await desk.work()
    await desk.group.local.remove(2)
    desk.group.views.append(MemberView(peer_id=22, name="n2", peer_address="h:2"))
    desk.group.record = desk.group.record.with_peer(replace(peer_of(2), peer_id=22))
    await desk.work()
    await desk.work()
    assert desk.group.record.peer("n2") is not None


async def test_a_removal_that_would_cost_the_quorum_changes_nothing(desk: Desk) -> None:
    desk.group.views[2] = replace(desk.group.views[2], is_reachable=False)
    with pytest.raises(RaftRefused, match="n2 cannot leave orders"):
        await desk.steward.remove("n2", "n1")
    assert len(desk.group.views) == 3
    assert desk.group.record.peer("n2") is not None


# ---- a person's approval -----------------------------------------------------------------------


@pytest.fixture
async def waiting(desk: Desk) -> Desk:
    """A request that waits for a person."""
    desk.group.record = replace(desk.group.record, approval=Approval.MANUAL)
    desk.group.ask(requested_at=desk.clock.wall())
    await desk.work()
    return desk


@pytest.mark.spec("CRD-16")
async def test_a_request_waits_for_a_person_and_nothing_is_changed_before(waiting: Desk) -> None:
    assert waiting.state() is S.PENDING
    assert waiting.lease_s() == 600.0
    assert len(waiting.group.views) == 3
    assert waiting.told == [JoinRequested(name="n4"), ApprovalAwaited(name="n4", timeout_s=600.0)]


@pytest.mark.spec("CRD-16")
async def test_what_a_person_approves_joins_in_the_time_of_any_other(waiting: Desk) -> None:
    waiting.clock.advance(500.0)
    await waiting.steward.approve("n4")
    assert waiting.state() is S.APPROVED
    assert waiting.lease_s() == 120.0
    assert waiting.told[-1] == JoinApproved(name="n4", approval_s=500.0)
    await waiting.work()
    assert waiting.state() is S.ACCEPTED
    accepted = waiting.told[-1]
    assert isinstance(accepted, JoinAccepted)
    assert accepted.accept_s == 500.0


@pytest.mark.spec("CRD-16")
async def test_an_approval_that_is_sent_again_changes_nothing(waiting: Desk) -> None:
    await waiting.steward.approve("n4")
    for _ in range(2):
        revision = waiting.group.requests["n4"].revision
        await waiting.steward.approve("n4")
        assert waiting.group.requests["n4"].revision == revision
        await waiting.work()
    waiting.report()
    await waiting.work()
    # It has its vote, and its request is gone.
    await waiting.steward.approve("n4")
    assert [type(one) for one in waiting.told].count(JoinApproved) == 1


@pytest.mark.spec("CRD-16")
async def test_a_person_who_refuses_gives_the_reason(waiting: Desk) -> None:
    await waiting.steward.refuse("n4", "  the rack is full ")
    record = waiting.group.requests["n4"].record
    assert (record.state, record.code, record.reason) == (S.REFUSED, "refused", "the rack is full")
    assert waiting.lease_s() == RAFT_REFUSAL_S
    refused = JoinRequestRefused(name="n4", code="refused", reason="the rack is full")
    assert waiting.told[-1] == refused
    # Again, because an answer was lost; and then there is nothing left to approve.
    await waiting.steward.refuse("n4", "still full")
    assert waiting.told.count(refused) == 1
    with pytest.raises(RaftRefused, match=r"n4 was refused already: the rack is full \(refused\)"):
        await waiting.steward.approve("n4")


@pytest.mark.spec("CRD-16")
async def test_the_next_leader_finds_the_request_waiting_and_knows_since_when(waiting: Desk) -> None:
    waiting.clock.advance(40.0)
    waiting.told.clear()
    await waiting.work_of_next_leader()
    assert waiting.state() is S.PENDING
    assert waiting.told == [JoinRequested(name="n4"), ApprovalAwaited(name="n4", timeout_s=600.0)]
    await waiting.steward.approve("n4")
    assert waiting.told[-1] == JoinApproved(name="n4", approval_s=40.0)


@pytest.mark.spec("CRD-16")
async def test_the_next_leader_goes_on_with_what_was_approved(waiting: Desk) -> None:
    await waiting.steward.approve("n4")
    await waiting.work_of_next_leader()
    assert waiting.state() is S.ACCEPTED


async def test_a_clock_of_the_leader_before_that_is_ahead_makes_no_negative_time(desk: Desk) -> None:
    desk.group.ask(requested_at=desk.clock.wall() + 3600.0)
    await desk.work()
    accepted = desk.told[-1]
    assert isinstance(accepted, JoinAccepted)
    assert accepted.accept_s == 0.0


@pytest.mark.spec("CRD-16")
async def test_a_request_that_nobody_answers_expires(waiting: Desk) -> None:
    waiting.group.requests.clear()
    await waiting.work()
    assert waiting.told[-1] == JoinExpired(name="n4")
    for decide in (waiting.steward.approve("n4"), waiting.steward.refuse("n4", "too late")):
        with pytest.raises(RaftRefused, match="there is no request of n4 to join orders"):
            await decide


async def test_a_peer_that_is_being_added_is_not_refused_by_a_person_any_more(waiting: Desk) -> None:
    await waiting.steward.approve("n4")
    await waiting.work()
    with pytest.raises(RaftRefused, match="n4 was accepted already"):
        await waiting.steward.refuse("n4", "I have changed my mind")
    assert waiting.state() is S.ACCEPTED


@pytest.mark.parametrize("reason", ["", "  ", "x" * (RAFT_REASON_CHARS_MAX + 1)])
async def test_a_reason_is_a_sentence(waiting: Desk, reason: str) -> None:
    with pytest.raises(BadArgument, match="reason: "):
        await waiting.steward.refuse("n4", reason)
    assert waiting.state() is S.PENDING


async def test_a_request_that_changed_meanwhile_is_not_overwritten(waiting: Desk) -> None:
    async def write_request(record: JoinRecord, revision: int) -> bool:
        return False

    waiting.group.write_request = write_request  # type: ignore[method-assign]
    for decide in (waiting.steward.approve("n4"), waiting.steward.refuse("n4", "no room")):
        with pytest.raises(Conflict, match="changed meanwhile"):
            await decide
    assert not any(isinstance(one, JoinApproved | JoinRequestRefused) for one in waiting.told)


async def test_those_that_wait_go_on_when_approval_becomes_automatic(waiting: Desk) -> None:
    version = waiting.group.record.version
    await waiting.steward.set_approval(Approval.AUTOMATIC)
    await waiting.steward.set_approval(Approval.AUTOMATIC)
    assert waiting.group.record.version == version + 1
    await waiting.work()
    assert waiting.state() is S.ACCEPTED


# ---- what it must not forget, and must not remember --------------------------------------------


async def test_what_it_decides_it_decides_one_after_the_other(waiting: Desk) -> None:
    steward = waiting.steward
    waiting.group.readers_count_max = 0
    await asyncio.gather(
        steward.turn(), steward.remove("n9", "n1"), steward.approve("n4"), steward.turn(), steward.turn()
    )
    assert waiting.group.readers_count_max == 1


async def test_requests_are_read_after_the_members(desk: Desk) -> None:
    # A learner that is seen has had its request in the store before: else it would seem an orphan.
    await desk.steward.turn()
    assert desk.group.reads == ["members", "book"]


async def test_patience_begins_anew_when_it_leads_again(desk: Desk) -> None:
    desk.group.ask()
    desk.group.views[1] = replace(desk.group.views[1], is_reachable=False)
    await desk.work()
    desk.clock.advance(9.0)
    desk.steward.forget()
    await desk.work()
    desk.clock.advance(9.0)
    await desk.work()
    assert desk.state() is S.REQUESTED


async def test_a_request_that_was_done_while_another_one_led_has_not_expired(desk: Desk) -> None:
    desk.group.ask()
    await desk.work()
    desk.steward.forget()
    desk.group.requests.clear()
    await desk.work()
    assert not any(isinstance(event, JoinExpired) for event in desk.told)


async def test_a_refusal_that_was_read_and_went_has_not_expired(desk: Desk) -> None:
    desk.group.ask(1)
    await desk.work()
    assert isinstance(desk.told[-1], JoinRequestRefused)
    desk.group.requests.clear()
    await desk.work()
    assert isinstance(desk.told[-1], JoinRequestRefused)


async def test_etcd_may_say_no_to_each_request_for_its_full_time(desk: Desk) -> None:
    desk.group.ask()
    desk.group.local.refusal = Conflict("unhealthy cluster")
    await desk.work()
    desk.clock.advance(RAFT_DENIAL_S - 1)
    desk.group.local.refusal = None
    await desk.work()
    desk.report()
    await desk.work()
    for number in (5, 6):
        desk.group.ask(number)
        desk.group.local.refusal = Conflict("unhealthy cluster")
        await desk.work()
        desk.clock.advance(2.0)
        await desk.work()
        # Neither the no to the one before that was added counts, nor that to the one that was refused.
        assert desk.group.requests[f"n{number}"].record.state is S.ADDING
        desk.clock.advance(RAFT_DENIAL_S)
        await desk.work()
        assert desk.group.requests[f"n{number}"].record.code == "denied"
