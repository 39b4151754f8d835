"""What concurrent clients of three etcd servers see is linearizable, also while servers die and freeze."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hansa.chance import Chance
from hansa.store.opening import open_store
from hansa.testing import Call, Judgement, RegisterModel, check_linearizability
from tests.support.etcd_servers import EtcdGroup
from tests.support.store_history import Clients, RegisterClient
from tests.support.store_history_stage import HistoryProcess, judge

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.spec("CRD-09"), pytest.mark.timeout(100)]


async def test_registers_and_locks_are_linearizable_while_members_die_and_freeze(
    etcd_group: EtcdGroup, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        others = [
            await stack.enter_async_context(HistoryProcess(etcd_group.address, f"p{number}", tmp_path))
            for number in range(2)
        ]
        for other in others:
            await other.event("ready")
        store = await stack.enter_async_context(open_store(etcd_group.address))
        async with Clients(store, "here", Chance.seeded(1)) as clients:
            await clients.progress(30)
            leader = await etcd_group.led_by()
            etcd_group.kill(leader)
            await clients.progress(30)
            etcd_group.restart(leader)
            await etcd_group.serving()
            leader = await etcd_group.led_by()
            etcd_group.pause(leader)
            await clients.progress(30)
            # For a moment there are two who believe that they lead.
            etcd_group.resume(leader)
            await clients.progress(30)
            leader = await etcd_group.led_by()
            follower = next(index for index in etcd_group.indexes if index != leader)
            etcd_group.pause(follower)
            await clients.progress(30)
            etcd_group.resume(follower)
            # Without a majority nothing is done, and nobody is told that it was.
            for index in (leader, follower):
                etcd_group.kill(index)
            await asyncio.sleep(0.5)
            for index in (leader, follower):
                etcd_group.restart(index)
            await etcd_group.serving()
            await clients.progress(30)
        calls = clients.calls
        for other in others:
            calls += await other.end()
    judge(calls, processes_count=3)


async def test_a_reader_that_remembers_is_found_out(etcd_group: EtcdGroup) -> None:
    """The check of the check: one of four clients answers from what it read before."""
    remembered: dict[str, bytes | None] = {}
    async with open_store(etcd_group.address) as store:
        chance = Chance.seeded(2)
        good = [RegisterClient(store, f"good {number}", chance.fork(f"{number}")) for number in range(3)]
        broken = RegisterClient(store, "broken", chance.fork("broken"), recall=remembered.get)
        clients = [*good, broken]
        for _ in range(20):
            await asyncio.gather(*(client.act() for client in clients))
        verdict = check_linearizability(calls_of(clients), RegisterModel())
        assert verdict.is_linearizable, str(verdict)

        await good[0].write("x")
        item = await store.get("x")
        assert item is not None
        remembered["x"] = item.value
        for _ in range(20):
            await asyncio.gather(*(client.act() for client in good))
        await good[1].write("x")
        await broken.read("x")
    verdict = check_linearizability(calls_of(clients), RegisterModel())
    assert verdict.judgement is Judgement.VIOLATED
    assert verdict.counterexample is not None
    assert verdict.counterexample.impossible.process == "broken"


def calls_of(clients: list[RegisterClient]) -> list[Call]:
    return [call for client in clients for call in client.calls]
