"""The thread that keeps leases, on a server of this process: what it asks, when, and what it believes."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from hansa.store.etcd.client import EtcdStore
from hansa.store.served.server import StoreServer
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


async def test_who_keeps_a_lease_is_told_that_the_loop_was_late(store: EtcdStore) -> None:
    """At once, and not with the next renewal: its deadline may have passed meanwhile."""
    told = Told(store)
    keeping = await told.keep(interval_s=3.0)
    before_s = keeping.kept_until_s
    # Twice as long as from one sign of life to the next, and shorter than to the first renewal.
    time.sleep(1.7)  # noqa: ASYNC251
    await told.until(lambda: told.count > 0)
    assert (keeping.kept_until_s, keeping.failures_count) == (before_s, 0)
    assert keeping.loop_lag_s > 0.2
    keeping.stop()


async def test_a_renewal_that_fails_is_told_and_tried_again_soon(proxy: TcpProxy, store: EtcdStore) -> None:
    told = Told(store)
    keeping = await told.keep(interval_s=0.4)
    await told.renewed(keeping)
    proxy.refuse()
    await told.until(lambda: keeping.failures_count >= 2)
    proxy.forward()
    await told.until(lambda: keeping.failures_count == 0)
    assert keeping.kept_until_s > store.clock.monotonic() + TTL_S / 2
    keeping.stop()


async def test_a_renewal_that_nobody_answers_fails_by_its_deadline_and_is_the_only_one(
    proxy: TcpProxy, store: EtcdStore
) -> None:
    told = Told(store)
    keeping = await told.keep()
    await told.renewed(keeping)
    proxy.hold()
    await told.until(lambda: keeping.failures_count >= 3)
    # One at a time: else dozens would have failed together.
    assert keeping.failures_count < 10
    keeping.stop()
    proxy.forward()


async def test_nothing_is_told_of_a_lease_that_is_kept_no_more(store: EtcdStore) -> None:
    """Also not what the thread has said already, while the loop was busy."""
    told = Told(store)
    keeping = await told.keep()
    await told.renewed(keeping)
    time.sleep(3 * INTERVAL_S)  # noqa: ASYNC251
    keeping.stop()
    count = told.count
    await asyncio.sleep(INTERVAL_S)
    assert told.count == count


def hearts() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.endswith(" heart")]


async def keep_nowhere(store: EtcdStore) -> None:
    """A lease that nobody answers for."""
    store.keep(
        7,
        ttl_s=TTL_S,
        granted_s=store.clock.monotonic(),
        interval_s=INTERVAL_S,
        loop_silence_s_max=60.0,
        on_change=lambda: None,
    )


async def test_closing_the_store_has_ended_the_thread() -> None:
    async with EtcdStore(["127.0.0.1:1"]) as store:
        await keep_nowhere(store)
        assert len(hearts()) == 1
    assert hearts() == []


def test_the_thread_ends_with_a_loop_that_was_closed_before_the_store() -> None:
    async def forget_to_close() -> None:
        store = await EtcdStore(["127.0.0.1:1"]).__aenter__()
        await keep_nowhere(store)

    asyncio.run(forget_to_close())
    for thread in hearts():
        thread.join(10.0)
        assert not thread.is_alive()
