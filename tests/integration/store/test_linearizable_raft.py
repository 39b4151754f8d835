"""What clients of a raft group see is linearizable, also while its members are killed one after the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from hansa.chance import Chance
from hansa.errors import Unavailable
from hansa.store import open_store
from hansa.store.raft import RaftPeer
from hansa.store.raft.raft_events import MemberRestarted
from hansa.testing import Call
from tests.support.raft_stage import APP, RaftStage, kill, until
from tests.support.store_history import KEYS, Clients, RegisterClient
from tests.support.store_history_stage import HistoryProcess, judge

pytestmark = [pytest.mark.spec("CRD-12"), pytest.mark.timeout(100)]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[RaftStage]:
    async with RaftStage(tmp_path) as stage:
        yield stage


async def test_registers_and_locks_are_linearizable_while_members_are_killed(
    stage: RaftStage, tmp_path: Path
) -> None:
    peers = await stage.found(3)
    address = f"raft://{','.join(peer.info.join_address for peer in peers)}/{APP}"
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(HistoryProcess(address, "p0", tmp_path))
        await other.event("ready")
        store = await stack.enter_async_context(open_store(address))
        readers = [await stack.enter_async_context(MemberReader(peer)) for peer in peers]
        async with Clients(store, "here", Chance.seeded(1)) as clients:
            await clients.progress(20)
            # The one that leads, the one that leads then, and the one that is left.
            victims = set(peers)
            while victims:
                leader = await stage.leader()
                victim = leader if leader in victims else next(iter(victims))
                victims.remove(victim)
                await killed_and_back(stage, victim, clients)
        calls = clients.calls + await other.end()
    for reader in readers:
        assert len(reader.calls) >= 100
        calls += reader.calls
    judge(calls, processes_count=2)
    assert sum(peer.stats.restarts_count for peer in peers) == 3


class MemberReader:
    """Reads through one member alone, which may be the one that knows the latest write last."""

    def __init__(self, peer: RaftPeer) -> None:
        self._store = open_store(f"etcd://{peer.info.client_address}")
        self._chance = Chance.seeded(peer.name)
        # One more of the clients here.
        self._client = RegisterClient(self._store, f"herer-{peer.name}", self._chance)
        self._stack = AsyncExitStack()

    @property
    def calls(self) -> list[Call]:
        return self._client.calls

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._store)
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._stack.callback(tasks.create_task(self._read()).cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def _read(self) -> None:
        while True:
            with suppress(Unavailable):
                await self._client.read(self._chance.choose(KEYS))
            await asyncio.sleep(self._chance.uniform(0.0, 0.01))


async def killed_and_back(stage: RaftStage, victim: RaftPeer, clients: Clients) -> None:
    """Kill a member while calls are under way; its supervisor starts it again, and it catches up."""
    pid = kill(victim)
    # Answered while a minority is dead.
    await clients.progress(20)
    await stage.heard(victim.name, MemberRestarted)
    await until(lambda: victim.pid not in (None, pid), "it runs again")

    async def is_well() -> bool:
        return all(one.is_healthy for one in (await victim.status()).peers)

    await until(is_well, "all stand in the group again")
    await clients.progress(20)
