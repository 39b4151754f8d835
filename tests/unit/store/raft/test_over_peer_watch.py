"""What a peer tells of its group's leader, from what its own member says at each look."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from hansa.clock import ManualClock
from hansa.errors import HansaError, StoreUnavailable, TimedOut
from hansa.store import etcd_api_pb2 as api
from hansa.store.raft.group_record import GroupRecord, PeerInfo
from hansa.store.raft.join_steps import MemberView
from hansa.store.raft.over_group import Group, GroupBook
from hansa.store.raft.over_peer_watch import PeerWatch
from hansa.store.raft.raft_events import LeaderChanged, RaftEvent

NOBODY = "127.0.0.1:1"


def peer_of(number: int) -> PeerInfo:
    return PeerInfo(
        name=f"n{number}", peer_address=NOBODY, client_address=NOBODY, join_address=NOBODY, peer_id=number
    )


class Member:
    """The peer's own member, number 1. It says what was laid down for it, the last thing for ever."""

    def __init__(self) -> None:
        self.says: list[tuple[int, int] | HansaError] = []

    async def status(self, **_: Any) -> api.StatusResponse:
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, HansaError):
            raise said
        leader, term = said
        return api.StatusResponse(
            header=api.ResponseHeader(member_id=1), leader=leader, raftTerm=term, dbSize=10
        )


class MadeUp:
    """A group whose record is read as long as it has a leader."""

    app = "orders"

    def __init__(self) -> None:
        self.local = Member()
        self.record = GroupRecord(app="orders", version=1, peers=tuple(map(peer_of, (1, 2, 3))))
        self.has_leader = True

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
        raise AssertionError("nothing changes here")


class Desk:
    def __init__(self) -> None:
        self.group = MadeUp()
        self.events: list[RaftEvent] = []
        self.watch = PeerWatch(
            peer_of(1),
            cast(Group, self.group),
            clock=ManualClock(),
            tell=self.events.append,
            on_ready=lambda: None,
            look_s=0.01,
            measure_s=1.0,
            patience_s=1.0,
        )

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
