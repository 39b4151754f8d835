"""The join API as a peer serves it: what is written down, what is sent on, what is refused at the door."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, cast

import pytest

from hansa.clock import ManualClock
from hansa.errors import AddressInUse, BadArgument, JoinRefused, RaftRefused, TimedOut
from hansa.limits import RAFT_REQUESTS_MAX
from hansa.store.raft import join_service
from hansa.store.raft.group import Group, GroupBook, JoinRequest
from hansa.store.raft.group_record import Approval, GroupRecord, JoinRecord, JoinState, PeerInfo
from hansa.store.raft.join_client import JoinClient
from hansa.store.raft.join_messages import AwaitAsk
from hansa.store.raft.join_service import JoinService
from hansa.store.raft.raft_events import GroupStatus, PeerStatus, RaftStats

PEER = PeerInfo(name="n4", peer_address="h:4", client_address="h:40", join_address="h:41")
JOIN_S = 30.0
APPROVAL_S = 600.0


class MadeUp:
    """The peer behind a service, its group and its member, all in memory."""

    def __init__(self) -> None:
        self.group = cast(Group, self)
        self.local = self
        self.redirect = ""
        self.record = GroupRecord(app="orders", version=1, group_id="c0")
        self.requests: dict[str, JoinRequest] = {}
        self.granted: list[float] = []
        self.kicks_count = 0
        self.decided: list[tuple[str, ...]] = []
        self.turned_away: list[tuple[str, str]] = []
        self.reads_count = 0
        self.is_overtaken = False

    async def leader_join_address(self) -> str:
        return self.redirect

    async def book(self) -> GroupBook:
        self.reads_count += 1
        return GroupBook(record=self.record, record_revision=1, requests=tuple(self.requests.values()))

    async def grant(self, ttl_s: float) -> int:
        self.granted.append(ttl_s)
        return len(self.granted)

    async def write_request(self, record: JoinRecord, revision: int) -> bool:
        before = self.requests.get(record.peer.name)
        if self.is_overtaken or (0 if before is None else before.revision) != revision:
            return False
        self.requests[record.peer.name] = JoinRequest(record=record, revision=revision + 1)
        return True

    def kick(self) -> None:
        self.kicks_count += 1

    async def approve(self, name: str) -> None:
        if name not in self.requests:
            raise RaftRefused(f"there is no request of {name}")
        self.decided.append(("approve", name))

    async def refuse(self, name: str, reason: str) -> None:
        self.decided.append(("refuse", name, reason))

    async def set_approval(self, approval: Approval) -> None:
        self.decided.append(("approval", approval.value))

    async def remove(self, name: str) -> str:
        self.decided.append(("remove", name))
        return ""

    def refused(self, name: str, code: str, reason: str) -> None:
        self.turned_away.append((name, code))

    async def status(self) -> GroupStatus:
        return GroupStatus(
            app="orders",
            cluster="default",
            leader="n1",
            term=2,
            record_version=1,
            peers=(PeerStatus(peer=PEER, role="follower", is_voter=True, is_healthy=True),),
            asked="n1",
            stats=RaftStats(refusals={"full": 2}),
        )

    def state(self, state: JoinState, **changes: Any) -> None:
        request = self.requests["n4"]
        record = replace(request.record, state=state, **changes)
        self.requests["n4"] = JoinRequest(record=record, revision=request.revision + 1)


class Desk:
    """A peer that is asked over gRPC, and who asks it."""

    def __init__(self) -> None:
        self.peer = MadeUp()
        self.clock = ManualClock()
        self.service = JoinService(
            "orders", clock=self.clock, join_timeout_s=JOIN_S, approval_timeout_s=APPROVAL_S
        )
        self.service.beside = cast(Any, self.peer)
        self.address = ""


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def serve(stack: AsyncExitStack) -> Desk:
    desk = Desk()
    desk.address = f"127.0.0.1:{await desk.service.start('127.0.0.1:0')}"
    stack.push_async_callback(desk.service.close)
    return desk


async def client_of(stack: AsyncExitStack, *desks: Desk) -> JoinClient:
    return await stack.enter_async_context(JoinClient("orders", [desk.address for desk in desks]))


@pytest.mark.spec("CRD-16")
async def test_a_request_is_written_down_with_when_it_was_made(stack: AsyncExitStack) -> None:
    desk = await serve(stack)
    client = await client_of(stack, desk)
    ticket = await client.request_join(PEER, "t1")
    record = desk.peer.requests["n4"].record
    assert (record.state, record.requested_at, record.lease) == (
        JoinState.REQUESTED,
        desk.clock.wall(),
        1,
    )
    assert (ticket.timeout_s, ticket.needs_approval) == (JOIN_S, False)
    assert (desk.peer.granted, desk.peer.kicks_count) == ([JOIN_S], 1)
    # The same one again, because an answer was lost.
    assert await client.request_join(PEER, "t1") == ticket
    assert desk.peer.granted == [JOIN_S]


@pytest.mark.spec("CRD-16")
async def test_a_peer_that_needs_approval_is_told_so_and_has_the_persons_time_besides(
    stack: AsyncExitStack,
) -> None:
    desk = await serve(stack)
    desk.peer.record = replace(desk.peer.record, approval=Approval.MANUAL)
    client = await client_of(stack, desk)
    ticket = await client.request_join(PEER, "t1")
    assert (ticket.timeout_s, ticket.needs_approval) == (JOIN_S + APPROVAL_S, True)
    desk.peer.state(JoinState.PENDING)
    with pytest.raises(TimedOut, match="n4 waits for a person's approval"):
        await client.await_acceptance(ticket, timeout=0.2)
    desk.peer.state(JoinState.REFUSED, code="refused", reason="the rack is full")
    with pytest.raises(JoinRefused, match=r"n4 was not taken into orders: the rack is full \(refused\)"):
        await client.await_acceptance(ticket)


@pytest.mark.spec("CRD-16")
async def test_what_is_refused_at_the_door_is_counted(stack: AsyncExitStack) -> None:
    desk = await serve(stack)
    client = await client_of(stack, desk)
    await client.request_join(PEER, "t1")
    with pytest.raises(JoinRefused, match="name-taken"):
        await client.request_join(replace(PEER, peer_address="h:9"), "t2")
    desk.peer.requests |= {
        f"m{n}": JoinRequest(
            record=JoinRecord(app="orders", peer=replace(PEER, name=f"m{n}"), ticket="x"), revision=1
        )
        for n in range(RAFT_REQUESTS_MAX)
    }
    with pytest.raises(JoinRefused, match="busy"):
        await client.request_join(replace(PEER, name="n5"), "t3")
    assert desk.peer.turned_away == [("n4", "name-taken"), ("n5", "busy")]


@pytest.mark.spec("CRD-16")
async def test_a_person_may_ask_any_peer_and_the_leaders_decides(stack: AsyncExitStack) -> None:
    leader, follower = await serve(stack), await serve(stack)
    follower.peer.redirect = leader.address
    client = await client_of(stack, follower)
    await client.request_join(PEER, "t1")
    await client.approve("n4")
    await client.refuse("n4", " no room ")
    await client.set_approval("manual")
    await client.leave("n4")
    assert leader.peer.decided == [
        ("approve", "n4"),
        ("refuse", "n4", "no room"),
        ("approval", "manual"),
        ("remove", "n4"),
    ]
    assert follower.peer.decided == []
    assert client.redirects_count == 5
    with pytest.raises(RaftRefused, match="there is no request of n9"):
        await client.approve("n9")


async def test_what_cannot_be_is_refused_before_anybody_is_asked(stack: AsyncExitStack) -> None:
    client = await stack.enter_async_context(JoinClient("orders", ["127.0.0.1:1"]))
    with pytest.raises(BadArgument, match="approval 'maybe': a group's approval is automatic or manual"):
        await client.set_approval("maybe")
    with pytest.raises(BadArgument, match="reason: 0 characters"):
        await client.refuse("n4", "")


async def test_a_group_is_described_with_the_figures_of_the_peer_that_was_asked(
    stack: AsyncExitStack,
) -> None:
    desk = await serve(stack)
    group = await (await client_of(stack, desk)).describe()
    assert (group.asked, group.stats.refusals) == ("n1", {"full": 2})


async def test_a_peer_that_has_caught_up_moves_its_request_on_and_wakes_the_steward(
    stack: AsyncExitStack,
) -> None:
    desk = await serve(stack)
    client = await client_of(stack, desk)
    await client.request_join(PEER, "t1")
    desk.peer.state(JoinState.ACCEPTED, peer=replace(PEER, peer_id=4))
    desk.peer.kicks_count = 0
    with pytest.raises(TimedOut, match="pending"):
        await client.complete_sync(4, timeout=0.2)
    assert desk.peer.requests["n4"].record.state is JoinState.SYNCING
    assert desk.peer.kicks_count > 0
    # With its vote it stands in the record, and its request is gone.
    del desk.peer.requests["n4"]
    desk.peer.record = desk.peer.record.with_peer(replace(PEER, peer_id=4))
    await client.complete_sync(4)


async def test_a_peer_that_is_still_starting_says_so(stack: AsyncExitStack) -> None:
    desk = await serve(stack)
    desk.service.beside = None
    client = await client_of(stack, desk)
    with pytest.raises(TimedOut, match="this peer is still starting"):
        await client.describe(timeout=0.2)


async def test_a_peer_that_was_refused_while_it_caught_up_is_told_why(stack: AsyncExitStack) -> None:
    desk = await serve(stack)
    client = await client_of(stack, desk)
    await client.request_join(PEER, "t1")
    desk.peer.state(JoinState.REFUSED, peer=replace(PEER, peer_id=4), code="removed", reason="it was removed")
    with pytest.raises(JoinRefused, match=r"it was removed \(removed\)"):
        await client.complete_sync(4, timeout=5.0)
    with pytest.raises(JoinRefused, match="there is no request of peer 5"):
        await client.complete_sync(5)


async def test_a_request_that_somebody_else_changes_at_that_moment_is_made_again(
    stack: AsyncExitStack,
) -> None:
    desk = await serve(stack)
    client = await client_of(stack, desk)
    desk.peer.is_overtaken = True
    with pytest.raises(TimedOut, match="the request of n4 has changed meanwhile"):
        await client.request_join(PEER, "t1", timeout=0.3)
    desk.peer.is_overtaken = False
    await client.request_join(PEER, "t1")


async def test_a_peer_that_nobody_could_reach_and_one_of_another_group_are_refused(
    stack: AsyncExitStack,
) -> None:
    desk = await serve(stack)
    client = await client_of(stack, desk)
    with pytest.raises(JoinRefused, match="its three addresses are not three"):
        await client.request_join(replace(PEER, client_address="h:4"), "t1")
    assert desk.peer.requests == {}
    other = await stack.enter_async_context(JoinClient("bills", [desk.address]))
    with pytest.raises(RaftRefused, match="this peer is of orders, not of bills"):
        await other.describe()


async def test_an_answer_that_waits_looks_now_and_then_and_not_for_ever(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_service, "RAFT_POLL_S_MAX", 0.2)
    desk = await serve(stack)
    ticket = await (await client_of(stack, desk)).request_join(PEER, "t1")
    desk.peer.reads_count = 0
    ask = AwaitAsk(app="orders", name="n4", ticket=ticket.ticket, wait_s=3600.0)
    async with asyncio.timeout(20.0):
        answer = await desk.service._await(ask, cast(Any, desk.peer))
    assert answer.is_pending
    assert 2 <= desk.peer.reads_count < 20


async def test_two_peers_do_not_share_a_join_address_and_one_that_closed_answers_nobody(
    stack: AsyncExitStack,
) -> None:
    desk = await serve(stack)
    with pytest.raises(AddressInUse):
        await Desk().service.start(desk.address)
    await desk.service.close()
    with pytest.raises(TimedOut, match="failed to connect"):
        await (await client_of(stack, desk)).describe(timeout=0.3)
