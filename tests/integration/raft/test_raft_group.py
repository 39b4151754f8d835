"""Raft groups of real etcd processes: they keep what was written, through the loss of any one of them."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hansa.errors import AlreadyClosed, BadArgument, RaftRefused, TimedOut, Unavailable
from hansa.store import open_store
from hansa.store.raft import RaftPeer, RaftTimings
from hansa.store.raft.peer_home import DataFolder, FolderState
from hansa.store.raft.raft_events import (
    LeaderChanged,
    MemberFailing,
    MemberRestarted,
    SnapshotTaken,
)
from tests.support.leftovers import alive
from tests.support.raft_stage import APP, RaftStage, Writer, keys_of, kill, roles, trusted_etcd, until

PROGRAM = """
import asyncio, sys
from hansa.store.raft import RaftPeer

async def main():
    async with RaftPeer("orders", "n1", data=sys.argv[1], peers={"n1": sys.argv[2]}) as peer:
        print(peer.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RaftStage]:
    async with RaftStage(tmp_path) as stage:
        yield stage


@pytest.mark.spec("CRD-12")
async def test_what_one_peer_writes_every_peer_reads_at_once(stage: RaftStage) -> None:
    peers = await stage.found(3)
    for number in range(30):
        writer, *readers = (peers[(number + turn) % 3] for turn in range(3))
        await writer.store.put("berth", b"%d" % number)
        # Linearizable: what was acknowledged is read by whoever asks afterwards, through any member.
        for reader in readers:
            found = await reader.store.get("berth")
            assert found is not None
            assert found.value == b"%d" % number
    status = await peers[0].status()
    assert sorted(roles(status).values()) == ["follower", "follower", "leader"]
    assert all(one.is_healthy and one.is_voter and one.db_bytes and one.version for one in status.peers)
    assert status.record_version >= 3
    for peer in peers:
        told = await stage.heard(peer.name, LeaderChanged)
        assert (told.leader, told.term) == (status.leader, status.term)


@pytest.mark.spec("CRD-12")
@pytest.mark.parametrize("victim", ["leader", "follower"])
async def test_a_killed_member_comes_back_and_no_acknowledged_write_is_lost(
    stage: RaftStage, victim: str
) -> None:
    peers = await stage.found(3)
    killed = await (stage.leader() if victim == "leader" else stage.follower())
    other = next(peer for peer in peers if peer is not killed)
    async with Writer(other.store) as writer:
        await writer.more()
        pid = kill(killed)
        await writer.more(100)
        event = await stage.heard(killed.name, MemberRestarted)
        assert event.exit_status == -signal.SIGKILL
        await until(lambda: killed.pid not in (None, pid), "it runs again")
    # Through its own member alone: it has caught up with what was written meanwhile.
    async with open_store(f"etcd://{killed.info.client_address}") as store:
        assert await keys_of(store) >= set(writer.acknowledged)
    assert killed.stats.restarts_count == 1
    await until(lambda: roles_known(killed), "it stands in the group again")


async def roles_known(peer: RaftPeer) -> bool:
    return all(one.is_healthy for one in (await peer.status()).peers)


@pytest.mark.spec("CRD-12")
async def test_a_group_that_was_stopped_as_a_whole_keeps_everything(stage: RaftStage) -> None:
    peers = await stage.found(3)
    before = {peer.name: peer.info for peer in peers}
    for number in range(20):
        await peers[number % 3].store.put(f"kept/{number}", b"x")
    revision = (await peers[0].store.status()).revision
    await stage.stop("n1", "n2", "n3")
    # A start that comes to nothing does not make its folder forget that it holds a member.
    with pytest.raises(TimedOut, match="it needs more than half"):
        async with stage.make("n1", start_timeout=0.5):
            pass
    noted = DataFolder(stage.folder / "n1").read()
    assert noted is not None
    assert noted.state is FolderState.MEMBER
    again = await stage.start("n1", "n2", "n3")
    assert {peer.name: peer.info for peer in again} == before
    assert len(await keys_of(again[0].store, "kept/")) == 20
    assert (await again[0].store.status()).revision >= revision


async def test_a_peer_goes_on_with_its_folder_alone(stage: RaftStage) -> None:
    await stage.found(1)
    await stage.peers["n1"].store.put("kept", b"x")
    await stage.stop("n1")
    async with stage.make("n1") as peer:
        found = await peer.store.get("kept")
        assert found is not None
        with pytest.raises(AlreadyClosed):
            async with peer:
                pass


@pytest.mark.spec("CRD-12")
async def test_snapshots_are_told_and_measured(tmp_path: Path) -> None:
    timings = RaftTimings(heartbeat_ms=50, election_ms=500, snapshot_count=20)
    async with RaftStage(tmp_path, timings=timings) as stage:
        (peer,) = await stage.found(1)
        async with Writer(peer.store, size=1000) as writer:
            await writer.more(100)
        event = await stage.heard("n1", SnapshotTaken)
        assert event.count >= 1
        assert event.seconds > 0
        assert event.db_bytes > 0
        await until(lambda: peer.stats.snapshot_bytes > 0, "it is counted")
        assert peer.stats.snapshot_s > 0
        assert peer.stats.term > 0


@pytest.mark.spec("CRD-12")
async def test_an_etcd_that_cannot_be_trusted_is_not_started(tmp_path: Path) -> None:
    fake = tmp_path / "etcd"
    fake.write_text("#!/bin/sh\necho 'etcd Version: 3.5.1'\n")
    fake.chmod(0o755)
    async with RaftStage(tmp_path, program=str(fake)) as stage:
        with pytest.raises(RaftRefused, match=r"3\.5\.0 to 3\.5\.2"):
            await stage.found(1)
    assert not (tmp_path / "n1").exists()


@pytest.mark.spec("CRD-12")
async def test_a_data_folder_has_one_peer_at_a_time(stage: RaftStage) -> None:
    await stage.found(1)
    with pytest.raises(RaftRefused, match=f"in use by process {os.getpid()}"):
        async with stage.make("n1"):
            pass
    await stage.peers["n1"].store.put("still", b"here")


async def test_an_etcd_that_never_starts_is_given_up_with_the_end_of_its_log(tmp_path: Path) -> None:
    fake = tmp_path / "etcd"
    fake.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'etcd Version: 3.4.23' && exit\n"
        "echo the disk is made of cheese >&2\nexit 3\n"
    )
    fake.chmod(0o755)
    async with RaftStage(tmp_path, program=str(fake)) as stage:
        with pytest.raises(RaftRefused, match="made of cheese"):
            await stage.found(1)
        event = await stage.heard("n1", MemberFailing)
        assert "made of cheese" in event.log_tail


async def test_a_group_without_a_quorum_is_not_ready_and_leaves_nothing_behind(stage: RaftStage) -> None:
    before = alive()
    peers = {"n1": "127.0.0.1:1", "n2": "127.0.0.1:2"}
    with pytest.raises(BadArgument, match="not among the peers"):
        stage.make("n9", peers=peers)
    peer = stage.make("n1", peers={**peers, "n1": free_address()}, start_timeout=1.0)
    with pytest.raises(TimedOut, match="not ready"):
        async with peer:
            pass
    assert peer.pid is None
    after = alive()
    assert after.tasks == before.tasks
    assert {name for name in after.threads if "wait" in name.lower()} <= before.threads


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent's life")
async def test_no_etcd_outlives_a_program_that_was_killed(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(tmp_path / "n1"),
        free_address(),
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "HANSA_ETCD": trusted_etcd(),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
    )
    assert program.stdout is not None
    etcd_pid = int(await program.stdout.readline())
    os.kill(etcd_pid, 0)
    program.kill()
    await program.wait()

    def is_gone() -> bool:
        try:
            return "State:\tZ" in Path(f"/proc/{etcd_pid}/status").read_text()
        except FileNotFoundError:
            return True

    await until(is_gone, "the etcd is gone with its program")


async def test_the_store_of_a_group_is_opened_through_any_peer(stage: RaftStage) -> None:
    peers = await stage.found(2)
    await peers[0].store.put("berth", b"cog")
    async with open_store(f"raft://127.0.0.1:1,{peers[1].info.join_address}/{APP}") as store:
        found = await store.get("berth")
        assert found is not None
        assert found.value == b"cog"
    with pytest.raises(RaftRefused, match="of orders, not of bills"):
        async with open_store(f"raft://{peers[1].info.join_address}/bills"):
            pass


async def test_a_group_that_lost_its_quorum_can_still_be_looked_at(stage: RaftStage) -> None:
    await stage.found(2)
    leader, follower = await stage.leader(), await stage.follower()
    await stage.stop(leader.name)
    async with stage.client(follower) as client:

        async def is_leaderless() -> bool:
            return (await client.describe()).leader == ""

        await until(is_leaderless, "nobody leads")
        group = await client.describe()
        with pytest.raises(TimedOut, match="orders has no leader"):
            await client.leave(leader.name, timeout=1.0)
    assert sorted(one.peer.name for one in group.peers) == ["n1", "n2"]
    assert not any(one.is_healthy for one in group.peers)
    # And yet it is seen which one is there.
    assert [one.peer.name for one in group.peers if one.version] == [follower.name]
    while (await stage.heard(follower.name, LeaderChanged)).leader:
        pass
    with pytest.raises(Unavailable):
        await follower.store.put("berth", b"cog", timeout=1.0)
    # And it goes on when the other one is back.
    await stage.start(leader.name)
    await follower.store.put("berth", b"cog", timeout=20.0)
