"""The thread that keeps leases, on a server of this process: what it asks, when, and what it believes."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from hansa.store.on_etcd import EtcdStore
from hansa.store.server import StoreServer
from hansa.store.store import Keeping
from tests.support.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.spec("CRD-07"), pytest.mark.timeout(30)]

TTL_S = 10.0
INTERVAL_S = 0.2


@pytest.fixture
async def proxy() -> AsyncIterator[TcpProxy]:
    """A way to a store that the test can make slow, or cut."""
    async with StoreServer("127.0.0.1:0") as server, TcpProxy(server.address) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: TcpProxy) -> AsyncIterator[EtcdStore]:
    async with EtcdStore([proxy.endpoint.removeprefix("tcp://")]) as store:
        yield store


class Told:
    """A lease that is kept, and a way to wait for what is told of it."""

    def __init__(self, store: EtcdStore) -> None:
        self.store = store
        self.count = 0
        self._changed = asyncio.Event()

    async def keep(self, *, interval_s: float = INTERVAL_S, loop_silence_s_max: float = 60.0) -> Keeping:
        lease = await self.store.grant(TTL_S)
        return self.store.keep(
            lease,
            ttl_s=TTL_S,
            granted_s=self.store.clock.monotonic(),
            interval_s=interval_s,
            loop_silence_s_max=loop_silence_s_max,
            on_change=self._on_change,
        )

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def renewed(self, keeping: Keeping) -> None:
        """Wait until the next renewal was answered."""
        before_s = keeping.kept_until_s
        await self.until(lambda: keeping.kept_until_s > before_s)

    def _on_change(self) -> None:
        self.count += 1
        self._changed.set()


async def test_a_renewal_is_believed_in_from_when_it_was_sent(proxy: TcpProxy, store: EtcdStore) -> None:
    told = Told(store)
    keeping = await told.keep(interval_s=0.6)
    await told.renewed(keeping)
    proxy.delay_s = 0.15
    await told.renewed(keeping)
    # The question and the answer were each so long under way, and the store began to count in between.
    assert keeping.kept_until_s <= store.clock.monotonic() - 2 * proxy.delay_s + TTL_S
    keeping.stop()
