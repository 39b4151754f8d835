"""Peers that join a running group, and those that leave it: real processes, real faults."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hansa.errors import BadArgument, JoinRefused, RaftRefused, TimedOut
from hansa.store import open_store
from hansa.store.raft import Approval, JoinState, PeerInfo, RaftPeer
from hansa.store.raft.raft_events import (
    ApprovalAwaited,
    CatchingUp,
    JoinAccepted,
    JoinApproved,
    JoinExpired,
    JoinRequested,
    JoinRequestRefused,
    RaftPeerJoined,
    RaftPeerLeft,
)
from hansa.store.raft.raft_store import RaftStore
from tests.support.raft_stage import APP, RaftStage, Writer, keys_of, kill, roles, until

GHOST = PeerInfo(
    name="ghost", peer_address="127.0.0.1:4", client_address="127.0.0.1:5", join_address="127.0.0.1:6"
)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RaftStage]:
    async with RaftStage(tmp_path) as stage:
        yield stage


async def roles_at(peer: RaftPeer) -> dict[str, str]:
    return roles(await peer.status())


async def learners(peer: RaftPeer) -> list[str]:
    return [one.peer.peer_address for one in (await peer.status()).peers if not one.is_voter]


@pytest.mark.spec("CRD-13")
async def test_a_peer_joins_under_load_and_has_everything(stage: RaftStage) -> None:
    peers = await stage.found(3)
    follower = await stage.follower()
    leader = await stage.leader()
    async with open_store(f"raft://{follower.info.join_address}/{APP}") as store:
        async with Writer(store, size=2000) as writer:
            await writer.more(50)
            joined = await stage.join("n4", follower, zone="north", roles=["spare"], metadata={"rack": "7"})
            await writer.more(50)
        assert isinstance(store, RaftStore)
        await until(lambda: joined.info.client_address in store.addresses, "the store knows the new member")
        await store.put("after", b"x")
    async with open_store(f"etcd://{joined.info.client_address}") as own:
        assert await keys_of(own) >= set(writer.acknowledged)
    status = await joined.status()
    assert roles(status)["n4"] in ("follower", "leader")
    (mine,) = (one for one in status.peers if one.peer.name == "n4")
    assert (mine.peer.zone, mine.peer.roles, mine.peer.metadata) == ("north", ("spare",), {"rack": "7"})
    accepted = await stage.heard("n4", JoinAccepted)
    assert accepted.peer_id == joined.info.peer_id
    assert joined.stats.join_sync_s > 0
    assert (await stage.heard(leader.name, JoinRequested)).name == "n4"
    assert (await stage.heard(leader.name, JoinAccepted)).name == "n4"
    assert (await stage.heard(leader.name, RaftPeerJoined)).peer.name == "n4"
    assert leader.stats.joins_accepted_count == 1
    assert leader.stats.join_accept_s > 0
    await until(lambda: all(stage.known_to(peer) >= {"n4"} for peer in peers), "all know it")


@pytest.mark.spec("CRD-13")
async def test_a_follower_sends_a_request_to_the_leader(stage: RaftStage) -> None:
    await stage.found(3)
    follower = await stage.follower()
    async with stage.client(follower) as client:
        ticket = await client.request_join(GHOST, "t1")
        assert client.redirects_count == 1
        # The same ticket again is the same request; another ghost's is refused while it is open.
        assert await client.request_join(GHOST, "t1") == ticket
        other = replace(GHOST, peer_address="127.0.0.1:7")
        with pytest.raises(JoinRefused, match="name-taken"):
            await client.request_join(other, "t2")


@pytest.mark.spec("CRD-13")
async def test_a_name_that_is_taken_is_refused_with_the_reason(stage: RaftStage) -> None:
    await stage.found(2)
    leader = await stage.leader()
    with pytest.raises(BadArgument, match="of the cluster 'default', not of 'blue'"):
        async with stage.make("n3", join=[leader.info.join_address], cluster="blue"):
            pass
    with pytest.raises(JoinRefused, match="the name n1 belongs to another peer"):
        async with RaftPeer(APP, "n1", data=stage.folder / "other", join=[leader.info.join_address]):
            pass
    event = await stage.heard(leader.name, JoinRequestRefused)
    assert (event.name, event.code) == ("n1", "name-taken")
    assert await learners(leader) == []


@pytest.mark.spec("CRD-16")
async def test_a_person_lets_a_peer_join_or_does_not_and_it_is_told_why(tmp_path: Path) -> None:
    async with RaftStage(tmp_path, join_timeout=60.0) as stage:
        (first,) = await stage.found(1, approval="manual", resource_group="north")
        status = await first.status()
        assert (status.approval, status.resource_group) == (Approval.MANUAL, "north")
        assert status.bootstrap is not None
        assert (status.bootstrap.group_id, status.bootstrap.began_by) == (status.group_id, "n1")
        assert status.bootstrap.founders == {"n1": first.info.peer_address}
        with pytest.raises(BadArgument, match="the resource group 'north', not 'south'"):
            await stage.join("n9", first, resource_group="south")
        async with asyncio.TaskGroup() as group:
            joining = group.create_task(stage.join("n2", first, zone="harbour"))
            assert (await stage.heard("n1", ApprovalAwaited)).name == "n2"
            assert (await stage.heard("n2", ApprovalAwaited)).name == "n2"
            (request,) = (await first.status()).requests
            assert (request.peer.name, request.peer.zone) == ("n2", "harbour")
            assert request.state is JoinState.PENDING
            assert request.requested_at > 0
            await first.approve("n2")
        joined = joining.result()
        approved = await stage.heard("n1", JoinApproved)
        assert approved.approval_s == first.stats.join_approval_s > 0
        assert joined.stats.join_snapshot_bytes > 0

        async def told_at_joining() -> str:
            with pytest.raises(JoinRefused) as refused:
                await stage.join("n3", first)
            return str(refused.value)

        async with stage.client(joined) as client, asyncio.TaskGroup() as group:
            told = group.create_task(told_at_joining())
            assert (await stage.heard("n1", ApprovalAwaited)).name == "n3"
            # Through a peer that does not lead.
            await client.refuse("n3", "the quay is full")
        assert told.result() == "n3 was not taken into orders: the quay is full (refused)"
        assert first.stats.refusals == {"refused": 1}
        assert sorted(await roles_at(first)) == ["n1", "n2"]


@pytest.mark.spec("CRD-13")
async def test_a_group_that_is_not_healthy_takes_nobody(stage: RaftStage) -> None:
    await stage.found(3)
    follower = await stage.follower()
    leader = await stage.leader()
    kill(follower, signal.SIGSTOP)
    try:
        async with stage.client(leader) as client:
            ticket = await client.request_join(GHOST, "t1")
            with pytest.raises(
                JoinRefused, match=rf"{follower.name} of 3 peers did not answer.*\(unhealthy\)"
            ):
                await client.await_acceptance(ticket)
        assert await learners(leader) == []
        # A peer whose own etcd stands still says so, and does not let who asks it wait without a word.
        async with stage.client(follower) as client:
            with pytest.raises(TimedOut, match="the etcd of this peer is silent, ask another one"):
                await client.describe(timeout=2.5)
    finally:
        kill(follower, signal.SIGCONT)


@pytest.mark.spec("CRD-13")
async def test_a_join_that_was_given_up_is_asked_for_again_under_the_same_name(tmp_path: Path) -> None:
    async with RaftStage(tmp_path, patience=60.0) as stage:
        await stage.found(3)
        leader, follower = await stage.leader(), await stage.follower()
        kill(follower, signal.SIGSTOP)
        try:
            async with asyncio.TaskGroup() as group:
                # While the group is not healthy it waits; whoever started it has no patience.
                joining = group.create_task(stage.join("n4", leader))
                assert (await stage.heard(leader.name, JoinRequested)).name == "n4"
                joining.cancel()
        finally:
            kill(follower, signal.SIGCONT)
        joined = await stage.join("n4", leader)
        assert (await roles_at(joined))["n4"] == "follower"


@pytest.mark.spec("CRD-13")
async def test_a_request_of_a_peer_that_vanished_expires_and_its_learner_is_removed(tmp_path: Path) -> None:
    async with RaftStage(tmp_path, join_timeout=9.0) as stage:
        await stage.found(1)
        leader = await stage.leader()
        async with stage.client(leader) as client:
            ticket = await client.request_join(GHOST, "t1")
            acceptance = await client.await_acceptance(ticket)
            assert acceptance.initial_cluster["ghost"] == GHOST.peer_address
            assert acceptance.snapshot_bytes > 0
            assert acceptance.effective_index > 0
            assert await learners(leader) == [GHOST.peer_address]
            assert (await stage.heard("n1", JoinExpired)).name == "ghost"
            await until(lambda: is_empty(leader), "the learner is removed")
            with pytest.raises(JoinRefused, match="expired"):
                await client.complete_sync(acceptance.peer_id)
            with pytest.raises(JoinRefused, match="expired"):
                await client.await_acceptance(ticket)
        assert leader.stats.joins_expired_count == 1
        assert leader.peers == (leader.info,)


async def is_empty(peer: RaftPeer) -> bool:
    return await learners(peer) == []


@pytest.mark.spec("CRD-13")
async def test_a_join_is_carried_on_when_the_leaders_peer_dies_in_the_middle(
    stage: RaftStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = await stage.found(3)
    leader = await stage.leader()
    sync, is_killed = RaftPeer._sync, asyncio.Event()

    async def after_acceptance(self: RaftPeer, *arguments: object) -> None:
        # Accepted, and not started yet: now the one who accepted it goes.
        await stage.stop(leader.name)
        is_killed.set()
        await sync(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(RaftPeer, "_sync", after_acceptance)
    joined = await stage.join("n4", *peers)
    assert is_killed.is_set()
    status = await joined.status()
    assert roles(status)["n4"] in ("follower", "leader")
    assert status.leader not in ("", leader.name)
    await until(lambda: "n4" in stage.known_to(joined), "it stands in the record")
    await joined.store.put("written", b"after")


@pytest.mark.spec("CRD-13")
async def test_a_peer_that_lost_everything_while_it_joined_joins_anew(stage: RaftStage) -> None:
    await stage.found(1)
    leader = await stage.leader()
    async with stage.client(leader) as client:
        first = stage.make("n2", join=[leader.info.join_address])
        lost = first._home.open(is_founder=False, is_joiner=True)
        first._home.close()
        before = await client.await_acceptance(await client.request_join(lost, "t1"))
    joined = await stage.join("n2", leader, peer_address=lost.peer_address)
    assert joined.info.peer_id != before.peer_id
    assert sorted(await roles_at(joined)) == ["n1", "n2"]


@pytest.mark.spec("CRD-12")
async def test_a_follower_and_then_the_leader_leave_and_the_last_one_does_not(stage: RaftStage) -> None:
    await stage.found(3)
    follower, leader = await stage.follower(), await stage.leader()
    await follower.store.put("kept", b"x")
    await follower.leave()
    assert follower.is_left
    assert follower.pid is None
    assert (await stage.heard(leader.name, RaftPeerLeft)).peer.name == follower.name
    await stage.stop(follower.name)
    with pytest.raises(RaftRefused, match="has left orders"):
        async with stage.make(follower.name):
            pass
    await leader.leave()
    (last,) = (peer for peer in stage.peers.values() if not peer.is_left)
    await until(lambda: last.is_leading, "the last one leads")
    assert list(await roles_at(last)) == [last.name]
    assert await last.store.get("kept") is not None
    with pytest.raises(RaftRefused, match="last peer"):
        await last.leave()
    await last.store.put("still", b"here")


@pytest.mark.spec("CRD-12")
async def test_leaving_that_would_cost_the_quorum_is_refused(stage: RaftStage) -> None:
    await stage.found(3)
    leader = await stage.leader()
    stopped, other = (peer for peer in stage.peers.values() if peer is not leader)
    kill(stopped, signal.SIGSTOP)
    try:
        with pytest.raises(RaftRefused, match=r"of the 2 peers that would remain 1 answer"):
            await other.leave()
        assert not other.is_left
        assert len(await roles_at(leader)) == 3
        # The store may have gone over to the member that is stopped: then this put has no known outcome, and
        # the next one has.
        async with asyncio.timeout(20.0):
            while True:
                with suppress(TimedOut):
                    await other.store.put("still", b"here", timeout=2.0)
                    break
    finally:
        kill(stopped, signal.SIGCONT)


async def test_a_peer_that_does_not_come_back_is_removed_by_the_others(stage: RaftStage) -> None:
    await stage.found(3)
    follower, leader = await stage.follower(), await stage.leader()
    await stage.stop(follower.name)
    async with stage.client(leader) as client:
        await client.leave(follower.name)
        assert follower.name not in await roles_at(leader)
        with pytest.raises(RaftRefused, match="there is no peer"):
            await client.leave("nobody")
    # It knows nothing of it, and its data is of no use any more.
    with pytest.raises(RaftRefused, match=f"{follower.name} was removed from orders; to come back it joins"):
        await stage.start(follower.name)


async def test_a_peer_that_was_removed_while_it_was_running_ends_by_itself(stage: RaftStage) -> None:
    await stage.found(3)
    follower, leader = await stage.follower(), await stage.leader()
    async with stage.client(leader) as client:
        await client.leave(follower.name)
    async with asyncio.timeout(30):
        await follower.wait_left()
    assert follower.pid is None


async def test_how_far_a_joining_peer_is_can_be_watched(stage: RaftStage) -> None:
    await stage.found(1)
    leader = await stage.leader()
    async with Writer(leader.store) as writer:
        await writer.more(50)
    joined = await stage.join("n2", leader)
    event = await stage.heard("n2", CatchingUp)
    assert event.target_index >= 50
    assert joined.is_leading or leader.is_leading
