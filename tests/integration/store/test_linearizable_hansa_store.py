"""What concurrent clients of `hansa store` see is linearizable, also when it is killed and started again."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from hansa.chance import Chance
from hansa.store.opening import open_store
from tests.support.reserved_ports import reserved_endpoints
from tests.support.store_history import Clients
from tests.support.store_history_stage import HansaStoreProcess, HistoryProcess, judge

pytestmark = [pytest.mark.spec("CRD-01"), pytest.mark.spec("CRD-09"), pytest.mark.timeout(100)]

KILLS_COUNT = 3


async def test_registers_and_locks_are_linearizable_across_kill_and_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with AsyncExitStack() as stack:
        (endpoint,) = stack.enter_context(reserved_endpoints(1))
        listen = endpoint.removeprefix("tcp://")
        server = await stack.enter_async_context(HansaStoreProcess(listen, data))
        await server.event("ready")
        other = await stack.enter_async_context(HistoryProcess(f"etcd://{listen}", "p0", tmp_path))
        await other.event("ready")
        store = await stack.enter_async_context(open_store(f"etcd://{listen}"))
        async with Clients(store, "here", Chance.seeded(3)) as clients:
            await clients.progress(30)
            for _ in range(KILLS_COUNT):
                await server.kill()
                server = await stack.enter_async_context(HansaStoreProcess(listen, data))
                await server.event("ready")
                await clients.progress(30)
        calls = [*clients.calls, *await other.end()]
    judge(calls, processes_count=2)
