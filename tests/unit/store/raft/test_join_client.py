"""Who asks the peers of a group is sent on, waits no longer than told, and hears why it came to nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from hansa.clock import ManualClock
from hansa.errors import RaftRefused, StoreUnavailable, TimedOut
from hansa.limits import RAFT_REDIRECTS_MAX
from hansa.store.raft import join_service
from hansa.store.raft.group import Group, GroupBook
from hansa.store.raft.group_record import GroupRecord, PeerInfo
from hansa.store.raft.join_client import JoinClient
from hansa.store.raft.join_messages import JoinTicket
from hansa.store.raft.join_service import JoinService
from hansa.store.raft.raft_events import GroupStatus, PeerStatus

NOBODY = "127.0.0.1:1"
TICKET = JoinTicket(app="orders", name="n4", ticket="t1", timeout_s=30.0)
PEER = PeerInfo(name="n1", peer_address="h:1", client_address="h:2", join_address="")
GROUP = GroupStatus(
    app="orders",
    cluster="default",
    leader="n1",
    term=2,
    record_version=1,
    peers=(PeerStatus(peer=PEER, role="leader", is_voter=True, is_healthy=True),),
)


class MadeUp:
    """The peer behind a service, and its group: says what was laid down for it."""

    def __init__(self) -> None:
        self.redirect = ""
        self.problem: Exception | None = None
        self.status_s = 0.0
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.reads_count = 0
        self.group = cast(Group, self)

    async def leader_join_address(self) -> str:
        if self.problem is not None:
            raise self.problem
        return self.redirect

    async def remove(self, name: str) -> str:
        return ""

    def kick(self) -> None: ...

    async def status(self) -> GroupStatus:
        await asyncio.sleep(self.status_s)
        if self.problem is not None and not self.status_s:
            raise self.problem
        return GROUP

    async def book(self) -> GroupBook:
        self.reads_count += 1
        await self.may_read.wait()
        return GroupBook(record=GroupRecord(app="orders"), record_revision=0, requests=())


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def serve(stack: AsyncExitStack) -> tuple[MadeUp, str]:
    service = JoinService("orders", clock=ManualClock(), join_timeout_s=30.0, approval_timeout_s=60.0)
    peer = MadeUp()
    service.beside = cast(Any, peer)
    port = await service.start("127.0.0.1:0")
    stack.push_async_callback(service.close)
    return peer, f"127.0.0.1:{port}"


async def ask(stack: AsyncExitStack, *addresses: str) -> JoinClient:
    return await stack.enter_async_context(JoinClient("orders", addresses))


async def test_what_a_peer_said_is_told_and_not_that_another_one_was_away(stack: AsyncExitStack) -> None:
    peer, address = await serve(stack)
    peer.problem = StoreUnavailable("orders has no leader")
    for addresses in ((address, NOBODY), (NOBODY, address)):
        client = await ask(stack, *addresses)
        with pytest.raises(TimedOut, match=r"not done in 0\.5 s: orders has no leader"):
            await client.describe(timeout=0.5)
    client = await ask(stack, NOBODY)
    with pytest.raises(TimedOut, match="failed to connect"):
        await client.describe(timeout=0.5)


async def test_leaving_takes_no_longer_than_told(stack: AsyncExitStack) -> None:
    peer, address = await serve(stack)
    client = await ask(stack, address)
    with pytest.raises(RaftRefused, match="there is no peer n9"):
        await client.leave("n9", timeout=5.0)
    # The first of its two questions takes most of the time.
    peer.problem, peer.status_s = StoreUnavailable("not now"), 1.0
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(TimedOut, match="not now"):
        await client.leave("n1", timeout=1.5)
    assert loop.time() - began_s < 2.3


async def test_peers_that_send_to_each_other_are_not_followed_for_ever(stack: AsyncExitStack) -> None:
    (first, first_at), (second, second_at) = await serve(stack), await serve(stack)
    first.redirect, second.redirect = second_at, first_at
    client = await ask(stack, first_at)
    with pytest.raises(TimedOut, match="sent from peer to peer"):
        await client.complete_sync(5, timeout=0.5)
    assert client.redirects_count >= RAFT_REDIRECTS_MAX


async def test_a_peer_answers_so_many_at_a_time_and_the_others_come_again(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_service, "RAFT_ASKS_MAX", 2)
    peer, address = await serve(stack)
    peer.may_read.clear()
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        waiting = [group.create_task((await ask(stack, address)).verdict(TICKET)) for _ in range(2)]
        while peer.reads_count < 2:
            await asyncio.sleep(0.01)
        late = await ask(stack, address)
        with pytest.raises(TimedOut, match=r"(?i)concurrent"):
            await late.describe(timeout=0.5)
        peer.may_read.set()
    assert [task.result().code for task in waiting] == ["expired", "expired"]
    assert await late.describe() == GROUP
