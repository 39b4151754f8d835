"""Raft groups on this machine, with real etcd processes and a rhythm that suits a test.

`python -m tests.support.raft_stage --peers 3 --data FOLDER` runs one, for tests that are not on its event
loop: it says where in a line of JSON, and ends with its stdin.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import pytest

from hansa.errors import Unavailable
from hansa.limits import RAFT_LOOK_S, RAFT_MEASURE_S
from hansa.runtime.mailboxes import EventStream
from hansa.store import Store
from hansa.store.etcd import messages
from hansa.store.raft import JoinClient, RaftPeer, RaftTimings
from hansa.store.raft.group_record import GroupRecord, RaftKeys, decode
from hansa.store.raft.raft_events import GroupStatus, RaftEvent
from hansa.store.values import FROM_KEY
from tests.support.etcd_program import etcd_program
from tests.support.reserved_ports import reserved_endpoints

APP = "orders"
TIMINGS = RaftTimings(heartbeat_ms=50, election_ms=500)
# Of a group in a process of its own: what it writes about itself is not among what its users write.
CLUSTER = "raft-stage"
# Far more than anything here takes: only what never happens waits for so long.
WITHIN_S = 60.0


def trusted_etcd() -> str:
    """The etcd of this run. One that raft mode refuses fails the test: untested must not look like tested."""
    program = etcd_program()
    if (3, 5, 0) <= program.version <= (3, 5, 2):
        pytest.fail(f"raft mode refuses {program}, as it should: put another etcd on the PATH to test it")
    return str(program.etcd)


async def until(holds: Callable[[], Any], what: str) -> None:
    """Wait until something holds; what cannot be asked just now does not."""
    try:
        async with asyncio.timeout(WITHIN_S):
            while True:
                try:
                    held = holds()
                    if await held if isinstance(held, Awaitable) else held:
                        return
                except Unavailable:
                    pass
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"within {WITHIN_S} s it did not happen that {what}") from None


class RaftStage:
    """Peers of one group. Leaving the block ends them all."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.peers: dict[str, RaftPeer] = {}
        self.events: dict[str, EventStream[RaftEvent]] = {}
        self._settings = {
            "timings": TIMINGS,
            "look_interval": 0.1,
            "measure_interval": 0.2,
            "patience": 1.0,
            "stop_timeout": 0.3,
            "program": trusted_etcd(),
            **settings,
        }
        self._ports = ExitStack()
        self._founders: dict[str, str] = {}
        self._of_group: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(*self.peers)
        self._ports.close()

    def make(self, name: str, **settings: Any) -> RaftPeer:
        peer = RaftPeer(APP, name, data=self.folder / name, **{**self._settings, **settings})
        self.events[name] = peer.events()
        return peer

    async def found(self, count: int = 3, **of_group: Any) -> list[RaftPeer]:
        """A new group, known to all its peers; `of_group` are settings that those who join are not given."""
        self._of_group = of_group
        endpoints = self._ports.enter_context(reserved_endpoints(count))
        self._founders = {f"n{n}": at.removeprefix("tcp://") for n, at in enumerate(endpoints, 1)}
        return await self.start(*self._founders)

    async def start(self, *names: str) -> list[RaftPeer]:
        """Founders, for the first time or again."""
        peers = [self.make(name, peers=self._founders, **self._of_group) for name in names]
        await asyncio.gather(*(self._enter(peer) for peer in peers))
        await until(lambda: all(self.known_to(peer) >= set(names) for peer in peers), "all know each other")
        return peers

    async def join(self, name: str, *through: RaftPeer, **settings: Any) -> RaftPeer:
        addresses = [peer.info.join_address for peer in through]
        return await self._enter(self.make(name, join=addresses, **settings))

    async def _enter(self, peer: RaftPeer) -> RaftPeer:
        await peer.__aenter__()
        self.peers[peer.name] = peer
        return peer

    async def stop(self, *names: str) -> None:
        """End these peers, and their etcd with them; as quickly as a crash would."""
        await asyncio.gather(*(self.peers.pop(name).__aexit__(None, None, None) for name in names))

    def known_to(self, peer: RaftPeer) -> set[str]:
        return {one.name for one in peer.peers}

    async def leader(self) -> RaftPeer:
        """The peer beside the leader, once there is one."""
        found: list[RaftPeer] = []

        async def look() -> bool:
            for peer in self.peers.values():
                status = await peer.status()
                found[:] = [
                    one for one in self.peers.values() if one.name == status.leader and one.is_leading
                ]
                if found:
                    return True
            return False

        await until(look, "somebody leads")
        return found[0]

    async def follower(self) -> RaftPeer:
        leader = await self.leader()
        return next(peer for peer in self.peers.values() if peer is not leader)

    def client(self, *through: RaftPeer) -> JoinClient:
        return JoinClient(APP, [peer.info.join_address for peer in through])

    async def heard(self, name: str, kind: type[RaftEvent]) -> Any:
        """The next event of a kind that a peer tells; others before it are passed over."""
        async with asyncio.timeout(WITHIN_S):
            async for event in self.events[name]:
                if isinstance(event, kind):
                    return event
        raise AssertionError(f"{name} ended and told no {kind.__name__}")


def kill(peer: RaftPeer, number: int = signal.SIGKILL) -> int:
    """Send a signal to a peer's etcd; gives its process."""
    pid = peer.pid
    assert pid is not None
    os.kill(pid, number)
    return pid


def freeze_process(pid: int) -> None:
    """SIGSTOP, and wait until every thread of it stands; also of a process that is not our child."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    while tasks.exists() and any(_state(task) not in "TtZX" for task in tasks.iterdir()):
        time.sleep(0.001)


def _state(task: Path) -> str:
    """One letter; after the name, which may have any characters in it."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def reset_raft_group(channel: grpc.Channel, peers_count: int) -> None:
    """Over a channel to a member, delete every key but the group's record, once all its peers stand there.

    From then on the peers write nothing: they read the record, and are content.
    """
    record = RaftKeys(CLUSTER, APP).group
    until_s = time.monotonic() + WITHIN_S

    def ask(call: messages.EtcdCall[Any, Any], **fields: Any) -> Any:
        return call.blocking_stub(channel)(call.request(**fields), timeout=WITHIN_S, wait_for_ready=True)

    while time.monotonic() < until_s:
        try:
            found = ask(messages.RANGE, key=record).kvs
            if found and len(decode(GroupRecord, found[0].value).peers) == peers_count:
                ask(messages.DELETE_RANGE, key=FROM_KEY, range_end=record)
                ask(messages.DELETE_RANGE, key=record + b"\0", range_end=FROM_KEY)
                return
        except grpc.RpcError:
            pass  # After a while without answers it has no leader at first.
        time.sleep(0.02)
    raise AssertionError(f"within {WITHIN_S} s the {peers_count} peers did not come to be known")


def roles(group: GroupStatus) -> dict[str, str]:
    return {one.peer.name: one.role for one in group.peers}


class Writer:
    """Writes numbered keys, one after the other, until it is ended; knows which were acknowledged."""

    def __init__(self, store: Store, size: int = 10) -> None:
        self._store = store
        self._value = b"x" * size
        self._is_ending = False
        self._group = asyncio.TaskGroup()
        self.acknowledged: list[str] = []

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._group.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ending = True
        await self._group.__aexit__(kind, error, trace)

    async def more(self, count: int = 20) -> None:
        """Until so many more are acknowledged."""
        target = len(self.acknowledged) + count
        await until(lambda: len(self.acknowledged) >= target, f"{count} more writes are acknowledged")

    async def _write(self) -> None:
        number = 0
        while not self._is_ending:
            number += 1
            key = f"written/{number:06}"
            try:
                await self._store.put(key, self._value, timeout=2.0)
            except Unavailable:
                continue
            self.acknowledged.append(key)
            await asyncio.sleep(0.002)


async def keys_of(store: Store, prefix: str = "written/") -> set[str]:
    return {item.key.decode() for item in (await store.scan(prefix, keys_only=True)).items}


def _hasty_etcd(folder: Path) -> str:
    """The etcd of this run, without waiting for the disk where it can: it outlives no power cut."""
    etcd = trusted_etcd()
    if not etcd_program().can_skip_fsync:
        return etcd
    script = folder / "etcd"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec "{etcd}" --version\nexec "{etcd}" "$@" --unsafe-no-fsync\n'
    )
    script.chmod(0o755)
    return str(script)


async def _run(peers_count: int, folder: Path) -> None:
    """A group that looks at itself as seldom as one in use does, until stdin ends."""
    async with RaftStage(
        folder,
        cluster=CLUSTER,
        look_interval=RAFT_LOOK_S,
        measure_interval=RAFT_MEASURE_S,
        program=_hasty_etcd(folder),
    ) as stage:
        peers = await stage.found(peers_count)
        joins = ",".join(peer.info.join_address for peer in peers)
        said = {
            "store": f"raft://{joins}/{APP}",
            "members": [peer.info.client_address for peer in peers],
            "etcd_pids": [peer.pid for peer in peers],
        }
        print(json.dumps(said), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=int, default=1)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    asyncio.run(_run(given.peers, given.data))
